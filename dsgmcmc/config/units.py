"""Lengths and times in the notation of users. Imports nothing heavy, because job scripts are made on login nodes."""

from __future__ import annotations

import re

_LENGTH = re.compile(r"(\d+)(\s*sweeps?)?")
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+):(\d\d):(\d\d)")
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|h|d)")
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def parse_length(length: int | str, sweep: int) -> int:
    """Number of iterations in a length: ``700``, ``"700"`` or ``"500sweeps"``.

    Parameters
    ----------
    length : int or str
        As given by the user.
    sweep : int
        Iterations in a sweep.

    Raises
    ------
    ValueError
        If `length` is negative or malformed.
    """
    if isinstance(length, int):
        if length < 0:
            raise ValueError("must not be negative")
        return length
    match = _LENGTH.fullmatch(length)
    if not match:
        raise ValueError("must be a number of iterations, or like '500sweeps'")
    return int(match[1]) * (sweep if match[2] else 1)


def parse_time(text: str) -> float | None:
    """Seconds in ``90s``, ``10min``, ``1h``, ``2d``, ``HH:MM:SS`` or ``D-HH:MM:SS``; None if `text` is malformed."""
    if match := _SPAN.fullmatch(text):
        return float(match[1]) * _SECONDS[match[2]]
    if match := _CLOCK.fullmatch(text):
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        if minutes < 60 and seconds < 60:
            return 86400.0 * days + 3600 * hours + 60 * minutes + seconds
    return None
