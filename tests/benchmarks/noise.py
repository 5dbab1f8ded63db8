"""Errors and log scores by whose noise differs, and whether priors have the scales of noise.

    python tests/benchmarks/noise.py parks sensors
    python tests/benchmarks/noise.py u1.base --test u1.test --rank 8
    python tests/benchmarks/noise.py parks --seeds 2 --models "shared" "both"

A set is a name of `tests/measured_sets.py` or of `tests/shapes.py`, whose seeds make other ratings,
or a file that `dsgmcmc prepare` reads, with a test set. Each model of `MODELS` is sampled by the
command for `--sweeps` sweeps by Gibbs, and its RMSE, MAE and log score on the held-out ratings are
printed. *apart* are models whose rows have one prior, whatever their noise; *default* is what the
command chooses.
"""

import json
import tempfile
from pathlib import Path

from bench import arguments
from measured_sets import SETS
from shapes import SHAPES

from dsgmcmc.parallel.mpirun import run_dsgmcmc

APART = ("--set", "coupled_noise=false")
MODELS = {
    "default": (),
    "shared": ("--noise", "shared"),
    "by-user": ("--noise", "by-user"),
    "by-item": ("--noise", "by-item"),
    "both": ("--noise", "both"),
    "by-user, apart": ("--noise", "by-user", *APART),
    "by-item, apart": ("--noise", "by-item", *APART),
    "both, apart": ("--noise", "both", *APART),
}


def command(*words: str) -> None:
    """Run a command of the program, which must succeed."""
    done = run_dsgmcmc(list(words))
    if done.returncode:
        raise SystemExit(done.stderr)


def prepared(name: str, test: str, seed: int, data: Path) -> None:
    """Write the ratings file of a set."""
    makers = SETS | {name: shape.make for name, shape in SHAPES.items()}
    if name in makers:
        makers[name](seed).prepare(data, seed)
    else:
        command("prepare", name, str(data), "--test", test)


def main() -> None:
    """Print a line for each set, seed and model."""
    parser = arguments(__doc__)
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--test", default="")
    parser.add_argument("--rank", default="auto")
    parser.add_argument("--features", default="yes")
    parser.add_argument("--sampler", default="gibbs")
    parser.add_argument("--sweeps", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    options = parser.parse_args()
    for name in options.sets:
        for seed in range(options.seeds):
            with tempfile.TemporaryDirectory() as folder:
                data = Path(folder) / "data.h5"
                prepared(name, options.test, seed, data)
                for model in options.models:
                    out = Path(folder) / model.replace(", ", "-")
                    sampled = ("sample", str(data), "--out", str(out), "--seed", str(seed))
                    length = ("--iterations", f"{options.sweeps}sweeps", "--burn-in", "100sweeps")
                    given = ("--rank", options.rank, "--features", options.features)
                    sampler = ("--sampler", options.sampler)
                    command(*sampled, *length, *given, *sampler, *MODELS[model])
                    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
                    print(
                        f"{name:10} {seed} {model:16} RMSE {summary['rmse_mean']:.4f}"
                        f"  MAE {summary['mae_mean']:.4f}"
                        f"  log density {summary['log_predictive_density']:.4f}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
