"""How a target is sampled: one algorithm a file, and the gradients that they step along.

No process, no file and no factorisation is known here. To add a sampler, write its file and name it below.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsgmcmc.samplers.base import Sampler


class Samplers(MutableMapping[str, "type[Sampler[Any]]"]):
    """Classes of samplers by name, each imported when it is first asked for: a run needs the settings of its own alone.

    Parameters
    ----------
    homes : mapping of str to str
        Module below this room, and class in it.
    """

    def __init__(self, homes: Mapping[str, str]) -> None:
        self._homes = homes
        self._classes: dict[str, type[Sampler[Any]] | None] = dict.fromkeys(homes)

    def __getitem__(self, name: str) -> type[Sampler[Any]]:
        found = self._classes[name]
        if found is None:
            module, _, class_name = self._homes[name].rpartition(".")
            found = self._classes[name] = getattr(import_module(f"{__name__}.{module}"), class_name)
        return found

    def __setitem__(self, name: str, sampler: type[Sampler[Any]]) -> None:
        self._classes[name] = sampler

    def __delitem__(self, name: str) -> None:
        del self._classes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._classes)

    def __len__(self) -> int:
        return len(self._classes)

    def __contains__(self, name: object) -> bool:
        return name in self._classes


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
