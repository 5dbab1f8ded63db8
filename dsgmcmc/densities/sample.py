"""Chains that sample a density, on one process or several.

`sample_density` returns draws; `sample` yields the state after each iteration.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Self

import numpy as np

from dsgmcmc.config.chain import DEFAULT_SAMPLER, ChainConfig, ResolvedChain, section_of
from dsgmcmc.densities.curvature import with_curvature
from dsgmcmc.densities.density import D, Density, check_attributes, check_energy, check_gradient
from dsgmcmc.densities.draws import Draws
from dsgmcmc.densities.vector import NOT_CONDITIONAL, VectorTarget, part_sizes
from dsgmcmc.errors import DivergenceError, InputError
from dsgmcmc.parallel.comm import Alone, agree, launched, run_for_caller
from dsgmcmc.parallel.schedule import Schedule
from dsgmcmc.samplers import sampler_named
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.samplers.step_size import SamplerConfig
from dsgmcmc.settings import in_python
from dsgmcmc.targets.state import RandomStream
from dsgmcmc.types import Comm, Float64, ScheduleName

#: Maximum number of iterations in one call of a compiled loop: Ctrl-C takes effect only between calls. The draws do not
#: depend on this number.
CALL_ITERATIONS = 1_000


#: Settings of chains that are monitored and saved.
OF_RUNS = {"until", "evaluate_every", "checkpoint_every", "save_draws"}


class DensityConfig(ChainConfig):
    """Settings as requested: the settings of a chain."""

    @classmethod
    def build(cls, settings: Mapping[str, Any]) -> Self:
        """Check settings; for a setting that is not given, the default of the sampler comes first.

        Raises
        ------
        InputError
            If any setting is wrong; the message names all of them.
        """
        for name in sorted(OF_RUNS & settings.keys()):
            raise InputError(f"{name} is a setting of runs, and not of sample_density")
        section = {"name": DEFAULT_SAMPLER, **section_of(settings.get("sampler", {}))}
        kind = sampler_named(section["name"])
        declared = kind.defaults if kind else {}
        defaults = {name: value for name, value in declared.items() if name in cls.model_fields}
        return cls.of({**defaults, **settings, "sampler": section})

    def _plain(self, processes: int, finest: int | None, until: str | None) -> dict[str, Any]:
        """Choose the settings left open, convert lengths to iterations, and check that the sampler allows the settings.

        The step sizes of the sampler are chosen for a density, given the number of parts.
        """
        plain = super()._plain(processes, finest, until)
        suited = self.sampler.kind.suited_to_density(self.sampler.config, plain["grid"])
        return {**plain, "sampler": self.sampler.model_copy(update={"config": suited})}

    def resolved(self, processes: int = 1, finest: int | None = None) -> ResolvedDensity:
        """Resolve the settings for a number of processes, with at most `finest` parts of the data."""
        return ResolvedDensity.of(self.plain(processes, finest))


class ResolvedDensity(ResolvedChain, DensityConfig):
    """Settings as plain numbers, none left open."""


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
        fields=sampler.kept,
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

    def run(self) -> None:
        """Run the chain, recording its draws.

        Raises
        ------
        DivergenceError
            If the state is no longer finite.
        """
        config = self.config
        next_draw = config.first_draw
        while self.made < config.iterations:
            stop = min(config.iterations, next_draw, self.made + CALL_ITERATIONS)
            self.sampler.advance(self.target, self.made, stop - self.made)
            self.made = stop
            if stop == next_draw:
                self._record()
                next_draw += config.thin
        self._check(self.sampler.position(self.made - 1))

    def draws(self) -> dict[str, Any]:
        """The attributes of `Draws` for this chain alone."""
        return {
            "theta": np.array(self._theta).reshape(-1, self.target.density.dimension),
            "energy": np.array(self._energy),
            "weight": np.array(self._weight),
            "iteration": np.array(self._iteration, np.int64),
            "statistics": self.sampler.metrics(),
        }

    def _record(self) -> None:
        position = self.sampler.position(self.made - 1)
        self._check(position)
        whole = self.config.sweep_length == 1  # otherwise an energy would take more data than many iterations
        self._energy.append(float(self.target.energy(position)[0]) if whole else np.nan)
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
        ``sampler`` (a name, or a dict with ``name`` and the sampler's settings), ``chains``, ``iterations``,
        ``burn_in``, ``thin``, ``seed``, ``grid``, ``schedule`` and ``initial_sd``; docs/own-target.md describes them.

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
        self._advance()
        parts = self.comm.allgather({chain.number: chain.draws() for chain in self.chains})
        chains = [parts[number % self.comm.size][number] for number in range(self.config.chains)]
        arrays = ("theta", "energy", "weight", "iteration")
        self.draws = Draws(
            sampler=self.config.sampler.name,
            interleaved=len(self.config.make_sampler().positions),
            **{name: np.stack([chain[name] for chain in chains]) for name in arrays},
            statistics=[chain["statistics"] for chain in chains],
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

    def _advance(self) -> None:
        """Run the chains of all processes; if any diverges, all processes raise the same error. Collective."""
        diverged: list[tuple[int, str]] = []
        for chain in self.chains:
            try:
                chain.run()
            except DivergenceError as error:
                diverged.append((chain.number, str(error)))
                break
        everywhere = [entry for part in self.comm.allgather(diverged) for entry in part]
        if everywhere:
            _, message = min(everywhere)
            raise DivergenceError(message)


def check(density: Density, config: ResolvedDensity) -> None:
    """Raise `InputError` if the settings do not suit the density."""
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
    check_results(density, config)


def check_results(density: Density, config: ResolvedDensity) -> None:
    """Check the energy and the gradient at random points, so that an error in them shows before the first iteration."""
    points = config.initial_sd * np.random.default_rng(0).standard_normal((8, density.dimension))
    estimator = config.sampler.kind.estimator(config.sampler.config)
    check_energy(density, points)
    if config.sampler.kind.gradients != ("none",) and estimator.densities is None:
        part = (slice(0, None, config.grid),) if estimator.by_parts else ()
        check_gradient(density, points[:1], density.gradient(points[:1], *part))
