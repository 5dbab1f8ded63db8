"""The five figures of a report, drawn by Matplotlib as SVG."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dsgmcmc.diagnostics import scores
from dsgmcmc.model.predictive.base import Predictive, nearest_level
from dsgmcmc.posterior.export import REPORT, require
from dsgmcmc.types import Float64

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The same figure has the same bytes, and a dollar sign in a name is a dollar sign.
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "dsgmcmc",
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 12,
    "legend.frameon": False,
}
PANEL = 5.2, 3.2  # inches
BINS = 20  # groups of equally many test ratings
RESIDUALS = np.linspace(-4, 4, 41)


class Figure:
    """Panels in rows of two, drawn in the style of the report. Use as a context manager; its end makes `svg`.

    Parameters
    ----------
    panels : int

    Attributes
    ----------
    panels : sequence of matplotlib.axes.Axes
    svg : str
        The ``svg`` element.

    Raises
    ------
    InputError
        If Matplotlib is not installed.
    """

    def __init__(self, panels: int) -> None:
        require(REPORT)
        import matplotlib as mpl

        self._style = mpl.rc_context({**mpl.rcParamsDefault, **STYLE})
        self._count = panels

    def __enter__(self) -> Figure:
        from matplotlib.figure import Figure as Drawn

        self._style.__enter__()
        rows = -(-self._count // 2)
        self._drawn = Drawn(figsize=(2 * PANEL[0], rows * PANEL[1]), layout="constrained")
        grid = self._drawn.subplots(rows, 2, squeeze=False).ravel()
        for unused in grid[self._count :]:
            unused.set_axis_off()
        self.panels: list[Axes] = list(grid[: self._count])
        return self

    def __exit__(self, *exc: object) -> None:
        if exc[0] is None:
            text = io.StringIO()
            self._drawn.savefig(text, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
            self.svg = text.getvalue()[text.getvalue().index("<svg") :]
        self._style.__exit__(None, None, None)


def _name(panel: Axes, title: str, x: str, y: str = "", legend: bool = True) -> None:
    panel.set(title=title, xlabel=x, ylabel=y)
    if legend:
        panel.legend()


def errors(metrics: Mapping[int, Mapping[str, Float64]]) -> str:
    """RMSE of the test ratings while sampling, by iteration and by time: of the posterior mean, and of each draw."""
    with Figure(2) as figure:
        for panel, (axis, label) in zip(
            figure.panels, (("iteration", "iteration"), ("time_s", "seconds")), strict=True
        ):
            for number, (chain, columns) in enumerate(metrics.items()):
                color = f"C{number % 10}"
                panel.plot(columns[axis], columns["rmse"], color=color, alpha=0.35, linewidth=0.8)
                panel.plot(columns[axis], columns["rmse_mean"], color=color, label=f"chain {chain}")
            _name(panel, f"RMSE by {label}", label, "RMSE on test ratings", legend=bool(metrics))
        values = np.concatenate(
            [np.r_[c["rmse"][len(c["rmse"]) // 20 :], c["rmse_mean"]] for c in metrics.values()] or [[]]
        )
        values = values[np.isfinite(values)]
        if len(values):  # without the first draws, whose errors would hide the others
            low, high = float(values.min()), float(np.quantile(values, 0.98))
            room = 0.08 * max(high - low, 1e-3)
            for panel in figure.panels:
                panel.set_ylim(low - room, high + room)
    return figure.svg


def traces(chains: Sequence[int], shown: Mapping[str, Float64]) -> str:
    """Traces of scalars, (chains, draws) each, by label."""
    with Figure(len(shown)) as figure:
        for panel, (label, values) in zip(figure.panels, shown.items(), strict=True):
            for chain, trace in zip(chains, values, strict=True):
                panel.plot(np.arange(len(trace)), trace, linewidth=0.8, label=f"chain {chain}")
            _name(panel, label, "draw", legend=False)
        if len(chains) > 1 and len(figure.panels):
            figure.panels[0].legend()
    return figure.svg


def calibration(predictive: Predictive, ratings: Float64, measured: Mapping[str, Any]) -> str:
    """Coverage of central predictive intervals, and the probability integral transform, of the test ratings."""
    with Figure(2) as figure:
        levels = np.linspace(0.02, 0.98, 49)
        inside = scores.coverage(scores.pit(predictive, ratings), levels.tolist())
        covered, transformed = figure.panels
        covered.plot([0, 1], [0, 1], "--", color="gray", label="calibrated")
        covered.plot(levels, list(inside.values()), label="this run")
        _name(covered, "Test ratings inside their predictive intervals", "nominal coverage", "observed coverage")
        counts = np.asarray(measured["pit"], np.float64)
        edges = np.linspace(0, 1, len(counts) + 1)
        transformed.stairs(counts / max(counts.sum(), 1) * len(counts), edges, fill=True, alpha=0.6, label="this run")
        transformed.axhline(1, linestyle="--", color="gray", label="calibrated")
        _name(transformed, "Probability integral transform", "predicted probability below the rating", "density")
    return figure.svg


def residuals(predictive: Predictive, ratings: Float64, mean: Float64) -> str:
    """Standardised residuals, or reliability of the levels; and the mean rating by prediction, of the test ratings."""
    with Figure(2) as figure:
        left, right = figure.panels
        z = predictive.residuals(ratings)
        if z is None:
            _reliability(left, predictive, ratings)
        else:
            left.hist(np.clip(z, -4, 4), RESIDUALS.tolist(), density=True, alpha=0.6, label="this run")
            left.plot(RESIDUALS, np.exp(-(RESIDUALS**2) / 2) / np.sqrt(2 * np.pi), "--", color="gray", label="normal")
            _name(left, "Standardised residuals", "(rating - mean) / sd", "density")
        x, y = _by_prediction(mean, ratings)
        right.plot([x[0], x[-1]], [x[0], x[-1]], "--", color="gray", label="as predicted")
        right.plot(x, y, "o", label="observed")
        _name(right, "Mean rating by prediction", "predicted", "observed mean")
    return figure.svg


def _by_prediction(predicted: Float64, observed: Float64) -> tuple[list[float], list[float]]:
    """Averages of both in groups of equal size, by prediction."""
    groups = np.array_split(np.argsort(predicted), min(BINS, len(predicted)))
    return [float(predicted[group].mean()) for group in groups], [float(observed[group].mean()) for group in groups]


def _reliability(panel: Axes, predictive: Predictive, ratings: Float64) -> None:
    """Observed frequency of ratings of at least a level, by predicted probability."""
    levels, probability = predictive.known_levels(), predictive.probabilities()
    level = nearest_level(ratings, levels)
    panel.plot([0, 1], [0, 1], "--", color="gray")
    for r in np.unique(np.linspace(1, len(levels) - 1, 6).astype(np.int64)).tolist():
        x, y = _by_prediction(probability[:, r:].sum(axis=1), (level >= r).astype(np.float64))
        panel.plot(x, y, "o", markersize=4, label=f"at least {levels[r]:g}")
    _name(panel, "Probability of a rating of at least a level", "predicted", "observed")


def groups(measured: Mapping[str, Any]) -> str:
    """RMSE by the number of training ratings of the user, and of the item."""
    with Figure(2) as figure:
        for panel, (name, kind) in zip(
            figure.panels, (("by_activity", "user"), ("by_popularity", "item")), strict=True
        ):
            labels = [f"{group['from']:,} to {group['to']:,}" for group in measured[name]]
            bars = panel.barh(labels, [group["rmse"] for group in measured[name]])
            panel.bar_label(bars, fmt="%.3f", padding=3)
            panel.margins(x=0.15)
            panel.invert_yaxis()
            _name(panel, f"RMSE by training ratings of the {kind}", "RMSE", legend=False)
    return figure.svg
