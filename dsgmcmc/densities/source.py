"""Runs of any density: several chains under MPI, with checkpoints, resuming and draws on disk."""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Collection, Mapping
from functools import partial
from math import sqrt
from pathlib import Path
from typing import Any, overload

import numpy as np

from dsgmcmc.config.density import DensityConfig, ResolvedDensity
from dsgmcmc.config.job import Policy
from dsgmcmc.config.layers import Layers, build_density
from dsgmcmc.densities.draws import Draws, MemoryDraws
from dsgmcmc.densities.memory import chain_target, sample_in_memory
from dsgmcmc.densities.run import DensityRun
from dsgmcmc.densities.sample import check_fits
from dsgmcmc.densities.targets.density import (
    ALL,
    Data,
    Density,
    check_attributes,
    check_energy,
    check_gradient,
    fingerprint,
)
from dsgmcmc.densities.targets.probe import with_curvature
from dsgmcmc.densities.targets.regression import Regression
from dsgmcmc.densities.targets.vector import NOT_CONDITIONAL, VectorTarget
from dsgmcmc.errors import InputError
from dsgmcmc.parallel.launch import launched, processes, run_for_caller
from dsgmcmc.parallel.machine import memory_limit
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.parallel.timers import Phases
from dsgmcmc.posterior.heldout import posteriors
from dsgmcmc.runs.job import Job
from dsgmcmc.runs.recovery import Fallback
from dsgmcmc.runs.sources.base import MakeTarget
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.samplers.step_size import TOO_MUCH
from dsgmcmc.settings import in_python
from dsgmcmc.storage.facts import Facts
from dsgmcmc.storage.manifest import Key
from dsgmcmc.storage.rundir import RunDirectory
from dsgmcmc.types import Comm, Float64

#: What messages say for options that are no settings of a chain.
IN_PYTHON = {
    "step_size": "step_size of the sampler, or a larger curvature of the density, which is its unit",
    "on_divergence": "Policy.on_divergence =",
}


#: Part of the memory that draws may take.
SHARE = 0.5

log = logging.getLogger(__name__)


