"""The highest averages of users, or of items, with how sure their ranks are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from dsgmcmc.plots.figures import axes_or_new, column_of, draw_intervals, in_unit, short
from dsgmcmc.posterior.draws import OTHER
from dsgmcmc.posterior.index import shown
from dsgmcmc.posterior.matrix.ranking import DRAWS, ranking
from dsgmcmc.posterior.run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Rows that are shown.
BEST = 12
#: Most expected ratings, of all pairs at all draws, that are computed for a picture.
CELLS = 20_000_000


def can_be_ranked(run: Run) -> bool:
    """Whether the run predicts ratings of all pairs, and these are few enough for a picture."""
    if run.directions or not run.draws or not run.config.law.can_be_evaluated:
        return False
    return len(run.users) * len(run.items) * min(DRAWS, len(run.draws)) <= CELLS


def best(run: Run, kind: Literal["user", "item"], axes: Axes | None = None) -> Axes:
    """Draw the highest averages, with 90 % intervals; beside them the probability of being best.

    Parameters
    ----------
    run : Run
    kind : {"user", "item"}
        Side that is ranked, by the average expected rating over the other side.
    axes : matplotlib.axes.Axes, optional
        Axes to draw on; by default those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InputError
        As `dsgmcmc.posterior.matrix.ranking.ranking`, or if Matplotlib is not installed.
    """
    table = ranking(run, kind=kind)
    axes = axes_or_new(axes)
    number = min(BEST, len(table["mean"]))
    mean = table["mean"][:number]
    vocabulary = run.vocabulary(kind)
    parts = [table[column][:number].tolist() for column in vocabulary.columns]
    names = [shown(vocabulary.name_of(of_row)) for of_row in zip(*parts, strict=True)]
    labels = [
        f"{short(name)}  {p_best:.0%}"
        for name, p_best in zip(names, table["p_best"][:number].tolist(), strict=True)
    ]
    draw_intervals(axes, mean, table["q05"][:number], table["q95"][:number], labels=labels)
    axes.invert_yaxis()
    axes.set(title=f"Highest {column_of(run, kind)}, with P(best)")
    axes.set(xlabel=in_unit(run, f"average over {column_of(run, OTHER[kind])}"))
    return axes
