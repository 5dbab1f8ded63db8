"""The result of a job: it writes ``summary.json``, and tells the user what came out."""

from __future__ import annotations

import platform
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.config.run import ResolvedConfig
from dsgmcmc.diagnostics.comparison import Comparison
from dsgmcmc.diagnostics.summary import as_written, describe_run, read_summary, save_summary
from dsgmcmc.errors import InputError, WriteError
from dsgmcmc.parallel.alone import Comm
from dsgmcmc.parallel.comm import mpi_library, on_root
from dsgmcmc.parallel.machine import peak_memory
from dsgmcmc.parallel.ring import PHASES
from dsgmcmc.runs.chain import fallbacks
from dsgmcmc.runs.group import ChainGroup
from dsgmcmc.runs.source import RatingsSource
from dsgmcmc.storage.rundir import RunDirectory, now, versions
from dsgmcmc.storage.store import read_manifest, step_name
from dsgmcmc.types import Float64

#: Phases in which a process mostly waits for others.
WAITING_PHASES = ("exchange", "reduce", "checkpoint")
#: A slow process is busy for at least this multiple of the median of the other processes,
SLOW_FACTOR = 1.25
#: and for more than this share of the sampling time above this median.
SLOW_SHARE = 0.05


class Measurements(NamedTuple):
    """What the processes of a job have measured; equal on all of them.

    Attributes
    ----------
    phases : (P, F) float64
        Seconds of each process in each of the F `PHASES`.
    peak_rss : list of int
        Peak memory of each process, in bytes.
    hosts : list of str
        Host of each process.
    sampling_seconds : list of float
        Sampling time of each process, without the first sweep.
    iterations : int
        Iterations of all groups.
    timed : int
        The same without the first sweep of each group.
    """

    phases: Float64
    peak_rss: list[int]
    hosts: list[str]
    sampling_seconds: list[float]
    iterations: int
    timed: int

    @classmethod
    def gather(cls, comm: Comm, group: ChainGroup) -> Measurements:
        """Gather the measurements of all processes. Collective."""
        seconds = group.ring.phases.seconds
        phases = np.array(comm.allgather([seconds[name] for name in PHASES]))
        peak_rss = comm.allgather(peak_memory())
        hosts = comm.allgather(platform.node())
        sampling_seconds = comm.allgather(group.sampling_seconds)
        # all processes of a group have made the same iterations: its first process counts them
        counts_them = group.ring.rank == 0
        return cls(
            phases=phases,
            peak_rss=peak_rss,
            hosts=hosts,
            sampling_seconds=sampling_seconds,
            iterations=comm.allreduce(group.sampled if counts_them else 0),
            timed=comm.allreduce(group.timed if counts_them else 0),
        )

    @property
    def longest(self) -> float:
        """Seconds of sampling of the process that sampled for longest."""
        return max(self.sampling_seconds)

    def phase_table(self) -> dict[str, dict[str, Any]]:
        """Return the mean, the maximum and the values of all processes, by phase; in seconds."""
        return {
            name: {
                "mean": float(column.mean()),
                "max": float(column.max()),
                "by_process": column.tolist(),
            }
            for name, column in zip(PHASES, self.phases.T, strict=True)
        }

    def straggler(self) -> dict[str, Any] | None:
        """Describe the slowest process, as `straggler` does."""
        waiting = [PHASES.index(name) for name in WAITING_PHASES]
        waited = self.phases[:, waiting].sum(axis=1)
        busy = np.array(self.sampling_seconds) - waited
        return straggler(busy.tolist(), self.hosts, self.longest)


def write_summary(
    comm: Comm, source: RatingsSource, run: RunDirectory, group: ChainGroup
) -> list[str]:
    """Write ``summary.json``; return the lines that tell the user the result. Collective.

    Raises
    ------
    WriteError
        If the file cannot be written.
    """
    measured = Measurements.gather(comm, group)
    write = partial(_write_summary, source, run, group, measured)
    return on_root(comm, write, "writing the summary", WriteError)


