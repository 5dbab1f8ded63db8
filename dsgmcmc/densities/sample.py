"""Chains that sample a density, on one process or several.

`sample_density` returns draws; `sample` yields the state after each iteration.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from math import sqrt
from typing import Any, NamedTuple, Self

import numpy as np
from pydantic import Field

from dsgmcmc.config.chain import ChainConfig, ResolvedChain
from dsgmcmc.config.sampler import DEFAULT_SAMPLER, section_of
from dsgmcmc.densities.curvature import with_curvature
from dsgmcmc.densities.density import D, Density, check_attributes, check_energy, check_gradient
from dsgmcmc.densities.draws import Draws
from dsgmcmc.densities.vector import NOT_CONDITIONAL, VectorTarget, part_sizes
from dsgmcmc.diagnostics.accuracy import Look, accuracy, next_look, reached
from dsgmcmc.diagnostics.mixing import equal_weights
from dsgmcmc.errors import DivergenceError, InputError
from dsgmcmc.parallel.comm import Alone, agree, launched, run_for_caller
from dsgmcmc.parallel.machine import memory_limit
from dsgmcmc.parallel.schedule import Schedule
from dsgmcmc.samplers import sampler_named
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.samplers.step_size import EXCESS_OF_WARNING, SamplerConfig
from dsgmcmc.settings import in_python
from dsgmcmc.targets.state import RandomStream
from dsgmcmc.types import Comm, Float64, Int64, ScheduleName

#: Largest share of the memory that the draws may occupy.
MEMORY_SHARE = 0.5

#: Maximum number of iterations in one call of a compiled loop: Ctrl-C takes effect only between calls. The draws do not
#: depend on this number.
CALL_ITERATIONS = 1_000

log = logging.getLogger(__name__)


class DensityConfig(ChainConfig):
    """Settings as requested: the settings of a chain, and `energy_every`.

    The energy is computed at every `energy_every`-th draw, or never if that is 0. The default is 1 if an iteration uses
    all data, and 0 if it uses a part of them.
    """

    energy_every: int | None = Field(None, ge=0)

    @classmethod
    def build(cls, settings: Mapping[str, Any]) -> Self:
        """Check settings; for a setting that is not given, the default of the sampler comes first.

        Raises
        ------
        InputError
            If any setting is wrong; the message names all of them.
        """
        section = {"name": DEFAULT_SAMPLER, **section_of(settings.get("sampler", {}))}
        kind = sampler_named(section["name"])
        declared = kind.defaults if kind else {}
        defaults = {name: value for name, value in declared.items() if name in cls.model_fields}
        return cls.of({**defaults, **settings, "sampler": section})

    def _plain(self, processes: int, finest: int | None, until: str | None) -> dict[str, Any]:
        """Choose the settings left open, convert lengths to iterations, and check that the sampler allows the settings.

        The step sizes of the sampler are chosen for a density, given the noise of the gradients.
        """
        plain = super()._plain(processes, finest, until)
        kind, config = self.sampler.kind, self.sampler.config
        sweep = kind.sweep_length(config, plain["grid"])
        suited = kind.suited_to_density(config, kind.noise_of_parts(config, plain["grid"]))
        every = (1 if sweep == 1 else 0) if self.energy_every is None else self.energy_every
        return {**plain, "sampler": self.sampler.model_copy(update={"config": suited}), "energy_every": every}

    def resolved(self, processes: int = 1, finest: int | None = None) -> ResolvedDensity:
        """Resolve the settings for a number of processes, with at most `finest` parts of the data."""
        return ResolvedDensity.of(self.plain(processes, finest))


class ResolvedDensity(ResolvedChain, DensityConfig):
    """Settings as plain numbers, none left open."""

    energy_every: int = Field(ge=0)

    @property
    def draws(self) -> int:
        """Number of draws of a chain that completes all iterations."""
        return max(self.iterations - self.burn_in, 0) // self.thin


def check_fits(density: Density, kind: type[Sampler[Any, Any]], config: SamplerConfig, name: str = "") -> None:
    """Raise `InputError` if a sampler, or its gradient estimator, needs a density of another class."""
    for what, needed in (
        (f"sampler {name or kind.__name__} samples", kind.densities),
        (f"sampler.gradient = {config.gradient!r} is of", kind.estimator(config).densities),
    ):
        if needed is not None and not isinstance(density, needed):
            raise InputError(f"{what} a {needed.__name__}, which this {type(density).__name__} is not")


def vector_target(
    density: D,
    sampler: Sampler[Any, Any],
    *,
    rows: int = 1,
    seed: int = 0,
    chain: int = 0,
    grid: int = 1,
    schedule: ScheduleName = "shuffled",
) -> VectorTarget[D]:
    """Prepare a density for a sampler: state, working arrays, random numbers and the order of the data.

    Parameters
    ----------
    density : Density
    sampler : Sampler
        Determines the fields of the state, and whether an iteration uses a part of the data or all of them.
    rows : int
        Number n of vectors that move together.
    seed, chain : int
        Key of all random numbers.
    grid : int
        Number B of parts into which the data are divided.
    schedule : {"shuffled", "cyclic", "random"}
        Order in which the parts are visited.

    Raises
    ------
    InputError
        If an attribute of the density has a wrong shape, or the sampler needs a density of another class.
    """
    check_attributes(density)
    check_fits(density, type(sampler), sampler.config)
    order = Schedule(schedule, part_sizes(density.n_data, grid), seed, chain) if sampler.gradient.by_parts else None
    stream = RandomStream(seed, chain)
    return VectorTarget(
        density,
        order,
        fields=(*sampler.kept, *sampler.gradient.tables(density, grid)),
        scratch=sampler.working,
        stream=stream,
        rows=rows,
    )


def sample(
    target: VectorTarget[Any], sampler: Sampler[Any, Any], iterations: int, sd: float = 1.0
) -> Iterator[Float64]:
    """Run a sampler on a density.

    Parameters
    ----------
    target : VectorTarget
        Made by `vector_target` for `sampler`.
    sampler : Sampler
        Any of `dsgmcmc.samplers.SAMPLERS`.
    iterations : int
    sd : float
        Standard deviation of the initial state.

    Yields
    ------
    theta : (n, D) float64
        The state after an iteration; a view, valid until the next iteration.
    """
    sampler.start(target, sd)
    for iteration in range(iterations):
        sampler.advance(target, iteration, 1)
        yield target.block[sampler.position(iteration)]


class ChainDraws(NamedTuple):
    """Draws of one chain.

    Attributes
    ----------
    chain : int
        Number of the chain.
    theta : (draws, D) float64
    energy, weight : (draws,) float64
    iteration : (draws,) int64
    statistics : dict of str to float
    """

    chain: int
    theta: Float64
    energy: Float64
    weight: Float64
    iteration: Int64
    statistics: dict[str, float]


class Chain:
    """A chain that samples a density, and the draws that it has recorded."""

    def __init__(self, density: Density, config: ResolvedDensity, number: int) -> None:
        self.config = config
        self.number = number
        self.sampler = config.make_sampler()
        self.target = vector_target(
            density, self.sampler, seed=config.seed, chain=number, grid=config.grid, schedule=config.schedule
        )
        self.made = 0
        self._theta: list[Float64] = []
        self._energy: list[float] = []
        self._weight: list[float] = []
        self._iteration: list[int] = []
        self.sampler.start(self.target, config.initial_sd)

    def advance(self, goal: int) -> None:
        """Run the chain up to iteration `goal`, recording its draws.

        Raises
        ------
        DivergenceError
            If the state is no longer finite.
        """
        burn_in, thin = self.config.burn_in, self.config.thin
        while self.made < goal:
            since = max(self.made - burn_in, 0)
            next_draw = burn_in + (since // thin + 1) * thin
            stop = min(goal, next_draw, self.made + CALL_ITERATIONS)
            self.sampler.advance(self.target, self.made, stop - self.made)
            self.made = stop
            if stop == next_draw:
                self._record()
        self._check(self.sampler.position(goal - 1))

    def draws(self) -> ChainDraws:
        """Draws recorded so far."""
        dimension = self.target.density.dimension
        return ChainDraws(
            chain=self.number,
            theta=np.array(self._theta).reshape(-1, dimension),
            energy=np.array(self._energy),
            weight=np.array(self._weight),
            iteration=np.array(self._iteration, np.int64),
            statistics=self.sampler.metrics(),
        )

    def _record(self) -> None:
        position = self.sampler.position(self.made - 1)
        self._check(position)
        every = self.config.energy_every
        asked = every > 0 and len(self._theta) % every == 0
        self._energy.append(float(self.target.energy(position)[0]) if asked else np.nan)
        self._theta.append(self.target.block[position][0].copy())
        self._weight.append(self.sampler.weight(self.target, self.made - 1))
        self._iteration.append(self.made)

    def _check(self, position: str) -> None:
        where = self.target.find_divergence(position) or self.sampler.find_divergence()
        if where:
            raise DivergenceError(
                f"chain {self.number} diverged by iteration {self.made}: {where}. Use a smaller step_size of the "
                "sampler, or a larger curvature of the density, which is its unit"
            )


def sample_density(density: Density, *, comm: Comm | None = None, **settings: Any) -> Draws:
    """Sample a density. Collective, if a communicator is given.

    Parameters
    ----------
    density : Density
        If it has no `curvature`, one is computed (`dsgmcmc.densities.curvature`).
    comm : MPI.Comm, optional
        Processes that share the chains. Every process returns all draws, which do not depend on the number of
        processes. By default one process runs all chains.
    **settings
        ``sampler`` (a name, or a dict with ``name`` and the sampler's settings), ``chains``, ``iterations``, ``until``
        (of elements of theta), ``burn_in``, ``thin``, ``seed``, ``grid``, ``schedule``, ``initial_sd`` and
        ``energy_every``, the number of draws between two energies; docs/own-target.md describes them.

    Returns
    -------
    Draws

    Raises
    ------
    InputError
        If an argument is invalid.
    DivergenceError
        If a chain diverges.
    """
    if comm is None:
        if launched():
            raise InputError(
                "several processes were started: with comm=MPI.COMM_WORLD they share the chains, with "
                "comm=MPI.COMM_SELF each of them makes all chains"
            )
        comm = Alone()
    job = Sampling(density, settings, comm)
    with in_python({}), np.errstate(all="ignore"):  # divergence is detected from the state
        run_for_caller(comm, job.run)
    return job.draws


class Sampling:
    """A call of `sample_density`: process r of P runs the chains r, r + P, r + 2 P, ..."""

    draws: Draws

    def __init__(self, density: Density, settings: Mapping[str, Any], comm: Comm) -> None:
        self.density = density
        self.settings = settings
        self.comm = comm

    def run(self) -> None:
        """Run all chains and collect their draws. Collective."""
        self.config = agree(self.comm, self._resolve)
        self.chains = agree(self.comm, self._make_chains)
        look = self._reach_accuracy() if self.config.until else None
        if look is None:
            self._advance(self.config.iterations)
        chains = self._gathered()
        self.draws = Draws(
            sampler=self.config.sampler.name,
            interleaved=len(self.config.make_sampler().positions),
            theta=np.stack([chain.theta for chain in chains]),
            energy=np.stack([chain.energy for chain in chains]),
            weight=np.stack([chain.weight for chain in chains]),
            iteration=np.stack([chain.iteration for chain in chains]),
            statistics=[chain.statistics for chain in chains],
            look=look,
        )

    def _resolve(self) -> ResolvedDensity:
        """Check the density and the settings, and choose the settings left open."""
        self.density = with_curvature(self.density)
        check_attributes(self.density)
        config = DensityConfig.build(self.settings).resolved(1, self.density.n_data)
        check(self.density, config)
        return config

    def _make_chains(self) -> list[Chain]:
        numbers = range(self.comm.rank, self.config.chains, self.comm.size)
        return [Chain(self.density, self.config, number) for number in numbers]

    def _advance(self, goal: int) -> None:
        """Advance the chains of all processes; if any diverges, all processes raise the same error. Collective."""
        diverged: list[tuple[int, str]] = []
        for chain in self.chains:
            try:
                chain.advance(goal)
            except DivergenceError as error:
                diverged.append((chain.number, str(error)))
                break
        everywhere = [entry for part in self.comm.allgather(diverged) for entry in part]
        if everywhere:
            _, message = min(everywhere)
            raise DivergenceError(message)

    def _reach_accuracy(self) -> Look:
        """Advance all chains together until they reach the accuracy or the last iteration. Collective."""
        config, goal = self.config, 0
        while True:
            goal = min(config.iterations, next_look(goal + 1, config.burn_in, config.sweep_length))
            self._advance(goal)
            look: Look = self.comm.bcast(self._look(goal))
            if look.reached or goal == config.iterations:
                return look

    def _look(self, iteration: int) -> Look:
        """Measure the accuracy that all chains together have reached. Collective."""
        config, chains = self.config, self._gathered()
        measured: dict[str, float] = {}
        if equal_weights(np.stack([chain.weight for chain in chains])):
            theta = np.stack([chain.theta for chain in chains])
            measured = accuracy(theta, len(config.make_sampler().positions), list(config.wanted))
        is_reached = reached(config.wanted, measured)
        return Look(str(config.until), iteration, measured, is_reached, config.iterations)

    def _gathered(self) -> list[ChainDraws]:
        """Draws of the chains of all processes, in the order of their numbers. Collective."""
        parts = self.comm.allgather([chain.draws() for chain in self.chains])
        return sorted((chain for part in parts for chain in part), key=lambda chain: chain.chain)


def check(density: Density, config: ResolvedDensity) -> None:
    """Raise `InputError` if the settings do not suit the density; log a warning if they are doubtful."""
    kind = config.sampler.kind
    if kind.draws_conditionals:
        raise InputError(NOT_CONDITIONAL)
    check_fits(density, kind, config.sampler.config, config.sampler.name)
    if config.first_draw > config.iterations:
        raise InputError(
            f"iterations = {config.iterations} end before the first draw, at {config.first_draw} after a burn-in of "
            f"{config.burn_in}: make more iterations, or a shorter burn-in"
        )
    if config.sweep_length > density.n_data:
        raise InputError(f"grid {config.grid}: {density.n_data} data cannot be cut into so many parts")
    check_room(density, config)
    check_results(density, config)
    noise = kind.noise_of_parts(config.sampler.config, config.grid)
    excess = None if noise is None else kind.excess(config.sampler.config, noise, density.curvature)
    if excess is not None and excess > EXCESS_OF_WARNING:
        log.warning(
            "the noise of gradients of one part of %d makes standard deviations up to %.2f times too wide at these "
            "settings of %s: take a smaller grid or step_size",
            config.sweep_length,
            sqrt(excess),
            config.sampler.name,
        )


def check_room(density: Density, config: ResolvedDensity) -> None:
    """Raise `InputError` if the draws, with one copy of them, would not fit into memory.

    With `until` the number of draws is unknown, and nothing is checked.
    """
    numbers_per_draw = density.dimension + 3  # and its energy, weight and iteration
    needed = 2 * 8 * config.chains * config.draws * numbers_per_draw
    room = int(MEMORY_SHARE * memory_limit())
    if needed > room and not config.until:
        raise InputError(
            f"{config.chains} chain(s) of {config.draws:,} draws would hold {needed / 2**30:.1f} GiB, of which "
            f"{room / 2**30:.1f} GiB are there: take a larger thin"
        )


def check_results(density: Density, config: ResolvedDensity) -> None:
    """Check the energy and the gradient at random points, so that an error in them shows before the first iteration."""
    points = config.initial_sd * np.random.default_rng(0).standard_normal((8, density.dimension))
    estimator = config.sampler.kind.estimator(config.sampler.config)
    check_energy(density, points)
    if config.sampler.kind.gradients != ("none",) and estimator.densities is None:
        part = (slice(0, None, config.grid),) if estimator.by_parts else ()
        check_gradient(density, points[:1], density.gradient(points[:1], *part))
