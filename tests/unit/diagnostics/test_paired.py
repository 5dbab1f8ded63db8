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
