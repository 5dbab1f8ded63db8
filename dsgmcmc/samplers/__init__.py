"""How a target is sampled: one algorithm a file, and the gradients that they step along.

No process, no file and no factorisation is known here. To add a sampler, write its file and name it below.
"""

from __future__ import annotations

from typing import Any

from dsgmcmc.samplers.base import Sampler
from dsgmcmc.samplers.gibbs import Gibbs
from dsgmcmc.samplers.sgmcmc.baoab import BAOAB
from dsgmcmc.samplers.sgmcmc.hamcmc import HAMCMC
from dsgmcmc.samplers.sgmcmc.psgld import PSGLD
from dsgmcmc.samplers.sgmcmc.sghmc import SGHMC
from dsgmcmc.samplers.sgmcmc.sgld import SGLD
from dsgmcmc.samplers.sgmcmc.sgnht import SGNHT
from dsgmcmc.samplers.sgmcmc.sgrld import SGRLD

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
