"""Sections of a report about the test ratings."""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest
from math import sqrt

import numpy as np

from dsgmcmc.diagnostics import scores
from dsgmcmc.diagnostics.report.charts import PALETTE, Bar, Series, bar_chart, figure, histogram, line_chart
from dsgmcmc.diagnostics.report.content import Content
from dsgmcmc.diagnostics.report.tables import table
from dsgmcmc.diagnostics.verdict import written
from dsgmcmc.model.predictive.base import Predictive, nearest_level
from dsgmcmc.types import Float64

LOG_SCORES = ("log_predictive_density", "log_probability")
GROUPS = 50  # random groups of test ratings, whose scatter gives the intervals

Score = Callable[[Content], Float64 | None]


def _forecast(run: Content) -> Predictive:
    assert run.forecast is not None  # of runs that have a calibration
    return run.forecast


def _log_probability(run: Content) -> Float64 | None:
    forecast = _forecast(run)
    return None if forecast.levels is None else forecast.log_probability(run.run.test.rating)


#: Score of every rating, and a function of their mean.
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


def calibration_section(runs: list[Content]) -> str:
    """Coverage of intervals, PIT and scores of every run."""
    levels = np.linspace(0.02, 0.98, 49)
    series = [Series("calibrated", [0, 1], [0, 1], "#9ca3af", "dashed")]
    rows = []
    charts = []
    for run, color in zip(runs, PALETTE * 8, strict=False):
        if run.calibration is None or run.forecast is None:
            continue
        inside = scores.coverage(scores.pit(run.forecast, run.run.test.rating), levels.tolist())
        series.append(Series(run.name, levels, list(inside.values()), color))
        pit = run.calibration["pit"]
        share = np.array(pit) / max(sum(pit), 1) * len(pit)
        title = "Probability integral transform" + (f", {run.name}" if len(runs) > 1 else "")
        charts.append(
            histogram(
                title,
                share.tolist(),
                np.linspace(0, 1, len(pit) + 1).tolist(),
                "probability below the rating",
                "density",
                lambda x: np.ones_like(x),
                "calibrated",
            )
        )
        measured = run.calibration
        rows.append(
            (
                run.name,
                written(measured["rmse"]),
                written(measured["mae"]),
                written(measured["crps"]),
                *("-" if measured[name] is None else f"{measured[name]:.4f}" for name in LOG_SCORES),
                written(measured["predictive_sd"]),
                *(f"{measured['coverage'][level]:.1%}" for level in (0.5, 0.8, 0.9, 0.95)),
            )
        )
    if not rows:
        return figure("Calibration", '<p class="none">no test ratings</p>')
    chart = line_chart(
        "Test ratings inside central predictive intervals", series, "nominal", "observed", (0.0, 1.0), (0.0, 1.0)
    )
    scored = ("RMSE", "MAE", "CRPS", "log density", "log p of level", "predictive sd")
    heading = ("run", *scored, "50 %", "80 %", "90 %", "95 %")
    return chart + "".join(charts) + f'</div>{table(heading, rows)}<div class="charts">'


def residuals_section(runs: list[Content]) -> str:
    """Residuals, or reliability of levels, and the mean rating by prediction."""
    charts = []
    for run in runs:
        if run.forecast is None:
            continue
        of = f", {run.name}" if len(runs) > 1 else ""
        test = run.run.test
        z = run.forecast.residuals(test.rating)
        charts.append(_reliability(run.forecast, test.rating, of) if z is None else _residuals(z, of))
        order = np.array_split(np.argsort(test.mean), min(20, len(test.mean)))
        x = [float(test.mean[part].mean()) for part in order]
        y = [float(test.rating[part].mean()) for part in order]
        lines = [
            Series("observed", x, y, PALETTE[0], "points"),
            Series("as predicted", [x[0], x[-1]], [x[0], x[-1]], PALETTE[1], "dashed"),
        ]
        charts.append(line_chart(f"Mean rating by prediction{of}", lines, "predicted", "observed mean"))
    return "".join(charts) or figure("Residuals", '<p class="none">no test ratings</p>')


