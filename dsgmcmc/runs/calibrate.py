"""The constants of `dsgmcmc.cluster.constants`, measured on this machine.

Nothing here lists kernels. Real targets of synthetic ratings make whole sweeps, in shapes with many ratings, many rows,
many cells, or few of all; the constants are fitted to their times, which all have equal weight. Times are processor
seconds, and the fastest of several cycles counts, so that other work on the machine disturbs them little; processes
that share caches and memory measure at the same time. What several processes need besides is fitted to the seconds of
the clock that sweeps of few ratings take on all of them, less the work in these.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
from scipy.optimize import nnls

from dsgmcmc.cluster.bench import ring, spread
from dsgmcmc.cluster.constants import Disk, Exchange, Machine, Work, builtin
from dsgmcmc.config.layers import build
from dsgmcmc.config.run import ResolvedConfig
from dsgmcmc.data.ratings import Ratings
from dsgmcmc.data.ratings.context import NO_CONTEXT
from dsgmcmc.data.ratings.format import Split
from dsgmcmc.parallel.machine import cpu_name
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.runs.forecast import Counts, Forecast, Nodes, column_bytes
from dsgmcmc.runs.sources.ratings import targets_of
from dsgmcmc.storage.files import write_whole
from dsgmcmc.storage.rundir import now
from dsgmcmc.types import Comm, Float32, Float64, Int32, Int64

SETTLED = 50  # sweeps after which metrics are refreshed, and means and biases exchanged, at a constant rate
BURST = 256  # small messages at a time
LONG = 2.0  # seconds of a cycle of sweeps that need not be repeated
CYCLE = 10  # sweeps after which the updates of a metric repeat
COLUMN_BYTES = (1 << 16, 1 << 18, 1 << 20, 1 << 22)


@dataclass(frozen=True)
class Shape:
    """Shape of synthetic ratings: rows, columns, ratings per row, and the grid that they are cut into."""

    rows: int
    columns: int
    per_row: int
    grid: int = 4


#: Shapes with many rows, of few ratings and of more, in few cells and in many, which fit the caches or do not; with
#: many cells; and with few of all. `measure_work` adds those with many ratings.
OTHERS = (
    Shape(100_000, 3000, 20),
    Shape(100_000, 3000, 40, grid=32),
    Shape(30_000, 1000, 8),
    Shape(30_000, 1000, 8, grid=16),
    Shape(30_000, 1000, 64, grid=16),
    Shape(3000, 1000, 64, grid=16),
    Shape(640, 500, 10, grid=32),
    Shape(640, 500, 10, grid=8),
    Shape(64, 50, 4),
)
STEPS = ("step", "cell", "latency")  # of `Exchange`: what `measure_steps` measures
BLOCKS = (1, 2, 4, 8)  # blocks of a process when sweeps of several processes are measured


class MadeUp(Ratings):
    """Synthetic ratings in memory; a tenth of the columns has 46 % of them, about as in MovieLens."""

    value_bytes = 1

    def __init__(self, shape: Shape, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        size = (shape.rows, shape.per_row)
        order = rng.permutation(shape.columns).astype(np.int32)
        self.path, self.n_rows, self.n_cols = Path("made up"), shape.rows, shape.columns
        self.nnz, self.nnz_test = shape.rows * shape.per_row, 0
        self._columns = np.sort(order[(shape.columns * rng.random(size, np.float32) ** 3).astype(np.int32)], axis=1)
        self._values = rng.integers(1, 6, size).astype(np.float32)
        self._indptr = {"train": shape.per_row * np.arange(shape.rows + 1), "test": np.zeros(shape.rows + 1, np.int64)}
        self.row_indptr, self.test_indptr = self._indptr["train"], self._indptr["test"]
        self.column_counts = np.bincount(self._columns.ravel(), minlength=shape.columns)
        self.mean, self.transposed, self.features, self.times, self.context = 3.0, False, {}, None, NO_CONTEXT

    def slab(self, part: Split, start: int, stop: int) -> tuple[Int64, Int32, Float32]:
        """See `Ratings.slab`."""
        indptr = self._indptr[part][start : stop + 1] - self._indptr[part][start]
        taken = slice(start, stop if part == "train" else start)
        return indptr, self._columns[taken].ravel(), self._values[taken].ravel()

    def columns(self, part: Split, start: int, stop: int) -> Int32:
        """See `Ratings.columns`."""
        return self.slab(part, start, stop)[1]


class CountingRing(Ring):
    """A ring that counts its ordered sums, how many numbers each block adds to them, and the blocks that arrive.

    A block that is handed over in shared memory counts like one that is sent.
    """

    def __init__(self, comm: Comm, grid: int) -> None:
        super().__init__(comm, grid)
        self.clear()

    def clear(self) -> None:
        """Count from zero, phases as well."""
        self.sums: Counter[int] = Counter()
        self.messages = self.received = self.largest = 0
        self.phases.clear()

    def count(self, arriving: Sequence[int]) -> None:
        """See `Ring.count`."""
        self.messages, self.received = self.messages + len(arriving), self.received + sum(arriving)
        self.largest = max([self.largest, *arriving])

    def reduce(
        self, partials: Float64, finish: Callable[[Float64], Float64], width: int, combine: np.ufunc = np.add
    ) -> Float64:
        """See `Ring.reduce`."""
        self.sums[partials.size // len(self.blocks)] += 1
        return super().reduce(partials, finish, width, combine)


class CalibrationChain:
    """A settled chain that only iterates, on ratings in memory."""

    def __init__(self, config: ResolvedConfig, ratings: Ratings, ring: CountingRing) -> None:
        self.ring, self.sampler = ring, config.make_sampler()
        self.target = targets_of(config, ratings, ring)(0, self.sampler)
        self.target.reset()
        self.sampler.start(self.target, config.initial_sd)
        self.sweep = self.tours = self.timed = 0
        self.target.circulation.tour = self._counted(self.target.circulation.tour)  # type: ignore[method-assign]
        self.cycle(2)
        self.sweep = SETTLED

    def _counted(self, tour: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*given: Any, **named: Any) -> Any:
            self.tours += 1
            return tour(*given, **named)

        return counted

    def cycle(self, sweeps: int = CYCLE) -> None:
        """Make some sweeps."""
        length = self.target.sweep_length
        for _ in range(sweeps):
            self.sampler.advance(self.target, self.sweep * length, length)
            self.sweep += 1

    def cycles(self, repeats: int, clock: Callable[[], float]) -> list[float]:
        """Seconds of a sweep in each of `repeats` cycles, with counts and phases from zero. Collective."""
        seconds = []
        self.tours, self.timed = 0, repeats * CYCLE
        self.ring.clear()
        with np.errstate(all="ignore"):
            for _ in range(repeats):
                begin = clock()
                self.cycle()
                seconds.append((clock() - begin) / CYCLE)
        return seconds

    def cost(self, repeats: int, clock: Callable[[], float] = process_time) -> float:
        """Seconds of a sweep, in the fastest of `repeats` cycles; processor time by default. Collective."""
        return min(self.cycles(repeats, clock))

    def per_sweep(self) -> dict[str, Any]:
        """Tours and sums of a sweep, as counted by `cycles`; see `Work`."""
        sums = sorted(self.ring.sums.items(), key=lambda each: (each[1], each[0]), reverse=True)
        return {
            "tours": self.tours / self.timed,
            "sums": [count / self.timed for _, count in sums],
            "summed": [float(width) for width, _ in sums],
        }


def measure_work(comm: Comm, sampler: str, noise: str, rank: int, repeats: int = 3) -> Work:
    """Costs of a sampler's sweeps, alone on one core; see `Work`.

    Parameters
    ----------
    comm : Comm
        This process alone.
    sampler, noise : str
    rank : int
    repeats : int
        Cycles of ten sweeps; the fastest one counts. Where the first takes long, it is the only one.
    """
    settings = {"sampler": sampler, "noise": noise, "rank": rank, "iterations": "100000sweeps"}
    config = build(settings).resolved()
    wide = [round(size / column_bytes(config, 1)) for size in COLUMN_BYTES]
    shapes = [Shape(2000, columns, 512) for columns in wide] + list(OTHERS)
    rows, seconds = [], []
    for shape in shapes:
        here = config.model_copy(update={"grid": shape.grid})
        ratings = MadeUp(shape)
        chain = CalibrationChain(here, ratings, CountingRing(comm, shape.grid))
        first = chain.cost(1)
        seconds.append(first if CYCLE * first > LONG else min(first, chain.cost(repeats)))
        counts = Counts.of(here, ratings, 1)
        ratings_at = [counts.ratings * share for share in _shares(column_bytes(here, shape.columns))]
        rows.append([*ratings_at, *counts.others])
    scaled = np.array(rows) / np.array(seconds)[:, None]
    fitted = _short(nnls(scaled, np.ones(len(scaled)))[0])
    others: dict[str, Any] = dict(zip(Counts.names, fitted[len(COLUMN_BYTES) :], strict=True))
    return Work(
        sampler=sampler,
        noise=config.noise,
        rank=rank,
        column_bytes=list(COLUMN_BYTES),
        rating=fitted[: len(COLUMN_BYTES)],
        **others,
        **chain.per_sweep(),
    )


def _shares(size: float) -> Float64:
    """Weight of the constant at each of `COLUMN_BYTES` for columns of this size; see `Work.seconds_per_rating`."""
    places, each = np.log(COLUMN_BYTES), np.eye(len(COLUMN_BYTES))
    return np.array([np.interp(np.log(size), places, one) for one in each])


def _short(numbers: Iterable[float]) -> list[float]:
    """Four digits: more are noise."""
    return [float(f"{number:.4g}") for number in numbers]


def measure_exchange(comm: Comm, work: Work, repeats: int = 5) -> Exchange:
    """Measure what processes need besides their work, at least two: those of this node. Collective.

    Parameters
    ----------
    comm : Comm
    work : Work
        Costs of work on these processes; the same on all.
    repeats : int
        Cycles of ten sweeps of each shape; the fastest one counts.
    """
    numbers = np.ones((64, 4096))
    added, _, _ = spread(lambda: numbers.sum(axis=0), 30)
    small, *large = ring(comm, [1000, 1_000_000, 4_000_000])
    least = small["exchange_quartiles"][0] / 1e6
    moved = [line["bytes"] / max(line["exchange_quartiles"][0] / 1e6 - least, 1e-9) for line in large]
    message = spread(lambda: _burst(comm), 30)[1] / BURST
    per_byte, message = np.max(comm.allgather([1 / min(moved), message]), axis=0)
    bandwidth, message, added = _short([1 / per_byte, message, added / numbers.size])
    known = Exchange(step=0, cell=0, latency=0, bandwidth=bandwidth, message=message, added=added)
    return measure_steps(comm, work, known, repeats)


def measure_steps(
    comm: Comm, work: Work, known: Exchange, repeats: int = 5, clock: Callable[[], float] = perf_counter
) -> Exchange:
    """Measure what steps, their cells and the messages of ordered sums take in sweeps of few ratings. Collective.

    Parameters
    ----------
    comm : Comm
    work : Work
    known : Exchange
        With all that is not measured here.
    repeats : int
    clock : callable
        Gives seconds.
    """
    settings = {"sampler": work.sampler, "noise": work.noise, "rank": work.rank, "iterations": "100000sweeps"}
    config, free = build(settings).resolved(), known.model_copy(update=dict.fromkeys(STEPS, 0.0))
    ones = [free.model_copy(update={name: 1.0}) for name in STEPS]
    rows, seconds = [], []
    for blocks in BLOCKS:
        grid = comm.size * blocks
        here, ratings = config.model_copy(update={"grid": grid}), MadeUp(Shape(20 * grid, 4 * grid, 4, grid))
        chain = CalibrationChain(here, ratings, CountingRing(comm, grid))
        taken = max(comm.allgather(chain.cost(repeats, clock)))
        said = [seconds_on(here, ratings, work, each, comm.size) for each in (free, *ones)]
        rows.append([each - said[0] for each in said[1:]])
        seconds.append((taken, max(taken - said[0], 0.0)))
    scale = np.array(seconds)
    fitted = _short(nnls(np.array(rows) / scale[:, :1], scale[:, 1] / scale[:, 0])[0])
    found: Exchange = comm.bcast(free.model_copy(update=dict(zip(STEPS, fitted, strict=True))))
    return found


def seconds_on(config: ResolvedConfig, ratings: Ratings, work: Work, exchange: Exchange, processes: int) -> float:
    """Forecast of a sweep on processes of one node, with these constants."""
    machine = Machine(cpu="", processes=processes, exchange=exchange, disk=Disk(bandwidth=1.0), work=[work])
    return Forecast.of(config, ratings, machine, Nodes(1, processes, 1e9, 0.0)).seconds


def _burst(comm: Comm) -> None:
    """Send many small messages to the next process, and receive as many."""
    sent, received = np.zeros(8), np.zeros((BURST, 8))
    before, after = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    requests = [comm.Irecv(each, source=before) for each in received]
    requests += [comm.Isend(sent, dest=after) for _ in range(BURST)]
    for request in requests:
        request.Wait()


def measure_disk(folder: Path) -> Disk:
    """Measure how fast one process writes a file in a folder, until the data are on the device."""
    data = np.random.default_rng(0).bytes(1 << 26)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".dsgmcmc-bench-") as place:
        begin = perf_counter()
        write_whole(Path(place) / "written", [data])
        return Disk(bandwidth=len(data) / (perf_counter() - begin))


def measure_machine(
    comm: Comm, samplers: Sequence[str], noise: str, ranks: Sequence[int], folder: Path, known: Machine | None
) -> Machine | None:
    """Measure everything, on all processes at once. Collective.

    Parameters
    ----------
    comm : Comm
        The processes of one node, as many as will sample on it.
    samplers : sequence of str
    noise : str
        Setting of a run.
    ranks : sequence of int
        Numbers K of latent dimensions.
    folder : Path
        Where runs will be written.
    known : Machine or None
        An earlier measurement: its costs of other samplers and ranks are kept, and those of messages if there is only
        one process.

    Returns
    -------
    Machine or None
        At process 0, with the costs of the slowest process; None elsewhere.
    """
    measured, alone = [], comm.Split(comm.rank)
    for sampler, rank in product(samplers, ranks):
        everyone = comm.gather(measure_work(alone, sampler, noise, rank))
        if everyone:
            measured.append(max(everyone, key=lambda each: sum(each.rating)))
    exchange = measure_exchange(comm, comm.bcast(measured[0] if measured else None)) if comm.size > 1 else None
    if comm.rank:
        return None
    work = {(each.sampler, each.noise, each.rank): each for each in [*(known.work if known else []), *measured]}
    told = "" if exchange else "; messages were not"
    return Machine(
        cpu=cpu_name(),
        processes=comm.size,
        about=f"{', '.join(samplers)} measured on {now()[:10]}, {comm.size} process(es) at once{told}",
        exchange=exchange or (known or builtin()).exchange,
        disk=measure_disk(folder),
        work=list(work.values()),
    )
