"""Kernels beyond 2^31 ratings and numbers of a block: what 32 bits cannot count.

Arrays are files full of holes, mapped into memory: only the pages that a kernel touches take any.
"""

import itertools

import numpy as np
import pytest

from dsgmcmc.kernels.compact_ratings import kernel_arguments, split_kernel
from dsgmcmc.kernels.gradient import gradient_kernel
from dsgmcmc.kernels.prediction import predict_kernel

FAR = 2**31 + 5  # where the ratings lie
WIDE = 70  # numbers of a row of a factor
ROWS = 2**31 // WIDE + 1  # of a factor; its last rows lie past 2^31 numbers


@pytest.fixture
def holes(tmp_path):
    """Make an array of zeros that takes no room."""
    made = itertools.count()

    def make(shape, dtype=np.float32):
        return np.asarray(np.memmap(tmp_path / str(next(made)), dtype, "w+", shape=shape))

    return make


def ratings(holes):
    """Three ratings of two rows: near the beginning of their arrays, and past 2^31; in many bytes,
    in few.
    """
    indptr = np.array([0, 2, 3])
    table = np.array([1.0, -2.0, 0.5], np.float32)
    for index, stored, cell in (
        (np.int32, table, None),
        (np.uint16, np.arange(3, dtype=np.uint8), table),
    ):
        yield indptr, np.array([0, 2, 1], index), stored, cell
        far = holes(FAR + 3, index), holes(FAR + 3, stored.dtype)
        far[0][FAR:] = (0, 2, 1)
        far[1][FAR:] = stored
        yield indptr + FAR, *far, cell


def factors(K):
    rng = np.random.default_rng(0)
    return [rng.standard_normal((n, K)).astype(np.float32) for n in (2, 3)]


@pytest.mark.parametrize("K", [3, WIDE])
def test_gradient_of_ratings_past_32_bits(holes, K):
    """The gradient is that of the same ratings at the beginning of their arrays, bit by bit;
    unrolled and blocked.
    """
    found = []
    for cell in ratings(holes):
        outs = [np.zeros_like(theta) for theta in factors(K)]
        total = gradient_kernel(K, False, weighted=False)(
            *kernel_arguments(*cell), *factors(K), *outs, 1.0
        )
        found.append([total, *(out.tobytes() for out in outs)])
    assert all(each == found[0] for each in found)


def test_cutting_ratings_past_32_bits(holes):
    """Into blocks: as at the beginning of their arrays."""
    found = []
    for indptr, indices, values, _ in itertools.islice(ratings(holes), 2):
        starts = np.zeros((2, 3), np.int64)
        bounds = np.array([0, 2, 3])
        firsts = np.zeros(3, np.int64)
        cut = np.zeros(3, np.int32), np.zeros(3, np.float32)
        split_kernel("int32", "float32")(indptr, indices, values, bounds, starts, firsts, *cut)
        found.append([array.tolist() for array in (starts, *cut)])
    assert found[0] == found[1]


def test_rows_past_32_bits_of_numbers(holes):
    """A gradient and a prediction with the last row of a factor of more than 2^31 numbers."""
    K = WIDE
    row = np.float32(np.arange(WIDE) % 7 - 2.5)
    theta = holes((ROWS + 2, K))
    out = holes((ROWS + 2, K))
    theta[-1] = row
    own = np.ones((1, K), np.float32)
    column = np.array([ROWS + 1], np.int32)
    predicted = np.zeros(1, np.float32)
    predict_kernel(K, False)(np.zeros(1, np.int32), column, own, theta, predicted)
    assert predicted[0] == row.sum()
    indptr = holes(ROWS + 3, np.int64)
    indptr[-1] = 1
    cell = kernel_arguments(indptr, np.zeros(1, np.uint16), np.array([1.5], np.float32), None)
    gradient_kernel(K, False, weighted=False)(*cell, theta, own, out, np.zeros_like(own), 1.0)
    assert out[-1].tolist() == [row.sum() - 1.5] * K
    assert not out[:2].any()
