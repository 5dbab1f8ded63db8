"""Parses lengths, times and target accuracies in the notation of users.

docs/evidence/dropped.md gives the reasons for the default target, an ESS of 100 per chain.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isfinite

_LENGTH = re.compile(r"(\d+)(\s*sweeps?)?")
_CLOCK_TIME = re.compile(r"(?:(\d+)-)?(\d+):(\d\d):(\d\d)")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|h|d)")
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}

#: Measures of accuracy, and the value that a limit must exceed.
MEASURES = {"rhat": 1.0, "ess": 0.0}

LEAST_DRAWS = 4  # per chain; mixing cannot be measured with fewer draws
#: With a smaller ESS, R-hat and tail quantiles are unreliable [Vehtari 2021, section 5].
ESS_PER_CHAIN = 100


def parse_length(length: int | str, sweep: int) -> int:
    """Return the number of iterations in a length: ``700``, ``"700"`` or ``"500sweeps"``.

    Parameters
    ----------
    length : int or str
        Length, as the user gives it.
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
    number = int(match[1])
    if match[2]:
        return number * sweep
    return number


def parse_time(text: str) -> float | None:
    """Return the seconds in a text; None if it is malformed.

    The text is like ``90s``, ``10min``, ``1h``, ``2d``, ``HH:MM:SS`` or ``D-HH:MM:SS``.
    """
    duration = _DURATION.fullmatch(text)
    if duration:
        return float(duration[1]) * _SECONDS[duration[2]]
    clock_time = _CLOCK_TIME.fullmatch(text)
    if not clock_time:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in clock_time.groups())
    if minutes >= 60 or seconds >= 60:
        return None
    return 86400.0 * days + 3600 * hours + 60 * minutes + seconds


def parse_accuracy(text: str) -> dict[str, float]:
    """Parse a target accuracy: ``ess=400``, ``rhat=1.01``, or both, separated by a comma.

    Returns
    -------
    dict of str to float
        Limits by measure, for the measures that `text` names.

    Raises
    ------
    ValueError
        If `text` is malformed.
    """
    limits: dict[str, float] = {}
    for part in text.split(","):
        name, _, number = (word.strip() for word in part.partition("="))
        limit = _number(number)
        is_known = name in MEASURES and name not in limits
        if not is_known or not isfinite(limit) or limit <= MEASURES[name]:
            raise ValueError(
                "must be like 'ess=400', 'rhat=1.01' (above 1) or 'ess=400,rhat=1.01', or 'none'"
            )
        limits[name] = limit
    return limits


def _number(text: str) -> float:
    """Return the number in a text; 0 if it is none."""
    try:
        return float(text)
    except ValueError:
        return 0.0


def format_accuracy(limits: Mapping[str, float]) -> str:
    """Format a target accuracy as text that `parse_accuracy` reads."""
    return ",".join(f"{name}={limit:g}" for name, limit in limits.items())
