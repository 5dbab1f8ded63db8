r"""Thresholds of each row of a factor: deviations of the gaps from those that rows share.

Row i has the coordinates phi + f(d_i), with phi as in
`dsgmcmc.model.likelihoods.ordinal.thresholds`: gaps between neighbours are exp(f(d_ik)) times the
shared gaps. f(d) = 2 tanh(d / 2) keeps this ratio between exp(-2) and exp(2), as scales are
bounded. The middle threshold is shared, because the row's bias already shifts all thresholds.

    d_ik ~ N(0, 1 / lambda_k)      lambda_k ~ Gamma(1, rate 0.1), for each gap k

lambda_k is drawn from Gamma(1 + n / 2, 0.1 + sum_i d_ik^2 / 2). The d are moved once a sweep by
BAOAB in the diagonal metric a_k n_i + lambda_k, where a_k is the largest Fisher information of a
rating on log gap k at the initial thresholds, over all predictors.

Rows may lack levels (`dsgmcmc.model.likelihoods.ordinal.own_levels`). The shared threshold is then
the nearest to the middle that the row has.

Fields of a block: ``cuts`` holds the thresholds, which are saved with draws; ``cut_slope``
accumulates the derivatives of the log likelihood with respect to them; ``gaps`` is d, and
``gap_drift`` its momentum. Blocks of the other factor have these fields, too, with value 0.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

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
from dsgmcmc.types import Array, Factor, Float32, Float64, Int64, Purpose

CUTS = "cuts"
CUT_SLOPE = "cut_slope"
GAPS = "gaps"
GAP_DRIFT = "gap_drift"
GAP_SLOPE = "gap_slope"  # array of `move_gaps`, kept so that no table of addresses is built again

#: Ending of the names of sums of squared scales.
WEIGHT_SUMS = ".weights"

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


def anchored(cuts: Float64, position: Float64, anchors: Int64) -> Float64:
    """Thresholds of rows (n, R - 1), moved so that those of index `anchors` are the shared ones."""
    row = np.arange(len(cuts))
    moves = values_of(position)[anchors] - cuts[row, anchors]
    return cuts + moves[:, np.newaxis]


def cuts_of(position: Float64, gaps: Float64) -> Float64:
    """Thresholds (..., R - 1) of rows, given the shared coordinates and deviations (..., R - 2)."""
    middle = position.shape[-1] // 2
    deviation = MAX_DEVIATION * np.tanh(gaps / MAX_DEVIATION)
    none = np.zeros((*gaps.shape[:-1], 1))  # of the middle threshold
    deviations = [deviation[..., :middle], none, deviation[..., middle:]]
    return values_of(position + np.concatenate(deviations, axis=-1))


@dataclass(frozen=True, kw_only=True)
class GapPrior(OwnPrior):
    """Prior of the noise scales and the gaps of rows, given a draw.

    Attributes
    ----------
    gaps : (R - 2,) or (rows, R - 2) float64
        Prior sds of d.
    position : (R - 1,) or (rows, R - 1) float64
        Coordinates phi of the shared thresholds.
    """

    gaps: Float64
    position: Float64

    @property
    @override
    def width(self) -> int:
        return super().width + int(self.gaps.shape[-1])

    @override
    def at(self, z: Float64) -> OwnParameters:
        n = self.scale.shape[-1]
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


def weight_sums(sides: Iterable[Rows], factors: Container[Factor]) -> dict[str, Float64]:
    """Sums of n s^2 and of n over the rows of a block, (local blocks, 2), by factor with scales."""
    sums = {}
    for rows in sides:
        if rows.factor not in factors:
            continue
        of_blocks = []
        for block in rows.blocks:
            n = block.counts.astype(np.float64)
            square = np.square(block["weight"][:, 0], dtype=np.float64)
            of_blocks.append([(n * square).sum(), n.sum()])
        sums[rows.factor.name + WEIGHT_SUMS] = np.array(of_blocks)
    return sums


def common_scale(sums: Mapping[str, Float64]) -> float:
    """Root mean square of the ratings' scales, but at least 1, given all sums of `weight_sums`."""
    squares = [sums[name][0] / sums[name][1] for name in sums if name.endswith(WEIGHT_SUMS)]
    return max(1.0, float(np.sqrt(np.prod(squares))))


def scaled_numbers(rows: Rows, factors: Container[Factor]) -> Array:
    """Numbers of ratings of rows, (n,), times the squares of scales above 1.

    The information on a gap grows with the square of the scale.
    """
    if rows.factor not in factors:
        return rows.n_data
    scale = rows.joined("weight", np.float64)[:, 0]
    return (rows.n_data * np.maximum(np.square(scale), 1.0)).astype(rows.dtype)


class RowSlopes(NamedTuple):
    """Derivatives of the log likelihood, (n, R - 1) each: by a row's own and by shared coordinates.

    They are equal in rows whose middle threshold is shared.
    """

    own: Float64
    shared: Float64


def slopes_of(
    rows: Rows, position: Float64 | None = None, levels: OwnLevels | None = None
) -> RowSlopes:
    """Derivatives of the log likelihood with respect to the rows' coordinates.

    Rows that lack levels need these, and the `position` of the shared thresholds.
    """
    cuts = rows.joined(CUTS, np.float64)
    slopes = rows.joined(CUT_SLOPE, np.float64)
    if levels is None:
        own = _by_coordinate(slopes, np.diff(cuts, axis=1))
        return RowSlopes(own, own)
    assert position is not None
    cuts = cuts_of(position, rows.joined(GAPS, np.float64))
    slopes = levels.slopes(rows, slopes)
    row = np.arange(len(slopes))
    anchors = levels.anchors(rows)
    of_anchor = np.zeros_like(slopes)
    of_anchor[row, anchors] = slopes.sum(axis=1)
    own = _by_coordinate(slopes - of_anchor, np.diff(cuts, axis=1))
    widths = np.broadcast_to(np.diff(values_of(position)), own[:, 1:].shape)
    shared = own + _by_coordinate(of_anchor, widths)
    is_middle = (anchors == slopes.shape[1] // 2)[:, np.newaxis]
    return RowSlopes(np.where(is_middle, shared, own), shared)


def _by_coordinate(slopes: Float64, widths: Float64) -> Float64:
    """Derivatives by coordinates, given those by thresholds (n, R - 1) and the gaps (n, R - 2)."""
    middle = slopes.shape[1] // 2
    below = np.cumsum(slopes[:, :middle], axis=1)
    above = np.cumsum(slopes[:, :middle:-1], axis=1)[:, ::-1]
    by_coordinate = np.empty_like(slopes)
    by_coordinate[:, :middle] = -widths[:, :middle] * below
    by_coordinate[:, middle] = slopes.sum(axis=1)
    by_coordinate[:, middle + 1 :] = widths[:, middle:] * above
    return by_coordinate


def move_gaps(
    rows: Rows,
    slopes: Float64,
    *,
    n: Array,
    information: Float64,
    earlier: Float64,
    precision: Float64,
) -> None:
    """Move d of all rows, given `slopes_of` the rows after the last sweep.

    Parameters
    ----------
    rows : Rows
    slopes : (n, R - 1) float64
    n : (n,) float
        Numbers of ratings of the rows.
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
        n=n,
        half=STEP / 2,
        information=information.astype(rows.dtype),
        earlier=earlier.astype(rows.dtype),
        precision=precision.astype(rows.dtype),
        **MOVE,
    )
