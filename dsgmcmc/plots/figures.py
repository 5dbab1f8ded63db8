"""Figures: their style, new axes, SVG for a page, and labels that do not overlap."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from dsgmcmc.posterior.export import require
from dsgmcmc.posterior.run import Run
from dsgmcmc.terminal import plain
from dsgmcmc.types import Float64

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

    Panels = Sequence[Axes]

#: With these settings equal figures have equal bytes, and a dollar sign in a name does not start a
#: formula.
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "dsgmcmc",
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 12,
    "legend.frameon": False,
}
#: Width and height of a panel of a figure, in inches.
PANEL = (5.2, 3.2)
#: Fonts of browsers are up to so much wider than those that Matplotlib measures.
WIDER = 1.25
#: Longest name on an axis, in characters.
NAME = 22


def svg(
    count: int, fill: Callable[[Panels], None], *, height: float = 1.0, columns: int = 2
) -> str:
    """Return the HTML of a figure with panels in rows.

    Parameters
    ----------
    count : int
        Number of panels.
    fill : function
        Draws the contents of the panels.
    height : float
        Height of a panel, relative to `PANEL`.
    columns : int
        Number of panels in a row.

    Raises
    ------
    InputError
        If Matplotlib is not installed.
    """
    require("a report", "matplotlib")
    import matplotlib as mpl
    from matplotlib.figure import Figure

    rows = -(-count // columns)
    text = io.StringIO()
    with mpl.rc_context({**mpl.rcParamsDefault, **STYLE}):
        figure = Figure(figsize=(2 * PANEL[0], rows * height * PANEL[1]), layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False).ravel()
        for unused in panels[count:]:
            unused.set_axis_off()
        fill(panels[:count].tolist())
        no_metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(text, format="svg", metadata=no_metadata)
    _, tag, content = text.getvalue().partition("<svg")  # without the declarations of a file
    return f"<figure>{tag}{content}</figure>"


def axes_or_new(axes: Axes | None) -> Axes:
    """Return axes, or those of a new figure if there are none.

    Raises InputError if Matplotlib is not installed.
    """
    if axes is not None:
        return axes
    require("a picture", "matplotlib")
    from matplotlib.figure import Figure

    return Figure(figsize=PANEL, layout="constrained").subplots()


def draw_intervals(
    axes: Axes, mean: Float64, low: Float64, high: Float64, *, labels: Sequence[str]
) -> None:
    """Draw means, (n,), with intervals from `low` to `high`, a line each, from below."""
    places = np.arange(len(mean))
    spread = np.stack([mean - low, high - mean])
    axes.errorbar(mean, places, xerr=spread, fmt="o", markersize=4, elinewidth=1)
    axes.set_yticks(places, labels, fontsize=9)


def column_of(run: Run, entity: str) -> str:
    """Return what the ratings call users or items, as pages show it."""
    return plain(run.vocabulary(entity).title)


def in_unit(run: Run, text: str) -> str:
    """Return what an axis shows, with the unit of the ratings if users have said it."""
    if run.reading.unit is None:
        return text
    unit = plain(run.reading.unit).replace("$", r"\$")
    return f"{text} ({unit})"


def short(name: str) -> str:
    """Return a name as pages show it, cut to `NAME` characters."""
    name = plain(name)
    if len(name) <= NAME:
        return name
    return f"{name[: NAME - 3]}..."


def without_overlaps(axes: Axes, texts: Sequence[Text]) -> list[bool]:
    """Remove labels that lie over an earlier one or outside of the axes; return which stay."""
    cast("Figure", axes.figure).draw_without_rendering()
    frame = axes.get_window_extent()
    kept: list[Any] = []
    stays = []
    for text in texts:
        box = text.get_window_extent().expanded(WIDER, 1.1)
        inside = frame.contains(box.x0, box.y0) and frame.contains(box.x1, box.y1)
        stays.append(bool(inside and not any(box.overlaps(other) for other in kept)))
        if stays[-1]:
            kept.append(box)
        else:
            text.remove()
    return stays
