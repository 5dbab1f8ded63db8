"""Samplers, one algorithm per file, and the gradient estimators that they use.

Nothing here depends on processes, files or the factorisation. To add a sampler, write its file and list it below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dsgmcmc.samplers.registry import Registry

if TYPE_CHECKING:
    from dsgmcmc.samplers.base import Sampler

#: Samplers of the factorisation; all except Gibbs sampling also sample densities.
SAMPLERS: Registry[Sampler[Any, Any]] = Registry(
    {
        "sgld": "samplers.sgld.SGLD",
        "psgld": "samplers.psgld.PSGLD",
        "hamcmc": "samplers.hamcmc.HAMCMC",
        "baoab": "samplers.baoab.BAOAB",
        "gibbs": "samplers.gibbs.Gibbs",
        "sghmc": "samplers.sghmc.SGHMC",
        "sgnht": "samplers.sgnht.SGNHT",
        "sgrld": "samplers.sgrld.SGRLD",
    }
)

#: Samplers that sample only densities on a plain vector.
DENSITY_SAMPLERS: Registry[Sampler[Any, Any]] = Registry(
    {
        "mh": "densities.mh.MH",
        "hmc": "densities.hmc.HMC",
        "mala": "densities.mala.MALA",
        "smh1": "densities.scalable.SMH1",
        "smh2": "densities.scalable.SMH2",
        "austerity": "densities.mh.Austerity",
        "stochastic_mh": "densities.mh.StochasticMH",
        "modified_stochastic_mh": "densities.mh.ModifiedStochasticMH",
        "gsgrhmc": "densities.riemannian.GSGRHMC",
        "gsgrld": "densities.riemannian.GSGRLD",
        "matrix_sgnht": "densities.matrix_sgnht.MatrixSGNHT",
        "adjusted_sgld": "densities.adjusted_sgld.AdjustedSGLD",
    }
)

#: All samplers of densities, by the names that `sample_density` takes; ``KERNELS[name].Config`` has the settings.
#: Gibbs sampling is not included, because a density does not provide conditional distributions.
KERNELS: Registry[Sampler[Any, Any]] = Registry(
    {name: home for name, home in {**SAMPLERS.data, **DENSITY_SAMPLERS.data}.items() if name != "gibbs"}
)


def sampler_named(name: str) -> type[Sampler[Any, Any]] | None:
    """Class of a sampler of either kind; None if no sampler has this name."""
    return SAMPLERS.get(name) or DENSITY_SAMPLERS.get(name)
