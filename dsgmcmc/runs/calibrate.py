"""The constants of `dsgmcmc.cluster.constants`, measured on this machine.

Nothing here lists kernels. Real targets of made-up ratings go through whole sweeps, in shapes that differ in what they
have much of: ratings, rows, cells, or nothing; the constants are what fits their times best, each time counting as much
as any other. Times are seconds of the processor, and of some cycles the quickest counts, so that other work on the
machine disturbs them little; where processes share caches and memory, all of them measure at once.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
from dsgmcmc.data.ratings.format import Part
from dsgmcmc.parallel.machine import cpu_name
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.runs.forecast import Counts, column_bytes
from dsgmcmc.runs.sources.ratings import targets_of
from dsgmcmc.storage.files import write_whole
from dsgmcmc.storage.rundir import now
from dsgmcmc.types import Comm, Float32, Float64, Int32, Int64

SETTLED = 40  # sweeps, after which metrics are refreshed as ever after; see `dsgmcmc.samplers.metrics.SETTLED`
BURST = 256  # small messages at a time
CYCLE = 10  # sweeps after which what a metric does repeats itself
COLUMN_BYTES = (1 << 16, 1 << 18, 1 << 20, 1 << 22)


@dataclass(frozen=True)
class Shape:
    """Made-up ratings: so many rows, with so many ratings each, of so many columns, cut in a grid."""

    rows: int
    columns: int
    per_row: int
    grid: int = 4


#: Much of ratings: below, at sizes of the columns. Much of rows, of visits, of cells, of nothing.
OTHERS = (
    Shape(30_000, 1000, 8),
    Shape(30_000, 1000, 8, grid=16),
    Shape(640, 500, 10, grid=32),
    Shape(640, 500, 10, grid=8),
    Shape(64, 50, 4),
)


class MadeUp(Ratings):
    """Ratings of a shape, in memory; a tenth of the columns has 46 % of them, about as in MovieLens."""

    def __init__(self, shape: Shape, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        size = (shape.rows, shape.per_row)
        order = rng.permutation(shape.columns).astype(np.int32)
        self.path, self.n_rows, self.n_cols = Path("made up"), shape.rows, shape.columns
        self.nnz, self.nnz_test = shape.rows * shape.per_row, 0
        self._columns = np.sort(order[(shape.columns * rng.random(size, np.float32) ** 3).astype(np.int32)], axis=1)
        self._values = rng.integers(1, 6, size).astype(np.float32)
        self._indptr = {"train": shape.per_row * np.arange(shape.rows + 1), "test": np.zeros(shape.rows + 1, np.int64)}
        self._column_counts = np.bincount(self._columns.ravel(), minlength=shape.columns)
        self.mean, self.transposed, self.features, self.times = 3.0, False, {}, None

    def slab(self, part: Part, start: int, stop: int) -> tuple[Int64, Int32, Float32]:
        """See `Ratings.slab`."""
        indptr = self._indptr[part][start : stop + 1] - self._indptr[part][start]
        taken = slice(start, stop if part == "train" else start)
        return indptr, self._columns[taken].ravel(), self._values[taken].ravel()

    def columns(self, part: Part, start: int, stop: int) -> Int32:
        """See `Ratings.columns`."""
        return self.slab(part, start, stop)[1]


class CountingRing(Ring):
    """A ring that counts its ordered sums, and the numbers of a block that go into them."""

    sums = summed = 0

    def reduce(self, partials: Float64, finish: Callable[[Float64], Float64], width: int) -> Float64:
        """See `Ring.reduce`."""
        self.sums += 1
        self.summed += partials.shape[1]
        return super().reduce(partials, finish, width)


class Chain:
    """A settled chain that only iterates, on ratings in memory."""

    def __init__(self, config: ResolvedConfig, ratings: Ratings, ring: CountingRing) -> None:
        self.ring, self.sampler = ring, config.make_sampler()
        self.target = targets_of(config, ratings, ring)(0, self.sampler)
        self.target.reset()
        self.sampler.start(self.target, config.initial_sd)
        self.sweep = self.tours = 0
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

    def cost(self, repeats: int, clock: Callable[[], float] = process_time) -> float:
        """Seconds of a sweep, of the processor if no other clock is given: the least of so many cycles. Collective."""
        found = []
        self.tours = self.ring.sums = self.ring.summed = 0
        with np.errstate(all="ignore"):
            for _ in range(repeats):
                begin = clock()
                self.cycle()
                found.append((clock() - begin) / CYCLE)
        return min(found)

    def per_sweep(self, repeats: int) -> dict[str, float]:
        """Tours and sums of a sweep, as `cost` has counted them."""
        counted = {"tours": self.tours, "sums": self.ring.sums, "summed": self.ring.summed}
        return {name: count / (repeats * CYCLE) for name, count in counted.items()}


def measure_work(comm: Comm, sampler: str, noise: str, rank: int, repeats: int = 3) -> Work:
    """Costs of a sampler's sweeps, alone on one core; see `Work`.

    Parameters
    ----------
    comm : Comm
        This process alone.
    sampler, noise : str
    rank : int
    repeats : int
        Cycles of ten sweeps of which the quickest counts.
    """
    settings = {"sampler": sampler, "noise": noise, "rank": rank, "iterations": "100000sweeps"}
    config = build(settings).resolved()
    wide = [round(size / column_bytes(config, 1)) for size in COLUMN_BYTES]
    shapes = [Shape(2000, columns, max(128, 4 * columns // 2000)) for columns in wide] + list(OTHERS)
    rows, seconds = [], []
    for shape in shapes:
        here = config.model_copy(update={"grid": shape.grid})
        ratings = MadeUp(shape)
        chain = Chain(here, ratings, CountingRing(comm, shape.grid))
        seconds.append(chain.cost(repeats))
        counts = Counts.of(here, ratings, 1)
        ratings_at = [counts.ratings * share for share in _shares(column_bytes(here, shape.columns))]
        rows.append([*ratings_at, *counts.others])
    scaled = np.array(rows) / np.array(seconds)[:, None]
    fitted = nnls(scaled, np.ones(len(scaled)))[0].tolist()
    per_rating, others = fitted[: len(COLUMN_BYTES)], fitted[len(COLUMN_BYTES) :]
    return Work(
        sampler=sampler,
        noise=config.noise,
        rank=rank,
        column_bytes=list(COLUMN_BYTES),
        rating=per_rating,
        **dict(zip(Counts.names, others, strict=True)),
        **chain.per_sweep(repeats),
    )


def _shares(size: float) -> Float64:
    """How much the constant at each of `COLUMN_BYTES` says of columns of this size; see `Work.seconds_per_rating`."""
    places, each = np.log(COLUMN_BYTES), np.eye(len(COLUMN_BYTES))
    return np.array([np.interp(np.log(size), places, one) for one in each])


def measure_exchange(comm: Comm) -> Exchange:
    """Messages between the processes of this node, of which there are several. Collective."""
    numbers = np.ones((64, 4096))
    added, _, _ = spread(lambda: numbers.sum(axis=0), 30)
    small, *large = ring(comm, [1000, 1_000_000, 4_000_000])
    latency = small["exchange_quartiles"][0] / 1e6
    moved = [line["bytes"] / max(line["exchange_quartiles"][0] / 1e6 - latency, 1e-9) for line in large]
    message = spread(lambda: _burst(comm), 30)[1] / BURST
    slowest = comm.allgather([latency, 1 / min(moved), message])
    latency, per_byte, message = np.max(slowest, axis=0).tolist()
    return Exchange(latency=latency, bandwidth=1 / per_byte, message=message, added=added / numbers.size)


def _burst(comm: Comm) -> None:
    """Send many small messages to the next process, and take in as many."""
    sent, received = np.zeros(8), np.zeros((BURST, 8))
    before, after = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    requests = [comm.Irecv(each, source=before) for each in received]
    requests += [comm.Isend(sent, dest=after) for _ in range(BURST)]
    for request in requests:
        request.Wait()


def measure_disk(folder: Path) -> Disk:
    """Bytes a second that one process writes to a file in a folder, until they lie on the device."""
    data = np.random.default_rng(0).bytes(1 << 26)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".dsgmcmc-bench-") as place:
        begin = perf_counter()
        write_whole(Path(place) / "written", [data])
        return Disk(bandwidth=len(data) / (perf_counter() - begin))


def measure_machine(
    comm: Comm, sampler: str, noise: str, ranks: Sequence[int], folder: Path, known: Machine | None
) -> Machine | None:
    """Measure everything; all processes at once. Collective.

    Parameters
    ----------
    comm : Comm
        The processes of one node, as many as are to sample on it.
    sampler, noise : str
        As of a run.
    ranks : sequence of int
        Numbers K of latent dimensions.
    folder : Path
        Where runs are to be written.
    known : Machine or None
        Of which costs of other samplers and ranks are kept, and of messages, if one process is alone.

    Returns
    -------
    Machine or None
        At process 0: the slowest process counts.
    """
    found, alone = [], comm.Split(comm.rank)
    for rank in ranks:
        everyone = comm.gather(measure_work(alone, sampler, noise, rank))
        if everyone:
            found.append(max(everyone, key=lambda each: sum(each.rating)))
    exchange = measure_exchange(comm) if comm.size > 1 else None
    if comm.rank:
        return None
    work = {(each.sampler, each.noise, each.rank): each for each in [*(known.work if known else []), *found]}
    told = "" if exchange else "; messages were not"
    return Machine(
        cpu=cpu_name(),
        processes=comm.size,
        about=f"{found[0].sampler} measured on {now()[:10]}, {comm.size} process(es) at once{told}",
        exchange=exchange or (known or builtin()).exchange,
        disk=measure_disk(folder),
        work=list(work.values()),
    )
