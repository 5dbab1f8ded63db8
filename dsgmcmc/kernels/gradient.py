"""The gradient of a cell's energy, generated for one rank K and one likelihood.

For every rating x_ij of a cell, with eta = W_i . H_j + a_i + b_j and e the score d log density / d eta, which is
x - eta for a Gaussian,

    out_w[i] -= scale * e * (H_j, 1)        out_h[j] -= scale * e * (W_i, 1)

and the sum of e^2 is returned. Ratings come sorted by row, so that W_i and its gradient stay in registers
while a row's ratings pass. The source has one scalar variable per column, which the compiler packs into
vectors (SLP vectorisation), on these conditions, found by measurement: all of a rating's loads come before
its stores, the dot product is a balanced tree, indices are unsigned (Numba spends instructions on negative
ones) and the factors are flat arrays with a constant row length. From rank 16 on vectors are as wide as the processor
has them, which takes a fifth less time where that is 512 bits; below it makes no difference.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from dsgmcmc.kernels import jit
from dsgmcmc.kernels.formula.parser import functions, parse

UNROLLED = 128
"""Ranks above go through their columns in blocks: unrolled, they would take tens of seconds to compile."""

BLOCK = 64
"""Columns of such a block: four vectors each of row, gradient and column stay in registers."""

WIDE = 16
"""Rank from which on vectors of 512 bits are asked for."""


@functools.cache
def gradient_kernel(
    K: int, biases: bool, weighted: bool = False, score: str = "x - eta", offset: bool = False
) -> Callable[..., float]:
    """Compile the gradient for one rank.

    Parameters
    ----------
    K : int
        Rank, 1 to 512.
    biases : bool
        The factors have one more column, the biases: D = K + 1, else D = K.
    weighted : bool
        Scale the gradient and the squared scores by row and by column: heteroscedastic noise.
    score : str
        e as an expression of x and eta, in the language of formulas.
    offset : bool
        The predictor of every rating has an offset, besides.

    Returns
    -------
    f(indptr, indices, values, theta_w, theta_h, out_w, out_h, scale) -> float
        `indptr` (n + 1,) int64, `indices` (nnz,) int32 and `values` (nnz,) float32, centred: the cell's
        ratings in CSR. `theta_w`, `out_w` (n, D) and `theta_h`, `out_h` (m, D) float32; gradients are added to
        the latter. `scale` float. The sum of squared scores is returned. Offsets, (nnz,) float32, come after `values`.

        With noise scales g_i and g'_j there are four more arguments before `scale`: `weight_w` (n,) and `weight_h`
        (m,) float32, `sse_w` (n,) and `sse_h` (m,) float64. The gradient and the returned sum are of
        g_i g'_j e^2, and sum_j g'_j e^2 is added to sse_w[i], g_i e^2 to sse_h[j].

    Raises
    ------
    ValueError
        K is outside 1 to 512, or the score is no such expression.
    """
    if not 1 <= K <= 512:
        raise ValueError(f"rank K = {K} is outside 1 to 512")
    rows = (_unrolled if K <= UNROLLED else _blocked)(K, biases, weighted, score_expression(score), offset)
    source = functions("float32") + _function(K, weighted, rows, offset)
    name = f"gradient_{K}{'_biases' if biases else ''}{'_weighted' if weighted else ''}{'_offset' if offset else ''}"
    kernel: Callable[..., float] = jit.compile_source(name, source).gradient
    return kernel


def _function(K: int, weighted: bool, rows: list[str], offset: bool) -> str:
    """Source of the kernel around the lines for one row."""
    floats = "float32[:, ::1], " * 4
    weights = "float32[::1], float32[::1], float64[::1], float64[::1], " if weighted else ""
    offsets = "float32[::1], " if offset else ""
    decorator = jit.decorator(f"float64(int64[::1], int32[::1], float32[::1], {offsets}{floats}{weights}float64)")
    extra = "weight_w, weight_h, sse_w, sse_h, " if weighted else ""
    lines = [
        f'"""Rank {K}."""',
        *(["wide_vectors()"] if K >= WIDE else []),
        "scale = float32(scale)",
        "tw = theta_w.reshape(theta_w.size)",
        "th = theta_h.reshape(theta_h.size)",
        "ow = out_w.reshape(out_w.size)",
        "oh = out_h.reshape(out_h.size)",
        "total = 0.0",
    ]
    if K > UNROLLED:
        lines += ["errors = np.empty(np.max(np.diff(indptr)) if indptr.size > 1 else 0, np.float32)"]
    lines += ["for i in range(theta_w.shape[0]):", *_indented(rows), "return total"]
    given = f"indptr, indices, values, {'offsets, ' if offset else ''}theta_w, theta_h, out_w, out_h"
    header = f"def gradient({given}, {extra}scale):"
    return "\n".join((decorator, header, *_indented(lines))) + "\n"


def _indented(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]


def _dot(K: int) -> str:
    """Dot product as a balanced tree of sums."""
    terms = [f"w{k} * h{k}" for k in range(K)]
    while len(terms) > 1:
        half = len(terms) // 2
        pairs = [f"({a} + {b})" for a, b in zip(terms[:half], terms[half : 2 * half], strict=True)]
        terms = pairs + terms[2 * half :]
    return terms[0]


def _load(name: str, array: str, base: str, count: int) -> list[str]:
    return [f"{name}{k} = {array}[{base} + uint64({k})]" for k in range(count)]


def _update(K: int, biases: bool) -> list[str]:
    """One rating's share of both gradients; `e` carries the scale."""
    lines = [f"g{k} -= e * h{k}" for k in range(K)] + ([f"g{K} -= e"] if biases else [])
    lines += [f"oh[q + uint64({k})] = o{k} - e * w{k}" for k in range(K)]
    return lines + ([f"oh[q + uint64({K})] = o{K} - e"] if biases else [])


