"""Targets that are plain vectors: densities, their samplers, and their draws, in memory.

`density`, `sums` and `regression` have what is sampled, `sample` the chains, and `metropolis` and `sgmcmc` the samplers
of densities alone; the samplers of `dsgmcmc.samplers` sample densities, too. No room below imports this one: the
registries there name its classes by strings.

What users import stands here: `sample_density`, `Density`, and `KERNELS`, the classes of all samplers of densities by
name.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsgmcmc.densities.density import Density
    from dsgmcmc.densities.sample import sample_density
    from dsgmcmc.samplers import KERNELS

__all__ = ["KERNELS", "Density", "sample_density"]

_HOMES = {
    "KERNELS": "samplers",
    "Density": "densities.density",
    "sample_density": "densities.sample",
}


def __getattr__(name: str) -> Any:
    """Import what users ask for when they ask for it: samplers are imported by name, without the rest."""
    if name in _HOMES:
        return getattr(import_module(f"dsgmcmc.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
