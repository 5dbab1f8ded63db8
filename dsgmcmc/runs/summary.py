"""What a job says and writes at its end: ``summary.json``."""

from __future__ import annotations

import json
import platform
import resource
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from dsgmcmc.config.run import ResolvedConfig
from dsgmcmc.diagnostics.calibration import held_out_scores
from dsgmcmc.errors import WriteError
from dsgmcmc.parallel.agreement import agree
from dsgmcmc.parallel.timers import PHASES, Phases
from dsgmcmc.posterior.heldout import posteriors, test_predictions
from dsgmcmc.storage.files import write_whole
from dsgmcmc.storage.manifest import Key
from dsgmcmc.storage.provenance import versions
from dsgmcmc.storage.rundir import RunDirectory
from dsgmcmc.targets.factorisation.likelihoods.base import Likelihood
from dsgmcmc.types import Comm

WAITING = ("exchange", "reduce", "checkpoint")  # phases in which a process mostly waits for others
SLOWER = 1.25  # times the others' median, from which on a process is named
WORTH_NAMING = 0.05  # of the sampling time, that it made the others wait


@dataclass(frozen=True)
class Times:
    """How long this process took.

    Attributes
    ----------
    startup, sampling : float
        Seconds.
    iterations : int
        Iterations made, counted by one process of a chain.
    """

    startup: float
    sampling: float
    iterations: int


def write_summary(
    comm: Comm, config: ResolvedConfig, phases: Phases, nnz: int, times: Times, run: RunDirectory, mpi: str
) -> None:
    """Write ``summary.json`` on process 0, and print the result. Collective.

    Parameters
    ----------
    comm : MPI.Comm
        All processes.
    config : ResolvedConfig
        What was sampled by.
    phases : Phases
        Where this process's time went.
    nnz : int
        Training ratings.
    times : Times
        How long this process took.
    run : RunDirectory
        Where to write.
    mpi : str
        Name of the MPI library.

    Raises
    ------
    WriteError
        If it cannot be written.
    """
    everyone = np.array(comm.allgather([phases.seconds[name] for name in PHASES]))
    rss = comm.allgather(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    sampling = comm.allgather(times.sampling)
    hosts = comm.allgather(platform.node())
    made, longest = comm.allreduce(times.iterations), max(sampling)

    def write() -> None:
        per_iteration = nnz / config.sweep_length
        waited = [sum(row[PHASES.index(name)] for name in WAITING) for row in everyone]
        summary = {
            **results(run, config.law),
            "iterations": config.iterations,
            "iterations_made": made,
            "processes": comm.size,
            "grid": config.grid,
            "rank": config.rank,
            "sampler": config.sampler.name,
            "seconds_startup": times.startup,
            "seconds_sampling": longest,
            "ratings_per_second": made * per_iteration / longest if longest else 0.0,
            "phases": {
                name: {"mean": float(column.mean()), "max": float(column.max()), "by_process": column.tolist()}
                for name, column in zip(PHASES, everyone.T, strict=True)
            },
            "straggler": straggler([s - w for s, w in zip(sampling, waited, strict=True)], hosts, longest),
            "events": run.events(),
            "peak_rss_bytes": rss,
            "versions": {**versions(), "mpi": mpi},
        }
        write_whole(run.summary_file, json.dumps(summary, indent=1) + "\n")
        print(_result(summary, run.path), flush=True)

    agree(comm, write if comm.rank == 0 else lambda: None, "writing the summary", WriteError)


def results(run: RunDirectory, law: type[Likelihood]) -> dict[str, Any]:
    """What a run has found.

    Returns
    -------
    dict
        ``tau`` (posterior mean), ``rmse_mean``, ``mae_mean`` and the other scores of the test ratings' posterior
        predictions (`dsgmcmc.diagnostics.calibration.held_out_scores`); the first two are null without test ratings.
    """
    taus = [snapshot.read(Key("trace", "run", 0, "tau")) for snapshot in posteriors(run)]
    tau = float(np.concatenate(taus).mean()) if taus else None
    test = test_predictions(run)
    if test is None:
        return {"rmse_mean": None, "mae_mean": None, "tau": tau}
    found = held_out_scores(test, law)
    found["coverage"] = {str(level): share for level, share in found["coverage"].items()}
    return {"rmse_mean": found.pop("rmse"), "mae_mean": found.pop("mae"), **found, "tau": tau}


def straggler(busy: list[float], hosts: list[str], sampling: float) -> dict[str, Any] | None:
    """Name the process for which the others waited, if there is one.

    Parameters
    ----------
    busy : list of float
        Seconds that each process did not wait for others.
    hosts : list of str
        Where each runs.
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
    if busy[slowest] < SLOWER * others or busy[slowest] - others < WORTH_NAMING * sampling:
        return None
    return {"process": slowest, "host": hosts[slowest], "busy_seconds": busy[slowest], "others_seconds": others}


def saved_result(run: RunDirectory) -> str:
    """Return what the user read at the end of a run that is finished."""
    summary = json.loads(run.summary_file.read_text(encoding="utf-8"))
    return f"finished before: {_result(summary, run.path)}"


def _result(summary: dict[str, Any], path: Path) -> str:
    """Return what the user reads at the end."""
    speed = f"{summary['ratings_per_second'] / 1e6:.0f} M ratings/s on {summary['processes']} process(es)"
    slow = summary["straggler"]
    if slow:
        speed += (
            f"\n  process {slow['process']} on {slow['host']} was the slowest: it worked {slow['busy_seconds']:.1f} s, "
            f"the others {slow['others_seconds']:.1f} s, and waited for it"
        )
    if summary["rmse_mean"] is None:
        return f"{path}: {summary['iterations_made']} iterations, {speed}; no RMSE (no test ratings or no draws)"
    inside = ", ".join(f"{float(k):.0%}: {v:.1%}" for k, v in summary["coverage"].items())
    return (
        f"{path}: RMSE of the posterior mean {summary['rmse_mean']:.4f}, MAE {summary['mae_mean']:.4f}, "
        f"tau {summary['tau']:.3f}\n"
        f"  ratings inside their predictive intervals: {inside}\n"
        f"  {summary['seconds_sampling']:.1f} s of sampling, {speed}"
    )
