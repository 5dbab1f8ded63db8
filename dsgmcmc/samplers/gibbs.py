r"""Gibbs sampling: every row from its exact conditional distribution [Salakhutdinov 2008, eq.

11-13].

With phi_j = (H_j, 1), centred ratings x_ij, noise of precision tau g_i g'_j and the prior N(M_i,
Lambda^-1), a row of W has the conditional distribution

    theta_i ~ N(P_i^-1 v_i, P_i^-1),    P_i = Lambda + tau g_i sum_j g'_j phi_j phi_j^T
                                        v_i = Lambda M_i + tau g_i sum_j g'_j (x_ij - b_j) phi_j

Given H, the rows of W are independent of each other; so are the rows of H given W. An iteration is
a sweep, with two tours of the ring: the first brings the columns' state to the rows, the second
carries the columns' sums alone.

Target: the posterior itself. Every draw is from the conditional distribution given the latest
values of everything else, in this order, which begins with the effects on ratings if the model has
any:

1. sums for the rows of W, from H and g'. They do not depend on W, tau and g, and give the squared
   errors of the state;
2. tau, nu, and m and Lambda of both factors, given W, H, g, g': they are conditionally independent.
   Then the other parameters of the rows' priors, given m and Lambda;
3. g, if the rows of W have noise scales, given W, H, g', tau and nu;
4. W, given all values so far;
5. sums for the rows of H, from the new W and g; then g', if the rows of H have noise scales; then
   H.

So the noise scales of both factors are drawn in every sweep; samplers that move both factors at
once draw the scales of one factor at a time, in turn. Nothing is left out. Rounding remains: sums
are in float32, and systems are solved in float64.
"""

from __future__ import annotations

from typing import Any, ClassVar

from dsgmcmc.kernels.normal_rows import draw_normal_rows
from dsgmcmc.samplers.base import NORMAL, Sampler
from dsgmcmc.samplers.step_size import SamplerConfig
from dsgmcmc.targets.base import Target
from dsgmcmc.types import Factor


class GibbsConfig(SamplerConfig):
    """Configuration of Gibbs sampling: there is no step, and nothing to tune."""


class Gibbs(Sampler[GibbsConfig, Target]):
    """Exact Gibbs sampling of a factorisation whose rows are normal given the other factor."""

    Config = GibbsConfig
    gradients = ("none",)
    draws_conditionals = True
    scratch = ()
    #: Priors that are drawn from the first sweep on would fit the initial state, and slow the
    #: factors for 20 sweeps.
    defaults: ClassVar[dict[str, Any]] = {"hyper_start": 4}

    @classmethod
    def default_thin(cls, config: GibbsConfig, grid: int) -> int:
        """Number of iterations between draws: 1, as a sweep costs far more than recording its
        state.
        """
        return 1

    def step(self, target: Target, iteration: int) -> None:
        """Draw all parameters once, in a sweep. Collective."""
        for factor in Factor:
            for block, conditional in target.conditionals(factor, "theta"):
                block.update(NORMAL, sd=1.0)
                with block.timers("update"):
                    draw_normal_rows(block["theta"], *conditional, block.prior(block))
