"""What features explain, against dense algebra; `statistical/test_features_law.py` has the law of their effects."""

from __future__ import annotations

import numpy as np
import pytest

from dsgmcmc.model.parts.features import explained

N, F, D = 23, 5, 3
GROUPS = np.array([0, 0, 1, 1, 1])


def test_explained_is_the_mean_square_of_a_groups_part() -> None:
    """Over rows and columns, each column in units of its own precision; the metric of a dense one likewise."""
    rng = np.random.default_rng(5)
    x, effects, precision = rng.normal(size=(N, F)), rng.normal(size=(F, D)), np.diag([1.0, 2.0, 4.0])
    squares = explained(effects, x.T @ x / N, GROUPS, precision)
    for g in (0, 1):
        part = x[:, g == GROUPS] @ effects[g == GROUPS]
        assert squares[g] == pytest.approx((part**2 @ np.diag(precision)).mean() / D)
