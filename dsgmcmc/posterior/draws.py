"""What a run drew: a saved draw, and the moments of a chain, by users and items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dsgmcmc.types import Float32, Float64

Source = Literal["auto", "draws", "moments"]

KINDS = ("user", "item")


@dataclass(frozen=True)
class Prior:
    """Normal prior of a factor's rows: mean (D,) and covariance (D, D), float64."""

    mean: Float64
    covariance: Float64


@dataclass(frozen=True)
class Draw:
    """One saved draw.

    Attributes
    ----------
    chain, iteration : int
    theta : dict of kind to (n, D) float32
        Factors of the users and of the items; the last column is the bias, if the model has biases.
    tau : float
        Precision of the noise.
    noise_scale : dict of kind to (n,) float32
        g of heteroscedastic noise: the variance of a rating is 1 / (tau g_user g_item). All 1 if the noise is shared.
    prior : dict of kind to Prior
    nu : dict of kind to float
        Degrees of freedom of the prior of `noise_scale`, where it is sampled.
    """

    chain: int
    iteration: int
    theta: dict[str, Float32]
    tau: float
    noise_scale: dict[str, Float32]
    prior: dict[str, Prior]
    nu: dict[str, float]

    @property
    def nbytes(self) -> int:
        """Memory of the factors."""
        return sum(array.nbytes for array in (*self.theta.values(), *self.noise_scale.values()))


@dataclass(frozen=True)
class Moments:
    """Posterior of one chain, as moments.

    Attributes
    ----------
    mean, variance : dict of kind to (n, D) float32
        Of every element of the factors over all draws of the chain.
    noise_scale : dict of kind to (n,) float32
        Posterior mean of the noise scales g.
    noise_variance : float
        Posterior mean of 1 / tau.
    prior : dict of kind to Prior
        Of a row never seen: the posterior mean of its prior's mean, and of its prior's variances.
    """

    mean: dict[str, Float32]
    variance: dict[str, Float32]
    noise_scale: dict[str, Float32]
    noise_variance: float
    prior: dict[str, Prior]
