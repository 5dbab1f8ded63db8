"""Speed of the kernels that go through the ratings, on one core, compared with the peak of the
core.

    python tests/benchmarks/kernels.py

Millions of ratings a second for the gradient, for the same by hand in C++ (`kernels.cpp`, with the
compiler and the flags that the title shows), in turns, for the gradient with noise scales, and for
the sums of outer products of Gibbs sampling; for these also billions of operations a second, (D +
1)(D + 2) a rating, and their share of the peak of the core. All are the fastest of many
repetitions. It needs g++.
"""

import ctypes
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import numpy as np
from bench import arguments, run_program, say, say_head

from dsgmcmc.kernels.compact_ratings import kernel_arguments
from dsgmcmc.kernels.gradient import gradient_kernel
from dsgmcmc.kernels.normal_rows import (
    OuterProducts,
    add_outer_products,
    addresses,
    statistics_width,
)

RATINGS = 200_000
ROWS = 3000
COLUMNS = 1000
COMPILER = "g++", "-O3", "-march=native", "-ffast-math", "-mprefer-vector-width=512"


def fastest(*works: Callable[[], object], repeats: int = 40) -> list[float]:
    """Seconds of the fastest repetition of each, in turns, after one call that compiles."""
    seconds = []
    for work in works * (repeats + 1):
        begin = perf_counter()
        work()
        seconds.append(perf_counter() - begin)
    return [min(seconds[first :: len(works)]) for first in range(len(works), 2 * len(works))]


def by_hand(k: int) -> ctypes.CDLL:
    """The functions in C++, for a rank."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "kernels.so")
        run_program(
            *COMPILER,
            "-shared",
            "-fPIC",
            f"-DK={k}",
            Path(__file__).with_suffix(".cpp"),
            "-o",
            library,
        )
        return ctypes.CDLL(str(library))


def measure(k: int) -> list[float]:
    """The figures of a rank, with biases."""
    rng = np.random.default_rng(0)
    indptr = np.searchsorted(np.sort(rng.integers(ROWS, size=RATINGS)), np.arange(ROWS + 1))
    columns = (COLUMNS * rng.random(RATINGS) ** 2).astype(np.uint16)
    stars = rng.integers(10, size=RATINGS).astype(np.uint8)
    levels = np.linspace(-1.5, 1.5, 10, dtype=np.float32)
    ratings = kernel_arguments(indptr, columns, stars, levels)
    w, h = (rng.normal(0, 0.1, (n, k + 1)).astype(np.float32) for n in (ROWS, COLUMNS))
    arrays = (*ratings, w, h, np.zeros_like(w), np.zeros_like(h))
    scales = [np.ones(n, np.float32) for n in (ROWS, COLUMNS)]
    errors = [np.zeros(n) for n in (ROWS, COLUMNS)]
    width = statistics_width(k + 1)
    sums = np.zeros((ROWS, width), np.float32)
    functions = by_hand(k)
    plain = gradient_kernel(k, True)
    weighted = gradient_kernel(k, True, weighted=True)
    block = indptr, columns, levels[stars], w, h
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in block]
    seconds = fastest(
        lambda: plain(*arrays, 1e-6),
        lambda: functions.gradient(ROWS, COLUMNS, *pointers, ctypes.c_double(1e-6)),
    )
    seconds += fastest(lambda: weighted(*arrays, *scales, *errors, 1e-6))
    cell = OuterProducts(ratings, h, scales[1], sums)
    seconds += fastest(
        lambda: add_outer_products(addresses([cell]), cell.features.shape[1], rank=k)
    )
    operations = 2 * width * RATINGS / seconds[-1]
    speeds = [RATINGS / 1e6 / duration for duration in seconds]
    return [*speeds, operations / 1e9, 100 * operations / 1e6 / functions.peak()]


def main() -> None:
    """Print a line for each rank, a multiple of 16."""
    arguments(__doc__).parse_args()
    version = subprocess.check_output([COMPILER[0], "-dumpfullversion"], text=True).strip()
    compiled = f"C++, g++ {version} {' '.join(COMPILER[1:])}"
    say_head(
        "K",
        "gradient",
        compiled,
        "gradient, weighted",
        "outer products",
        "Gflop/s",
        "% of the peak",
    )
    for k in (16, 32, 64):
        say(k, *(f"{figure:.1f}" for figure in measure(k)))


if __name__ == "__main__":
    main()
