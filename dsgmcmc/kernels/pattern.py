"""Sums along the pattern of a cell's ratings, whatever their values: who rated what."""

from __future__ import annotations

import functools
from collections.abc import Callable

from dsgmcmc.kernels import jit

UNROLLED = 65
"""Rows above go through their columns in blocks: unrolled, they would take many seconds to compile."""

BLOCK = 32
"""Columns of such a block."""


@functools.cache
def spread_kernel(D: int) -> Callable[..., None]:
    """Compile the sums along the pattern for rows of D numbers.

    Returns
    -------
    f(indptr, indices, in_w, in_h, out_w, out_h)
        `indptr` (n + 1,) int64 and `indices` (nnz,) int32: the pattern R of a cell in CSR. ``R in_h`` is added to
        `out_w` (n, D), ``R^T in_w`` to `out_h` (m, D); all float32.
    """
    whole, rest = divmod(D, BLOCK) if D > UNROLLED else (0, D)
    lines = [f"{long} = {short}.reshape({short}.size)" for long, short in zip(_FLAT, _ARRAYS, strict=True)]
    lines += ["for i in range(indptr.size - 1):"]
    if whole:
        lines += [f"    for block in range({whole}):", *_indented(_row(D, BLOCK, f"uint64(block * {BLOCK})"), 2)]
    if rest:
        lines += _indented(_row(D, rest, f"uint64({whole * BLOCK})"))
    signature = f"void(int64[::1], int32[::1], {', '.join(['float32[:, ::1]'] * 4)})"
    header = f"def spread(indptr, indices, {', '.join(_ARRAYS)}):"
    source = "\n".join((jit.decorator(signature), header, *_indented(lines))) + "\n"
    kernel: Callable[..., None] = jit.compile_source(f"spread_{D}", source).spread
    return kernel


_ARRAYS = ("in_w", "in_h", "out_w", "out_h")
_FLAT = ("iw", "ih", "ow", "oh")


def _row(D: int, count: int, column: str) -> list[str]:
    """Lines for `count` columns of a row; its own sums stay in registers while its ratings pass."""
    every = range(count)
    rating = [f"q = uint64(indices[r]) * uint64({D}) + {column}"]
    rating += [f"h{k} = ih[q + uint64({k})]" for k in every] + [f"o{k} = oh[q + uint64({k})]" for k in every]
    rating += [f"s{k} += h{k}" for k in every] + [f"oh[q + uint64({k})] = o{k} + w{k}" for k in every]
    lines = [f"p = uint64(i) * uint64({D}) + {column}"]
    lines += [f"w{k} = iw[p + uint64({k})]" for k in every] + [f"s{k} = ow[p + uint64({k})]" for k in every]
    lines += ["for r in range(uint64(indptr[i]), uint64(indptr[i + 1])):", *_indented(rating)]
    return lines + [f"ow[p + uint64({k})] = s{k}" for k in every]


def _indented(lines: list[str], depth: int = 1) -> list[str]:
    return ["    " * depth + line for line in lines]
