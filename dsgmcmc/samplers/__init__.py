"""How a target is sampled: one algorithm a file, and the gradients that they step along.

No process, no file and no factorisation is known here. To add a sampler, write its file and name it below.
"""

from __future__ import annotations

from typing import Any

from dsgmcmc.samplers.base import Sampler
from dsgmcmc.samplers.gibbs import Gibbs
from dsgmcmc.samplers.metropolis.austerity import Austerity
from dsgmcmc.samplers.metropolis.factorised import FMH, TFMH
from dsgmcmc.samplers.metropolis.mala import MALA
from dsgmcmc.samplers.metropolis.mh import MH
from dsgmcmc.samplers.metropolis.scalable import SMH1, SMH2
from dsgmcmc.samplers.metropolis.stochastic import ModifiedStochasticMH, StochasticMH
from dsgmcmc.samplers.sgmcmc.adjusted_sgld import AdjustedSGLD
from dsgmcmc.samplers.sgmcmc.baoab import BAOAB
from dsgmcmc.samplers.sgmcmc.gsgrhmc import GSGRHMC
from dsgmcmc.samplers.sgmcmc.gsgrld import GSGRLD
from dsgmcmc.samplers.sgmcmc.hamcmc import HAMCMC
from dsgmcmc.samplers.sgmcmc.psgld import PSGLD
from dsgmcmc.samplers.sgmcmc.sghmc import SGHMC
from dsgmcmc.samplers.sgmcmc.sgld import SGLD
from dsgmcmc.samplers.sgmcmc.sgnht import SGNHT
from dsgmcmc.samplers.sgmcmc.sgrld import SGRLD

#: Of any target.
SAMPLERS: dict[str, type[Sampler[Any]]] = {
    "sgld": SGLD,
    "psgld": PSGLD,
    "hamcmc": HAMCMC,
    "baoab": BAOAB,
    "gibbs": Gibbs,
    "sghmc": SGHMC,
    "sgnht": SGNHT,
    "sgrld": SGRLD,
}

#: Of densities on a plain vector alone.
OF_DENSITIES: dict[str, type[Sampler[Any]]] = {
    "mh": MH,
    "mala": MALA,
    "fmh": FMH,
    "tfmh": TFMH,
    "smh1": SMH1,
    "smh2": SMH2,
    "austerity": Austerity,
    "stochastic_mh": StochasticMH,
    "modified_stochastic_mh": ModifiedStochasticMH,
    "gsgrhmc": GSGRHMC,
    "gsgrld": GSGRLD,
    "adjusted_sgld": AdjustedSGLD,
}


def sampler_named(name: str) -> type[Sampler[Any]] | None:
    """Class of a sampler of either kind; None if there is none of that name."""
    return SAMPLERS.get(name) or OF_DENSITIES.get(name)
