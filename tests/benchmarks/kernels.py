"""Speed of the kernels that go through the ratings, on one core, compared with the peak of the core.

    python tests/benchmarks/kernels.py [--ranks 16,32,64]

Millions of ratings a second for the gradient, plain and with noise scales, and for the sums of outer products of Gibbs
sampling; for these sums also billions of operations a second, (D + 1)(D + 2) a rating, and their share of the peak of
the core. All are the fastest of many repetitions.
"""

from collections.abc import Callable
from time import perf_counter

import numpy as np
from bench import arguments, say, say_head

from dsgmcmc.kernels import jit
from dsgmcmc.kernels.gradient import gradient_kernel
from dsgmcmc.kernels.normal_rows import add_outer_products, statistics_width
from dsgmcmc.kernels.stored import kernel_arguments

RATINGS, ROWS, COLUMNS = 200_000, 3000, 1000  # a block of a few megabytes, as in runs


def fastest(work: Callable[[], object], repeats: int = 40) -> float:
    """Seconds of the fastest repetition, after one call that compiles."""
    work()
    seconds = []
    for _ in range(repeats):
        begin = perf_counter()
        work()
        seconds.append(perf_counter() - begin)
    return min(seconds)


def peak(chains: int = 128, steps: int = 100_000) -> float:
    """Float32 operations a second of one core: products and sums of numbers in registers.

    `steps` on each of `chains` numbers at once: enough of them to hide how long an operation takes.
    """
    lines = ['@kernel("void(float32[::1], float32, float32, int64)")', "def peak(out, x, y, steps):"]
    lines += [f"    s{i} = out[uint64({i})]" for i in range(chains)]
    lines += ["    for _ in range(steps):", *(f"        s{i} = s{i} * x + y" for i in range(chains))]
    lines += [f"    out[uint64({i})] = s{i}" for i in range(chains)]
    work = jit.compile_source("peak", "\n".join(lines) + "\n").peak
    out = np.zeros(chains, np.float32)
    return 2 * chains * steps / fastest(lambda: work(out, 0.5, 0.5, steps))


def measure(k: int, most: float) -> list[float]:
    """The figures of a rank, with biases."""
    rng = np.random.default_rng(0)
    indptr = np.searchsorted(np.sort(rng.integers(ROWS, size=RATINGS)), np.arange(ROWS + 1))
    columns = (COLUMNS * rng.random(RATINGS) ** 2).astype(np.uint16)
    stars = rng.integers(10, size=RATINGS).astype(np.uint8)
    ratings = kernel_arguments(indptr, columns, stars, np.linspace(-1.5, 1.5, 10, dtype=np.float32))
    w, h = (rng.normal(0, 0.1, (n, k + 1)).astype(np.float32) for n in (ROWS, COLUMNS))
    arrays = (*ratings, w, h, np.zeros_like(w), np.zeros_like(h))
    scales = [np.ones(n, np.float32) for n in (ROWS, COLUMNS)]
    errors = [np.zeros(n) for n in (ROWS, COLUMNS)]
    width = statistics_width(k + 1)
    sums = np.zeros((ROWS, width), np.float32)
    plain, weighted = gradient_kernel(k, True), gradient_kernel(k, True, True)
    outer = fastest(lambda: add_outer_products(ratings, h, scales[1], k, sums))
    seconds = [fastest(lambda: plain(*arrays, 1e-6)), fastest(lambda: weighted(*arrays, *scales, *errors, 1e-6)), outer]
    operations = 2 * width * RATINGS / outer
    return [*(RATINGS / 1e6 / duration for duration in seconds), operations / 1e9, 100 * operations / most]


def main() -> None:
    """Print a line for each rank."""
    parser = arguments(__doc__)
    parser.add_argument("--ranks", default="16,32,64")
    most = peak()
    say_head("K", "gradient", "gradient, weighted", "outer products", "Gflop/s", "% of the peak")
    for k in map(int, parser.parse_args().ranks.split(",")):
        say(k, *(f"{figure:.1f}" for figure in measure(k, most)))


if __name__ == "__main__":
    main()
