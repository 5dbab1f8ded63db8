"""The kernels of ordered levels against finite differences of the log probability, in NumPy and
float64.
"""

import numpy as np
import pytest
from scipy.special import expit

from dsgmcmc.kernels.compact_ratings import kernel_arguments
from dsgmcmc.kernels.ordinal import (
    END,
    level_moments,
    level_probabilities,
    level_tables,
    ordinal_kernel,
)
from dsgmcmc.types import Factor

THRESHOLDS = np.array([-1.5, -0.4, 0.3, 1.1])
ROWS = 7
COLUMNS = 5


def log_probability(
    level: np.ndarray, eta: np.ndarray, s: np.ndarray, thresholds: np.ndarray
) -> np.ndarray:
    """Of the levels, by thresholds of all or one's own; differences are taken in the tail that they
    lie in.
    """
    cuts = np.pad(
        np.broadcast_to(thresholds, (len(level), 4)),
        ((0, 0), (1, 1)),
        constant_values=((0, 0), (-np.inf, np.inf)),
    )
    upper, lower = (
        s * (np.take_along_axis(cuts, k[:, None], axis=1)[:, 0] - eta) for k in (level + 1, level)
    )
    return np.log(
        np.where(lower + upper > 0, expit(-lower) - expit(-upper), expit(upper) - expit(lower))
    )


class Case:
    """Random ratings of all levels, factors and scales; a row has more ratings than are scored side
    by side.
    """

    def __init__(self, K: int, biases: bool) -> None:
        rng = np.random.default_rng(0)
        self.K = K
        seen = rng.random((ROWS, 60)) < np.linspace(0, 0.9, ROWS)[:, None]
        self.indptr = np.concatenate(([0], np.cumsum(seen.sum(axis=1)))).astype(np.int64)
        self.rows = np.repeat(np.arange(ROWS), np.diff(self.indptr))
        self.columns = rng.integers(0, COLUMNS, len(self.rows)).astype(np.int32)
        self.level = rng.integers(0, 5, len(self.rows))
        sd = 1 / max(K, 1) ** 0.25
        self.w, self.h = (
            rng.normal(0, sd, (n, K + biases)).astype(np.float32) for n in (ROWS, COLUMNS)
        )
        self.s_w, self.s_h = (
            np.exp(rng.normal(0, 0.3, n)).astype(np.float32) for n in (ROWS, COLUMNS)
        )

    @property
    def ratings(self) -> tuple[np.ndarray, ...]:
        return kernel_arguments(self.indptr, self.columns, self.level.astype(np.float32), None)

    @property
    def eta(self) -> np.ndarray:
        w = self.w[self.rows].astype(float)
        h = self.h[self.columns].astype(float)
        return (
            (w[:, : self.K] * h[:, : self.K]).sum(axis=1)
            + w[:, self.K :].sum(axis=1)
            + h[:, self.K :].sum(axis=1)
        )


@pytest.mark.parametrize(
    ("K", "biases", "scaled", "cut_by"),
    [
        (3, True, False, None),
        (2, False, True, None),
        (3, True, True, Factor.W),
        (3, True, True, Factor.H),
    ],
)
def test_gradients_are_derivatives_of_the_log_probability(
    K: int, biases: bool, scaled: bool, cut_by: Factor | None
) -> None:
    """In the factors, in every threshold, of all ratings or of a row, and in the scales; 0.5 halves
    them all.
    """
    case = Case(K, biases)
    step = 1e-5
    rng = np.random.default_rng(1)
    owners = {
        None: (np.zeros_like(case.rows), 1),
        Factor.W: (case.rows, ROWS),
        Factor.H: (case.columns, COLUMNS),
    }
    owner, n = owners[cut_by]
    one_set = cut_by is None
    s = np.ones(len(case.rows))
    if scaled:
        s = (case.s_w[case.rows] * case.s_h[case.columns]).astype(float)
    if one_set:
        cuts = THRESHOLDS[None]
        table = level_tables(scaled, THRESHOLDS)
    else:
        cuts = np.sort(THRESHOLDS + rng.normal(0, 0.3, (n, 4)), axis=1)
        table = np.column_stack([np.full(n, -END), cuts, np.full(n, END)]).astype(np.float32)
    out_w = np.zeros_like(case.w)
    out_h = np.zeros_like(case.h)
    sums = np.zeros((5, 2) if one_set else table.shape)
    slopes = np.zeros_like(case.s_w), np.zeros_like(case.s_h)
    scales = (case.s_w, case.s_h, *slopes) if scaled else ()
    ordinal_kernel(K, biases, scaled=scaled, cut_by=cut_by)(
        *case.ratings, case.w, case.h, out_w, out_h, table, sums, *scales, 0.5
    )

    def slope(eta: float = 0.0, cut: np.ndarray | float = 0.0, log_s: float = 0.0) -> np.ndarray:
        """Half the derivative of every rating's log probability in this direction."""
        up, down = (
            log_probability(
                case.level, case.eta + e * eta, s * np.exp(e * log_s), (cuts + e * cut)[owner]
            )
            for e in (step, -step)
        )
        return 0.5 * (up - down) / (2 * step)

    feature_w = case.w[case.rows].astype(float)
    feature_h = case.h[case.columns].astype(float)
    feature_w[:, K:] = feature_h[:, K:] = 1.0
    for out, index, feature in ((out_w, case.rows, feature_h), (out_h, case.columns, feature_w)):
        expected = np.zeros(out.shape)
        np.add.at(expected, index, -slope(eta=1.0)[:, None] * feature)
        np.testing.assert_allclose(out, expected, rtol=2e-4, atol=2e-4)
    of_thresholds = (sums[:-1, 0] - sums[1:].sum(axis=1))[None] if one_set else sums[:, 1:-1]
    for r in range(4):
        expected = np.bincount(owner, slope(cut=np.eye(4)[r]), n)
        np.testing.assert_allclose(of_thresholds[:, r], expected, rtol=2e-4, atol=2e-4)
    if scaled:
        for sums_of_slopes, index, rows in zip(
            slopes, (case.rows, case.columns), (ROWS, COLUMNS), strict=True
        ):
            expected = np.bincount(index, slope(log_s=1.0), rows)
            np.testing.assert_allclose(sums_of_slopes, expected, rtol=2e-4, atol=2e-4)
    p = level_probabilities(
        case.eta.astype(np.float32), s.astype(np.float32), cuts, owner.astype(np.int32)
    )
    expected = log_probability(case.level, case.eta, s, cuts[owner])
    np.testing.assert_allclose(np.log(p[np.arange(len(p)), case.level]), expected, atol=1e-4)


def test_probabilities_are_right_in_both_tails() -> None:
    """Of every level, as far as predictors go; they add up to 1."""
    eta = np.linspace(-9, 9, 73).astype(np.float32)
    scale = np.linspace(0.5, 1.1, 73).astype(np.float32)
    found = level_probabilities(eta, scale, THRESHOLDS)
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-6)
    for level in range(5):
        expected = log_probability(
            np.full(73, level), eta.astype(float), scale.astype(float), THRESHOLDS
        )
        np.testing.assert_allclose(np.log(found[:, level]), expected, atol=2e-4)
    values = np.array([0.5, 1, 2, 3, 7])
    mean, variance = level_moments(found, values)
    np.testing.assert_allclose(mean, found @ values, rtol=1e-5)
    np.testing.assert_allclose(
        variance, found @ values**2 - (found @ values) ** 2, rtol=1e-3, atol=1e-4
    )
