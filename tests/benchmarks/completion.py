"""Time and memory of `BPMF.complete`, against products of matrices of the same size.

    python tests/benchmarks/completion.py [--rows 5000] [--columns 2000]

A fifth of the cells of a made-up matrix is known. The first call also reads the saved draws. Times
are seconds of the processor, with BLAS on one thread if ``OPENBLAS_NUM_THREADS=1``. The peak of
memory is that of the process, the fit included.
"""

import resource
import time

import numpy as np
from bench import arguments, say, say_head

from dsgmcmc import BPMF

RANK = 32
DRAWS = 85
MODEL = {
    "rank": RANK,
    "sampler": "baoab",
    "iterations": DRAWS + 25,
    "burn_in": 25,
    "options": {"thin": 1, "save_draws": DRAWS},
}


def seconds_of_products(rows: int, columns: int) -> float:
    """Return the time of one product of factors in float32 for each draw."""
    rng = np.random.default_rng(1)
    left = rng.normal(size=(rows, RANK)).astype(np.float32)
    right = rng.normal(size=(RANK, columns)).astype(np.float32)
    out = np.empty((rows, columns), np.float32)
    np.matmul(left, right, out=out)  # the first call gets the memory
    start = time.process_time()
    for _ in range(DRAWS):
        np.matmul(left, right, out=out)
    return time.process_time() - start


def main() -> int:
    """Measure the calls."""
    parser = arguments(__doc__)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--columns", type=int, default=2000)
    sizes = parser.parse_args()
    rng = np.random.default_rng(0)
    shape = (sizes.rows, sizes.columns)
    matrix = rng.normal(size=(sizes.rows, 8)) @ rng.normal(size=(8, sizes.columns))
    matrix += rng.normal(size=shape)
    matrix[rng.random(shape) > 0.2] = np.nan
    model = BPMF(**MODEL).fit(matrix)
    products = seconds_of_products(*shape)
    say_head("call", "seconds", "relative to a product a draw", "peak memory, MB")
    say(f"{DRAWS} products", f"{products:.2f}", "1", "")
    calls = {
        "complete(), first": {},
        "complete()": {},
        "complete(return_std=True)": {"return_std": True},
        "complete(draws=1)": {"draws": 1},
    }
    for name, options in calls.items():
        start = time.process_time()
        model.complete(**options)
        seconds = time.process_time() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
        say(name, f"{seconds:.2f}", f"{seconds / products:.2f}", f"{peak:,.0f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
