r"""Row scales: a precision of its own for every row, so that rows are Student-t around their prior means.

    theta_i ~ N(M_i, (s_i Lambda)^-1),    s_i ~ Gamma(nu / 2, nu / 2),    u_i = theta_i - M_i

M_i is m and what the row's mean has besides. Rows far from it, such as users of a taste of their own, are then held to
it less than the others are. With Q_i = u_i^T Lambda u_i over all D columns, that of the bias included,

    nu  | rest, with s integrated out: on a grid, uniform in log nu, where row i has the log density
          lgamma((nu + D) / 2) - lgamma(nu / 2) + (nu / 2) log(nu / 2) - ((nu + D) / 2) log((nu + Q_i) / 2)
    s_i | nu, rest ~ Gamma((nu + D) / 2, rate (nu + Q_i) / 2)

both exact, from one Q of the state as it is, s in every sweep and nu in every fifth. Everything else is drawn given s:
Lambda and m with weights s_i, and the other parts of the rows' means.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dsgmcmc.kernels.formula import Formula
from dsgmcmc.kernels.gamma import gammas
from dsgmcmc.model.noise import NU_START, draw_nu, student_log_density
from dsgmcmc.model.priors.base import SCALE, Conditions
from dsgmcmc.model.quantity import SHIFT, Quantity, Sampled
from dsgmcmc.targets.state import ParameterBlock
from dsgmcmc.types import Factor, Float64, Purpose

#: Sweeps between draws of nu, which cost about as much as those of the scales, and hardly depend on each other.
EVERY = 5

#: s_i Q_i, by whether the rows' means have more than m.
SQUARES = {
    False: Formula("square = grad_prior * (theta - mean)", columns=("mean",), row_sums=("square",)),
    True: Formula("square = grad_prior * (theta - mean - shift)", columns=("mean",), row_sums=("square",)),
}


@dataclass
class RowFreedom(Sampled):
    """Degrees of freedom nu, (1,) float64, for every factor whose rows have scales."""

    quantities: ClassVar[Mapping[str, Quantity]] = {
        "nu": Quantity("{}.row_nu", ("one",), positive=True, started=True, diagnosed="{kind}_row_nu")
    }

    nu: dict[Factor, Float64]


class RowScales:
    """Scales of the rows of the users, the items, or both.

    Field ``row_scale`` of a block has s; of a factor that has none it stays 1.

    Parameters
    ----------
    factors : tuple of Factor
        Whose rows have scales; none if nobody's.
    """

    def __init__(self, factors: tuple[Factor, ...] = ()) -> None:
        self.factors = factors
        self.quantities = (SCALE, *RowFreedom.about(factors)) if factors else ()
        self.parameters = RowFreedom({})
        self.start(())

    def start(self, blocks: Iterable[ParameterBlock]) -> None:
        """Set scales and nu as they are before the first draw."""
        for block in blocks if self.factors else ():
            block[SCALE.name].fill(1.0)
        self.parameters.nu = {factor: np.full(1, NU_START) for factor in self.factors}

    def draw(self, given: Conditions, turn: int) -> None:
        """Draw all scales, and before them nu, if it is its turn. Collective."""
        squares = {
            block: _squares(block, given) for block in given.circulation.blocks() if block.factor in self.factors
        }
        if self.factors and turn % EVERY == 1:  # among them the first, so that it is rehearsed
            self._draw_nu(squares, given)
        for block, square in squares.items():
            nu = float(self.parameters.nu[block.factor][0])
            shape = np.full(len(square), (nu + block.dimension) / 2)
            key = given.stream.key(Purpose.ROW_SCALE, block.factor, block.start)
            block.row(SCALE.name)[:] = gammas(shape, key) / ((nu + square) / 2)

    def _draw_nu(self, squares: dict[ParameterBlock, Float64], given: Conditions) -> None:
        """Draw nu of all factors. Collective."""
        partials = [
            [{b.factor.name: student_log_density(squares[b], b.dimension) for b in pair if b.factor in self.factors}]
            for pair in given.circulation.pairs()
        ]

        def draw(sums: dict[str, Float64]) -> dict[str, Float64]:
            rng = given.stream.generator(Purpose.NU, part=1)
            return {name: np.array([draw_nu(density, rng)]) for name, density in sums.items()}

        drawn = given.circulation.ring.sum(partials, draw, {factor.name: (1,) for factor in self.factors})
        self.parameters.nu = {factor: drawn[factor.name] for factor in self.factors}


def _squares(block: ParameterBlock, given: Conditions) -> Float64:
    """Q of a block's rows, (n,) float64."""
    formula, mean = SQUARES[SHIFT.name in block.arrays], given.prior(block).mean
    found: Float64 = block.update(formula, theta=given.position, mean=mean)["square"] / block.row(SCALE.name)
    return found