def score_expression(score: str) -> str:
    """Check a score, and write it again for the compiler."""
    found = parse(f"e = {score}")
    if len(found.lines) > 1:
        raise ValueError(f"the score {score!r} is more than one expression")
    if found.free - {"x", "eta"}:
        raise ValueError(f"the score {score!r} is of x and eta alone, not of {min(found.free - {'x', 'eta'})}")
    return found.lines[0].partition(" = ")[2]


def _account(weighted: bool) -> list[str]:
    """Account for the score `e` and turn it into the gradient's factor."""
    if not weighted:
        return ["row_total += e * e", "e *= scale"]
    return [
        "other = weight_h[j]",
        "square = e * e",
        "row_total += other * square",
        "sse_h[j] += own * square",
        "e *= own * other * scale",
    ]


def _around(weighted: bool, lines: list[str]) -> list[str]:
    """One row: its squared errors are summed in float32, rows in float64."""
    first = ["row_total = float32(0)", "begin = uint64(indptr[i])", "end = uint64(indptr[i + 1])"]
    if not weighted:
        return [*first, *lines, "total += row_total"]
    last = ["sse_w[i] += row_total", "total += float64(own) * float64(row_total)"]
    return [*first, "own = weight_w[i]", *lines, *last]


def _unrolled(K: int, biases: bool, weighted: bool, score: str, offset: bool) -> list[str]:
    """Lines for one row i: all columns at once."""
    D = K + biases
    rating = [
        "j = uint64(indices[r])",
        f"q = j * uint64({D})",
        *_load("h", "th", "q", D),
        *_load("o", "oh", "q", D),
    ]
    eta = f"(w{K} + h{K}) + {_dot(K)}" if biases else _dot(K)
    rating += ["x = values[r]", f"eta = offsets[r] + ({eta})" if offset else f"eta = {eta}"]
    rating += [f"e = {score}", *_account(weighted), *_update(K, biases)]
    lines = [f"p = uint64(i) * uint64({D})", *_load("w", "tw", "p", D), *_load("g", "ow", "p", D)]
    lines += ["for r in range(begin, end):", *_indented(rating)]
    lines += [f"ow[p + uint64({k})] = g{k}" for k in range(D)]
    return _around(weighted, lines)


