"""Charts as SVG, written by hand: lines, bars and histograms with axes. No scripts, no fonts, no network."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dsgmcmc.types import Float64

WIDTH, HEIGHT = 560, 300
LEFT, RIGHT, TOP, BOTTOM = 80, 18, 12, 46
PALETTE = ("#2563eb", "#d97706", "#059669", "#9333ea", "#db2777", "#0891b2", "#65a30d", "#dc2626")
MAX_POINTS = 600  # of a line: more do not show


@dataclass(frozen=True)
class Series:
    """A line of a chart.

    Attributes
    ----------
    label : str
        In the legend; empty to leave it out.
    x, y : (n,) float
    color : str
    style : {"line", "faint", "dashed", "points"}
    """

    label: str
    x: npt.ArrayLike
    y: npt.ArrayLike
    color: str
    style: str = "line"


@dataclass(frozen=True)
class Bar:
    """A bar: its label, its stacked parts (value and colour of each), and a note next to it."""

    label: str
    parts: Sequence[tuple[float, str]]
    note: str = ""


def ticks(low: float, high: float, wanted: int = 6) -> list[float]:
    """Round numbers in a range, low < high, at distances of 1, 2 or 5 times a power of ten.

    Their number is about `wanted`, and at least half of it if that many fit.
    """
    widest = (high - low) / (wanted / 2)
    power = 10.0 ** math.floor(math.log10(widest))
    step = max(m * power for m in (1, 2, 5) if m * power <= widest * (1 + 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def number(value: float, step: float = 0.0) -> str:
    """Text of a tick, with as many decimals as the distance `step` to the next one needs."""
    if value == 0:
        return "0"
    if abs(value) >= 10_000:
        return f"{value / 1e6:g}M" if abs(value) >= 1e6 else f"{value / 1e3:g}k"
    decimals = max(0, -math.floor(math.log10(step) + 1e-9)) if step else 3
    return f"{value:.{decimals}f}"


def _marks(low: float, high: float, wanted: int) -> list[tuple[float, str]]:
    """Ticks and their texts."""
    marks = ticks(low, high, wanted)
    return [(value, number(value, marks[1] - marks[0] if len(marks) > 1 else 0.0)) for value in marks]


@dataclass(frozen=True)
class _Axes:
    """Scales and axes of a chart."""

    x: tuple[float, float]
    y: tuple[float, float]

    def px(self, x: float) -> float:
        return LEFT + (x - self.x[0]) / (self.x[1] - self.x[0]) * (WIDTH - LEFT - RIGHT)

    def py(self, y: float) -> float:
        return HEIGHT - BOTTOM - (y - self.y[0]) / (self.y[1] - self.y[0]) * (HEIGHT - TOP - BOTTOM)

    def draw(self, x_label: str, y_label: str) -> list[str]:
        parts = []
        right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
        for value, text in _marks(*self.y, 5):
            y = self.py(value)
            parts.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(f'<text class="tick" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{text}</text>')
        for value, text in _marks(*self.x, 6):
            x = self.px(value)
            parts.append(f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 5}"/>')
            parts.append(f'<text class="tick" x="{x:.1f}" y="{bottom + 19}" text-anchor="middle">{text}</text>')
        parts.append(f'<line class="axis" x1="{LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}"/>')
        middle = (LEFT + right) / 2
        label = html.escape(x_label)
        parts.append(f'<text class="label" x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">{label}</text>')
        y = (TOP + bottom) / 2
        label = html.escape(y_label)
        if label:
            parts.append(
                f'<text class="label" transform="translate(14 {y}) rotate(-90)" text-anchor="middle">{label}</text>'
            )
        return parts


def _svg(parts: list[str], title: str, height: float = HEIGHT) -> str:
    label = html.escape(title)
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{label}"><title>{label}</title>'
        f"{''.join(parts)}</svg>"
    )


def legend(entries: Sequence[tuple[str, str]]) -> str:
    """HTML of a legend: label and colour of each entry."""
    shown = dict(entries)
    if not shown:
        return ""
    items = "".join(
        f'<span><i style="background:{color}"></i>{html.escape(label)}</span>' for label, color in shown.items()
    )
    return f'<div class="legend">{items}</div>'


def line_chart(
    title: str,
    series: Sequence[Series],
    x_label: str,
    y_label: str,
    y_range: tuple[float, float] | None = None,
    x_range: tuple[float, float] | None = None,
) -> str:
    """Draw lines with common axes: HTML of a figure with a legend, or a note if there is nothing to draw.

    Values that are not finite are left out. Ranges cover all finite values by default; lines are cut there.
    """
    kept = []
    for one in series:
        x, y = np.asarray(one.x, np.float64), np.asarray(one.y, np.float64)
        finite = np.isfinite(x) & np.isfinite(y)
        if finite.any():
            kept.append((one, x[finite], y[finite]))
    if not kept:
        return figure(title, '<p class="none">nothing to show</p>')
    axes = _Axes(
        x_range
        or _extent(
            np.concatenate([x for _, x, _ in kept]), 0.03 if any(one.style == "points" for one in series) else 0.0
        ),
        y_range or _extent(np.concatenate([y for _, _, y in kept]), 0.05),
    )
    inner = []
    for one, x, y in kept:
        if one.style == "points":
            inner += [
                f'<circle cx="{axes.px(a):.1f}" cy="{axes.py(b):.1f}" r="4" fill="{one.color}"/>'
                for a, b in zip(x, y, strict=True)
            ]
            continue
        stride = max(1, len(x) // MAX_POINTS)
        points = " ".join(f"{axes.px(a):.1f},{axes.py(b):.1f}" for a, b in zip(x[::stride], y[::stride], strict=True))
        inner.append(f'<polyline class="{one.style}" stroke="{one.color}" points="{points}"/>')
    box = f'<svg x="{LEFT}" y="{TOP}" width="{WIDTH - LEFT - RIGHT}" height="{HEIGHT - TOP - BOTTOM}" '
    box += f'viewBox="{LEFT} {TOP} {WIDTH - LEFT - RIGHT} {HEIGHT - TOP - BOTTOM}">{"".join(inner)}</svg>'
    entries = [(one.label, one.color) for one, _, _ in kept if one.label]
    return figure(title, legend(entries) + _svg([*axes.draw(x_label, y_label), box], title))


def _extent(values: Float64, margin: float) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    if low == high:
        low, high = low - (abs(low) or 1.0) * 0.05, high + (abs(high) or 1.0) * 0.05
    room = (high - low) * margin
    return low - room, high + room


def histogram(
    title: str,
    counts: Sequence[float],
    edges: Sequence[float],
    x_label: str,
    y_label: str,
    line: Callable[[Float64], Float64] | None = None,
    line_label: str = "",
) -> str:
    """Draw a histogram, and a reference curve."""
    top = max([*counts, float(line(np.linspace(edges[0], edges[-1], 101)).max()) if line else 0.0, 1e-9])
    axes = _Axes((edges[0], edges[-1]), (0.0, top * 1.08))
    parts = axes.draw(x_label, y_label)
    for k, count in enumerate(counts):
        left, right = axes.px(edges[k]), axes.px(edges[k + 1])
        y, bottom = axes.py(count), axes.py(0)
        parts.append(
            f'<rect x="{left + 0.5:.1f}" y="{y:.1f}" width="{max(right - left - 1, 1):.1f}" height="{bottom - y:.1f}" '
            f'fill="{PALETTE[0]}" opacity="0.75"/>'
        )
    entries: list[tuple[str, str]] = []
    if line:
        x = np.linspace(edges[0], edges[-1], 101)
        points = " ".join(f"{axes.px(a):.1f},{axes.py(b):.1f}" for a, b in zip(x, line(x), strict=True))
        parts.append(f'<polyline class="line" stroke="{PALETTE[1]}" points="{points}"/>')
        entries = [("observed", PALETTE[0]), (line_label, PALETTE[1])]
    return figure(title, legend(entries) + _svg(parts, title))


def bar_chart(title: str, bars: Sequence[Bar], x_label: str, entries: Sequence[tuple[str, str]] = ()) -> str:
    """Draw horizontal bars with their labels and notes; `entries` are the legend."""
    left, row = 150, 24
    height = TOP + row * len(bars) + BOTTOM
    longest = max([sum(value for value, _ in bar.parts) for bar in bars] + [1e-12])
    room = WIDTH - left - 78
    parts = []
    bottom = TOP + row * len(bars)
    for value, text in _marks(0.0, longest, 5):
        x = left + value / longest * room
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}"/>')
        parts.append(f'<text class="tick" x="{x:.1f}" y="{bottom + 17}" text-anchor="middle">{text}</text>')
    for k, bar in enumerate(bars):
        y, x = TOP + row * k, float(left)
        label = html.escape(bar.label)
        parts.append(f'<text class="tick" x="{left - 8}" y="{y + 16}" text-anchor="end">{label}</text>')
        for value, color in bar.parts:
            width = value / longest * room
            parts.append(
                f'<rect x="{x:.1f}" y="{y + 4}" width="{width:.2f}" height="{row - 8}" fill="{color}" opacity="0.85"/>'
            )
            x += width
        if bar.note:
            parts.append(f'<text class="tick" x="{x + 6:.1f}" y="{y + 16}">{html.escape(bar.note)}</text>')
    middle, label = left + room / 2, html.escape(x_label)
    parts.append(f'<text class="label" x="{middle}" y="{height - 8}" text-anchor="middle">{label}</text>')
    return figure(title, legend(entries) + _svg(parts, title, height))


def figure(title: str, content: str) -> str:
    """HTML of a figure with its caption."""
    return f"<figure><figcaption>{html.escape(title)}</figcaption>{content}</figure>"
