"""The verdict on draws of a density: reasons to doubt them.

Each reason is a sentence with what was measured and what to do. An element of theta is named for
the first of these reasons that holds:

1. Its R-hat is above `RECOMMENDED_RHAT`.
2. Its ESS, the smaller of bulk and tail, is below `ESS_PER_CHAIN` per chain.
3. The mean of the second half of the draws differs from that of the first half by more than `DRIFT`
   standard deviations, and by more than `DRIFT_ERRORS` standard errors.

The spread of all draws is compared with the density (`spread`) if the density has a gradient, no
element has reason 1, D is at most `MAX_DIRECTIONS`, and every chain has at least
`DRAWS_PER_DIRECTION` D draws.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import sqrt
from typing import NamedTuple

import numpy as np

from dsgmcmc.config.units import ESS_PER_CHAIN
from dsgmcmc.densities.density import Density, posterior_gradient
from dsgmcmc.diagnostics.convergence import RECOMMENDED_RHAT
from dsgmcmc.types import Array, Float64

#: Largest difference between the means of both halves of the draws, in standard deviations. Such a
#: difference in each of four chains mostly raises R-hat above its limit, too, at 0.26 without
#: chance. But R-hat is computed from ranks, so that with heavy tails the means may differ while
#: R-hat is small.
DRIFT = 0.25
#: The same, in standard errors; a reason for doubt exceeds both.
DRIFT_ERRORS = 3.0
#: Largest relative error of a variance: `EXCESS` plus `EXCESS_ERRORS` standard errors.
EXCESS = 0.1
EXCESS_ERRORS = 4.0
#: Approximate maximum number of draws at which the gradient is computed.
GRADIENTS = 400
#: Maximum of D for which the spread is compared.
MAX_DIRECTIONS = 50
#: Smallest number of draws of a chain, divided by D, for which the spread is compared.
DRAWS_PER_DIRECTION = 8
#: Maximum number of elements that a sentence names.
NAMED_ELEMENTS = 3
DIVERGENT = (
    "{:,.0f} divergent trajectories: draws may miss the most curved regions; raise acceptance, or"
    " reparametrise"
)
CUT = (
    "{:,.0f} trajectories cut at the largest number of steps: mixing is slow; make elements of"
    " theta less correlated"
)


class Mixing(NamedTuple):
    """Mixing of the chains, for every element of theta; NaN if unknown.

    Attributes
    ----------
    rhat : (D,) float64
        Rank-normalised R-hat between the halves of chains, or between the quarters of a single
        chain.
    ess : (D,) float64
        The smaller of bulk and tail ESS, over all chains.
    """

    rhat: Float64
    ess: Float64

    @property
    def is_unknown(self) -> bool:
        """Whether there are too few draws, or draws of unequal weight."""
        return bool(np.isnan(self.ess).all())

    def doubtful(self, chains: int) -> tuple[Array, Array]:
        """Return whether R-hat is too large, (D,), and whether only the ESS is too small, (D,).

        R-hat is also too large if it is NaN. With M halves of chains that agree, its square is
        about 1 + x / E, with x ~ chi^2_(M-1) / (M - 1) and E the ESS of half a chain. With four
        chains, chance alone exceeds the limit for 11 % of the elements at an ESS of 100 per chain,
        for 0.3 % at 250, and for none at 500 [simulated].
        """
        apart = ~(self.rhat <= RECOMMENDED_RHAT)
        few = ~apart & (self.ess < ESS_PER_CHAIN * chains)
        return apart, few


def reasons_to_doubt(
    theta: Float64, mixing: Mixing, statistics: Sequence[Mapping[str, float]], density: Density
) -> Iterator[str]:
    """Yield the reasons to doubt draws.

    Parameters
    ----------
    theta : (chains, draws, D) float64
    mixing : Mixing
        Of `theta`.
    statistics : sequence of dict
        Values that the sampler reports for every chain; ``divergent`` and ``cut`` count
        trajectories.
    density : Density
    """
    for name, sentence in (("divergent", DIVERGENT), ("cut", CUT)):
        if count := sum(values.get(name, 0) for values in statistics):
            yield sentence.format(count)
    if mixing.is_unknown:
        yield (
            "R-hat and ESS are unknown, as draws are few or of unequal weight: use more iterations"
            " or a constant step"
        )
        return
    yield from _doubtful_elements(theta, mixing)
    chains, draws, dimension = theta.shape
    apart, _ = mixing.doubtful(chains)
    is_compared = dimension <= min(MAX_DIRECTIONS, draws // DRAWS_PER_DIRECTION)
    if hasattr(density, "gradient") and is_compared and not apart.any():
        yield from _doubtful_spread(theta, density)


def _doubtful_elements(theta: Float64, mixing: Mixing) -> Iterator[str]:
    """Yield a sentence for each of the three reasons that names elements of theta."""
    apart, few = mixing.doubtful(len(theta))
    first, second = (half.mean(axis=(0, 1)) for half in np.array_split(theta, 2, axis=1))
    drift = np.abs(second - first) / theta.std(axis=(0, 1))
    moving = ~apart & ~few & (drift > np.maximum(DRIFT, DRIFT_ERRORS * 2 / np.sqrt(mixing.ess)))
    if apart.any():
        named = _name(apart, -mixing.rhat, "R-hat {:.4g}")
        yield (
            f"the chains disagree about {named}, and R-hat should be at most {RECOMMENDED_RHAT}:"
            " use more iterations"
        )
    if few.any():
        named = _name(few, mixing.ess, "ESS {:.0f}")
        yield (
            f"few draws are independent for {named}, and ESS should be {ESS_PER_CHAIN} per chain:"
            " use more iterations"
        )
    if moving.any():
        named = _name(moving, -drift, "{:.2g} standard deviations")
        yield (
            f"means differ between the first and the second half of the draws for {named}: use a"
            " longer burn-in"
        )


def _doubtful_spread(theta: Float64, density: Density) -> Iterator[str]:
    """Yield a sentence if the standard deviations of the draws are wrong in some direction."""
    ratios, errors = spread(theta, density)
    if not (np.abs(ratios - 1) > EXCESS + EXCESS_ERRORS * errors).any():
        return
    low, high = np.sqrt(np.maximum(ratios, 0))
    yield (
        f"standard deviations are {low:.2f} to {high:.2f} times the right ones, depending on the"
        " direction: use a smaller step_size or grid, or compare with sampler hmc"
    )


def spread(theta: Float64, density: Density) -> tuple[Float64, Float64]:
    """Estimate the smallest and the largest ratio of a draws' variance to that of the density.

    For a density with mean m, E (theta - m) grad U(theta)^T = I, because the integral of the
    derivative of (theta - m) exp(-U) is 0. Let the density be normal, and average over draws from
    another distribution with the same mean: the left side is then the covariance of the draws times
    the precision of the density. Its smallest and largest eigenvalues are variances of draws
    divided by the right variances, in the two directions in which this ratio is smallest and
    largest. They show the bias of a step or of minibatches, which R-hat does not see, because all
    chains share it.

    The first halves of the chains give coordinates y in which their covariance is I, a linear fit
    A y to the gradient in these coordinates, and the two directions. The second halves give
    E y y^T A from all draws, and E y (grad U - A y)^T from the draws at which the gradient is
    computed. Their sum is unbiased for any density, and nearly as precise as the covariance if U is
    nearly quadratic.

    Parameters
    ----------
    theta : (chains, draws, D) float64
    density : Density

    Returns
    -------
    ratios, errors : (2,) and (2,) float64
        The ratios in these two directions, and their standard errors.
    """
    chains, draws, dimension = theta.shape
    half = draws // 2
    y = theta - theta.mean(axis=(0, 1))
    root = np.linalg.cholesky(np.atleast_2d(np.cov(y[:, :half].reshape(-1, dimension).T)))
    y = y @ np.linalg.inv(root).T
    every = -(-chains * draws // GRADIENTS)
    picked = np.arange(0, draws, every)
    slopes = _gradients(density, theta[:, picked]) @ root

    early = picked < half
    fitted = y[:, picked][:, early].reshape(-1, dimension)
    fit = np.linalg.lstsq(fitted, slopes[:, early].reshape(-1, dimension), rcond=None)[0]
    axes = np.linalg.eigh(fit + fit.T)[1][:, [0, -1]]

    products = (y[:, half:] @ axes) * (y[:, half:] @ fit @ axes)
    late = y[:, picked[~early]]
    residuals = (late @ axes) * ((slopes[:, ~early] - late @ fit) @ axes)
    ratios = products.mean(axis=(0, 1)) + residuals.mean(axis=(0, 1))
    groups = np.concatenate([part.mean(axis=1) for part in np.array_split(products, 2, axis=1)])
    errors = np.hypot(
        groups.std(axis=0, ddof=1) / sqrt(2 * chains),
        residuals.std(axis=(0, 1)) / sqrt(late[..., 0].size),
    )
    return ratios, errors


def _gradients(density: Density, theta: Float64) -> Float64:
    """Return the posterior's gradient at every state, (chains, draws, D), one state at a time."""
    return np.array(
        [[posterior_gradient(density, state[None])[0] for state in chain] for chain in theta]
    )


def _name(chosen: Array, order: Float64, measure: str) -> str:
    """Name the chosen elements in ascending `order`, with abs(order) formatted by `measure`."""
    ranked = [k for k in np.argsort(order).tolist() if chosen[k]]
    named = ", ".join(
        f"element {k} ({measure.format(abs(order[k]))})" for k in ranked[:NAMED_ELEMENTS]
    )
    if len(ranked) <= NAMED_ELEMENTS:
        return named
    return f"{named} and {len(ranked) - NAMED_ELEMENTS:,} more"
