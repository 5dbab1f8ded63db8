r"""Dual averaging of a step to a part of proposals that are accepted [Hoffman & Gelman 2014, eq. 6, algorithm 5].

With m the number of iterations since it began, alpha the acceptance probability of the last one and delta that which is
wanted,

    H        <- (1 - 1 / (m + t0)) H + (delta - alpha) / (m + t0)
    log eps  <- log(10 eps_0) - sqrt(m) H / gamma,       log eps_bar <- m^-kappa log eps + (1 - m^-kappa) log eps_bar

gamma = .05, t0 = 10, kappa = .75. Every row has a step of its own: eps in burn-in, eps_bar from its end on, frozen.
A step that follows the past would change the law.

[Hoffman & Gelman 2014] The No-U-Turn Sampler, Journal of Machine Learning Research 15.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

import numpy as np

from dsgmcmc.targets.state import Replicated
from dsgmcmc.types import Float64

GAMMA, T0, KAPPA = 0.05, 10.0, 0.75


@dataclass
class DualAveraging(Replicated):
    """Steps of the rows.

    Attributes
    ----------
    steps : (4, n) float64 or None
        log(10 eps_0), H, log eps and log eps_bar of every row; None before the first iteration.
    made : (1,) float64
        m.
    """

    saved_as: ClassVar[dict[str, str]] = {"steps": "adaptation.steps", "made": "adaptation.made"}

    steps: Float64 | None = None
    made: Float64 | None = None

    def begin(self, eps: Float64) -> None:
        """Begin from these steps, (n,)."""
        at = np.log(eps)
        self.steps, self.made = np.stack([at + np.log(10), np.zeros_like(at), at, at]), np.zeros(1)

    def eps(self, adapting: bool) -> Float64:
        """Steps of the rows, (n,): of this iteration, or those that were found."""
        assert self.steps is not None
        found: Float64 = np.exp(self.steps[2 if adapting else 3])
        return found

    def see(self, accepted: Float64, wanted: float) -> None:
        """Adapt to the acceptance probabilities of an iteration, (n,)."""
        assert self.steps is not None
        assert self.made is not None
        mu, error, _, mean = self.steps
        self.made = self.made + 1
        m = float(self.made[0])
        error = error + (wanted - accepted - error) / (m + T0)
        at = mu - sqrt(m) / GAMMA * error
        share = m**-KAPPA
        self.steps = np.stack([mu, error, at, share * at + (1 - share) * mean])
