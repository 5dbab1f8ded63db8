r"""Factorised Metropolis-Hastings: every datum may reject on its own [Cornish 2019, eq. 1-6].

With U = U_0 + sum_i U_i, where U_0 is the prior's, a proposal of theta' is accepted with probability

    alpha = min{1, q(theta', theta) / q(theta, theta') e^(U_0(theta) - U_0(theta'))}
            prod_i min{1, e^(U_i(theta) - U_i(theta'))}

which is that of Metropolis-Hastings or less, and keeps the same law. The product is found by a Poisson process of
candidates (`dsgmcmc.kernels.thinning`), and nothing else is looked at. The truncated kernel is plain
Metropolis-Hastings where more than R candidates are expected, which depends on theta and theta' alike.

Target: the posterior itself. Left out: proposals that look at the data but for their Hessian at the mode. The published
R is N, but a candidate takes two evaluations where Metropolis-Hastings remembers one: R = N / 2 by default.
"""

from __future__ import annotations

from dsgmcmc.densities.metropolis.thinned import Thinned, ThinnedConfig, TruncatedConfig


class FMHConfig(ThinnedConfig):
    """Configuration of FMH."""


class TFMHConfig(TruncatedConfig):
    """Configuration of TFMH."""


class FMH(Thinned[FMHConfig]):
    """Factorised Metropolis-Hastings. The more data, the rarer it moves."""

    Config = FMHConfig
    order = 0


class TFMH(Thinned[TFMHConfig]):
    """Truncated factorised Metropolis-Hastings."""

    Config = TFMHConfig
    order = 0
