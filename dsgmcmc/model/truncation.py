"""Symmetric distributions truncated to intervals, computed in the left tail.

There, small probabilities, or their logarithms, are precise.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dsgmcmc.types import Array, Float64


class LeftTail(NamedTuple):
    """Intervals that do not lie right of 0, (q,) each.

    Attributes
    ----------
    sign : float64
        -1 for intervals that were mirrored, else 1.
    left, right : float64
        Ends of the intervals, infinite on an open side.
    """

    sign: Float64
    left: Float64
    right: Float64


def left_tail(low: Float64, high: Float64) -> LeftTail:
    """Mirror the intervals (low, high) that lie right of 0."""
    sign = np.where(low > 0, -1.0, 1.0)
    return LeftTail(
        sign=sign,
        left=np.where(sign > 0, low, -high),
        right=np.where(sign > 0, high, -low),
    )


def truncated_moments(
    mean: Float64, sd: Float64, lower: Array, upper: Array
) -> tuple[Float64, Float64]:
    """Return means and variances of normal variables given that they lie between bounds, (q,).

    Of `mean` m and `sd` s, with l = (lower - m) / s, u = (upper - m) / s, the normal density f and
    Z = P(l <= z <= u), they are m + s r and s^2 (1 + [l f(l) - u f(u)] / Z - r^2), where
    r = [f(l) - f(u)] / Z.
    """
    from scipy.special import log_ndtr  # slow to import

    sign, left, right = left_tail((lower - mean) / sd, (upper - mean) / sd)
    log_right = log_ndtr(right)
    log_mass = log_right + np.log(-np.expm1(log_ndtr(left) - log_right))
    at_left, at_right = (
        np.exp(-np.square(end) / 2 - np.log(2 * np.pi) / 2 - log_mass) for end in (left, right)
    )
    shift = at_left - at_right
    slope = np.where(np.isfinite(left), left, 0.0) * at_left
    slope -= np.where(np.isfinite(right), right, 0.0) * at_right
    variance = np.clip(1 + slope - np.square(shift), 0.0, 1.0)
    moved = mean + sd * sign * np.clip(shift, left, right)
    return np.clip(moved, lower, upper), np.square(sd) * variance
