"""Approximate scores of all items for a block of users, with bounds on their errors.

Predictors of a block of users and items at all draws are products of matrices in float32. Averages
over the draws are then compiled (`dsgmcmc.kernels.averages`); the expected rating of a linear model
is one product of the draws side by side. The bounds say which items may be among the best of a
user: only these are scored pair by pair (`dsgmcmc.posterior.lists.ranking`). So lists and scores
depend neither on the shapes of products nor on which users are ranked together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
from typing_extensions import override

from dsgmcmc.kernels.averages import Averages
from dsgmcmc.model.likelihoods.base import Law
from dsgmcmc.model.likelihoods.gaussian import GaussianRatings
from dsgmcmc.model.log_scale import OnLogarithms
from dsgmcmc.model.predictive.base import PredictorDraws
from dsgmcmc.model.predictive.mixture import Normal, NormalMixture
from dsgmcmc.model.predictive.steps import LogisticSteps
from dsgmcmc.model.quantity import WEIGHT
from dsgmcmc.posterior.draw_batch import DrawBatch
from dsgmcmc.posterior.draws import Draw
from dsgmcmc.posterior.run import Run, once
from dsgmcmc.types import Array, Float32, Float64, Int32

#: Largest number of bytes of the items' rows at all draws.
STACK_BYTES = 1 << 30
#: Users and items whose predictors are in memory at a time, at all draws.
USERS = 64
#: Number of users from which on rows of items are copied for one product.
MANY_USERS = 16
ITEMS = 512
#: Bound on relative errors of products and averages in float32, and on errors of probabilities.
ERROR = 2e-5
LEAST_ERROR = 1e-6
#: Number of intervals in the table of a function of predictors.
INTERVALS = 4096
#: Errors of tables are relative to values above this one.
SMALL = 1e-3


class Bounds(NamedTuple):
    """Lower and upper bounds of scores, (users, items) each."""

    low: Array
    high: Array


@dataclass(frozen=True)
class UserRows:
    """Rows of users at all draws.

    Attributes
    ----------
    index : (n,) int32
        Row numbers of the users in the run.
    rows : (n, draws, R) float32
        Factors, and a last column of ones if the model has biases.
    biases : (draws, n) float32
    """

    index: Int32
    rows: Float32
    biases: Float32


class Stack:
    """Rows of all items at all draws of a run.

    Attributes
    ----------
    items : (draws, items, R) float32
        Rows of the items; the last column is the bias, if the model has biases.
    weights : (draws,) float32
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.weights = run.draw_weights.astype(np.float32)
        of_batches = [batch.theta["item"] for batch in self._batches()]
        self.items = of_batches[0]
        if len(of_batches) > 1:
            self.items = np.concatenate(of_batches)

    def _batches(self) -> Iterator[DrawBatch]:
        return self.run.batches(range(len(self.run.draws)))

    @staticmethod
    def nbytes(run: Run) -> int:
        """Return the number of bytes that a stack of this run takes."""
        return len(run.items) * len(run.draws) * (run.config.rank + run.config.biases) * 4

    @cached_property
    def side_by_side(self) -> Float32:
        """Rows of all draws in one row for each item, (items, draws R)."""
        rows = np.ascontiguousarray(self.items.transpose(1, 0, 2))
        return rows.reshape(len(rows), -1)

    def users(self, index: Int32) -> UserRows:
        """Collect the rows of users."""
        rows = np.empty((len(index), *self.items.shape[::2]), np.float32)
        first = 0
        for batch in self._batches():
            theta = batch.theta["user"]
            for position, of_draw in enumerate(theta, first):
                rows[:, position] = of_draw[index]
            first += len(theta)
        biases = np.zeros((rows.shape[1], len(index)), np.float32)
        if self.run.config.biases:
            biases = np.array(rows[:, :, -1].T, order="C")  # a copy: the column is overwritten
            rows[:, :, -1] = 1.0
        return UserRows(index, rows, biases)

    def mean(self, users: UserRows) -> Float32:
        """Return the mean predictor of users and all items, (users, items).

        For many users, it is one product of the draws side by side.
        """
        weighted = users.rows * self.weights[:, np.newaxis]
        biases = self.weights @ users.biases
        means: Array
        if len(users.index) < MANY_USERS:
            of_draws = weighted.transpose(1, 0, 2) @ self.items.transpose(0, 2, 1)
            means = of_draws.sum(axis=0)
        else:
            means = weighted.reshape(len(users.index), -1) @ self.side_by_side.T
        means += biases[:, np.newaxis]
        return np.asarray(means, np.float32)

    def moments(self, users: UserRows, average: Average) -> tuple[Float32, Float32]:
        """Return means and variances over draws of a function of predictors, (users, items)."""
        shape = (len(users.index), self.items.shape[1])
        means = np.empty(shape, np.float32)
        variances = np.empty(shape, np.float32)
        for first in range(0, len(users.index), USERS):
            block = slice(first, first + USERS)
            rows = users.rows[block].transpose(1, 0, 2)
            biases = np.ascontiguousarray(users.biases[:, block])
            of_users = average.of_users(users.index[block])
            for start in range(0, self.items.shape[1], ITEMS):
                items = slice(start, start + ITEMS)
                eta = rows @ self.items[:, items].transpose(0, 2, 1)
                arguments = (*of_users, *average.of_items(items))
                averages = average.function(eta, biases, self.weights, *arguments)
                means[block, items], variances[block, items] = averages
        return means, variances

    def reach(self, position: int) -> float:
        """Return a bound on the absolute predictors of all pairs at a draw."""
        theta = self.run.draw(position).theta
        rank = self.run.config.rank
        lengths = [np.sqrt(np.square(theta[entity][:, :rank]).sum(axis=1)) for entity in theta]
        reach = float(lengths[0].max()) * float(lengths[1].max())
        if self.run.config.biases:
            reach += sum(float(np.abs(rows[:, rank]).max()) for rows in theta.values())
        return reach


