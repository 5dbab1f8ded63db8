"""Wall time by phase: gradient, update, exchange, reduce, evaluate, checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

PHASES = ("gradient", "update", "exchange", "reduce", "evaluate", "checkpoint")


class Phases:
    """Seconds spent in each phase; time in a nested phase does not count for the enclosing phase.

    Waiting for other processes counts as ``exchange`` or ``reduce``.
    """

    def __init__(self) -> None:
        self._inside: list[float] = []
        self.clear()

    def clear(self) -> None:
        """Set all times to zero."""
        self.seconds = dict.fromkeys(PHASES, 0.0)

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Charge the time spent in the ``with`` block to phase `name`."""
        begin = self.enter()
        try:
            yield
        finally:
            self.leave(name, begin)

    def enter(self) -> float:
        """Begin a phase; for hot loops, where a ``with`` block costs more than the work."""
        self._inside.append(0.0)
        return perf_counter()

    def leave(self, name: str, begin: float) -> None:
        """End the phase that `enter` began and charge it to `name`."""
        elapsed = perf_counter() - begin
        self.seconds[name] += elapsed - self._inside.pop()
        if self._inside:
            self._inside[-1] += elapsed