def _residuals(z: Float64, of: str) -> str:
    """Histogram of standardised residuals, with a normal density."""
    edges = np.linspace(-4, 4, 41)
    density = np.histogram(np.clip(z, -4, 4), edges, density=True)[0]
    return histogram(
        f"Standardised residuals of test ratings{of}",
        density.tolist(),
        edges.tolist(),
        "(rating - mean) / sd",
        "density",
        lambda x: np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi),
        "normal",
    )


def _reliability(forecast: Predictive, ratings: Float64, of: str) -> str:
    """Reliability diagram: observed frequency of ratings of at least a level, by predicted probability."""
    series = [Series("calibrated", [0, 1], [0, 1], "#9ca3af", "dashed")]
    levels, probability = forecast.known_levels(), forecast.probabilities()
    level = nearest_level(ratings, levels)
    shown = np.unique(np.linspace(1, len(levels) - 1, 6).astype(np.int64)).tolist()
    for r, color in zip(shown, PALETTE * 8, strict=False):
        p, reached = probability[:, r:].sum(axis=1), level >= r
        order = np.array_split(np.argsort(p), min(20, len(p)))
        x, y = ([float(each[part].mean()) for part in order] for each in (p, reached))
        series.append(Series(f"at least {levels[r]:g}", x, y, color, "points"))
    title = f"Probability of a test rating of at least ...{of}"
    return line_chart(title, series, "predicted", "observed", (0.0, 1.0), (0.0, 1.0))


def groups_section(runs: list[Content]) -> str:
    """RMSE by the number of training ratings of the user, or of the item."""
    charts = []
    for name, what in (("by_activity", "training ratings of the user"), ("by_popularity", "of the item")):
        groups = [(run.calibration or {}).get(name, []) for run in runs]
        bars = [
            Bar(f"{group['from']:,} to {group['to']:,}", [(group["rmse"], color)], f"{group['rmse']:.3f}")
            for of_runs in zip_longest(*groups)  # the same group of all runs side by side
            for group, color in zip(of_runs, PALETTE * 8, strict=False)
            if group
        ]
        title = f"RMSE by {what}" if name == "by_activity" else "RMSE by training ratings of the item"
        entries = [(run.name, color) for run, color in zip(runs, PALETTE * 8, strict=False)] if len(runs) > 1 else []
        charts.append(bar_chart(title, bars, "RMSE", entries) if bars else figure(title, '<p class="none">none</p>'))
    return "".join(charts)


def differences_section(runs: list[Content]) -> str:
    """Scores of each run minus those of the first, with 95 % intervals over test ratings."""
    first, *others = runs
    rows = []
    for run in others:
        if run.calibration is None or run.run.facts.get("data_hash") != first.run.facts.get("data_hash"):
            rows.append([run.name, *["other ratings"] * len(_SCORES)])
            continue
        rows.append([run.name, *(_difference(*score, first, run) for score in _SCORES.values())])
    return table((f"minus {first.name}", *_SCORES), rows)


def _difference(score: Score, finish: Callable[[float], float], first: Content, run: Content) -> str:
    """Difference of a score of two runs, with half its interval, estimated from random groups of the test ratings."""
    before, after = score(first), score(run)
    if before is None or after is None:
        return "-"
    n = len(before)
    group = np.random.default_rng(0).permutation(n) % min(GROUPS, max(n // 2, 1))
    differences = np.array(
        [finish(after[group == g].mean()) - finish(before[group == g].mean()) for g in np.unique(group)]
    )
    half = f" ± {1.96 * differences.std(ddof=1) / np.sqrt(len(differences)):.4f}" if len(differences) > 1 else ""
    return f"{finish(after.mean()) - finish(before.mean()):+.4f}{half}"
