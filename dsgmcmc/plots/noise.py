"""The noise of rows that have a scale of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.plots.figures import axes_or_new, column_of, draw_intervals, short
from dsgmcmc.plots.items import has_items
from dsgmcmc.posterior.draws import OTHER
from dsgmcmc.posterior.index import shown
from dsgmcmc.posterior.moments import Estimates, over_draws
from dsgmcmc.posterior.run import Run
from dsgmcmc.settings import named
from dsgmcmc.types import Float64

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Rows that are shown from each end.
ENDS = 9


def noise_sides(run: Run) -> tuple[str, ...]:
    """Return the entities whose rows have a noise sd of their own, in the unit of the likelihood.

    Scales of ordered levels are discriminations, not noise.
    """
    if has_items(run):
        return ()
    noise = run.config.noise
    return tuple(entity for entity in ("item", "user") if noise in (f"by-{entity}", "both"))


def noise_sds(run: Run, entity: str) -> Estimates:
    """Return the noise sds of users or of items, (n,), with an average row of the other side.

    They are in the unit of the likelihood: of logarithms with ``--scale log``.

    Raises
    ------
    InputError
        If these rows have no noise of their own, or the run has no saved draws.
    """
    run.need_draws()
    if entity not in noise_sides(run):
        raise InputError(
            f"{run.path}: {entity}s have no noise of their own: sample with"
            f" {named('noise')} by-{entity}"
        )

    def arrays_at(position: int) -> dict[str, Float64]:
        draw = run.draw(position)
        own = draw.noise_scale[entity].astype(np.float64)
        others = np.exp(draw.mean_log_scale(OTHER[entity]))
        return {"sd": 1 / np.sqrt(draw.tau * own * others)}

    return over_draws(run, arrays_at)["sd"]


def noise(run: Run, entity: str, axes: Axes | None = None) -> Axes:
    """Draw the noise sds of the quietest and noisiest users or items, with two sds to each side.

    Parameters
    ----------
    run : Run
    entity : {"user", "item"}
    axes : matplotlib.axes.Axes, optional
        Axes to draw on; by default those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InputError
        As `noise_sds`, or if Matplotlib is not installed.
    """
    estimates = noise_sds(run, entity)
    axes = axes_or_new(axes)
    order = np.argsort(estimates.mean, kind="stable")
    if len(order) > 2 * ENDS:
        order = np.concatenate([order[:ENDS], order[-ENDS:]])
    mean = estimates.mean[order]
    # an sd is positive: the intervals are those of its logarithm
    factor = np.exp(2 * estimates.sd[order] / mean)
    ids = run.vocabulary(entity).ids[order].tolist()
    labels = [short(shown(name)) for name in ids]
    draw_intervals(axes, mean, mean / factor, mean * factor, labels=labels)
    axes.set(xscale="log", xlabel="noise sd")
    axes.set(title=f"Noise by {column_of(run, entity)}: lowest and highest")
    return axes
