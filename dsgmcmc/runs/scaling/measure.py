"""One measurement: sweeps of some processes, a checkpoint and a resumption, beside their forecast.

Sweeps are those of a settled chain (`dsgmcmc.runs.calibrate.CalibrationChain`), without draws and evaluation, as
forecasts are. Checkpoint, resumption and memory are those of a job.
"""

from __future__ import annotations

import gc
import shutil
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

from dsgmcmc.cluster.constants import Machine
from dsgmcmc.config.layers import Layers, build
from dsgmcmc.data.ratings.first_rows import FirstRows
from dsgmcmc.diagnostics.summary import Summary, read_summary
from dsgmcmc.parallel.machine import forget_peak_memory
from dsgmcmc.parallel.timers import PHASES
from dsgmcmc.runs.advice import forecasts
from dsgmcmc.runs.calibrate import CYCLE, CalibrationChain, CountingRing
from dsgmcmc.runs.forecast import Forecast, Nodes
from dsgmcmc.runs.job import Job
from dsgmcmc.runs.sources.ratings import RatingsSource
from dsgmcmc.types import Comm

Settings = dict[str, Any]

WARM_UP = 2  # sweeps of a calibration chain before it is timed
SAVED, RESUMED = 2, 3  # sweeps after which the job writes its checkpoint, and at which the resumed one ends
AROUND = WARM_UP + RESUMED  # sweeps of a measurement that are not timed


def choose(settings: Settings, source: RatingsSource, machine: Machine, nodes: Nodes) -> Forecast:
    """Forecast with the number of blocks that is best for these processes, by the machine's own constants."""
    return forecasts(build(settings), source.ratings, machine, nodes)[0]


def view(path: Path, ratings: int) -> RatingsSource:
    """The first rows of a file, with about so many ratings."""
    return RatingsSource(path, view=partial(FirstRows, wanted=ratings))


def measure(
    comm: Comm, settings: Settings, source: RatingsSource, said: Forecast, cycles: int, folder: Path
) -> dict[str, Any]:
    """Measure on the processes of `comm`. Collective.

    Parameters
    ----------
    comm : Comm
    settings : dict
        Of the run, but for its grid.
    source : RatingsSource
        The ratings.
    said : Forecast
        Its number of blocks is taken.
    cycles : int
        How many times ten sweeps are timed.
    folder : Path
        Where the job may write; nothing is left there.

    Returns
    -------
    dict
        ``seconds_per_sweep`` (median over cycles of the slowest process), ``fastest``, ``slowest``,
        ``processor_seconds`` (of a sweep, mean of all processes; less where other work has the processor), ``sweeps``,
        ``phases`` (seconds of a sweep, mean and most of all processes), ``sent_per_sweep`` (bytes),
        ``messages_per_sweep``, ``reading_seconds``, and what `_job` returns; on all processes.
    """
    begin = perf_counter()
    settings = {**settings, "grid": said.grid}
    config = build(settings).resolved()
    ring = CountingRing(comm, said.grid)
    chain = CalibrationChain(config, source.ratings, ring)
    read = perf_counter() - begin
    busy = process_time()
    each = np.max(comm.allgather(chain.cycles(cycles, perf_counter)), axis=0)
    sweeps = cycles * CYCLE
    busy = float(np.mean(comm.allgather((process_time() - busy) / sweeps)))
    phases = np.array(comm.allgather([ring.phases.seconds[name] / sweeps for name in PHASES]))
    counted = np.sum(comm.allgather([ring.received, ring.messages]), axis=0) / sweeps
    del chain, ring
    gc.collect()  # a chain refers to itself; its ratings are not to count as memory of the job
    return {
        "seconds_per_sweep": float(np.median(each)),
        "fastest": float(each.min()),
        "slowest": float(each.max()),
        "processor_seconds": busy,
        "sweeps": sweeps,
        "phases": {
            name: {"mean": float(column.mean()), "max": float(column.max())}
            for name, column in zip(PHASES, phases.T, strict=True)
            if column.any()
        },
        "sent_per_sweep": float(counted[0]),
        "messages_per_sweep": float(counted[1]),
        "reading_seconds": max(comm.allgather(read)),
        **_job(comm, settings, source, folder),
    }


def _job(comm: Comm, settings: Settings, source: RatingsSource, folder: Path) -> dict[str, float]:
    """Make a few sweeps and a checkpoint, and resume from it. Collective.

    Returns
    -------
    dict
        ``checkpoint_seconds``, ``resume_seconds`` (from the start of the job to its first sweep; ratings and kernels
        are read from the page cache) and ``memory_per_process`` (bytes, at most).
    """
    out = folder / "run"
    found: list[Summary] = []
    forget_peak_memory()
    for sweeps in (SAVED, RESUMED):
        layers = Layers({**settings, "iterations": f"{sweeps}sweeps"})
        Job(comm, source, out, layers, resume=bool(found), quiet=True).run_inside()
        comm.Barrier()
        found.append(read_summary(out / "summary.json"))
        comm.Barrier()
    if comm.rank == 0:
        shutil.rmtree(out)
    return {
        "checkpoint_seconds": found[0]["phases"]["checkpoint"]["max"],
        "resume_seconds": found[1]["seconds_startup"],
        "memory_per_process": max(max(each["peak_rss_bytes"]) for each in found),
    }
