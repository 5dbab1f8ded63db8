"""Statistics of rows, and draws from their conditional distributions, against NumPy in float64."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest

from dsgmcmc.kernels import normal_draws, normal_rows
from dsgmcmc.kernels.compact_ratings import kernel_arguments
from dsgmcmc.kernels.compiling import compiler
from dsgmcmc.kernels.formulas.formula import RowPrior
from dsgmcmc.kernels.normal_draws import draw_normal_rows
from dsgmcmc.kernels.normal_rows import (
    OuterProducts,
    add_outer_products,
    addresses,
    squared_errors,
    statistics_width,
)

#: Ranks: one for every kind of tile, alone and beside others.
RANKS = [(0, True), (1, False), (7, True), (15, True), (16, False), (32, True), (45, True)]
CACHES = [
    normal_rows._statistics_module,
    normal_draws._solver,
    normal_draws._solve_module,
    normal_draws._positions,
]


@pytest.fixture(scope="module", params=["the processor's", "8"], autouse=True)
def _registers(request: pytest.FixtureRequest) -> Iterator[None]:
    """Kernels for registers of this processor, and of one without AVX-512."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "8":
            patch.setattr(compiler, "vector_width", lambda: 8)
        for cached in CACHES:
            cached.cache_clear()
        yield
    for cached in CACHES:
        cached.cache_clear()


def unpacked(statistics: np.ndarray, D: int) -> np.ndarray:
    """Symmetric matrices (n, D + 1, D + 1) from packed triangles."""
    rows, columns = np.tril_indices(D + 1)
    square = np.zeros((len(statistics), D + 1, D + 1))
    square[:, rows, columns] = statistics
    square[:, columns, rows] = statistics
    return square


@pytest.mark.parametrize(("coded", "by_rating"), [(True, False), (False, False), (False, True)])
@pytest.mark.parametrize(("rank", "biases"), RANKS)
def test_statistics_are_sums_of_outer_products(
    rank: int, biases: bool, coded: bool, by_rating: bool
) -> None:
    """They are added to what is there, also for rows without ratings, or with several panels."""
    D = rank + biases
    rng = np.random.default_rng(rank)
    counts = np.array([0, 1, 2, 5, 300, 0, 17, 64])
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    columns = rng.integers(0, 40, counts.sum()).astype(np.uint16)
    levels = rng.normal(size=5).astype(np.float32)
    codes = rng.integers(0, 5, counts.sum()).astype(np.uint8)
    values = levels[codes]
    ratings = kernel_arguments(indptr, columns, values, None)
    if coded:
        ratings = kernel_arguments(indptr, columns, codes, levels)
    theta = rng.normal(0, 0.5, (40, D)).astype(np.float32)
    root = np.sqrt(rng.gamma(4, 0.25, 40)).astype(np.float32)
    roots = root[columns]
    if by_rating:
        roots = np.sqrt(rng.gamma(4, 0.25, len(columns))).astype(np.float32)
        root = roots
    before = rng.normal(size=(len(counts), statistics_width(D))).astype(np.float32)
    found = before.copy()
    cell = OuterProducts(ratings, theta, root, found)
    add_outer_products(addresses([cell]), cell.features.shape[1], rank=rank, by_rating=by_rating)

    phi = theta.astype(float)
    bias = np.zeros(40)
    if biases:
        bias = phi[:, rank].copy()
        phi[:, rank] = 1
    vectors = np.column_stack([phi[columns], values - bias[columns]]) * roots[:, None]
    for i, (begin, end) in enumerate(pairwise(indptr)):
        square = vectors[begin:end].T @ vectors[begin:end]
        expected = before[i] + square[np.tril_indices(D + 1)]
        np.testing.assert_allclose(found[i], expected, rtol=0, atol=1e-6 * (1 + counts[i]))
    assert np.array_equal(found[counts == 0], before[counts == 0])


@pytest.mark.parametrize("D", [1, 2, 8, 9, 33])
def test_squared_errors_are_quadratic_forms(D: int) -> None:
    """Of (theta, -1), in float64."""
    rng = np.random.default_rng(D)
    statistics = packed(rng, 13, D, per_row=50)
    theta = rng.normal(size=(13, D)).astype(np.float32)
    u = np.column_stack([theta, np.full(13, -1)]).astype(float)
    expected = np.einsum("ni,nij,nj->n", u, unpacked(statistics, D), u)
    np.testing.assert_allclose(squared_errors(theta, statistics), expected, rtol=1e-12)


def packed(rng: np.random.Generator, n: int, D: int, per_row: int) -> np.ndarray:
    """Statistics of n rows with random ratings."""
    vectors = rng.normal(0, 0.5, (n, per_row, D + 1))
    rows, columns = np.tril_indices(D + 1)
    square = np.einsum("nri,nrj->nij", vectors, vectors)
    return np.ascontiguousarray(square[:, rows, columns], np.float32)


