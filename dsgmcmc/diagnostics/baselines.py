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
tau + s_i + s_j).

A sweep reads the training ratings once. It computes the means of the rows from the means of the
columns, and in the same pass the sums for the next means of the columns.

[Lim & Teh 2007] Variational Bayesian approach to movie rating prediction, KDD Cup and Workshop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.data.ratings import Ratings
from dsgmcmc.data.ratings_format import Split, row_slabs
from dsgmcmc.diagnostics.scores import difference_of_sums
from dsgmcmc.model.likelihoods import Law
from dsgmcmc.model.likelihoods.gaussian import GaussianRatings
from dsgmcmc.model.limits import UNLIMITED, Limits
from dsgmcmc.model.predictive.base import Moments, Predictive
from dsgmcmc.posterior.heldout import TestPredictions
from dsgmcmc.types import Float64, Int32, Int64

#: Prior of lambda_a and lambda_b: its shape, and its rate divided by the variance of the ratings.
PRECISION_SHAPE = 4.0
PRECISION_RATE = 0.375

CONVERGED_BELOW = 0.02  # the fit ends if a sweep changes every precision by less than this fraction
MAX_SWEEPS = 50
_SLAB = 2_000_000  # ratings read at a time


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

    def predictive(self, rows: Int64, columns: Int32, levels: Float64 | None = None) -> Predictive:
        """Return the predictive distributions of the ratings of pairs.

        `levels` are the levels of the ratings, if known.
        """
        variance = self.noise + self.variances[0][rows] + self.variances[1][columns]
        return self.law.predictive_of_moments(
            Moments(self.predict(rows, columns), variance, levels=levels)
        )


def fit_biases_only(ratings: Ratings, law: type[Law] = GaussianRatings) -> BiasesOnly:
    """Fit biases only to the training ratings, on the scale of `law`."""
    ratings = law.transform.view(ratings)
    n = ratings.nnz
    counts = (np.diff(ratings.row_indptr), ratings.column_counts)
    squares = sum(
        float(np.square(x).sum()) for _, _, x in _deviations(ratings, "train", ratings.row_indptr)
    )
    variance = squares / n
    if variance == 0:
        variance = 1.0
    means = (np.zeros(ratings.n_rows), np.zeros(ratings.n_cols))
    tau = 2 / variance
    strengths = [4 / variance, 4 / variance]  # lambda_a and lambda_b
    for _ in range(MAX_SWEEPS):
        sums, squares = _sweep(ratings, means, tau, strengths[0])
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


def _sweep(
    ratings: Ratings, means: tuple[Float64, Float64], tau: float, strength: float
) -> tuple[Float64, float]:
    """Set the means of the rows in place, given the means of the columns; `strength` is lambda_a.

    Returns
    -------
    sums : (J,) float64
        Sums by column of the residuals: rating - mean - mean of the row's bias.
    squares : float
        Sum of all squared residuals.
    """
    sums = np.zeros(ratings.n_cols)
    squares = 0.0
    for rows, columns, residuals in _deviations(ratings, "train", ratings.row_indptr):
        span = slice(int(rows[0]), int(rows[-1]) + 1)
        counts = np.diff(ratings.row_indptr[span.start : span.stop + 1])
        row_sums = np.bincount(rows - span.start, residuals - means[1][columns])
        means[0][span] = tau * row_sums / (tau * counts + strength)
        residuals -= means[0][rows]
        sums += np.bincount(columns, residuals, minlength=len(sums))
        squares += float(residuals @ residuals)
    return sums, squares


def baselines(ratings: Ratings, biases: BiasesOnly, limits: Limits = UNLIMITED) -> dict[str, float]:
    """Return the RMSE of ``mean_only`` and of ``biases_only`` on the test ratings.

    Predictions are clipped to `limits`, as those of a run are.
    """
    of_mean = 0.0
    of_biases = 0.0
    for rows, columns, deviations in _deviations(ratings, "test", ratings.test_indptr):
        predicted = limits.clip(biases.predictive(rows, columns).mean)
        errors = deviations + ratings.mean - predicted
        of_mean += float(deviations @ deviations)
        of_biases += float(np.square(errors).sum())
    return {
        "mean_only": float(np.sqrt(of_mean / ratings.nnz_test)),
        "biases_only": float(np.sqrt(of_biases / ratings.nnz_test)),
    }


def errors_of(ratings: Ratings, biases: BiasesOnly) -> Iterator[tuple[Int64, Int32, Float64]]:
    """Yield row, column and error of biases only, of the training ratings, on the biases' scale."""
    ratings = biases.law.view(ratings)
    for rows, columns, deviations in _deviations(ratings, "train", ratings.row_indptr):
        yield rows, columns, deviations - biases.means[0][rows] - biases.means[1][columns]


