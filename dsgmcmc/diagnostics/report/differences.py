"""The section of a report that sets runs against the first of them, on the same test ratings."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import numpy as np

from dsgmcmc.diagnostics import scores
from dsgmcmc.diagnostics.report.content import Content
from dsgmcmc.diagnostics.report.tables import table
from dsgmcmc.model.predictive.base import Predictive
from dsgmcmc.types import Float64

GROUPS = 50  # of test ratings, at random, whose scatter gives the intervals

Score = Callable[[Content], Float64 | None]


def _forecast(run: Content) -> Predictive:
    assert run.forecast is not None  # of runs that have a calibration
    return run.forecast


def _log_probability(run: Content) -> Float64 | None:
    found = _forecast(run)
    return None if found.levels is None else found.log_probability(run.run.test.rating)


#: Of every rating, and what becomes of their mean.
_SCORES: dict[str, tuple[Score, Callable[[float], float]]] = {
    "RMSE": (lambda run: np.square(run.run.test.rating - run.run.test.mean), sqrt),
    "MAE": (lambda run: np.abs(run.run.test.rating - run.run.test.mean), float),
    "CRPS": (lambda run: _forecast(run).crps(run.run.test.rating), float),
    "log probability": (_log_probability, float),
    "in 90 % intervals": (
        lambda run: scores.inside(scores.pit(_forecast(run), run.run.test.rating), 0.05, 0.95),
        float,
    ),
}


def differences_section(runs: list[Content]) -> str:
    """Scores of each run less those of the first, with 95 % intervals of what other test ratings would have given."""
    first, *others = runs
    rows = []
    for run in others:
        if run.calibration is None or run.run.facts.get("data_hash") != first.run.facts.get("data_hash"):
            rows.append([run.name, *["other ratings"] * len(_SCORES)])
            continue
        rows.append([run.name, *(_difference(*score, first, run) for score in _SCORES.values())])
    return table((f"less {first.name}", *_SCORES), rows)


def _difference(score: Score, finish: Callable[[float], float], first: Content, run: Content) -> str:
    """Difference of a score of two runs, with half its interval, from that in random groups of the test ratings."""
    before, after = score(first), score(run)
    if before is None or after is None:
        return "-"
    n = len(before)
    group = np.random.default_rng(0).permutation(n) % min(GROUPS, max(n // 2, 1))
    found = np.array([finish(after[group == g].mean()) - finish(before[group == g].mean()) for g in np.unique(group)])
    half = f" ± {1.96 * found.std(ddof=1) / np.sqrt(len(found)):.4f}" if len(found) > 1 else ""
    return f"{finish(after.mean()) - finish(before.mean()):+.4f}{half}"