def in_float64(
    z: np.ndarray, statistics: np.ndarray, scale: np.ndarray, prior: RowPrior
) -> np.ndarray:
    """Draws by NumPy's Cholesky factors."""
    n, D = z.shape
    lambda_ = prior.precision.astype(float)
    if lambda_.ndim == 1:
        lambda_ = np.diag(lambda_)
    mean = np.tile(prior.mean, (n, 1))
    if prior.shift is not None:
        mean = prior.mean + prior.shift
    draws = np.empty((n, D))
    for i, square in enumerate(unpacked(statistics, D)):
        precision = lambda_ + scale[i] * square[:D, :D]
        v = lambda_ @ mean[i] + scale[i] * square[D, :D]
        root = np.linalg.cholesky(precision)
        draws[i] = np.linalg.solve(root.T, np.linalg.solve(root, v) + z[i])
    return draws


def a_prior(rng: np.random.Generator, n: int, D: int, dense: bool, shifted: bool) -> RowPrior:
    precision = rng.uniform(0.5, 3, D)
    if dense:
        root = rng.normal(size=(D, D))
        precision = root @ root.T + np.eye(D)
    shift = None
    if shifted:
        shift = rng.normal(size=(n, D)).astype(np.float32)
    mean = rng.normal(size=D).astype(np.float32)
    return RowPrior(mean, precision.astype(np.float32), shift)


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("D", [1, 2, 3, 4, 5, 8, 33, 50])
def test_draws_are_those_of_float64(D: int, dense: bool, shifted: bool) -> None:
    """Rounded once, to float32; the last group of rows is smaller than the others."""
    rng = np.random.default_rng(D)
    n = 21
    prior = a_prior(rng, n, D, dense, shifted)
    statistics = packed(rng, n, D, per_row=40)
    scale = rng.gamma(4, 0.25, n)
    theta = rng.normal(size=(n, D)).astype(np.float32)
    expected = in_float64(theta, statistics, scale, prior)
    draw_normal_rows(theta, statistics, scale=scale, prior=prior)
    np.testing.assert_allclose(theta, expected, rtol=2e-7, atol=1e-9 * np.abs(expected).max())


def test_ill_conditioned_rows_are_as_exact_as_others() -> None:
    """Ratings along one direction, with a signal to noise ratio of 1e4, and a wide prior."""
    rng = np.random.default_rng(0)
    n = 16
    D = 33
    direction = rng.normal(size=D + 1)
    vectors = rng.normal(0, 1e-2, (n, 500, D + 1)) + rng.normal(size=(n, 500, 1)) * direction
    rows, columns = np.tril_indices(D + 1)
    square = np.einsum("nri,nrj->nij", vectors, vectors)[:, rows, columns]
    statistics = np.ascontiguousarray(square, np.float32)
    prior = RowPrior(np.zeros(D, np.float32), np.full(D, 0.1, np.float32))
    scale = np.full(n, 1e4)
    condition = np.linalg.cond(scale[0] * unpacked(statistics, D)[0, :D, :D] + 0.1 * np.eye(D))
    assert condition > 1e5
    theta = rng.normal(size=(n, D)).astype(np.float32)
    expected = in_float64(theta, statistics, scale, prior)
    draw_normal_rows(theta, statistics, scale=scale, prior=prior)
    error = np.linalg.norm(theta - expected, axis=1) / np.linalg.norm(expected, axis=1)
    assert error.max() < 1e-7


@pytest.mark.parametrize("shifted", [False, True])
def test_a_row_has_the_same_bits_whatever_rows_are_drawn_with_it(shifted: bool) -> None:
    """How rows are divided into blocks and processes changes nothing."""
    rng = np.random.default_rng(1)
    n = 27
    D = 33
    prior = a_prior(rng, n, D, True, shifted)
    statistics = packed(rng, n, D, per_row=40)
    scale = rng.gamma(4, 0.25, n)
    z = rng.normal(size=(n, D)).astype(np.float32)
    together = z.copy()
    draw_normal_rows(together, statistics, scale=scale, prior=prior)
    for cuts in ([0, 1, 2, n], [0, 8, 11, 20, n], [0, 13, n]):
        for begin, end in pairwise(cuts):
            part = prior
            if prior.shift is not None:
                part = prior._replace(shift=prior.shift[begin:end])
            theta = z[begin:end].copy()
            own = statistics[begin:end].copy()
            draw_normal_rows(theta, own, scale=scale[begin:end], prior=part)
            assert np.array_equal(theta, together[begin:end])


def test_no_rows_are_no_error() -> None:
    """Blocks of some runs are empty."""
    statistics = np.zeros((0, statistics_width(3)), np.float32)
    prior = RowPrior(np.zeros(3, np.float32), np.ones(3, np.float32))
    theta = np.zeros((0, 3), np.float32)
    draw_normal_rows(theta, statistics, scale=np.zeros(0), prior=prior)
    assert len(squared_errors(theta, statistics)) == 0


def test_not_a_number_stays_in_its_row() -> None:
    """Protects the detection of divergence, and the rows beside it."""
    rng = np.random.default_rng(2)
    statistics = packed(rng, 9, 5, per_row=20)
    statistics[3] = np.nan
    prior = RowPrior(np.zeros(5, np.float32), np.ones(5, np.float32))
    theta = rng.normal(size=(9, 5)).astype(np.float32)
    draw_normal_rows(theta, statistics, scale=np.ones(9), prior=prior)
    assert np.isnan(theta[3]).all()
    assert np.isfinite(np.delete(theta, 3, axis=0)).all()
