"""Effects of features on the mean rating of users, or of items."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.plots.figures import axes_or_new, column_of, draw_intervals, short
from dsgmcmc.posterior.draws import ENTITIES
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.traces import feature_effects

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Effects that are shown, the largest.
LARGEST = 16


def effect_sides(run: Run) -> list[str]:
    """Return the entities whose features have effects on their mean ratings."""
    if not run.draws or not run.config.biases:
        return []
    return [entity for entity in ENTITIES if run.feature_names(entity)]


def effects(run: Run, entity: str, axes: Axes | None = None) -> Axes:
    """Draw the largest effects of features on mean ratings, with 90 % intervals.

    A number counts in units of its standard deviation over the rows; a category is compared with
    the average row. Effects are in the unit of the predictor: of logarithms with ``--scale log``.

    Parameters
    ----------
    run : Run
    entity : {"user", "item"}
        Side that has the features.
    axes : matplotlib.axes.Axes, optional
        Axes to draw on; by default those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InputError
        If these rows have no features, or the run has no biases or no saved draws, or Matplotlib is
        not installed.
    """
    run.need_draws()
    if entity not in effect_sides(run):
        raise InputError(f"{run.path}: {entity}s have no features, or the model has no biases")
    axes = axes_or_new(axes)
    largest = feature_effects(run, entity)[:LARGEST]
    mean = np.array([effect.mean for effect in largest])
    low = np.array([effect.low for effect in largest])
    high = np.array([effect.high for effect in largest])
    draw_intervals(axes, mean, low, high, labels=[short(effect.name) for effect in largest])
    axes.axvline(0, color="gray", linewidth=0.5)
    axes.invert_yaxis()
    axes.set(title=f"Effects of features of {column_of(run, entity)}")
    axes.set(xlabel="change of the mean rating")
    return axes
