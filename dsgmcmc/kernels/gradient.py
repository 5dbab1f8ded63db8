"""Kernels over a cell's ratings: the gradient of its energy, and sums over its pattern.

For every rating x_ij of a cell, with eta = W_i . H_j + a_i + b_j and the score e = d log density /
d eta, which is x - eta for Gaussian ratings,

    out_w[i] -= scale * e * (H_j, 1)        out_h[j] -= scale * e * (W_i, 1)

and the sum of e^2 is returned. The pattern is the set of rated pairs, without the values of
ratings. `dsgmcmc.kernels.row_layout` generates the passes over the ratings.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from dsgmcmc.kernels.compact_ratings import COLUMN
from dsgmcmc.kernels.compiling import jit
from dsgmcmc.kernels.compiling.jit import indented
from dsgmcmc.kernels.formulas.parser import functions, parse_score
from dsgmcmc.kernels.row_layout import (
    FACTORS,
    PATTERN,
    Passes,
    Record,
    by_rows,
    compile_gradient,
    compile_passes,
    rating_arguments,
)


@functools.cache
def gradient_kernel(
    K: int,
    biases: bool,
    *,
    weighted: bool = False,
    score: str = "x - eta",
    offset: bool = False,
    by_rating: bool = False,
) -> Callable[..., float]:
    """Compile the gradient for one rank.

    Parameters
    ----------
    K : int
        Rank, 0 to 512; 0 only with biases.
    biases : bool
        Whether the factors have biases in one more column: D = K + 1, otherwise D = K.
    weighted : bool
        Whether rows and columns have noise scales.
    score : str
        e as an expression of x and eta, in the language of formulas.
    offset : bool
        Whether an offset is added to the predictor of every rating.
    by_rating : bool
        Whether every rating has a weight, by which its gradient and its e^2 are multiplied.

    Returns
    -------
    f(indptr, indices, codes, values, theta_w, theta_h, out_w, out_h, scale) -> float
        The first four are the cell's centred ratings
        (`dsgmcmc.kernels.compact_ratings.kernel_arguments`). `theta_w`, `out_w` (n, D) and
        `theta_h`, `out_h` (m, D) are float32; the gradient is added to `out_w` and `out_h`. `scale`
        is a float. The sum of squared scores is returned. With `offset`, an argument (nnz,) float32
        follows `values`; `by_rating`, the weights follow it.

        With noise scales g_i and g'_j four arguments precede `scale`: `weight_w` (n,) and
        `weight_h` (m,) float32, `sse_w` (n,) and `sse_h` (m,) float64. Each rating's gradient and
        its e^2 in the returned sum are multiplied by g_i g'_j; sum_j g'_j e^2 is added to sse_w[i],
        and sum_i g_i e^2 to sse_h[j].

    Raises
    ------
    ValueError
        If K is outside 0 to 512, or 0 without biases, or the score is not an expression of x and
        eta.
    """
    passes = _PLAIN
    more: dict[str, str] = {}
    if weighted:
        passes = _WEIGHTED
        more = dict.fromkeys(("weight_w", "weight_h"), "float32[::1]")
        more |= dict.fromkeys(("sse_w", "sse_h"), "float64[::1]")
    passes = _with_score(passes, parse_score(score), offset=offset, by_rating=by_rating)
    of_ratings = rating_arguments(offset=offset, by_rating=by_rating)
    record = Record(K, biases)
    return compile_gradient(
        "gradient", record, passes, more=more, of_ratings=of_ratings, total=True
    )


#: With noise scales: ``others`` has g'_j of the ratings in a group, and ``squares`` their squared
#: scores.
_WEIGHTED = Passes(
    scores=["squares[t] = {e} * e", "errors[t] = {e} * scale * others[t]"],
    kept=("others", "squares"),
    before=("others[r - base] = weight_h[j]",),
    row_before=("weight = weight_w[i]",),
    after=("sse_h[j] += weight * squares[r - base]",),
    row_after=(
        "row_total = float32(0)",
        "for r in range(begin, end):",
        "    row_total += others[r - base] * squares[r - base]",
        "sse_w[i] += row_total",
        "total += weight * row_total",
    ),
    score="errors[r - base] * weight",
)
_PLAIN = Passes(scores=["group_total += {e} * e", "errors[t] = {e} * scale"])


def _with_score(passes: Passes, score: str, *, offset: bool, by_rating: bool) -> Passes:
    """Return passes that compute scores times the scale; ``{e}`` is a score times its weight.

    Squared scores are summed in float32 by group, then in float64.
    """
    if offset:
        predictor = "eta = errors[t] + offsets[base + t]"
    else:
        predictor = "eta = errors[t]"
    rating = ["x = observed[t]", predictor, f"e = {score}"]
    weighted = "e"
    if by_rating:
        rating.append("weighted = weights[base + t] * e")
        weighted = "weighted"
    rating += [line.format(e=weighted) for line in passes.scores]
    scores = [
        "group_total = float32(0)",
        "for t in range(count):",
        *indented(rating),
        "total += group_total",
    ]
    return passes._replace(scores=scores, functions=functions("float32"), begin=["total = 0.0"])


_WEIGH = """
@kernel("void(int64[::1], uint16[::1], float32[::1], float32[::1],"
        " float32[:, ::1], float32[:, ::1])")
