"""Thresholds between levels: those of all users, or of every one."""

from __future__ import annotations

import numpy as np

from dsgmcmc.config.run import ResolvedConfig
from dsgmcmc.posterior.draws import Draw
from dsgmcmc.posterior.newcomers import Newcomers
from dsgmcmc.types import Float64, Int32


def owners(config: ResolvedConfig, users: Int32) -> tuple[Int32, Int32]:
    """Users whose thresholds are needed, and which of them each of `users` has; one where all have the same."""
    if config.thresholds == "shared":
        return np.zeros(1, np.int32), np.zeros(len(users), np.int32)
    whose, owner = np.unique(users, return_inverse=True)
    return whose, owner.astype(np.int32)


def of_owners(drawn: Draw, whose: Int32, newcomers: Newcomers | None, number: int) -> Float64 | None:
    """Thresholds of users by their index, (m, R - 1); None without levels.

    Of one that is not known, and where all have the same, they are those of all. Indices after those of all that are
    known are of `newcomers`, at the draw of that number.
    """
    if drawn.thresholds is None:
        return None
    found = np.tile(drawn.thresholds, (len(whose), 1))
    if drawn.own_thresholds is not None:
        known = (whose >= 0) & (whose < len(drawn.own_thresholds))
        found[known] = drawn.own_thresholds[whose[known]]
        new = whose >= len(drawn.own_thresholds)
        if newcomers is not None and new.any():
            found[new] = newcomers.rows(number, whose[new].astype(np.intp) - len(drawn.own_thresholds)).cuts
    return found
