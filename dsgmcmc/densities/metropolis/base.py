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

from math import sqrt
from typing import Any, ClassVar

import numpy as np

from dsgmcmc.densities.density import D
from dsgmcmc.densities.vector import VectorTarget
from dsgmcmc.samplers.base import C, Sampler
from dsgmcmc.types import Float64

GAMMA, T0, KAPPA = 0.05, 10.0, 0.75


class DualAveraging:
    """Dual averaging of the steps of all rows.

    Parameters
    ----------
    eps : (n,) float64
        First steps.
    """

    def __init__(self, eps: Float64) -> None:
        at = np.log(eps)
        self._steps = np.stack([at + np.log(10), np.zeros_like(at), at, at])  # log(10 eps_0), H, log eps, log eps_bar
        self._made = 0  # m

    def eps(self, adapting: bool) -> Float64:
        """Return the steps of the rows, (n,): eps while adapting, otherwise eps_bar."""
        eps: Float64 = np.exp(self._steps[2 if adapting else 3])
        return eps

    def see(self, accepted: Float64, wanted: float) -> None:
        """Adapt the steps to the acceptance probabilities of an iteration, (n,)."""
        mu, error, _, mean = self._steps
        self._made += 1
        error = error + (wanted - accepted - error) / (self._made + T0)
        at = mu - sqrt(self._made) / GAMMA * error
        share = self._made**-KAPPA
        self._steps = np.stack([mu, error, at, share * at + (1 - share) * mean])


class Metropolis(Sampler[C, VectorTarget[D]]):
    """A kernel that proposes a new value for every row, and accepts or rejects it.

    Attributes
    ----------
    counts : (n, 4) float64
        Accepted proposals of every row since burn-in, evaluations of the energy of a datum, decisions based on all
        data, and iterations.
    energies : (n,) float64
        Energy of all data at theta; NaN if unknown.
    """

    gradients = ("none",)
    scratch = ()
    defaults: ClassVar[dict[str, Any]] = {"iterations": 20_000, "burn_in": 1_000}

    def __init__(self, config: C, burn_in: int) -> None:
        super().__init__(config, burn_in)
        self.counts, self.energies = np.zeros((0, 4)), np.zeros(0)

    @classmethod
    def default_thin(cls, config: C, grid: int) -> int:
        """Every tenth iteration: many proposals are rejected, and the energy of a draw takes all data."""
        return 10

    def metrics(self) -> dict[str, float]:
        """Acceptance rate, and evaluations of the energy of a datum per iteration."""
        moves, evaluations, _, steps = self.counts.sum(axis=0)
        return {"acceptance": float(moves / max(steps, 1.0)), "evaluations": float(evaluations / max(steps, 1.0))}

    def tallied(self, target: VectorTarget[D], first: int) -> tuple[Float64, Float64]:
        """Return energies and counts; the counts are reset at the end of burn-in."""
        rows = len(target.block.counts)
        if len(self.counts) != rows:
            self.counts, self.energies = np.zeros((rows, 4)), np.full(rows, np.nan)
        if first == self.burn_in:
            self.counts[:] = 0.0
        return self.energies, self.counts
