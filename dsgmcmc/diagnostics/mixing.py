r"""Rank-normalised R-hat and effective sample size [Vehtari 2021].

Every chain is split into two halves, so that a trend within a chain shows as a difference between
halves. Let W be the mean variance within the M halves of n draws, and B / n the variance of their
means. Then

.. math:: \hat V = \tfrac{n - 1}{n} W + \tfrac{1}{n} B, \qquad \hat R = \sqrt{\hat V / W} (eq. 3, 4)

where the values are normal scores: normal quantiles of the ranks among all draws. R-hat is also
computed for the draws folded at their median, and the larger value counts. With :math:`\hat\rho_t`
the autocorrelation at lag t (eq. 10),

.. math:: \mathrm{ESS} = M n / \hat\tau, \quad \hat\tau = -1 + 2 \sum_k \hat P_k, \quad
          \hat P_k = \hat\rho_{2k} + \hat\rho_{2k + 1},

summed over Geyer's initial monotone positive sequence (eq. 12, 13): the sum stops at the first pair
that is not positive, and a pair larger than its predecessor is replaced by the predecessor. Bulk
ESS is the ESS of the normal scores. Tail ESS is the smaller ESS of two indicators: that a draw is
at most the 5 % quantile, or the 95 % quantile.

[Vehtari 2021] Rank-normalization, folding, and localization: an improved R-hat, Bayesian Analysis
16.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from dsgmcmc.types import Float64

TAILS = (0.05, 0.95)


def equal_weights(weights: Float64) -> bool:
    """Whether all weights (chains, draws) are equal; False without draws."""
    return weights.size > 0 and bool(np.allclose(weights, weights[0, 0], rtol=1e-9))


def rhat(values: Float64) -> Float64:
    """Compute rank-normalised split R-hat.

    Parameters
    ----------
    values : (chains, draws, m) float64
        At least `dsgmcmc.config.units.LEAST_DRAWS` draws of m quantities. For one chain, its halves
        are compared.

    Returns
    -------
    (m,) float64
        NaN for a constant quantity.
    """
    split = halves(values)
    folded = np.abs(split - np.median(split, axis=(0, 1)))
    return np.maximum(_plain_rhat(_normal_scores(split)), _plain_rhat(_normal_scores(folded)))


def ess_bulk(values: Float64) -> Float64:
    """Return the effective sample size of all chains for averages; `values` as in `rhat`.

    NaN for a constant quantity.
    """
    return _ess(_normal_scores(halves(values)))


def ess_tail(values: Float64) -> Float64:
    """Return the smaller effective sample size of all chains for the quantiles `TAILS`.

    A tail without draws beyond its quantile, as of what is nearly always the same, is left out; NaN
    if both are.
    """
    quantiles = np.quantile(values, TAILS, axis=(0, 1))
    below = [_ess(halves((values <= quantile).astype(np.float64))) for quantile in quantiles]
    return np.fmin(*below)


def ess_smaller(values: Float64) -> Float64:
    """Return the smaller of bulk and tail ESS, of which NaN is left out."""
    return np.fmin(ess_bulk(values), ess_tail(values))


def halves(values: Float64) -> Float64:
    """Return both halves of every chain, (2 chains, n, m).

    The middle one of an odd number of draws is left out.
    """
    n = values.shape[1] // 2
    return np.concatenate([values[:, :n], values[:, -n:]])


def _normal_scores(values: Float64) -> Float64:
    """Return the normal quantiles of the ranks among all draws [eq. 14 of Vehtari 2021].

    Equal values share their mean rank.
    """
    ranks = _ranks(values.reshape(-1, values.shape[-1]))
    n = len(ranks)
    quantile = NormalDist().inv_cdf  # SciPy's is slow to import
    # mean ranks are 1, 1.5, 2, ..., n
    scores = np.array([quantile((half / 2 - 0.375) / (n + 0.25)) for half in range(2, 2 * n + 1)])
    return scores[(2 * ranks - 2).astype(np.intp)].reshape(values.shape)


def _ranks(values: Float64) -> Float64:
    """Return ranks from 1 in every column, (n, m) float64; equal values share their mean rank."""
    # scipy.stats.rankdata is slow to import
    ranks = np.empty(values.shape)
    for rank, column in zip(ranks.T, values.T, strict=True):
        ordered = np.sort(column)
        rank[:] = (ordered.searchsorted(column) + ordered.searchsorted(column, "right") + 1) / 2
    return ranks


def _plain_rhat(values: Float64) -> Float64:
    """Return R-hat (eq. 4) of values (halves, n, m), without ranks, (m,) float64."""
    n = values.shape[1]
    within = values.var(axis=1, ddof=1).mean(axis=0)
    between = values.mean(axis=1).var(axis=0, ddof=1)
    # a quantity that is constant within chains has variance 0
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.sqrt((n - 1) / n + between / within)  # type: ignore[no-any-return]


def _ess(values: Float64) -> Float64:
    """Return the ESS of values (halves, n, m), without ranks, (m,) float64."""
    n_halves, n, _ = values.shape
    covariance = _autocovariance(values)
    within = covariance[0] * n / (n - 1)
    total = covariance[0] + values.mean(axis=1).var(axis=0, ddof=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        rho = 1 - (within - covariance) / total
    rho[0] = 1.0
    pairs = rho[0 : n - n % 2 : 2] + rho[1::2]
    pairs = pairs[: max(1, (n - 1) // 2)]  # at the last lags hardly any draws are compared
    positive = np.logical_and.accumulate(pairs > 0, axis=0)
    last = np.minimum(positive.sum(axis=0), len(pairs) - 1)
    counted = np.arange(len(pairs))[:, None] < last
    monotone = np.where(counted, np.minimum.accumulate(pairs, axis=0), 0.0)
    even = np.take_along_axis(rho, 2 * last[None], axis=0)[0]  # of the pair at which the sum stops
    tau = -1 + 2 * monotone.sum(axis=0) + np.maximum(even, 0.0)
    draws = n_halves * n
    ess = np.where(total > 0, draws / np.maximum(tau, 1 / np.log10(draws)), np.nan)
    return np.asarray(ess, np.float64)


def _autocovariance(values: Float64) -> Float64:
    """Return the mean autocovariance of the chains at every lag, with divisor n, (n, m) float64."""
    n = values.shape[1]
    # values are padded with zeros, so that the end does not meet the beginning
    power = 1 << (2 * n - 1).bit_length()
    size = next(size for size in (5 * power // 8, 3 * power // 4, power) if size >= 2 * n - 1)
    spectrum = np.fft.rfft(values - values.mean(axis=1, keepdims=True), n=size, axis=1)
    squares = (spectrum.real**2 + spectrum.imag**2).mean(axis=0)
    return np.asarray(np.fft.irfft(squares, n=size, axis=0)[:n] / n, np.float64)
