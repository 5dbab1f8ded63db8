"""Chains that sample a density, on one process or several, and their draws in memory.

`sample_density` returns draws; `sample` yields the state after each iteration.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from typing_extensions import override

from dsgmcmc.config.chain import ChainConfig, ResolvedChain, SamplerSection, section_of
from dsgmcmc.config.units import LEAST_DRAWS
from dsgmcmc.densities.base import DensityGradient, DensitySampler
from dsgmcmc.densities.checkpoints import (
    ChainState,
    DensityRun,
    open_density_run,
    saved_settings,
)
from dsgmcmc.densities.curvature import complete
from dsgmcmc.densities.density import (
    D,
    Density,
    check_attributes,
    check_energy,
    check_gradient,
    start_points,
)
from dsgmcmc.densities.registry import SAMPLERS
from dsgmcmc.densities.settings import DensitySection, check_settings, with_default_step
from dsgmcmc.densities.vector import NOT_CONDITIONAL, VectorTarget
from dsgmcmc.densities.verdict import Mixing, reasons_to_doubt
from dsgmcmc.diagnostics.convergence import split_interleaved
from dsgmcmc.diagnostics.mixing import equal_weights, ess_smaller, halves, rhat
from dsgmcmc.errors import (
    DivergenceError,
    InputError,
    SamplingWarning,
    StoppedError,
    saying_how_to_continue,
)
from dsgmcmc.parallel.alone import Alone, Comm
from dsgmcmc.parallel.comm import agree, launched, on_root, run_for_caller
from dsgmcmc.parallel.schedule import Schedule
from dsgmcmc.posterior.export import datatree
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.samplers.step_size import SamplerConfig
from dsgmcmc.settings import in_python
from dsgmcmc.storage.rundir import Facts
from dsgmcmc.targets.state import RandomStream
from dsgmcmc.terminal import log
from dsgmcmc.types import Array, Float64, Int64, ScheduleName

#: Maximum number of iterations in one call of a compiled loop: Ctrl-C takes effect only between
#: calls. The draws do not depend on this number.
CALL_ITERATIONS = 1_000

#: Default sampler of densities with a gradient.
DEFAULT_SAMPLER = "hmc"
#: Default sampler of densities without one.
WITHOUT_GRADIENT = "mh"

#: Defaults of densities, which replace those of samplers; `initial_sd` is in units of 1 /
#: sqrt(curvature + the prior's precision).
DEFAULTS = {"chains": 4, "initial_sd": 1.0}

#: Without `iterations`, the length of chains with a large R-hat or a small ESS is doubled up to
#: this number of times.
DOUBLINGS = 3

#: Settings that only runs on ratings have: they are monitored, the chains here are not.
RUN_SETTINGS = {"until", "evaluate_every", "save_draws"}
#: Longest time of one call of a sampler, in seconds, if single iterations take less.
CALL_SECONDS = 0.1


_EVERY = "checkpoint_every"
#: What a note says after a stop.
CONTINUE = (
    "The chains are kept up to their last checkpoint: the same call with resume=True continues"
    " them."
)


class DensityConfig(ChainConfig):
    """Settings of chains that sample a density, as the user gives them; some may be left open."""

    Section: ClassVar[type[SamplerSection]] = DensitySection

    @classmethod
    def build(cls, settings: Mapping[str, Any]) -> Self:
        """Return checked settings, with the defaults of `DEFAULTS`, the sampler, and this class.

        Raises
        ------
        InputError
            If any setting is invalid; the message names all invalid settings.
        """
        for name in sorted(RUN_SETTINGS & settings.keys()):
            raise InputError(f"{name} is a setting of runs, and not of sample_density")
        section = {"name": DEFAULT_SAMPLER, **section_of(settings.get("sampler", {}))}
        defaults = {}
        if sampler := SAMPLERS.get(section["name"]):
            defaults = {
                name: value for name, value in sampler.defaults.items() if name in cls.model_fields
            }
        return cls.from_settings({**defaults, **DEFAULTS, **settings, "sampler": section})

    @override
    def _target_accuracy(self) -> str:
        """Return "none": there are no predictions to monitor."""
        return "none"

    @override
    def _plain(self, processes: int, finest: int | None, until: str | None) -> dict[str, Any]:
        """As in the base class; step sizes that are left open are chosen for a density."""
        plain = super()._plain(processes, finest, until)
        algorithm = self.sampler.algorithm
        sweep_length = algorithm.sweep_length(self.sampler.config, plain["grid"])
        config = with_default_step(algorithm, self.sampler.config, sweep_length)
        return {**plain, "sampler": self.sampler.model_copy(update={"config": config})}

    def resolved(self, processes: int = 1, finest: int | None = None) -> ResolvedDensity:
        """Resolve the settings for a number of processes, with at most `finest` parts of data."""
        return ResolvedDensity.from_settings(self.plain(processes, finest))


class ResolvedDensity(ResolvedChain, DensityConfig):
    """Settings as plain numbers, none left open."""

    samples_density: ClassVar[bool] = True


def check_fits(
    density: Density, sampler: type[Sampler[Any, Any]], config: SamplerConfig, name: str = ""
) -> None:
    """Raise `InputError` if a sampler or its gradient estimator needs another class of density.

    `name` is the sampler's name in the message, by default that of its class.
    """
    if issubclass(sampler, DensitySampler):
        _check_class(density, sampler.densities, f"sampler {name or sampler.__name__} samples")
    estimator = sampler.estimator(config)
    if issubclass(estimator, DensityGradient):
        _check_class(density, estimator.densities, f"sampler.gradient = {config.gradient!r} needs")


def _check_class(density: Density, needed: type, needs: str) -> None:
    """Raise `InputError` unless a density has a class."""
    if not isinstance(density, needed):
        raise InputError(f"{needs} a {needed.__name__}, which this {type(density).__name__} is not")


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
    """Return the target of a sampler: state, working arrays, random numbers, order of the data.

    Parameters
    ----------
    density : Density
        It must have a `curvature`; `dsgmcmc.densities.curvature.complete` computes one.
    sampler : Sampler
        Determines the fields of the state, and whether an iteration uses a part of the data or all
        of them.
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
        If an attribute of the density has a wrong shape, or the sampler needs a density of another
        class.
    """
    check_attributes(density)
    check_fits(density, type(sampler), sampler.config)
    order = None
    if sampler.gradient.by_parts:
        sizes = [len(range(part, density.n_data, grid)) for part in range(grid)]
        order = Schedule(schedule, sizes, seed, chain)
    return VectorTarget(density, order, sampler, RandomStream(seed, chain), rows=rows)


def sample(
    target: VectorTarget[Any], sampler: Sampler[Any, Any], iterations: int, sd: float = 1.0
) -> Iterator[Float64]:
    """Run a sampler on a density.

    Parameters
    ----------
    target : VectorTarget
        Result of `vector_target` for `sampler`.
    sampler : Sampler
        The sampler for which `target` was prepared; any of `dsgmcmc.densities.SAMPLERS` except
        Gibbs sampling.
    iterations : int
    sd : float
        Standard deviation of the initial state about the density's `start`, or else its prior mean,
        in units of 1 / sqrt(curvature + the prior's precision).

    Yields
    ------
    theta : (n, D) float64
        The state after an iteration; a view, valid until the next iteration.
    """
    sampler.start(target, sd)
    for iteration in range(iterations):
        sampler.advance(target, iteration, 1)
        yield target.block[sampler.position(iteration)]


@dataclass(repr=False, eq=False)
class Draws:
    """Draws of all chains that sample a density.

    Attributes
    ----------
    sampler : str
        Name of the sampler.
    settings : dict
        All settings, none left open: ``sample_density(density, **draws.settings)`` gives the same
        draws, and ``draws.settings["sampler"]["step_size"]`` is the step size of samplers that do
        not adapt it.
    interleaved : int
        Number of states that the sampler advances in turns, to which draws belong in turns.
    theta : (chains, draws, D) float64
    energy : (chains, draws) float64
        Minus the log posterior density, up to a constant; NaN if it was not computed.
    weight : (chains, draws) float64
        Weight of every draw in averages.
    iteration : (chains, draws) int64
        Number of iterations of the chain up to every draw.
    statistics : list of dict
        Values that the sampler reports at the end of every chain, such as the acceptance rate.
    warnings : list of str
        Reasons to doubt the draws (`dsgmcmc.densities.verdict`); empty if there are none.
    """

    sampler: str
    settings: dict[str, Any]
    interleaved: int
    theta: Float64
    energy: Float64
    weight: Float64
    iteration: Int64
    statistics: list[dict[str, float]]
    warnings: list[str]

    @cached_property
    def mixing(self) -> Mixing:
        """R-hat and effective sample size; they do not detect a bias that all chains share."""
        values = split_interleaved(self.theta, self.interleaved)
        if values.shape[1] < LEAST_DRAWS or not equal_weights(self.weight):
            unknown = np.full(self.theta.shape[2], np.nan)
            return Mixing(unknown, unknown)
        compared = halves(values) if len(self.theta) == 1 else values
        ess = ess_smaller(values)
        return Mixing(rhat(compared), ess)

    def to_arviz(self) -> Any:
        """Return the draws as a tree of data sets for ArviZ.

        Returns
        -------
        xarray.DataTree
            ``posterior``: ``theta`` by ``element``, for all draws; ``sample_stats``: ``weight``,
            ``iteration`` and ``lp``, the log posterior density up to a constant, NaN for draws
            without energies.

        Raises
        ------
        InputError
            If arviz-base is not installed.
        """
        groups: dict[str, dict[str, Any]] = {
            "posterior": {"theta": self.theta},
            "sample_stats": {
                "weight": self.weight,
                "iteration": self.iteration,
                "lp": -self.energy,
            },
        }
        elements = np.arange(self.theta.shape[2])
        return datatree(groups, {"element": elements}, {"theta": ["element"]}, self.sampler)

    def __repr__(self) -> str:
        chains, draws, m = self.theta.shape
        text = f"{chains} chain(s) of {draws:,} draws of {m:,} elements of theta by {self.sampler}"
        if self.mixing.is_unknown:
            return f"{text}: R-hat and ESS are unknown (too few draws, or draws of unequal weight)"
        rhat, ess = self.mixing
        return f"{text}: R-hat at most {np.nanmax(rhat):.3f}, ESS at least {np.nanmin(ess):,.0f}"


class ChainDraw(NamedTuple):
    """One draw of a chain: its theta (D,), and entries of the arrays of `Draws`."""

    theta: Float64
    energy: float
    weight: float
    iteration: int


class DensityChain:
    """A chain that samples a density, and the draws that it has recorded."""

    def __init__(self, density: Density, config: ResolvedDensity, number: int) -> None:
        self.config = config
        self.number = number
        self.sampler = config.make_sampler()
        self.target = vector_target(
            density,
            self.sampler,
            seed=config.seed,
            chain=number,
            grid=config.grid,
            schedule=config.schedule,
        )
        self.iterations = 0
        self._draws: list[ChainDraw] = []
        self._call_iterations = 1
        self.sampler.start(self.target, config.initial_sd)

    @property
    def _state(self) -> ChainState:
        return ChainState(self.number, self.target, self.sampler)

    def resume(self, saved: DensityRun) -> None:
        """Continue from the newest checkpoint in a run directory, if there is one."""
        self.iterations, draws = saved.load(self._state)
        if draws:
            rows = zip(*(draws[name] for name in ChainDraw._fields), strict=True)
            self._draws = [ChainDraw(*row) for row in rows]

    def run(self, iterations: int, saved: DensityRun | None = None) -> None:
        """Run the chain until it has made this number of iterations, recording its draws.

        Parameters
        ----------
        iterations : int
        saved : DensityRun, optional
            Gets checkpoints; if it is asked to stop, the chain ends at one.

        Raises
        ------
        DivergenceError
            If the state is not finite, or too far from its start.
        """
        config = self.config
        next_draw = config.first_draw + config.thin * len(self._draws)
        while self.iterations < iterations:
            stop = min(iterations, next_draw, self.iterations + self._call_iterations)
            self._advance(stop)
            if stop == next_draw:
                self._record()
                next_draw += config.thin
            if saved is not None and saved.is_due(self.number, self.iterations):
                self._save(saved)
                if saved.stopped:
                    return
        self._check_finite()
        if saved is not None:
            self._save(saved)

    def _advance(self, stop: int) -> None:
        """Call the sampler up to iteration `stop`, and choose the length of the next call."""
        begin = perf_counter()
        self.sampler.advance(self.target, self.iterations, stop - self.iterations)
        self.iterations = stop
        if perf_counter() - begin > CALL_SECONDS:
            self._call_iterations = max(1, self._call_iterations // 2)
        else:
            self._call_iterations = min(CALL_ITERATIONS, 2 * self._call_iterations)

    def _save(self, saved: DensityRun) -> None:
        """Save a checkpoint, unless the chain has diverged."""
        self._check_finite()
        saved.save(self._state, self.iterations, self._arrays())

    def _arrays(self) -> dict[str, Array]:
        """Return the draws as arrays, by the fields of `ChainDraw`."""
        return {
            name: np.array([getattr(draw, name) for draw in self._draws])
            for name in ChainDraw._fields
        }

    def draws(self) -> dict[str, Any]:
        """Return arrays as in `Draws` for this chain alone, and its ``statistics``."""
        return {**self._arrays(), "statistics": self.sampler.metrics()}

    def _record(self) -> None:
        """Record the current state as a draw."""
        self._check_finite()
        position = self.sampler.position(self.iterations - 1)
        energy = np.nan
        # with parts of the data, an energy would take more data than many iterations
        if self.config.sweep_length == 1:
            energy = float(self.target.energy(position)[0])
        draw = ChainDraw(
            theta=self.target.block[position][0].copy(),
            energy=energy,
            weight=self.sampler.weight(self.target, self.iterations - 1),
            iteration=self.iterations,
        )
        self._draws.append(draw)

    def _check_finite(self) -> None:
        """Raise `DivergenceError` if the chain has diverged."""
        position = self.sampler.position(self.iterations - 1)
        where = self.target.find_divergence(position) or self.sampler.find_divergence()
        if where:
            raise DivergenceError(
                f"chain {self.number} diverged by iteration {self.iterations}: {where}."
                " Use a smaller step_size of the sampler, or a larger curvature of the density,"
                " which is its unit, or a start nearer to its bulk"
            )


def sample_density(
    density: Density,
    *,
    comm: Comm | None = None,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    **settings: object,
) -> Draws:
    """Sample a density. Collective, if a communicator is given.

    Parameters
    ----------
    density : Density
        If it has no `curvature` or no `start`, they follow from its gradient
        (`dsgmcmc.densities.curvature`).
    comm : MPI.Comm, optional
        Processes that share the chains. Every process returns all draws, which do not depend on the
        number of processes. By default one process runs all chains.
    out : path, optional
        Run directory for checkpoints of the chains, with their draws; without it nothing is saved.
    resume : bool
        Whether to continue the chains in `out`, or to start them if there are none. The draws are
        those of chains that were not stopped. Settings that are left out are those of the run, and
        only ``iterations``, ``chains`` and ``checkpoint_every`` may change.
    **settings
        ``sampler`` (a name, or a dict with ``name`` and the sampler's settings; by default
        ``"hmc"``, or ``"mh"`` without a gradient), ``chains`` (by default 4), ``iterations``,
        ``burn_in``, ``thin``, ``seed``, ``grid``, ``schedule`` and ``initial_sd``; with `out`,
        ``checkpoint_every``.
        docs/own-target.md describes them. Without ``iterations``, chains first have the sampler's
        default length, which is doubled, at most `DOUBLINGS` times, until R-hat of all elements is
        at most 1.01, and their ESS at least 100 per chain.

    Returns
    -------
    Draws
        Its `warnings` are the reasons to doubt the draws. Process 0 also issues each as a
        `SamplingWarning`.

    Raises
    ------
    InputError
        If an argument is invalid.
    DivergenceError
        If a chain diverges.
    StoppedError
        With `out`, if a signal has stopped a chain at a checkpoint, and the program has a handler
        for it that returns, or the signal was sent to another process.
    """
    if out is None:
        for name, is_given in (("resume", resume), ("checkpoint_every", _EVERY in settings)):
            if is_given:
                raise InputError(f"{name} needs out, the run directory")
    if comm is None:
        if launched():
            raise InputError(
                "several processes were started: with comm=MPI.COMM_WORLD they share the chains,"
                " with comm=MPI.COMM_SELF each of them runs all chains"
            )
        comm = Alone()
    work = partial(_sample, density, settings, comm, out=out, resume=resume)
    # divergence is detected from the state
    with in_python({}), np.errstate(all="ignore"), saying_how_to_continue(out, CONTINUE):
        draws = run_for_caller(comm, work)
    if comm.rank == 0:
        for sentence in draws.warnings:
            # not at level WARNING: without handlers, logging would print it as `warnings.warn` does
            log.info("%s", sentence)
            warnings.warn(sentence, SamplingWarning, stacklevel=2)
    return draws


def _sample(
    density: Density,
    settings: Mapping[str, Any],
    comm: Comm,
    *,
    out: str | os.PathLike[str] | None,
    resume: bool,
) -> Draws:
    """Resolve the settings, open the run directory if there is one, and sample. Collective."""
    facts: Facts = {}
    open_length = settings.get("iterations") is None
    if out is not None and resume:
        defaults, facts = on_root(comm, partial(saved_settings, Path(out), ResolvedDensity))
        settings = {**without(RUN_SETTINGS, defaults), **settings}
        open_length = open_length and facts.get("open_length", True)
    density, config = agree(comm, lambda: _resolve(density, settings))
    longest = config.iterations
    if open_length:
        longest = config.iterations << DOUBLINGS
    if out is None:
        return _sample_chains(density, config, comm, longest=longest)
    with open_density_run(
        comm,
        Path(out),
        resume,
        density=density,
        config=config,
        longest=longest,
        open_length=open_length,
    ) as saved:
        return _sample_chains(density, config, comm, longest=longest, saved=saved)


def _sample_chains(
    density: Density,
    config: ResolvedDensity,
    comm: Comm,
    *,
    longest: int,
    saved: DensityRun | None = None,
) -> Draws:
    """Run all chains and return their draws, on all processes. Collective.

    Process r of P runs the chains r, r + P, r + 2 P and so on.
    """
    numbers = range(comm.rank, config.chains, comm.size)
    chains = agree(comm, lambda: [DensityChain(density, config, number) for number in numbers])
    iterations = config.iterations
    if saved is not None:
        agree(comm, partial(_resume, chains, saved))
        # chains that were longer had not mixed before
        while iterations < saved.reached:
            iterations *= 2
    while True:
        _run(chains, iterations, comm, saved)
        draws = _gather(chains, config, comm)
        are_needed = not draws.mixing.is_unknown and np.any(draws.mixing.doubtful(config.chains))
        if iterations == longest or not comm.bcast(are_needed):
            break
        iterations *= 2
    draws.settings["iterations"] = iterations
    draws.warnings = on_root(
        comm, lambda: list(reasons_to_doubt(draws.theta, draws.mixing, draws.statistics, density))
    )
    return draws


def _gather(chains: list[DensityChain], config: ResolvedDensity, comm: Comm) -> Draws:
    """Collect the draws of all chains on all processes. Collective."""
    by_process = comm.allgather({chain.number: chain.draws() for chain in chains})
    draws = [by_process[number % comm.size][number] for number in range(config.chains)]
    arrays = {name: np.stack([chain[name] for chain in draws]) for name in ChainDraw._fields}
    return Draws(
        sampler=config.sampler.name,
        settings=without({*RUN_SETTINGS, _EVERY}, config.table()),
        interleaved=config.interleaved,
        **arrays,
        statistics=[chain["statistics"] for chain in draws],
        warnings=[],
    )


def _resolve(density: Density, settings: Mapping[str, Any]) -> tuple[Density, ResolvedDensity]:
    """Return the completed density, and checked settings of which none is left open."""
    density = complete(density)
    if not hasattr(density, "gradient"):
        settings = {"sampler": WITHOUT_GRADIENT, **settings}
    config = DensityConfig.build(settings).resolved(1, density.n_data)
    _check(density, config)
    return density, config


def _resume(chains: list[DensityChain], saved: DensityRun) -> None:
    """Continue this process's chains from their checkpoints."""
    for chain in chains:
        chain.resume(saved)


def _run(chains: list[DensityChain], iterations: int, comm: Comm, saved: DensityRun | None) -> None:
    """Run this process's chains up to an iteration. Collective.

    If a chain diverges, cannot be saved or is stopped, all processes raise the same error.
    """
    diverged: list[tuple[int, str]] = []

    def run_all() -> None:
        for chain in chains:
            try:
                chain.run(iterations, saved)
            except DivergenceError as error:
                diverged.append((chain.number, str(error)))
            if diverged or (saved is not None and saved.stopped):
                break

    agree(comm, run_all)
    all_diverged = [entry for entries in comm.allgather(diverged) for entry in entries]
    if all_diverged:
        raise DivergenceError(min(all_diverged)[1])
    if any(comm.allgather(any(chain.iterations < iterations for chain in chains))):
        raise StoppedError


def without(names: Collection[str], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that have none of these names."""
    return {name: value for name, value in settings.items() if name not in names}


def _check(density: Density, config: ResolvedDensity) -> None:
    """Raise `InputError` if the settings do not fit the density, or its energy or gradient fails.

    Energy and gradient are tried at points drawn like initial states: shapes, and whether the
    energy is NaN.
    """
    sampler = config.sampler.algorithm
    if sampler.draws_conditionals:
        raise InputError(NOT_CONDITIONAL)
    check_fits(density, sampler, config.sampler.config, config.sampler.name)
    if config.first_draw > config.iterations:
        raise InputError(
            f"{config.iterations} iterations end before the first draw, at iteration"
            f" {config.first_draw}: use more iterations, or a shorter burn-in"
        )
    if config.sweep_length > density.n_data:
        raise InputError(
            f"grid {config.grid}: {density.n_data} data cannot be cut into so many parts"
        )
    check_settings(sampler, config.sampler.config, config.grid, density.dimension)
    points = start_points(density, config.initial_sd)
    check_energy(density, points)
    estimator = sampler.estimator(config.sampler.config)
    if sampler.gradients == ("none",) or issubclass(estimator, DensityGradient):
        return
    if estimator.by_parts:
        gradient = density.gradient(points[:1], slice(0, None, config.grid))
    else:
        gradient = density.gradient(points[:1])
    check_gradient(density, points[:1], gradient)
