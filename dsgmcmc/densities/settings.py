"""Settings of a sampler on a density: its name, its default step, and what would be wrong.

The samplers of ratings have defaults for ratings. Here are those for plain vectors.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from typing import Any, ClassVar

from dsgmcmc.config.chain import SamplerSection
from dsgmcmc.densities.matrix_sgnht import MatrixSGNHT
from dsgmcmc.densities.registry import SAMPLERS
from dsgmcmc.errors import InputError
from dsgmcmc.samplers.baoab import BAOAB
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.samplers.gradients import PartGradient
from dsgmcmc.samplers.hamcmc import HAMCMC
from dsgmcmc.samplers.psgld import PSGLD
from dsgmcmc.samplers.sghmc import SGHMC
from dsgmcmc.samplers.sgld import SGLD
from dsgmcmc.samplers.sgnht import SGNHT
from dsgmcmc.samplers.sgrld import SGRLD
from dsgmcmc.samplers.step_size import SamplerConfig, StepSize

#: Largest default steps, if a gradient uses all data; with B parts, they are divided by B. The
#: defaults of other samplers are not changed.
LARGEST_STEPS: dict[type[Sampler[Any, Any]], float] = {
    SGLD: 0.08,
    HAMCMC: 0.08,
    SGRLD: 0.08,
    BAOAB: 0.1,
    SGHMC: 0.04,
    SGNHT: 0.15,
    MatrixSGNHT: 0.15,
}

#: Default gamma h of SGHMC, if gradients have noise.
NOISY_FADE = 0.9


class DensitySection(SamplerSection):
    """The section of a sampler of densities."""

    samplers: ClassVar[Mapping[str, type[Sampler[Any, Any]]]] = SAMPLERS
    rules: ClassVar[tuple[str, ...]] = ()
    draws_data: ClassVar[bool] = True


def with_default_step(
    sampler: type[Sampler[Any, Any]], config: SamplerConfig, sweep_length: int
) -> SamplerConfig:
    """Return the configuration for a density: a default step is at most `LARGEST_STEPS` / B.

    Gradients of B parts have noise of variance B - 1 in the metric of the Fisher information. At
    such steps, noise that is independent in every iteration makes standard deviations a few percent
    too large. With this noise, gamma h of SGHMC is `NOISY_FADE`, unless the user has set the
    friction, the splitting or the noise correction.

    Parameters
    ----------
    sampler : type of Sampler
    config : SamplerConfig
        A step that the user has set is not changed.
    sweep_length : int
        B, or 1 if gradients use all data.
    """
    largest = _largest_step(sampler)
    if largest is None or not isinstance(config, StepSize):
        return config
    if "step_size" in config.model_fields_set:
        return config
    step = min(config.step_size, largest / sweep_length)
    changes = {"step_size": step}
    is_noisy = sweep_length > 1
    if issubclass(sampler, SGHMC) and is_noisy:
        fixed = {"gamma", "splitting", "noise_correction"} & config.model_fields_set
        if not fixed:
            changes["gamma"] = NOISY_FADE / sqrt(2 * step)
    return config.model_copy(update=changes)


def _largest_step(sampler: type[Sampler[Any, Any]]) -> float | None:
    """Return the entry of `LARGEST_STEPS` for a sampler or its nearest base class; None without."""
    for base in sampler.__mro__:
        if base in LARGEST_STEPS:
            return LARGEST_STEPS[base]
    return None


def check_settings(
    sampler: type[Sampler[Any, Any]], config: SamplerConfig, grid: int, dimension: int
) -> None:
    """Raise `InputError` if these settings would sample a wrong distribution on a density.

    That of SGNHT is wrong with minibatches for several parameters, whose noise differs between
    directions. The default step of PSGLD grows with the square root of N on a posterior's scale.

    Parameters
    ----------
    sampler : type of Sampler
    config : SamplerConfig
        Defaults that were not changed are not in its `model_fields_set`.
    grid : int
        Number B of parts of the data.
    dimension : int
        D of the density.
    """
    if issubclass(sampler, PSGLD) and "step_size" not in config.model_fields_set:
        raise InputError(
            "the default step of psgld is for factorisations: give it a step_size, or take sgld"
        )
    if not issubclass(sampler, SGNHT) or dimension == 1:
        return
    if sampler.estimator(config) is PartGradient and grid > 1:
        raise InputError(
            "sgnht cannot match minibatch noise: take matrix_sgnht up to D = 50, else sghmc or"
            " grid=1"
        )
