r"""Scales of rows for ratings of levels: log s_i ~ N(0, 1 / lambda), lambda ~ Gamma(1, rate 0.02) for each side.

A user with a small s uses the levels without much regard to the item; what g is to Gaussian noise, s^2 is here. lambda
is drawn from Gamma(1 + n / 2, 0.02 + sum log^2 s / 2). The scales are moved once a sweep by BAOAB, as the thresholds
are (`dsgmcmc.model.likelihoods.thresholds`), row by row in the metric a n_i + lambda: n_i is the number
of the row's ratings, a the Fisher information of one on log s, about 0.8 (logistic) and 1 (normal).

In a block ``weight`` is s, ``drift`` the momentum, and ``slope`` gathers the derivative of the log likelihood.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

import numpy as np

from dsgmcmc.kernels.formula import Formula
from dsgmcmc.kernels.ordinal import Link
from dsgmcmc.model.likelihoods.thresholds import CURVATURE, EPS, FRICTION
from dsgmcmc.model.quantity import WEIGHT, Quantity, Sampled
from dsgmcmc.targets.state import ParameterBlock
from dsgmcmc.types import Factor, Float64, Purpose

SCALE_QUANTITIES = (
    WEIGHT,
    Quantity("slope", of_rows=True, drawn=False),
    Quantity("drift", of_rows=True, drawn=False),
)
RATE = 0.02
START = 10.0  # precision of log s before it is first drawn
INFORMATION: dict[Link, float] = {"logit": 0.8, "probit": 1.0}

MOVE = Formula(
    """
x = log(weight)
step = h / sqrt(information * n + precision)
kicked = drift - step * (precision * x - slope)
drift = damp * kicked + spread * z
moved = x + 0.5 * step * (kicked + drift)
weight = exp(moved)
""",
    rows=("n",),
)
SQUARES = Formula("x = log(weight)\nsquare = x * x", sums=("square",))


@dataclass
class ScalePrecision(Sampled):
    """Precision lambda of log s, (1,) float64, for every factor whose rows have scales."""

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


def square_sum(block: ParameterBlock) -> Float64:
    """Sum of log^2 s over a block's rows, (1,) float64."""
    return np.array([block.update(SQUARES, weight="weight")["square"]])


def draw_precision(square: Float64, n: int, rng: np.random.Generator) -> Float64:
    """Draw lambda given the sum of log^2 s over n rows."""
    return rng.gamma(1.0 + n / 2, 1 / (RATE + square / 2))


def move_scales(blocks: Iterable[ParameterBlock], link: Link, state: ScalePrecision) -> None:
    """Move the scales of all rows, given the slopes of the last sweep."""
    for block in blocks:
        if block.factor in state.precision:
            block.update(
                MOVE,
                Purpose.NOISE_SCALE,
                n=block.n_data,
                h=sqrt(2 * EPS / CURVATURE),
                information=INFORMATION[link],
                precision=float(state.precision[block.factor][0]),
                damp=FRICTION,
                spread=sqrt(1 - FRICTION**2),
            )
