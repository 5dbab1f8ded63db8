"""Passes over a cell's ratings for effects of groups: predictors, sums by group, and adding the effects."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal

from dsgmcmc.kernels import jit
from dsgmcmc.kernels.jit import indented
from dsgmcmc.kernels.records import PASSES, Record
from dsgmcmc.kernels.stored import COLUMN
from dsgmcmc.types import Array, Float32, Int32

_GROUPS = '''\
{column}{add}
def add(groups, residuals, weights, out):
    """Weighted residuals, and weights, to the sums of their groups."""
    for r in range(groups.shape[0]):
        g = uint64(groups[r])
        out[g, uint64(0)] += weights[r] * residuals[r]
        out[g, uint64(1)] += weights[r]


{subtract}
def subtract(groups, effects, out):
    """Every group's effect off its ratings."""
    for r in range(groups.shape[0]):
        out[r] -= effects[uint64(groups[r])]


{weigh}
def weigh(indptr, indices, weight_w, weight_h, out):
    """w_ij = g_i g'_j of every rating."""
    halves = indices.size > indptr[indptr.shape[0] - 1]
    for i in range(indptr.shape[0] - 1):
        for r in range(uint64(indptr[i]), uint64(indptr[i + 1])):
            out[r] = weight_w[i] * weight_h[column(indices, halves, r)]
'''


@functools.cache
def predictor_kernel(K: int, biases: bool, sign: Literal["+", "-"]) -> Callable[..., None]:
    """Compile the sum, or the difference, of given values and the predictors of a cell's ratings, for one rank.

    Returns
    -------
    f(indptr, indices, values, theta_w, theta_h, errors)
        `indptr` and `indices` come from `dsgmcmc.kernels.stored.kernel_arguments`; `values` (nnz,), `theta_w` (n, D)
        and `theta_h` (m, D) are float32. `errors` (nnz,) float32 is set to the values plus, or minus, the predictors.
    """
    signature = f"void(int64[::1], uint16[::1], float32[::1], {'float32[:, ::1], ' * 2}float32[::1])"
    record = Record(K, biases)
    row = ["begin = uint64(indptr[i])", "end = uint64(indptr[i + 1])", *record.predictors()]
    lines = [
        "wide_vectors()",
        *record.begin(gradients=False),
        "base = uint64(0)",
        "for i in range(theta_w.shape[0]):",
        *indented(row),
        "for r in range(values.size):",
        f"    errors[r] = values[r] {sign} errors[r]",
    ]
    header = "def predict(indptr, indices, values, theta_w, theta_h, errors):"
    source = "\n".join((jit.decorator(signature), header, *indented(lines))) + "\n"
    name = f"predict_ratings_{K}{'_biases' if biases else ''}"
    kernel: Callable[..., None] = jit.compile_source(name, PASSES + source).predict
    return kernel


@functools.cache
def _module() -> Any:
    source = _GROUPS.format(
        column=COLUMN,
        add=jit.decorator("void(int32[::1], float32[::1], float32[::1], float32[:, ::1])"),
        subtract=jit.decorator("void(int32[::1], float32[::1], float32[::1])"),
        weigh=jit.decorator("void(int64[::1], uint16[::1], float32[::1], float32[::1], float32[::1])"),
    )
    return jit.compile_source("groups", source)


def add_to_groups(groups: Int32, residuals: Float32, weights: Float32, out: Float32) -> None:
    """Add the weighted residuals and the weights of ratings to the sums of their groups.

    Parameters
    ----------
    groups : (nnz,) int32
        Group of every rating.
    residuals, weights : (nnz,) float32
    out : (G, 2) float32
        Sums of each group, which are added to.
    """
    _module().add(groups, residuals, weights, out)


def subtract_groups(groups: Int32, effects: Float32, out: Float32) -> None:
    """Subtract from `out`, (nnz,) float32, the effects (G,) float32 of the groups (nnz,) int32 of its ratings."""
    _module().subtract(groups, effects, out)


def weigh_ratings(pattern: tuple[Array, ...], weight_w: Float32, weight_h: Float32, out: Float32) -> None:
    """Set `out`, (nnz,) float32, to the product of the noise scales of each rating's row and column."""
    _module().weigh(*pattern, weight_w, weight_h, out)
