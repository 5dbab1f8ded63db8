r"""Preconditioned SGLD [Li 2016, algorithm 1]: SGLD in the metric of RMSprop.

    gbar  = (1 / N) sum grad log lik          (stochastic, without the prior)
    v    <- alpha v + (1 - alpha) gbar * gbar  (v_0 = the first gbar * gbar)
    D     = diag(1 / (lambda + sqrt v))
    theta <- theta - eps D grad U~ + N(0, 2 eps D)

Target: the posterior, up to a bias of O(eps), and a further bias while D depends on theta: the
paper's term Gamma(theta) is left out, as in its experiments. With ``adapt = "burn-in"``, v is
frozen when burn-in ends, and the second bias vanishes; ``"always"`` is the algorithm as published.
[Li 2016] writes eps / 2 where we write eps. Public code that divides the noise by N samples a
tempered posterior.

`step_size` is eps N and `lambda_n` is lambda N, which carry over between data sets; beyond a grid
of 4, eps is divided by B / 4, because the noise of the part's gradient grows with B.
"""

from __future__ import annotations

from math import sqrt
from typing import Any, Literal

from pydantic import Field, model_validator
from typing_extensions import override

from dsgmcmc.kernels.formulas.formula import Formula
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.samplers.step_size import StepSize
from dsgmcmc.targets.base import Target
from dsgmcmc.targets.state import StateField

UPDATE = Formula("""
gbar = grad_likelihood * per_n
v = alpha * v + (1 - alpha) * gbar * gbar
d = 1 / (lambda_ + sqrt(v))
theta = theta - eps * d * grad + noise * sqrt(d) * z
""")


class PSGLDConfig(StepSize):
    """Configuration of PSGLD."""

    step_size: float = Field(0.04, gt=0, description="step eps times N")
    burn_in_step_size: float = Field(
        0.09, gt=0, description="eps times N during burn-in; step_size if that is given"
    )
    alpha: float = Field(0.99, gt=0, lt=1, description="memory of the squared gradients")
    lambda_n: float = Field(9.0, gt=0, description="lambda N, which bounds the preconditioner")
    adapt: Literal["burn-in", "always"] = Field("burn-in", description="when v is updated")

    @model_validator(mode="before")
    @classmethod
    def _one_step(cls, settings: Any) -> Any:
        if "step_size" in settings:
            return {"burn_in_step_size": settings["step_size"], **settings}
        return settings


class PSGLD(Sampler[PSGLDConfig, Target]):
    """Preconditioned stochastic gradient Langevin dynamics.

    For a normal target with precision P_k and gradient noise of variance V P_k, sqrt(v) converges
    to sqrt((1 + V) P_k) / N, so that the relative step is h = eps N P_k / (lambda N + sqrt((1 + V)
    P_k)), and the ratio of the draws' variance to the target's is (1 + h V / 2) / (1 - h / 2). h
    grows with the square root of P_k, and hence of N, so a density needs a step of its own.
    """

    Config = PSGLDConfig
    gradients = ("part", "full", "control-variate")
    draws_data = True
    #: Position, and running mean of squared gradients.
    fields = (StateField("theta"), StateField("v"))

    @override
    def step(self, target: Target, iteration: int) -> None:
        config = self.config
        n = target.n_data
        eps = self.step_size(target, iteration) / n * min(1.0, 4 / target.sweep_length)
        alpha = config.alpha
        if config.adapt == "burn-in" and iteration >= self.burn_in > 0:
            alpha = 1.0
        elif iteration == 0:
            alpha = 0.0
        lambda_ = config.lambda_n / n
        for rows in self.gradient(target, "theta", prior=False):
            rows.update(
                UPDATE, per_n=1 / n, alpha=alpha, lambda_=lambda_, eps=eps, noise=sqrt(2 * eps)
            )
