"""Sums over draws of the scores of all items, for ranking."""

from __future__ import annotations

import functools
from collections.abc import Callable

from dsgmcmc.kernels import jit

_SOURCE = '''\
{decorator}
def add(score, row_bias, column_bias, weight, mean, square):
    """Add a draw's scores (n, m) and their squares, with a weight, to two sums."""
    weight = float32(weight)
    for i in range(score.shape[0]):
        a = row_bias[i]
        for j in range(score.shape[1]):
            x = score[i, j] + a + column_bias[j]
            mean[i, j] += weight * x
            square[i, j] += weight * x * x
'''


@functools.cache
def add_scores() -> Callable[..., None]:
    """Compile the sum.

    Returns
    -------
    f(score, row_bias, column_bias, weight, mean, square) -> None
        `score`, `mean`, `square` (n, m) float32, `row_bias` (n,), `column_bias` (m,) float32, `weight` float.
    """
    signature = "void(float32[:, ::1], float32[::1], float32[::1], float64, float32[:, ::1], float32[:, ::1])"
    kernel: Callable[..., None] = jit.compile_source("scores", _SOURCE.format(decorator=jit.decorator(signature))).add
    return kernel
