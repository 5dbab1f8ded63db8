"""The gradient kernel against plain NumPy in float64, for every way its source is generated."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from dsgmcmc.kernels.gradient import gradient_kernel
from dsgmcmc.kernels.stored import kernel_arguments


class Case(NamedTuple):
    """A block of random ratings, factors and weights."""

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray
    theta_w: np.ndarray
    theta_h: np.ndarray
    weight_w: np.ndarray
    weight_h: np.ndarray


def make_case(K: int, biases: bool, n: int = 13, m: int = 9, density: float = 0.4, seed: int = 0) -> Case:
    """Random block with some empty rows and columns."""
    rng = np.random.default_rng(seed)
    seen = rng.random((n, m)) < density
    seen[1::5] = False
    seen[:, 2::4] = False
    indptr = np.concatenate(([0], np.cumsum(seen.sum(1)))).astype(np.int64)
    indices = np.nonzero(seen)[1].astype(np.int32)
    values = rng.standard_normal(len(indices)).astype(np.float32)
    factors = [(rng.standard_normal((rows, K + biases)) / np.sqrt(max(K, 1))).astype(np.float32) for rows in (n, m)]
    weights = [rng.gamma(2, 0.5, rows).astype(np.float32) for rows in (n, m)]
    return Case(indptr, indices, values, *factors, *weights)


def residual(x, eta):
    """Score of a Gaussian."""
    return x - eta


def reference(case: Case, K: int, theta_w, theta_h, weighted: bool = False, score=residual):
    """Minus the weighted log density's gradient, in float64, and the sums of squared scores."""
    rows = np.repeat(np.arange(len(theta_w)), np.diff(case.indptr))
    columns = case.indices
    w, h = theta_w[rows].astype(float), theta_h[columns].astype(float)
    e = score(case.values, (w[:, :K] * h[:, :K]).sum(1) + w[:, K:].sum(1) + h[:, K:].sum(1))
    g = case.weight_w[rows].astype(float) if weighted else np.ones(len(rows))
    gp = case.weight_h[columns].astype(float) if weighted else np.ones(len(rows))
    w[:, K:] = h[:, K:] = 1  # the partner of a bias
    out_w, out_h = np.zeros(theta_w.shape), np.zeros(theta_h.shape)
    np.add.at(out_w, rows, -(g * gp * e)[:, None] * h)
    np.add.at(out_h, columns, -(g * gp * e)[:, None] * w)
    sse_w, sse_h = np.zeros(len(theta_w)), np.zeros(len(theta_h))
    np.add.at(sse_w, rows, gp * e**2)
    np.add.at(sse_h, columns, g * e**2)
    return out_w, out_h, (g * gp * e**2).sum(), sse_w, sse_h


def run(case: Case, K: int, biases: bool, weighted: bool, scale: float, score: str = "x - eta"):
    """The kernel on outputs that are not zero, whose former content is taken off again."""
    rng = np.random.default_rng(1)
    before_w = rng.standard_normal(case.theta_w.shape).astype(np.float32)
    before_h = rng.standard_normal(case.theta_h.shape).astype(np.float32)
    out_w, out_h = before_w.copy(), before_h.copy()
    sse_w, sse_h = np.full(len(out_w), 3.0), np.full(len(out_h), 5.0)
    extra = (case.weight_w, case.weight_h, sse_w, sse_h) if weighted else ()
    kernel = gradient_kernel(K, biases, weighted, score)
    ratings = kernel_arguments(case.indptr, case.indices, case.values, None)
    total = kernel(*ratings, case.theta_w, case.theta_h, out_w, out_h, *extra, scale)
    return out_w - before_w, out_h - before_h, total, sse_w - 3, sse_h - 5


# One rank for each way the source turns out: biases alone, a single column, powers of two, odd ends, blocks with and
# without rest.
CASES = [
    (0, True, True),
    (2, False, False),
    (7, True, True),
    (33, True, False),
    (200, False, True),
    pytest.param(512, False, False, marks=pytest.mark.long),
]


@pytest.mark.parametrize(("K", "biases", "weighted"), CASES)
def test_equals_numpy(K, biases, weighted):
    """Protects both gradients, their accumulation, the scale and every sum of squared errors."""
    case = make_case(K, biases)
    got = run(case, K, biases, weighted, scale=2.5)
    check(got, reference(case, K, case.theta_w, case.theta_h, weighted), weighted)


def check(got, want, weighted):
    """At scale 2.5."""
    for mine, true, factor in zip(got[:2], want[:2], (2.5, 2.5), strict=True):
        np.testing.assert_allclose(mine, factor * true, rtol=1e-5, atol=1e-5)
    assert got[2] == pytest.approx(want[2], rel=1e-5)
    if weighted:
        np.testing.assert_allclose(got[3], want[3], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(got[4], want[4], rtol=1e-5, atol=1e-6)


SCORES = {
    "x - exp(eta)": lambda x, eta: x - np.exp(eta),
    "maximum(x, 0) - 1 / (1 + exp(-eta))": lambda x, eta: np.maximum(x, 0) - 1 / (1 + np.exp(-eta)),
}


@pytest.mark.parametrize(
    ("K", "biases", "weighted", "source"),
    [
        (16, False, True, "x - exp(eta)"),
        (7, True, False, "maximum(x, 0) - 1 / (1 + exp(-eta))"),
    ],
)
def test_any_score_of_rating_and_predictor(K, biases, weighted, source):
    """Protects other laws of a rating: the score is what the likelihood says.

    It takes the place of the residual, in which `test_equals_numpy` has every way the source turns out; here each score
    meets one of them.
    """
    case = make_case(K, biases)
    got = run(case, K, biases, weighted, 2.5, source)
    check(got, reference(case, K, case.theta_w, case.theta_h, weighted, SCORES[source]), weighted)


@pytest.mark.parametrize("score", ["x - theta", "x - eta\ny = x", "sin(x)", "", "x - tw"])
def test_other_scores_are_refused(score):
    """Protects the generated code: what is no expression of x and eta does not get into it."""
    with pytest.raises(ValueError, match=r".+"):
        gradient_kernel(3, True, score=score)


@pytest.mark.parametrize(("K", "biases", "weighted"), [(10, True, False), (200, False, True)])
def test_empty_blocks_and_single_rows(K, biases, weighted):
    """Protects blocks without ratings, without rows, and with one row: nothing changes, the sum is 0."""
    for n, density in ((4, 0.0), (0, 0.4), (1, 1.0)):
        case = make_case(K, biases, n=n, density=density)
        got = run(case, K, biases, weighted, scale=1.0)
        want = reference(case, K, case.theta_w, case.theta_h, weighted)
        assert got[2] == pytest.approx(want[2], rel=1e-5)
        np.testing.assert_allclose(got[1], want[1], rtol=1e-5, atol=1e-5)


def test_not_a_number_shows():
    """Protects the detection of divergence: fast-math flags must not assume that there is no NaN."""
    case = make_case(10, True)
    case.theta_h[0] = np.nan
    assert np.isnan(run(case, 10, True, False, 1.0)[2])


@pytest.mark.parametrize(("K", "biases"), [(0, False), (513, True), (-1, True)])
def test_rank_outside_range(K, biases):
    """Protects against generating nonsense for ranks that are not supported, and for rows without a column."""
    with pytest.raises(ValueError, match="rank K"):
        gradient_kernel(K, biases)