def _blocked(K: int, biases: bool, weighted: bool, score: str, offset: bool) -> list[str]:
    """Lines for one row i: the scores of all its ratings first, block by block, then the gradients.

    A score that is the residual itself is gathered from the rating down, any other from the predictor.
    """
    residual = score == "(x - eta)"
    first = "values[r]" if residual else "float32(0)"
    if offset:
        first = "values[r] - offsets[r]" if residual else "offsets[r]"
    found = ["e = errors[r - base]"] if residual else ["x = values[r]", "eta = errors[r - base]", f"e = {score}"]
    rating = ["j = uint64(indices[r])", *found, *_account(weighted), "errors[r - base] = e"]
    lines = [
        "base = begin",
        *predictor_pass(K, biases, "-" if residual else "+", first),
    ]
    lines += ["for r in range(begin, end):", *_indented(rating), *gradient_pass(K, biases)]
    return _around(weighted, lines)


def predictor_pass(K: int, biases: bool, sign: str = "+", first: str = "float32(0)") -> list[str]:
    """Lines for one row i that put `first`, plus or minus the predictor, into ``errors`` for its ratings.

    ``errors`` begins with rating number ``base``.
    """
    D = K + biases
    bias = f" {sign} tw[uint64(i * {D} + {K})] {sign} th[j * uint64({D}) + uint64({K})]" if biases else ""
    lines = ["for r in range(begin, end):", "    j = uint64(indices[r])", f"    errors[r - base] = {first}{bias}"]

    def columns(count: int, last: bool, column: str) -> list[str]:
        if not count:
            return []
        rating = [f"q = uint64(indices[r]) * uint64({D}) + {column}", *_load("h", "th", "q", count)]
        rating += [f"errors[r - base] {sign}= {_dot(count)}"]
        row = [f"p = uint64(i) * uint64({D}) + {column}", *_load("w", "tw", "p", count)]
        return [*row, "for r in range(begin, end):", *_indented(rating)]

    return lines + _by_blocks(K, biases, columns)


def gradient_pass(K: int, biases: bool) -> list[str]:
    """Lines for one row i that add its ratings' shares of both gradients, their scores being in ``errors`` as above."""
    D = K + biases

    def columns(count: int, last: bool, column: str) -> list[str]:
        width = count + last
        rating = [f"q = uint64(indices[r]) * uint64({D}) + {column}", "e = errors[r - base]"]
        rating += [*_load("h", "th", "q", count), *_load("o", "oh", "q", width), *_update(count, last)]
        row = [
            f"p = uint64(i) * uint64({D}) + {column}",
            *_load("w", "tw", "p", count),
            *_load("g", "ow", "p", width),
        ]
        row += ["for r in range(begin, end):", *_indented(rating)]
        return row + [f"ow[p + uint64({k})] = g{k}" for k in range(width)]

    return _by_blocks(K, biases, columns)


def _by_blocks(K: int, biases: bool, columns: Callable[[int, bool, str], list[str]]) -> list[str]:
    """Repeat a pass over blocks of columns, then over the columns that are left and the bias."""
    blocks, rest = divmod(K, BLOCK) if K > UNROLLED else (0, K)
    whole = [f"for block in range({blocks}):", *_indented(columns(BLOCK, False, f"uint64(block * {BLOCK})"))]
    last = columns(rest, biases, f"uint64({blocks * BLOCK})") if rest or biases else []
    return (whole if blocks else []) + last


_WEIGH = """
{decorator}
def weigh(indptr, indices, weight_w, weight_h, sums_w, sums_h):
    '''Add w_ij = g_i g'_j and w_ij^2 over a block's ratings to the sums of rows and of columns.'''
    sh = sums_h.reshape(sums_h.size)
    for i in range(indptr.shape[0] - 1):
        own = float64(weight_w[i])
        total = 0.0
        squares = 0.0
        for q in range(uint64(indptr[i]), uint64(indptr[i + 1])):
            j = uint64(indices[q])
            at = j + j
            w = own * float64(weight_h[j])
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

    Adds the sums over a cell's ratings of w_ij = g_i g'_j and of its square to `sums_w` (n, 2) and `sums_h` (m, 2),
    float32; the noise scales `weight_w` and `weight_h` are (n,) and (m,) float32.
    """
    signature = "void(int64[::1], int32[::1], float32[::1], float32[::1], float32[:, ::1], float32[:, ::1])"
    source = _WEIGH.format(decorator=jit.decorator(signature))
    kernel: Callable[..., None] = jit.compile_source("weigh", source).weigh
    return kernel
