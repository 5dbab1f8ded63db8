r"""Underdamped Langevin dynamics in the Fisher metric, one full gradient a sweep.

The splitting BAOAB of [Leimkuhler & Matthews 2013, eq. 1.8], its two half kicks joined, in the coordinates in which
the metric P is the identity. The gradient is the full one, accumulated in one tour of the ring with both factors
frozen; then W, H and biases move at once:

    r     <- r - h_i P^-1/2 grad U
    r'     = c r + sqrt(1 - c^2) z
    theta <- theta + (h_i / 2) P^-1/2 (r + r'),      r <- r'

Metric, per row i and column k of theta: P_ik = tau n_i c_k + lambda_k, the Fisher information of the row given the
other factor, on the average: n_i ratings, c_k the mean square over the ratings of what multiplies theta_ik (1 for the
bias), lambda_k the prior's precision. Step: with p_k = tau n_i c_k / P_ik and t = sum p_k,

    l_i = 1 + t / n_i + 2 sqrt(max(p) t / n_i),      h_i = sqrt(2 eps / l_i)

l_i bounds the curvature that W and H give each other in these coordinates, so that one eps serves all data.

Target: the posterior. No minibatch noise; the configurational error of BAOAB is O(h^2), and vanishes for the mean and
variance of a Gaussian at any c. P is refreshed every `refresh` sweeps from averages over all rows, which hardly depend
on a single one; the dependence is not corrected for. Left out: Metropolis correction. Updating W and H in turns is
biased and less stable. The metric is diagonal: where the columns of a factor are strongly correlated over its rows
(no centring, no biases at K = 64, a wide fixed prior) it was seen to diverge on MovieLens 1M at the default step.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from dsgmcmc.kernels.formula import Formula
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.samplers.step_size import StepSize
from dsgmcmc.targets.base import Target
from dsgmcmc.targets.state import ParameterBlock, Replicated, StateField
from dsgmcmc.types import Factor, Float64, Purpose

UPDATE = Formula(
    """
step = h / sqrt(metric_tau * n * c + lambda_)
kicked = r - step * grad
r = damp * kicked + spread * z
theta = theta + 0.5 * step * (kicked + r)
""",
    columns=("c", "lambda_"),
    rows=("n", "h"),
)


class BAOABConfig(StepSize):
    """Configuration of BAOAB; `step_size` is eps."""

    step_size: float = Field(0.35, gt=0, allow_inf_nan=False)
    warm_up: int = Field(20, ge=0, description="sweeps over which eps rises to its full size")
    warm_up_factor: float = Field(0.2857, gt=0, le=1, description="first eps as a fraction of the full one")
    friction: float = Field(0.9, ge=0, lt=1, description="c, the part of the momentum that a sweep keeps")
    refresh: int = Field(2, ge=1, description="sweeps between refreshes of the metric")


@dataclass
class Metric(Replicated):
    """P of the last refresh, but for the n_i, which lie with the rows: c_k and lambda_k, (D,), and tau, (1,)."""

    saved_as: ClassVar[dict[str, str]] = {
        "c": "metric.{}.c",
        "lambda_": "metric.{}.lambda",
        "tau": "metric.tau",
    }

    c: dict[Factor, Float64]
    lambda_: dict[Factor, Float64]
    tau: Float64

    def of(self, block: ParameterBlock) -> dict[str, Any]:
        """What `UPDATE` takes of it."""
        return {
            "metric_tau": float(self.tau[0]),
            "c": self.c[block.factor].astype(block.dtype),
            "lambda_": self.lambda_[block.factor].astype(block.dtype),
        }


class BAOAB(Sampler[BAOABConfig]):
    """Underdamped Langevin dynamics in the Fisher metric."""

    Config = BAOABConfig
    gradients = ("full",)
    defaults: ClassVar[dict[str, Any]] = {"prior_precision": 50.0, "initial_sd": 0.14, "hyper_start": 15}

    def __init__(self, config: BAOABConfig, burn_in: int) -> None:
        super().__init__(config, burn_in)
        self.metric = Metric({}, {}, np.ones(1))
        self.replicated = (self.metric,)

    @property
    def fields(self) -> tuple[StateField, ...]:
        """Position and momentum; n_i and 1 / sqrt(l_i) of the metric, one number a row."""
        return (StateField("theta"), StateField("r"), StateField("n", 1), StateField("h", 1))

    def start(self, target: Target, sd: float) -> None:
        """Positions N(0, sd^2), momenta N(0, 1)."""
        self.start_field(target, "theta", sd)
        self.start_field(target, "r", 1.0, Purpose.MOMENTUM)

    def step(self, target: Target, iteration: int) -> None:
        """One sweep: the full gradient, then one update of everything. Collective."""
        if iteration % self.config.refresh == 0:
            self._refresh(target)
        eps = self.step_size(target, iteration)
        c = self.config.friction
        for block in self.gradient(target, "theta"):
            n, h = block.row("n"), block.row("h") * block.dtype.type(sqrt(2 * eps))
            block.update(UPDATE, **self.metric.of(block), n=n, h=h, damp=c, spread=sqrt(1 - c * c))

    def _refresh(self, target: Target) -> None:
        """Take the metric from the current state. Collective."""
        found = target.information("theta")
        self.metric.c, self.metric.lambda_, self.metric.tau = found.c, found.lambda_, np.array([found.tau])
        for block in target.blocks():
            block.row("n")[:] = found.n[block]
            block.row("h")[:] = 1 / np.sqrt(found.bound[block])
