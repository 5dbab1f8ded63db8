r"""Thresholds between ordered levels: their priors, and how they are moved.

R levels have R - 1 thresholds C_0 < C_1 < ... Their coordinates phi are the middle one, of index m = (R - 1) // 2, and
the logarithms of the gaps between neighbours, so that they stay in order:

    C_m = phi_m      C_{r+1} = C_r + exp(phi_{r+1}) (r >= m)      C_{r-1} = C_r - exp(phi_{r-1}) (r <= m)

Priors: phi_m ~ N(0, 5^2), the log gaps ~ N(0, 3^2), which the data of any level outweigh.

Moved once a sweep, from the gradient at the state that the factors' own was taken at, by BAOAB
[Leimkuhler & Matthews 2013] in the metric P, as `dsgmcmc.samplers.sgmcmc.baoab` moves the factors: with L L^T = P,

    r     <- r - h L^-1 grad U
    r'     = c r + sqrt(1 - c^2) z
    phi   <- phi + (h / 2) L^-T (r + r'),      r <- r'

P is the Fisher information of phi where eta = 0 and the thresholds fit the levels' shares in the training ratings,
dense, plus the prior's precision: it depends on the data alone, so that nothing is to be corrected for it. For the move
the middle threshold is replaced by the one nearest the median rating, the *anchor* a: C_m = C_a +- the gaps between
them, and the log gaps stay. A well-known threshold must not be the sum of gaps that few ratings know: the direction
that keeps it would turn with every step, while P stays. The prior is still that of C_m. A shift of
all thresholds is a shift of all predictors against it; in the coordinates in which P is the identity each of the two
biases gives it a coupling of at most 1. With h^2 = 2 eps / l, eps = 0.35 and l = 2, curvatures of up to 11 are stable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

import numpy as np

from dsgmcmc.kernels.ordinal import Link
from dsgmcmc.model.quantity import Quantity, Sampled
from dsgmcmc.types import Float64, Int64

MIDDLE_SD, GAP_SD = 5.0, 3.0
EPS, CURVATURE, FRICTION = 0.35, 2.0, 0.9


@dataclass
class Thresholds(Sampled):
    """Coordinates of the thresholds, and their momenta, (R - 1,) float64 each."""

    quantities: ClassVar[Mapping[str, Quantity]] = {
        "position": Quantity("thresholds.position", ("threshold",), drawn=False, started=True),
        "momentum": Quantity("thresholds.momentum", ("threshold",), drawn=False),
        "values": Quantity("thresholds", ("threshold",), kept=False, diagnosed="threshold_{number}"),
    }

    position: Float64
    momentum: Float64

    @property
    def values(self) -> Float64:
        """The thresholds C, (R - 1,) float64, ascending."""
        return values_of(self.position)


class ThresholdModel:
    """Law of the thresholds of one link and some levels, and how they start and move.

    Parameters
    ----------
    link : {"logit", "probit"}
    counts : (R,) int
        Training ratings of each level, each at least 1.

    Attributes
    ----------
    information : float
        Fisher information of one rating on its predictor, on the average, where eta = 0.
    """

    def __init__(self, link: Link, counts: Int64) -> None:
        from scipy.special import logit, ndtri  # takes its time to import

        share = counts / counts.sum()
        cumulated = np.cumsum(share)[:-1]
        start = logit(cumulated) if link == "logit" else ndtri(cumulated)
        self.position, self._link = coordinates_of(start), link
        size = len(start)
        fisher = self._fisher(start, share)
        self.information = float(fisher.sum())
        self.anchor = int(np.argmin(np.abs(cumulated - 0.5)))
        jacobian = _jacobian(re_anchored(self.position, size // 2, self.anchor), self.anchor)
        self.prior_precision = np.full(size, GAP_SD**-2)
        self.prior_precision[size // 2] = MIDDLE_SD**-2
        own = np.insert(np.delete(self.prior_precision, size // 2), self.anchor, MIDDLE_SD**-2)
        metric = counts.sum() * (jacobian.T @ fisher @ jacobian) + np.diag(own)
        self._root = np.linalg.cholesky(metric)

    def start(self) -> Thresholds:
        """Thresholds that fit the levels' shares, at rest."""
        return Thresholds(self.position.copy(), np.zeros(len(self.position)))

    def _fisher(self, distance: Float64, share: Float64) -> Float64:
        """Fisher information of a rating on the thresholds, (R - 1, R - 1), which lie so far from its predictor.

        `share` are the probabilities of the levels, (R,).
        """
        from scipy.special import expit

        logistic, size = self._link == "logit", len(distance)
        density = expit(distance) * expit(-distance) if logistic else np.exp(-(distance**2) / 2) / sqrt(2 * np.pi)
        slopes = np.zeros((size + 1, size))  # of the levels' probabilities in the thresholds
        slopes[np.arange(size), np.arange(size)] = density
        slopes[np.arange(size) + 1, np.arange(size)] = -density
        found: Float64 = slopes.T @ (slopes / share[:, None])
        return found

    def information_at(self, eta: float) -> Float64:
        """Fisher information of a rating of this predictor on the coordinates, (R - 1, R - 1), where they start."""
        from scipy.special import expit, ndtr

        distance = values_of(self.position) - eta
        up_to = expit(distance) if self._link == "logit" else ndtr(distance)
        share = np.maximum(np.diff(up_to, prepend=0.0, append=1.0), 1e-12)
        jacobian = _jacobian(self.position)
        found: Float64 = jacobian.T @ self._fisher(distance, share) @ jacobian
        return found

    @staticmethod
    def slopes(position: Float64, sums: Float64) -> Float64:
        """Derivatives of the log likelihood in the coordinates, (R - 1,).

        Parameters
        ----------
        position : (R - 1,) float64
        sums : (R, 2) float64
            As of `dsgmcmc.kernels.ordinal.ordinal_kernel`, over all ratings.
        """
        upper, lower = sums[:, 0], -sums.sum(axis=1)
        found: Float64 = _jacobian(position).T @ (upper[:-1] + lower[1:])
        return found

    def gradient(self, position: Float64, slopes: Float64) -> Float64:
        """Gradient of the energy in the coordinates, given the `slopes` of the log likelihood."""
        found: Float64 = self.prior_precision * position - slopes
        return found

    def move(self, state: Thresholds, slopes: Float64, rng: np.random.Generator) -> dict[str, Float64]:
        """One step of BAOAB; what becomes of `state`, by the names that it is saved as."""
        h, middle = sqrt(2 * EPS / CURVATURE), len(slopes) // 2
        gradient = self._anchored(state.position, self.gradient(state.position, slopes))
        kicked = state.momentum - h * np.linalg.solve(self._root, gradient)
        momentum = FRICTION * kicked + sqrt(1 - FRICTION**2) * rng.standard_normal(len(kicked))
        position = re_anchored(state.position, middle, self.anchor)
        position = position + h / 2 * np.linalg.solve(self._root.T, kicked + momentum)
        return Thresholds(re_anchored(position, self.anchor, middle), momentum).arrays()

    def _anchored(self, position: Float64, gradient: Float64) -> Float64:
        """Gradient in the coordinates with the anchor, from that in those with the middle threshold at `position`."""
        middle = len(position) // 2
        of_gaps, gaps = np.delete(gradient, middle), np.exp(np.delete(position, middle))
        of_gaps[self.anchor : middle] += gradient[middle] * gaps[self.anchor : middle]
        of_gaps[middle : self.anchor] -= gradient[middle] * gaps[middle : self.anchor]
        return np.insert(of_gaps, self.anchor, gradient[middle])


