"""CPU microseconds an iteration of SGLD and SGHMC on a vector, beside BlackJAX, SGMCMCJax and posteriors in one run.

    python tests/benchmarks/vector_speed.py --environment rivals      # installs them from PyPI there at the first call
    python tests/benchmarks/vector_speed.py --environment rivals --model network

Logistic regression: N = 100,000 data, 1,000 of them an iteration, D = 100. Network: one hidden layer of 20 sigmoids, 20
inputs and 5 classes, 20,000 data, 500 of them an iteration; ours is `Network`, in NumPy. Ours are the samplers of the
registry as `sample` runs them, on parts of the data, in float64. The rivals draw their data with replacement. Those in
JAX are compiled together with the loop around them, in float32, as JAX is unless told, and in float64; posteriors, in
PyTorch, has its loop in Python. All have one thread, and take turns, so that what else the machine
does strikes all alike. Each of both libraries has an environment of its own; what does not run is nan.
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

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "papers"))

from neural_network import Network
from shared import python_with
from vector_speed_models import CLASSES, HIDDEN

from dsgmcmc.densities.regression import Regression
from dsgmcmc.densities.sample import vector_target
from dsgmcmc.samplers import SAMPLERS

HERE = Path(__file__).resolve().parent
#: Data, inputs, and data of an iteration.
SIZES = {"logistic": (100_000, 100, 1_000), "network": (20_000, 20, 500)}
#: Environments, and what is installed there.
PACKAGES = {"jax": ["jax", "blackjax", "sgmcmcjax"], "torch": ["posteriors", "torch", "numpy"]}
RIVALS = (
    ("sgld", "blackjax"),
    ("sgld", "sgmcmcjax"),
    ("sgld", "posteriors"),
    ("sghmc", "sgmcmcjax"),
    ("sghmc", "posteriors"),
)


class Ours:
    """A sampler of ours; `seconds` of CPU of some iterations more."""

    def __init__(self, name, density, batch):
        kind = SAMPLERS[name]
        rising = {"warm_up": 0} if "warm_up" in kind.Config.model_fields else {}
        self.sampler = kind(kind.Config(step_size=0.01, **rising), 0)
        self.target = vector_target(density, self.sampler, grid=density.n_data // batch, schedule="random")
        self.sampler.start(self.target, 0.1)
        self.made = 0

    def seconds(self, count):
        begin = process_time()
        self.sampler.advance(self.target, self.made, count)
        self.made += count
        return process_time() - begin


class Rival:
    """One of theirs, in a process of its own."""

    def __init__(self, folder, package, name, model, data, bits, count):
        library = "torch" if package == "posteriors" else "jax"
        threads = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        variables = {**os.environ, "XLA_FLAGS": threads, "JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": str(int(bits == 64))}
        variables.pop("PYTHONPATH", None)
        given = [name, model, data, str(SIZES[model][2]), str(count)]
        script = [HERE / "vector_speed_torch.py", *given, str(bits)]
        if library == "jax":
            script = [HERE / "vector_speed_run.py", package, *given]
        self.process = subprocess.Popen(
            [python_with(folder / library, *PACKAGES[library]), *script],
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def seconds(self, count):
        if self.process.poll() is not None:  # it does not run with the libraries of today
            return float("nan")
        self.process.stdin.write("on\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline() or "nan")


def made(model):
    """Density, and its data."""
    rng, (n, inputs, _) = np.random.default_rng(0), SIZES[model]
    features = rng.normal(size=(n, inputs))
    if model == "network":
        labels = np.argmax(features @ rng.normal(size=(inputs, CLASSES)) + rng.gumbel(size=(n, CLASSES)), axis=1)
        return Network(features, labels, HIDDEN, activation="sigmoid"), features, labels
    responses = (rng.random(n) < 1 / (1 + np.exp(-features @ rng.normal(scale=0.1, size=inputs)))).astype(np.float64)
    return Regression(features, responses), features, responses


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--environment", type=Path, default=Path("rivals"), help="folder for the rivals' packages")
    parser.add_argument("--model", choices=SIZES, default="logistic")
    parser.add_argument("--iterations", type=int, default=1000, help="of a turn")
    parser.add_argument("--turns", type=int, default=9)
    options = parser.parse_args()
    model, (density, features, responses) = options.model, made(options.model)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data.npz"
        np.savez(data, features=features, responses=responses)
        rows = {(name, "dsgmcmc, float64"): Ours(name, density, SIZES[model][2]) for name in ("sgld", "sghmc")}
        for name, package in RIVALS:
            for bits in (32, 64):
                rival = Rival(options.environment, package, name, model, data, bits, options.iterations)
                rows[name, f"{package}, float{bits}"] = rival
        found = {label: [] for label in rows}
        for turn in range(options.turns + 1):
            for label, contender in rows.items():
                seconds = contender.seconds(options.iterations)
                if turn:  # the first compiles
                    found[label].append(1e6 * seconds / options.iterations)
    print("| | package | least | median | over ours, in the median of the turns |\n|---|---|---|---|---|")
    for (name, package), seen in sorted(found.items(), key=lambda item: (item[0][0], np.median(item[1]))):
        ratio = np.median(np.array(seen) / found[name, "dsgmcmc, float64"])
        print(f"| {name} | {package} | {min(seen):.0f} | {np.median(seen):.0f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
