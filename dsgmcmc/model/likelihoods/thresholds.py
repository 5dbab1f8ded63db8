r"""Thresholds between ordered levels, shared or one set per user: their priors, and their updates.

R levels have R - 1 thresholds C_0 < C_1 < ... Their coordinates phi are the middle threshold, of index
m = (R - 1) // 2, and the logarithms of the gaps between neighbours, so that thresholds stay in order:

    C_m = phi_m      C_{r+1} = C_r + exp(phi_{r+1}) (r >= m)      C_{r-1} = C_r - exp(phi_{r-1}) (r <= m)

Priors: phi_m ~ N(0, 5^2), the log gaps ~ N(0, 3^2), which the data of any level outweigh.

They are moved once a sweep, from the gradient at the same state as the factors, by BAOAB [Leimkuhler & Matthews 2013]
in the metric P, as `dsgmcmc.samplers.baoab` moves the factors: with L L^T = P,

    r     <- r - h L^-1 grad U
    r'     = c r + sqrt(1 - c^2) z
    phi   <- phi + (h / 2) L^-T (r + r'),      r <- r'

P is the dense Fisher information on phi, at eta = 0 and at thresholds that fit the levels' shares in the training
ratings, plus the prior's precision. It depends on the data alone, so no correction is needed. For the move, the middle
coordinate is replaced by the threshold nearest the median rating, the *anchor* a: C_m = C_a +- the gaps between them,
and the log gaps are unchanged. Otherwise a precisely known threshold could be a sum of gaps that few ratings inform:
the direction in which that sum is constant would rotate with every step, while P is constant. The prior remains that
of C_m. A shift of all thresholds is equivalent to an opposite shift of all predictors; in the coordinates in which P is
the identity, the coupling of this shift to each of the two biases is at most 1. With h^2 = 2 eps / l, eps = 0.35 and
l = 2, curvatures of up to 11 are stable.

*Thresholds of every user.* User i has the coordinates phi + f(d_i): gaps between neighbours are exp(f(d_ir)) times
the shared gaps, and f(d) = 2 tanh(d / 2) keeps the ratio within a factor e^2, as scales are bounded
(`dsgmcmc.model.likelihoods.scales`). The middle threshold is shared, because the user's bias already shifts all
thresholds. So thresholds stay in order, and are shrunk towards the shared ones:

    d_ir ~ N(0, 1 / lambda_r)      lambda_r ~ Gamma(1, rate 0.1), for each gap r

lambda_r is drawn from Gamma(1 + n / 2, 0.1 + sum_i d_ir^2 / 2). The d are moved once a sweep by BAOAB, as thresholds
and scales are, from the same gradient, row by row in the diagonal metric a_r n_i + lambda: n_i is the number of the
row's ratings, a_r the largest Fisher information of a rating on log gap r, over all predictors, at the initial
thresholds (users differ in the levels that they use). The half kick that ends a step uses the old lambda, the half kick
that begins the next step the new lambda; so the momentum is independent of d when lambda is drawn.

Fields of a block: ``cuts`` holds the thresholds, which are saved with draws; ``cut_slope`` accumulates the derivatives
of the log likelihood with respect to them; ``gaps`` is d, and ``gap_drift`` its momentum. Blocks of the other factor
have these fields, too, with value 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

import numpy as np
from pydantic import BaseModel

from dsgmcmc.kernels.formula import Formula
from dsgmcmc.kernels.ordinal import END
from dsgmcmc.model.conjugate import GammaPrior
from dsgmcmc.model.quantity import Quantity, Sampled
from dsgmcmc.settings import setting
from dsgmcmc.targets.state import ParameterBlock
from dsgmcmc.types import Float32, Float64, Int64, Purpose, ThresholdsName

MIDDLE_SD, GAP_SD = 5.0, 3.0
EPS, CURVATURE, FRICTION = 0.35, 2.0, 0.9
STEP, SPREAD = sqrt(2 * EPS / CURVATURE), sqrt(1 - FRICTION**2)  # h, and the share of new noise in a momentum
#: Given to the formulas that move rows' own parameters; the largest kick is in standard deviations of the momentum.
MOVE = {"most": 3.0, "damp": FRICTION, "spread": SPREAD}

CUTS, CUT_SLOPE, GAPS, GAP_DRIFT = "cuts", "cut_slope", "gaps", "gap_drift"
GAP_SLOPE = "gap_slope"  # while they are moved
GAP_PRIOR = GammaPrior(1.0, 0.1)  # of lambda
GAP_START = 10.0  # precision of d before it is first drawn
MAX_DEVIATION = 2.0  # of |f(d)|
#: Smallest number of levels with a gap between thresholds.
LEAST_LEVELS = 3

MOVE_GAPS = Formula(
    """
