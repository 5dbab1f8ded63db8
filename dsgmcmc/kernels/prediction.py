"""Predictions for pairs of a row and a column, and sums over draws of the scores of all items."""

from __future__ import annotations

import functools
from collections.abc import Callable

from dsgmcmc.kernels import jit

_PREDICT = '''\
{decorator}
def predict(rows, cols, theta_w, theta_h, out):
    """Dot products of rank {K}."""
    for q in range(rows.shape[0]):
        i = rows[q]
        j = cols[q]
        dot = float32(0)
        for k in range({K}):
            dot += theta_w[i, k] * theta_h[j, k]
        out[q] = dot{biases}
'''

_CELLS = '''\
{decorator}
def cells(rows, cols, theta_w, theta_h, inverse_w, inverse_h, noise, d, centre, variance):
    """Predictor and noise variance of cells at draw d, into column d of centre and variance (q, draws)."""
    noise = float32(noise)
    for q in range(rows.shape[0]):
        i = rows[q]
        j = cols[q]
        dot = float32(0)
        for k in range({K}):
            dot += theta_w[i, k] * theta_h[j, k]
        centre[q, d] = dot{biases}
        variance[q, d] = noise * inverse_w[i] * inverse_h[j]
'''

_SCORES = '''\
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

_BIASES = " + (theta_w[i, {K}] + theta_h[j, {K}])"


@functools.cache
def predict_kernel(K: int, biases: bool) -> Callable[..., None]:
    """Compile the prediction for pairs of a row and a column, for one rank.

    Parameters
    ----------
    K : int
        Rank, 0 to 512; 0 only with biases.
    biases : bool
        Whether the factors have biases in one more column.

    Returns
    -------
    f(rows, cols, theta_w, theta_h, out) -> None
        `rows`, `cols` (q,) int32, `theta_w` (n, D) and `theta_h` (m, D) float32. `out` (q,) float32 is set to
        W_i . H_j + a_i + b_j, without the mean.
    """
    source = _PREDICT.format(
        decorator=jit.decorator("void(int32[::1], int32[::1], float32[:, ::1], float32[:, ::1], float32[::1])"),
        K=K,
        biases=_BIASES.format(K=K) if biases else "",
    )
    kernel: Callable[..., None] = jit.compile_source(f"predict_{K}", source).predict
    return kernel


@functools.cache
def cells_kernel(K: int, biases: bool) -> Callable[..., None]:
    """Compile the predictors of pairs, and their noise variances, at one draw.

    Returns
    -------
    f(rows, cols, theta_w, theta_h, inverse_w, inverse_h, noise, d, centre, variance) -> None
        `rows`, `cols` (q,) int32; `theta_w` (n, D), `theta_h` (m, D) float32; `inverse_w` (n,), `inverse_h` (m,)
        float32, 1 / g of every row; `noise` 1 / tau. Column `d` of `centre` and `variance`, (q, draws) float32, is set.
    """
    signature = (
        "void(int32[::1], int32[::1], float32[:, ::1], float32[:, ::1], float32[::1], float32[::1], float64, int64, "
        "float32[:, ::1], float32[:, ::1])"
    )
    source = _CELLS.format(decorator=jit.decorator(signature), K=K, biases=_BIASES.format(K=K) if biases else "")
    kernel: Callable[..., None] = jit.compile_source(f"cells_{K}", source).cells
    return kernel


@functools.cache
def scores_kernel() -> Callable[..., None]:
    """Compile the sums over draws of all items' scores and squared scores, for ranking.

    Returns
    -------
    f(score, row_bias, column_bias, weight, mean, square) -> None
        `score`, `mean`, `square` (n, m) float32, `row_bias` (n,), `column_bias` (m,) float32, `weight` float.
    """
    signature = "void(float32[:, ::1], float32[::1], float32[::1], float64, float32[:, ::1], float32[:, ::1])"
    kernel: Callable[..., None] = jit.compile_source("scores", _SCORES.format(decorator=jit.decorator(signature))).add
    return kernel
