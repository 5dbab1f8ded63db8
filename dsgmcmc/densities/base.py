"""The base classes of what is for densities alone: samplers, and gradient estimators."""

from __future__ import annotations

from typing import ClassVar, Generic

from dsgmcmc.densities.density import D
from dsgmcmc.densities.vector import VectorTarget
from dsgmcmc.samplers.base import C, Sampler
from dsgmcmc.samplers.gradients import PartGradient


class DensitySampler(Sampler[C, VectorTarget[D]], Generic[C, D]):
    """A sampler of densities of class `D`, which cannot sample ratings."""

    #: Class that a density must have; `object` for any.
    densities: ClassVar[type] = object


class DensityGradient(PartGradient[VectorTarget[D]]):
    """Computes gradients of the energy of densities of class `D` from a part of the data."""

    #: Class that a density must have; `object` for any.
    densities: ClassVar[type] = object
