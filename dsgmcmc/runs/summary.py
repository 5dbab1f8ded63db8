"""Results of a job: ``summary.json``, and the lines that are printed."""

from __future__ import annotations

import platform
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.config.run import ResolvedConfig
from dsgmcmc.diagnostics.accuracy import Look
from dsgmcmc.diagnostics.comparison import Comparison
from dsgmcmc.diagnostics.summary import as_written, read_summary, save_summary, verdict
from dsgmcmc.errors import InputError, WriteError
from dsgmcmc.parallel.comm import agree, mpi_library, peak_memory
from dsgmcmc.parallel.ring import PHASES, Phases
from dsgmcmc.runs.chain import fallbacks
from dsgmcmc.runs.source import RatingsSource
from dsgmcmc.storage.rundir import RunDirectory, now, versions
from dsgmcmc.storage.store import read_manifest, step_name
from dsgmcmc.types import Comm

WAITING = ("exchange", "reduce", "checkpoint")  # phases in which a process mostly waits for other processes
SLOW_FACTOR = 1.25  # a process is reported as slow if it is busy for this multiple of the median of the others,
SLOW_SHARE = 0.05  # and the others wait longer than this share of the sampling time


class RunTimes(NamedTuple):
    """Times and iterations of this process in a job.

    Attributes
    ----------
    startup, sampling : float
        Seconds up to the end of the first sweep, and seconds of sampling after it.
    iterations, timed : int
        Number of all iterations, and of iterations after the first sweep; 0 except on process 0 of each group.
    phases : Phases
        Seconds by phase.
    """

    startup: float
    sampling: float
    iterations: int
    timed: int
    phases: Phases


def write_summary(
    comm: Comm,
    source: RatingsSource,
    config: ResolvedConfig,
    times: RunTimes,
    run: RunDirectory,
    look: Look | None = None,
) -> list[str]:
    """Write ``summary.json`` on process 0. Collective.

    Parameters
    ----------
    comm : MPI.Comm
        All processes.
    source : RatingsSource
        Ratings of the run.
    config : ResolvedConfig
        Settings of the run.
    times : RunTimes
        Times of this process.
    run : RunDirectory
        Run directory.
    look : Look, optional
        The last check of the accuracy of all chains.

    Returns
    -------
    list of str
        The result for the user; on process 0.

    Raises
    ------
    WriteError
        If the file cannot be written.
    """
    everyone = np.array(comm.allgather([times.phases.seconds[name] for name in PHASES]))
    rss = comm.allgather(peak_memory())
    sampling = comm.allgather(times.sampling)
    hosts = comm.allgather(platform.node())
    iterations, timed, longest = comm.allreduce(times.iterations), comm.allreduce(times.timed), max(sampling)

    def write() -> list[str]:
        if comm.rank != 0:
            return []
        per_iteration = source.ratings.nnz / config.sweep_length
        waited = [sum(row[PHASES.index(name)] for name in WAITING) for row in everyone]
        summary = {
            **source.results(run, config),
            "time": now(),
            "iterations": config.iterations,
            "reached": run.reached(config.chains),
            "iterations_made": iterations,
            "until": None if look is None else look.table(),
            "processes": comm.size,
            "grid": config.grid,
            "sampler": config.sampler.name,
            "seconds_startup": times.startup,
            "seconds_sampling": longest,
            "ratings_per_second": timed * per_iteration / longest if longest else 0.0,
            "phases": {
                name: {"mean": float(column.mean()), "max": float(column.max()), "by_process": column.tolist()}
                for name, column in zip(PHASES, everyone.T, strict=True)
            },
            "straggler": straggler([s - w for s, w in zip(sampling, waited, strict=True)], hosts, longest),
            "events": run.events(),
            "fell_back": _fell_back(run, config),
            "peak_rss_bytes": [peak_memory(), *rss[1:]],  # process 0 has since scored the test ratings
            "versions": {**versions(), "mpi": mpi_library()},
        }
        save_summary(run.summary_file, summary)
        return _result(summary, run.path)

    return agree(comm, write, "writing the summary", WriteError)


def _fell_back(run: RunDirectory, config: ResolvedConfig) -> list[dict[str, Any]]:
    """List the models that were given up and the restarts of chains, each with its replacement."""
    events: list[dict[str, Any]] = []
    if run.comparison_file.exists():
        comparison = Comparison.read(run.comparison_file)
        models = [*comparison.given_up, comparison.recommended]
        events += [{"model": model, "next": following} for model, following in pairwise(models)]
    samplers = fallbacks(config, run.read_settings()[1].get("given_of_sampler", []))
    for chain, reached in enumerate(run.reached(config.chains)):
        folder = run.series("checkpoints", chain) / step_name(reached)
        diverged = read_manifest(folder).diverged if folder.is_dir() else ()
        several = zip(diverged, samplers, strict=False)
        events += [{"chain": chain, "iteration": at, "next": sampler.name} for at, sampler in several]
    return events


def straggler(busy: list[float], hosts: list[str], sampling: float) -> dict[str, Any] | None:
    """Find a process that is much slower than the others, if there is one.

    Parameters
    ----------
    busy : list of float
        Seconds in which each process was not waiting.
    hosts : list of str
        Host of each process.
    sampling : float
        Seconds of sampling.

    Returns
    -------
    dict or None
        ``process``, ``host``, ``busy_seconds`` and ``others_seconds`` (median of the others).
    """
    if len(busy) < 2:
        return None
    slowest = int(np.argmax(busy))
    others = median(busy[:slowest] + busy[slowest + 1 :])
    if busy[slowest] < SLOW_FACTOR * others or busy[slowest] - others <= SLOW_SHARE * sampling:
        return None
    return {"process": slowest, "host": hosts[slowest], "busy_seconds": busy[slowest], "others_seconds": others}


def saved_result(run: RunDirectory) -> list[str] | None:
    """Return the result lines of a finished run; None without a readable summary."""
    try:
        summary = read_summary(run.summary_file)
        with as_written(run.summary_file):
            first, *others = _result(summary, run.path)
    except (FileNotFoundError, InputError):
        return None
    return [f"finished before: {first}", *others]


def _result(summary: dict[str, Any], path: Path) -> list[str]:
    """Return the lines that the user reads at the end."""
    first, *others = verdict(summary).lines()
    return [f"{path}: {first}", *(f"  {line}" for line in others)]
