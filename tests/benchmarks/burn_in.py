"""Where averages over draws should begin: the table "Burn-in" of docs/defaults.md.

    python tests/benchmarks/burn_in.py u1.h5 ml-1m.h5 [--set noise=both] [--seeds 1 2] [--sweeps 700]

Samples every data file with BAOAB in one process, keeps the predictions of the test ratings after every second sweep,
and prints what their average from several sweeps on would have been had the run been stopped: the log density of a
held-out rating, and below it RMSE, the sd of predictions as a share of that of the last four fifths, and the share of
ratings inside 90 % intervals, on the average over the seeds. Rules: a fixed burn-in; the last two thirds or half of
all sweeps; and averages that begin anew at sweeps 2^k, where the newer one is taken once it is as long as the older was
when it began. Not part of the tests.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from dsgmcmc.config.layers import build, parse_assignments
from dsgmcmc.data.ratings import open_ratings
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.runs.source import targets_of
from dsgmcmc.types import Float32

EVERY = 2
WITHIN_90 = 1.6448536
MARKS = (60, 100, 150, 200, 300, 400, 700, 1000, 1600)


class Draws(NamedTuple):
    """What a chain predicts of test ratings, standardised: (draws, q) but for `rating`, (q,)."""

    prediction: Float32
    noise: Float32
    rating: Float32
    scale: float


def sample(data: Path, settings: dict[str, Any], seed: int, sweeps: int) -> Draws:
    """Predictions, and variances of the noise, after every second sweep."""
    config = build({"rank": 32, "seed": seed, "sampler": {"name": "baoab"}}, settings).resolved()
    ring = Ring(MPI.COMM_SELF, config.grid)
    with open_ratings(data) as ratings:
        make = targets_of(config, ratings, ring)
    sampler = config.make_sampler()
    target = make(0, sampler)
    target.reset()
    sampler.start(target, config.initial_sd)
    (held,) = target.recorders()
    rows = held._rows.values()
    predictions, noises = [], []
    for iteration in range(0, sweeps, EVERY):
        sampler.advance(target, iteration, EVERY)
        held.record("theta", None)
        predictions.append(np.concatenate([each.prediction for each in rows]))
        noise = [each.noise for each in rows]
        noises.append(noise[0] if config.noise == "shared" else np.concatenate(noise))
    x = np.concatenate([each.rows.values for each in rows])
    return Draws(np.array(predictions), np.array(noises), x, target.ratings.scale)


def score(draws: Draws, begin: int, end: int, sd: float) -> tuple[float, float, float, float]:
    """Log density, RMSE, sd as a share of `sd`, and coverage of the average over draws `begin` to `end`."""
    chosen = draws.prediction[begin:end]
    mean, spread = chosen.mean(axis=0, dtype=np.float64), chosen.var(axis=0, dtype=np.float64)
    variance = spread + draws.noise[begin:end].mean(axis=0, dtype=np.float64)
    error = mean - draws.rating
    density = -0.5 * (error**2 / variance + np.log(2 * np.pi * variance)).mean() - np.log(draws.scale)
    inside = np.mean(np.abs(error) < WITHIN_90 * np.sqrt(variance))
    return float(density), draws.scale * float(np.sqrt(np.mean(error**2))), np.sqrt(spread).mean() / sd, float(inside)


def anew(sweeps: int) -> int:
    """First sweep of the average that begins at a power of two."""
    begin = 16
    while sweeps - 2 * begin > begin:
        begin *= 2
    return begin


RULES: dict[str, Callable[[int], int]] = {
    **{f"burn-in {sweeps}": (lambda _, begin=sweeps: begin) for sweeps in (20, 30, 50, 100)},
    "last two thirds": lambda sweeps: sweeps // 3,
    "last half": lambda sweeps: sweeps // 2,
    "anew at 2^k": anew,
}


def table(name: str, chains: list[Draws]) -> None:
    """Print a table in Markdown."""
    marks = [mark for mark in MARKS if mark <= EVERY * len(chains[0].prediction)]
    sds = [draws.prediction[len(draws.prediction) // 5 :].std(axis=0, dtype=np.float64).mean() for draws in chains]
    print(f"\n| {name}, sweeps | {' | '.join(map(str, marks))} |\n|---|{'---|' * len(marks)}")
    for rule, first in RULES.items():
        cells = []
        for mark in marks:
            begin, end = first(mark) // EVERY, mark // EVERY
            if begin >= end:
                cells.append("")
                continue
            pairs = zip(chains, sds, strict=True)
            density, rmse, sd, inside = np.mean([score(draws, begin, end, sd) for draws, sd in pairs], axis=0)
            cells.append(f"{density:.4f}<br>{rmse:.4f}, {sd:.2f}, {inside:.1%}")
        print(f"| {rule} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="+", help="ratings files made by `dsgmcmc prepare`")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="settings, rank 32 if not said")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--sweeps", type=int, default=700)
    options = parser.parse_args()
    for data in options.data:
        chains = [sample(data, parse_assignments(options.set), seed, options.sweeps) for seed in options.seeds]
        table(" ".join((data.stem, *options.set)), chains)


if __name__ == "__main__":
    main()
