"""Paired differences of scores and their standard errors."""

from __future__ import annotations

import numpy as np
import pytest

from dsgmcmc.diagnostics.scores import difference


def test_difference_by_hand():
    """Two users with two ratings each: differences 1, 2 and 3, 4, whose sums about the mean 2.5 are -2 and 2."""
    found = difference(np.array([2.0, 4.0, 6.0, 8.0]), np.array([1.0, 2.0, 3.0, 4.0]), np.array([0, 0, 7, 7]))
    assert found.mean == 2.5
    assert found.error == pytest.approx(np.sqrt(2 / 1 * (4 + 4)) / 4)


def test_one_user_says_nothing_of_others():
    """The error is infinite, so that nothing is preferred by it."""
    assert difference(np.ones(3), np.zeros(3), np.zeros(3, np.int32)).error == np.inf


def test_ratings_of_a_user_are_no_independent_ones():
    """What is common to a user counts once: of 200 users with ten ratings, the variance is (1 + 1 / 10) / 200."""
    rng, owners = np.random.default_rng(0), np.repeat(np.arange(200), 10)
    errors = [
        difference(rng.normal(size=200)[owners] + rng.normal(size=2000), np.zeros(2000), owners).error
        for _ in range(300)
    ]
    assert np.mean(errors) == pytest.approx(np.sqrt(1.1 / 200), rel=0.01)  # its own error is 0.3 %
