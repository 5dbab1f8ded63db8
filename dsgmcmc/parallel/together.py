"""A context that several threads of a program may be in at once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import Lock


class Together:
    """A context that the first thread opens on entry, and the last one closes on exit.

    Parameters
    ----------
    make : callable
        Makes the context.
    """

    def __init__(self, make: Callable[[], AbstractContextManager[object]]) -> None:
        self._make, self._lock, self._inside = make, Lock(), 0

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._context = self._make()
                self._context.__enter__()
            self._inside += 1

    def __exit__(self, *exc: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._context.__exit__(None, None, None)
