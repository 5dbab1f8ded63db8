"""Pictures of sampling: traces of shared parameters, and errors while the chains go on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from dsgmcmc.posterior.run import Run
from dsgmcmc.types import Float64

if TYPE_CHECKING:
    from dsgmcmc.plots.figures import Panels

#: Metrics of a run that the figures show.
METRICS = ("iteration", "time_s", "rmse", "rmse_mean")


def metrics_of(run: Run) -> dict[int, dict[str, Float64]]:
    """Return the columns `METRICS` of ``metrics.jsonl`` by chain; null becomes NaN."""
    metrics = {}
    for chain, lines in groupby(run.directory.metrics(), lambda line: line["chain"]):
        rows = (tuple(_number(line.get(name)) for name in METRICS) for line in lines)
        columns = np.fromiter(rows, dtype=(np.float64, len(METRICS))).T
        metrics[chain] = dict(zip(METRICS, columns, strict=True))
    return metrics


def _number(value: float | None) -> float:
    return np.nan if value is None else value


def draw_traces(panels: Panels, chains: Sequence[int], shown: Mapping[str, Float64]) -> None:
    """Draw traces of scalars, (chains, draws) each, by label."""
    for panel, (label, values) in zip(panels, shown.items(), strict=True):
        for chain, trace in zip(chains, values, strict=True):
            panel.plot(trace, linewidth=0.8, label=f"chain {chain}")
        panel.set(title=label, xlabel="draw")
    if len(chains) > 1:
        panels[0].legend()


def draw_errors(panels: Panels, metrics: Mapping[int, Mapping[str, Float64]]) -> None:
    """Draw the RMSE of all draws together and of each draw, by iteration and by time."""
    axes = (("iteration", "iteration"), ("time_s", "seconds"))
    for panel, (axis, label) in zip(panels, axes, strict=True):
        for number, (chain, columns) in enumerate(metrics.items()):
            color = f"C{number % 10}"
            panel.plot(columns[axis], columns["rmse"], color=color, alpha=0.35, linewidth=0.8)
            panel.plot(columns[axis], columns["rmse_mean"], color=color, label=f"chain {chain}")
        panel.set(title=f"RMSE by {label}", xlabel=label, ylabel="RMSE on test ratings")
    if not metrics:
        return
    # the scale ignores the first draws, because their errors are much larger
    settled = []
    for columns in metrics.values():
        settled += [columns["rmse"][len(columns["rmse"]) // 20 :], columns["rmse_mean"]]
    low, high = np.nanquantile(np.concatenate(settled), (0, 0.98)) * (0.99, 1.01)
    for panel in panels:
        panel.legend()
        if low < high:  # False for NaN, the value before the first draw
            panel.set_ylim(low, high)
