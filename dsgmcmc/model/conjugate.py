"""Draws of the mean and the precision of a normal distribution, given n vectors from it."""

from __future__ import annotations

from math import isnan
from typing import NamedTuple

import numpy as np

from dsgmcmc.kernels.formulas.formula import Formula
from dsgmcmc.model.parts.base import PrecisionTerms
from dsgmcmc.model.quantity import SHIFT, WEIGHT
from dsgmcmc.targets.state import Rows
from dsgmcmc.types import Array, Float64

#: Precision of the mean, in units of Lambda, under the normal-Wishart prior.
WISHART_BETA = 2.0

#: A row less its shift; the key says whether there are shifts.
_DEVIATIONS = {False: "theta", True: "theta - shift"}
_SUMS = ("total", "squares")
#: Column sums of the rows and of their squares; the key says whether the rows' shifts are
#: subtracted first.
SUMS = {
    shifted: Formula(f"total = {x}\nsquares = ({x}) * ({x})", column_sums=_SUMS)
    for shifted, x in _DEVIATIONS.items()
}
#: The same, with each row times the scale of its prior's precision.
SCALED_SUMS = {
    shifted: Formula(
        f"total = {WEIGHT.name} * ({x})\nsquares = total * ({x})",
        rows=(WEIGHT.name,),
        column_sums=_SUMS,
    )
    for shifted, x in _DEVIATIONS.items()
}


def sums_of_rows(
    rows: Rows, position: str, *, dense: bool, scaled: bool = False
) -> tuple[Float64, Float64]:
    """Sufficient statistics of each block's rows, from which their mean and precision are drawn.

    Parameters
    ----------
    rows : Rows
        The rows theta; their shift, if they have one, is subtracted.
    position : str
        Field with theta.
    dense : bool
        Whether products of different columns are also computed.
    scaled : bool
        Whether each term is multiplied by the row's scale.

    Returns
    -------
    total : (blocks, D) float64
        Sum of the rows.
    products : (blocks, D) or (blocks, D, D) float64
        Sum of the rows' squares, or of their outer products if `dense`.
    """
    is_shifted = SHIFT.name in rows.blocks[0].arrays
    if not dense:
        if scaled:
            sums = rows.update(SCALED_SUMS[is_shifted], theta=position, weight=WEIGHT.name)
        else:
            sums = rows.update(SUMS[is_shifted], theta=position)
        return sums["total"], sums["squares"]
    totals = []
    products = []
    for block in rows.blocks:
        theta = block[position].astype(np.float64)
        if is_shifted:
            theta -= block[SHIFT.name]
        weighted = theta
        if scaled:
            weighted = theta * block[WEIGHT.name]
        totals.append(weighted.sum(axis=0))
        products.append(theta.T @ weighted)
    return np.array(totals), np.array(products)


def sums_of_scales(rows: Rows, scaled: bool) -> Float64:
    """Sum of the rows' scales in every block, (blocks, 1) float64; if not scaled, their number."""
    if not scaled:
        return rows.numbers
    return np.array([[block.row(WEIGHT.name).sum(dtype=np.float64)] for block in rows.blocks])


class GammaPrior(NamedTuple):
    """Prior of precisions: Gamma(shape, rate), with one rate for all or one for each."""

    shape: float
    rate: float | Float64

    def draw(self, squares: Array | float, n: Array | float, rng: np.random.Generator) -> Float64:
        """Draw precisions given the sums of squares of n values from N(0, 1 / precision)."""
        return np.asarray(rng.gamma(self.shape + n / 2, 1 / (self.rate + squares / 2)))


PUBLISHED_PRIOR = GammaPrior(1.0, 5.0)


def with_mean_variance(b: float) -> GammaPrior:
    """Prior of a precision with E[1 / precision] = b and a finite variance of 1 / precision."""
    shape = 4.0
    return GammaPrior(shape, (shape - 1) * b)


def draw_half_cauchy(precision: Float64, scale: float, rng: np.random.Generator) -> GammaPrior:
    """Draw the gamma priors whose mixture is a half-Cauchy prior of sds [Wand 2011, result 5].

    If r ~ Gamma(1/2, rate scale^-2) and lambda ~ Gamma(1/2, rate r), then lambda^-1/2 is
    half-Cauchy with this scale. Only lambda is the chain's state: r is drawn given lambda, and then
    lambda given r and the rows.

    Parameters
    ----------
    precision : (K,) float64
        The current precisions lambda.
    scale : float
        Median of the sds.
    rng : Generator
        Source of randomness.
    """
    return GammaPrior(0.5, rng.standard_exponential(len(precision)) / (scale**-2 + precision))


class Scales(NamedTuple):
    """Values of a common scale A of half-Cauchy priors, equally likely a priori.

    Attributes
    ----------
    values : (G,) float64
    logs, squares : (G, 1) float64
        Their logarithms and squares, which are the same in every sweep.
    """

    values: Float64
    logs: Float64
    squares: Float64

    @classmethod
    def of(cls, values: Float64) -> Scales:
        """Scales with these values."""
        return cls(values, np.log(values[:, None]), values[:, None] ** 2)

    def draw(self, precision: Float64, rng: np.random.Generator) -> float:
        """Draw A, given the precisions lambda, (K,), of sds lambda_k^-1/2.

        Its density is proportional to prod_k A / (A^2 + 1 / lambda_k).
        """
        logs = self.logs - np.log(self.squares + 1 / precision)
        return draw_from(self.values, np.add.reduce(logs, axis=1), rng)


