"""People and items of ordered levels on one line [Wright & Masters 1982], and what items tell.

[Wright & Masters 1982] Rating Scale Analysis, MESA Press.
[Samejima 1969] Psychometrika, Monograph Supplement 17.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dsgmcmc.plots.figures import axes_or_new, column_of
from dsgmcmc.posterior.item_parameters import item_parameters, user_parameters
from dsgmcmc.posterior.run import Run, once
from dsgmcmc.tables.result import Table
from dsgmcmc.types import Float64

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Points of a curve.
POINTS = 121


def has_items(run: Run) -> bool:
    """Whether ratings are ordered levels, so that items have parameters."""
    return bool(run.draws) and run.config.law.thresholds_of_items(run.draw(0)) is not None


class _Line(NamedTuple):
    """Abilities of people, (n,), and parameters of items, on one line."""

    people: Float64
    items: Table

    @classmethod
    def of(cls, run: Run) -> _Line:
        """Return those of a run, which keeps them; raises InputError as `item_parameters`."""
        return once(run, cls, lambda: cls(user_parameters(run)["ability"], item_parameters(run)))


class Curve(NamedTuple):
    """Slope of an item, and its thresholds, (levels - 1,) float64 [Samejima 1969]."""

    slope: float
    thresholds: Float64

    def reached(self, ability: Float64) -> Float64:
        """Return the probabilities of reaching each level above the lowest, (points, levels - 1).

        Abilities are (points,) float64, in logits.
        """
        return 1 / (1 + np.exp(-self.slope * (ability[:, np.newaxis] - self.thresholds)))


def curves_of(items: Table) -> list[Curve]:
    """Return the curves of items, in their order, at the posterior means of the parameters."""
    names = sorted(
        (name for name in items if name.startswith("threshold_") and not name.endswith("_sd")),
        key=lambda name: int(name.removeprefix("threshold_")),
    )
    thresholds = items["difficulty"][:, np.newaxis]
    if names:
        thresholds = np.stack([items[name] for name in names], axis=1)
    slopes = items.get("discrimination", np.ones(len(thresholds)))
    return [
        Curve(slope, of_item[~np.isnan(of_item)])
        for slope, of_item in zip(slopes.tolist(), thresholds, strict=True)
    ]


def wright_map(run: Run, axes: Axes | None = None) -> Axes:
    """Draw the distributions of abilities (above) and of difficulties (below) on one line.

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
        If ratings are not ordered levels, the run has no draws, or Matplotlib is not installed.
    """
    line = _Line.of(run)
    people = line.people
    items = line.items["difficulty"]
    items = items[~np.isnan(items)]
    axes = axes_or_new(axes)
    low, high = np.quantile(np.concatenate([people, items]), (0.005, 0.995)).tolist()
    edges = np.linspace(low, high, 41)
    for values, side, entity in ((people, 1, "user"), (items, -1, "item")):
        counts, _ = np.histogram(np.clip(values, low, high), edges)
        share = side * counts / max(counts.max(), 1)
        axes.stairs(share, edges, fill=True, alpha=0.6, label=column_of(run, entity))
    axes.axhline(0, color="gray", linewidth=0.8)
    axes.set(title="Abilities above, difficulties below", xlabel="logits", yticks=[])
    axes.legend(fontsize=9)
    return axes


def information(run: Run, axes: Axes | None = None) -> Axes:
    """Draw the standard error of an ability from all items together, by ability.

    It is one over the root of the sum of the items' information; graded response model
    [Samejima 1969], at the posterior means of the parameters.

    Parameters, returns and errors are those of `wright_map`.
    """
    line = _Line.of(run)
    axes = axes_or_new(axes)
    low, high = np.quantile(line.people, (0.005, 0.995)).tolist()
    ability = np.linspace(low, high, POINTS)
    total = _information(line.items, ability)
    axes.plot(ability, 1 / np.sqrt(total))
    axes.set(title="Standard error of an ability, all items answered")
    axes.set(xlabel="ability in logits", ylabel="standard error", ylim=(0, None))
    return axes


def _information(items: Table, ability: Float64) -> Float64:
    """Return the Fisher information of all items, (points,): sum of P'^2 / P over levels."""
    total = np.zeros(len(ability))
    for curve in curves_of(items):
        reached = curve.reached(ability)
        change = curve.slope * reached * (1 - reached)
        edges = np.ones((len(ability), 1))
        level = -np.diff(np.concatenate([edges, reached, 0 * edges], axis=1), axis=1)
        rise = -np.diff(np.concatenate([0 * edges, change, 0 * edges], axis=1), axis=1)
        total += (np.square(rise) / np.maximum(level, 1e-12)).sum(axis=1)
    return total
