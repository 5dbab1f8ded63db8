r"""The thresholds between ordered levels: coordinates, prior, initial values and moves.

R levels have R - 1 thresholds C_0 < C_1 < ... Their coordinates phi are the middle threshold, of
index m = (R - 1) // 2, and the logarithms of the gaps between neighbours:

    C_m = phi_m
    C_{k+1} = C_k + exp(phi_{k+1}) (k >= m)
    C_{k-1} = C_k - exp(phi_{k-1}) (k <= m)

Priors: phi_m ~ N(0, 5^2), the log gaps ~ N(0, 3^2). Once a sweep, thresholds move by BAOAB
[Leimkuhler & Matthews 2013] in the metric P = L L^T, with the momentum r:

    r     <- r - h L^-1 grad U
    r'     = c r + sqrt(1 - c^2) z
    phi   <- phi + (h / 2) L^-T (r + r'),      r <- r'

P is the dense Fisher information at eta = 0 and the initial thresholds, which fit the levels'
shares in the training ratings, plus the prior's precision. Moves use other coordinates than the
prior:

- The *anchor* C_a, the threshold nearest the median rating, replaces the middle threshold.
  Otherwise a well-known threshold could be a sum of little-known gaps, and the narrow direction of
  the posterior would turn with every step.
- *Bent* gaps: a gap is log(1 + e^y) times its initial value. In log gaps phi, curvatures would grow
  with the square of the gap, and chains diverge on nearly separable ratings. The energy in y has
  the term -log(d phi / dy).

With h^2 = 2 eps / l, eps = 0.35 and l = 2, curvatures of up to 11 are stable. Kicks are clipped
at 3.

[Dempster, Laird & Rubin 1977] Maximum likelihood from incomplete data via the EM algorithm. JRSS B
39.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.random import Generator

from dsgmcmc.model.likelihoods.row_scales import FRICTION, LARGEST_KICK, SPREAD, STEP
from dsgmcmc.model.quantity import Quantity, Sampled
from dsgmcmc.types import Float64, Int64

# sds of the priors of the middle threshold and of the log gaps
MIDDLE_SD = 5.0
GAP_SD = 3.0
#: Steps to the shares of levels, if some ratings may stand for several.
EM_STEPS = 200


@dataclass
class Thresholds(Sampled):
    """Coordinates of the thresholds, and their momenta, (R - 1,) float64 each."""

    quantities: ClassVar[Mapping[str, Quantity]] = {
        "position": Quantity("thresholds.position", ("threshold",), drawn=False, started=True),
        "momentum": Quantity("thresholds.momentum", ("threshold",), drawn=False),
        "values": Quantity(
            "thresholds", ("threshold",), kept=False, diagnosed="threshold_{number}"
        ),
    }

    position: Float64
    momentum: Float64

    @property
    def values(self) -> Float64:
        """The thresholds C, (R - 1,) float64, ascending."""
        return values_of(self.position)


class ThresholdModel:
    """Prior, initial values and updates of the thresholds, for the levels of the ratings.

    Parameters
    ----------
    counts : (R,) int
        Training ratings of each level, each at least 1.
    spans : (R, R) float64, optional
        Training ratings of the levels of items that have fewer: element k, l has those at a level
        that stands for levels k to l. The numbers of ratings of these are then estimated.

    Attributes
    ----------
    position : (R - 1,) float64
        Coordinates of thresholds that fit the levels' shares in the training ratings.
    information : float
        Average Fisher information of a rating on its predictor, at eta = 0.
    anchor : int
        Index of the threshold nearest the median rating.
    prior_precision : (R - 1,) float64
        Precisions of the prior of the coordinates.
    """

    def __init__(self, counts: Int64, spans: Float64 | None = None) -> None:
        from scipy.special import logit  # slow to import

        shares = counts / counts.sum()
        if spans is not None:
            shares = _shares_within(spans)
        cumulated = np.cumsum(shares)[:-1]
        thresholds = logit(cumulated)
        fisher = _fisher_information(thresholds, shares)
        if spans is not None:
            fisher = _fisher_information_of_spans(thresholds, shares, spans)
        self.position = coordinates_of(thresholds)
        self.information = float(fisher.sum())
        self.anchor = int(np.argmin(np.abs(cumulated - 0.5)))
        self.prior_precision = _prior_precision(len(thresholds), len(thresholds) // 2)
        anchored = re_anchored(self.position, len(thresholds) // 2, self.anchor)
        self._log_gaps = np.delete(anchored, self.anchor)
        slopes = np.insert(_bent(np.zeros(len(anchored) - 1)).slope, self.anchor, 1.0)
        jacobian = _jacobian(anchored, self.anchor) * slopes
        prior = _prior_precision(len(anchored), self.anchor) * slopes**2
        # the metric P of moves, in coordinates with the anchor and bent gaps
        metric = counts.sum() * (jacobian.T @ fisher @ jacobian) + np.diag(prior)
        self._root = np.linalg.cholesky(metric)

    def start(self) -> Thresholds:
        """Thresholds that fit the levels' shares, with momenta 0."""
        return Thresholds(self.position.copy(), np.zeros(len(self.position)))

    def gap_information(self) -> Float64:
        """Largest Fisher information of a rating on each log gap, over predictors, (R - 2,).

        It is that at the initial thresholds.
        """
        from scipy.special import expit

        thresholds = values_of(self.position)
        jacobian = _jacobian(self.position)
        information = []
        for eta in np.linspace(thresholds[0] - 2, thresholds[-1] + 2, 60):
            shares = np.diff(expit(thresholds - eta), prepend=0.0, append=1.0)
            fisher = _fisher_information(thresholds - eta, np.maximum(shares, 1e-12))
            information.append(np.diag(jacobian.T @ fisher @ jacobian))
        return np.delete(np.max(information, axis=0), len(thresholds) // 2)

    def gap_growth(self, state: Thresholds) -> Float64:
        """Squared ratios of the gaps to the initial ones, (R - 2,), as the information grows."""
        return np.square(np.diff(state.values) / np.diff(values_of(self.position)))

    @staticmethod
    def slopes(position: Float64, sums: Float64) -> Float64:
        """Derivatives of the log likelihood with respect to the coordinates, (R - 1,).

        Parameters
        ----------
        position : (R - 1,) float64
        sums : (R, 2) float64
            Sums over all ratings, as `dsgmcmc.kernels.ordinal.ordinal_kernel` computes them, at a
            `scale` of 1.
        """
        upper = sums[:, 0]
        lower = -sums.sum(axis=1)
        return np.asarray(_jacobian(position).T @ (upper[:-1] + lower[1:]))

    def gradient(self, position: Float64, slopes: Float64) -> Float64:
        """Gradient of the energy at coordinates, given the `slopes` of the log likelihood."""
        return np.asarray(self.prior_precision * position - slopes)

    def move(
        self, state: Thresholds, slopes: Float64, rng: Generator, scale: float = 1.0
    ) -> dict[str, Float64]:
        """Make one step of BAOAB, given `slopes`; return the new state's arrays by name.

        The information on the anchor grows with the square of the ratings' `scale`; gaps get
        smaller as scales grow, so that the information on log gaps does not.
        """
        middle = len(slopes) // 2
        anchor = self.anchor
        anchored = re_anchored(state.position, middle, anchor)
        bent = _bent(np.delete(anchored, anchor) - self._log_gaps)
        gradient = self.with_anchor(state.position, self.gradient(state.position, slopes))
        gap_gradient = np.delete(gradient, anchor) * bent.slope - bent.log_slope_derivative
        gradient = np.insert(gap_gradient, anchor, gradient[anchor] / scale)

        kick = STEP * np.linalg.solve(self._root, gradient)
        kicked = state.momentum - np.clip(kick, -LARGEST_KICK, LARGEST_KICK)
        momentum = FRICTION * kicked + SPREAD * rng.standard_normal(len(kicked))
        drift = STEP / 2 * np.linalg.solve(self._root.T, kicked + momentum)

        y = bent.y + np.delete(drift, anchor)
        log_gaps = self._log_gaps + np.log(np.logaddexp(0.0, y))
        new = np.insert(log_gaps, anchor, anchored[anchor] + drift[anchor] / scale)
        return Thresholds(re_anchored(new, anchor, middle), momentum).arrays()

    def with_anchor(self, position: Float64, gradient: Float64) -> Float64:
        """The gradient at `position` in coordinates with the anchor, not the middle threshold."""
        middle = len(position) // 2
        gap_gradient = np.delete(gradient, middle)
        gaps = np.exp(np.delete(position, middle))
        gap_gradient[self.anchor : middle] += gradient[middle] * gaps[self.anchor : middle]
        gap_gradient[middle : self.anchor] -= gradient[middle] * gaps[middle : self.anchor]
        return np.insert(gap_gradient, self.anchor, gradient[middle])


# ---------------------------------------------------------------------- coordinates


def values_of(position: Float64, middle: int | None = None) -> Float64:
    """Thresholds given coordinates, (..., R - 1).

    `middle` is the index of the threshold that is a coordinate.
    """
    if middle is None:
        middle = position.shape[-1] // 2
    gaps = np.exp(position)
    centre = position[..., middle : middle + 1]
    below = centre - np.cumsum(gaps[..., :middle][..., ::-1], axis=-1)[..., ::-1]
    above = centre + np.cumsum(gaps[..., middle + 1 :], axis=-1)
    return np.concatenate([below, centre, above], axis=-1)


def coordinates_of(values: Float64) -> Float64:
    """Coordinates of thresholds; a gap below 1e-6 counts as 1e-6."""
    middle = len(values) // 2
    log_gaps = np.log(np.maximum(np.diff(values), 1e-6))
    return np.concatenate([log_gaps[:middle], values[middle : middle + 1], log_gaps[middle:]])


def re_anchored(position: Float64, old: int, new: int) -> Float64:
    """Coordinates, (R - 1,), with threshold `new` as a coordinate in place of threshold `old`."""
    return np.insert(np.delete(position, old), new, values_of(position, old)[new])


def _jacobian(position: Float64, middle: int | None = None) -> Float64:
    """Derivatives of the thresholds (rows) by the coordinates (columns), (R - 1, R - 1)."""
    size = len(position)
    if middle is None:
        middle = size // 2
    rows, columns = np.indices((size, size))
    jacobian = np.where((columns > middle) & (rows >= columns), 1.0, 0.0)
    jacobian -= (columns < middle) & (rows <= columns)
    jacobian *= np.exp(position)
    jacobian[:, middle] = 1.0
    return jacobian


class _BentGaps(NamedTuple):
    """Coordinates y of gaps that are log(1 + exp(y)) times their initial values, (R - 2,) each.

    `slope` s is the derivative of the log gap with respect to y, and `log_slope_derivative` that of
    log s.
    """

    y: Float64
    slope: Float64
    log_slope_derivative: Float64


def _bent(log_ratio: Float64) -> _BentGaps:
    """Coordinates of gaps that are exp(`log_ratio`) times their initial values."""
    from scipy.special import expit

    ratio = np.exp(log_ratio)
    y = ratio + np.log(-np.expm1(-ratio))
    slope = expit(y) / ratio
    return _BentGaps(y, slope, expit(-y) - slope)


def _prior_precision(size: int, middle: int) -> Float64:
    """Precisions of the priors of `size` coordinates, if that of index `middle` is a threshold."""
    precision = np.full(size, GAP_SD**-2)
    precision[middle] = MIDDLE_SD**-2
    return precision


def _fisher_information(distance: Float64, shares: Float64) -> Float64:
    """Fisher information of a rating on the thresholds, (R - 1, R - 1).

    It depends on the distances of the thresholds from the predictor, (R - 1,), and on the
    probabilities of the levels, `shares`, (R,).
    """
    from scipy.special import expit

    size = len(distance)
    density = expit(distance) * expit(-distance)
    # derivatives of the levels' probabilities with respect to the thresholds
    slopes = np.zeros((size + 1, size))
    slopes[np.arange(size), np.arange(size)] = density
    slopes[np.arange(size) + 1, np.arange(size)] = -density
    return np.asarray(slopes.T @ (slopes / shares[:, None]))


def _shares_within(spans: Float64) -> Float64:
    """Shares of the levels, (R,), whose sums fit best [Dempster, Laird & Rubin 1977].

    `spans` (R, R) has the numbers of ratings at levels k to l. No share is below that of a rating.
    """
    n_levels = len(spans)
    total = spans.sum()
    first, last = np.nonzero(spans)
    within = np.arange(n_levels) >= first[:, np.newaxis]
    within &= np.arange(n_levels) <= last[:, np.newaxis]
    number = spans[first, last]
    shares = np.full(n_levels, 1 / n_levels)
    for _ in range(EM_STEPS):
        shares = shares * (within.T @ (number / (within @ shares))) / total
    shares = np.maximum(shares, 1 / total)
    return np.asarray(shares / shares.sum())


def _fisher_information_of_spans(distance: Float64, shares: Float64, spans: Float64) -> Float64:
    """Average Fisher information of ratings that may stand for several levels, (R - 1, R - 1)."""
    from scipy.special import expit

    density = np.concatenate([[0.0], expit(distance) * expit(-distance), [0.0]])
    cumulated = np.concatenate([[0.0], np.cumsum(shares)])
    information = np.zeros((len(shares) + 1, len(shares) + 1))
    for first, last in zip(*np.nonzero(spans), strict=True):
        slopes = np.zeros(len(information))
        slopes[last + 1] = density[last + 1]
        slopes[first] = -density[first]
        probability = cumulated[last + 1] - cumulated[first]
        information += spans[first, last] * np.outer(slopes, slopes) / probability**2
    return np.asarray(information[1:-1, 1:-1] / spans.sum())
