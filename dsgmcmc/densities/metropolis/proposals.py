"""Proposals that do not look at the data: random walks and the preconditioned Crank-Nicolson proposal.

All are theta' = m + keep (theta - m) + root z, with z standard normal. With keep = 1 that is symmetric; with
keep = sqrt(rho) and root root^T = (1 - rho) S it is reversible with respect to N(m, S), which is then its own law: the
acceptance ratio has the target over that law in the place of the target [Cornish 2019, section 3.2].
"""

from __future__ import annotations

from math import sqrt
from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field

from dsgmcmc.errors import InputError
from dsgmcmc.samplers.step_size import SamplerConfig
from dsgmcmc.types import Float64


class ProposalConfig(SamplerConfig):
    """Configuration of kernels with such a proposal."""

    proposal: Literal["walk", "preconditioned", "pcn"] = Field(
        "preconditioned",
        description="walk: N(theta, scale^2 / N); preconditioned: scale times as wide as the normal law that stands "
        "for the target; pcn: reversible with respect to a normal law",
    )
    scale: float = Field(1.0, gt=0, allow_inf_nan=False, description="of a random walk")
    rho: float = Field(0.9, ge=0, lt=1, description="pcn: correlation of the squares; 0 proposes independently")


class NormalProposal(NamedTuple):
    """A normal law: mean (D,), precision (D, D) and a root of its covariance (D, D)."""

    mean: Float64
    precision: Float64
    root: Float64

    @classmethod
    def of(cls, mean: Float64, precision: Float64, what: str) -> NormalProposal:
        """Make it from its precision.

        Raises
        ------
        InputError
            If the precision is not positive definite; `what` says whose it is.
        """
        try:
            lower = np.linalg.cholesky(precision)
        except np.linalg.LinAlgError as error:
            raise InputError(
                f"{what} is not positive definite, so it says no width for proposals: give the density a "
                'prior_precision above 0, or use proposal = "walk"'
            ) from error
        return cls(mean, precision, np.ascontiguousarray(np.linalg.inv(lower).T))


class Proposal(NamedTuple):
    """See the equation above.

    Attributes
    ----------
    keep : float
        keep.
    centre : (D,) float64
        m.
    root : (D, D) float64
        root.
    own : (D, D) float64
        Precision of the law with mean m that it is reversible with respect to; 0 of a random walk.
    """

    keep: float
    centre: Float64
    root: Float64
    own: Float64

    @classmethod
    def of(cls, config: ProposalConfig, law: NormalProposal, n_data: int) -> Proposal:
        """Make that of a configuration, with `law` in the place of the target."""
        nothing = np.zeros_like(law.precision)
        if config.proposal == "walk":
            return cls(1.0, law.mean, config.scale / sqrt(n_data) * np.eye(len(law.mean)), nothing)
        if config.proposal == "preconditioned":
            return cls(1.0, law.mean, config.scale * law.root, nothing)
        return cls(sqrt(config.rho), law.mean, sqrt(1 - config.rho) * law.root, law.precision)

    def move(self, theta: Float64, z: Float64) -> Float64:
        """What is proposed to every row, (n, D)."""
        found: Float64 = self.centre + self.keep * (theta - self.centre) + z @ self.root.T
        return found

    def own_energy(self, theta: Float64) -> Float64:
        """Minus the log density of the law that it is reversible with respect to, (n,)."""
        offset = theta - self.centre
        found: Float64 = 0.5 * (offset * (offset @ self.own)).sum(axis=1)
        return found


def dense(precision: Float64) -> Float64:
    """A precision (D,) or (D, D) as a matrix."""
    return precision if precision.ndim == 2 else np.diag(precision)
