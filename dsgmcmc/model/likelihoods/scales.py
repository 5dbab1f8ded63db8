r"""Scales of rows: log s_i = f(u_i), u_i ~ N(0, 1 / lambda), lambda ~ Gamma(1, rate 0.02) for each side.

f(u) = b tanh(u / b) bounds log s by b, which the law says. Near 0 it is u itself, so that lambda is the precision of
log s. Without a bound nothing but the prior may hold a row: where the s of a user of levels goes to 0 and the gaps
between the thresholds to infinity, their product fixed, probabilities no longer depend on the predictor, and one step
back from there is a step to infinity.

Where ratings are levels a user with a small s uses them without much regard to the item; what g is to Gaussian noise,
s^2 is there. lambda is drawn from Gamma(1 + n / 2, 0.02 + sum u^2 / 2). The u are moved once a sweep by BAOAB, as the
thresholds are (`dsgmcmc.model.likelihoods.thresholds`), row by row in the metric a n_i + lambda: n_i is the number of
the row's ratings, a the Fisher information of one on log s. A kick is bounded by `MOST_KICK` times the standard
deviation of the momentum.

In a block ``weight`` is s, ``drift`` the momentum, and ``slope`` gathers the derivative of the log likelihood.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

import numpy as np

from dsgmcmc.kernels.formula import Formula
from dsgmcmc.model.likelihoods.thresholds import CURVATURE, EPS, FRICTION
from dsgmcmc.model.quantity import WEIGHT, Quantity, Sampled
from dsgmcmc.targets.state import ParameterBlock
from dsgmcmc.types import Factor, Float64, Purpose

DRIFT = "drift"
SCALE_QUANTITIES = (
    WEIGHT,
    Quantity("slope", of_rows=True, drawn=False),
    Quantity(DRIFT, of_rows=True, drawn=False),
)
RATE = 0.02
START = 10.0  # precision of u before it is first drawn
MOST_KICK = 3.0

#: y = f(u) / b and x = u; float32 tells y from 1 up to there.
_U = """
y = minimum(maximum(log(weight) / bound, -0.9997), 0.9997)
x = 0.5 * bound * log((1.0 + y) / (1.0 - y))
"""
MOVE = Formula(
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
        "precision": Quantity(
            "{}.scales",
            ("one",),
            positive=True,
            started=True,
            diagnosed="{kind}_scales",
            label="precision of the log scales of the {kind}s",
        )
    }

    precision: dict[Factor, Float64]


def start_scales(factors: tuple[Factor, ...]) -> ScalePrecision:
    """Precisions before they are first drawn."""
    return ScalePrecision({factor: np.full(1, START) for factor in factors})


def log_scale(u: Float64, bound: float) -> Float64:
    """f(u), elementwise."""
    return np.asarray(bound * np.tanh(u / bound), np.float64)


def square_sum(block: ParameterBlock, bound: float) -> Float64:
    """Sum of u^2 over a block's rows, (1,) float64."""
    return np.array([block.update(SQUARES, weight="weight", bound=bound)["square"]])


def draw_precision(square: Float64, n: int, rng: np.random.Generator) -> Float64:
    """Draw lambda given the sum of u^2 over n rows."""
    return rng.gamma(1.0 + n / 2, 1 / (RATE + square / 2))


def move_scales(blocks: Iterable[ParameterBlock], information: float, state: ScalePrecision, bound: float) -> None:
    """Move the scales of all rows that have some, given the slopes of the last sweep, of the log likelihood in log s.

    Parameters
    ----------
    blocks : iterable of ParameterBlock
    information : float
        Fisher information of a rating on log s.
    state : ScalePrecision
    bound : float
        b, of |log s|.
    """
    for block in blocks:
        if block.factor in state.precision:
            block.update(
                MOVE,
                Purpose.NOISE_SCALE,
                n=block.n_data,
                h=sqrt(2 * EPS / CURVATURE),
                most=MOST_KICK,
                bound=bound,
                information=information,
                precision=float(state.precision[block.factor][0]),
                damp=FRICTION,
                spread=sqrt(1 - FRICTION**2),
            )
