"""What single precision can hold: limits of ratings and features, with advice beyond them."""

from __future__ import annotations

import math

import numpy as np

#: Its square and its inverse square leave room in float32 for sums and for small variances.
MAX_RATING = 1e15


def find_bad_scale(low: float, high: float) -> str | None:
    """Return an error message if ratings in [low, high] are too large or too close; else None.

    Their squares and their variance must be in the range of float32.
    """
    largest = max(abs(low), abs(high))
    spread = high - low
    if largest > MAX_RATING:
        wrong = largest
        limit = f"at most {MAX_RATING:g}"
    elif 0 < spread < 1 / MAX_RATING:
        wrong = spread
        limit = f"at least {1 / MAX_RATING:g} apart"
    else:
        return None
    scale = 10.0 ** -math.floor(math.log10(wrong))
    return (
        f"ratings range from {low:g} to {high:g}, but single precision needs them to be {limit}:"
        f" multiply them by {scale:g}, or remove values that are not ratings"
    )


def find_coarseness(what: str, low: float, high: float) -> str | None:
    """Return an error message if numbers in [low, high] are too close to each other; else None.

    They are if float32 changes their differences by more than 1 % of their range.
    """
    if low == high:
        return None
    rounding = max(-low, high) * np.finfo(np.float32).eps
    if rounding <= (high - low) / 100:
        return None
    middle = (low + high) // 2
    return (
        f"{what} are {low:.15g} to {high:.15g}, too close for single precision:"
        f" subtract {middle:.15g} from all"
    )
