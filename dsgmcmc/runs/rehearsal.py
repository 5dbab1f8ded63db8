"""Before the clock of sampling starts, all kernels of an iteration are compiled, or loaded from the cache.

Nothing here lists kernels. A target of the same kind, with next to no data, makes a few iterations: so a new sampler,
prior or likelihood is rehearsed, too. The results are discarded, and the chain loses no random numbers, because its
random numbers depend only on their counters.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter
from typing import Any

import numpy as np

from dsgmcmc.config.chain import ResolvedChain
from dsgmcmc.data.ratings import SIDES, Features, Ratings, Side, Times
from dsgmcmc.data.ratings.context import StoredContext
from dsgmcmc.data.ratings.format import SPLITS, Split
from dsgmcmc.data.ratings.times import StoredTimes
from dsgmcmc.parallel.faults import no_faults
from dsgmcmc.runs.recorder import DrawRecorder
from dsgmcmc.runs.sources.base import MakeTarget
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.targets.base import RunTarget
from dsgmcmc.types import Float32, Float64, Int32, Int64

log = logging.getLogger(__name__)


def rehearse(config: ResolvedChain, miniature: Callable[[], MakeTarget], rank: int = 0) -> float:
    """Compile everything that the iterations of a run need, on this process.

    Processes of one machine share what they compile: those of odd rank begin with kernels that come late.

    Parameters
    ----------
    config : ResolvedChain
        Settings of the run.
    miniature : callable
        `Source.miniature` of these settings.
    rank : int
        Rank of this process.

    Returns
    -------
    float
        Seconds taken.
    """
    begin = perf_counter()
    try:
        with no_faults(), np.errstate(all="ignore"):
            _iterate(config, miniature(), late_first=rank % 2 == 1)
    except Exception:  # the run itself reports what is wrong, or compiles what is missing
        log.debug("the rehearsal ended early", exc_info=True)
    return perf_counter() - begin


def _iterate(config: ResolvedChain, make_target: MakeTarget, late_first: bool) -> None:
    sampler = config.make_sampler()
    target = make_target(0, sampler)
    if late_first:
        _take_gradient(sampler, make_target(0, sampler))
    recorders = (draws := DrawRecorder(target, True, 0), *target.recorders())
    target.reset()
    sampler.start(target, config.initial_sd)
    for iteration in sorted({0, 1, config.burn_in, config.burn_in + 1}):
        sampler.advance(target, iteration, 1)
        position = sampler.position(iteration)
        target.find_divergence(position)
        draw = draws.next(iteration + 1, 1.0)
        for recorder in recorders:
            recorder.record(position, draw)


def _take_gradient(sampler: Sampler[Any, Any], target: RunTarget) -> None:
    """Compute a sampler's gradient and metric, if it has them: most kernels belong to these."""
    target.reset()
    target.begin(0)
    with suppress(AttributeError):
        for _ in sampler.gradient(target, sampler.position(0)):
            pass
        sampler.metric.take_from(target)  # type: ignore[attr-defined]


class FewRatings(Ratings):
    """Ratings of two users and two items, for training and test: a file's smallest and largest, and one in between."""

    def __init__(self, ratings: Ratings) -> None:
        self.path, self.n_rows, self.n_cols, self.nnz, self.nnz_test = ratings.path, 2, 2, 4, 4
        self._indptr, self.column_counts = dict.fromkeys(SPLITS, np.array([0, 2, 4])), np.array([2, 2])
        self.row_indptr = self.test_indptr = self._indptr["train"]
        self.minimum, self.maximum = ratings.minimum, ratings.maximum
        between = (ratings.minimum + ratings.maximum) / 2
        self._values = np.array([[ratings.minimum, between], [between, ratings.maximum]], np.float32)
        self.mean, self.transposed, self.features = ratings.mean, ratings.transposed, ratings.features
        self.times, self.context = FewTimes() if ratings.times else None, FewContext(ratings.context)

    def levels(self, most: int) -> Float64 | None:
        """Training ratings that there are, (R,) float64 in ascending order; None if there are more than `most`."""
        return np.unique(self._values).astype(np.float64)

    def slab(self, part: Split, start: int, stop: int) -> tuple[Int64, Int32, Float32]:
        """Read rows `start` to `stop` of a part."""
        n = stop - start
        return 2 * np.arange(n + 1), np.tile(np.array([0, 1], np.int32), n), self._values[start:stop].ravel()

    def columns(self, part: Split, start: int, stop: int) -> Int32:
        """Columns of the ratings in rows `start` to `stop` of a part, to count by: (n,) int32."""
        return self.slab(part, start, stop)[1]

    def feature_slab(self, side: Side, start: int, stop: int) -> Features:
        """Read the features of rows (or columns) `start` to `stop`. All rows have the same feature."""
        n = stop - start
        return Features(np.arange(n + 1), np.zeros(n, np.int32), np.ones(n, np.float32), ("",), ("",))


class FewTimes(StoredTimes):
    """Times of `FewRatings`: all the same."""

    def __init__(self) -> None:
        self.counts = {side: Times(np.full(2, 4, np.int32), np.ones(2, np.int32)) for side in SIDES}

    def slab(self, part: Split, side: Side, start: int, stop: int) -> Times:
        """Read where the ratings in rows `start` to `stop` of a part stand among those of their rows, or columns."""
        return Times(np.zeros(2 * (stop - start), np.int32), np.zeros(2 * (stop - start), np.int32))


class FewContext(StoredContext):
    """Context of `FewRatings`: all of the first category of every column."""

    def __init__(self, context: StoredContext) -> None:
        self.columns = context.columns

    def slab(self, column: str, part: Split, start: int, stop: int) -> Int32:
        """Read the categories of the ratings in rows `start` to `stop` of a part, (m,) int32."""
        return np.zeros(2 * (stop - start), np.int32)
