"""Errors and log scores by whose noise differs, and whether priors have the scales of noise.

    python tests/benchmarks/noise.py parks sensors
    python tests/benchmarks/noise.py u1.base --test u1.test --rank 8
    python tests/benchmarks/noise.py parks --seeds 2 --models "shared" "both"

A set is a name of `tests/measured_sets.py` or of `tests/shapes.py`, whose seeds make other ratings,
or a file that `dsgmcmc prepare` reads, with a test set. Each model of `MODELS` is sampled by the
command for `--sweeps` sweeps; RMSE, MAE and log density of the held-out ratings are printed.
*apart* are models whose rows have one prior, whatever their noise, and the others those whose rows
have the scale of their noise in it; *default* is what the command chooses.
"""

import json
import tempfile
from pathlib import Path

from bench import arguments
from measured_sets import SETS
from shapes import SHAPES

from dsgmcmc.parallel.mpirun import run_dsgmcmc

COUPLED = ("--set", "coupled_noise=true")
APART = ("--set", "coupled_noise=false")
MODELS = {
    "default": (),
    "shared": ("--noise", "shared"),
    "by-user": ("--noise", "by-user", *COUPLED),
    "by-item": ("--noise", "by-item", *COUPLED),
    "both": ("--noise", "both", *COUPLED),
    "by-user, apart": ("--noise", "by-user", *APART),
    "by-item, apart": ("--noise", "by-item", *APART),
    "both, apart": ("--noise", "both", *APART),
}


def command(*words: str) -> str:
    """Run a command of the program; return the last line of its messages if it fails."""
    done = run_dsgmcmc(list(words))
    if done.returncode:
        return done.stderr.strip().rpartition("\n")[2]
    return ""


def prepared(name: str, test: str, seed: int, data: Path) -> None:
    """Write the ratings file of a set."""
    makers = SETS | {name: shape.make for name, shape in SHAPES.items()}
    if name in makers:
        makers[name](seed).prepare(data, seed)
    else:
        failed = command("prepare", name, str(data), "--test", test)
        if failed:
            raise SystemExit(failed)


def main() -> None:
    """Print a line for each set, seed and model."""
    parser = arguments(__doc__)
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--test", default="")
    parser.add_argument("--rank", default="auto")
    parser.add_argument("--features", default="yes")
    parser.add_argument("--sampler", default="gibbs")
    parser.add_argument("--scale", default="identity")
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
                    given += ("--scale", options.scale)
                    sampler = ("--sampler", options.sampler)
                    failed = command(*sampled, *length, *given, *sampler, *MODELS[model])
                    if failed:
                        print(f"{name:10} {seed} {model:16} {failed}", flush=True)
                        continue
                    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
                    figures = [
                        f"{summary[key]:.4f}"
                        for key in ("rmse_mean", "mae_mean", "log_predictive_density")
                        if summary[key] is not None
                    ]
                    print(f"{name:10} {seed} {model:16}", *figures, flush=True)


if __name__ == "__main__":
    main()
