"""Scores within groups that were held out, and verdicts on intervals by group."""

from typing import Any

import numpy as np
import pytest

from dsgmcmc.diagnostics.summary import describe_run, doubts
from dsgmcmc.model.likelihoods.gaussian import GaussianRatings
from dsgmcmc.model.limits import UNLIMITED
from dsgmcmc.model.predictive.base import Moments
from dsgmcmc.posterior.scores import LEVELS, Scored, Scores
from dsgmcmc.types import Float64, Int64

GOOD: dict[str, Any] = {
    "rmse_mean": 0.83,
    "mae_mean": 0.65,
    "tau": 1.9,
    "draws": 60,
    "coverage": {"0.5": 0.5, "0.9": 0.91},
    "reached": [700],
    "iterations": 700,
}
#: Share of runs with the right intervals that may be warned of.
FALSE_ALARMS = 0.05
RUNS = 300


def scored(rating: Float64, point: Float64, sd: float = 1.0) -> Scored:
    """Return ratings with normal predictive distributions of this sd."""
    moments = Moments(point, np.full(len(point), sd**2))
    predictive = GaussianRatings.predictive_of_moments(moments)
    return Scored(rating, None, point, predictive, UNLIMITED)


def ratings_of_groups(sizes: Int64, shared: float, rng: np.random.Generator) -> Float64:
    """Draw standard normal ratings, of whose variance a share is that of their group."""
    of_group = np.repeat(rng.normal(size=len(sizes)), sizes)
    alone = rng.normal(size=len(of_group))
    return np.sqrt(shared) * of_group + np.sqrt(1 - shared) * alone


def summary_of(sizes: Int64, shared: float, sd: float, rng: np.random.Generator) -> dict[str, Any]:
    """Return a summary of a run that predicts N(0, sd^2) where ratings are N(0, 1)."""
    rating = ratings_of_groups(sizes, shared, rng)
    scores = Scores(["environment"])
    groups = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    scores.add(scored(rating, np.zeros_like(rating), sd), groups)
    result = scores.result()
    coverage = {str(level): share for level, share in result["coverage"].items()}
    by_group = {"by_group": result["by_group"], "test_ratings": len(rating)}
    return GOOD | by_group | {"coverage": coverage}


def sizes_of(n_groups: int, *, equal: bool, rng: np.random.Generator) -> Int64:
    """Return sizes of groups of which six have 1,168 ratings."""
    if equal:
        return np.full(n_groups, 195)
    return np.maximum(195 * rng.lognormal(0, 0.8, n_groups), 5).astype(np.int64)


def alarms(n_groups: int, shared: float, sd: float, *, equal: bool = True) -> tuple[float, float]:
    """Return the shares of runs that are warned of: by group, and if all ratings count."""
    rng = np.random.default_rng(n_groups)
    found = np.zeros(2)
    for _ in range(RUNS):
        summary = summary_of(sizes_of(n_groups, equal=equal, rng=rng), shared, sd, rng)
        found += [bool(doubts(summary)), bool(doubts(summary | {"by_group": None}))]
    by_group, by_rating = (found / RUNS).tolist()
    return by_group, by_rating


@pytest.mark.parametrize("equal", [True, False])
@pytest.mark.parametrize("n_groups", [5, 6, 40])
@pytest.mark.parametrize("shared", [0.3, 0.95])
def test_right_intervals_are_seldom_doubted(n_groups, shared, equal):
    """Errors that a group shares are no false alarm, at any of four levels.

    The seed is fixed, and the limit is 1 in 20. In 1,000 runs of each of 60 settings the largest
    rate was .034, with 5 or 6 groups that share .99: three standard deviations at four levels are
    1 in 100, and few groups add some. Of 300 runs, 15 or more are then 1 in 20 settings.
    """
    by_group, _ = alarms(n_groups, shared, sd=1, equal=equal)
    assert by_group <= FALSE_ALARMS


@pytest.mark.parametrize("shared", [0.3, 0.9])
def test_ratings_of_a_group_are_not_independent(shared):
    """Three standard errors of 1,168 ratings that share errors in 6 groups are a false alarm."""
    _, by_rating = alarms(6, shared, sd=1)
    assert by_rating > 0.3


