"""Predictions of the test ratings: at the state last looked at, and their mean and variance over the draws.

Each test rating costs 28 bytes, 36 where users or items have noise of their own; memory counts, since a tenth of all
ratings is usual. A few ratings are followed: their predictions at every draw are kept, for convergence diagnostics.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from dsgmcmc.kernels.prediction import predict_kernel
from dsgmcmc.storage.manifest import Key
from dsgmcmc.storage.snapshot import Lazy, Snapshot
from dsgmcmc.targets.factorisation.blocks import TestRows
from dsgmcmc.targets.state import Side

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]

#: About so many test ratings, evenly spaced in every row block, have their prediction at every draw in the trace.
FOLLOWED = 256


class HeldOut:
    """The test ratings of one row block, in the order of the file.

    Parameters
    ----------
    block : int
        Number of the row block.
    rows : TestRows
        Its test ratings.
    rank : int
        Number K of latent dimensions.
    biases : bool
        Whether there is a bias column.
    weighted : bool
        Whether users or items have noise of their own; else one noise variance serves all ratings.
    follow : int
        How many to follow, if there are as many.

    Attributes
    ----------
    prediction : (q,) float32
        At the state last looked at, less the centre.
    noise : (q,) or (1,) float32
        Variance of the noise at that state.
    mean, m2, mean_noise : float32
        Weighted mean and sum of squared deviations of the predictions over the draws; mean of the noise variances.
    """

    def __init__(self, block: int, rows: TestRows, rank: int, biases: bool, weighted: bool, follow: int) -> None:
        self.block, self.rows, self.weighted = block, rows, weighted
        q = len(rows.values)
        self.prediction, self.mean, self.m2 = (np.zeros(q, np.float32) for _ in range(3))
        self.noise, self.mean_noise = (np.ones(q if weighted else 1, np.float32) for _ in range(2))
        self.followed = np.unique(np.linspace(0, q - 1, min(q, follow)).astype(np.int64))
        self.followed_predictions: list[Float32] = []
        self.log_likelihoods: list[float] = []
        self._predict = predict_kernel(rank, biases)

    def look(self, position: str, row: Side, c: int, column: dict[str, Float32], tau: float) -> None:
        """Predict the ratings in column block `c`, and the variance of their noise."""
        chosen, rows, columns = self.rows.by_column[c]
        if not len(chosen):
            return
        out = np.empty(len(chosen), np.float32)
        self._predict(rows, columns, row[position], column[position], out)
        self.prediction[chosen] = out
        if self.weighted:
            precision = np.float32(tau) * row.row("weight")[rows] * column["weight"][columns, 0]
            self.noise[chosen] = 1 / precision
        else:
            self.noise[0] = 1 / tau

    def count(self, share: float, weight: float) -> None:
        """Count the state last looked at as a draw, a fraction `share` of the total weight so far."""
        delta = self.prediction - self.mean
        self.mean += share * delta
        self.m2 += weight * delta * (self.prediction - self.mean)
        self.mean_noise += share * (self.noise - self.mean_noise)
        self.followed_predictions.append(self.prediction[self.followed])
        self.log_likelihoods.append(self._log_likelihood())

    def _log_likelihood(self) -> float:
        squares = np.square(self.prediction - self.rows.values)
        squares /= self.noise
        logs = np.log(2 * np.pi * self.noise).sum(dtype=np.float64) * (1 if self.weighted else len(squares))
        return -0.5 * float(logs + squares.sum(dtype=np.float64))

    def squared_errors(self) -> Float64:
        """Sums of squared errors of the state last looked at and of the mean prediction, (2,) float64."""
        x = self.rows.values
        return np.array([np.square(p - x).sum(dtype=np.float64) for p in (self.prediction, self.mean)])

    # ------------------------------------------------------------------ saving

    def _key(self, name: str) -> Key:
        return Key("test", "W", self.block, name)

    def blocks(self) -> Iterator[tuple[Key, npt.NDArray[Any]]]:
        """Give the accumulators, for a snapshot."""
        for name in ("mean", "m2", "mean_noise"):
            yield self._key(name), getattr(self, name)
        yield from self.traces(0.0)

    def traces(self, centre: np.float32 | float) -> Iterator[tuple[Key, npt.NDArray[Any]]]:
        """Give what is kept of every draw; `centre` is added to predictions."""
        shape = (len(self.followed_predictions), len(self.followed))
        predictions = np.array(self.followed_predictions, np.float32).reshape(shape)
        yield Key("trace", "W", self.block, "prediction"), predictions + centre
        yield Key("trace", "W", self.block, "log_likelihood"), np.array(self.log_likelihoods, np.float64)
        yield Key("trace", "W", self.block, "followed"), self.followed

    def load(self, snapshot: Snapshot) -> None:
        """Take the accumulators of a snapshot."""
        for name in ("mean", "m2", "mean_noise"):
            setattr(self, name, snapshot.read(self._key(name)))
        self.followed_predictions = list(snapshot.read(Key("trace", "W", self.block, "prediction")))
        self.log_likelihoods = snapshot.read(Key("trace", "W", self.block, "log_likelihood")).tolist()

    def posterior(self, centre: float, total: float) -> Iterator[tuple[Key, Lazy]]:
        """Posterior of the predictions; `total` is the weight of all draws."""
        yield self._key("rating"), partial(np.add, self.rows.values, np.float32(centre))
        yield self._key("mean"), partial(np.add, self.mean, np.float32(centre))
        yield self._key("variance"), partial(np.divide, self.m2, np.float32(total))
        yield self._key("noise_variance"), np.broadcast_to(self.mean_noise, self.mean.shape)
        yield from self.traces(np.float32(centre))
