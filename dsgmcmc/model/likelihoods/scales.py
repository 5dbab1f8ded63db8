r"""Scales of rows: log s_i = f(u_i), u_i ~ N(0, 1 / lambda), lambda ~ Gamma(1, rate 0.02) for each
factor.

f(u) = b tanh(u / b) bounds |log s| by b, which depends on the likelihood. Near 0, f(u) is nearly u,
so that lambda is the precision of log s. Without a bound, only the prior would limit s. With
ordered levels, a user's s could go to 0 and the gaps between thresholds to infinity, with their
product fixed. In this limit, probabilities would not depend on the predictor, and a step out of it
would have no bound.

If ratings are levels, the ratings of a user with a small s depend little on the item, and s^2 plays
the role that g has in Gaussian noise. lambda is drawn from Gamma(1 + n / 2, 0.02 + sum u^2 / 2).
The u are moved once a sweep by BAOAB, as the thresholds are (`dsgmcmc.model.likelihoods.ordinal`),
row by row in the metric a n_i + lambda: n_i is the number of the row's ratings, a the Fisher
information of a rating on log s. A kick is at most three standard deviations of the momentum, in
either direction.

Fields of a block: ``weight`` is s, ``drift`` the momentum, and ``slope`` accumulates the derivative
of the log likelihood with respect to log s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

import numpy as np

from dsgmcmc.kernels.formula import Formula
from dsgmcmc.model.circulation import Circulation
from dsgmcmc.model.conjugate import GammaPrior
from dsgmcmc.model.likelihoods.base import Law
from dsgmcmc.model.quantity import WEIGHT, Quantity, Sampled, hyperparameter
from dsgmcmc.targets.state import ParameterBlock
from dsgmcmc.types import Factor, Float32, Float64, Purpose

EPS, CURVATURE = 0.35, 2.0  # eps and l of `dsgmcmc.samplers.baoab`
FRICTION = 0.9  # c of `dsgmcmc.samplers.baoab`
STEP, SPREAD = (
    sqrt(2 * EPS / CURVATURE),
    sqrt(1 - FRICTION**2),
)  # h, and the sd of new noise in a momentum
#: Constants of the formulas that move parameters of rows; `most` is the largest kick, in sds of the
#: momentum.
MOVE = {"most": 3.0, "damp": FRICTION, "spread": SPREAD}

DRIFT = "drift"
SCALE_QUANTITIES = (
    WEIGHT,
    Quantity("slope", of_rows=True, drawn=False),
    Quantity(DRIFT, of_rows=True, drawn=False),
)
SCALE_PRIOR = GammaPrior(1.0, 0.02)  # prior of lambda
START_PRECISION = 10.0  # precision of u before it is first drawn

#: y = f(u) / b and x = u; y is bounded so that float32 distinguishes it from 1.
_U = """
y = minimum(maximum(log(weight) / bound, -0.9997), 0.9997)
x = 0.5 * bound * log((1.0 + y) / (1.0 - y))
"""
MOVE_SCALES = Formula(
    _U
    + """
step = h / sqrt(information * n + precision)
kick = step * (precision * x - slope * (1.0 - y * y))
kicked = drift - minimum(maximum(kick, -most), most)
drift = damp * kicked + spread * z
moved = (x + 0.5 * step * (kicked + drift)) / bound
small = exp(-2.0 * minimum(maximum(moved, -4.5), 4.5))
weight = exp(bound * (1.0 - small) / (1.0 + small))
""",
    rows=("n",),
)
SQUARES = Formula(_U + "square = x * x", sums=("square",))


@dataclass
class ScalePrecision(Sampled):
    """Precision lambda of u, (1,) float64, for every factor whose rows have scales."""

    quantities: ClassVar[Mapping[str, Quantity]] = {
        "precision": hyperparameter(
            "{}.scales", "precision of the {kind}s' log scales", "{kind}_scales", dims=("one",)
        )
    }

    precision: dict[Factor, Float64]


def log_scale(u: Float64, bound: float) -> Float64:
    """f(u), elementwise."""
    return np.asarray(bound * np.tanh(u / bound), np.float64)


class ScaledRows(Law):
    """A likelihood in which the rows of factors may have scales."""

    noise_quantities = SCALE_QUANTITIES
    swept_fields: ClassVar[tuple[str, ...]] = ("slope",)
    scales: ScalePrecision

    def momenta_of(self, factor: Factor) -> dict[str, str]:
        """Fields of a factor's rows that contain N(0, 1) momenta, by the name of the parameters
        that they move.
        """
        return {"scales": DRIFT} if factor in self.factors else {}

    def start(self, blocks: Iterable[ParameterBlock]) -> None:
        """Set the part's fields in blocks and its shared parameters to their initial values.

        Here: all scales become 1, momenta 0.
        """
        self.scales = ScalePrecision(
            {factor: np.full(1, START_PRECISION) for factor in self.factors}
        )
        super().start(blocks)

    def keep_slopes(
        self, blocks: Iterable[ParameterBlock], slopes: Iterable[Float32], share: float
    ) -> None:
        """Add `share` times the derivatives with respect to log s, (n,) per block, to field
        ``slope`` of the blocks.
        """
        for block, slope in zip(blocks, slopes, strict=True):
            block["slope"][:, 0] += np.float32(share) * slope

    def square_sums(self, circulation: Circulation) -> dict[str, Float64]:
        """Sums of u^2 over the rows of the blocks that have scales, (local blocks, 1), by the
        precision's name.
        """
        sums = {}
        for rows in circulation.rows_by_factor():
            if rows.factor in self.factors:
                square = rows.update(SQUARES, weight="weight", bound=self.scale_bound)["square"]
                sums[f"{rows.factor.name}.scales"] = square[:, None]
        return sums

    def move_scales(self, circulation: Circulation, information: float) -> None:
        """Move the scales of all rows that have scales, given the slopes of the last sweep.

        Parameters
        ----------
        circulation : Circulation
        information : float
            Fisher information of a rating on log s.
        """
        for rows in circulation.rows_by_factor():
            if rows.factor in self.factors:
                given = {
                    "n": rows.n_data,
                    "h": STEP,
                    "bound": self.scale_bound,
                    "information": information,
                }
                precision = float(self.scales.precision[rows.factor][0])
                rows.update(MOVE_SCALES, Purpose.NOISE_SCALE, **given, precision=precision, **MOVE)
