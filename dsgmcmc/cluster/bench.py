"""Speed of this machine at what sampling is made of: kernels, noise, the ring.

Every figure is a median of repetitions after a warm-up, beside the quartiles. Times of a busy machine are not
to be compared; ratios within one call are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from dsgmcmc.types import Comm

Line = dict[str, Any]

RATINGS, ROWS, COLUMNS = 200_000, 3000, 1000  # a block of a few megabytes, as in runs


def spread(work: Callable[[], object], repeats: int) -> tuple[float, float, float]:
    """Seconds of `work`: median, lower and upper quartile, after one call to warm up."""
    work()
    seconds = []
    for _ in range(repeats):
        begin = perf_counter()
        work()
        seconds.append(perf_counter() - begin)
    low, median, high = np.percentile(seconds, [25, 50, 75])
    return float(median), float(low), float(high)


def kernels(ranks: Sequence[int], repeats: int = 30) -> list[Line]:
    """Measure the kernels that go through the ratings, with biases, on one core, for ranks K.

    Returns ratings a second of the gradient, plain and with noise scales. Of the sums of outer products that Gibbs
    sampling takes: ratings a second, and billions of operations a second that the result needs, (D + 1)(D + 2) a
    rating, beside the most that this core does.
    """
    from dsgmcmc.kernels.gradient import gradient_kernel
    from dsgmcmc.kernels.outer import add_outer_products, statistics_width
    from dsgmcmc.kernels.stored import kernel_arguments

    rng = np.random.default_rng(0)
    rows = np.sort(rng.integers(ROWS, size=RATINGS))
    indptr = np.searchsorted(rows, np.arange(ROWS + 1))
    columns = (COLUMNS * rng.random(RATINGS) ** 2).astype(np.uint16)
    stars = rng.integers(10, size=RATINGS).astype(np.uint8)
    ratings = kernel_arguments(indptr, columns, stars, np.linspace(-1.5, 1.5, 10, dtype=np.float32))
    lines = []
    most = peak()
    for k in ranks:
        w, h = (rng.normal(0, 0.1, (n, k + 1)).astype(np.float32) for n in (ROWS, COLUMNS))
        arrays = (*ratings, w, h, np.zeros_like(w), np.zeros_like(h))
        plain, weighted = gradient_kernel(k, True), gradient_kernel(k, True, True)
        one = [np.ones(n, np.float32) for n in (ROWS, COLUMNS)] + [np.zeros(n) for n in (ROWS, COLUMNS)]
        median, low, high = spread(lambda f=plain, a=arrays: f(*a, 1e-6), repeats)  # type: ignore[misc]
        slower, _, _ = spread(lambda f=weighted, a=arrays, o=one: f(*a, *o, 1e-6), repeats)  # type: ignore[misc]
        million = RATINGS / 1e6
        line = {"rank": k, "m_ratings_per_s": million / median, "quartiles": [million / high, million / low]}
        out = np.zeros((ROWS, statistics_width(k + 1)), np.float32)
        outer = (ratings, h, one[1], k, out)
        sums, _, _ = spread(lambda a=outer: add_outer_products(*a), repeats)  # type: ignore[misc]
        line |= {"m_ratings_per_s_weighted": million / slower, "outer_m_ratings_per_s": million / sums}
        billion = 2 * statistics_width(k + 1) * RATINGS / 1e9
        lines.append({**line, "outer_gflop_per_s": billion / sums, "peak_gflop_per_s": most})
    return lines


def peak(chains: int = 128, steps: int = 100_000) -> float:
    """Billions of float32 operations a second of one core at its best: products and sums of numbers in registers.

    `steps` on each of `chains` numbers at once: enough of them to hide how long an operation takes.
    """
    from dsgmcmc.kernels import jit

    each = range(chains)
    lines = [jit.decorator("void(float32[::1], float32, float32, int64)"), "def peak(out, x, y, steps):"]
    lines += [f"    s{i} = out[uint64({i})]" for i in each]
    lines += ["    for _ in range(steps):", *(f"        s{i} = s{i} * x + y" for i in each)]
    lines += [f"    out[uint64({i})] = s{i}" for i in each]
    work = jit.compile_source("peak", "\n".join(lines) + "\n").peak
    out = np.zeros(chains, np.float32)
    _, fastest, _ = spread(lambda: work(out, 0.5, 0.5, steps), 20)
    return 2 * chains * steps / fastest / 1e9


def noise(repeats: int = 50) -> list[Line]:
    """Nanoseconds per normal of the counter-based noise, and of NumPy's generator, on one core."""
    from dsgmcmc.kernels.philox import normals

    out = np.empty(1 << 18, np.float32)
    generator = np.random.default_rng(0)
    works: dict[str, Callable[[], object]] = {
        "dsgmcmc": lambda: normals(out, 0, 1, 0, 0, 0, 0),
        "numpy": lambda: generator.standard_normal(out=out, dtype=np.float32),
    }
    lines = []
    for name, work in works.items():
        median, low, high = (1e9 * seconds / len(out) for seconds in spread(work, repeats))
        lines.append({"generator": name, "ns_per_normal": median, "quartiles": [low, high]})
    return lines


def ring(comm: Comm, sizes: Sequence[int], repeats: int = 50) -> list[Line]:
    """Exchange, handover and ordered sum of blocks of `sizes` bytes between the processes of `comm`. Collective.

    Every process sends one block on and receives one, as in a sweep; or, in the memory of a node, hands one over, if
    there is such and the blocks are not too large for it. The sum is of one block's partials a process.
    """
    from dsgmcmc.parallel.ring import Ring
    from dsgmcmc.parallel.shared_buffers import SharedColumnBuffers

    lines = []
    here = Ring(comm, comm.size)
    for size in sizes:
        count = max(size // 4, 1)
        block = {here.rank: np.zeros(count, np.float32)}
        partial, shared = np.zeros((1, max(size // 8, 1))), here.shared_buffers([count] * here.grid)

        def exchange(block: Any = block, count: int = count, shared: SharedColumnBuffers | None = None) -> None:
            arriving = shared.buffer if shared else lambda _, n: np.empty(n, np.float32)
            peers = shared.peers if shared else ()
            going = here.move(block, 0, 1 % here.grid, lambda c: arriving(c, count), peers)
            going.depart(here.rank)
            going.finish()

        line: Line = {"bytes": size, "processes": comm.size}
        for name, work in (("exchange", exchange), ("sum", lambda p=partial: here.total(p))):
            comm.Barrier()
            median, low, high = spread(work, repeats)
            line |= {f"{name}_us": 1e6 * median, f"{name}_quartiles": [1e6 * low, 1e6 * high]}
        there = {here.rank: shared.buffer(here.rank, count)} if shared else {}
        handed = spread(lambda b=there, n=count, s=shared: exchange(b, n, s), repeats) if shared else None  # type: ignore[misc]
        line["handover_us"] = 1e6 * handed[0] if handed else None
        line["exchange_gb_per_s"] = size / line["exchange_us"] / 1e3 if comm.size > 1 else None
        lines.append(line)
    return lines
