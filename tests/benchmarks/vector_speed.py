"""CPU microseconds an iteration of SGLD and SGHMC on a vector, beside BlackJAX and SGMCMCJax in the same run.

    python tests/benchmarks/vector_speed.py --environment rivals      # installs them from PyPI there at the first call

Logistic regression, N = 100,000 data, 1,000 of them an iteration, D = 100. Ours are the samplers of the registry as
`sample` runs them, on parts of the data, in float64. The rivals' kernels draw their data with replacement, and are
compiled together with the loop around them; they are in float32, as JAX is unless told, and in float64. All have one
thread, and take turns of so many iterations, so that what else the machine does strikes all alike.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import process_time

import numpy as np

from dsgmcmc.densities.sample import vector_target
from dsgmcmc.densities.targets.regression import Regression
from dsgmcmc.samplers import SAMPLERS

HERE = Path(__file__).resolve().parent
N, D, BATCH = 100_000, 100, 1_000
PACKAGES = ["jax", "blackjax", "sgmcmcjax"]
RIVALS = (("sgld", "blackjax"), ("sgld", "sgmcmcjax"), ("sghmc", "sgmcmcjax"))


class Ours:
    """A sampler of ours; `seconds` of CPU of some iterations more."""

    def __init__(self, name, features, responses):
        kind = SAMPLERS[name]
        self.sampler = kind(kind.Config(step_size=0.01, warm_up=0), 0)
        self.target = vector_target(Regression(features, responses), self.sampler, grid=N // BATCH, schedule="random")
        self.sampler.start(self.target, 0.1)
        self.made = 0

    def seconds(self, count):
        begin = process_time()
        self.sampler.advance(self.target, self.made, count)
        self.made += count
        return process_time() - begin


class Rival:
    """One of theirs, in a process of its own."""

    def __init__(self, python, package, name, data, bits, count):
        threads = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        variables = {**os.environ, "XLA_FLAGS": threads, "JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": str(int(bits == 64))}
        variables.pop("PYTHONPATH", None)
        command = [python, HERE / "vector_speed_run.py", package, name, data, str(BATCH), str(count)]
        self.process = subprocess.Popen(
            command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def seconds(self, count):
        if self.process.poll() is not None:  # it does not run with the JAX of today
            return float("nan")
        self.process.stdin.write("on\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline() or "nan")


def environment(folder):
    """Python of an environment with the rivals."""
    python = folder.resolve() / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    return python


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--environment", type=Path, default=Path("rivals"), help="folder for the rivals' packages")
    parser.add_argument("--iterations", type=int, default=1000, help="of a turn")
    parser.add_argument("--turns", type=int, default=9)
    options = parser.parse_args()
    python, rng = environment(options.environment), np.random.default_rng(0)
    features = rng.normal(size=(N, D))
    responses = (rng.random(N) < 1 / (1 + np.exp(-features @ rng.normal(scale=0.1, size=D)))).astype(np.float64)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data.npz"
        np.savez(data, features=features, responses=responses)
        rows = {(name, "dsgmcmc, float64"): Ours(name, features, responses) for name in ("sgld", "sghmc")}
        for name, package in RIVALS:
            for bits in (32, 64):
                rows[name, f"{package}, float{bits}"] = Rival(python, package, name, data, bits, options.iterations)
        found = {label: [] for label in rows}
        for turn in range(options.turns + 1):
            for label, contender in rows.items():
                seconds = contender.seconds(options.iterations)
                if turn:  # the first compiles
                    found[label].append(1e6 * seconds / options.iterations)
    print("| | package | least | median |\n|---|---|---|---|")
    for (name, package), seen in sorted(found.items(), key=lambda item: (item[0][0], np.median(item[1]))):
        print(f"| {name} | {package} | {min(seen):.0f} | {np.median(seen):.0f} |")


if __name__ == "__main__":
    main()
