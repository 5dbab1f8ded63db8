"""Pictures of the test ratings beside their predictions, and a table of the largest misses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dsgmcmc.diagnostics.overview import TextTable
from dsgmcmc.errors import InputError
from dsgmcmc.model.predictive.base import TINY, nearest_level
from dsgmcmc.plots.figures import axes_or_new, column_of, in_unit
from dsgmcmc.posterior.heldout import predict_test
from dsgmcmc.posterior.index import shown
from dsgmcmc.posterior.run import Run, once
from dsgmcmc.posterior.scores import Pit, coverage
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
    levels : (R,) float64 or None
        Levels of the ratings, if they have some.
    probability : (q, R) float64 or None
        Predicted probabilities of the levels.
    """

    pair: Int64
    rating: Float64
    point: Float64
    low: Float64
    high: Float64
    levels: Float64 | None = None
    probability: Float64 | None = None

    @classmethod
    def of(cls, run: Run) -> HeldOut:
        """Return the test ratings that are not known only by bounds; the run keeps them.

        Raises InputError as `dsgmcmc.posterior.heldout.predict_test`.
        """
        return once(run, cls, partial(cls._predict, run))

    @classmethod
    def _predict(cls, run: Run) -> HeldOut:
        """Predict the test ratings."""
        all_of_test = predict_test(run)
        test = all_of_test.exact()
        predictive = test.predictive(run.config.law, run.levels)
        probability = None
        if run.levels is not None:
            probability = predictive.probabilities()
        return cls(
            pair=np.flatnonzero(~all_of_test.bounded),
            rating=test.rating,
            point=test.point(run.config.law),
            low=test.limits.clip(predictive.quantile(0.05)),
            high=test.limits.clip(predictive.quantile(0.95)),
            levels=run.levels,
            probability=probability,
        )

    def of_levels(self) -> Float64:
        """Return the predicted probabilities of the recorded levels, (q,)."""
        assert self.levels is not None
        assert self.probability is not None
        recorded = nearest_level(self.rating, self.levels)
        probability: Float64 = self.probability[np.arange(len(recorded)), recorded]
        return probability

    def misses(self) -> Float64:
        """Return errors relative to half the width of the intervals.

        Of levels, -log p of the recorded level.
        """
        if self.levels is not None:
            surprise: Float64 = -np.log(np.maximum(self.of_levels(), TINY))
            return surprise
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
    axes.set(title="Test ratings and predictions")
    if test.levels is not None:
        _draw_by_level(test, test.levels, axes)
        return axes
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
    axes.set(xlabel=in_unit(run, "predicted"), ylabel=in_unit(run, "observed"))
    axes.legend(fontsize=9)
    return axes


def _draw_by_level(test: HeldOut, levels: Float64, axes: Axes) -> None:
    """Draw the distribution of the predictions of each recorded level: quartiles, 5 and 95 %."""
    recorded = nearest_level(test.rating, levels)
    found = np.unique(recorded)
    of_levels = [test.point[recorded == level] for level in found]
    places = found.tolist()
    axes.boxplot(of_levels, positions=places, whis=(5, 95), sym="")
    axes.set_xticks(places, [f"{level:g}" for level in levels[found]])
    axes.set(xlabel="observed", ylabel="predicted")


def level_shares(run: Run, axes: Axes | None = None) -> Axes:
    """Draw the share of each level among test ratings beside its mean predicted probability.

    Parameters and errors are those of `observed_and_predicted`; ratings must have levels.
    """
    axes = axes_or_new(axes)
    test = HeldOut.of(run)
    if test.levels is None or test.probability is None:
        raise InputError(f"{run.path}: its ratings have no levels")
    places = np.arange(len(test.levels))
    recorded = np.bincount(nearest_level(test.rating, test.levels), minlength=len(places))
    axes.bar(places - 0.2, recorded / len(test.rating), 0.4, label="observed")
    axes.bar(places + 0.2, test.probability.mean(axis=0), 0.4, label="predicted")
    shown_at = places[:: max(1, len(places) // 10)]
    axes.set_xticks(shown_at, [f"{level:g}" for level in test.levels[shown_at]])
    axes.set(title="Share of each level", xlabel="level", ylabel="share of test ratings")
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
    """Make a table of the test ratings that are farthest from their predictions.

    Measured by their intervals or, of levels, by the predicted probability of the recorded one.
    """
    test = HeldOut.of(run)
    last = "90 % interval"
    spread = [f"{low:.4g} to {high:.4g}" for low, high in zip(test.low, test.high, strict=True)]
    if test.levels is not None:
        last = "probability of the level"
        spread = [f"{probability:.3g}" for probability in test.of_levels()]
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
                spread[position],
            ]
        )
    headings = (
        column_of(run, "user"),
        column_of(run, "item"),
        "observed",
        "predicted",
        last,
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