class Average:
    """A function of predictors, averaged over draws; here the predictors themselves.

    Attributes
    ----------
    function : Averages
    error : float
        Bound on the relative error of averages.
    start : float
        Number that is added to averages.
    """

    function: Averages = Averages.LINEAR
    error: float = ERROR
    start: float = 0.0

    def of_users(self, users: Int32) -> tuple[Float32, ...]:
        """Return the arguments of the function that depend on users."""
        return ()

    def of_items(self, items: slice) -> tuple[Float32, ...]:
        """Return the other arguments of the function, for a slice of the items."""
        return ()


class Steps(Average):
    """Sums of steps, under noise of a logistic or a normal distribution.

    Parameters
    ----------
    run : Run
    function : Averages
    power : float
        At row scales g, steps have the slopes (tau g g') ** `power`.
    positions_of : callable
        Returns the positions of the steps of users at a draw, (m,) or (users, m), less the mean of
        the ratings.
    heights : (m,) float
        Heights of the steps.
    start : float
        Height before the first step.
    """

    def __init__(
        self,
        run: Run,
        function: Averages,
        *,
        power: float,
        positions_of: Callable[[Draw, Int32], Array],
        heights: Array,
        start: float = 0.0,
    ) -> None:
        self.run = run
        self.start = start
        self.function = function
        self._power = np.float32(power)
        self._positions_of = positions_of
        self._heights = np.asarray(heights, np.float32)
        scales = [draw.noise_scale["item"] for draw in _draws(run)]
        self._item_scales: Float32 = np.array(scales) ** self._power

    @override
    def of_users(self, users: Int32) -> tuple[Float32, ...]:
        scales = np.empty((len(self.run.draws), len(users)), np.float32)
        positions = np.empty((*scales.shape, len(self._heights)), np.float32)
        for number, draw in enumerate(_draws(self.run)):
            precision = np.float32(draw.tau) * draw.noise_scale["user"][users]
            scales[number] = precision**self._power
            positions[number] = scales[number][:, np.newaxis] * self._positions_of(draw, users)
        return scales, positions

    @override
    def of_items(self, items: slice) -> tuple[Float32, ...]:
        return np.ascontiguousarray(self._item_scales[:, items]), self._heights


