r"""Scalable Metropolis-Hastings: what a Taylor series leaves of every datum may reject [Cornish 2019, eq. 8-13].

With U^_k the series of order k of U at theta^, and R_i what it leaves of U_i, a proposal is accepted with probability

    alpha = min{1, q(theta', theta) / q(theta, theta') e^(U^_k(theta) - U^_k(theta'))}
            prod_i min{1, e^(R_i(theta) - R_i(theta'))}

The first factor takes no data, the others few (`dsgmcmc.kernels.thinning`): with a posterior of width N^(-1/2) about
theta^, O(1) of them at k = 1, and O(N^(-1/2)) at k = 2. The preconditioned Crank-Nicolson proposal is reversible with
respect to the normal law of U^_2: at k = 2 the first factor is then 1. Far from theta^ it is plain Metropolis-Hastings.

Target: the posterior itself, whatever theta^. Left out: proposal (17) of the paper, which is the random walk where
theta^ is the mode. The published bounds, by largest features, are several times too wide where features are many or
correlated: ``bound = "whitened"`` has abs(x.v) <= abs(L^T x) abs(L^-1 v) instead, with L L^T the inverse Hessian.
"""

from __future__ import annotations

from dsgmcmc.densities.metropolis.thinned import Thinned, TruncatedConfig


class SMHConfig(TruncatedConfig):
    """Configuration of SMH-1 and SMH-2."""


class SMH1(Thinned[SMHConfig]):
    """Scalable Metropolis-Hastings of the first order."""

    Config = SMHConfig
    order = 1


class SMH2(Thinned[SMHConfig]):
    """Scalable Metropolis-Hastings of the second order: the more data, the fewer are looked at."""

    Config = SMHConfig
    order = 2