def draw_from(values: Float64, log_density: Float64, rng: np.random.Generator) -> float:
    """Draw one of some values, given the logarithms of their probabilities up to a constant.

    The result is that of ``rng.choice``, whose checks take longer than the draw.
    """
    # the functions of arrays, such as `max`, call these, and take twice as long for a few values
    weights = np.exp(log_density - np.maximum.reduce(log_density))
    cumulative = np.add.accumulate(weights / np.add.reduce(weights))
    if isnan(cumulative[-1]):
        raise ValueError("a probability is not a number")
    cumulative /= cumulative[-1]
    return float(values[cumulative.searchsorted(rng.random(), side="right")])


def draw_normal_gamma(
    average: Float64,
    squares: Float64,
    n: int,
    *,
    weight: float,
    rng: np.random.Generator,
    prior: GammaPrior,
    more: PrecisionTerms,
) -> tuple[Float64, Float64]:
    """Draw (m, lambda) of a diagonal Gaussian given n rows [Nemeth 2021, 6.3].

    Parameters
    ----------
    average, squares : (K,) float64
        Mean over the rows, and sum of squares over the rows, of each column.
    n : int
        Number of rows.
    weight : float
        Sum of the rows' scales, by which the terms of `average` and `squares` are weighted; n if
        all are 1.
    rng : Generator
        Source of randomness.
    prior : GammaPrior
        Prior of lambda_k.
    more : PrecisionTerms
        Sufficient statistics of further vectors from N(0, diag(lambda)^-1).
    """
    at_mean = weight * average**2  # sum of squares if all rows were equal to their mean
    rate = prior.rate + np.maximum(squares - at_mean, 0.0) / 2 + at_mean / (2 * (weight + 1))
    if more.products is not None:
        rate += np.diag(more.leading(len(average))) / 2
    k = len(average)  # NumPy draws standard variates, which are scaled here, in half the time
    precision = rng.standard_gamma(prior.shape + (n + more.n) / 2, k) * (1 / rate)
    centre = weight * average / (weight + 1)
    mean = centre + rng.standard_normal(k) * (1 / np.sqrt((weight + 1) * precision))
    return mean, precision


def draw_wishart(freedom: int, scale: Float64, rng: np.random.Generator) -> Float64:
    """Draw from W(scale, freedom) by Bartlett's decomposition, as ``scipy.stats.wishart`` does.

    It uses random numbers in SciPy's order, so that the result is equal to SciPy's to the bit.
    SciPy's function is not called, because the import of `scipy.stats` takes longer than all other
    imports of a run.

    Parameters
    ----------
    freedom : int
        Degrees of freedom, at least K.
    scale : (K, K) float64
        Positive definite; the mean is `freedom` times it.
    rng : Generator
        Source of randomness.
    """
    from scipy.linalg import cholesky  # NumPy's result differs in the last bits

    k = len(scale)
    root = np.zeros((k, k))
    root[np.tril_indices(k, -1)] = rng.normal(size=k * (k - 1) // 2)
    root[np.diag_indices(k)] = np.sqrt([rng.chisquare(freedom - i) for i in range(k)])
    root = cholesky(scale, lower=True) @ root
    return np.asarray(root @ root.T)


def draw_normal_wishart(
    average: Float64,
    outer: Float64,
    n: int,
    *,
    weight: float,
    rng: np.random.Generator,
    more: PrecisionTerms,
) -> tuple[Float64, Float64]:
    """Draw (m, Lambda) of a Gaussian given n rows [Salakhutdinov 2008, equation 14].

    The parameters of the prior are W0 = I, nu0 = K and beta0 = 2.

    Parameters
    ----------
    average : (K,) float64
        Mean over the rows.
    outer : (K, K) float64
        Sum over the rows of theta theta^T.
    n : int
        Number of rows.
    weight : float
        As for `draw_normal_gamma`.
    rng : Generator
        Source of randomness.
    more : PrecisionTerms
        Sufficient statistics of further vectors from N(0, Lambda^-1).
    """
    k = len(average)
    scatter = outer - weight * np.outer(average, average)
    share = WISHART_BETA * weight / (WISHART_BETA + weight)
    inverse = np.eye(k) + scatter + share * np.outer(average, average)
    inverse += more.leading(k)
    scale = np.linalg.inv((inverse + inverse.T) / 2)
    precision = draw_wishart(k + n + more.n, (scale + scale.T) / 2, rng)
    covariance = np.linalg.inv((WISHART_BETA + weight) * precision)
    factor = np.linalg.cholesky((covariance + covariance.T) / 2)
    mean = weight * average / (WISHART_BETA + weight) + factor @ rng.standard_normal(k)
    return mean, precision
