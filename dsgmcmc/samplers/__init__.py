"""Samplers, one algorithm per file, and the gradient estimators that they use.

Nothing here depends on processes, files or the factorisation. To add a sampler, write its file and
list it below.
"""

from typing import Any

from dsgmcmc.samplers.baoab import BAOAB
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.samplers.gibbs import Gibbs
from dsgmcmc.samplers.hamcmc import HAMCMC
from dsgmcmc.samplers.psgld import PSGLD
from dsgmcmc.samplers.sghmc import SGHMC
from dsgmcmc.samplers.sgld import SGLD
from dsgmcmc.samplers.sgnht import SGNHT
from dsgmcmc.samplers.sgrld import SGRLD

#: The samplers of ratings by name; ``SAMPLERS[name].Config`` has the settings. All but Gibbs
#: sampling, which needs conditional distributions, also sample densities.
SAMPLERS: dict[str, type[Sampler[Any, Any]]] = {
    "sgld": SGLD,
    "psgld": PSGLD,
    "hamcmc": HAMCMC,
    "baoab": BAOAB,
    "gibbs": Gibbs,
    "sghmc": SGHMC,
    "sgnht": SGNHT,
    "sgrld": SGRLD,
}
