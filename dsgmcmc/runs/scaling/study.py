"""All measurements of an allocation within a time: the machine's constants first, then one layout after the other.

Processes that take no part in a measurement sleep. What was measured is on disk after each of them: `scaling.json` and
`scaling.html`, which name neither hosts nor people nor paths, and `machine.toml` for `dsgmcmc plan`.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from threading import Timer
from time import monotonic, sleep
from typing import Any, TypeVar, cast

from dsgmcmc._version import __version__
from dsgmcmc.cluster.constants import Machine, write_machine
from dsgmcmc.config.layers import build
from dsgmcmc.data.ratings import Ratings, open_ratings
from dsgmcmc.errors import EXIT_ABORT, EXIT_DONE, AgreedError, DivergenceError, InputError, StoppedError, writing
from dsgmcmc.parallel.agreement import agree
from dsgmcmc.parallel.launch import library_of
from dsgmcmc.parallel.machine import affinity, memory_limit
from dsgmcmc.parallel.mpirun import run_dsgmcmc
from dsgmcmc.parallel.signals import Request, installed
from dsgmcmc.runs.calibrate import CYCLE, measure_exchange, measure_machine
from dsgmcmc.runs.forecast import Forecast, Nodes
from dsgmcmc.runs.scaling.layouts import Layout, layouts, places
from dsgmcmc.runs.scaling.measure import AROUND, choose, measure, view
from dsgmcmc.runs.scaling.page import render
from dsgmcmc.runs.sources.ratings import RatingsSource
from dsgmcmc.storage.files import write_whole
from dsgmcmc.storage.provenance import versions
from dsgmcmc.storage.rundir import now
from dsgmcmc.terminal import say
from dsgmcmc.types import Comm

FORMAT, VERSION = "dsgmcmc-scaling", 1
POLL = 0.05  # seconds between two looks of a process that takes no part
MAKING = 3e-6  # seconds in which a synthetic rating is made and prepared, at most
CYCLES = (5, 3, 1)  # times ten sweeps of a measurement: fewer where time is short
SLACK = 1.5  # times what a measurement is expected to take
EVERYTHING = 1 << 62  # ratings of a file that is taken whole
USERS, ITEMS = 6040, 3706  # of a million ratings, as in MovieLens; items do not grow with the ratings

T = TypeVar("T")


@dataclass(frozen=True)
class Wanted:
    """What is to be measured.

    Attributes
    ----------
    settings : dict
        Settings of the runs: ``sampler``, ``noise``, ``rank``, ...
    folder : Path
        Where the results go; all processes see it.
    seconds : float
        When it ends, from the start of the study.
    data : Path or None
        A ratings file; None for synthetic ratings.
    ratings : int
        How many synthetic ones.
    share : int or None
        Ratings a process of the series weak; by default so many that all processes together have all ratings.
    """

    settings: dict[str, Any]
    folder: Path
    seconds: float
    data: Path | None = None
    ratings: int = 20_000_000
    share: int | None = None


class Study:
    """A study of the processes of `comm`; `run` makes it."""

    def __init__(self, comm: Comm, wanted: Wanted) -> None:
        self.comm, self.wanted = comm, wanted
        self._at_root = comm.rank == 0
        self._end = monotonic() + wanted.seconds
        self._hosts = comm.allgather(platform.node())
        numbers = [self._hosts.count(host) for host in dict.fromkeys(self._hosts)]
        self._whole = Layout(len(numbers), min(numbers), wanted.ratings)
        self._signals = installed()
        self._around = 10.0  # seconds that a measurement takes besides its sweeps, the longest so far
        self._found: dict[str, Any] = {}
        self._link = (1e10, 0.0)

    def run(self) -> int:
        """Measure everything; the exit status. Collective."""
        work = self.wanted.folder / "work"
        agree(self.comm, partial(self._make, work) if self._at_root else lambda: None)
        stop = Timer(self._left(), self._give_up)
        stop.daemon = True
        if self._at_root:
            stop.start()
        try:
            self._measure_all(work)
        finally:
            stop.cancel()
            if self._at_root:
                shutil.rmtree(work, ignore_errors=True)
        return EXIT_DONE

    def _make(self, work: Path) -> None:
        wanted = self.wanted
        build(wanted.settings).resolved()
        if wanted.data:
            open_ratings(wanted.data).close()
        if wanted.folder.exists() and any(wanted.folder.iterdir()):
            raise InputError(f"{wanted.folder} is not empty: give a new folder")
        needed = 0 if wanted.data else MAKING * self._most()
        if needed > wanted.seconds / 2:
            raise InputError(
                f"making {self._most():,} ratings takes up to {needed / 60:.0f} minutes of the "
                f"{wanted.seconds / 60:.0f} that there are: give more --time, or fewer --ratings or --each"
            )
        with writing(wanted.folder):
            work.mkdir(parents=True)

    def _most(self) -> int:
        """Synthetic ratings that are needed."""
        return max(self.wanted.ratings, (self.wanted.share or 0) * self._whole.processes)

    def _left(self) -> float:
        return self._end - monotonic()

    def _give_up(self) -> None:
        """End the job in the middle of a measurement that takes longer than was expected; in a thread of process 0."""
        say(f"dsgmcmc: the time is up in the middle of a measurement; those before are in {self.wanted.folder}")
        os._exit(EXIT_ABORT)

    # ------------------------------------------------------------------ the measurements

    def _measure_all(self, work: Path) -> None:
        wanted, whole, settings = self.wanted, self._whole, self.wanted.settings
        self._say(f"{whole.nodes} node(s) with {whole.each} process(es): the machine's constants")
        names = [settings["sampler"]], settings["noise"], [settings["rank"]]
        machine = self._on(Layout(1, whole.each, 0), lambda some: measure_machine(some, *names, wanted.folder, None))
        assert machine is not None  # its constants are those of process 0, which is the first of any layout
        if whole.nodes > 1:
            between = self._on(Layout(2, 1, 0), lambda some: measure_exchange(some, machine.work[0]))
            self._link = between.bandwidth, max(between.step - machine.exchange.step, 0.0)
        path = wanted.data or self._on(Layout(1, 1, 0), lambda _: self._synthetic(work))
        ratings = view(path, EVERYTHING if wanted.data else wanted.ratings).ratings
        share = wanted.share or max(ratings.nnz // whole.processes, 1)
        todo = layouts(whole.nodes, whole.each, ratings.nnz, share)
        if self._at_root:
            self._found = self._facts(machine, ratings)
            write_machine(wanted.folder / "machine.toml", machine)
        for number, (layout, series) in enumerate(todo.items()):
            source = view(path, layout.ratings)
            line = {"series": series, **asdict(layout), "processes": layout.processes}
            line |= {"rows": source.ratings.n_rows, "ratings": source.ratings.nnz}
            try:
                self._save(line | self._measured(layout, source, machine, len(todo) - number, work))
            except (InputError, StoppedError) as error:
                self._save({**line, "left_out": str(error)})
            source.ratings.close()
        self._save(None)

    def _measured(
        self, layout: Layout, source: RatingsSource, machine: Machine, left: int, work: Path
    ) -> dict[str, Any]:
        """What is seen and said of a layout. Collective; raises InputError if it is impossible, or the time is up."""
        settings, nodes = self.wanted.settings, Nodes(layout.nodes, layout.each, *self._link)
        said = choose(settings, source, machine, nodes)
        cycles = self._cycles(said, left)
        begin = monotonic()
        seen = self._on(layout, lambda some: measure(some, settings, source, said, cycles, work))
        self._around = max(self._around, monotonic() - begin - seen["seconds_per_sweep"] * seen["sweeps"])
        return {"seen": seen, "said": {**said.table(), "checkpoint_seconds": said.checkpoint / machine.disk.bandwidth}}

    def _cycles(self, said: Forecast, left: int) -> int:
        """How many cycles there is time for, if `left` measurements are to follow, this one included."""
        if max(self.comm.allgather(self._signals.request)) >= Request.STOP:
            raise StoppedError("asked to stop")
        time = self._left()
        around = self._around + AROUND * said.seconds
        need = {cycles: SLACK * (around + cycles * CYCLE * said.seconds) for cycles in CYCLES}
        fits = [cycles for cycles in CYCLES if need[cycles] <= time / left] or [CYCLES[-1]]
        if not self.comm.bcast(need[fits[0]] <= time):
            raise InputError(f"it would take up to {need[CYCLES[-1]]:.0f} s, and the time is nearly up")
        return int(self.comm.bcast(fits[0]))

    def _on(self, layout: Layout, work: Callable[[Comm], T]) -> T:
        """Do something on the processes of a layout, while the others sleep; its result is for all. Collective."""
        comm, ranks = self.comm, places(self._hosts, layout)
        among = comm.rank in ranks
        some = comm.Split(int(not among), ranks.index(comm.rank) if among else 0)
        result: T | None = None
        failure: Exception | None = None
        if among:
            try:
                result = work(some)
            except (AgreedError, DivergenceError, StoppedError) as error:  # of all of them alike
                failure = error
        _meet(comm)
        some.Free()
        found, failure = comm.bcast((result, failure))
        if failure is not None:
            raise failure
        return cast(T, found)

    def _synthetic(self, work: Path) -> Path:
        """Make the ratings file; on process 0."""
        raw, out, number = work / "ratings.parquet", work / "ratings.h5", self._most()
        self._say(f"{number:,} synthetic ratings")
        users, items = max(round(USERS * number / 1e6), 100), ITEMS if number >= 1e6 else max(number // 1000, 50)
        sizes = {"rows": users, "cols": items, "ratings": number}
        _command("synthetic", str(raw), *(f"--{name}={size}" for name, size in sizes.items()))
        _command("prepare", str(raw), str(out), "--test-fraction=0")
        raw.unlink()
        return out

    # ------------------------------------------------------------------ what was found

    def _facts(self, machine: Machine, ratings: Ratings) -> dict[str, Any]:
        """What is known before the first measurement. It has no name of a host, a person or a path."""
        whole, settings = self._whole, self.wanted.settings
        return {
            "format": FORMAT,
            "version": VERSION,
            "dsgmcmc": __version__,
            "date": now()[:10],
            "nodes": whole.nodes,
            "processes_per_node": whole.each,
            "cores_per_node": affinity(),
            "memory_per_node": memory_limit(),
            "link": dict(zip(("bandwidth", "latency"), self._link, strict=True)) if whole.nodes > 1 else None,
            "machine": machine.model_dump(),
            "software": {**versions(), "mpi": library_of(self.comm)},
            "settings": {name: settings[name] for name in ("sampler", "noise", "rank")},
            "data": {
                "synthetic": self.wanted.data is None,
                "rows": ratings.n_rows,
                "columns": ratings.n_cols,
                "ratings": ratings.nnz,
            },
            "limit_seconds": round(self.wanted.seconds),
            "complete": False,
            "measured": [],
            "left_out": [],
        }

    def _save(self, line: dict[str, Any] | None) -> None:
        """Add a line to the results, or end them, and write them; on process 0."""
        if not self._at_root:
            return
        found, folder = self._found, self.wanted.folder
        if line is None:
            found["complete"] = not found["left_out"]
        elif "seen" in line:
            found["measured"].append(line)
            seconds, said = line["seen"]["seconds_per_sweep"], line["said"]["seconds_per_sweep"]
            self._say(
                f"{line['processes']} process(es) on {line['nodes']} node(s), {line['ratings']:,} ratings: "
                f"{1e3 * seconds:.3g} ms a sweep, {1e3 * said:.3g} said"
            )
        else:
            found["left_out"].append(line)
            self._say(f"{line['processes']} process(es) on {line['nodes']} node(s): left out, {line['left_out']}")
        found["seconds"] = round(self.wanted.seconds - self._left(), 1)
        with writing(folder):
            write_whole(folder / "scaling.json", json.dumps(found, indent=1))
            write_whole(folder / "scaling.html", render(found))
        if line is None:
            say(f"{folder}: scaling.html, scaling.json to send back, machine.toml for `dsgmcmc plan --machine`")

    def _say(self, text: str) -> None:
        if self._at_root:
            minutes, seconds = divmod(int(self.wanted.seconds - self._left()), 60)
            say(f"{minutes:3}:{seconds:02}  {text}")


def _command(*arguments: str) -> None:
    """Run a command in a process of its own: what it needs is no memory of those that are measured."""
    done = run_dsgmcmc(arguments, capture_output=True)
    if done.returncode:
        tail = "\n".join(done.stderr.splitlines()[-5:])
        raise AgreedError(f"dsgmcmc {' '.join(arguments)} ended with status {done.returncode}:\n{tail}")


def _meet(comm: Comm) -> None:
    """Wait for all processes, asleep: a processor that spins would slow down those that are measured. Collective."""
    if comm.size > 1:
        request = comm.Ibarrier()
        while not request.Test():
            sleep(POLL)
