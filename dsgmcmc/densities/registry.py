"""All samplers of densities by name."""

from collections import ChainMap
from typing import Any

from dsgmcmc.densities.adjusted_sgld import AdjustedSGLD
from dsgmcmc.densities.hmc import HMC
from dsgmcmc.densities.mala import MALA
from dsgmcmc.densities.matrix_sgnht import MatrixSGNHT
from dsgmcmc.densities.mh import MH, Austerity, ModifiedStochasticMH, StochasticMH
from dsgmcmc.densities.riemannian import GSGRHMC, GSGRLD
from dsgmcmc.densities.scalable import SMH1, SMH2
from dsgmcmc.samplers import SAMPLERS as SAMPLERS_OF_RATINGS
from dsgmcmc.samplers.base import Sampler

#: The samplers of densities by name; ``SAMPLERS[name].Config`` has the settings. Those of ratings
#: are among them, also those that a script adds to `dsgmcmc.samplers.SAMPLERS`.
SAMPLERS: ChainMap[str, type[Sampler[Any, Any]]] = ChainMap(
    {
        "mh": MH,
        "hmc": HMC,
        "mala": MALA,
        "smh1": SMH1,
        "smh2": SMH2,
        "austerity": Austerity,
        "stochastic_mh": StochasticMH,
        "modified_stochastic_mh": ModifiedStochasticMH,
        "gsgrhmc": GSGRHMC,
        "gsgrld": GSGRLD,
        "matrix_sgnht": MatrixSGNHT,
        "adjusted_sgld": AdjustedSGLD,
    },
    SAMPLERS_OF_RATINGS,
)
