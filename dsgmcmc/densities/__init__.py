"""Everything about targets that are plain vectors: densities, their samplers, their runs, and what draws are asked.

`targets` has what is sampled, `metropolis` and `sgmcmc` samplers of densities alone; those of `dsgmcmc.samplers` sample
them, too. No room below imports this one: the registries there name its classes by strings.

What users import stands here: `sample_density`, `Density`, `DensityRun`, and `KERNELS`, the classes of all samplers of
densities by name.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsgmcmc.densities.front import Density
    from dsgmcmc.densities.run import DensityRun
    from dsgmcmc.densities.source import sample_density
    from dsgmcmc.samplers import KERNELS

__all__ = ["KERNELS", "Density", "DensityRun", "sample_density"]

_HOMES = {
    "KERNELS": "samplers",
    "Density": "densities.front",
    "DensityRun": "densities.run",
    "sample_density": "densities.source",
}


def __getattr__(name: str) -> Any:
    """Import what users ask for when they ask for it: samplers are imported by name, without the rest."""
    if name in _HOMES:
        return getattr(import_module(f"dsgmcmc.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
