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

from math import sqrt
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from dsgmcmc.kernels.formula import Formula
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.samplers.step_size import StepSize
from dsgmcmc.targets.base import World
from dsgmcmc.targets.state import PURPOSE_MOMENTUM, Side
from dsgmcmc.targets.state import Field as StateField

SHARE = Formula(
    """
information = metric_tau * n * c
p = information / (information + lambda_)
largest = p
""",
    fields=("theta",),
    scalars=("metric_tau",),
    columns=("c", "lambda_"),
    rows=("n",),
    row_sums=("p",),
    row_max=("largest",),
)

UPDATE = Formula(
    """
step = h / sqrt(metric_tau * n * c + lambda_)
kicked = r - step * (tau * g + prior)
r = damp * kicked + spread * z
theta = theta + 0.5 * step * (kicked + r)
""",
    fields=("theta", "r", "g"),
    scalars=("metric_tau", "tau", "damp", "spread"),
    columns=("c", "lambda_"),
    rows=("n", "h"),
    prior_of="theta",
)


class BAOABConfig(StepSize):
    """Configuration of BAOAB; `step_size` is eps."""

    step_size: float = Field(0.35, gt=0, allow_inf_nan=False)
    warm_up: int = Field(20, ge=0, description="sweeps over which eps rises to its full size")
    warm_up_factor: float = Field(0.2857, gt=0, le=1, description="first eps as a fraction of the full one")
    friction: float = Field(0.9, ge=0, lt=1, description="c, the part of the momentum that a sweep keeps")
    refresh: int = Field(2, ge=1, description="sweeps between refreshes of the metric")


class BAOAB(Sampler[BAOABConfig]):
    """Underdamped Langevin dynamics in the Fisher metric."""

    Config = BAOABConfig
    sweeps = True
    defaults: ClassVar[dict[str, Any]] = {"prior_precision": 50.0, "initial_sd": 0.14, "hyper_start": 15}

    @property
    def fields(self) -> tuple[StateField, ...]:
        """Position and momentum; n_i and 1 / sqrt(l_i) of the metric, one number a row."""
        return (StateField("theta"), StateField("r"), StateField("n", 1), StateField("h", 1))

    def start(self, world: World, sd: float) -> None:
        """Positions N(0, sd^2), momenta N(0, 1)."""
        self.start_field(world, "theta", sd)
        self.start_field(world, "r", 1.0, PURPOSE_MOMENTUM)

    def step(self, world: World, iteration: int) -> None:
        """One sweep: the full gradient, then one update of everything. Collective."""
        if iteration % self.config.refresh == 0:
            self._refresh(world)
        eps = self.config.step(iteration, 1, self.burn_in)
        c = self.config.friction
        world.sweep("theta", "g")
        tau = float(world.state["tau"][0])
        for side in world.sides():
            h = side.row("h") * side.dtype.type(sqrt(2 * eps))
            metric = self._metric(world, side)
            side.update(UPDATE, **metric, n=side.row("n"), h=h, tau=tau, damp=c, spread=sqrt(1 - c * c))

    def _refresh(self, world: World) -> None:
        """Take the metric from the current state. Collective.

        Where every user or item has a noise of its own, n_i is the sum of the weights of its ratings, and l_i takes the
        effective count, (sum w)^2 / sum w^2.
        """
        world.weigh("n", "h")
        curvature = world.curvature("theta", "n")
        for factor, c in curvature.items():
            _, precision = world.prior(factor)
            world.state[f"metric.{factor}.c"] = c
            diagonal = np.diag(precision) if precision.ndim == 2 else precision
            world.state[f"metric.{factor}.lambda"] = diagonal.astype(np.float64)
        world.state["metric.tau"] = world.state["tau"].copy()
        for side in world.sides():
            n, squares = side.row("n"), side.row("h")
            found = side.update(SHARE, **self._metric(world, side), n=n)
            effective = np.maximum(n * n / np.maximum(squares, 1e-30), 1e-30)
            per_rating = np.where(n > 0, found["p"] / effective, 0.0)
            length = 1 + per_rating + 2 * np.sqrt(found["largest"] * per_rating)
            squares[:] = 1 / np.sqrt(length)

    def _metric(self, world: World, side: Side) -> dict[str, Any]:
        state = world.state
        return {
            "metric_tau": float(state["metric.tau"][0]),
            "c": state[f"metric.{side.factor}.c"].astype(side.dtype),
            "lambda_": state[f"metric.{side.factor}.lambda"].astype(side.dtype),
        }
