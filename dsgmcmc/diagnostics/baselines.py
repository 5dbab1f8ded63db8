r"""Two baselines that a model should beat on the test ratings: the mean, and biases only.

*Biases only* is the default model at rank 0, x_ij = mu + a_i + b_j + noise. With mu and v the mean
and variance of the training ratings, the priors are a_i ~ N(0, 1 / lambda_a), lambda_a ~ Gamma(4,
rate 3 v / 8), likewise for b_j, and tau ~ Gamma(1, rate v) for the precision of the noise. The
posterior is approximated by independent normals q(a_i) = N(m_i, s_i) and q(b_j) = N(m_j, s_j) that
maximise the lower bound on the evidence [Lim & Teh 2007, sections 2 and 3, here with the biases
alone]:

    s_i = 1 / (tau n_i + lambda_a),    m_i = s_i tau sum_j (x_ij - mu - m_j),
    lambda_a = (4 + sum_i (1 - lambda_a s_i) / 2) / (3 v / 8 + sum_i m_i^2 / 2),
    tau = (1 + N / 2) / (v + sum_ij [(x_ij - mu - m_i - m_j)^2 + s_i + s_j] / 2)

where row i has n_i of the N training ratings. The prediction of a rating is N(mu + m_i + m_j, 1 /
tau + s_i + s_j). A rating of weight w has the precision w tau: n_i is then a sum of weights, and
every term of a rating in a sum is multiplied by w. A rating that is known only by bounds has an
unknown value, with q = N(mu + m_i + m_j, 1 / tau) truncated to the bounds: x_ij is the mean of q,
and its variance is added to the squared residual.

A sweep goes through the training ratings once. It computes the means of the rows from the means of
the columns, and in the same pass the sums for the next means of the columns.

[Lim & Teh 2007] Variational Bayesian approach to movie rating prediction, KDD Cup and Workshop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.kernels.biases import sweep_rows
from dsgmcmc.kernels.compact_ratings import Numbering, index_type, kernel_arguments
from dsgmcmc.model.likelihoods import Law
from dsgmcmc.model.likelihoods.gaussian import GaussianRatings
from dsgmcmc.model.limits import UNLIMITED, Limits
from dsgmcmc.model.predictive.base import Moments, Predictive
from dsgmcmc.model.truncation import truncated_moments
from dsgmcmc.posterior.scores import Difference, Scored, difference_of_sums
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.ratings.format import SLAB, Bounds, RowRatings, Split, row_slabs
from dsgmcmc.types import Array, Float32, Float64, Int32, Int64

#: Prior of lambda_a and lambda_b: its shape, and its rate divided by the variance of the ratings.
PRECISION_SHAPE = 4.0
PRECISION_RATE = 0.375

CONVERGED_BELOW = 0.02  # the fit ends if a sweep changes every precision by less than this fraction
MAX_SWEEPS = 50
#: Bytes of ratings that a fit keeps in memory, which chains take later; more are read again.
_KEPT_BYTES = 1 << 28


class BiasesOnly(NamedTuple):
    """The fitted posterior of biases only.

    Attributes
    ----------
    law : type of Law
        The Gaussian likelihood, on the scale of the ratings.
    mean : float
        Mean of the training ratings, on this scale.
    noise : float
        Variance of the noise.
    means, variances : tuple of (I,) and (J,) float64
        Posterior means and variances of the biases of rows, and of columns.
    """

    law: type[Law]
    mean: float
    noise: float
    means: tuple[Float64, Float64]
    variances: tuple[Float64, Float64]

    def predict(self, rows: Int64, columns: Int32) -> Float64:
        """Return the expected ratings of pairs, (q,), on the scale of `law`."""
        return self.mean + self.means[0][rows] + self.means[1][columns]

    def predictive(
        self,
        rows: Int64,
        columns: Int32,
        levels: Float64 | None = None,
        weights: Array | float = 1.0,
    ) -> Predictive:
        """Return the predictive distributions of the ratings of pairs.

        `levels` are the levels of the ratings, if known, and `weights` their relative precisions.
        """
        variance = self.noise / weights + self.variances[0][rows] + self.variances[1][columns]
        return self.law.predictive_of_moments(
            Moments(self.predict(rows, columns), variance, levels=levels)
        )


def fit_biases_only(ratings: Ratings, law: type[Law] = GaussianRatings) -> BiasesOnly:
    """Fit biases only to the training ratings, on the scale of `law`."""
    ratings = law.transform.view(ratings)
    n = ratings.nnz
    slabs = _TrainingSlabs(ratings)
    squares = sum(slab.sum_of_squares(ratings.mean) for slab in slabs)
    counts = _counts(ratings, slabs)
    numbers = counts[0].astype(np.float64)
    variance = squares / n
    if variance == 0:
        variance = 1.0
    means = (np.zeros(ratings.n_rows), np.zeros(ratings.n_cols))
    tau = 2 / variance
    strengths = [4 / variance, 4 / variance]  # lambda_a and lambda_b
    for _ in range(MAX_SWEEPS):
        sums = np.zeros(ratings.n_cols)
        squares = 0.0
        for slab in slabs:
            squares += slab.sweep(
                means, numbers, mean=ratings.mean, tau=tau, strength=strengths[0], sums=sums
            )
        variances = [
            1 / (tau * number + strength)
            for number, strength in zip(counts, strengths, strict=True)
        ]
        means[1][:] = tau * variances[1] * sums
        squares += float(means[1] @ (counts[1] * means[1] - 2 * sums))
        squares += sum(
            float(number @ spread) for number, spread in zip(counts, variances, strict=True)
        )
        old = np.array([tau, *strengths])
        tau = (1 + n / 2) / (variance + squares / 2)
        strengths = [
            (PRECISION_SHAPE + (len(mean) - strength * spread.sum()) / 2)
            / (PRECISION_RATE * variance + float(mean @ mean) / 2)
            for mean, spread, strength in zip(means, variances, strengths, strict=True)
        ]
        if np.all(np.abs(np.array([tau, *strengths]) / old - 1) < CONVERGED_BELOW):
            break
    return BiasesOnly(
        law=law,
        mean=ratings.mean,
        noise=1 / tau,
        means=means,
        variances=(variances[0], variances[1]),
    )


class _TrainingSlab(NamedTuple):
    """Training ratings in consecutive rows, stored in memory as those of a cell.

    Attributes
    ----------
    first : int
        The first row.
    indptr : (rows + 1,) int64, starting at 0
    columns : (n,) uint16 or int32
    stored : (n,) uint8 or float32
        Values; if there is a table, their indices in it.
    table : (at most 256,) float32 or None
        Distinct values.
    weights : (n,) float32 or None
        Relative precisions of the ratings.
    bounds : Bounds or None
        Bounds of the ratings; there is then no table.
    """

    first: int
    indptr: Int64
    columns: Array
    stored: Array
    table: Float32 | None
    weights: Float32 | None
    bounds: Bounds | None

    @property
    def rows(self) -> Int64:
        """Row of every rating, (n,) int64; computed at every access."""
        return self.first + np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))

    def sum_of_squares(self, mean: float) -> float:
        """Return the sum of the squared deviations of the ratings from their mean."""
        values = self.stored if self.table is None else self.table[self.stored]
        deviations = values.astype(np.float64) - mean
        return float(deviations @ deviations)

    def sweep(
        self,
        means: tuple[Float64, Float64],
        numbers: Float64,
        *,
        mean: float,
        tau: float,
        strength: float,
        sums: Float64,
    ) -> float:
        """Set the means of the rows in place, given those of the columns; `strength` is lambda_a.

        `numbers` are those of `_counts`, of all rows. The weighted residuals of the ratings, less
        the mean and the mean of the row's bias, are added to the `sums` of columns, (J,) float64.

        Returns
        -------
        float
            Weighted sum of all squared residuals, and of the variances of ratings within bounds.
        """
        squares = 0.0
        if self.bounds is not None:
            expected = mean + means[0][self.rows] + means[1][self.columns]
            squares += self._expect_bounded(self.bounds, expected, tau)
        rows = slice(self.first, self.first + len(self.indptr) - 1)
        return squares + sweep_rows(
            kernel_arguments(self.indptr, self.columns, self.stored, self.table),
            self.weights,
            numbers=numbers[rows],
            mean=mean,
            tau=tau,
            strength=strength,
            means=(means[0][rows], means[1]),
            sums=sums,
        )

    def _expect_bounded(self, bounds: Bounds, expected: Float64, tau: float) -> float:
        """Set ratings within bounds to their means; return the sum of their variances.

        They are truncated normal variables about the `expected` ratings. Each variance is
        multiplied by its rating's weight.
        """
        bounded = bounds.bounded
        weights = np.ones(np.count_nonzero(bounded), np.float32)
        if self.weights is not None:
            weights = self.weights[bounded]
        mean, variance = truncated_moments(
            expected[bounded],
            1 / np.sqrt(tau * weights, dtype=np.float64),
            bounds.lower[bounded],
            bounds.upper[bounded],
        )
        self.stored[bounded] = mean
        return float((weights * variance).sum())


class _TrainingSlabs:
    """The training ratings, slab by slab, for several sweeps.

    They are read once if they take at most `_KEPT_BYTES` of memory.
    """

    def __init__(self, ratings: Ratings) -> None:
        self._ratings = ratings
        self._numbering = Numbering()
        self._index = index_type(ratings.n_cols)
        self._kept: list[_TrainingSlab] | None = None
        bytes_of_rating = np.dtype(self._index).itemsize + ratings.value_bytes
        if ratings.nnz * bytes_of_rating <= _KEPT_BYTES:
            self._kept = list(self._read())

    def __iter__(self) -> Iterator[_TrainingSlab]:
        if self._kept is None:
            return self._read()
        return iter(self._kept)

    def _read(self) -> Iterator[_TrainingSlab]:
        """Yield slabs of the file."""
        for first, ratings in _read(self._ratings, "train", self._ratings.row_indptr):
            stored: Array = ratings.values
            table = None
            if ratings.bounds is None:
                numbers = self._numbering.numbers(ratings.values)
                if numbers is not None:
                    stored = numbers
                    table = self._numbering.values
            yield _TrainingSlab(
                first=first,
                indptr=ratings.indptr,
                columns=ratings.indices.astype(self._index, copy=False),
                stored=stored,
                table=table,
                weights=ratings.weights,
                bounds=ratings.bounds,
            )


def _counts(ratings: Ratings, slabs: Iterable[_TrainingSlab]) -> tuple[Array, Array]:
    """Return the sums of the weights of the training ratings of rows and of columns, or numbers."""
    if ratings.mean_weight is None:
        return np.diff(ratings.row_indptr), ratings.column_counts
    of_rows = np.zeros(ratings.n_rows)
    of_columns = np.zeros(ratings.n_cols)
    for slab in slabs:
        of_rows += np.bincount(slab.rows, slab.weights, len(of_rows))
        of_columns += np.bincount(slab.columns, slab.weights, len(of_columns))
    return of_rows, of_columns


def baselines(
    ratings: Ratings, biases: BiasesOnly, limits: Limits = UNLIMITED
) -> dict[str, float] | None:
    """Return the RMSE of ``mean_only`` and of ``biases_only`` on the exact test ratings.

    Predictions are clipped to `limits`, as those of a run are. None if no test rating is exact.
    """
    of_mean = 0.0
    of_biases = 0.0
    n_exact = 0
    for batch in _exact_deviations(ratings, "test", ratings.test_indptr):
        predicted = limits.clip(biases.predictive(batch.rows, batch.columns).mean)
        errors = batch.values + ratings.mean - predicted
        of_mean += float(batch.values @ batch.values)
        of_biases += float(np.square(errors).sum())
        n_exact += len(errors)
    if not n_exact:
        return None
    return {
        "mean_only": float(np.sqrt(of_mean / n_exact)),
        "biases_only": float(np.sqrt(of_biases / n_exact)),
    }


def errors_of(ratings: Ratings, biases: BiasesOnly) -> Iterator[tuple[Int64, Int32, Float64]]:
    """Yield row, column and error of biases only, of the exact training ratings, on their scale."""
    ratings = biases.law.transform.view(ratings)
    for batch in _exact_deviations(ratings, "train", ratings.row_indptr):
        rows = batch.rows
        columns = batch.columns
        yield rows, columns, batch.values - biases.means[0][rows] - biases.means[1][columns]


class _Deviations(NamedTuple):
    """Ratings of a part less the training mean.

    Attributes
    ----------
    rows : (n,) int64
    columns : (n,) int32
    values : (n,) float64
    """

    rows: Int64
    columns: Int32
    values: Float64


def _read(ratings: Ratings, part: Split, indptr: Int64) -> Iterator[tuple[int, RowRatings]]:
    """Yield the first row and the ratings of slabs of a part, those without ratings left out."""
    for start, stop in row_slabs(indptr, SLAB):
        slab = ratings.slab(part, start, stop)
        if len(slab.indices):
            yield start, slab


def _exact_deviations(ratings: Ratings, part: Split, indptr: Int64) -> Iterator[_Deviations]:
    """Yield the ratings of a part that are not known only by bounds, less the training mean."""
    for first, slab in _read(ratings, part, indptr):
        exact = slab.exact()
        if len(exact.values):
            deviations = exact.values.astype(np.float64) - ratings.mean
            yield _Deviations(first + exact.rows, exact.indices, deviations)


# ---------------------------------------------------------------------- comparison with a model


class Advantage:
    """Comparison of a model with biases only, by their predictions of the test ratings.

    Parameters
    ----------
    ratings : Ratings
        Ratings that contain the test ratings.
    biases : BiasesOnly
        Biases only, fitted to the training ratings.
    """

    def __init__(self, ratings: Ratings, biases: BiasesOnly) -> None:
        self._ratings = ratings
        self._biases = biases
        self._gains = _SumsByUser(ratings)
        self._reductions = _SumsByUser(ratings)
        self._pairs = _TestPairs(ratings)
        self._total = 0.0
        self._measure = "log_predictive_density"

    def add(self, scored: Scored) -> None:
        """Add the next test ratings, in the order of the file."""
        rows, columns, weights = self._pairs.take(len(scored.rating))
        predictive = self._biases.predictive(rows, columns, scored.predictive.levels, weights)
        predictive.resolution = scored.predictive.resolution
        point = scored.limits.clip(predictive.mean)
        simple = replace(scored, point=point, predictive=predictive)
        if scored.logs.log_probability is not None:
            self._measure = "log_probability"
        simple_logs = simple.logs.recorded()
        users, _ = self._ratings.orientation.users_and_items(rows, columns.astype(np.int64))
        self._gains.add(users, scored.logs.recorded() - simple_logs)
        squares = np.square(simple.errors) - np.square(scored.errors)
        self._reductions.add(users[scored.exact], squares)
        self._total += float(simple_logs.sum())

    def result(self) -> dict[str, Any] | None:
        """Return the comparison.

        Returns
        -------
        dict or None
            ``measure`` is ``log_probability`` if ratings are levels or multiples of a step, else
            ``log_predictive_density``; ``biases_only`` is the mean of this measure for biases only.
            ``gain`` is the mean for the model minus this mean, and ``gain_error`` is the standard
            error of the difference (`dsgmcmc.diagnostics.scores`). ``square`` and ``square_error``
            are the reduction of the mean squared error of exact ratings and its standard error.
            None if all test ratings are by one user, because then no standard error is known, or if
            one has probability 0.
        """
        gains = self._gains
        reductions = self._reductions
        if np.count_nonzero(gains.counts) < 2 or not np.isfinite(gains.sums).all():
            return None
        gain = difference_of_sums(gains.sums, gains.counts)
        square = Difference(0.0, 0.0)
        if np.count_nonzero(reductions.counts) > 1:
            square = difference_of_sums(reductions.sums, reductions.counts)
        return {
            "measure": self._measure,
            "biases_only": self._total / gains.counts.sum(),
            "gain": gain.mean,
            "gain_error": gain.error,
            "square": square.mean,
            "square_error": square.error,
        }


class _SumsByUser:
    """Sums of differences by user, (users,) float64, and their numbers, (users,) int64."""

    def __init__(self, ratings: Ratings) -> None:
        users, _ = ratings.orientation.users_and_items(ratings.n_rows, ratings.n_cols)
        self.sums = np.zeros(users)
        self.counts = np.zeros(users, np.int64)

    def add(self, users: Int64, differences: Float64) -> None:
        """Add differences, (n,), of the ratings of these users, (n,)."""
        np.add.at(self.counts, users, 1)
        np.add.at(self.sums, users, differences)


class _TestPairs:
    """Rows, columns and weights of the test ratings, in the order of the file."""

    def __init__(self, ratings: Ratings) -> None:
        self._slabs = _read(ratings, "test", ratings.test_indptr)
        self._rest: list[Array] = [np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0)]

    def take(self, n: int) -> list[Array]:
        """Return rows, (n,) int64, columns, (n,) int32, and weights, (n,), of the next n."""
        while len(self._rest[0]) < n:
            first, slab = next(self._slabs)
            following: list[Array] = [first + slab.rows, slab.indices, slab.precisions]
            self._rest = [np.concatenate(pair) for pair in zip(self._rest, following, strict=True)]
        taken = [array[:n] for array in self._rest]
        self._rest = [array[n:] for array in self._rest]
        return taken
