"""Log probabilities of ordered levels, and their derivatives.

With z_u and z_l the ends of a level, from the predictor and times the scale, and q = 1 / (exp(z_u -
z_l) - 1), the log probability is

    log p = log F(z_u) + log F(-z_l) - log(1 + q)

It is concave in the ends, in which it has the slopes q + F(-z_u) and -q - F(z_l).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dsgmcmc.kernels.ordinal import END
from dsgmcmc.model.likelihoods.own_prior import Expansion, OwnParameters
from dsgmcmc.types import Array, Float64, Int64

#: Largest exponent, whose exponential has a finite square.
LARGEST = 350.0


def expand_levels(
    x: Float64,
    eta: Float64,
    scale: Float64,
    parameters: Array | None,
    *,
    moves: Sequence[OwnParameters],
) -> Expansion:
    """Return the log probabilities of levels, and derivatives, for `Observation.expansion`.

    Curvatures lack the second derivatives of thresholds and scales in the coordinates, so that they
    are positive.
    """
    assert parameters is not None
    level = x.astype(np.int64)
    lower, upper = _ends(level, parameters, END)
    z_upper = scale * (upper - eta)
    z_lower = scale * (lower - eta)
    odds_above = np.exp(np.minimum(-z_upper, LARGEST))
    odds_below = np.exp(np.minimum(z_lower, LARGEST))
    above = odds_above / (1 + odds_above)
    below = odds_below / (1 + odds_below)
    q = 1 / np.expm1(np.clip(z_upper - z_lower, 1e-9, LARGEST))
    log_density = -np.log((1 + odds_above) * (1 + odds_below) * (1 + q)).sum(axis=1)
    of_upper = q + above
    of_lower = -(q + below)
    both = q * (1 + q)
    curved_above = above * (1 - above)
    curved_below = below * (1 - below)
    crossed = np.empty((len(moves), *eta.shape))
    own_slope = np.empty((len(eta), len(moves)))
    own_curvature = np.empty((len(eta), len(moves), len(moves)))
    changes = []  # of both ends, in every coordinate
    for i, move in enumerate(moves):
        log_scale = move.scale[:, np.newaxis]
        inner = move.parameters
        if inner is None:  # all rows have the same thresholds
            inner = np.zeros((1, parameters.shape[-1]))
        lower_move, upper_move = _ends(level, inner, 0.0)
        change_above = z_upper * log_scale + scale * upper_move
        change_below = z_lower * log_scale + scale * lower_move
        changes.append((change_above, change_below))
        own_slope[:, i] = (of_upper * change_above + of_lower * change_below).sum(axis=1)
        gap = both * (change_above - change_below)
        to_above = curved_above * change_above
        to_below = curved_below * change_below
        crossed[i] = -scale * (to_above + to_below)
        for j, (other_above, other_below) in enumerate(changes):
            terms = (to_above + gap) * other_above + (to_below - gap) * other_below
            own_curvature[:, i, j] = terms.sum(axis=1)
            own_curvature[:, j, i] = own_curvature[:, i, j]
    return Expansion(
        log_density=log_density,
        slope=-scale * (of_upper + of_lower),
        curvature=scale**2 * (curved_above + curved_below),
        crossed=crossed,
        own_slope=own_slope,
        own_curvature=own_curvature,
    )


def _ends(level: Int64, inner: Array, end: float) -> tuple[Float64, Float64]:
    """Return the lower and the upper ends of levels, (n,), in every row, (rows, n) each.

    Ends between levels are `inner`, (rows, R - 1) or, for every rating, (rows, n, R - 1); the
    others are -`end` and `end`.
    """
    if inner.ndim == 3:
        of_ratings = np.arange(len(level))
        below = inner[:, of_ratings, np.maximum(level - 1, 0)]
        above = inner[:, of_ratings, np.minimum(level, inner.shape[2] - 1)]
    else:
        below = inner[:, np.maximum(level - 1, 0)]
        above = inner[:, np.minimum(level, inner.shape[1] - 1)]
    lower = np.where(level == 0, -end, below)
    upper = np.where(level == inner.shape[-1], end, above)
    return lower, upper