@dataclass(kw_only=True)
class TableAverage(Average):
    """Functions that are tabulated for every draw, and interpolated.

    Attributes
    ----------
    lows, rates : (draws,) float32
        First predictor of each table, and number of its intervals in a unit.
    tables : (draws, n) float32
    """

    lows: Float32
    rates: Float32
    tables: Float32
    error: float
    function: Averages = Averages.TABLE

    @classmethod
    def of_run(cls, stack: Stack, function: Callable[[PredictorDraws], Float64]) -> TableAverage:
        """Tabulate a function of predictors at one draw."""
        lows = []
        rates = []
        tables = []
        error = ERROR
        law = stack.run.config.law
        for position, draw in enumerate(_draws(stack.run)):
            reach = stack.reach(position) + SMALL
            grid = np.linspace(-reach, reach, INTERVALS + 1)
            draws = PredictorDraws(
                eta=grid.astype(np.float32)[:, np.newaxis],
                noise=np.full((len(grid), 1), 1 / draw.tau, np.float32),
                spread=np.zeros((len(grid), 1), np.float32),
                weights=np.ones(1),
                parameters=draw.one_set(law),
            )
            table = function(draws)
            # an interval of half the length has a quarter of this error
            deviations = np.abs(table[1:-1:2] - (table[:-2:2] + table[2::2]) / 2)
            relative = deviations / np.maximum(np.abs(table[1:-1:2]), SMALL)
            error = max(error, float(relative.max()) / 2)
            lows.append(-reach)
            rates.append(INTERVALS / (2 * reach))
            tables.append(table)
        return cls(
            lows=np.array(lows, np.float32),
            rates=np.array(rates, np.float32),
            tables=np.array(tables, np.float32),
            error=error,
        )

    @override
    def of_items(self, items: slice) -> tuple[Float32, ...]:
        return self.lows, self.rates, self.tables


def _draws(run: Run) -> Iterator[Draw]:
    return (run.draw(position) for position in range(len(run.draws)))


# ---------------------------------------------------------------------- scores


class Screen:
    """Bounds of the scores of all items, without the exposure.

    Parameters
    ----------
    stack : Stack
    at_least : float or None
        Lowest rating whose probability is the score; None if the score comes from the expected
        rating.
    sds : float
        Number of standard deviations that are added to the expected rating.
    average : Average
        Function of predictors whose average is the score.
    """

    def __init__(
        self, stack: Stack, average: Average, *, at_least: float | None, sds: float
    ) -> None:
        self.stack = stack
        self.average = average
        self.at_least = at_least
        self.sds = sds

    @classmethod
    def of_run(cls, run: Run, *, at_least: float | None, sds: float) -> Screen | None:
        """Return the screen of a run; None if its scores have no bounds, or memory is too small.

        A run keeps its screens.
        """
        if run.has_effects or Stack.nbytes(run) > STACK_BYTES:
            return None
        create = partial(cls._create, run, at_least=at_least, sds=sds)
        return once(run, (cls, at_least, sds), create)

    @classmethod
    def _create(cls, run: Run, *, at_least: float | None, sds: float) -> Screen | None:
        """Return a new screen; None if scores have no bounds."""
        stack = Stack(run)
        if at_least is None:
            average = expectation(stack)
        else:
            average = _probability(stack, at_least)
        if average is None:
            return None
        return cls(stack, average, at_least=at_least, sds=sds)

    def bounds(self, users: Int32) -> Bounds:
        """Return bounds of the scores of users that the run knows."""
        rows = self.stack.users(users)
        if self.at_least is not None or not self.stack.run.config.law.is_linear:
            mean, variance = self.stack.moments(rows, self.average)
            if self.at_least is not None:
                return _around(mean, self.average.error * (mean + SMALL) + LEAST_ERROR)
            errors = self.average.error * (_largest(mean) + SMALL) * (1 + abs(self.sds))
            scores = self.average.start + mean + self.sds * np.sqrt(variance)
            return _around(scores, errors)
        return self._linear_bounds(rows)

    def _linear_bounds(self, users: UserRows) -> Bounds:
        """Return bounds of expected ratings under a law whose predictor is the expected rating."""
        run = self.stack.run
        law = run.config.law
        if law.transform.name == "identity" and not self.sds:
            mean = self.stack.mean(users)
            errors = ERROR * _largest(mean)
            mean += np.float32(run.mean)
            return _around(mean, errors)
        mean, variance = self.stack.moments(users, self.average)
        errors = ERROR * _largest(mean)
        if law.transform.name == "identity":
            errors = (1 + abs(self.sds)) * errors
            return _around(mean + run.mean + self.sds * np.sqrt(variance), errors)
        # one draw with the means and variances over the draws gives the same expected ratings
        draws = PredictorDraws(
            eta=mean.reshape(-1, 1),
            noise=np.ones((mean.size, 1), np.float32),
            spread=variance.reshape(-1, 1),
            weights=np.ones(1),
        )
        ratings = law.expectation(draws, run.mean)
        point = ratings.mean.reshape(mean.shape)
        sd = ratings.sd.reshape(mean.shape)
        errors = 4 * (errors + ERROR) * (point + abs(self.sds) * sd + 1)
        return _around(point + self.sds * sd, errors)