class DensitySource:
    """A density; a `dsgmcmc.runs.sources.base.Source`. Every chain is sampled by one process.

    Parameters
    ----------
    density : Density
        What to sample.
    """

    unit = "data"
    resolved = ResolvedDensity

    def __init__(self, density: Density) -> None:
        self.density = with_curvature(density)
        self._digest = fingerprint(density)

    @property
    def name(self) -> str:
        """Name of the source in messages."""
        return f"this {type(self.density).__name__}"

    def digest(self) -> str:
        """SHA-256 that identifies what is sampled."""
        return self._digest

    def build(self, *layers: Mapping[str, Any]) -> DensityConfig:
        """Merge layers of settings, of which later ones take precedence, and check them."""
        return build_density(*layers)

    def finest_grid(self) -> int:
        """Largest possible number of blocks per side, which bounds the default.

        Whether a finer one will do depends on the sampler: `check`.
        """
        check_attributes(self.density)
        return self.density.n_data

    def check(self, config: ResolvedDensity, processes: int) -> None:
        """Refuse settings with which it cannot be sampled on `processes` processes per chain; warn of doubtful ones."""
        kind = config.sampler.kind
        if kind.draws_conditionals:
            raise InputError(NOT_CONDITIONAL)
        check_fits(self.density, kind, config.sampler.config, config.sampler.name)
        if processes > 1:
            raise InputError(
                f"{processes} processes cannot share a chain of a density: start at most {config.chains}, or ask for "
                "more chains"
            )
        if config.sweep_length > self.density.n_data:
            raise InputError(f"grid {config.grid}: {self.density.n_data} data cannot be cut into so many parts")
        check_room(self.density, config)
        self._try(config)
        noise = kind.noise_of_parts(config.sampler.config, config.grid)
        excess = None if noise is None else kind.excess(config.sampler.config, noise, self.density.curvature)
        if excess is not None and excess > TOO_MUCH:
            log.warning(
                "the noise of gradients of one part of %d makes standard deviations up to %.2f times too wide at these "
                "settings of %s: take a smaller grid or step_size",
                config.sweep_length,
                sqrt(excess),
                config.sampler.name,
            )

    def _try(self, config: ResolvedDensity) -> None:
        """Ask for an energy and a gradient, so that a slip of the density shows before anything is written."""
        points = config.initial_sd * np.random.default_rng(0).standard_normal((8, self.density.dimension))
        estimator = config.sampler.kind.estimator(config.sampler.config)
        with np.errstate(all="ignore"):
            check_energy(self.density, points)
            if config.sampler.kind.gradients != ("none",) and estimator.densities is None:
                part = (slice(0, None, config.grid),) if estimator.by_parts else ()
                check_gradient(self.density, points[:1], self.density.gradient(points[:1], *part))

    def prepare(self, run: RunDirectory, config: ResolvedDensity, comm: Comm) -> dict[str, Any]:
        """Write the run's files besides its settings, and return facts for ``run.toml``; `comm` is this process."""
        kind = type(self.density)
        return {"target": f"{kind.__module__}.{kind.__qualname__}", "dimension": self.density.dimension}

    def open(self, config: ResolvedDensity, ring: Ring) -> tuple[MakeTarget, int]:
        """Return a function that makes the targets of this process's chains, and the number of data. Collective."""
        return partial(self._make, config, ring.phases), self.density.n_data

    def begin(self, run: RunDirectory, facts: Facts, chain: int, target: VectorTarget[Any]) -> None:
        """Move a chain's target from the sampler's start to that of the data, or of the run's facts.

        Here: it has no other start. Collective.
        """

    def miniature(self, config: ResolvedDensity, ring: Ring) -> MakeTarget:
        """Return a function that makes a target with the same code but next to no data; `ring` has one block."""
        few = DensitySource(few_data(self.density))
        return partial(few._make, config, ring.phases)

    def _make(
        self, config: ResolvedDensity, timers: Phases, chain: int, sampler: Sampler[Any, Any]
    ) -> VectorTarget[Any]:
        return chain_target(self.density, sampler, config, chain, timers=timers, follow=config.follow)

    def fallbacks(self, config: ResolvedDensity, given: Collection[str]) -> list[Fallback]:
        """Samplers that a chain falls back to if it diverges; called on all processes. See `runs.recovery`.

        Here: none; a density is sampled as it was asked for.
        """
        return []

    def costs(self, config: ResolvedDensity, processes: int) -> dict[str, Any]:
        """Bytes that a run will need, by name."""
        sampler = config.make_sampler()
        kept = (*sampler.kept, *sampler.gradient.tables(self.density, config.grid))
        width = sum(field.width or self.density.dimension for field in kept)
        checkpoint = 8 * (width + 2 * self.density.dimension)
        made = draws_of(config)
        traces = trace_of(self.density, config)
        draw = 8 * self.density.dimension
        return {
            "checkpoint": checkpoint,
            "disk_least": config.chains * (checkpoint + 2 * traces + min(config.save_draws, made) * draw),
            "disk_most": config.chains
            * (
                config.keep_checkpoints * checkpoint
                + (config.keep_checkpoints + 1) * traces
                + min(2 * config.save_draws, made) * draw
            ),
        }

    def results(self, run: RunDirectory, config: ResolvedDensity) -> dict[str, Any]:
        """Results of a run, for ``summary.json``: the mean energy over all draws of all chains, and their number."""
        energies = [snapshot.read(Key("trace", "W", 0, "energy")) for snapshot in posteriors(run)]
        draws = np.concatenate(energies) if energies else np.zeros(0)
        known = draws[~np.isnan(draws)]
        return {"draws": len(draws), "energy": float(known.mean()) if len(known) else None}

    def headline(self, summary: Mapping[str, Any]) -> list[str]:
        """Results that the user reads at the end: one or two lines, or none."""
        if not summary.get("draws"):
            return ["no draws yet"]
        energy = summary.get("energy")
        return [f"{summary['draws']:,} draws" + ("" if energy is None else f", mean energy {energy:.6g}")]


def draws_of(config: ResolvedDensity) -> int:
    """Number of draws of a chain."""
    return max(config.iterations - config.burn_in, 0) // config.thin


def trace_of(density: Density, config: ResolvedDensity) -> int:
    """Bytes of what a chain keeps of every draw: the elements that are followed, energy, weight and iteration."""
    followed = density.dimension if config.follow == "all" else min(density.dimension, config.follow)
    return 8 * draws_of(config) * (followed + 3)


