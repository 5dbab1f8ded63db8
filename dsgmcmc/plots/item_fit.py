"""How ordered levels fit their items: curves, a table, and residuals that go together [Yen 1984].

[Yen 1984] Applied Psychological Measurement 8:125.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dsgmcmc.diagnostics.overview import TextTable
from dsgmcmc.errors import InputError
from dsgmcmc.plots.figures import axes_or_new, short
from dsgmcmc.plots.items import POINTS, curves_of
from dsgmcmc.posterior.cells.predict import Predictor
from dsgmcmc.posterior.index import shown
from dsgmcmc.posterior.item_parameters import (
    item_parameters,
    ratings_of_fit,
    training_pairs,
    user_parameters,
)
from dsgmcmc.posterior.run import Run, once
from dsgmcmc.posterior.settings import PredictOptions
from dsgmcmc.ratings.pairs import RatedPairs
from dsgmcmc.tables.result import Table
from dsgmcmc.types import Float64, Int32

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Lines of a table.
LINES = 40
#: Pairs of items that are named.
PAIRS = 8
#: Most answers and items from which residuals are correlated.
ANSWERS = 5_000_000
ITEMS = 1_000
#: People who answered both items of a pair, from which their residuals are correlated.
LEAST_SHARED = 30


class ResidualCorrelations(NamedTuple):
    """Correlations of residuals of items (Q3), and how many people answered both.

    Attributes
    ----------
    correlation : (items, items) float64
        NaN for pairs with fewer than `LEAST_SHARED` people.
    shared : (items, items) float64
        Numbers of people.
    """

    correlation: Float64
    shared: Float64

    @classmethod
    def of(cls, run: Run) -> ResidualCorrelations:
        """Return those of the training answers of a run, which keeps them.

        Raises InputError if there are no draws or no ratings file, or more than `ANSWERS` answers
        or `ITEMS` items.
        """
        return once(run, cls, lambda: _correlate(run, training_pairs(run)))

    def pairs(self) -> tuple[Int32, Int32]:
        """Return the two items of each pair with a correlation, (n,) each, the largest first."""
        first, second = np.triu_indices(len(self.correlation), k=1)
        values = self.correlation[first, second]
        order = np.argsort(-np.abs(values), kind="stable")
        order = order[~np.isnan(values[order])]
        return first[order].astype(np.int32), second[order].astype(np.int32)


def _correlate(run: Run, answers: RatedPairs) -> ResidualCorrelations:
    """Correlate what answers differ from their expected values, over people, pairwise complete."""
    n_items = len(run.items)
    if len(answers.values) > ANSWERS or n_items > ITEMS:
        raise InputError(
            f"{run.path}: residuals are correlated for at most {ANSWERS:,} answers to {ITEMS:,}"
            f" items; the run has {len(answers.values):,} to {n_items:,}"
        )
    expected = Predictor(run, PredictOptions()).moments(answers.users, answers.items).mean
    people, rows = np.unique(answers.users, return_inverse=True)
    residuals = np.zeros((len(people), n_items))
    residuals[rows, answers.items] = answers.values - expected
    answered = np.zeros_like(residuals)
    answered[rows, answers.items] = 1.0
    shared = answered.T @ answered
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = residuals.T @ answered / shared  # of an item, among those who answered the other
        variance = np.square(residuals).T @ answered / shared - np.square(mean)
        covariance = residuals.T @ residuals / shared - mean * mean.T
        correlation = covariance / np.sqrt(variance * variance.T)
    correlation[shared < LEAST_SHARED] = np.nan
    return ResidualCorrelations(correlation, shared)


def _fitted_items(run: Run) -> Table:
    """Return the parameters and the fit of items by difficulty; the run keeps them."""

    def compute() -> Table:
        items = item_parameters(run, ratings_of_fit(run))
        order = np.argsort(items["difficulty"], kind="stable")
        return Table({name: column[order] for name, column in items.items()})

    return once(run, ("fitted items",), compute)


def item_table(run: Run) -> TextTable:
    """Make a table of difficulties, discriminations and fit of items, by difficulty.

    Of more than `LINES` items those that fit worst are shown. Raises InputError as
    `item_parameters`, or if the ratings file is needed and missing.
    """
    items = _fitted_items(run)
    total = len(items["p"])
    chosen = np.sort(np.argsort(items["p"], kind="stable")[:LINES])
    parameters = [name for name in ("difficulty", "discrimination") if name in items]
    rows = []
    for row in chosen.tolist():
        cells = [shown(items["item_id"][row])]
        cells += [f"{items[name][row]:.2f} ± {items[f'{name}_sd'][row]:.2f}" for name in parameters]
        cells += [f"{items[name][row]:.2f}" for name in ("infit", "outfit", "p")]
        rows.append(cells)
    title = "Items by difficulty"
    if total > len(rows):
        title = f"The {len(rows)} of {total:,} items that fit worst, by difficulty"
    return TextTable(title, ("item", *parameters, "infit", "outfit", "p"), rows)


def characteristic_curves(run: Run, axes: Axes | None = None) -> Axes:
    """Draw the expected share of its highest level that an item has, by ability; a line an item.

    Graded response model [Samejima 1969], at the posterior means of the parameters. The three items
    of which `p` is lowest have their names.

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
        As `item_table`, or if Matplotlib is not installed.
    """
    items = _fitted_items(run)
    axes = axes_or_new(axes)
    low, high = np.quantile(user_parameters(run)["ability"], (0.005, 0.995)).tolist()
    ability = np.linspace(low, high, POINTS)
    named_items = np.argsort(items["p"], kind="stable")[:3].tolist()
    for row, curve in enumerate(curves_of(items)):
        share = curve.reached(ability).mean(axis=1)
        if row in named_items:
            axes.plot(ability, share, label=short(shown(items["item_id"][row])), zorder=3)
        else:
            axes.plot(ability, share, color="gray", linewidth=0.7, alpha=0.5)
    axes.set(title="Expected share of the highest level", xlabel="ability in logits", ylim=(0, 1))
    axes.legend(fontsize=9, title="lowest p")
    return axes


def residual_histogram(run: Run, axes: Axes | None = None) -> Axes:
    """Draw the distribution of the correlations of residuals over pairs of items.

    Parameters, returns and errors are those of `characteristic_curves`, and of
    `ResidualCorrelations.of`.
    """
    found = ResidualCorrelations.of(run)
    first, second = found.pairs()
    axes = axes_or_new(axes)
    axes.hist(found.correlation[first, second], bins=40, alpha=0.6)
    expected = -1 / max(len(run.items) - 1, 1)
    axes.axvline(expected, linestyle="--", color="gray", linewidth=1, label="-1 / (items - 1)")
    axes.set(title="Correlations of residuals", xlabel="Q3 of a pair of items", ylabel="pairs")
    axes.legend(fontsize=9)
    return axes


def residual_table(run: Run) -> TextTable:
    """Make a table of the pairs of items whose residuals correlate most.

    Raises InputError as `ResidualCorrelations.of`.
    """
    found = ResidualCorrelations.of(run)
    names = run.items.ids
    rows = []
    for first, second in np.stack(found.pairs(), axis=1)[:PAIRS].tolist():
        rows.append(
            [
                shown(names[first]),
                shown(names[second]),
                f"{found.correlation[first, second]:.2f}",
                f"{found.shared[first, second]:,.0f}",
            ]
        )
    headings = ("item", "and item", "correlation of residuals", "people who answered both")
    return TextTable("Pairs of items whose residuals correlate most", headings, rows)