def _largest(values: Float32) -> Float32:
    """Return the largest absolute value of every row, (n, 1)."""
    largest: Float32 = np.maximum(values.max(axis=1), -values.min(axis=1))
    return largest[:, np.newaxis]


def _around(scores: Array, errors: Array) -> Bounds:
    """Return bounds of scores with these errors; overwrites `scores`."""
    high = scores + errors
    scores -= errors
    return Bounds(scores, high)


def expectation(stack: Stack) -> Average | None:
    """Return the expected rating as a function of predictors; None if it depends on more."""
    run = stack.run
    law = run.config.law
    if law.is_linear:
        return Average()
    if run.parameter_owner == "item":
        return None
    steps = law.expected_steps(run.levels)
    if steps is not None:
        return _logistic_steps(run, steps)
    if _has_row_parameters(run):
        return None
    return TableAverage.of_run(
        stack, lambda draws: law.expectation(draws, run.mean, run.levels).mean
    )


def _probability(stack: Stack, bound: float) -> Average | None:
    """Return the probability of at least `bound` as a function of predictors, or None."""
    run = stack.run
    law = run.config.law
    if run.parameter_owner == "item":
        return None
    steps = law.steps_at_least(bound, run.levels)
    if steps is not None:
        if not len(steps.heights):
            return None
        return _logistic_steps(run, steps)
    if _is_normal(law):
        cut = _lowest(run, bound) - run.mean
        if not np.isfinite(cut):
            return None
        return Steps(
            run,
            Averages.NORMAL,
            power=0.5,
            positions_of=lambda draw, users: np.full(1, cut),
            heights=np.ones(1),
        )
    if _has_row_parameters(run):
        return None
    return TableAverage.of_run(
        stack, lambda draws: law.predictive(draws, run.mean, run.levels).at_least(bound)
    )


def _logistic_steps(run: Run, steps: LogisticSteps) -> Steps:
    """Return a sum of steps whose positions are parameters of the likelihood."""
    law = run.config.law

    def positions_of(draw: Draw, users: Int32) -> Array:
        of_users = draw.own_parameters(law, "user")
        if of_users is not None:
            return steps.positions(of_users[users])
        shared = law.parameters_of(draw.shared)
        assert shared is not None
        return steps.positions(shared)

    return Steps(
        run,
        Averages.LOGISTIC,
        power=1.0,
        positions_of=positions_of,
        heights=steps.heights,
        start=steps.start,
    )


def _has_row_parameters(run: Run) -> bool:
    """Return whether users or items have parameters of the likelihood of their own."""
    rows = run.draw(0).rows
    has_noise_scales = any(WEIGHT.name in arrays for arrays in rows.values())
    return has_noise_scales or run.parameter_owner is not None


def _is_normal(law: type[Law]) -> bool:
    """Return whether ratings, or their logarithms, are normal about their predictors."""
    if issubclass(law, OnLogarithms):
        law = law.law
    if not law.inherits(GaussianRatings, "predictive"):
        return False
    assert issubclass(law, GaussianRatings)
    return law.cdf is Normal.cdf and law.mixture is NormalMixture


def _lowest(run: Run, bound: float) -> float:
    """Return the lowest value, on the scale of the likelihood, of ratings of at least `bound`."""
    one = np.ones((1, 1), np.float32)
    draws = PredictorDraws(one, one, spread=np.zeros_like(one), weights=np.ones(1))
    return run.config.law.predictive(draws, run.mean, run.levels).lowest(bound)