def check_room(density: Density, config: ResolvedDensity) -> None:
    """Raise `InputError` if what chains keep of their draws, and a copy of it to save, would not fit into memory.

    With `until` nobody knows how many there will be.
    """
    needed, room = 2 * config.chains * trace_of(density, config), int(SHARE * memory_limit())
    if needed > room and not config.until:
        raise InputError(
            f"{config.chains} chain(s) of {draws_of(config):,} draws would hold {needed / 2**30:.1f} GiB, of which "
            f"{room / 2**30:.1f} GiB are there: take a larger thin, or, in a run on disk, a smaller follow; draws of "
            "save_draws are written one by one"
        )


def few_data(density: Density) -> Density:
    """A density of the same dimension and prior as another, with next to no data, or none that say anything."""
    if not isinstance(density, Regression):
        return FlatDensity(density)
    few = slice(10 * density.dimension)
    prior = {"prior_mean": density.prior_mean, "prior_precision": density.prior_precision}
    return Regression(density.features[few], density.responses[few], density.link, **prior)


class FlatDensity:
    """A density of the same dimension and prior as another, whose data say nothing."""

    def __init__(self, density: Density) -> None:
        self.dimension, self.n_data, self.curvature = density.dimension, density.n_data, density.curvature
        self.prior_mean, self.prior_precision = density.prior_mean, density.prior_precision

    def energy(self, theta: Float64, data: Data = ALL) -> Float64:
        """Minus the log likelihood of some of the data, (n,) for theta (n, D)."""
        return np.zeros(len(theta))

    def gradient(self, theta: Float64, data: Data = ALL) -> Float64:
        """Gradient of `energy`, (n, D)."""
        return np.zeros_like(theta)


@overload
def sample_density(density: Density, out: None = None, **settings: Any) -> MemoryDraws: ...


@overload
def sample_density(
    density: Density,
    out: str | Path,
    *,
    resume: bool = True,
    policy: Policy | None = None,
    comm: Any = None,
    **settings: Any,
) -> DensityRun | None: ...


def sample_density(
    density: Density,
    out: str | Path | None = None,
    *,
    resume: bool = True,
    policy: Policy | None = None,
    comm: Any = None,
    **settings: Any,
) -> Draws | None:
    """Sample a density, in memory or as a run on disk. Collective.

    With `out` it shows progress, saves checkpoints, stops for signals, and goes on with what is there; it may be
    started under ``mpirun``, on at most as many processes as chains. Without, the draws are those of such a run, and
    nothing is written.

    Parameters
    ----------
    density : Density
        What to sample. If it has no `curvature`, that is found: see `dsgmcmc.densities.targets.probe`.
    out : path, optional
        Run directory.
    resume : bool
        Whether to go on with what is in `out`; else it must be empty.
    policy : Policy, optional
        What to do when time runs out or something goes wrong.
    comm : Comm, optional
        All processes; by default those that were started together.
    **settings
        Those of `dsgmcmc.config.density.DensityConfig`: ``sampler`` (a name, or a section with its settings),
        ``chains``, ``iterations``, ``until`` (of elements of theta), ``burn_in``, ``thin``, ``seed``, ``grid``,
        ``schedule``, ``energy_every``; of a run ``follow``, ``checkpoint_every`` and so on.

    Returns
    -------
    MemoryDraws, or DensityRun
        The draws; None for a run that has made none.

    Raises
    ------
    InputError
        If something that was given is wrong.
    DivergenceError
        If a chain diverges.
    StoppedError
        If a run was stopped by SIGUSR1, SIGTERM or a time limit.
    KeyboardInterrupt
        At Ctrl-C; a run has then been saved.
    """
    if out is None:
        if resume is not True or policy is not None or comm is not None:
            raise InputError("resume, policy and comm are of runs on disk: name one with out")
        return _in_memory(density, settings)
    comm = processes() if comm is None else comm
    command = shlex.join(["python", *sys.argv])
    job = Job(comm, DensitySource(density), Path(out), Layers(settings), resume, policy, command)
    with in_python(IN_PYTHON):
        run_for_caller(comm, job.run_inside)
    job.say_result()
    comm.Barrier()
    return DensityRun(out) if posteriors(RunDirectory(Path(out))) else None


def _in_memory(density: Density, settings: Mapping[str, Any]) -> MemoryDraws:
    if launched():
        raise InputError("several processes were started, each of which would make all chains: name a run with out")
    with in_python(IN_PYTHON):
        source = DensitySource(density)
        config = source.build(settings).resolved(1, source.finest_grid()).model_copy(update={"follow": "all"})
        source.check(config, 1)
        return sample_in_memory(source.density, config)
