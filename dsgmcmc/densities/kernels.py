"""All samplers of a density, by name."""

from __future__ import annotations

from typing import Any

from dsgmcmc.samplers import OF_DENSITIES, SAMPLERS
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.samplers.registry import Registry

#: Classes by the names that `sample_density` takes; ``KERNELS["sghmc"].Config`` has the settings of one. Gibbs sampling
#: is of conditionals, which a density does not give.
KERNELS: Registry[Sampler[Any, Any]] = Registry(
    {name: home for name, home in {**SAMPLERS.data, **OF_DENSITIES.data}.items() if name != "gibbs"}
)
