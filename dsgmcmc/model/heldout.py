"""Predictions of the test ratings: at the last recorded state, and their mean and variance over the
draws.

A test rating takes 28 bytes of memory, 36 if the noise variance differs between ratings, and 8 more
for each level. The size matters, because usually a tenth of all ratings are test ratings. A few
test ratings are followed: their predictions at every draw are kept for convergence diagnostics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dsgmcmc.kernels.formula import Batch
from dsgmcmc.kernels.prediction import predict_kernel
from dsgmcmc.model.blocks import TestRows
from dsgmcmc.model.circulation import Circulation, RatingsCell
from dsgmcmc.model.likelihoods import Law
from dsgmcmc.model.likelihoods.base import State
from dsgmcmc.model.parts import Part
from dsgmcmc.storage.store import Key, Lazy, Snapshot
from dsgmcmc.targets.base import COUNT_DRAW, DrawInfo, Monitored
from dsgmcmc.types import Array, Float32, Float64

#: Approximate number of test ratings that all processes together follow, evenly spaced within each
#: row block.
FOLLOWED = 256


@dataclass(eq=False)
class HeldOut:
    """Predictions of a process's test ratings; a `dsgmcmc.targets.base.Recorder`.

    Parameters
    ----------
    circulation : Circulation
        The blocks of both factors, and the test ratings.
    likelihood : Law
        Distribution of a rating.
    noise_precision : callable
        Returns the current precision tau of the noise.
    effects : Part, optional
        Part of the model whose effects (`Part.test`) are added to the predictors of the test
        ratings.
    """

    circulation: Circulation
    likelihood: Law
    noise_precision: Callable[[], float]
    effects: Part | None = None

    def __post_init__(self) -> None:
        circulation, likelihood = self.circulation, self.likelihood
        self._ratings = circulation.ratings
        self._has_errors = self._ratings.n_test > 0 and likelihood.can_be_evaluated
        self._predict = predict_kernel(likelihood.rank, likelihood.biases)
        follow = max(1, FOLLOWED // circulation.grid)
        self._rows = {
            b: HeldOutRows(b, self._ratings.test[b], likelihood, follow)
            for b in circulation.ring.blocks
        }
        self._batch = Batch([rows.moments for rows in self._rows.values()])

    def record(self, position: str, draw: DrawInfo | None) -> None:
        """Predict the test ratings at the current state; include them in the averages if it is a
        `draw`. Collective.
        """
        if self._ratings.n_test:
            tau = self.noise_precision()
            for cell in self.circulation.tour((position, *self.likelihood.drawn)):
                shift = self.effects.test.get(cell.row.index) if self.effects else None
                self._rows[cell.row.index].predict(self._predict, position, cell, tau, shift)
        if draw is not None:
            COUNT_DRAW.apply(self._batch, draw._asdict())
            for rows in self._rows.values():
                rows.count(draw)

    def metrics(self, weight: float) -> dict[str, float | None]:
        """RMSE of the last recorded state and of the posterior mean; tau, if there is noise.

        Collective.

        `weight` is the total weight of all draws. The values are in the ratings' own unit. An RMSE
        is None without test ratings, and for clicks.
        """
        n, scale = self._ratings.n_test, self._ratings.scale
        tau = {"tau": self.noise_precision() / scale**2} if self.likelihood.has_noise else {}
        if not self._has_errors:
            return {"rmse": None, "rmse_mean": None, **tau}
        predictions = [
            rows.predictions(self._ratings.centre, scale, weight) for rows in self._rows.values()
        ]
        squares = [
            [np.square(p - x).sum(dtype=np.float64) for p in both] for x, both in predictions
        ]
        errors = self.circulation.ring.total(np.array(squares))
        unit = scale if self.likelihood.scale == "identity" else 1.0
        rmse, rmse_mean = (unit * np.sqrt(errors / n)).tolist()
        has_draws = any(rows.log_likelihoods for rows in self._rows.values())
        return {"rmse": rmse, "rmse_mean": rmse_mean if has_draws else None, **tau}

    def monitored(self) -> dict[int, Monitored]:
        """Values from which ESS and R-hat are computed, for blocks of this process; may be empty.

        Here: predictions, less the centre, and the log likelihood.
        """
        return {
            b: Monitored(rows.trace(), np.array(rows.log_likelihoods))
            for b, rows in self._rows.items()
        }

    def saved(self) -> Iterator[tuple[Key, Array]]:
        """Accumulators of this process, for a checkpoint."""
        for rows in self._rows.values():
            yield from rows.saved()

    def small(self) -> dict[str, Float64]:
        """Accumulators that are the same on all processes."""
        return {}

    def load(self, snapshot: Snapshot) -> None:
        """Load the accumulators of a checkpoint."""
        for rows in self._rows.values():
            rows.load(snapshot)

    def posterior(self, weight: float) -> Iterator[tuple[Key, Lazy]]:
        """Arrays of the saved posterior, such as means, given the total weight of all draws."""
        for rows in self._rows.values():
            yield from rows.posterior(self._ratings.centre, self._ratings.scale, weight)


class HeldOutRows:
    """The test ratings of one row block, in the order of the file.

    Parameters
    ----------
    block : int
        Number of the row block.
    rows : TestRows
        Its test ratings.
    likelihood : Law
        Distribution of a rating.
    follow : int
        Largest number of ratings to follow.

    Attributes
    ----------
    prediction : (q,) float32
        Expected ratings at the last recorded state, standardised: (rating - centre) / scale.
    noise : (q,) or (1,) float32
        Variances of the ratings about their predictions at that state; (1,) if they are all equal.
    probability : (q, R) float32
        Probabilities of the levels at that state; R is 0 without levels.
    mean, m2, mean_noise, mean_probability : float32
        Over the draws, with their weights: mean of the predictions, sum of their squared deviations
        from the mean, mean of the noise variances, and mean of the probabilities.
    mean_shape : (m,) float32
        Means of the likelihood's other parameters, if it has any (`Law.shape`).
    moments : dict of str to (q, 1) float32
        `prediction`, `mean` and `m2` as columns.
    followed : (m,) int64
        Positions of the followed ratings among the test ratings.
    followed_predictions, log_likelihoods : list
        For every draw, the predictions of the followed ratings and the log likelihood of all test
        ratings.
    accumulators : tuple of str
        Names of the averages in use, both as attributes and on disk.
    """

    def __init__(self, block: int, rows: TestRows, likelihood: Law, follow: int) -> None:
        self.block, self.rows = block, rows
        self.likelihood = likelihood
        q = len(rows.values)
        self.prediction, self.mean, self.m2 = (np.zeros(q, np.float32) for _ in range(3))
        self.noise, self.mean_noise = (
            np.ones(q if likelihood.noise_varies else 1, np.float32) for _ in range(2)
        )
        self.probability, self.mean_probability = (
            np.zeros((q, likelihood.n_levels), np.float32) for _ in range(2)
        )
        self.mean_shape = np.zeros(len(likelihood.shape), np.float32)
        self.accumulators = ("mean", "m2", "mean_noise", "mean_probability")[
            : 4 if likelihood.n_levels else 3
        ]
        self.accumulators += ("mean_shape",) if likelihood.shape else ()
        columns = {"x": self.prediction, "mean": self.mean, "m2": self.m2}
        self.moments = {name: values.reshape(-1, 1) for name, values in columns.items()}
        self.followed = np.unique(np.linspace(0, q - 1, min(q, follow)).astype(np.int64))
        self.followed_predictions: list[Float32] = []
        self.log_likelihoods: list[float] = []

    def predict(
        self,
        kernel: Any,
        position: str,
        cell: RatingsCell,
        tau: float,
        shift: Float32 | None = None,
    ) -> None:
        """Predict the test ratings in a cell, and their noise variances; `shift`, (q,), is added to
        predictors.
        """
        chosen, rows, columns = self.rows.by_column[cell.column.index]
        if not len(chosen):
            return
        eta = np.empty(len(chosen), np.float32)
        kernel(rows, columns, cell.row[position], cell.column[position], eta)
        if shift is not None:
            eta += shift[chosen]
        state = self.likelihood.state(eta, cell, rows, columns, tau=tau)
        self.prediction[chosen] = state.mean
        if self.likelihood.n_levels:
            self.probability[chosen] = state.probability
        self.noise[chosen if self.likelihood.noise_varies else 0] = state.variance

    def predictions(
        self, centre: float, scale: float, weight: float
    ) -> tuple[Float32, tuple[Array, Array]]:
        """Ratings, and their predictions by the last recorded state and by all draws: standardised,
        or as recorded.
        """
        if self.rows.recorded is None:
            return self.rows.values, (self.prediction, self.mean)
        spread = self.mean_noise + self.m2 / np.float32(weight or 1.0)
        moments, square = ((self.prediction, self.noise), (self.mean, spread)), np.float32(scale**2)
        first, second = (
            self.likelihood.point(_rating(mean, centre, scale), square * v) for mean, v in moments
        )
        return self.rows.recorded, (first, second)

    def count(self, draw: DrawInfo) -> None:
        """Include the last recorded state, as a draw, in the averages of what is not in `moments`."""
        self.mean_noise += draw.share * (self.noise - self.mean_noise)
        self.mean_probability += draw.share * (self.probability - self.mean_probability)
        self.mean_shape += np.float32(draw.share) * (
            np.array(self.likelihood.shape, np.float32) - self.mean_shape
        )
        self.followed_predictions.append(self.prediction[self.followed])
        state = State(self.prediction, self.noise, self.probability)
        self.log_likelihoods.append(self.likelihood.log_likelihood(self.rows.values, state))

    # ------------------------------------------------------------------ saving

    def _key(self, name: str) -> Key:
        return Key("test", "W", self.block, name)

    def saved(self) -> Iterator[tuple[Key, Array]]:
        """Yield the accumulators and traces, for a snapshot."""
        for name in self.accumulators:
            yield self._key(name), getattr(self, name)
        yield from self.traces(0.0, 1.0)

    def trace(self) -> Float32:
        """Standardised predictions of the m followed ratings at every draw, (draws, m) float32."""
        shape = (len(self.followed_predictions), len(self.followed))
        return np.array(self.followed_predictions, np.float32).reshape(shape)

    def traces(self, centre: float, scale: float, own: bool = False) -> Iterator[tuple[Key, Array]]:
        """Yield the traces, with predictions as `centre` + `scale` x standardised value, and the
        positions followed.

        With `own`, predictions and log likelihoods are those of the ratings as they were recorded.
        """
        likelihoods = np.array(self.log_likelihoods, np.float64) - len(self.rows.values) * np.log(
            scale
        )
        predictions = _rating(self.trace(), centre, scale)
        if own and self.rows.recorded is not None:
            logarithms = self.likelihood.scaled(self.rows.recorded)
            likelihoods -= logarithms.sum(dtype=np.float64)  # the slope of log x is 1 / x
            predictions = self.likelihood.point(predictions, 0.0)
        yield Key("trace", "W", self.block, "prediction"), predictions
        yield Key("trace", "W", self.block, "log_likelihood"), likelihoods
        yield Key("trace", "W", self.block, "followed"), self.followed

    def load(self, snapshot: Snapshot) -> None:
        """Load the accumulators and traces from a snapshot."""
        *arrays, predictions, likelihoods, _ = snapshot.read_all(key for key, _ in self.saved())
        for name, array in zip(self.accumulators, arrays, strict=True):
            getattr(self, name)[:] = array
        self.followed_predictions, self.log_likelihoods = list(predictions), likelihoods.tolist()

    def posterior(self, centre: float, scale: float, total: float) -> Iterator[tuple[Key, Lazy]]:
        """Arrays of the saved posterior, in the ratings' own unit; `total` is the weight of all
        draws.

        Means and variances are on the likelihood's scale (`dsgmcmc.model.scale`).
        """
        square, recorded = np.float32(scale**2), self.rows.recorded
        yield (
            self._key("rating"),
            partial(_rating, self.rows.values, centre, scale) if recorded is None else recorded,
        )
        yield self._key("mean"), partial(_rating, self.mean, centre, scale)
        yield self._key("variance"), lambda: self.m2 / np.float32(total) * square
        yield (
            self._key("noise_variance"),
            np.broadcast_to(self.mean_noise * square, self.mean.shape),
        )
        yield from self.traces(centre, scale, own=True)
        if self.likelihood.n_levels:
            yield self._key("probability"), self.mean_probability
        if self.likelihood.shape:
            yield (
                self._key("shape"),
                np.broadcast_to(self.mean_shape, (len(self.mean), len(self.mean_shape))),
            )


def _rating(x: Float32, centre: float, scale: float) -> Float32:
    """Convert standardised ratings to the ratings' own unit."""
    return np.asarray(x * np.float32(scale) + np.float32(centre))