def weigh(indptr, indices, weight_w, weight_h, sums_w, sums_h):
    '''Add w_ij = g_i g'_j and w_ij^2 over a block's ratings to the sums of rows and of columns.'''
    sh = sums_h.reshape(sums_h.size)
    halves = indices.size > indptr[indptr.shape[0] - 1]
    for i in range(indptr.shape[0] - 1):
        weight = float64(weight_w[i])
        total = 0.0
        squares = 0.0
        for q in range(uint64(indptr[i]), uint64(indptr[i + 1])):
            j = column(indices, halves, q)
            at = j + j
            w = weight * float64(weight_h[j])
            square = w * w
            n = sh[at]
            s = sh[at + uint64(1)]
            total += w
            squares += square
            sh[at] = n + float32(w)
            sh[at + uint64(1)] = s + float32(square)
        sums_w[i, 0] += float32(total)
        sums_w[i, 1] += float32(squares)
"""


@functools.cache
def weigh_kernel() -> Callable[..., None]:
    """Compile ``f(indptr, indices, weight_w, weight_h, sums_w, sums_h)``.

    The kernel adds the sums over a cell's ratings of w_ij = g_i g'_j and of its square to `sums_w`
    (n, 2) and `sums_h` (m, 2), float32; the noise scales `weight_w` and `weight_h` are (n,) and
    (m,) float32.
    """
    kernel: Callable[..., None] = jit.compile_source("weigh", COLUMN + _WEIGH).weigh
    return kernel


@functools.cache
def spread_kernel(D: int, sides: str = "wh") -> Callable[..., None]:
    """Compile the products of the pattern, and of its transpose, with factors of D columns.

    Returns
    -------
    f(indptr, indices, in_w, in_h, out_w, out_h)
        `indptr` and `indices` are the pattern R of a cell
        (`dsgmcmc.kernels.compact_ratings.kernel_arguments`). ``R in_h`` is added to `out_w` (n, D),
        and ``R^T in_w`` to `out_h` (m, D); all float32. With `sides` "w" or "h", only `out_w` or
        only `out_h` changes.
    """
    split = D % 8 == 1 and D > 1
    record = Record(D - split, biases=False, split=split, sides=sides)
    lines = [*record.begin(), *by_rows(record.gradients("float32(-1)")), *record.end()]
    return compile_passes(f"spread_{D}", PATTERN | FACTORS, lines)


@functools.cache
def product_kernel(D: int) -> Callable[..., None]:
    """Compile products of rows with sums of outer products of the other factor's rated rows.

    Returns
    -------
    f(indptr, indices, theta_w, theta_h, out_w, out_h)
        For every rating (i, j) of the pattern, with e = theta_w[i] . theta_h[j], e theta_h[j] is
        added to `out_w[i]`, and e theta_w[i] to `out_h[j]`. If y is passed as theta_w, ``(sum_j h_j
        h_j^T) y_i`` is added to `out_w[i]`.
    """
    record = Record(D, biases=False)
    row = ["base = begin", *record.predictors(), *record.gradients("-errors[r - base]")]
    # each row fills only the beginning of `errors`
    errors = "errors = np.empty(final + uint64(4), np.float32)"
    lines = [*record.begin(), errors, *by_rows(row), *record.end()]
    return compile_passes(f"products_{D}", PATTERN | FACTORS, lines)
