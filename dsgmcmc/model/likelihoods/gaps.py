r"""Thresholds of every user: how their gaps differ from those of all.

User i has the coordinates phi + f(d_i) (`dsgmcmc.model.likelihoods.thresholds`): gaps between neighbours are
exp(f(d_ir)) times those of all, and f(d) = 2 tanh(d / 2) keeps them within e^2 of these, as scales are
(`dsgmcmc.model.likelihoods.scales`). The middle threshold is that of all, because a shift is what the user's bias is
for. So they stay in order, and are shrunk:

    d_ir ~ N(0, 1 / lambda_r)      lambda_r ~ Gamma(1, rate 0.1), for each gap r

lambda_r is drawn from Gamma(1 + n / 2, 0.1 + sum_i d_ir^2 / 2). The d are moved once a sweep by BAOAB, as thresholds
and scales are, from the same gradient, row by row in the diagonal metric a_r n_i + lambda: n_i is the number of the
row's ratings, a_r the largest Fisher information of one on log gap r, whatever its predictor, where thresholds start:
users differ in the levels that they use. The half of a kick that ends a step is taken with the lambda of before its
draw, the half that begins the next one with the new lambda: so the momentum is independent of d when lambda is drawn.

In a block ``cuts`` are the thresholds, which belong to a draw, ``cut_slope`` gathers the derivatives of the log
likelihood in them, ``gaps`` is d, and ``gap_drift`` its momentum. Blocks of the other factor have these fields, too,
and they stay 0.
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
from dsgmcmc.model.likelihoods.scales import MOST_KICK
from dsgmcmc.model.likelihoods.thresholds import CURVATURE, EPS, FRICTION, ThresholdModel, values_of
from dsgmcmc.model.quantity import Quantity, Sampled
from dsgmcmc.settings import setting
from dsgmcmc.targets.state import ParameterBlock
from dsgmcmc.types import Float32, Float64, Purpose, ThresholdsName

CUTS, CUT_SLOPE, GAPS, GAP_DRIFT = "cuts", "cut_slope", "gaps", "gap_drift"
GAP_SLOPE = "gap_slope"  # while they are moved
PRIOR = GammaPrior(1.0, 0.1)  # of lambda
START_PRECISION = 10.0  # precision of d before it is first drawn
MAX_DEVIATION = 2.0  # of |f(d)|
#: Fewer levels have no gap between thresholds.
LEAST_LEVELS = 3

MOVE = Formula(
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


class ThresholdSettings(BaseModel):
    """Settings of thresholds."""

    thresholds: ThresholdsName = setting(
        "Thresholds between levels, of ordinal likelihoods: one set for all, or one per user.", "shared"
    )


#: What rows with thresholds of their own have, where ratings have at least `LEAST_LEVELS` levels.
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
    """What `dsgmcmc.kernels.ordinal.ordinal_kernel` takes of the thresholds of rows: (n, R + 1) with the ends."""
    cuts = block[CUTS]
    table = np.empty((len(cuts), cuts.shape[1] + 2), np.float32)
    table[:, 0], table[:, 1:-1], table[:, -1] = -END, cuts, END
    return table


def keep_cut_slopes(block: ParameterBlock, sums: Float64, share: float) -> None:
    """Add `share` times what the kernel has found of a block's thresholds, (n, R + 1)."""
    block[CUT_SLOPE][:] += np.float32(share) * sums[:, 1:-1].astype(np.float32)


def slopes_of(block: ParameterBlock) -> Float64:
    """Derivatives of the log likelihood in the coordinates of a block's rows, (n, R - 1), from those in thresholds."""
    cuts, slopes = (block[name].astype(np.float64) for name in (CUTS, CUT_SLOPE))
    middle, widths = cuts.shape[1] // 2, np.diff(cuts, axis=1)
    found = np.empty_like(slopes)
    found[:, :middle] = -widths[:, :middle] * np.cumsum(slopes[:, :middle], axis=1)
    found[:, middle] = slopes.sum(axis=1)
    found[:, middle + 1 :] = widths[:, middle:] * np.cumsum(slopes[:, :middle:-1], axis=1)[:, ::-1]
    return found


def gap_information(model: ThresholdModel) -> Float64:
    """Largest Fisher information of a rating on the log gaps, over all predictors, (R - 2,), where thresholds start."""
    start = values_of(model.position)
    found = [np.diag(model.information_at(eta)) for eta in np.linspace(start[0] - 2, start[-1] + 2, 60)]
    return np.delete(np.max(found, axis=0), len(start) // 2)


def gap_squares(block: ParameterBlock) -> Float64:
    """Sums of d^2 over a block's rows, (R - 2,) float64."""
    return np.asarray(np.square(block[GAPS], dtype=np.float64).sum(axis=0))


def move_gaps(
    block: ParameterBlock, slopes: Float64, information: Float64, earlier: Float64, precision: Float64
) -> None:
    """Move d of a block's rows, given what `slopes_of` it were after the last sweep, and lambda before and now."""
    of_log_gaps = np.delete(slopes, slopes.shape[1] // 2, axis=1)
    of_f = 1 - np.square(np.tanh(block[GAPS].astype(np.float64) / MAX_DEVIATION))
    block.arrays[GAP_SLOPE] = (of_log_gaps * of_f).astype(block.dtype)
    block.update(
        MOVE,
        Purpose.GAP,
        len(information),
        n=block.n_data,
        half=sqrt(2 * EPS / CURVATURE) / 2,
        most=MOST_KICK,
        information=information.astype(block.dtype),
        earlier=earlier.astype(block.dtype),
        precision=precision.astype(block.dtype),
        damp=FRICTION,
        spread=sqrt(1 - FRICTION**2),
    )
    del block.arrays[GAP_SLOPE]
