"""Parameters of standardised ratings, in the unit that the ratings have."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dsgmcmc.types import Float64


def in_rating_units(parameters: Mapping[str, Float64], scale: float, unit: Float64) -> dict[str, Float64]:
    """Parameters of one sub-chain, by name, in the ratings' own unit.

    Parameters
    ----------
    parameters : dict of str to array
        Of standardised ratings.
    scale : float
        What ratings were divided by.
    unit : (D,) float64
        By what a row of a factor is multiplied.
    """
    found = dict(parameters)
    for name, value in parameters.items():
        if name in ("tau", "time.precision"):
            found[name] = value / scale**2
        elif name.endswith((".mean", ".effects")):
            found[name] = value * unit
        elif name.endswith(".variance"):
            found[name] = value * unit**2
        elif name.endswith(".precision"):
            found[name] = value / (unit**2 if value.ndim == 1 else np.outer(unit, unit))
    return found
