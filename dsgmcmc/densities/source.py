"""Runs of any density: several chains under MPI, with checkpoints, resuming and draws on disk."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dsgmcmc.config.chain import ChainConfig, ResolvedChain
from dsgmcmc.config.job import Policy
from dsgmcmc.config.layers import Layers, build_chain
from dsgmcmc.densities.sample import check_fits, vector_target
from dsgmcmc.densities.targets.density import (
    ALL,
    Data,
    Density,
    check_attributes,
    check_energy,
    check_gradient,
    fingerprint,
)
from dsgmcmc.densities.targets.regression import Regression
from dsgmcmc.densities.targets.vector import NOT_CONDITIONAL, VectorTarget
from dsgmcmc.errors import InputError
from dsgmcmc.parallel.launch import processes, run_parallel
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.parallel.timers import Phases
from dsgmcmc.posterior.heldout import posteriors
from dsgmcmc.runs.job import Job
from dsgmcmc.runs.sources.base import MakeTarget
from dsgmcmc.samplers.base import Sampler
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


class DensitySource:
    """A density; a `dsgmcmc.runs.sources.base.Source`. Every chain is sampled by one process.

    Parameters
    ----------
    density : Density
        What to sample.
    """

    unit = "data"
    resolved = ResolvedChain

    def __init__(self, density: Density) -> None:
        self.density = density

    @property
    def name(self) -> str:
        """See `Source.name`."""
        return f"this {type(self.density).__name__}"

    def digest(self) -> str:
        """See `Source.digest`."""
        return fingerprint(self.density)

    def build(self, *layers: Mapping[str, Any]) -> ChainConfig:
        """See `Source.build`."""
        return build_chain(*layers)

    def finest_grid(self) -> int:
        """See `Source.finest_grid`; whether a finer one will do depends on the sampler: `check`."""
        check_attributes(self.density)
        return self.density.n_data

    def check(self, config: ResolvedChain, processes: int) -> None:
        """See `Source.check`."""
        if config.sampler.kind.draws_conditionals:
            raise InputError(NOT_CONDITIONAL)
        check_fits(self.density, config.sampler.kind, config.sampler.config, config.sampler.name)
        if processes > 1:
            raise InputError(
                f"{processes} processes cannot share a chain of a density: start at most {config.chains}, or ask for "
                "more chains"
            )
        if config.sweep_length > self.density.n_data:
            raise InputError(f"grid {config.grid}: {self.density.n_data} data cannot be cut into so many parts")
        self._try(config)

    def _try(self, config: ResolvedChain) -> None:
        """Ask for an energy and a gradient, so that a slip of the density shows before anything is written."""
        points = config.initial_sd * np.random.default_rng(0).standard_normal((8, self.density.dimension))
        estimator = config.sampler.kind.estimator(config.sampler.config)
        with np.errstate(all="ignore"):
            check_energy(self.density, points)
            if config.sampler.kind.gradients != ("none",) and estimator.densities is None:
                part = (slice(0, None, config.grid),) if estimator.by_parts else ()
                check_gradient(self.density, points[:1], self.density.gradient(points[:1], *part))

    def prepare(self, run: RunDirectory, config: ResolvedChain, comm: Comm) -> dict[str, Any]:
        """See `Source.prepare`."""
        kind = type(self.density)
        return {"target": f"{kind.__module__}.{kind.__qualname__}", "dimension": self.density.dimension}

    def open(self, config: ResolvedChain, ring: Ring) -> tuple[MakeTarget, int]:
        """See `Source.open`. Collective."""
        return partial(self._make, config, ring.phases), self.density.n_data

    def begin(self, run: RunDirectory, facts: Facts, chain: int, target: VectorTarget[Any]) -> None:
        """See `Source.begin`: it has no other start."""

    def miniature(self, config: ResolvedChain, ring: Ring) -> MakeTarget:
        """See `Source.miniature`."""
        few = DensitySource(few_data(self.density))
        return partial(few._make, config, ring.phases)

    def _make(self, config: ResolvedChain, timers: Phases, chain: int, sampler: Sampler[Any, Any]) -> VectorTarget[Any]:
        return vector_target(
            self.density,
            sampler,
            seed=config.seed,
            chain=chain,
            grid=config.grid,
            schedule=config.schedule,
            timers=timers,
        )

    def costs(self, config: ResolvedChain, processes: int) -> dict[str, Any]:
        """See `Source.costs`."""
        sampler = config.make_sampler()
        kept = (*sampler.kept, *sampler.gradient.tables(self.density, config.grid))
        width = sum(field.width or self.density.dimension for field in kept)
        checkpoint = 8 * (width + 2 * self.density.dimension)
        made = max(config.iterations - config.burn_in, 0) // config.thin
        draw = 8 * self.density.dimension
        return {
            "checkpoint": checkpoint,
            "disk_least": config.chains * (checkpoint + min(config.save_draws, made) * draw),
            "disk_most": config.chains
            * (config.keep_checkpoints * checkpoint + min(2 * config.save_draws, made) * draw),
        }

    def results(self, run: RunDirectory, config: ResolvedChain) -> dict[str, Any]:
        """See `Source.results`: the mean energy over all draws of all chains, and their number."""
        energies = [snapshot.read(Key("trace", "W", 0, "energy")) for snapshot in posteriors(run)]
        draws = np.concatenate(energies) if energies else np.zeros(0)
        return {"draws": len(draws), "energy": float(draws.mean()) if len(draws) else None}

    def headline(self, summary: Mapping[str, Any]) -> list[str]:
        """See `Source.headline`."""
        if not summary.get("draws"):
            return ["no draws yet"]
        return [f"{summary['draws']:,} draws, mean energy {summary.get('energy', float('nan')):.6g}"]


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
        """See `Density.energy`."""
        return np.zeros(len(theta))

    def gradient(self, theta: Float64, data: Data = ALL) -> Float64:
        """See `Density.gradient`."""
        return np.zeros_like(theta)


def sample_density(
    density: Density,
    out: str | Path,
    *,
    resume: bool = True,
    policy: Policy | None = None,
    comm: Any = None,
    **settings: Any,
) -> None:
    """Sample a density. Collective.

    Run it with Python alone, which needs no MPI, or under ``mpirun``, on at most as many processes as chains. It shows
    progress, saves checkpoints, stops for signals, and goes on with what is in `out`. It returns when all iterations
    are made, or ``until`` is reached; `dsgmcmc.DensityRun` then opens the run. One process by itself gets its signals
    after the last checkpoint, and errors as exceptions; several end together, as ``dsgmcmc sample`` does.

    Parameters
    ----------
    density : Density
        What to sample.
    out : path
        Run directory.
    resume : bool
        Whether to go on with what is in `out`; else it must be empty.
    policy : Policy, optional
        What to do when time runs out or something goes wrong.
    comm : Comm, optional
        All processes; by default those that were started together.
    **settings
        Those of `dsgmcmc.config.chain.ChainConfig`: ``sampler`` (a name, or a section with its settings), ``chains``,
        ``iterations``, ``until`` (of elements of theta), ``burn_in``, ``thin``, ``seed``, ``grid``, ``schedule``,
        ``checkpoint_every`` and so on.

    Raises
    ------
    InputError
        If the density or a setting is wrong.
    DivergenceError
        If a chain explodes.
    StoppedError
        If time ran out; `out` has a checkpoint.
    SystemExit
        In place of these, where there are several processes, with the exit status of ``dsgmcmc sample``.
    """
    comm = processes() if comm is None else comm
    command = shlex.join(["python", *sys.argv])
    job = Job(comm, DensitySource(density), Path(out), Layers(settings), resume, policy, command)

    if comm.size == 1:
        with in_python(IN_PYTHON):
            job.run_inside()
        job.say_result()
        return

    def work() -> int:
        with in_python(IN_PYTHON):
            return job.run()

    try:
        run_parallel(comm, work)
    except SystemExit as end:
        if end.code:
            raise