def _write_summary(
    source: RatingsSource, run: RunDirectory, group: ChainGroup, measured: Measurements
) -> list[str]:
    """Write ``summary.json`` as `write_summary` does, on process 0."""
    config = group.config
    longest = measured.longest
    data_per_iteration = source.ratings.nnz / config.sweep_length
    ratings_per_second = 0.0
    if longest:
        ratings_per_second = measured.timed * data_per_iteration / longest
    accuracy = None
    if group.accuracy is not None:
        accuracy = group.accuracy._asdict()
    summary = {
        **source.results(run, config),
        "time": now(),
        "unit": source.ratings.reading.unit,
        "iterations": config.iterations,
        "reached": run.reached(config.chains),
        "iterations_made": measured.iterations,
        "until": accuracy,
        "processes": len(measured.hosts),
        "grid": config.grid,
        "sampler": config.sampler.name,
        "seconds_startup": group.startup_seconds,
        "seconds_sampling": longest,
        "ratings_per_second": ratings_per_second,
        "phases": measured.phase_table(),
        "straggler": measured.straggler(),
        "events": run.events(),
        "fell_back": _fell_back(run, config),
        "larger_error_than": _larger_error_than(run),
        # process 0 has scored the test ratings since the processes measured their memory
        "peak_rss_bytes": [peak_memory(), *measured.peak_rss[1:]],
        "versions": {**versions(), "mpi": mpi_library()},
    }
    save_summary(run.summary_file, summary)
    return _result_lines(summary, run.path)


def _fell_back(run: RunDirectory, config: ResolvedConfig) -> list[dict[str, Any]]:
    """List the abandoned models and the restarts of chains, each with what took its place."""
    events: list[dict[str, Any]] = []
    if run.comparison_file.exists():
        comparison = Comparison.read(run.comparison_file)
        models = [*comparison.given_up, comparison.recommended]
        events += [{"model": model, "next": following} for model, following in pairwise(models)]
    samplers = fallbacks(config, run.read_settings()[1].get("given_of_sampler", []))
    for chain, reached in enumerate(run.reached(config.chains)):
        folder = run.series("checkpoints", chain) / step_name(reached)
        if not folder.is_dir():
            continue
        restarts = zip(read_manifest(folder).diverged, samplers, strict=False)
        events += [
            {"chain": chain, "iteration": iteration, "next": sampler.name}
            for iteration, sampler in restarts
        ]
    return events


def _larger_error_than(run: RunDirectory) -> str | None:
    """Return the simpler of the compared models that has a smaller error, if there is one."""
    if not run.comparison_file.exists():
        return None
    comparison = Comparison.read(run.comparison_file)
    return comparison.model(comparison.recommended).larger_error_than or None


def straggler(busy: list[float], hosts: list[str], sampling: float) -> dict[str, Any] | None:
    """Describe the slowest process if it is much slower than the other processes; else return None.

    Parameters
    ----------
    busy : list of float
        Seconds during which each process was not waiting.
    hosts : list of str
        Host of each process.
    sampling : float
        Seconds of sampling.

    Returns
    -------
    dict or None
        ``process``, ``host``, ``busy_seconds`` and ``others_seconds`` (median of the other
        processes).
    """
    if len(busy) < 2:
        return None
    slowest = int(np.argmax(busy))
    typical = median(busy[:slowest] + busy[slowest + 1 :])
    if busy[slowest] < SLOW_FACTOR * typical:
        return None
    if busy[slowest] - typical <= SLOW_SHARE * sampling:
        return None
    return {
        "process": slowest,
        "host": hosts[slowest],
        "busy_seconds": busy[slowest],
        "others_seconds": typical,
    }


def saved_result(run: RunDirectory, chains: int) -> list[str] | None:
    """Return the lines that tell the user the result of a run that was finished before.

    None without a summary of its last state.
    """
    with suppress(FileNotFoundError, InputError), as_written(run.summary_file):
        summary = read_summary(run.summary_file)
        if summary["reached"] == run.reached(chains):
            first, *others = _result_lines(summary, run.path)
            return [f"finished before: {first}", *others]
    return None


def _result_lines(summary: dict[str, Any], path: Path) -> list[str]:
    """Return the lines that tell the user the result."""
    first, *others = describe_run(summary).lines()
    return [f"{path}: {first}", *(f"  {line}" for line in others)]
