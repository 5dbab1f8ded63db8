"""What process 0 says while it samples: one live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from time import monotonic
from typing import Any

from rich.console import Console
from rich.live import Live

from dsgmcmc.diagnostics.verdict import in_units, written

PLAIN_SECONDS = 5.0
#: What is shown of a line of metrics, if it is there: its name there, how it is called, and how it is written.
SHOWN = (
    ("rmse", "RMSE of this draw", written),
    ("rmse_mean", "of the posterior mean", written),
    ("tau", "tau", "{:.4g}".format),
    ("energy", "energy", "{:.6g}".format),
)


def folded(parts: Sequence[str], width: int) -> str:
    """Join what is said, in as many lines as the width needs, each broken between two parts."""
    lines = [""]
    for part in parts:
        longer = f"{lines[-1]}  {part}" if lines[-1] else part
        lines = [*lines[:-1], longer] if len(longer) <= width or not lines[-1] else [*lines, f"  {part}"]
    return "\n".join(lines)


class Progress:
    """Shows the metrics of a chain as they come. Use as a context manager.

    Parameters
    ----------
    iterations : int
        Total number of iterations.
    data : float
        Data that an iteration uses.
    unit : str
        What they are called.
    """

    def __init__(self, iterations: int, data: float, unit: str = "ratings") -> None:
        self._iterations, self._data, self._unit = iterations, data, unit
        console = Console(stderr=True)
        self._live = Live(console=console, refresh_per_second=8, transient=False) if console.is_terminal else None
        self._last = 0.0
        #: What the last look at all chains has found; empty before it, or where none is taken.
        self.look = ""
        self._unsaid = ""
        self._from: tuple[int, float] | None = None

    def __enter__(self) -> Progress:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live:
            self._live.stop()
        elif self._unsaid:
            self._say(self._unsaid)

    def __call__(self, line: dict[str, Any]) -> None:
        """Show a line of metrics."""
        if self._from is None or line["iteration"] < self._from[0]:
            self._from = (line["iteration"], line["time_s"])
        parts = self._parts(line)
        text = "  ".join(parts)
        if self._live:
            self._live.update(folded(parts, self._live.console.width))
        elif monotonic() - self._last > PLAIN_SECONDS or line["iteration"] >= self._iterations:
            self._say(text)
        else:
            self._unsaid = text

    def _say(self, text: str) -> None:
        self._last, self._unsaid = monotonic(), ""
        print(text, file=sys.stderr, flush=True)

    def _parts(self, line: dict[str, Any]) -> list[str]:
        first, since = self._from or (0, 0.0)
        done, elapsed = line["iteration"] - first, line["time_s"] - since
        speed = done / elapsed if elapsed > 0 else 0.0
        parts = [f"chain {line['chain']}", f"iteration {line['iteration']}/{self._iterations}"]
        if self.look:
            parts.append(self.look)
        parts += [f"{label} {write(line[name])}" for name, label, write in SHOWN if line.get(name) is not None]
        if speed:
            left = (self._iterations - line["iteration"]) / speed
            most = "at most " if self.look else ""
            parts += [f"{in_units(speed * self._data)} {self._unit}/s", f"{most}{left:.0f} s left"]
        return parts
