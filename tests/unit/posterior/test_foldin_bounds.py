"""New rows some of whose ratings are known only by bounds."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from measurements import write_measured

from dsgmcmc import open_run
from dsgmcmc.model.likelihoods.gaussian import GaussianRatings
from dsgmcmc.model.likelihoods.own_prior import OwnPrior
from dsgmcmc.model.likelihoods.student_t import StudentT
from dsgmcmc.parallel.alone import Alone
from dsgmcmc.posterior.rows.added import NoiseOfRow, normal_row
from dsgmcmc.posterior.rows.drawn_rows import RatedRow, RatedRows, draw_rows
from dsgmcmc.runs.job import Job
from dsgmcmc.runs.source import RatingsSource

REPEATS = 3000
BOUNDS = np.array([[1.0, 1.0], [-np.inf, -0.5], [1.0, np.inf], [0.2, 0.6], [-0.4, -0.4]])
X = np.array([1.0, -0.5, 1.0, 0.4, -0.4])
FEATURES = np.array([[1.0, 0.5], [0.3, -1.0], [0.8, 0.8], [-0.5, 1.0], [0.1, -0.7]])
SCALES = np.array([2.0, 1.0, 3.0, 2.0, 0.5])


def row(parameters: np.ndarray | None) -> RatedRow:
    """A row with two exact ratings, and three within bounds."""
    return RatedRow(
        features=FEATURES,
        offset=np.full(5, 0.1),
        x=X,
        scales=SCALES,
        effects=np.zeros(5),
        centre=np.array([0.2, -0.1]),
        precision=np.array([[1.0, 0.3], [0.3, 2.0]]),
        parameters=parameters,
        bounds=BOUNDS,
    )


def moments(law: scipy.stats.rv_continuous, given: RatedRow) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of theta by importance sampling from its prior; a million points."""
    rng = np.random.default_rng(8)
    cov = np.linalg.inv(given.precision)
    theta = rng.multivariate_normal(given.centre, cov, 1_000_000)
    z = (given.offset + theta @ FEATURES.T) * np.sqrt(SCALES)
    low, high = (BOUNDS * np.sqrt(SCALES)[:, None]).T
    exact = low == high
    logs = law.logpdf(low - z)[:, exact].sum(axis=1)
    masses = (law.cdf(high - z) - law.cdf(low - z))[:, ~exact]
    logs += np.log(np.maximum(masses, 1e-300)).sum(axis=1)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    mean = weights @ theta
    return mean, (theta - mean).T @ ((theta - mean) * weights[:, None])


def test_a_normal_row_is_drawn_given_values_within_bounds() -> None:
    """Means and covariances given the values mix to those by importance sampling.

    Tolerances are four standard errors of 3,000 rows.
    """
    given = row(None)
    rng = np.random.default_rng(5)
    rows = [
        normal_row(
            GaussianRatings, given, of_all_pairs=np.zeros((2, 2)), noise=NoiseOfRow(None), rng=rng
        )
        for _ in range(REPEATS)
    ]
    means = np.array([mean for mean, _, _ in rows])
    covariance = np.mean([within for _, within, _ in rows], axis=0) + np.cov(means.T)
    expected, spread = moments(scipy.stats.norm, given)
    error = 4 * np.sqrt(np.diag(spread) / REPEATS)
    assert (np.abs(means.mean(axis=0) - expected) < error).all()
    np.testing.assert_allclose(covariance, spread, atol=4 * spread.max() * np.sqrt(2 / REPEATS))


def test_rows_under_heavy_tails_have_the_mass_between_bounds() -> None:
    """Draws have the moments by importance sampling, within four standard errors."""
    nu = 5.0
    given = row(np.array([nu / (nu - 2)]))
    rated = RatedRows(StudentT, [given] * REPEATS, [OwnPrior()] * REPEATS)
    theta, _ = draw_rows(rated, np.random.default_rng(2))
    expected, covariance = moments(scipy.stats.t(nu), given)
    error = 4 * np.sqrt(np.diag(covariance) / REPEATS)
    assert (np.abs(theta.mean(axis=0) - expected) < error).all()
    np.testing.assert_allclose(
        np.cov(theta.T), covariance, atol=6 * covariance.max() * np.sqrt(2 / REPEATS)
    )


@pytest.mark.parametrize(
    ("likelihood", "scale"), [("gaussian", "identity"), ("student-t", "log"), ("gaussian", "log")]
)
def test_a_model_folds_in_bounds(tmp_path: Path, likelihood: str, scale: str) -> None:
    """A user below a limit everywhere is predicted below one above a limit; a known user with
    bounds in the training is folded in again with them.
    """
    path = write_measured(tmp_path / "r.h5", replicated=True, weighted=True, bounded=True)
    settings = {"rank": 2, "iterations": 40, "burn_in": 20, "save_draws": 10}
    settings |= {"likelihood": likelihood, "scale": scale}
    Job(Alone(), RatingsSource(path), tmp_path / "run", settings, quiet=True).run()
    model = open_run(tmp_path / "run")
    items = np.arange(10)
    frames = [
        pd.DataFrame({"user": user, "item": items, "rating": text})
        for user, text in ((1001, "<2"), (1002, ">5"), (1003, "[3.9, 4.1]"), (3, "<1"))
    ]
    with pytest.warns(UserWarning, match="no weights, unlike those of the run"):
        new = model.fold_in(pd.concat(frames))
    means = {
        user: new.predict([[user, item] for item in items]).mean() for user in (1001, 1002, 1003)
    }
    assert means[1001] < means[1003] < means[1002]
    assert means[1001] < 2.5
    assert means[1002] > 4.5
    before = model.predict([[3, item] for item in items]).mean()
    assert new.predict([[3, item] for item in items]).mean() < before
