"""Whole commands of this version and of an earlier one, in turns on the same ratings.

    git worktree add ../before d2dc2564
    python tests/benchmarks/turns.py ../before sensors stations rounded flows votes
    python tests/benchmarks/turns.py ../before DATASETS/ml-100k/u.data --rounds 1

BEFORE is a checkout of the earlier version; its commit is printed. A set is one of
`tests/measured_sets.py`, made with seed 0, or a file that ``dsgmcmc prepare`` reads. Each version
prepares its own ratings file, and a tenth is held out by the default of the command. A short run of
each version compiles kernels, and does not count. Then both sample in turns, `--rounds` times.

Every cell of the table has the earlier version first: the sampler; processor seconds of ``sample``,
user and system, as the median over rounds; the seconds of this version over those of the earlier
one; the ESS at the end; RMSE and log score of the test ratings. A version that fails ends the
script. Not part of the tests.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from bench import TESTS, arguments, processor_seconds, say, say_head
from measured_sets import SETS

ROOT = TESTS.parent
#: Options of a run that compiles all kernels.
SHORT = ("--iterations", "60", "--burn-in", "20")


class Run(NamedTuple):
    """Processor seconds of ``sample``, and what ``info --json`` says of the run."""

    seconds: float
    info: dict[str, Any]


def execute(checkout: Path, folder: Path, *words: object) -> tuple[str, float]:
    """Run ``dsgmcmc`` of a checkout in `folder`; its output and processor seconds."""
    before = processor_seconds()
    done = subprocess.run(
        [sys.executable, "-m", "dsgmcmc", *map(str, words)],
        cwd=folder,  # Python finds packages of this folder first
        env={**os.environ, "PYTHONPATH": str(checkout)},
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"{checkout}: {' '.join(map(str, words))}\n{done.stderr}")
    return done.stdout, processor_seconds() - before


def sample(checkout: Path, folder: Path, *options: object) -> Run:
    """Sample the ratings file of `folder`, and read the run."""
    shutil.rmtree(folder / "run", ignore_errors=True)
    _, seconds = execute(checkout, folder, "sample", "ratings.h5", "--out", "run", *options)
    return Run(seconds, json.loads(execute(checkout, folder, "info", "run", "--json")[0]))


def table_of(name: str, folder: Path) -> Path:
    """File of a set."""
    if name not in SETS:
        return Path(name).resolve()
    ratings = SETS[name](0)
    table = folder / f"{name}.csv"
    columns = np.column_stack([ratings.user, ratings.item, ratings.value])
    np.savetxt(table, columns, "%.9g", delimiter=",", header="user,item,rating", comments="")
    return table


def say_runs(name: str, versions: list[list[Run]]) -> None:
    """Print the row of a set: the earlier version, then this one."""
    seconds = [float(np.median([run.seconds for run in runs])) for runs in versions]
    infos = [runs[-1].info for runs in versions]
    summaries = [info["summary"] for info in infos]
    found = [summary["until"]["found"]["ess"] for summary in summaries]
    say(
        name,
        "→".join(info["settings"]["sampler"]["name"] for info in infos),
        "→".join(f"{value:.1f}" for value in seconds),
        f"{seconds[1] / seconds[0]:.2f}",
        "→".join(f"{ess:.0f}" for ess in found),
        "→".join(f"{summary['rmse_mean']:.4g}" for summary in summaries),
        "→".join(f"{log_score(summary):.3f}" for summary in summaries),
    )


def log_score(summary: dict[str, Any]) -> float:
    """Log probability of a test rating, or log density where values have no resolution."""
    probability = summary.get("log_probability")
    return summary["log_predictive_density"] if probability is None else probability


def commit(checkout: Path) -> str:
    """Newest commit of a checkout that changed the package."""
    git = ["git", "-C", str(checkout), "log", "-1", "--abbrev=8", "--format=%h", "--", "dsgmcmc"]
    return subprocess.run(git, check=True, capture_output=True, text=True).stdout.strip()


def main() -> None:
    """Sample all sets with both versions."""
    parser = arguments(__doc__)
    parser.add_argument("before", type=Path, help="checkout of the earlier version")
    parser.add_argument("sets", nargs="+", metavar="SET")
    parser.add_argument("--rounds", type=int, default=3, help="their number")
    given = parser.parse_args()
    checkouts = [given.before.resolve(), ROOT]
    print(*(f"{checkout}: {commit(checkout)}" for checkout in checkouts), sep="\n", file=sys.stderr)
    say_head("set", "sampler", "seconds", "ratio", "ESS", "RMSE", "log score")
    for name in given.sets:
        with tempfile.TemporaryDirectory() as work:
            table = table_of(name, Path(work))
            folders = []
            for number, checkout in enumerate(checkouts):
                folder = Path(work) / str(number)
                folder.mkdir()
                execute(checkout, folder, "prepare", table, "ratings.h5")
                sample(checkout, folder, *SHORT)
                folders.append(folder)
            runs: list[list[Run]] = [[], []]
            for _ in range(given.rounds):
                for checkout, folder, found in zip(checkouts, folders, runs, strict=True):
                    found.append(sample(checkout, folder))
            say_runs(Path(name).stem, runs)


if __name__ == "__main__":
    main()