def _deviations(
    ratings: Ratings, part: Split, indptr: Int64
) -> Iterator[tuple[Int64, Int32, Float64]]:
    """Yield row, column, and value minus training mean, of training or test ratings.

    Some rows at a time, to limit memory.
    """
    for start, stop in row_slabs(indptr, _SLAB):
        slab = ratings.slab(part, start, stop)
        if len(slab.indices):
            yield start + slab.rows, slab.indices, slab.values.astype(np.float64) - ratings.mean


# ---------------------------------------------------------------------- comparison with a model


def advantage(
    parts: Iterable[TestPredictions],
    *,
    law: type[Law],
    levels: Float64 | None,
    ratings: Ratings,
    biases: BiasesOnly,
) -> dict[str, Any] | None:
    """Compare a model with biases only, by their predictions of the test ratings.

    Parameters
    ----------
    parts : iterable of TestPredictions
        Predictions of the model, in the order of the file.
    law : type of Law
        Likelihood of the model.
    levels : (R,) float64, optional
        Levels of the ratings, if they have levels.
    ratings : Ratings
        Ratings that contain these test ratings.
    biases : BiasesOnly
        Biases only, fitted to the training ratings.

    Returns
    -------
    dict or None
        ``measure`` is ``log_probability`` if ratings are levels or multiples of a step, else
        ``log_predictive_density``;
        ``biases_only`` is the mean of this measure for biases only. ``gain`` is the mean for the
        model minus this mean, and ``gain_error`` is the standard error of the difference
        (`dsgmcmc.diagnostics.scores`). ``square`` and ``square_error`` are the reduction of the
        mean squared error and its standard error. None if all test ratings are by one user, because
        then no standard error is known, or if one has probability 0.
    """
    gains = _SumsByUser(ratings)
    reductions = _SumsByUser(ratings)
    total = 0.0
    start = 0
    for test in parts:
        rows, columns = _pairs(ratings, start, start + len(test.rating))
        start += len(test.rating)
        model = test.predictive(law, levels)
        simple = biases.predictive(rows, columns, levels)
        simple.resolution = model.resolution
        simple_logs = _log_scores(simple, test.rating)
        users = rows
        if ratings.transposed:
            users = columns.astype(np.int64)
        gains.add(users, _log_scores(model, test.rating) - simple_logs)
        simple_errors = test.rating - test.limits.clip(simple.mean)
        reductions.add(users, np.square(simple_errors) - np.square(test.rating - test.point(law)))
        total += float(simple_logs.sum())
    if np.count_nonzero(gains.counts) < 2 or not np.isfinite(gains.sums).all():
        return None
    measure = "log_predictive_density"
    if model.is_discrete:
        measure = "log_probability"
    gain = difference_of_sums(gains.sums, gains.counts)
    square = difference_of_sums(reductions.sums, reductions.counts)
    return {
        "measure": measure,
        "biases_only": total / start,
        "gain": gain.mean,
        "gain_error": gain.error,
        "square": square.mean,
        "square_error": square.error,
    }


class _SumsByUser:
    """Sums of differences by user, (users,) float64, and their numbers, (users,) int64."""

    def __init__(self, ratings: Ratings) -> None:
        users = ratings.n_rows
        if ratings.transposed:
            users = ratings.n_cols
        self.sums = np.zeros(users)
        self.counts = np.zeros(users, np.int64)

    def add(self, users: Int64, differences: Float64) -> None:
        """Add differences, (n,), of the ratings of these users, (n,)."""
        np.add.at(self.counts, users, 1)
        np.add.at(self.sums, users, differences)


def _log_scores(predictive: Predictive, x: Float64) -> Float64:
    """Return log probabilities of recorded values, or log densities if they have none."""
    if predictive.is_discrete:
        return predictive.log_probability(x)
    return predictive.log_density(x)


def _pairs(ratings: Ratings, start: int, stop: int) -> tuple[Int64, Int32]:
    """Return rows and columns of the test ratings `start` to `stop`, in the order of the file."""
    indptr = ratings.test_indptr
    first = int(np.searchsorted(indptr, start, side="right")) - 1
    last = int(np.searchsorted(indptr, stop))
    columns = ratings.slab("test", first, last).indices
    rows = np.repeat(np.arange(first, last), np.diff(indptr[first : last + 1]))
    cut = slice(start - int(indptr[first]), stop - int(indptr[first]))
    return rows[cut], columns[cut]
