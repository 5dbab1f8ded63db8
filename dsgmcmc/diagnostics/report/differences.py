"""The section of a report that sets runs against the first of them, on the same test ratings."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from dsgmcmc.diagnostics import scores
from dsgmcmc.diagnostics.report.content import Content
from dsgmcmc.diagnostics.report.tables import table
from dsgmcmc.types import Float64

GROUPS = 50  # of test ratings, at random, whose scatter gives the intervals

_Mask = npt.NDArray[np.bool_]
_SCORES: dict[str, Callable[[Content, _Mask], float | None]] = {
    "RMSE": lambda run, some: scores.rmse(run.run.test.rating[some], run.run.test.mean[some]),
    "MAE": lambda run, some: scores.mae(run.run.test.rating[some], run.run.test.mean[some]),
    "CRPS": lambda run, some: run.forecast.at(some).crps() if run.forecast else None,
    "log probability": lambda run, some: run.forecast.at(some).log_probability() if run.forecast else None,
    "in 90 % intervals": lambda run, some: run.forecast.at(some).coverage((0.9,))[0.9] if run.forecast else None,
}


def differences_section(runs: list[Content]) -> str:
    """Scores of each run less those of the first, with 95 % intervals of what other test ratings would have given."""
    first, *others = runs
    rows = []
    for run in others:
        if run.calibration is None or run.run.facts.get("data_hash") != first.run.facts.get("data_hash"):
            rows.append([run.name, *["other ratings"] * len(_SCORES)])
            continue
        rows.append([run.name, *(_difference(score, first, run) for score in _SCORES.values())])
    return table((f"less {first.name}", *_SCORES), rows)


def _difference(score: Callable[[Content, _Mask], float | None], first: Content, run: Content) -> str:
    """Difference of a score of two runs, with half its interval, from that in random groups of the test ratings."""
    n = len(run.run.test.rating)
    everything = np.ones(n, bool)
    before, after = score(first, everything), score(run, everything)
    if before is None or after is None:
        return "-"
    group = np.random.default_rng(0).permutation(n) % min(GROUPS, max(n // 2, 1))
    found: Float64 = np.array(
        [(score(run, group == g) or 0) - (score(first, group == g) or 0) for g in np.unique(group)]
    )
    half = f" ± {1.96 * found.std(ddof=1) / np.sqrt(len(found)):.4f}" if len(found) > 1 else ""
    return f"{after - before:+.4f}{half}"
