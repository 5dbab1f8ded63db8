"""Chains of a density in memory: the draws of a run, with neither files nor MPI."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dsgmcmc.config.density import ResolvedDensity
from dsgmcmc.densities.draws import MemoryDraws
from dsgmcmc.densities.sample import vector_target
from dsgmcmc.densities.targets.density import Density
from dsgmcmc.densities.targets.vector import VectorTarget, VectorTrace
from dsgmcmc.diagnostics.accuracy import Look, accuracy, reached
from dsgmcmc.diagnostics.mixing import equal_weights
from dsgmcmc.errors import DivergenceError, InputError
from dsgmcmc.runs.until import next_look
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.targets.base import DrawInfo


def chain_target(
    density: Density, sampler: Sampler[Any, Any], config: ResolvedDensity, chain: int, **more: Any
) -> VectorTarget[Any]:
    """Make the target of a chain of a run."""
    return vector_target(
        density,
        sampler,
        seed=config.seed,
        chain=chain,
        grid=config.grid,
        schedule=config.schedule,
        energy_every=config.energy_every,
        **more,
    )


@dataclass
class MemoryChain:
    """A chain, and what was recorded of it."""

    target: VectorTarget[Any]
    sampler: Sampler[Any, Any]
    config: ResolvedDensity
    number: int
    made: int = 0
    draws: list[tuple[int, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.trace,) = self.target.recorders()
        assert isinstance(self.trace, VectorTrace)
        self.sampler.start(self.target, self.config.initial_sd)

    def advance(self, goal: int) -> None:
        """Iterate until `goal` iterations are made, and record the draws on the way.

        Raises
        ------
        DivergenceError
            If the state is no longer finite.
        """
        first, thin = self.config.burn_in, self.config.thin
        while self.made < goal:
            before = max(self.made, first)
            draw = before + thin - (before - first) % thin
            stop = min(goal, draw, self.made + self.target.at_once())
            self.sampler.advance(self.target, self.made, stop - self.made)
            self.made = stop
            if stop > first and (stop - first) % thin == 0:
                self._record()
        self._check(self.sampler.position(goal - 1))

    def _record(self) -> None:
        position, weight = self.sampler.position(self.made - 1), self.sampler.weight(self.target, self.made - 1)
        self._check(position)
        self.trace.record(position, DrawInfo(self.made, weight, 0.0))
        self.draws.append((self.made, weight))

    def _check(self, position: str) -> None:
        found = self.target.find_divergence(position) or self.sampler.find_divergence()
        if found:
            raise DivergenceError(
                f"chain {self.number} diverged by iteration {self.made}: {found}. Use a smaller step_size of the "
                "sampler, or a larger curvature of the density, which is its unit"
            )


def sample_in_memory(density: Density, config: ResolvedDensity) -> MemoryDraws:
    """Sample a density; see `dsgmcmc.sample_density`.

    Raises
    ------
    InputError
        If there would be no draw.
    DivergenceError
        If a chain diverges.
    """
    if config.first_draw > config.iterations:
        raise InputError(
            f"iterations = {config.iterations} end before the first draw, at {config.first_draw} after a burn-in of "
            f"{config.burn_in}: make more iterations, or a shorter burn-in"
        )
    chains = []
    for number in range(config.chains):
        sampler = config.make_sampler()
        chains.append(MemoryChain(chain_target(density, sampler, config, number), sampler, config, number))
    with np.errstate(all="ignore"):  # a diverging chain is found by looking at it
        look = _iterate(chains, config)
    found = [{key.field: array for key, array in chain.trace.saved()} for chain in chains]
    return MemoryDraws(
        sampler=config.sampler.name,
        interleaved=len(chains[0].sampler.positions),
        theta=np.stack([each["theta"] for each in found]),
        energy=np.stack([each["energy"][:, 0] for each in found]),
        weight=np.array([[weight for _, weight in chain.draws] for chain in chains]),
        iteration=np.array([[iteration for iteration, _ in chain.draws] for chain in chains]),
        elements=np.arange(density.dimension),
        density=density,
        statistics=[chain.sampler.metrics() for chain in chains],
        look=look,
    )


def _iterate(chains: list[MemoryChain], config: ResolvedDensity) -> Look | None:
    """One chain after the other to the end; or all together from look to look, until they have the accuracy."""
    goal, look = 0 if config.until else config.iterations, None
    while goal < config.iterations:
        goal = min(config.iterations, next_look(goal + 1, config.burn_in, config.sweep_length))
        for chain in chains:
            chain.advance(goal)
        values = np.stack([chain.trace.followed()[0].values for chain in chains])
        weights = np.array([[weight for _, weight in chain.draws] for chain in chains])
        found: dict[str, float] = {}
        if equal_weights(weights):
            found = accuracy(values, len(chains[0].sampler.positions), list(config.wanted))
        look = Look(str(config.until), goal, found, reached(config.wanted, found), config.iterations)
        if look.reached:
            return look
    for chain in chains:
        chain.advance(config.iterations)
    return look