before = half / sqrt(information * n + earlier)
after = half / sqrt(information * n + precision)
kick = before * (earlier * gaps - gap_slope) + after * (precision * gaps - gap_slope)
kicked = gap_drift - minimum(maximum(kick, -most), most)
gap_drift = damp * kicked + spread * z
gaps = gaps + after * (kicked + gap_drift)
""",
    rows=("n",),
    columns=("information", "earlier", "precision"),
)


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
    """Prior, initial values and updates of the thresholds, for the levels of the ratings.

    Parameters
    ----------
    counts : (R,) int
        Training ratings of each level, each at least 1.

    Attributes
    ----------
    information : float
        Fisher information of one rating on its predictor, on the average, where eta = 0.
    """

    def __init__(self, counts: Int64) -> None:
        from scipy.special import logit  # takes its time to import

        share = counts / counts.sum()
        cumulated = np.cumsum(share)[:-1]
        start = logit(cumulated)
        self.position = coordinates_of(start)
        size = len(start)
        fisher = self._fisher(start, share)
        self.information = float(fisher.sum())
        self.anchor = int(np.argmin(np.abs(cumulated - 0.5)))
        jacobian = _jacobian(re_anchored(self.position, size // 2, self.anchor), self.anchor)
        self.prior_precision = np.full(size, GAP_SD**-2)
        self.prior_precision[size // 2] = MIDDLE_SD**-2
        anchored_precision = np.insert(np.delete(self.prior_precision, size // 2), self.anchor, MIDDLE_SD**-2)
        metric = counts.sum() * (jacobian.T @ fisher @ jacobian) + np.diag(anchored_precision)
        self._root = np.linalg.cholesky(metric)

    def start(self) -> Thresholds:
        """Thresholds that fit the levels' shares, with momenta 0."""
        return Thresholds(self.position.copy(), np.zeros(len(self.position)))

    def _fisher(self, distance: Float64, share: Float64) -> Float64:
        """Fisher information of a rating on the thresholds, (R - 1, R - 1), which lie so far from its predictor.

        `share` are the probabilities of the levels, (R,).
        """
        from scipy.special import expit

        size, density = len(distance), expit(distance) * expit(-distance)
        slopes = np.zeros((size + 1, size))  # of the levels' probabilities in the thresholds
        slopes[np.arange(size), np.arange(size)] = density
        slopes[np.arange(size) + 1, np.arange(size)] = -density
        fisher: Float64 = slopes.T @ (slopes / share[:, None])
        return fisher

    def information_at(self, eta: float) -> Float64:
        """Fisher information of a rating of this predictor on the coordinates, (R - 1, R - 1), where they start."""
        from scipy.special import expit

        distance = values_of(self.position) - eta
        share = np.maximum(np.diff(expit(distance), prepend=0.0, append=1.0), 1e-12)
        jacobian = _jacobian(self.position)
        information: Float64 = jacobian.T @ self._fisher(distance, share) @ jacobian
        return information

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
        slopes: Float64 = _jacobian(position).T @ (upper[:-1] + lower[1:])
        return slopes

    def gradient(self, position: Float64, slopes: Float64) -> Float64:
        """Gradient of the energy in the coordinates, given the `slopes` of the log likelihood."""
        gradient: Float64 = self.prior_precision * position - slopes
        return gradient

    def move(self, state: Thresholds, slopes: Float64, rng: np.random.Generator) -> dict[str, Float64]:
        """Make one step of BAOAB; return the arrays of the new state by their names on disk."""
        middle = len(slopes) // 2
        gradient = self._anchored(state.position, self.gradient(state.position, slopes))
        kicked = state.momentum - STEP * np.linalg.solve(self._root, gradient)
        momentum = FRICTION * kicked + SPREAD * rng.standard_normal(len(kicked))
        position = re_anchored(state.position, middle, self.anchor)
        position = position + STEP / 2 * np.linalg.solve(self._root.T, kicked + momentum)
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
    log_gaps = np.log(np.maximum(np.diff(values), 1e-6))
    return np.insert(log_gaps, middle, values[middle])


def _jacobian(position: Float64, middle: int | None = None) -> Float64:
    """Derivatives of the thresholds, by row, in the coordinates."""
    size, middle = len(position), len(position) // 2 if middle is None else middle
    rows, columns = np.indices((size, size))
    jacobian = np.where((columns > middle) & (rows >= columns), 1.0, 0.0)
    jacobian -= (columns < middle) & (rows <= columns)
    jacobian *= np.exp(position)
    jacobian[:, middle] = 1.0
    return jacobian


