"""Whether the gradient would gain from factors kept in 16 bits: bfloat16 read into float32 arithmetic.

    python tests/benchmarks/storage_types.py

Compiles the gradient kernel as it is, and as it would be if it read both factors as bfloat16, the upper half of a
float32: a shift makes the one of the other, which is the cheapest conversion that there is. Gradients and sums stay
float32. Prints the time of a rating of both, in turns, the quickest call of each, for a column block that fits the
caches and for one that does not. Not part of the tests.
"""

from __future__ import annotations

import re
from time import perf_counter
from typing import Any

import numpy as np

from dsgmcmc.kernels import gradient, jit
from dsgmcmc.kernels.formula.parser import functions

ROWS, RATINGS = 1500, 60_000
#: Rows of the column block: of MovieLens 1M and 20M at a grid of 4, and more than caches hold.
COLUMNS = (926, 6_686, 400_000)


def kernels(K: int) -> tuple[Any, Any]:
    """Compile both, with biases."""
    source = functions("float32") + gradient._function(K, False, gradient._unrolled(K, True, False, "(x - eta)"))
    read = re.sub(r"([wh]\d+) = (t[wh]\[.*\])", r"\1 = uint32(uint32(\2) << uint32(16)).view(float32)", source)
    read = read.replace("float32[:, ::1], float32[:, ::1], ", "uint16[:, ::1], uint16[:, ::1], ", 1)
    return jit.compile_source("float32", source).gradient, jit.compile_source("bfloat16", read).gradient


def seconds(turns: int, K: int, columns: int) -> list[float]:
    """Quickest call of both."""
    rng = np.random.default_rng(0)
    indptr = np.linspace(0, RATINGS, ROWS + 1).astype(np.int64)
    indices = rng.integers(0, columns, RATINGS).astype(np.int32)
    values = rng.standard_normal(RATINGS).astype(np.float32)
    theta = [(0.1 * rng.standard_normal((n, K + 1))).astype(np.float32) for n in (ROWS, columns)]
    halves = [(array.view(np.uint32) >> 16).astype(np.uint16) for array in theta]
    out = [np.zeros_like(array) for array in theta]
    best = [np.inf, np.inf]
    for _ in range(turns):
        for number, (kernel, read) in enumerate(zip(kernels(K), (theta, halves), strict=True)):
            begin = perf_counter()
            kernel(indptr, indices, values, *read, *out, 1e-3)
            best[number] = min(best[number], perf_counter() - begin)
    return best


def main() -> None:
    """Print a table."""
    print(f"{'K':>3}{'columns':>10}{'float32':>10}{'bfloat16':>10}  ns a rating")
    for K in (16, 32, 64):
        for columns in COLUMNS:
            full, half = (1e9 * best / RATINGS for best in seconds(60, K, columns))
            print(f"{K:3}{columns:10,}{full:10.2f}{half:10.2f}  {full / half:.2f} times", flush=True)


if __name__ == "__main__":
    main()
