"""Our generated kernels beside hand-written C++ and NumPy, in one run on one core.

    python tests/benchmarks/kernels_cpp.py [--json] [--repeats 40]

The gradient is compared with three C++ kernels (`kernels_cpp.cpp`), compiled here with the system's compiler,
on random ratings with MovieLens 1M's shape: 6,040 x 3,706, 900,000 ratings, popularity skewed, cut in 4 x 4
blocks. The noise is compared with NumPy's. For the sake of busy machines, all rivals take turns and processor
time is measured. A figure is the best of several medians of five turns; the quartiles are those of the ratio
within single turns. Without a compiler there is nothing to compare with: exit 0.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from dsgmcmc.kernels.csr import split_columns
from dsgmcmc.kernels.gradient import gradient_kernel
from dsgmcmc.kernels.philox import normals
from dsgmcmc.kernels.stored import kernel_arguments

RANKS = (10, 16, 32, 64, 128)
ROWS, COLUMNS, RATINGS, GRID = 6040, 3706, 900_000, 4
SCALE = 1e-3


def compile_rivals(folder: Path) -> ctypes.CDLL | None:
    """The C++ kernels, or None without a compiler."""
    compiler = next(filter(None, map(shutil.which, ("g++", "clang++", "c++"))), None)
    if compiler is None:
        return None
    library = folder / "rivals.so"
    flags = ["-O3", "-march=native", "-std=c++17", "-shared", "-fPIC"]
    # What -ffast-math means here; itself, it would make this whole process flush denormals to zero.
    flags += ["-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math", "-fno-math-errno"]
    subprocess.run([compiler, *flags, "-o", library, Path(__file__).with_suffix(".cpp")], check=True)
    return ctypes.CDLL(str(library))


def rival(library: ctypes.CDLL, kind: str, K: int) -> Callable[..., float] | None:
    """A C++ kernel with the arguments of ours, or None where this machine has no AVX-512."""
    try:
        function = getattr(library, f"{kind}_{K}")
    except AttributeError:
        return None
    function.restype = ctypes.c_double

    def call(*arguments) -> float:
        *arrays, scale = arguments
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in arrays]
        return function(ctypes.c_int64(len(arrays[0]) - 1), *pointers, ctypes.c_float(scale))

    return call


def make_blocks() -> list[tuple[int, int, tuple]]:
    """(b, c, CSR arrays) of every block."""
    rng = np.random.default_rng(1)
    activity = rng.lognormal(0, 1, ROWS)
    popularity = rng.permutation(1 / (50 + np.arange(COLUMNS)))
    rows = rng.choice(ROWS, 2 * RATINGS, p=activity / activity.sum())
    columns = rng.choice(COLUMNS, 2 * RATINGS, p=popularity / popularity.sum())
    cells = np.sort(rng.permutation(np.unique(rows * COLUMNS + columns))[:RATINGS])
    indptr = np.searchsorted(cells // COLUMNS, np.arange(ROWS + 1))
    indices = (cells % COLUMNS).astype(np.int32)
    values = rng.standard_normal(len(cells)).astype(np.float32)
    row_bounds = np.linspace(0, ROWS, GRID + 1).astype(int)
    column_bounds = np.linspace(0, COLUMNS, GRID + 1).astype(np.int64)
    blocks = []
    for b in range(GRID):
        part = slice(indptr[row_bounds[b]], indptr[row_bounds[b + 1]])
        local = (indptr[row_bounds[b] : row_bounds[b + 1] + 1] - part.start).astype(np.int64)
        cut = split_columns(local, indices[part], values[part], column_bounds)
        blocks += [(b, c, (own, part.astype(np.int32), some)) for c, (own, part, some) in enumerate(cut)]
    return blocks


def take_turns(rivals: dict[str, Callable[[], object]], repeats: int) -> dict[str, np.ndarray]:
    """Processor seconds of every rival in every turn, after one turn to warm up."""
    seconds = {name: np.empty(repeats) for name in rivals}
    for turn in range(-1, repeats):
        for name, function in rivals.items():
            start = time.thread_time()
            function()
            if turn >= 0:
                seconds[name][turn] = time.thread_time() - start
    return seconds


def best_median(seconds: np.ndarray) -> float:
    """Seconds of the least disturbed five turns."""
    groups = seconds[: len(seconds) // 5 * 5].reshape(-1, 5)
    return float(np.median(groups, axis=1).min())


def compare(seconds: dict[str, np.ndarray], best: str) -> dict:
    """How many times as fast as a rival ours is."""
    ratio = best_median(seconds[best]) / best_median(seconds["ours"])
    return {
        "rival": best,
        "ratio": ratio,
        "quartiles": np.percentile(seconds[best] / seconds["ours"], [25, 75]).tolist(),
    }


def compare_gradients(library: ctypes.CDLL, blocks, K: int, repeats: int) -> dict:
    """Ratings a second of every kernel, after a check that they compute the same."""
    rng = np.random.default_rng(K)
    rows = [len(blocks[GRID * b][2][0]) - 1 for b in range(GRID)]
    columns = np.diff(np.linspace(0, COLUMNS, GRID + 1).astype(int))
    W, H = ([(0.1 * rng.standard_normal((n, K + 1))).astype(np.float32) for n in sizes] for sizes in (rows, columns))
    kernels = {kind: rival(library, kind, K) for kind in ("plain", "vector", "transposed")}
    gradient = gradient_kernel(K, biases=True)

    def ours(indptr, indices, values, *others):
        return gradient(*kernel_arguments(indptr, indices, values, None), *others)

    kernels = {"ours": ours} | {k: f for k, f in kernels.items() if f is not None}
    gradients = {name: ([np.zeros_like(w) for w in W], [np.zeros_like(h) for h in H]) for name in kernels}

    def run(name: str) -> float:
        out_w, out_h = gradients[name]
        return sum(kernels[name](*csr, W[b], H[c], out_w[b], out_h[c], SCALE) for b, c, csr in blocks)

    totals = {name: run(name) for name in kernels}
    for name in kernels:
        np.testing.assert_allclose(totals[name], totals["ours"], rtol=1e-5)
        for mine, theirs in zip(gradients["ours"], gradients[name], strict=True):
            np.testing.assert_allclose(np.concatenate(mine), np.concatenate(theirs), atol=1e-4)
    seconds = take_turns({name: lambda name=name: run(name) for name in kernels}, repeats)
    rates = {name: RATINGS / best_median(times) / 1e6 for name, times in seconds.items()}
    best = max((name for name in kernels if name != "ours"), key=rates.__getitem__)
    return {"K": K, "million_ratings_per_second": rates} | compare(seconds, best)


def compare_noise(repeats: int) -> dict:
    """Nanoseconds a normal, of ours and of NumPy."""
    out = np.empty(1 << 18, np.float32)
    generator = np.random.default_rng(0)
    seconds = take_turns(
        {
            "ours": lambda: normals(out, 0, 1, 0, 0, 0, 0),
            "numpy": lambda: generator.standard_normal(out=out, dtype=np.float32),
        },
        repeats,
    )
    nanoseconds = {name: best_median(times) / len(out) * 1e9 for name, times in seconds.items()}
    return {"nanoseconds": nanoseconds} | compare(seconds, "numpy")


def show(gradients: list[dict], noise: dict) -> None:
    """Print the tables."""
    print("gradient with biases, million ratings a second; ratio to the best C++ [quartiles]")
    print(f"{'K':>4} {'ours':>8} {'plain':>8} {'vector':>8} {'transposed':>11}   ratio")
    for line in gradients:
        rates = line["million_ratings_per_second"]
        cells = [
            f"{rates[name]:{width}.0f}" if name in rates else f"{'-':>{width}}"
            for name, width in (("ours", 8), ("plain", 8), ("vector", 8), ("transposed", 11))
        ]
        print(f"{line['K']:>4} {' '.join(cells)}   {ratio(line)}")
    cost = noise["nanoseconds"]
    print(f"noise: {cost['ours']:.2f} ns a normal, NumPy {cost['numpy']:.2f} ns: ratio {ratio(noise)}")


def ratio(line: dict) -> str:
    """The ratio and its spread."""
    low, high = line["quartiles"]
    return f"{line['ratio']:.2f} [{low:.2f}, {high:.2f}]"


def main() -> int:
    """Compile, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    parser.add_argument("--repeats", type=int, default=40, help="turns of every rival, at least 5")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        library = compile_rivals(Path(folder))
        if library is None:
            print("no C++ compiler (g++, clang++ or c++) in PATH: nothing to compare with", file=sys.stderr)
            return 0
        blocks = make_blocks()
        gradients = [compare_gradients(library, blocks, K, arguments.repeats) for K in RANKS]
        noise = compare_noise(arguments.repeats)
    if arguments.json:
        print(json.dumps({"gradient": gradients, "noise": noise}))
    else:
        show(gradients, noise)
    return 0


if __name__ == "__main__":
    sys.exit(main())
