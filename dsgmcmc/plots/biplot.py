"""The plane of the first two factors: users as points, items as arrows [Gabriel 1971].

[Gabriel 1971] The biplot graphic display of matrices with application to principal component
analysis, Biometrika 58.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.plots.figures import axes_or_new, column_of, short, without_overlaps
from dsgmcmc.posterior.index import shown
from dsgmcmc.posterior.loadings import loadings
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.traces import explained_by_groups
from dsgmcmc.ratings.format import SIDES
from dsgmcmc.tables.result import Table
from dsgmcmc.terminal import plain
from dsgmcmc.types import Float64

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Items with the longest arrows that are named, and users that are drawn.
NAMED = 30
USERS = 3_000
#: Colours of points, by the largest categories of a feature, and of arrows.
COLOURS = ("C0", "C2", "C3", "C4", "C5", "C6", "C8", "C9")
ARROWS = "C1"


class _Plane(NamedTuple):
    """Coordinates in the first two factors, (n, 2), and their standard deviations."""

    mean: Float64
    sd: Float64

    @classmethod
    def of(cls, table: Table) -> _Plane:
        mean = np.stack([table["factor_1"], table["factor_2"]], axis=1)
        sd = np.stack([table["factor_1_sd"], table["factor_2_sd"]], axis=1)
        return cls(mean, sd)


def telling_feature(run: Run) -> str | None:
    """Return the group of users' features that explains most.

    It is None without features, or if the ratings file, which has their values, is missing.
    """
    if not run.feature_names("user"):
        return None
    try:
        run.open_ratings().close()
    except InputError:
        return None
    return explained_by_groups(run, "user")[0].name


def _values_of(run: Run, feature: str) -> tuple[list[str], Float64]:
    """Return the names of a group of users' features, and their values, (n, names) float64.

    Raises InputError if there is no such group, or the ratings file is missing.
    """
    with run.open_ratings() as ratings:
        side = SIDES[ratings.entities.index("user")]
        if side not in ratings.features or feature not in ratings.features[side].groups:
            raise InputError(f"{run.path}: users have no feature {feature!r}")
        features = ratings.feature_slab(side, 0, len(run.users))
    places = [place for place, group in enumerate(features.groups) if group == feature]
    values = np.asarray(features.matrix()[:, places].todense(), np.float64)
    return [features.names[place] for place in places], values


def _categories(axes: Axes, points: Float64, names: Sequence[str], values: Float64) -> None:
    """Draw points, (n, 2), in the colours of the largest categories; `values` is (n, names)."""
    rest = np.ones(len(points), bool)
    largest = np.argsort(-values.sum(axis=0), kind="stable")[: len(COLOURS)].tolist()
    for colour, category in zip(COLOURS, largest, strict=False):
        here = rest & (values[:, category] > 0)
        rest &= ~here
        label = short(names[category])
        axes.plot(*points[here].T, ".", color=colour, alpha=0.6, markersize=5, label=label)
    axes.plot(*points[rest].T, ".", color="gray", alpha=0.35, markersize=4)
    axes.legend(fontsize=9, markerscale=2)


def biplot(run: Run, axes: Axes | None = None, *, feature: str | None = None) -> Axes:
    """Draw users (points) and items (arrows) in the plane of the first two factors.

    Arrows are the loadings of items, scaled to the scores of the users; the projection of a point
    on an arrow is high where the user's value of the item is high, biases left out. Lines at the
    ends of arrows are one standard deviation to each side.

    Parameters
    ----------
    run : Run
    axes : matplotlib.axes.Axes, optional
        Axes to draw on; by default those of a new figure.
    feature : str, optional
        Column of the users' features that colours the points: its largest categories, or its
        standardised number.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InputError
        If the run has no saved draws or fewer than two factors, users have no such feature, the
        ratings file that has it is missing, or Matplotlib is not installed.
    """
    if run.config.rank < 2:
        raise InputError(f"{run.path} has rank {run.config.rank}: a biplot needs two factors")
    axes = axes_or_new(axes)
    found = loadings(run)
    users = _Plane.of(found.users).mean
    items = _Plane.of(found.items)
    chosen = np.linspace(0, len(users) - 1, min(USERS, len(users))).astype(int)
    if feature is None:
        axes.plot(*users[chosen].T, ".", color=COLOURS[0], alpha=0.35, markersize=4)
    else:
        names, values = _values_of(run, feature)
        if len(names) > 1:
            _categories(axes, users[chosen], names, values[chosen])
        else:
            first, second = users[chosen].T
            numbers = axes.scatter(first, second, s=8, c=values[chosen, 0], alpha=0.6)
            axes.figure.colorbar(numbers, ax=axes, label=f"{plain(feature)}, standardised")
    length = np.hypot(*items.mean.T)
    longest = np.argsort(-length, kind="stable")[:NAMED]
    scale = float(np.quantile(np.hypot(*users.T), 0.99) / max(length[longest[0]], 1e-300))
    ends = scale * items.mean[longest]
    spread = scale * items.sd[longest]
    zero = np.zeros(len(ends))
    axes.quiver(
        zero,
        zero,
        *ends.T,
        angles="xy",
        scale_units="xy",
        scale=1,
        color=ARROWS,
        alpha=0.6,
        width=0.002,
    )
    axes.errorbar(
        ends[:, 0],
        ends[:, 1],
        xerr=spread[:, 0],
        yerr=spread[:, 1],
        fmt="none",
        ecolor=ARROWS,
        elinewidth=0.8,
    )
    axes.margins(0.12)
    axes.set_aspect("equal", adjustable="datalim")
    axes.axhline(0, color="gray", linewidth=0.5)
    axes.axvline(0, color="gray", linewidth=0.5)
    share = [f"{part:.0%}" for part in found.share[:2]]
    axes.set(xlabel=f"factor 1 ({share[0]})", ylabel=f"factor 2 ({share[1]})")
    axes.set(title=f"{column_of(run, 'user')} (points) and {column_of(run, 'item')} (arrows)")
    ids = run.items.ids[longest]
    texts = [
        axes.text(x, y, short(shown(name)), fontsize=9, ha="left" if x > 0 else "right")
        for (x, y), name in zip(ends.tolist(), ids.tolist(), strict=True)
    ]
    without_overlaps(axes, texts)
    return axes
