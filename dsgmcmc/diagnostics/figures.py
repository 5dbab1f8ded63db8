"""The five figures of a report, drawn by Matplotlib as SVG."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dsgmcmc.diagnostics import scores
from dsgmcmc.model.predictive.base import Predictive, nearest_level
from dsgmcmc.posterior.export import REPORT, require
from dsgmcmc.types import Float64

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    Panels = Sequence[Axes]

#: With these settings equal figures have equal bytes, and a dollar sign in a name does not start a formula.
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


def svg(count: int, fill: Callable[[Panels], None]) -> str:
    """Draw a figure with `count` panels in rows of two; `fill` draws their contents.

    Raises
    ------
    InputError
        If Matplotlib is not installed.
    """
    require(REPORT)
    import matplotlib as mpl
    from matplotlib.figure import Figure

    rows = -(-count // 2)
    text = io.StringIO()
    with mpl.rc_context({**mpl.rcParamsDefault, **STYLE}):
        figure = Figure(figsize=(2 * PANEL[0], rows * PANEL[1]), layout="constrained")
        panels = figure.subplots(rows, 2, squeeze=False).ravel()
        for unused in panels[count:]:
            unused.set_axis_off()
        fill(panels[:count].tolist())
        figure.savefig(text, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    return text.getvalue()[text.getvalue().index("<svg") :]


def traces(panels: Panels, chains: Sequence[int], shown: Mapping[str, Float64]) -> None:
    """Draw traces of scalars, (chains, draws) each, by label."""
    for panel, (label, values) in zip(panels, shown.items(), strict=True):
        for chain, trace in zip(chains, values, strict=True):
            panel.plot(trace, linewidth=0.8, label=f"chain {chain}")
        panel.set(title=label, xlabel="draw")
    if len(chains) > 1:
        panels[0].legend()


def errors(panels: Panels, metrics: Mapping[int, Mapping[str, Float64]]) -> None:
    """Draw the RMSE of the posterior mean and of each draw on the test ratings, by iteration and by time."""
    for panel, (axis, label) in zip(panels, (("iteration", "iteration"), ("time_s", "seconds")), strict=True):
        for number, (chain, columns) in enumerate(metrics.items()):
            color = f"C{number % 10}"
            panel.plot(columns[axis], columns["rmse"], color=color, alpha=0.35, linewidth=0.8)
            panel.plot(columns[axis], columns["rmse_mean"], color=color, label=f"chain {chain}")
        panel.set(title=f"RMSE by {label}", xlabel=label, ylabel="RMSE on test ratings")
    if not metrics:
        return
    # the scale ignores the first draws, whose errors are much larger
    settled = [np.r_[c["rmse"][len(c["rmse"]) // 20 :], c["rmse_mean"]] for c in metrics.values()]
    low, high = np.nanquantile(np.concatenate(settled), (0, 0.98)) * (0.99, 1.01)
    for panel in panels:
        panel.legend()
        if low < high:  # False for NaN, the value before the first draw
            panel.set_ylim(low, high)


def calibration(panels: Panels, predictive: Predictive, ratings: Float64, counts: Sequence[float]) -> None:
    """Draw coverage of central predictive intervals, and the probability integral transform, for the test ratings."""
    covered, transformed = panels
    levels = np.linspace(0.02, 0.98, 49)
    inside = scores.coverage(scores.pit(predictive, ratings), levels.tolist())
    covered.plot([0, 1], [0, 1], "--", color="gray", label="calibrated")
    covered.plot(levels, list(inside.values()), label="this run")
    covered.set(title="Test ratings inside their predictive intervals")
    covered.set(xlabel="nominal coverage", ylabel="observed coverage")
    density = np.asarray(counts) / max(sum(counts), 1) * len(counts)
    transformed.stairs(density, np.linspace(0, 1, len(counts) + 1), fill=True, alpha=0.6, label="this run")
    transformed.axhline(1, linestyle="--", color="gray", label="calibrated")
    transformed.set(title="Probability integral transform")
    transformed.set(xlabel="predicted probability below the rating", ylabel="density")
    for panel in panels:
        panel.legend()


def residuals(panels: Panels, predictive: Predictive, ratings: Float64, mean: Float64) -> None:
    """Draw standardised residuals, or reliability of levels, and the mean rating by prediction, for test ratings."""
    left, right = panels
    z = predictive.residuals(ratings)
    if z is None:
        _reliability(left, predictive, ratings)
    else:
        edges = np.linspace(-4, 4, 41)
        left.hist(np.clip(z, -4, 4), edges.tolist(), density=True, alpha=0.6, label="this run")
        left.plot(edges, np.exp(-(edges**2) / 2) / np.sqrt(2 * np.pi), "--", color="gray", label="normal")
        left.set(title="Standardised residuals", xlabel="(rating - mean) / sd", ylabel="density")
    x, y = _by_prediction(mean, ratings)
    right.plot([x[0], x[-1]], [x[0], x[-1]], "--", color="gray", label="as predicted")
    right.plot(x, y, "o", label="observed")
    right.set(title="Mean rating by prediction", xlabel="predicted", ylabel="observed mean")
    for panel in panels:
        panel.legend()


def _reliability(panel: Axes, predictive: Predictive, ratings: Float64) -> None:
    """Draw how often ratings reach a level, by the predicted probability."""
    levels, probability = predictive.known_levels(), predictive.probabilities()
    level = nearest_level(ratings, levels)
    panel.plot([0, 1], [0, 1], "--", color="gray")
    for r in np.unique(np.linspace(1, len(levels) - 1, 6).astype(np.int64)).tolist():
        x, y = _by_prediction(probability[:, r:].sum(axis=1), (level >= r).astype(np.float64))
        panel.plot(x, y, "o", markersize=4, label=f"at least {levels[r]:g}")
    panel.set(title="Probability of a rating of at least a level", xlabel="predicted", ylabel="observed")


def _by_prediction(predicted: Float64, observed: Float64) -> tuple[list[float], list[float]]:
    """Average predictions and observations in groups of equal size, ordered by prediction."""
    groups = np.array_split(np.argsort(predicted), min(BINS, len(predicted)))
    return [float(predicted[group].mean()) for group in groups], [float(observed[group].mean()) for group in groups]


def groups(panels: Panels, measured: Mapping[str, Any]) -> None:
    """Draw the RMSE by the number of training ratings of the user, and of the item."""
    for panel, (name, kind) in zip(panels, (("by_activity", "user"), ("by_popularity", "item")), strict=True):
        labels = [f"{group['from']:,} to {group['to']:,}" for group in measured[name]]
        bars = panel.barh(labels, [group["rmse"] for group in measured[name]])
        panel.bar_label(bars, fmt="%.3f", padding=3)
        panel.margins(x=0.15)
        panel.invert_yaxis()
        panel.set(title=f"RMSE by training ratings of the {kind}", xlabel="RMSE")
