r"""Thresholds of each row of a factor: deviations of the gaps from those that rows share.

Row i has the coordinates phi + f(d_i), with phi as in
`dsgmcmc.model.likelihoods.ordinal.thresholds`: gaps between neighbours are exp(f(d_ik)) times the
shared gaps. f(d) = 2 tanh(d / 2) keeps this ratio between exp(-2) and exp(2), as scales are
bounded. The middle threshold is shared, because the row's bias already shifts all thresholds.

    d_ik ~ N(0, 1 / lambda_k)      lambda_k ~ Gamma(1, rate 0.1), for each gap k

lambda_k is drawn from Gamma(1 + n / 2, 0.1 + sum_i d_ik^2 / 2). The d are moved once a sweep by
BAOAB in the diagonal metric a_k n_i + lambda_k, where a_k is the largest Fisher information of a
rating on log gap k at the initial thresholds, over all predictors.

Rows may lack levels (`dsgmcmc.model.likelihoods.ordinal.own_levels`).

Fields of a block: ``cuts`` holds the thresholds, which are saved with draws; ``cut_slope``
accumulates the derivatives of the log likelihood with respect to them; ``gaps`` is d, and
``gap_drift`` its momentum. Blocks of the other factor have these fields, too, with value 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from typing_extensions import override

from dsgmcmc.kernels.formulas.formula import Formula
from dsgmcmc.kernels.ordinal import END
from dsgmcmc.model.conjugate import GammaPrior
from dsgmcmc.model.likelihoods.ordinal.own_levels import OwnLevels
from dsgmcmc.model.likelihoods.ordinal.thresholds import values_of
from dsgmcmc.model.likelihoods.own_prior import OwnParameters, OwnPrior
from dsgmcmc.model.likelihoods.row_scales import MOVE, STEP
from dsgmcmc.model.quantity import Quantity, Sampled
from dsgmcmc.targets.state import ParameterBlock, Rows
from dsgmcmc.types import Float32, Float64, Purpose

CUTS = "cuts"
CUT_SLOPE = "cut_slope"
GAPS = "gaps"
GAP_DRIFT = "gap_drift"
GAP_SLOPE = "gap_slope"  # array of `move_gaps`, kept so that no table of addresses is built again

GAP_PRIOR = GammaPrior(1.0, 0.1)  # prior of lambda
GAP_START = 10.0  # precision of d before it is first drawn
MAX_DEVIATION = 2.0  # bound on |f(d)|

#: Quantities of rows with thresholds.
GAP_QUANTITIES = (
    Quantity(CUTS, ("threshold",), of_rows=True),
    Quantity(CUT_SLOPE, ("threshold",), of_rows=True, drawn=False),
    Quantity(GAPS, ("gap",), of_rows=True, drawn=False, started=True),
    Quantity(GAP_DRIFT, ("gap",), of_rows=True, drawn=False),
)

#: The half kick that ends a step uses the old lambda (`earlier`), the half kick that begins the
#: next step the new one (`precision`), so that the momentum is independent of d when lambda is
#: drawn.
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
class GapPrecision(Sampled):
    """Precision lambda of the deviations d of log gaps, (R - 2,) float64.

    None if all rows share the thresholds.
    """

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
    """Thresholds (..., R - 1) of rows, given the shared coordinates and deviations (..., R - 2)."""
    middle = len(position) // 2
    deviation = MAX_DEVIATION * np.tanh(gaps / MAX_DEVIATION)
    none = np.zeros((*gaps.shape[:-1], 1))  # of the middle threshold
    deviations = [deviation[..., :middle], none, deviation[..., middle:]]
    return values_of(position + np.concatenate(deviations, axis=-1))


@dataclass(frozen=True, kw_only=True)
class GapPrior(OwnPrior):
    """Prior of the noise scales and the gaps of rows, given a draw.

    Attributes
    ----------
    gaps : (R - 2,) float64
        Prior sds of d.
    position : (R - 1,) float64
        Coordinates phi of the shared thresholds.
    """

    gaps: Float64
    position: Float64

    @property
    @override
    def width(self) -> int:
        return super().width + len(self.gaps)

    @override
    def at(self, z: Float64) -> OwnParameters:
        n = len(self.scale)
        cuts = cuts_of(self.position, self.gaps * z[:, n:])
        return super().at(z[:, :n])._replace(parameters=cuts)


def cut_table(block: ParameterBlock) -> Float32:
    """Thresholds of rows between -`END` and `END`, (n, R + 1), as kernels need them."""
    cuts = block[CUTS]
    table = np.empty((len(cuts), cuts.shape[1] + 2), np.float32)
    table[:, 0] = -END
    table[:, -1] = END
    table[:, 1:-1] = cuts
    return table


def slopes_of(
    rows: Rows, position: Float64 | None = None, levels: OwnLevels | None = None
) -> Float64:
    """Derivatives of the log likelihood with respect to the rows' coordinates, (n, R - 1).

    Rows that lack levels need these, and the `position` of the shared thresholds.
    """
    cuts = rows.joined(CUTS, np.float64)
    slopes = rows.joined(CUT_SLOPE, np.float64)
    if levels is not None:
        assert position is not None
        cuts = cuts_of(position, rows.joined(GAPS, np.float64))
        slopes = levels.slopes(rows, slopes)
    middle = cuts.shape[1] // 2
    widths = np.diff(cuts, axis=1)
    below = np.cumsum(slopes[:, :middle], axis=1)
    above = np.cumsum(slopes[:, :middle:-1], axis=1)[:, ::-1]
    by_coordinate = np.empty_like(slopes)
    by_coordinate[:, :middle] = -widths[:, :middle] * below
    by_coordinate[:, middle] = slopes.sum(axis=1)
    by_coordinate[:, middle + 1 :] = widths[:, middle:] * above
    return by_coordinate


def move_gaps(
    rows: Rows, slopes: Float64, *, information: Float64, earlier: Float64, precision: Float64
) -> None:
    """Move d of all rows, given `slopes_of` the rows after the last sweep.

    Parameters
    ----------
    rows : Rows
    slopes : (n, R - 1) float64
    information : (R - 2,) float64
        Largest Fisher information of a rating on each log gap.
    earlier, precision : (R - 2,) float64
        lambda before and after its last draw.
    """
    log_gap_slopes = np.delete(slopes, slopes.shape[1] // 2, axis=1)
    slope_of_f = 1 - np.square(np.tanh(rows.joined(GAPS, np.float64) / MAX_DEVIATION))
    gap_slopes = (log_gap_slopes * slope_of_f).astype(rows.dtype)
    for block, block_slopes in rows.by_block(gap_slopes):
        block.arrays.setdefault(GAP_SLOPE, np.empty_like(block_slopes))[:] = block_slopes
    rows.update(
        MOVE_GAPS,
        Purpose.GAP,
        slopes.shape[1] - 1,
        n=rows.n_data,
        half=STEP / 2,
        information=information.astype(rows.dtype),
        earlier=earlier.astype(rows.dtype),
        precision=precision.astype(rows.dtype),
        **MOVE,
    )
