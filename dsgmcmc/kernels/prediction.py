"""Predictions for pairs of a row and a column."""

from __future__ import annotations

import functools
from collections.abc import Callable

from dsgmcmc.kernels import jit

_PAIRS = '''\
{decorator}
def pairs(rows, cols, theta_w, theta_h, {arguments}):
    """Dot products of rank {K}, and biases."""
    for q in range(rows.shape[0]):
        i = rows[q]
        j = cols[q]
        dot = float32(0)
        for k in range({K}):
            dot += theta_w[i, k] * theta_h[j, k]
        {centre} = dot{biases}
        {more}
'''


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
    return _pairs(K, biases, f"predict_{K}", {"out": "float32[::1]"}, "out[q]")


@functools.cache
def cells_kernel(K: int, biases: bool) -> Callable[..., None]:
    """Compile the predictors of pairs, and their noise variances, at one draw.

    Returns
    -------
    f(rows, cols, theta_w, theta_h, inverse_w, inverse_h, noise, d, centre, variance) -> None
        `rows`, `cols` (q,) int32; `theta_w` (n, D), `theta_h` (m, D) float32; `inverse_w` (n,), `inverse_h` (m,)
        float32, 1 / g of every row; `noise` 1 / tau. Column `d` of `centre` and `variance`, (q, draws) float32, is set.
    """
    vectors = dict.fromkeys(("inverse_w", "inverse_h"), "float32[::1]")
    outputs = dict.fromkeys(("centre", "variance"), "float32[:, ::1]")
    more = {**vectors, "noise": "float64", "d": "int64", **outputs}
    variance = "variance[q, d] = float32(noise) * inverse_w[i] * inverse_h[j]"
    return _pairs(K, biases, f"cells_{K}", more, "centre[q, d]", variance)


def _pairs(K: int, biases: bool, name: str, more: dict[str, str], centre: str, last: str = "") -> Callable[..., None]:
    """Compile a kernel over pairs, with these types of further arguments, which sets `centre` to the predictor."""
    types = ", ".join(["int32[::1]", "int32[::1]", "float32[:, ::1]", "float32[:, ::1]", *more.values()])
    source = _PAIRS.format(
        decorator=jit.decorator(f"void({types})"),
        arguments=", ".join(more),
        K=K,
        centre=centre,
        biases=f" + (theta_w[i, {K}] + theta_h[j, {K}])" if biases else "",
        more=last,
    )
    kernel: Callable[..., None] = jit.compile_source(name, source).pairs
    return kernel
