"""Sums over the pattern of a cell's ratings: over the rated pairs, without the values of ratings."""

from __future__ import annotations

import functools
from collections.abc import Callable

from dsgmcmc.kernels import jit
from dsgmcmc.kernels.jit import indented
from dsgmcmc.kernels.records import PASSES, Record


@functools.cache
def spread_kernel(D: int) -> Callable[..., None]:
    """Compile the products of the pattern, and of its transpose, with factors of D columns.

    Returns
    -------
    f(indptr, indices, in_w, in_h, out_w, out_h)
        `indptr` and `indices` are the pattern R of a cell (`dsgmcmc.kernels.stored.kernel_arguments`). ``R in_h`` is
        added to `out_w` (n, D), and ``R^T in_w`` to `out_h` (m, D); all float32.
    """
    record = Record(D, biases=False)
    row = ["begin = uint64(indptr[i])", "end = uint64(indptr[i + 1])", *record.gradients(score="float32(-1)")]
    lines = ["wide_vectors()", *record.begin(), "for i in range(theta_w.shape[0]):", *indented(row), *record.end()]
    signature = f"void(int64[::1], uint16[::1], {', '.join(['float32[:, ::1]'] * 4)})"
    header = "def spread_along(indptr, indices, theta_w, theta_h, out_w, out_h):"
    source = PASSES + "\n".join((jit.decorator(signature), header, *indented(lines))) + "\n"
    kernel: Callable[..., None] = jit.compile_source(f"spread_{D}", source).spread_along
    return kernel


@functools.cache
def product_kernel(D: int) -> Callable[..., None]:
    """Compile the products of rows with the second moments of the other factor's rated rows, for rows of D numbers.

    Returns
    -------
    f(indptr, indices, theta_w, theta_h, out_w, out_h)
        For every rating (i, j) of the pattern, with e = theta_w[i] . theta_h[j], e theta_h[j] is added to `out_w[i]`,
        and e theta_w[i] to `out_h[j]`. If y is passed as theta_w, ``(sum_j h_j h_j^T) y_i`` is added to `out_w[i]`.
    """
    record = Record(D, biases=False)
    row = ["begin = uint64(indptr[i])", "end = uint64(indptr[i + 1])", "base = begin"]
    row += [*record.predictors(), *record.gradients(score="-errors[r - base]")]
    most = ["most = 0", "for i in range(theta_w.shape[0]):", "    most = max(most, indptr[i + 1] - indptr[i])"]
    errors = [*most, "errors = np.empty(most + 4, np.float32)"]
    lines = ["wide_vectors()", *record.begin(), *errors, "for i in range(theta_w.shape[0]):", *indented(row)]
    signature = f"void(int64[::1], uint16[::1], {', '.join(['float32[:, ::1]'] * 4)})"
    header = "def products_along(indptr, indices, theta_w, theta_h, out_w, out_h):"
    source = PASSES + "\n".join((jit.decorator(signature), header, *indented([*lines, *record.end()]))) + "\n"
    kernel: Callable[..., None] = jit.compile_source(f"products_{D}", source).products_along
    return kernel
