"""Pictures of the test ratings beside their predictions, and a table of the largest misses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dsgmcmc.diagnostics.overview import TextTable
from dsgmcmc.diagnostics.scores import Pit, coverage
from dsgmcmc.plots.figures import axes_or_new
from dsgmcmc.posterior.heldout import predict_test
from dsgmcmc.posterior.index import shown
from dsgmcmc.posterior.run import Run
from dsgmcmc.types import Float64, Int64

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dsgmcmc.plots.figures import Panels

#: Test ratings whose intervals are drawn.
POINTS = 300
#: Rows of the table of misses.
MISSES = 10


@dataclass(frozen=True)
class HeldOut:
    """Exact test ratings beside their predictions, (q,) float64 each, in units of the ratings.

    Attributes
    ----------
    pair : (q,) int64
        Positions of the ratings in `Run.test_pairs`.
    rating, point, low, high : (q,) float64
        Ratings, their predictions, and the ends of central 90 % predictive intervals.
    """

    pair: Int64
    rating: Float64
    point: Float64
    low: Float64
    high: Float64

    @classmethod
    def of(cls, run: Run) -> HeldOut:
        """Predict the test ratings that are not known only by bounds.

        Raises InputError as `dsgmcmc.posterior.heldout.predict_test`.
        """
        all_of_test = predict_test(run)
        test = all_of_test.exact()
        predictive = test.predictive(run.config.law, run.levels)
        return cls(
            pair=np.flatnonzero(~all_of_test.bounded),
            rating=test.rating,
            point=test.point(run.config.law),
            low=test.limits.clip(predictive.quantile(0.05)),
            high=test.limits.clip(predictive.quantile(0.95)),
        )

    def misses(self) -> Float64:
        """Return errors relative to half the width of the intervals."""
        half = (self.high - self.low) / 2
        smallest = 1e-6 * max(float(np.ptp(self.rating)), np.finfo(np.float64).tiny)
        missed: Float64 = np.abs(self.rating - self.point) / np.maximum(half, smallest)
        return missed


def observed_and_predicted(run: Run, axes: Axes | None = None) -> Axes:
    """Draw test ratings against their predictions, with 90 % predictive intervals.

    Parameters
    ----------
    run : Run
    axes : matplotlib.axes.Axes, optional
        Axes to draw on; by default those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InputError
        If the run had no test ratings or has not ended, or Matplotlib is not installed.
    """
    axes = axes_or_new(axes)
    test = HeldOut.of(run)
    order = np.argsort(test.point, kind="stable")
    number = min(POINTS, len(order))
    chosen = order[np.linspace(0, len(order) - 1, number).astype(int)]
    point = test.point[chosen]
    rating = test.rating[chosen]
    low = test.low[chosen]
    high = test.high[chosen]
    inside = (rating >= low) & (rating <= high)
    axes.vlines(point, low, high, color="C0", alpha=0.18, linewidth=1.2, label="90 % interval")
    axes.plot(point[inside], rating[inside], ".", color="C0", markersize=5, label="inside")
    axes.plot(point[~inside], rating[~inside], "x", color="C3", markersize=5, label="outside")
    ends = [float(min(point.min(), rating.min())), float(max(point.max(), rating.max()))]
    axes.plot(ends, ends, "--", color="gray", linewidth=1)
    if run.config.law.transform.point_name == "median" and ends[0] > 0:
        axes.set(xscale="log", yscale="log")
    axes.set(title="Test ratings and predictions", xlabel="predicted", ylabel="observed")
    axes.legend(fontsize=9)
    return axes


def error_histogram(run: Run, axes: Axes | None = None) -> Axes:
    """Draw the distribution of errors of test ratings, in half widths of their 90 % intervals.

    Parameters and errors are those of `observed_and_predicted`.
    """
    axes = axes_or_new(axes)
    test = HeldOut.of(run)
    signed = np.sign(test.rating - test.point) * test.misses()
    axes.hist(np.clip(signed, -4, 4), bins=np.linspace(-4, 4, 41).tolist(), alpha=0.6)
    for end in (-1, 1):
        axes.axvline(end, linestyle="--", color="gray", linewidth=1)
    axes.set(title="Errors in half widths of their intervals", ylabel="test ratings")
    axes.set(xlabel="observed - predicted, of half the 90 % interval")
    return axes


def largest_misses(run: Run) -> TextTable:
    """Make a table of the test ratings that are farthest outside of their intervals."""
    test = HeldOut.of(run)
    missed = test.misses()
    users, items = run.test_pairs()
    rows = []
    for position in np.argsort(-missed, kind="stable")[:MISSES].tolist():
        pair = test.pair[position]
        rows.append(
            [
                shown(run.users.ids[users[pair]]),
                shown(run.items.ids[items[pair]]),
                f"{test.rating[position]:.4g}",
                f"{test.point[position]:.4g}",
                f"{test.low[position]:.4g} to {test.high[position]:.4g}",
            ]
        )
    columns = run.columns
    headings = (
        columns.get("user", "user"),
        columns.get("item", "item"),
        "observed",
        "predicted",
        "90 % interval",
    )
    return TextTable("Farthest from their predictions", headings, rows)


def draw_calibration(panels: Panels, transforms: Pit, counts: Sequence[float]) -> None:
    """Draw coverage of central predictive intervals, and the probability integral transform."""
    covered, transformed = panels
    levels = np.linspace(0.02, 0.98, 49)
    inside = coverage(transforms, levels.tolist())
    covered.plot([0, 1], [0, 1], "--", color="gray", label="calibrated")
    covered.plot(levels, list(inside.values()), label="this run")
    covered.set(
        title="Test ratings in predictive intervals",
        xlabel="nominal coverage",
        ylabel="observed coverage",
    )
    density = np.asarray(counts) / max(sum(counts), 1) * len(counts)
    transformed.stairs(
        density, np.linspace(0, 1, len(counts) + 1), fill=True, alpha=0.6, label="this run"
    )
    transformed.axhline(1, linestyle="--", color="gray", label="calibrated")
    transformed.set(title="Probability integral transform")
    transformed.set(xlabel="predicted probability below the rating", ylabel="density")
    for panel in panels:
        panel.legend()
