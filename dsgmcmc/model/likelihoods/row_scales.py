r"""Scales of rows: log s_i = f(u_i), u_i ~ N(0, 1 / lambda), lambda ~ Gamma(1, rate 0.02).

Each factor whose rows have scales has one lambda. f(u) = b tanh(u / b) bounds |log s| by b, which
depends on the likelihood; near 0, f(u) is nearly u. Without the bound, a user's s could go
to 0 and the gaps between thresholds to infinity, with their product fixed.

lambda is drawn from Gamma(1 + n / 2, 0.02 + sum u^2 / 2). The u are moved once a sweep by BAOAB, as
the thresholds are (`dsgmcmc.model.likelihoods.ordinal.thresholds`), row by row in the metric a n_i
+ lambda: n_i is the number of the row's ratings, a the Fisher information of a rating on log s. A
kick is at most three standard deviations of the momentum, in either direction. Where rounding
bounds a scale (`dsgmcmc.model.rounding`), u is reflected at the bound, with its momentum.

Fields of a block: ``weight`` is s, ``drift`` the momentum, and ``slope`` accumulates the derivative
of the log likelihood with respect to log s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import atanh, exp, inf, log, sqrt
from typing import ClassVar

import numpy as np
from typing_extensions import override

from dsgmcmc.kernels.formulas.formula import Formula
from dsgmcmc.model.circulation import Circulation
from dsgmcmc.model.conjugate import GammaPrior
from dsgmcmc.model.likelihoods.base import Law
from dsgmcmc.model.likelihoods.own_prior import OwnPrior
from dsgmcmc.model.quantity import WEIGHT, Quantity, Sampled, SavedDraw, hyperparameter
from dsgmcmc.model.rounding import precision_limit
from dsgmcmc.targets.state import ParameterBlock
from dsgmcmc.types import Factor, Float32, Float64, Purpose

# eps, l and c of `dsgmcmc.samplers.baoab`
EPS = 0.35
CURVATURE = 2.0
FRICTION = 0.9
#: Step h, the sd of new noise in a momentum, and the largest kick, in sds of the momentum.
STEP = sqrt(2 * EPS / CURVATURE)
SPREAD = sqrt(1 - FRICTION**2)
LARGEST_KICK = 3.0
#: Constants of the formulas that move parameters of rows.
MOVE = {"most": LARGEST_KICK, "damp": FRICTION, "spread": SPREAD}

DRIFT = "drift"
SCALE_QUANTITIES = (
    WEIGHT,
    Quantity("slope", of_rows=True, drawn=False),
    Quantity(DRIFT, of_rows=True, drawn=False),
)
SCALE_PRIOR = GammaPrior(1.0, 0.02)  # prior of lambda
START_PRECISION = 10.0  # precision of u before it is first drawn

#: Largest |y|, and a u / b that no row has.
LARGEST_Y = 0.9997
BEYOND = 1e6
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
drift = where(moved > top, -drift, drift)
moved = minimum(moved, 2.0 * top - moved)
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
            "{}.scales", "precision of the {entity}s' log scales", "{entity}_scales", dims=("one",)
        )
    }

    precision: dict[Factor, Float64]


def _largest_move(scale: float, bound: float) -> float:
    """Return the u / b of the largest scale; a number beyond all u / b if `bound` is smaller."""
    if scale >= exp(bound):
        return BEYOND
    return atanh(max(log(scale) / bound, -LARGEST_Y))


class ScaledRows(Law):
    """A likelihood in which the rows of factors may have scales."""

    noise_quantities = SCALE_QUANTITIES
    swept_fields: ClassVar[tuple[str, ...]] = ("slope",)
    scales: ScalePrecision

    @classmethod
    @override
    def own_prior(cls, draw: SavedDraw, entity: str, most: float = inf) -> OwnPrior:
        precision = draw.shared.get(f"{entity}.scales")
        if precision is None:
            return OwnPrior()
        sd = np.array([precision.item() ** -0.5])
        return OwnPrior(scale=sd, bound=cls.scale_bound, most=most)

    @override
    def momenta_of(self, factor: Factor) -> dict[str, str]:
        if factor in self.factors:
            return {"scales": DRIFT}
        return {}

    @override
    def start(self, blocks: Iterable[ParameterBlock]) -> None:
        """Set the part's fields in blocks and its shared parameters to their initial values.

        Here: all scales become 1, momenta 0.
        """
        self.scales = ScalePrecision(
            {factor: np.full(1, START_PRECISION) for factor in self.factors}
        )
        super().start(blocks)

    def keep_slopes(self, block: ParameterBlock, slope: Float32, share: float) -> None:
        """Add `share` times the derivatives with respect to log s, (n,), to field ``slope``."""
        block["slope"][:, 0] += np.float32(share) * slope

    def square_sums(self, circulation: Circulation) -> dict[str, Float64]:
        """Sums of u^2 over the rows of a block, (local blocks, 1), by the name of the precision.

        Factors whose rows have no scales have no sum.
        """
        sums = {}
        for rows in circulation.rows_by_factor():
            if rows.factor in self.factors:
                square = rows.update(SQUARES, weight="weight", bound=self.scale_bound)["square"]
                sums[f"{rows.factor.name}.scales"] = square[:, None]
        return sums

    def move_scales(self, circulation: Circulation, information: float, tau: float = 1.0) -> None:
        """Move the scales of all rows that have scales, given the slopes of the last sweep.

        Collective.

        Parameters
        ----------
        circulation : Circulation
        information : float
            Fisher information of a rating on log s.
        tau : float
            Precision of the noise, by which the scales are multiplied.
        """
        for rows in circulation.rows_by_factor():
            if rows.factor not in self.factors:
                continue
            others = tuple(factor for factor in self.factors if factor != rows.factor)
            most = precision_limit(circulation, others) / tau
            rows.update(
                MOVE_SCALES,
                Purpose.NOISE_SCALE,
                n=rows.n_data,
                h=STEP,
                bound=self.scale_bound,
                top=_largest_move(most, self.scale_bound),
                information=information,
                precision=float(self.scales.precision[rows.factor][0]),
                **MOVE,
            )