class ThresholdSettings(BaseModel):
    """Settings of thresholds."""

    thresholds: ThresholdsName = setting(
        "Thresholds between levels, of ordinal likelihoods: one set for all, or one per user.", "shared"
    )


#: Quantities of rows with thresholds, if ratings have at least `LEAST_LEVELS` levels.
GAP_QUANTITIES = (
    Quantity(CUTS, ("threshold",), of_rows=True),
    Quantity(CUT_SLOPE, ("threshold",), of_rows=True, drawn=False),
    Quantity(GAPS, ("gap",), of_rows=True, drawn=False, started=True),
    Quantity(GAP_DRIFT, ("gap",), of_rows=True, drawn=False),
)


@dataclass
class GapPrecision(Sampled):
    """Precision lambda of the gaps' logarithms, (R - 2,) float64; None where all rows have the same thresholds."""

    quantities: ClassVar[Mapping[str, Quantity]] = {
        "precision": Quantity(
            "thresholds.precision",
            ("gap",),
            positive=True,
            started=True,
            diagnosed="gap_sd_{number}",
            as_sd=True,
        )
    }

    precision: Float64 | None


def cuts_of(position: Float64, gaps: Float64) -> Float64:
    """Thresholds (..., R - 1) of rows with these coordinates d, (..., R - 2), given the coordinates of those of all."""
    deviation = MAX_DEVIATION * np.tanh(gaps / MAX_DEVIATION)
    return values_of(position + np.insert(deviation, len(position) // 2, 0.0, axis=-1))


def set_cuts(block: ParameterBlock, position: Float64) -> None:
    """Set the thresholds of a block's rows by their gaps, given the coordinates of those of all, (R - 1,)."""
    block[CUTS][:] = cuts_of(position, block[GAPS].astype(np.float64))


def cut_table(block: ParameterBlock) -> Float32:
    """Thresholds of rows with both ends, (n, R + 1), for `dsgmcmc.kernels.ordinal.ordinal_kernel`."""
    cuts = block[CUTS]
    table = np.empty((len(cuts), cuts.shape[1] + 2), np.float32)
    table[:, 0], table[:, 1:-1], table[:, -1] = -END, cuts, END
    return table


def keep_cut_slopes(block: ParameterBlock, sums: Float64, share: float) -> None:
    """Add `share` times the kernel's sums of derivatives, (n, R + 1), to those of a block's thresholds."""
    block[CUT_SLOPE][:] += np.float32(share) * sums[:, 1:-1].astype(np.float32)


def slopes_of(block: ParameterBlock) -> Float64:
    """Derivatives of the log likelihood in the coordinates of a block's rows, (n, R - 1), from those in thresholds."""
    cuts, slopes = (block[name].astype(np.float64) for name in (CUTS, CUT_SLOPE))
    middle, widths = cuts.shape[1] // 2, np.diff(cuts, axis=1)
    of_coordinates = np.empty_like(slopes)
    of_coordinates[:, :middle] = -widths[:, :middle] * np.cumsum(slopes[:, :middle], axis=1)
    of_coordinates[:, middle] = slopes.sum(axis=1)
    of_coordinates[:, middle + 1 :] = widths[:, middle:] * np.cumsum(slopes[:, :middle:-1], axis=1)[:, ::-1]
    return of_coordinates


def gap_information(model: ThresholdModel) -> Float64:
    """Largest Fisher information of a rating on the log gaps, over all predictors, (R - 2,), where thresholds start."""
    start = values_of(model.position)
    information = [np.diag(model.information_at(eta)) for eta in np.linspace(start[0] - 2, start[-1] + 2, 60)]
    return np.delete(np.max(information, axis=0), len(start) // 2)


def gap_squares(block: ParameterBlock) -> Float64:
    """Sums of d^2 over a block's rows, (R - 2,) float64."""
    return np.asarray(np.square(block[GAPS], dtype=np.float64).sum(axis=0))


def move_gaps(
    block: ParameterBlock, slopes: Float64, information: Float64, earlier: Float64, precision: Float64
) -> None:
    """Move d of a block's rows, given `slopes_of` the block after the last sweep, and the old and new lambda."""
    of_log_gaps = np.delete(slopes, slopes.shape[1] // 2, axis=1)
    of_f = 1 - np.square(np.tanh(block[GAPS].astype(np.float64) / MAX_DEVIATION))
    block.arrays[GAP_SLOPE] = (of_log_gaps * of_f).astype(block.dtype)
    block.update(
        MOVE_GAPS,
        Purpose.GAP,
        len(information),
        n=block.n_data,
        half=STEP / 2,
        information=information.astype(block.dtype),
        earlier=earlier.astype(block.dtype),
        precision=precision.astype(block.dtype),
        **MOVE,
    )
    del block.arrays[GAP_SLOPE]
