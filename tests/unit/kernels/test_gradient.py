"""The gradient kernel against NumPy in float64, for every way its source is generated.

Also sums over the pattern.
"""

from typing import NamedTuple

import numpy as np
import pytest
from scipy import sparse

from dsgmcmc.kernels.compact_ratings import kernel_arguments
from dsgmcmc.kernels.gradient import gradient_kernel, spread_kernel

SCALE = 2.5
RESIDUAL = "x - eta"
COUNTS = "x - exp(eta)"
LOGISTIC = "maximum(x, 0) - 1 / (1 + exp(-eta))"
SCORES = {
    RESIDUAL: lambda x, eta: x - eta,
    COUNTS: lambda x, eta: x - np.exp(eta),
    LOGISTIC: lambda x, eta: np.maximum(x, 0) - 1 / (1 + np.exp(-eta)),
}


class Case(NamedTuple):
    """A block of random ratings, factors and weights."""

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray
    theta_w: np.ndarray
    theta_h: np.ndarray
    weight_w: np.ndarray
    weight_h: np.ndarray


def make_case(K: int, biases: bool, *, n: int = 13, m: int = 9, density: float = 0.4) -> Case:
    """Random block with some empty rows and columns."""
    rng = np.random.default_rng(0)
    seen = rng.random((n, m)) < density
    seen[1::5] = False
    seen[:, 2::4] = False
    indptr = np.concatenate(([0], np.cumsum(seen.sum(1)))).astype(np.int64)
    indices = np.nonzero(seen)[1].astype(np.int32)
    values = rng.standard_normal(len(indices)).astype(np.float32)
    factors = [
        (rng.standard_normal((rows, K + biases)) / np.sqrt(max(K, 1))).astype(np.float32)
        for rows in (n, m)
    ]
    weights = [rng.gamma(2, 0.5, rows).astype(np.float32) for rows in (n, m)]
    return Case(indptr, indices, values, *factors, *weights)


def reference(case: Case, K: int, weighted: bool, score: str):
    """Minus the weighted log density's gradient, in float64, and the sums of squared scores."""
    rows = np.repeat(np.arange(len(case.theta_w)), np.diff(case.indptr))
    columns = case.indices
    w = case.theta_w[rows].astype(float)
    h = case.theta_h[columns].astype(float)
    e = SCORES[score](case.values, (w[:, :K] * h[:, :K]).sum(1) + w[:, K:].sum(1) + h[:, K:].sum(1))
    g = case.weight_w[rows].astype(float) if weighted else np.ones(len(rows))
    gp = case.weight_h[columns].astype(float) if weighted else np.ones(len(rows))
    w[:, K:] = h[:, K:] = 1  # the partner of a bias
    out_w = np.zeros(case.theta_w.shape)
    out_h = np.zeros(case.theta_h.shape)
    np.add.at(out_w, rows, -(g * gp * e)[:, None] * h)
    np.add.at(out_h, columns, -(g * gp * e)[:, None] * w)
    sse_w = np.bincount(rows, gp * e**2, len(out_w)) if weighted else 0.0
    sse_h = np.bincount(columns, g * e**2, len(out_h)) if weighted else 0.0
    return SCALE * out_w, SCALE * out_h, (g * gp * e**2).sum(), sse_w, sse_h


def run(case: Case, K: int, biases: bool, *, weighted: bool = False, score: str = RESIDUAL):
    """Run the kernel on outputs that are not zero, and subtract their former content."""
    rng = np.random.default_rng(1)
    before = [
        rng.standard_normal(theta.shape).astype(np.float32)
        for theta in (case.theta_w, case.theta_h)
    ]
    out_w = before[0].copy()
    out_h = before[1].copy()
    sse_w = np.full(len(out_w), 3.0)
    sse_h = np.full(len(out_h), 5.0)
    extra = (case.weight_w, case.weight_h, sse_w, sse_h) if weighted else ()
    ratings = kernel_arguments(case.indptr, case.indices, case.values, None)
    kernel = gradient_kernel(K, biases, weighted=weighted, score=score)
    total = kernel(*ratings, case.theta_w, case.theta_h, out_w, out_h, *extra, SCALE)
    return out_w - before[0], out_h - before[1], total, sse_w - 3, sse_h - 5


# One rank for each way the source turns out: biases alone, a single column, powers of two, odd
# ends, blocks with and without rest. Other scores take the place of the residual, so each of them
# meets one of these ways.
CASES = [
    (0, True, True, RESIDUAL),
    (2, False, False, RESIDUAL),
    (7, True, True, RESIDUAL),
    (33, True, False, RESIDUAL),
    (200, False, True, RESIDUAL),
    (200, True, True, RESIDUAL),
    pytest.param(512, False, False, RESIDUAL, marks=pytest.mark.long),
    (16, False, True, COUNTS),
    (7, True, False, LOGISTIC),
]


#: Numbers of rows, and densities of ratings; blocks of some runs have no ratings, or no rows.
SIZES = {"usual": (13, 0.4), "no ratings": (4, 0.0), "no rows": (0, 0.4), "one row": (1, 1.0)}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("K", "biases", "weighted", "score"), CASES)
def test_equals_numpy(K, biases, weighted, score, size):
    """Protects both gradients, their accumulation, the scale, every sum of squared errors, and
    other scores.
    """
    n, density = SIZES[size]
    case = make_case(K, biases, n=n, density=density)
    found = run(case, K, biases, weighted=weighted, score=score)
    for ours, exact in zip(found, reference(case, K, weighted, score), strict=True):
        np.testing.assert_allclose(ours, exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("score", ["x - theta", "x - eta\ny = x", "sin(x)", "", "x - tw"])
def test_other_scores_are_refused(score):
    """Protects the generated code: only an expression of x and eta gets into it."""
    with pytest.raises(ValueError, match=r".+"):
        gradient_kernel(3, True, score=score)


def test_not_a_number_shows():
    """Protects the detection of divergence: fast-math flags must not exclude NaN."""
    case = make_case(33, True)
    case.theta_h[0] = np.nan
    assert np.isnan(run(case, 33, True)[2])


@pytest.mark.parametrize("sides", ["wh", "w", "h"])
@pytest.mark.parametrize("D", [1, 33, 130])
def test_products_with_the_pattern(D: int, sides: str) -> None:
    """Protects both directions, what was in the output before, empty rows, and columns in blocks
    with a rest.
    """
    rng = np.random.default_rng(D)
    pattern = sparse.random_array((13, 9), density=0.4, rng=rng, format="csr")
    pattern.data[:] = 1
    in_w, in_h, out_w, out_h = (
        rng.integers(-9, 9, (n, D)).astype(np.float32) for n in (13, 9, 13, 9)
    )
    expected_w = out_w.copy()
    expected_h = out_h.copy()
    if "w" in sides:
        expected_w += pattern @ in_h
    if "h" in sides:
        expected_h += pattern.T @ in_w
    indptr = pattern.indptr.astype(np.int64)
    indices = pattern.indices.astype(np.int32)
    spread_kernel(D, sides)(indptr, indices.view(np.uint16), in_w, in_h, out_w, out_h)
    np.testing.assert_array_equal(out_w, expected_w)
    np.testing.assert_array_equal(out_h, expected_h)
