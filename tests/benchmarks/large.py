"""From nothing to a posterior on synthetic ratings of any size: seconds, memory, and how near to the best possible.

    python tests/benchmarks/large.py FOLDER                                    # half a billion ratings, 60 GB of disk
    python tests/benchmarks/large.py FOLDER --users 20000 --items 3000 --ratings 5e6 --gibbs 500

Makes real-valued ratings with a known truth, prepares them within --memory, and samples them with two processes in
three runs of the same chain: two processes stop after a few sweeps, one process goes on for a few, two finish. A second
run of two processes, undisturbed up to the second stop, must have the same digest there.

The log density of held-out ratings is compared with the truth's, and with what can be had: fitting costs half a nat for
every effective number, sum_ik tau n_i c_k / (tau n_i c_k + lambda_k), of the rows, over the training ratings. --gibbs
samples with Gibbs, too, that many sweeps, to see how good this approximation is. Not part of the tests.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
from pathlib import Path
from time import perf_counter
from typing import Any

import h5py
import numpy as np
from shared import processor_seconds
from synthetic import (
    FACTOR_SD,
    ITEM_SD,
    USER_SD,
    SyntheticOptions,
    Truth,
    best_prediction,
    generate,
    load_truth,
    truth_path,
)

from dsgmcmc.parallel.mpirun import run_dsgmcmc
from dsgmcmc.storage.rundir import RunDirectory
from dsgmcmc.storage.verify import verify_run

SOME = 1 << 22  # held-out ratings at a time
FIRST, SECOND = 8, 12  # sweeps after which it stops


def timed(what: str, *arguments: object, processes: int = 1) -> None:
    """Run a command, and print a line about it."""
    begin, before = perf_counter(), processor_seconds()
    run_dsgmcmc([str(each) for each in arguments], processes).check_returncode()
    took = f"{perf_counter() - begin:8.1f} s of the clock, {processor_seconds() - before:8.1f} of processors"
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
    print(f"{what:40} {took}; largest process so far {largest:5.2f} GB", flush=True)


def best_density(data: Path, truth: Truth) -> float:
    """Mean log density of the held-out ratings under the truth, in nats."""
    total, count = 0.0, 0
    with h5py.File(data) as file:
        indptr, test = file["test/indptr"][:], file["test"]
        rows, columns = file["rows/ids"][:] - 1, file["cols/ids"][:] - 1
        for begin in range(0, len(test["values"]), SOME):
            part = slice(begin, min(begin + SOME, len(test["values"])))
            i = rows[np.searchsorted(indptr, np.arange(part.start, part.stop), side="right") - 1]
            j = columns[test["indices"][part]]
            total += float(np.square(test["values"][part] - best_prediction(truth, i, j)).sum())
            count += len(i)
    return -0.5 * (np.log(2 * np.pi * truth.sigma**2) + total / count / truth.sigma**2)


def cost_of_fitting(data: Path, truth: Truth) -> float:
    """Half the effective numbers of the rows for each training rating, in nats."""
    tau, K = truth.sigma**-2, truth.W.shape[1]
    variance = FACTOR_SD / np.sqrt(K)  # of a factor's elements
    with h5py.File(data) as file:
        counts = np.diff(file["train/indptr"][:]), file["train/column_counts"][:]

    def effective(n: Any, c: float, lambda_: float) -> float:
        return float((tau * n * c / (tau * n * c + lambda_)).sum())

    numbers = sum(K * effective(n, variance, 1 / variance) for n in counts)
    numbers += sum(effective(n, 1.0, sd**-2) for n, sd in zip(counts, (USER_SD, ITEM_SD), strict=True))
    return 0.5 * numbers / float(counts[0].sum())


def digest(run: Path) -> str:
    """Digest of a run, all of whose checksums hold."""
    return verify_run(RunDirectory(run))


def main() -> None:
    """Run everything, and print a line for each step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where it works; files that are there are not made again")
    for name, default in {"users": 2e6, "items": 3e5, "ratings": 5e8, "rank": 16, "sweeps": 120, "gibbs": 0}.items():
        parser.add_argument(f"--{name}", type=lambda text: int(float(text)), default=int(default))
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--memory", default="6GB", help="of prepare")
    parser.add_argument("--grid", type=int, default=32)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    os.chdir(given.folder)
    raw, data = Path("ratings.parquet"), Path("ratings.h5")
    if not data.exists():
        sizes = {"rows": given.users, "cols": given.items, "ratings": given.ratings, "rank": given.rank}
        if not raw.exists():
            generate(raw, SyntheticOptions(**sizes, half_stars=False, seed=given.seed))
        timed(f"prepare --memory {given.memory}", "prepare", raw, data, "--memory", given.memory)
        raw.unlink()
    truth = load_truth(truth_path(raw))
    common = [data, "--rank", given.rank, "--thin", 2, "--save-draws", 0, "--set", "evaluate_every=20"]
    common += ["--grid", given.grid, "--burn-in", min(50, given.sweeps // 2), "--checkpoint-every", "1h"]

    def sample(what: str, out: str, processes: int, sweeps: int, *more: object) -> None:
        length = ["--out", out, "--iterations", sweeps]
        timed(f"{what}, {processes} process(es)", "sample", *common, *length, *more, processes=processes)

    sample(f"sample to sweep {FIRST}", "run", 2, FIRST)
    sample(f"resume, to sweep {SECOND}", "run", 1, SECOND, "--resume")
    stopped = digest(Path("run"))
    sample(f"undisturbed, to sweep {SECOND}", "undisturbed", 2, SECOND)
    print(f"digests at sweep {SECOND}: {'the same' if digest(Path('undisturbed')) == stopped else 'DIFFERENT'}")
    sample(f"resume, to sweep {given.sweeps}", "run", 2, given.sweeps, "--resume")
    runs = ["run"]
    if given.gibbs:
        sample(f"gibbs, to sweep {given.gibbs}", "gibbs", 2, given.gibbs, "--sampler", "gibbs")
        runs.append("gibbs")
    best = best_density(data, truth)
    had = best - cost_of_fitting(data, truth)
    print(f"log density of held-out ratings: the truth's {best:.4f}, what can be had {had:.4f}")
    for run in runs:
        summary = json.loads((Path(run) / "summary.json").read_text(encoding="utf-8"))
        found, memory = summary["log_predictive_density"], summary["peak_rss_bytes"]
        print(f"{run}: {found:.4f}, {found - had:+.4f} of what can be had; memory {memory}")


if __name__ == "__main__":
    main()
