"""Failures of runs on ratings of all shapes, and the quality of their predictions.

    python tests/benchmarks/robust.py robust.jsonl
    python tests/benchmarks/robust.py robust.jsonl --shapes few --models plain auto --seeds 3
    python tests/benchmarks/robust.py amounts.jsonl --shapes log-normal gamma --auto-seeds 10
    python tests/benchmarks/robust.py robust.jsonl --tables

A cell is a shape of `tests/shapes.py`, or a set of `tests/measured_sets.py` that `--shapes` names,
a model, and a seed of the ratings, the split and the chain. Its ratings are prepared and sampled by
the command, with `LENGTH`, and the run is opened in Python. Each cell adds a line to the file, and
a cell that is in the file is not sampled again. So the script can be stopped and started again. It
has one process for each usable core, which samples its part of the cells. With --tables nothing is
sampled: the tables of the file are printed.

A cell has failed if the command does not end with status 0, or the run cannot be opened. A
likelihood that refuses the values (status 2) is left out. Numbers that are not finite are counted
in the summary and in the predictions of pairs, new users and new items among them. The log score of
a held-out rating is that of `dsgmcmc compare`: the log probability of a level or a whole number, or
a log density. The gain is the log score less that of the program's own baseline, biases only on the
scale of the model; its standard error is that of the differences over seeds.
"""

import json
import math
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from bench import arguments, markdown
from measured_sets import SETS
from shapes import SHAPES

from dsgmcmc import open_run
from dsgmcmc.errors import Exit
from dsgmcmc.model.likelihoods import LIKELIHOODS
from dsgmcmc.parallel.machine import usable_cores
from dsgmcmc.parallel.mpirun import run_dsgmcmc
from dsgmcmc.posterior.cells.predict import Predictor
from dsgmcmc.posterior.draws import ENTITIES
from dsgmcmc.posterior.heldout import predict_test
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.settings import PredictOptions
from dsgmcmc.runs.candidate_scores import are_discrete, scores_of
from dsgmcmc.storage.rundir import RunDirectory

#: Functions of a seed that make ratings, by the names of shapes and of sets of measurements.
MAKERS = {name: shape.make for name, shape in SHAPES.items()} | SETS
LENGTH = ("--iterations", "400sweeps", "--max-walltime", "10min")

#: Options of every model: normal noise, every other likelihood but that of clicks, and users'
#: thresholds.
MODELS = {"plain": [], "noise": ["--noise", "both"]} | {
    name: ["--likelihood", name, *(["--noise", "both"] if law.noise_quantities else [])]
    for name, law in LIKELIHOODS.items()
    if name not in ("gaussian", "all-cells")
}
MODELS["thresholds"] = [
    "--likelihood",
    "ordinal-logit",
    "--noise",
    "by-item",
    "--thresholds",
    "user",
]
for scale in ("log", "log1p"):
    options = ["--scale", scale]
    MODELS |= {scale: options, f"{scale} noise": [*options, *MODELS["noise"]]}
    MODELS[f"{scale} tails"] = [*options, *MODELS["student-t"]]
MODELS["auto"] = ["--model", "auto"]

#: Models that admit every data set: status 2 is a failure, and no refusal of the values.
FOR_ALL = ("plain", "noise", "auto")


@dataclass(frozen=True)
class Cell:
    """A shape and a model by their names, and a seed."""

    shape: str
    model: str
    seed: int


# ---------------------------------------------------------------------- sampling


def cells(shapes: list[str], seeds: dict[str, int], part: int, parts: int) -> Iterator[Cell]:
    """Cells of one of so many parts, given each model's seeds; those of the same ratings follow
    each other.
    """
    for seed, (k, shape) in product(range(max(seeds.values())), enumerate(shapes)):
        if (seed + k) % parts == part:
            yield from (
                Cell(shape, model, seed) for model, number in seeds.items() if seed < number
            )


def sample(cell: Cell, data: Path, out: Path) -> dict[str, Any]:
    """Sample a cell, and return its line of the file."""
    begun = time.monotonic()
    arguments = [
        "sample",
        str(data),
        "--out",
        str(out),
        *LENGTH,
        "--seed",
        str(cell.seed),
        *MODELS[cell.model],
    ]
    done = run_dsgmcmc(arguments)
    if done.returncode == Exit.USAGE and cell.model not in FOR_ALL:
        result: dict[str, Any] = {"outcome": "refused"}
    elif done.returncode:
        result = {"outcome": "failed", "status": done.returncode}
    else:
        try:
            result = {"outcome": "done", **measure(out)}
        except Exception as error:  # it counts as a failure
            result = {"outcome": "failed", "status": 0, "error": repr(error)}
    if result["outcome"] != "done":
        result["said"] = done.stderr.strip().rpartition("\n")[2]
    return {**asdict(cell), **result, "seconds": round(time.monotonic() - begun, 1)}


