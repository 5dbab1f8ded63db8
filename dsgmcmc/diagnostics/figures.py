"""The figures of a report, drawn by Matplotlib as SVG."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dsgmcmc.diagnostics import scores
from dsgmcmc.model.predictive.base import Predictive
from dsgmcmc.posterior.export import require
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


def svg(count: int, fill: Callable[[Panels], None]) -> str:
    """Draw a figure with `count` panels in rows of two; `fill` draws their contents.

    Raises
    ------
    InputError
        If Matplotlib is not installed.
    """
    require("a report", "matplotlib")
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
