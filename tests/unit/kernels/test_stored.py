"""Ratings in few bytes and in many, bit by bit; and cut into column blocks, against SciPy."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy import sparse

from dsgmcmc.kernels.compact_ratings import (
    FEW,
    Numbering,
    index_type,
    kernel_arguments,
    split_columns,
    transposed,
)
from dsgmcmc.kernels.gradient import gradient_kernel, spread_kernel, weigh_kernel
from dsgmcmc.kernels.ordinal import ordinal_kernel
from dsgmcmc.types import Factor

ROWS = 40
COLUMNS = 30
LEVELS = 5
K = 3

Arrays = list[np.ndarray]


def zeros(*widths: int) -> Arrays:
    """For rows and for columns."""
    return [np.zeros((n, width), np.float32) for width in widths for n in (ROWS, COLUMNS)]


def gradient(stored_cell: tuple, values: np.ndarray, theta: Arrays, scales: Arrays) -> Arrays:
    outs = zeros(K + 1)
    errors = [np.zeros(n) for n in (ROWS, COLUMNS)]
    gradient_kernel(K, True, weighted=True)(*stored_cell, *theta, *outs, *scales, *errors, 0.7)
    return [*outs, *errors]


def thresholds(stored_cell: tuple, values: np.ndarray, theta: Arrays, scales: Arrays) -> Arrays:
    outs = zeros(K + 1)
    slopes = [np.zeros(n, np.float32) for n in (ROWS, COLUMNS)]
    tables = np.sort(np.random.default_rng(4).normal(size=(COLUMNS, LEVELS + 1)).astype(np.float32))
    sums = np.zeros(tables.shape)
    ordinal_kernel(K, True, scaled=True, cut_by=Factor.H)(
        *stored_cell, *theta, *outs, tables, sums, *scales, *slopes, 0.7
    )
    return [*outs, sums, *slopes]


def pattern(stored_cell: tuple, values: np.ndarray, theta: Arrays, scales: Arrays) -> Arrays:
    outs = zeros(K + 1)
    sums = zeros(2)
    spread_kernel(K + 1)(*stored_cell[:2], *theta, *outs)
    weigh_kernel()(*stored_cell[:2], *scales, *sums)
    return [*outs, *sums]


@pytest.mark.parametrize("kernel", [gradient, thresholds, pattern])
def test_bits_do_not_depend_on_how_ratings_are_stored(kernel: Callable[..., Arrays]) -> None:
    """Columns in two bytes or four, values in one or four; their number is odd, as halves of it are
    counted.
    """
    rng = np.random.default_rng(3)
    indptr = np.concatenate([[0], np.cumsum(rng.integers(0, 25, ROWS))])
    indptr[-1] += 1 - indptr[-1] % 2
    columns, codes = (rng.integers(0, n, indptr[-1]) for n in (COLUMNS, LEVELS))
    numbers = rng.permutation(LEVELS).astype(np.float32)
    table = numbers
    codes = codes.astype(np.uint8)
    theta = [rng.normal(size=each.shape).astype(np.float32) for each in zeros(K + 1)]
    scales = [rng.gamma(2, size=n).astype(np.float32) for n in (ROWS, COLUMNS)]
    found = []
    for index in (np.uint16, np.int32):
        for stored, known in ((codes, table), (table[codes], None)):
            stored_cell = kernel_arguments(indptr, columns.astype(index), stored, known)
            found.append(
                [each.tobytes() for each in kernel(stored_cell, table[codes], theta, scales)]
            )
    assert all(each == found[0] for each in found)
    assert any(any(each) for each in found[0])


def test_columns_past_two_bytes() -> None:
    """Both halves of a number count."""
    columns = np.array([3, 65_535, 65_536, 200_000], np.int32)
    wide = np.zeros((200_001, 1), np.float32)
    wide[columns, 0] = 1, 2, 4, 8
    out = np.zeros((2, 1), np.float32)
    back = np.zeros_like(wide)
    spread_kernel(1)(
        np.array([0, 3, 4]), columns.view(np.uint16), np.ones((2, 1), np.float32), wide, out, back
    )
    assert out.tolist() == [[7], [8]]
    assert np.flatnonzero(back).tolist() == columns.tolist()
    assert [index_type(n) for n in (1, 65_536, 65_537)] == [np.uint16, np.uint16, np.int32]


def test_numbers_stand_for_values() -> None:
    """256 different ones have numbers, in pieces as at once, and -0 is one of them; one more ends
    that.
    """
    rng = np.random.default_rng(5)
    values = np.concatenate([[0.0, -0.0], rng.normal(size=FEW - 2), [0.0, -0.0]]).astype(np.float32)
    numbering = Numbering()
    codes = []
    for piece in np.split(values, [1, 100]):
        codes.append(numbering.numbers(piece))
        assert codes[-1] is not None
    found = numbering.values[np.concatenate(codes)]
    assert found.tobytes() == values.tobytes()
    assert len(numbering.values) == FEW
    assert numbering.numbers(values[:0]) is not None
    assert numbering.numbers(np.float32([1, 77])) is None
    assert numbering.numbers(values[:1]) is None
    assert numbering.values.tobytes() == values[:FEW].tobytes()


def ratings(n: int, m: int, density: float = 0.2) -> sparse.csr_array:
    rng = np.random.default_rng(n * m)
    dense = rng.integers(1, 6, (n, m)) * (rng.random((n, m)) < density)
    return sparse.csr_array(dense.astype(np.float32))


@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
@pytest.mark.parametrize(
    "bounds", [[0, 40], [0, 7, 7, 23, 40], [0, 1, 39, 40], [0, 39, 65_576], [0, 39, 65_575]]
)
def test_blocks_are_the_columns(bounds, dtype):
    """Protects the cut: every rating once, in its block, columns local and ascending, empty blocks
    too.

    Column numbers take two bytes if all are below 65,536.
    """
    full = ratings(30, 40)
    blocks = split_columns(
        full.indptr.astype(np.int64),
        full.indices.astype(np.int32),
        full.data.astype(dtype),
        np.array(bounds, np.int64),
    )
    assert len(blocks) == len(bounds) - 1
    index = np.int32 if bounds[-1] == 65_576 else np.uint16
    for (indptr, indices, values), low, high in zip(blocks, bounds[:-1], bounds[1:], strict=True):
        assert (indptr.dtype, indices.dtype, values.dtype) == (np.int64, index, dtype)
        want = full[:, low:high].tocsr()
        want.sort_indices()
        assert np.array_equal(indptr, want.indptr)
        assert np.array_equal(indices, want.indices)
        np.testing.assert_array_equal(values, want.data)


@pytest.mark.parametrize("columns", [[4, 1], [2, 5], [-1, 2]])
def test_columns_that_do_not_ascend_within_the_bounds_are_refused(columns):
    """A rating would be lost, or written outside of the blocks. A column may recur."""
    indptr = np.array([0, 2, 4])
    bounds = np.array([0, 3, 5])
    values = np.arange(4, dtype=np.float32)
    first, second = split_columns(indptr, np.int32([1, 1, 0, 4]), values, bounds)
    assert [part.tolist() for part in first] == [[0, 2, 3], [1, 1, 0], [0, 1, 2]]
    assert [part.tolist() for part in second] == [[0, 0, 1], [1], [3]]
    with pytest.raises(ValueError, match="row 1 do not ascend within"):
        split_columns(indptr, np.int32([1, 1, *columns]), values, bounds)


@pytest.mark.parametrize("shape", [(30, 40), (1, 5), (70_000, 3)])
def test_the_same_by_column(shape):
    """Protects what rows of H are drawn from: every rating once, rows ascending, columns without
    ratings too.
    """
    full = ratings(*shape)
    want = full.tocsc()
    for index, dtype in ((np.int32, np.float32), (np.uint16, np.uint8)):
        stored_cell = (
            full.indptr.astype(np.int64),
            full.indices.astype(index),
            full.data.astype(dtype),
        )
        indptr, indices, values = transposed(*stored_cell, shape[1])
        assert (indptr.dtype, indices.dtype, values.dtype) == (
            np.int64,
            index_type(shape[0]),
            dtype,
        )
        assert np.array_equal(indptr, want.indptr)
        assert np.array_equal(indices, want.indices)
        assert np.array_equal(values, want.data)
