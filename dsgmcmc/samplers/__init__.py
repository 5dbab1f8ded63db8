"""Samplers, one algorithm per file, and the gradient estimators that they use.

Nothing here depends on processes, files or the factorisation. To add a sampler, write its file and
list it below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dsgmcmc.samplers.registry import Registry

if TYPE_CHECKING:
    from dsgmcmc.samplers.base import Sampler

#: All samplers by name; ``SAMPLERS[name].Config`` has the settings. Those in ``densities`` sample
#: only densities. The others sample ratings and densities, except Gibbs sampling, which needs
#: conditional distributions.
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


def for_ratings() -> list[str]:
    """Return the names of the samplers of ratings; `Sampler.densities` is set on all others."""
    return [name for name, home in SAMPLERS.data.items() if not _samples_densities_only(home)]


def _samples_densities_only(home: Any) -> bool:
    """Whether an entry of the registry, a class or where it is, samples only densities."""
    if isinstance(home, str):
        return home.startswith("densities.")
    return home.densities is not None
