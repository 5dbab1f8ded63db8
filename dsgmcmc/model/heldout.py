"""Predictions of test ratings: at the last recorded state, and mean and variance over the draws.

A test rating takes 28 bytes of memory, 36 if the noise variance differs between ratings, and 8 more
for each level. The size matters, because usually a tenth of all ratings are test ratings. A few
test ratings are monitored: their predictions at every draw are kept for convergence diagnostics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.kernels.formulas.formula import Batch
from dsgmcmc.kernels.prediction import predict_kernel
from dsgmcmc.model.blocks import TestRows
from dsgmcmc.model.circulation import Circulation, RatingsCell
from dsgmcmc.model.likelihoods import Law
from dsgmcmc.model.likelihoods.base import State
from dsgmcmc.model.limits import Limits
from dsgmcmc.model.parts import Part
from dsgmcmc.ratings.format import Bounds
from dsgmcmc.storage.store import Key, Lazy, Snapshot
from dsgmcmc.targets.base import COUNT_DRAW, DrawInfo, Monitored
from dsgmcmc.types import Array, Float32, Float64

#: Approximate number of test ratings that all processes together monitor, evenly spaced within each
#: row block.
MONITORED = 256


class RatingUnit(NamedTuple):
    """The ratings' own unit: a rating is `centre` + `scale` times its standardised value."""

    centre: float
    scale: float

    def rating(self, standardised: Float32) -> Float32:
        """Convert standardised ratings to the ratings' own unit."""
        return np.asarray(standardised * np.float32(self.scale) + np.float32(self.centre))

    def standardised(self, limits: Limits) -> Limits:
        """Convert limits of ratings to those of standardised ratings."""
        low = (limits.low - self.centre) / self.scale
        high = (limits.high - self.centre) / self.scale
        return Limits(low, high)