def re_anchored(position: Float64, index: int, to: int) -> Float64:
    """Coordinates with the threshold of index `to` in the place of that of `index`, (R - 1,)."""
    return np.insert(np.delete(position, index), to, values_of(position, index)[to])


def values_of(position: Float64, middle: int | None = None) -> Float64:
    """Thresholds of coordinates; of rows of them, too. `middle` is the index of the threshold that is one of them."""
    middle = position.shape[-1] // 2 if middle is None else middle
    gaps = np.exp(position)
    centre = position[..., middle : middle + 1]
    below = centre - np.cumsum(gaps[..., :middle][..., ::-1], axis=-1)[..., ::-1]
    above = centre + np.cumsum(gaps[..., middle + 1 :], axis=-1)
    return np.concatenate([below, centre, above], axis=-1)


def coordinates_of(values: Float64) -> Float64:
    """Coordinates of thresholds; neighbours are at least 1e-6 apart."""
    middle = len(values) // 2
    found = np.log(np.maximum(np.diff(values), 1e-6))
    return np.insert(found, middle, values[middle])


def _jacobian(position: Float64, middle: int | None = None) -> Float64:
    """Derivatives of the thresholds, by row, in the coordinates."""
    size, middle = len(position), len(position) // 2 if middle is None else middle
    rows, columns = np.indices((size, size))
    found = np.where((columns > middle) & (rows >= columns), 1.0, 0.0)
    found -= (columns < middle) & (rows <= columns)
    found *= np.exp(position)
    found[:, middle] = 1.0
    return found
