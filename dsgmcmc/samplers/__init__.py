"""How a target is sampled: one algorithm a file, and the gradients that they step along.

No process, no file and no factorisation is known here. To add a sampler, write its file and name it below.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsgmcmc.samplers.base import Sampler


class Samplers(UserDict[str, "type[Sampler[Any]]"]):
    """Classes of samplers by name, each imported when it is first asked for: a run needs the settings of its own alone.

    Parameters
    ----------
    homes : mapping of str to str
        Module below this room, and class in it.
    """

    def __init__(self, homes: Mapping[str, str]) -> None:
        self.data: dict[str, Any] = dict(homes)

    def __getitem__(self, name: str) -> type[Sampler[Any]]:
        if isinstance(home := self.data[name], str):
            module, _, class_name = home.rpartition(".")
            self.data[name] = getattr(import_module(f"{__name__}.{module}"), class_name)
        found: type[Sampler[Any]] = self.data[name]
        return found


#: Of any target.
SAMPLERS = Samplers(
    {
        "sgld": "sgmcmc.sgld.SGLD",
        "psgld": "sgmcmc.psgld.PSGLD",
        "hamcmc": "sgmcmc.hamcmc.HAMCMC",
        "baoab": "sgmcmc.baoab.BAOAB",
        "gibbs": "gibbs.Gibbs",
        "sghmc": "sgmcmc.sghmc.SGHMC",
        "sgnht": "sgmcmc.sgnht.SGNHT",
        "sgrld": "sgmcmc.sgrld.SGRLD",
    }
)

#: Of densities on a plain vector alone.
OF_DENSITIES = Samplers(
    {
        "mh": "metropolis.mh.MH",
        "mala": "metropolis.mala.MALA",
        "fmh": "metropolis.factorised.FMH",
        "tfmh": "metropolis.factorised.TFMH",
        "smh1": "metropolis.scalable.SMH1",
        "smh2": "metropolis.scalable.SMH2",
        "austerity": "metropolis.austerity.Austerity",
        "stochastic_mh": "metropolis.stochastic.StochasticMH",
        "modified_stochastic_mh": "metropolis.stochastic.ModifiedStochasticMH",
        "gsgrhmc": "sgmcmc.gsgrhmc.GSGRHMC",
        "gsgrld": "sgmcmc.gsgrld.GSGRLD",
        "adjusted_sgld": "sgmcmc.adjusted_sgld.AdjustedSGLD",
    }
)


def sampler_named(name: str) -> type[Sampler[Any]] | None:
    """Class of a sampler of either kind; None if there is none of that name."""
    return SAMPLERS.get(name) or OF_DENSITIES.get(name)