def measure(out: Path) -> dict[str, Any]:
    """Figures of a finished run."""
    directory = RunDirectory(out)
    summary = json.loads(directory.summary_file.read_text(encoding="utf-8"))
    run = Run(out)
    with run.open_ratings() as ratings:
        has_probabilities = are_discrete(ratings)
    metric = "log-probability" if has_probabilities else "log-density"
    log_scores = scores_of(run, metric).values
    return {
        "not_finite": (
            not_finite(summary)
            + sum(int((~np.isfinite(array)).sum()) for array in predictions(out))
        ),
        "recoveries": len(summary.get("fell_back", [])),
        "test_ratings": summary["test_ratings"],
        "rmse": summary["rmse_mean"],
        "rmse_biases": summary["baselines"]["biases_only"],
        "gain": (summary.get("over_biases") or {}).get("gain"),
        "coverage": summary["coverage"]["0.9"],
        "log_score": float(log_scores.mean()),
    }


def not_finite(content: Any) -> int:
    """Number of infinite numbers and NaN in content from JSON."""
    if isinstance(content, dict | list):
        return sum(map(not_finite, content.values() if isinstance(content, dict) else content))
    return int(isinstance(content, float) and not math.isfinite(content))


def predictions(out: Path) -> list[np.ndarray]:
    """Means, sds and intervals of 500 pairs, a new user and a new item among them, and moments of
    all test ratings.
    """
    run = open_run(out)
    rng = np.random.default_rng(0)
    users, items = (np.append(-1, rng.choice(names, 499)) for names in (run.users_, run.items_))
    pairs = np.column_stack([users, np.roll(items, 1)])
    test = predict_test(run.run_)
    predicted = Predictor(run.run_, PredictOptions(clip=True))
    of_pairs = predicted.columns(
        *(
            predicted.index_of(entity, names)
            for entity, names in zip(ENTITIES, pairs.T, strict=True)
        )
    )
    return [*of_pairs.values(), test.mean, test.variance]


# ---------------------------------------------------------------------- tables


Lines = list[dict[str, Any]]


