"""Densities on plain vectors, their samplers, and their draws in memory.

`density`, `sums` and `regression` define densities, and `sample` their chains. `metropolis` and `sgmcmc` contain
samplers for densities alone; those in `dsgmcmc.samplers` sample densities, too. Lower packages do not import this one:
their registries name its classes by strings.

Users import from here `sample_density`, `Density`, and `KERNELS`, the classes of all samplers for densities by name.
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
    """Import a public name on first use, so that a sampler can be imported without the rest of the package."""
    if name in _HOMES:
        return getattr(import_module(f"dsgmcmc.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
