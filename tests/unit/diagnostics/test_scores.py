"""Scores of predictions and their paired differences, against numbers worked out by hand."""

import numpy as np
import pytest

from dsgmcmc.diagnostics import scores
from dsgmcmc.model.likelihoods.gaussian import GaussianRatings
from dsgmcmc.model.limits import Limits
from dsgmcmc.model.predictive.base import Moments
from dsgmcmc.model.predictive.levels import LevelDistribution
from dsgmcmc.posterior import heldout
from dsgmcmc.posterior.scores import LEVELS, Scored, Scores, coverage


def covered(values, mean, variance, levels=LEVELS):
    """Shares inside intervals of normal distributions."""
    predictive = GaussianRatings.predictive_of_moments(
        Moments(np.asarray(mean, float), np.asarray(variance, float))
    )
    return coverage(predictive.pit(values), levels)


def test_coverage_by_hand():
    """Intervals are central, and have the variance of their rating.

    50 % lies within 0.6745 sd and 95 % within 1.96 sd.
    """
    values = np.array([0.0, 1.34, -1.36, 3.91, -3.93])
    assert covered(values, np.zeros(5), np.full(5, 4.0), (0.5, 0.95)) == {0.5: 2 / 5, 0.95: 4 / 5}
    assert list(covered(values, values, np.ones(5))) == [0.5, 0.8, 0.9, 0.95]
    assert covered([1.0, 1.0], [0.0, 0.0], [1.0, 9.0], (0.5,)) == {0.5: 0.5}


def test_coverage_of_levels_counts_the_share_of_a_level_inside():
    """Levels of probability 1/4, 1/2 and 1/4: the 50 % interval has the middle one, and the 80 %
    interval three fifths of the outer ones, so that the expected shares are 50 and 80 %.
    """
    rating = np.array([1.0, 2.0, 2.0, 3.0])
    shares = np.tile([0.25, 0.5, 0.25], (4, 1))
    predictive = LevelDistribution(shares, np.array([1.0, 2.0, 3.0]))
    found = Scores()
    found.add(Scored(rating, None, np.full(4, 2.0), predictive, Limits(1.0, 3.0)))
    scored = found.result()
    assert scored["coverage"] == pytest.approx({0.5: 0.5, 0.8: 0.8, 0.9: 0.9, 0.95: 0.95})
    assert scored["rmse"] == pytest.approx(np.sqrt(0.5))
    assert scored["log_probability"] == pytest.approx(np.log([0.25, 0.5]).mean())


@pytest.mark.parametrize(("sd", "expected"), [(0.25, True), (0.4, False)])
def test_intervals_narrower_than_levels(sd, expected):
    """90 % intervals are 3.29 sds wide; levels at a distance of 1 are not told apart by narrower
    ones.
    """
    test = heldout.TestPredictions(*np.ones((2, 8)), np.zeros(8), np.full(8, sd**2))
    for levels, narrow in ((np.arange(1.0, 6.0), expected), (None, False)):
        assert (
            scores.held_out_scores([test], GaussianRatings, levels)["narrower_than_levels"]
            is narrow
        )


def test_a_transform_is_counted_once():
    """A transform is in one bin, also at the end of a bin, and at 0 and 1."""
    ends = np.array([0.0, 0.05, 0.5, 0.999, 1.0])
    counts = scores.pit_counts((ends, ends))
    assert [k for k, count in enumerate(counts) for _ in range(int(count))] == [0, 1, 10, 19, 19]


def test_one_user_says_nothing_of_others():
    """The error of a difference by one user is infinite."""
    assert scores.difference(np.ones(3), np.zeros(3), np.zeros(3, np.int32)).error == np.inf