STANDARDISED = RatingUnit(0.0, 1.0)


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
    effects: Part[Any] | None = None

    def __post_init__(self) -> None:
        likelihood = self.likelihood
        self._ratings = self.circulation.ratings
        self._unit = RatingUnit(self._ratings.centre, self._ratings.scale)
        self._has_errors = self._ratings.n_test > 0 and likelihood.can_be_evaluated
        self._predict = predict_kernel(likelihood.rank, likelihood.biases)
        monitored = max(1, MONITORED // self.circulation.grid)
        self._rows = {
            b: HeldOutRows(b, self._ratings.test[b], likelihood, monitored)
            for b in self.circulation.ring.blocks
        }
        self._batch = Batch([rows.moments for rows in self._rows.values()])

    def record(self, position: str, draw: DrawInfo | None) -> None:
        """Predict the test ratings at the current state; a `draw` counts in the averages.

        Collective.
        """
        if self._ratings.n_test:
            self._predict_all(position)
        if draw is not None:
            if self._ratings.n_test:
                COUNT_DRAW.apply(self._batch, draw._asdict())
            for rows in self._rows.values():
                rows.count(draw)

    def _predict_all(self, position: str) -> None:
        """Predict the test ratings at the current state. Collective."""
        tau = self.noise_precision()
        for cell in self.circulation.tour((position, *self.likelihood.drawn)):
            effects = None
            if self.effects is not None:
                effects = self.effects.test.get(cell.row.index)
            rows = self._rows[cell.row.index]
            rows.predict(self._predict, position, cell, tau=tau, effects=effects)

    def metrics(self, weight: float) -> dict[str, float | None]:
        """RMSE of the last recorded state and of the posterior mean; tau, if there is noise.

        Collective.

        `weight` is the total weight of all draws. The values are in the ratings' own unit. An RMSE
        is that of exact ratings, and None without any, and for clicks.
        """
        metrics: dict[str, float | None] = {"rmse": None, "rmse_mean": None}
        if self.likelihood.has_noise:
            metrics["tau"] = self.noise_precision() / self._unit.scale**2
        if not self._has_errors:
            return metrics
        limits = self._ratings.limits
        squares = [rows.squared_errors(self._unit, weight, limits) for rows in self._rows.values()]
        *sums, n_exact = self.circulation.ring.total(np.array(squares))
        if not n_exact:
            return metrics
        factor = 1.0
        if self.likelihood.transform.name == "identity":
            factor = self._unit.scale
        rmse, rmse_mean = (factor * np.sqrt(np.array(sums) / n_exact)).tolist()
        metrics["rmse"] = rmse
        if any(rows.log_likelihoods for rows in self._rows.values()):
            metrics["rmse_mean"] = rmse_mean
        return metrics

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
            yield from rows.posterior(self._unit, weight)


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
    monitored : int
        Largest number of ratings to monitor.

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
    monitored : (m,) int64
        Positions of the monitored ratings among the test ratings.
    monitored_predictions, log_likelihoods : list
        For every draw, the predictions of the monitored ratings and the log likelihood of all test
        ratings.
    accumulators : tuple of str
        Names of the averages in use, both as attributes and on disk.
    """

    def __init__(self, block: int, rows: TestRows, likelihood: Law, monitored: int) -> None:
        self.block = block
        self.rows = rows
        self.likelihood = likelihood
        q = len(rows.values)
        self._noise_varies = likelihood.noise_varies or rows.weights is not None
        n_noise = q if self._noise_varies else 1
        self.prediction = np.zeros(q, np.float32)
        self.noise = np.ones(n_noise, np.float32)
        self.probability = np.zeros((q, likelihood.n_levels), np.float32)
        self.mean = np.zeros(q, np.float32)
        self.m2 = np.zeros(q, np.float32)
        self.mean_noise = np.ones(n_noise, np.float32)
        self.mean_probability = np.zeros((q, likelihood.n_levels), np.float32)
        self.mean_shape = np.zeros(len(likelihood.shape), np.float32)
        self.moments = {
            "x": self.prediction.reshape(-1, 1),
            "mean": self.mean.reshape(-1, 1),
            "m2": self.m2.reshape(-1, 1),
        }
        self.accumulators = ["mean", "m2", "mean_noise"]
        if likelihood.n_levels:
            self.accumulators.append("mean_probability")
        if likelihood.shape:
            self.accumulators.append("mean_shape")
        self.monitored = np.unique(np.linspace(0, q - 1, min(q, monitored)).astype(np.int64))
        self.monitored_predictions: list[Float32] = []
        self.log_likelihoods: list[float] = []

    def predict(
        self, kernel: Any, position: str, cell: RatingsCell, *, tau: float, effects: Float32 | None
    ) -> None:
        """Predict the test ratings in a cell, and their noise variances.

        Parameters
        ----------
        kernel : callable
            Computes predictors (`dsgmcmc.kernels.prediction.predict_kernel`).
        position : str
            Field that holds the state of the factors.
        cell : RatingsCell
        tau : float
            Precision of the noise.
        effects : (q,) float32, optional
            Numbers that are added to the predictors of the row block's test ratings.
        """
        chosen, rows, columns = self.rows.by_column[cell.column.index]
        if not len(chosen):
            return
        eta = np.empty(len(chosen), np.float32)
        kernel(rows, columns, cell.row[position], cell.column[position], eta)
        if effects is not None:
            eta += effects[chosen]
        state = self.likelihood.state(eta, cell, rows, columns, tau=tau)
        self.prediction[chosen] = state.mean
        if self.likelihood.n_levels:
            self.probability[chosen] = state.probability
        if self.rows.weights is not None:
            self.noise[chosen] = state.variance / self.rows.weights[chosen]
        elif self._noise_varies:
            self.noise[chosen] = state.variance
        else:
            self.noise[0] = state.variance

    def squared_errors(
        self, unit: RatingUnit, weight: float, limits: Limits
    ) -> tuple[Float64, Float64, int]:
        """Sums of squared errors of the last recorded state, and of the average over draws.

        The third number is that of exact ratings, whose errors they are.

        The errors are those of standardised ratings or, if a likelihood has another scale, of the
        recorded ratings (`dsgmcmc.model.log_scale`). `weight` is the total weight of all draws;
        predictions are clipped to `limits`, in the recorded ratings' own unit.
        """
        ratings = self.rows.values
        last = self.prediction
        average = self.mean
        if self.rows.recorded is None:
            limits = unit.standardised(limits)
        else:
            ratings = self.rows.recorded
            square = np.float32(unit.scale**2)
            spread = self.mean_noise + self.m2 / np.float32(weight or 1.0)
            last = self.likelihood.transform.point(unit.rating(last), square * self.noise)
            average = self.likelihood.transform.point(unit.rating(average), square * spread)
        exact = self.rows.exact
        ratings = ratings[exact]
        return (
            np.square(limits.clip(last)[exact] - ratings).sum(dtype=np.float64),
            np.square(limits.clip(average)[exact] - ratings).sum(dtype=np.float64),
            len(ratings),
        )

    def count(self, draw: DrawInfo) -> None:
        """Include the last recorded state, a draw, in the averages of what is not in `moments`."""
        if self.likelihood.shape:
            shape = np.array(self.likelihood.shape, np.float32)
            self.mean_shape += np.float32(draw.share) * (shape - self.mean_shape)
        if not len(self.rows.values) and self.log_likelihoods:
            # without test ratings nothing changes
            self.monitored_predictions.append(self.monitored_predictions[-1])
            self.log_likelihoods.append(self.log_likelihoods[-1])
            return
        self.mean_noise += draw.share * (self.noise - self.mean_noise)
        self.mean_probability += draw.share * (self.probability - self.mean_probability)
        self.monitored_predictions.append(self.prediction[self.monitored])
        self.log_likelihoods.append(self._log_likelihood())

    def _log_likelihood(self) -> float:
        """Log likelihood of the ratings at the last recorded state.

        A rating that is known only by bounds has the log probability between them.
        """
        state = State(self.prediction, self.noise, self.probability)
        bounds = self.rows.bounds
        if bounds is None:
            return self.likelihood.log_likelihood(self.rows.values, state)
        of_exact = self.likelihood.log_likelihood(
            self.rows.values[self.rows.exact], state.at(self.rows.exact)
        )
        bounded = bounds.bounded
        logs = self.likelihood.log_between(
            (bounds.lower[bounded], bounds.upper[bounded]), state.at(bounded)
        )
        return of_exact + float(logs.sum(dtype=np.float64))

    # ------------------------------------------------------------------ saving

    def _key(self, name: str) -> Key:
        return Key("test", "W", self.block, name)

    def saved(self) -> Iterator[tuple[Key, Array]]:
        """Yield the accumulators and traces, for a snapshot."""
        for name in self.accumulators:
            yield self._key(name), getattr(self, name)
        yield from self._traces(self.trace(), self._log_likelihood_trace(STANDARDISED))

    def load(self, snapshot: Snapshot) -> None:
        """Load the accumulators and traces from a snapshot."""
        keys = [key for key, _ in self.saved()]
        *arrays, predictions, likelihoods, _ = snapshot.read_all(keys)
        for name, array in zip(self.accumulators, arrays, strict=True):
            getattr(self, name)[:] = array
        self.monitored_predictions = list(predictions)
        self.log_likelihoods = likelihoods.tolist()

    def posterior(self, unit: RatingUnit, weight: float) -> Iterator[tuple[Key, Lazy]]:
        """Arrays of the saved posterior, given the total weight of all draws.

        Ratings and traces are in the ratings' own unit, means and variances on the likelihood's
        scale (`dsgmcmc.model.log_scale`).
        """
        q = len(self.mean)
        square = np.float32(unit.scale**2)
        ratings: Lazy = partial(unit.rating, self.rows.values)
        if self.rows.recorded is not None:
            ratings = self.rows.recorded
        yield self._key("rating"), ratings
        yield from self._recorded_bounds(unit)
        yield self._key("mean"), partial(unit.rating, self.mean)
        yield self._key("variance"), lambda: self.m2 / np.float32(weight) * square
        yield self._key("noise_variance"), np.broadcast_to(self.mean_noise * square, (q,))
        yield from self._recorded_traces(unit)
        if self.likelihood.n_levels:
            yield self._key("probability"), self.mean_probability
        if self.likelihood.shape:
            yield self._key("shape"), np.broadcast_to(self.mean_shape, (q, len(self.mean_shape)))

    def _recorded_bounds(self, unit: RatingUnit) -> Iterator[tuple[Key, Lazy]]:
        """Yield the bounds of the ratings as they were recorded, if some are no exact ratings."""
        if self.rows.bounds is None:
            return
        bounds = self.rows.recorded_bounds
        if bounds is None:
            bounds = Bounds(*map(unit.rating, self.rows.bounds))
        yield self._key("lower"), bounds.lower
        yield self._key("upper"), bounds.upper

    # ------------------------------------------------------------------ traces

    def trace(self) -> Float32:
        """Standardised predictions of the m monitored ratings at every draw, (draws, m) float32."""
        shape = (len(self.monitored_predictions), len(self.monitored))
        return np.array(self.monitored_predictions, np.float32).reshape(shape)

    def _log_likelihood_trace(self, unit: RatingUnit) -> Float64:
        """Log likelihoods of the ratings in this unit at every draw, (draws,) float64."""
        likelihoods = np.array(self.log_likelihoods, np.float64)
        n_exact = len(self.rows.values[self.rows.exact])
        return np.asarray(likelihoods - n_exact * np.log(unit.scale))

    def _recorded_traces(self, unit: RatingUnit) -> Iterator[tuple[Key, Array]]:
        """Yield the traces of the ratings as they were recorded."""
        predictions = unit.rating(self.trace())
        likelihoods = self._log_likelihood_trace(unit)
        if self.rows.recorded is not None:
            logarithms = self.likelihood.transform.scaled(self.rows.recorded[self.rows.exact])
            likelihoods -= logarithms.sum(dtype=np.float64)  # the slope of log x is 1 / x
            predictions = self.likelihood.transform.point(predictions, 0.0)
        yield from self._traces(predictions, likelihoods)

    def _traces(self, predictions: Array, likelihoods: Float64) -> Iterator[tuple[Key, Array]]:
        """Yield traces, and the positions of the monitored ratings, with their keys."""
        yield Key("trace", "W", self.block, "prediction"), predictions
        yield Key("trace", "W", self.block, "log_likelihood"), likelihoods
        yield Key("trace", "W", self.block, "followed"), self.monitored
