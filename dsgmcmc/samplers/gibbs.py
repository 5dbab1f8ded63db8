r"""Gibbs sampling: every row from its exact conditional distribution.

[Salakhutdinov 2008, eq. 11-13]. With phi_j = (H_j, 1), centred ratings x_ij, noise of precision tau
g_i g'_j and the prior N(M_i, Lambda^-1), a row of W has the conditional distribution

    theta_i ~ N(P_i^-1 v_i, P_i^-1),    P_i = Lambda + tau g_i sum_j g'_j phi_j phi_j^T
                                        v_i = Lambda M_i + tau g_i sum_j g'_j (x_ij - b_j) phi_j

An iteration is a sweep, with two tours of the ring. Draws are made in this order, after the effects
on ratings, if any:

1. sums for the rows of W, from H and g', which give the squared errors of the state;
2. tau, nu, and m and Lambda of both factors; then the other parameters of the rows' priors;
3. g, if the rows of W have noise scales;
4. W;
5. sums for the rows of H; then g', if the rows of H have noise scales; then H.

Likelihoods with weights of ratings (`dsgmcmc.model.likelihoods.ordinal.logit_weights`) draw them
before step 1, with whatever needs the weights or must precede them.

Target: the posterior itself. Every draw is from the conditional distribution given the latest
values of everything else. Rounding remains: sums are in float32, systems are solved in float64.
"""

from __future__ import annotations

from typing import Any, ClassVar

from typing_extensions import override

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
    @override
    def default_thin(cls, config: GibbsConfig, grid: int) -> int:
        return 1  # a sweep costs far more than recording its state

    @override
    def step(self, target: Target, iteration: int) -> None:
        for factor in Factor:
            for rows, conditional in target.conditionals(factor, "theta"):
                rows.update(NORMAL, sd=1.0)
                rows.draw_normal("theta", conditional)
