r"""Base class of Metropolis kernels, in which every row of theta is an independent chain, and adaptive step sizes.

Dual averaging adapts the step eps to a mean acceptance probability delta [Hoffman & Gelman 2014, eq. 6, algorithm 5].
With m the number of iterations so far, and alpha the acceptance probability of the last iteration,

    H        <- (1 - 1 / (m + t0)) H + (delta - alpha) / (m + t0)
    log eps  <- log(10 eps_0) - sqrt(m) H / gamma,       log eps_bar <- m^-kappa log eps + (1 - m^-kappa) log eps_bar

where gamma = 0.05, t0 = 10, kappa = 0.75. Every row has a separate step: eps in burn-in, and the fixed eps_bar after
burn-in. A step that continued to depend on the past would change the invariant distribution.

[Hoffman & Gelman 2014] The No-U-Turn Sampler, Journal of Machine Learning Research 15.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any, ClassVar

import numpy as np

from dsgmcmc.densities.density import D
from dsgmcmc.densities.vector import VectorTarget
from dsgmcmc.samplers.base import C, Sampler
from dsgmcmc.targets.state import Replicated
from dsgmcmc.types import Float64

GAMMA, T0, KAPPA = 0.05, 10.0, 0.75


@dataclass
class DualAveraging(Replicated):
    """Dual averaging of the steps of all rows.

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
        """Begin with steps `eps`, (n,)."""
        at = np.log(eps)
        self.steps, self.made = np.stack([at + np.log(10), np.zeros_like(at), at, at]), np.zeros(1)

    def eps(self, adapting: bool) -> Float64:
        """Return the steps of the rows, (n,): eps while adapting, otherwise eps_bar."""
        assert self.steps is not None
        eps: Float64 = np.exp(self.steps[2 if adapting else 3])
        return eps

    def see(self, accepted: Float64, wanted: float) -> None:
        """Adapt the steps to the acceptance probabilities of an iteration, (n,)."""
        assert self.steps is not None
        assert self.made is not None
        mu, error, _, mean = self.steps
        self.made = self.made + 1
        m = float(self.made[0])
        error = error + (wanted - accepted - error) / (m + T0)
        at = mu - sqrt(m) / GAMMA * error
        share = m**-KAPPA
        self.steps = np.stack([mu, error, at, share * at + (1 - share) * mean])


@dataclass
class Tally(Replicated):
    """Counts for the rows since burn-in, and their energies.

    Attributes
    ----------
    counts : (n, 4) float64
        Accepted proposals, evaluations of the energy of a datum, decisions based on all data, and iterations.
    energies : (n,) float64
        Energy of all data at theta; NaN if unknown.
    """

    saved_as: ClassVar[dict[str, str]] = {"counts": "metropolis.counts", "energies": "metropolis.energies"}

    counts: Float64 | None = None
    energies: Float64 | None = None

    def take(self, arrays: Mapping[str, Float64]) -> None:
        """Replace the arrays whose names are in `arrays`; other entries are ignored.

        The arrays are changed in place, so they are copied.
        """
        super().take({name: np.array(array) for name, array in arrays.items()})


class Metropolis(Sampler[C, VectorTarget[D]]):
    """A kernel that proposes a new value for every row, and accepts or rejects it."""

    gradients = ("none",)
    scratch = ()
    defaults: ClassVar[dict[str, Any]] = {"iterations": 20_000, "burn_in": 1_000, "evaluate_every": 500}

    def __init__(self, config: C, burn_in: int) -> None:
        super().__init__(config, burn_in)
        self.tally = Tally()
        self.replicated = (self.tally,)

    @classmethod
    def default_thin(cls, config: C, grid: int) -> int:
        """Every tenth iteration: many proposals are rejected, and the energy of a draw takes all data."""
        return 10

    def metrics(self) -> dict[str, float]:
        """Acceptance rate, and evaluations of the energy of a datum per iteration."""
        if self.tally.counts is None:
            return {}
        moves, evaluations, _, steps = self.tally.counts.sum(axis=0)
        return {"acceptance": float(moves / max(steps, 1.0)), "evaluations": float(evaluations / max(steps, 1.0))}

    def tallied(self, target: VectorTarget[D], first: int) -> tuple[Float64, Float64]:
        """Return energies and counts; the counts are reset at the end of burn-in."""
        rows = len(target.block.counts)
        if self.tally.counts is None or self.tally.energies is None:
            self.tally.counts, self.tally.energies = np.zeros((rows, 4)), np.full(rows, np.nan)
        if first == self.burn_in:
            self.tally.counts[:] = 0.0
        return self.tally.energies, self.tally.counts
