"""The samplers that a chain falls back to where it diverges: smaller steps, a full metric, and exact Gibbs sampling.

A chain that diverges drops its draws and begins again, with the next sampler of this list. To keep the draws that it
made before would select chains by their survival. It begins from the state at the end of its burn-in, which a smaller
step would take several times as long to reach; or from its start, if it diverged before that. In both cases it counts
its iterations from 0, with a burn-in of the same length, and takes other random numbers: those before are the ones with
which it diverged.

The list follows from the settings alone, and a checkpoint says how often the chain had diverged. So a chain that is
stopped anywhere, also while it falls back, makes the same draws in the end.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from dsgmcmc.config.run import ResolvedConfig
from dsgmcmc.config.sampler import SamplerSection
from dsgmcmc.samplers import SAMPLERS

#: Settings of a sampler that say which it is to be.
NAMED_SETTINGS = {"name", "step_size", "metric"}


class Fallback(NamedTuple):
    """A sampler to fall back to, and its name in messages."""

    name: str
    sampler: SamplerSection


def fallbacks(config: ResolvedConfig, given: Collection[str]) -> list[Fallback]:
    """List the samplers that a chain falls back to, in order: its own, made safer, and then one of exact draws.

    A sampler, a metric or a step that the user has named is not replaced.

    Parameters
    ----------
    config : ResolvedConfig
        Settings of the run.
    given : collection of str
        Settings in the sampler's section that the user has named: ``name``, ``step_size``, ``metric``, ...
    """
    section = config.sampler
    safer = section.kind.safer(section.config, given)
    found = [Fallback(name, section.model_copy(update={"config": each})) for name, each in safer.items()]
    if NAMED_SETTINGS & set(given) or not config.law.is_conditionally_gaussian():
        return found
    exact = [SamplerSection.of(name) for name, kind in SAMPLERS.items() if kind.draws_conditionals]
    same_sweeps = [each for each in exact if each.kind.sweep_length(each.config, config.grid) == config.sweep_length]
    return found + [Fallback(f"the sampler {each.name}", each) for each in same_sweeps if each.name != section.name]
