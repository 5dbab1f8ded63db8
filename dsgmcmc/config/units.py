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
ESS_PER_CHAIN = (
    100  # with a smaller ESS, R-hat and tail quantiles are unreliable [Vehtari 2021, section 5]
)


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
    return int(match[1]) * (sweep if match[2] else 1)


def parse_time(text: str) -> float | None:
    """Return the seconds in ``90s``, ``10min``, ``1h``, ``2d``, ``HH:MM:SS`` or ``D-HH:MM:SS``;
    None if malformed.
    """
    if match := _DURATION.fullmatch(text):
        return float(match[1]) * _SECONDS[match[2]]
    if match := _CLOCK_TIME.fullmatch(text):
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        if minutes < 60 and seconds < 60:
            return 86400.0 * days + 3600 * hours + 60 * minutes + seconds
    return None


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
        try:
            limit = float(number)
        except ValueError:
            limit = 0.0
        if name not in MEASURES or name in limits or not isfinite(limit) or limit <= MEASURES[name]:
            raise ValueError(
                "must be like 'ess=400', 'rhat=1.01' (above 1) or 'ess=400,rhat=1.01', or 'none'"
            )
        limits[name] = limit
    return limits


def format_accuracy(limits: Mapping[str, float]) -> str:
    """Format a target accuracy as text that `parse_accuracy` reads."""
    return ",".join(f"{name}={limit:g}" for name, limit in limits.items())