def read(path: Path) -> Lines:
    """Lines of the file, if there is one."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def select(lines: Lines, **wanted: str) -> Lines:
    """Lines with these values."""
    return [
        line for line in lines if all(line.get(name) == value for name, value in wanted.items())
    ]


def gain(lines: Lines) -> tuple[float, float] | None:
    """Mean gain over biases only and its standard error, NaN for one seed; None if no seed has a
    gain.
    """
    known = np.array([line["gain"] for line in lines if line.get("gain") is not None])
    error = known.std(ddof=1) / np.sqrt(len(known)) if len(known) > 1 else np.nan
    return (float(known.mean()), float(error)) if len(known) else None


def is_worse(mean: float, error: float) -> bool:
    """Whether a gain is below zero by more than two standard errors."""
    return mean < -2 * error


def gain_cell(lines: Lines) -> str:
    """Gain and failures of a model on a shape."""
    cell = []
    if estimate := gain(lines):
        mean, error = estimate
        text = f"{mean:+.3f}" if math.isnan(error) else f"{mean:+.3f} ± {error:.3f}"
        cell.append(f"**{text}**" if is_worse(mean, error) else text)
    if failed := select(lines, outcome="failed"):
        cell.append(f"**{len(failed)} failed**")
    return ", ".join(cell)


def by_model(lines: Lines) -> str:
    """Numbers of runs of each model, by outcome."""
    rows = []
    for model in MODELS:
        runs = select(lines, model=model)
        done = select(runs, outcome="done")
        gains = {name: estimate for name in MAKERS if (estimate := gain(select(runs, shape=name)))}
        worse = ", ".join(name for name, estimate in gains.items() if is_worse(*estimate)) or "none"
        if all(math.isnan(error) for _, error in gains.values()):
            worse = "one seed does not tell"
        numbers = (
            len(runs),
            *(len(select(runs, outcome=outcome)) for outcome in ("refused", "failed")),
            *(sum(line[name] > 0 for line in done) for name in ("not_finite", "recoveries")),
        )
        rows += [(f"`{model}`", *map(str, numbers), worse)] if runs else []
    titles = (
        "model",
        "runs",
        "values refused",
        "failed",
        "with numbers that are not finite",
        "recovered",
    )
    return markdown((*titles, "worse than biases only on"), rows)


def by_shape(lines: Lines) -> str:
    """Gain over biases only of every model on every shape."""
    models = [name for name in MODELS if select(lines, model=name)]
    rows = []
    for name in MAKERS:
        if runs := select(lines, shape=name):
            rows.append((name, *(gain_cell(select(runs, model=model)) for model in models)))
    return markdown(("shape", *(f"`{model}`" for model in models)), rows)


def by_best(lines: Lines) -> str:
    """Log scores of every model less those of the best model whose likelihood is given, on every
    shape.
    """
    models = [name for name in MODELS if select(lines, model=name)]
    rows = []
    for name in MAKERS:
        done = {model: select(lines, shape=name, model=model, outcome="done") for model in models}
        scores = {
            model: {line["seed"]: line["log_score"] for line in runs}
            for model, runs in done.items()
        }
        means = {
            model: np.mean(list(found.values()))
            for model, found in scores.items()
            if found and model != "auto"
        }
        if means:
            best = scores[max(means, key=lambda model: means[model])]
            rows.append((name, *(gap_cell(scores[model], best) for model in models)))
    return markdown(("shape", *(f"`{model}`" for model in models)), rows)


def gap_cell(scores: dict[int, float], best: dict[int, float]) -> str:
    """Mean difference of the seeds that both have, its standard error, and the largest loss of a
    seed.
    """
    apart = np.array([score - best[seed] for seed, score in scores.items() if seed in best])
    if not len(apart) or scores is best:
        return "best" if len(apart) else ""
    error = apart.std(ddof=1) / np.sqrt(len(apart)) if len(apart) > 1 else np.nan
    return f"{apart.mean():+.4f} ± {error:.4f}, {apart.min():+.3f}"


def by_truth(lines: Lines) -> str:
    """Coverage where the likelihood is the one that made the ratings."""
    rows = []
    for name, model in [(name, model) for name, shape in SHAPES.items() for model in shape.true]:
        done = select(lines, shape=name, model=model, outcome="done")
        number = sum(line["test_ratings"] for line in done)
        if number:
            share = sum(line["coverage"] * line["test_ratings"] for line in done) / number
            allowed = 0.02 + 2 * math.sqrt(0.9 * 0.1 / number)
            holds = "yes" if abs(share - 0.9) <= allowed else "**no**"
            rows.append(
                (name, f"`{model}`", f"{number:,}", f"{share:.4f}", f"0.9 ± {allowed:.4f}", holds)
            )
    return markdown(
        ("shape", "model", "test ratings", "in their 90 % intervals", "allowed", "holds"), rows
    )


# ---------------------------------------------------------------------- from the command line


def main() -> None:
    """Sample cells that are not in the file, or print the tables of those that are."""
    parser = arguments(__doc__)
    parser.add_argument("file", type=Path, help="JSON, a line for each cell")
    parser.add_argument("--shapes", nargs="+", choices=MAKERS, default=list(SHAPES))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--seeds", type=int, default=10, help="their number")
    parser.add_argument(
        "--auto-seeds", type=int, default=3, help="their number with --model auto, at most --seeds"
    )
    parser.add_argument(
        "--part", metavar="K/N", help="the K-th of N parts; default all, at the same time"
    )
    parser.add_argument("--tables", action="store_true", help="sample nothing, print tables")
    options = parser.parse_args()
    if options.tables:
        print(
            "\n\n".join(
                table(read(options.file)) for table in (by_model, by_shape, by_truth, by_best)
            )
        )
        return
    if options.part is None:
        command = [sys.executable, *sys.argv, "--part"]
        parts = usable_cores()
        running = [subprocess.Popen([*command, f"{k}/{parts}"]) for k in range(1, parts + 1)]
        sys.exit(max(abs(process.wait()) for process in running))
    part, parts = map(int, options.part.split("/"))
    known = {Cell(line["shape"], line["model"], line["seed"]) for line in read(options.file)}
    with tempfile.TemporaryDirectory() as folder:
        seeds = dict.fromkeys(options.models, options.seeds)
        if "auto" in seeds:
            seeds["auto"] = min(options.seeds, options.auto_seeds)
        for cell in cells(options.shapes, seeds, part - 1, parts):
            if cell in known:
                continue
            data = Path(folder) / f"{cell.shape} {cell.seed}.h5"
            if not data.exists():
                MAKERS[cell.shape](cell.seed).prepare(data, cell.seed)
            line = sample(cell, data, Path(folder) / "run")
            shutil.rmtree(Path(folder) / "run", ignore_errors=True)
            with options.file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            print(
                *asdict(cell).values(), line["outcome"], line["seconds"], sep=", ", file=sys.stderr
            )


if __name__ == "__main__":
    main()
