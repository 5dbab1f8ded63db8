"""Pictures of what was observed and what is missing, and of what stands in its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dsgmcmc.plots.figures import axes_or_new, column_of, in_unit
from dsgmcmc.posterior.cells.predict import Predictor
from dsgmcmc.posterior.index import Vocabulary
from dsgmcmc.posterior.rated import Rated, read_rated
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.settings import PredictOptions
from dsgmcmc.targets.state import RandomStream
from dsgmcmc.types import Array, Float64, Int32, Purpose

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Squares of the map along each side, at most.
SQUARES = 120
#: Missing cells that are imputed for a picture.
IMPUTED = 4_000
#: Bars of a histogram.
BINS = 40


def _places(names: Vocabulary) -> Int32:
    """Return the place of each row in the order of names, (n,)."""
    order = names.rows_in_order()
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    return place


def observed_map(run: Run, axes: Axes | None = None, *, rated: Rated | None = None) -> Axes:
    """Draw which cells were observed in training, rows and columns in the order of their names.

    Parameters
    ----------
    run : Run
    axes : matplotlib.axes.Axes, optional
        Axes to draw on; by default those of a new figure.
    rated : Rated, optional
        Training ratings of all users; by default read from the ratings file of the run.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InputError
        If the ratings file of the run is missing, or Matplotlib is not installed.
    """
    axes = axes_or_new(axes)
    if rated is None:
        rated = read_rated(run)
    cells = rated.pattern.tocoo()
    n_users = len(run.users)
    n_items = len(run.items)
    sizes = (min(SQUARES, n_users), min(SQUARES, n_items))
    rows = _places(run.users)[cells.row] * sizes[0] // n_users
    columns = _places(run.items)[cells.col] * sizes[1] // n_items
    counts = np.zeros(sizes)
    np.add.at(counts, (rows, columns), 1.0)
    of_rows = np.bincount(np.arange(n_users) * sizes[0] // n_users)
    of_columns = np.bincount(np.arange(n_items) * sizes[1] // n_items)
    share = counts / np.outer(of_rows, of_columns)
    image = axes.imshow(share, aspect="auto", cmap="Blues", vmin=0, interpolation="nearest")
    axes.set(xticks=[], yticks=[], title="Share of cells that were observed")
    axes.set(xlabel=f"{column_of(run, 'item')}, by name", ylabel=column_of(run, "user"))
    axes.figure.colorbar(image, ax=axes)
    return axes


def imputed_and_observed(run: Run, axes: Axes | None = None, *, rated: Rated | None = None) -> Axes:
    """Draw the distributions of observed values, and of values drawn for missing cells.

    Parameters
    ----------
    run : Run
    axes : matplotlib.axes.Axes, optional
        Axes to draw on; by default those of a new figure.
    rated : Rated, optional
        As for `observed_map`.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InputError
        If the run has no draws, its ratings file is missing, or Matplotlib is not installed.
    """
    axes = axes_or_new(axes)
    with run.open_ratings() as ratings:
        if rated is None:
            rated = Rated(ratings)
        observed = ratings.slab("train", 0, ratings.n_rows).values.astype(np.float64)
    values: dict[str, Array] = {
        "observed": observed,
        "drawn for missing cells": _imputed(run, rated),
    }
    ends = np.concatenate(list(values.values()))
    low, high = np.quantile(ends, (0.005, 0.995)).tolist()
    edges = np.linspace(low, high, BINS + 1)
    if run.config.law.transform.point_name == "median" and low > 0:
        edges = np.geomspace(low, high, BINS + 1)
        axes.set(xscale="log")
    for label, of_label in values.items():
        if len(of_label):
            counts, _ = np.histogram(np.clip(of_label, low, high), edges)
            axes.stairs(counts / len(of_label), edges, fill=True, alpha=0.45, label=label)
    axes.set(title="Observed and imputed values", xlabel=in_unit(run, "value"), ylabel="share")
    axes.legend(fontsize=9)
    return axes


def _imputed(run: Run, rated: Rated) -> Float64:
    """Draw one value for each of some missing cells; the same ones for the same run."""
    stream = RandomStream(run.config.seed, chain=0, iteration=0)
    generator = stream.generator(Purpose.PICTURE)
    users = generator.integers(0, len(run.users), IMPUTED, dtype=np.int32)
    items = generator.integers(0, len(run.items), IMPUTED, dtype=np.int32)
    uniforms = generator.random(IMPUTED)
    missing = np.asarray(rated.pattern[users, items]).ravel() == 0
    uniforms = uniforms[missing]
    predictor = Predictor(run, PredictOptions(clip=True))
    values = np.empty(len(uniforms))
    for rows, predictive in predictor.distributions(users[missing], items[missing]):
        values[rows] = predictor.limits.clip(predictive.quantile(uniforms[rows]))
    return values