@pytest.mark.parametrize(
    ("n_groups", "shared", "sd", "size"),
    [
        (6, 0.0, 0.7, "narrow"),
        (6, 0.3, 0.5, "narrow"),
        (40, 0.6, 0.6, "narrow"),
        (40, 0.6, 1.7, "wide"),
        (20, 0.0, 2.0, "wide"),
    ],
)
def test_wrong_intervals_are_doubted(n_groups, shared, sd, size):
    """Groups that all err in one direction show it, the sooner the less they share."""
    by_group, _ = alarms(n_groups, shared, sd)
    assert by_group > 0.8
    rng = np.random.default_rng(1)
    (doubt,) = doubts(summary_of(np.full(n_groups, 195), shared, sd, rng))
    assert f"predictive distributions are too {size}" in doubt


def test_few_groups_are_not_judged():
    """Of four groups, nobody can say what chance did."""
    rng = np.random.default_rng(0)
    assert not doubts(summary_of(np.full(4, 300), 0.1, 0.3, rng))
    assert doubts(summary_of(np.full(6, 300), 0.1, 0.3, rng))


def test_errors_of_coverage_are_those_of_groups():
    """They are the spread of the mean coverage of groups over repeated samples."""
    rng = np.random.default_rng(0)
    found = []
    errors = []
    for _ in range(400):
        summary = summary_of(np.full(30, 40), 0.5, 1.0, rng)
        found.append(list(summary["coverage"].values()))
        errors.append(list(summary["by_group"]["coverage_error"].values()))
    assert np.mean(found, axis=0) == pytest.approx(LEVELS, abs=0.01)
    squares = np.mean(np.square(errors), axis=0)
    # the variance of 400 samples is known to 7 %
    assert np.var(found, axis=0) == pytest.approx(squares, rel=0.25)


def test_correlation_within_groups():
    """It is the mean of those of groups with three ratings that differ, also in several batches."""
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(8, dtype=np.int32), [2, 3, 5, 20, 40, 9, 9, 0])
    rating = rng.normal(size=len(groups)) + 1e4 * groups
    point = rating + rng.normal(size=len(groups))
    rating[groups == 5] = 7.1
    point[groups == 6] = 0.3
    scores = Scores(["place", "day"])
    order = rng.permutation(len(groups))
    for part in np.split(order, [30, 31]):
        scores.add(scored(rating[part], point[part]), groups[part])
    by_group = scores.result()["by_group"]
    each = [np.corrcoef(rating[groups == g], point[groups == g])[0, 1] for g in (1, 2, 3, 4)]
    assert by_group["columns"] == ["place", "day"]
    assert by_group["groups"] == 7
    assert by_group["correlated_groups"] == 4
    assert by_group["correlation"] == pytest.approx(np.mean(each), rel=1e-6)
    assert by_group["correlation_error"] == pytest.approx(np.std(each, ddof=1) / 2, rel=1e-6)


def test_the_correlation_within_groups_is_the_first_number():
    """Beside the RMSE, or before the log probability of levels, with its error and the groups."""
    rng = np.random.default_rng(0)
    by_group = summary_of(np.full(6, 50), 0.5, 1.0, rng)["by_group"]
    said = by_group | {"correlation": 0.71, "correlation_error": 0.034, "correlated_groups": 5}
    result = describe_run(GOOD | {"by_group": said}).result
    assert result[0].startswith(
        "correlation within environment 0.7100 ± 0.0340 (5 groups), RMSE of the posterior mean"
    )
    levels = {"tau": None, "log_probability": -1.25, "by_group": said}
    assert (
        "(5 groups), log probability of a recorded rating" in describe_run(GOOD | levels).result[0]
    )
    alone = by_group | {
        "columns": ["place", "day"],
        "correlation": 0.3,
        "correlation_error": None,
        "correlated_groups": 1,
    }
    first = describe_run(GOOD | {"by_group": alone}).result[0]
    assert first.startswith("correlation within (place, day) 0.3000 (1 group), RMSE")
    without = by_group | {"correlation": None}
    assert describe_run(GOOD | {"by_group": without}).result[0].startswith("RMSE")


def test_exact_ratings_only():
    """A rating that is known only by bounds counts in no correlation and no coverage."""
    rating = np.array([1.0, 2.0, 4.0, 9.0])
    some = scored(rating, np.array([1.1, 1.9, 4.2, 14.0]))
    bounded = Scored(
        rating=some.rating,
        bounds=(rating, np.array([1.0, 2.0, 4.0, 12.0])),
        point=some.point,
        predictive=some.predictive,
        limits=UNLIMITED,
    )
    scores = Scores(["environment"])
    scores.add(bounded, np.zeros(4, np.int32))
    by_group = scores.result()["by_group"]
    expected = np.corrcoef(rating[:3], some.point[:3])[0, 1]
    assert by_group["correlation"] == pytest.approx(expected)
    assert by_group["correlation_error"] is None
    assert by_group["coverage_error"]["0.5"] is None
