"""Temperatures of a chain: mean squares of its momenta, which are 1 where it samples its target.

The momenta of underdamped Langevin dynamics are N(0, 1) in the coordinates of a metric, whatever the target. After the
noise of a step of BAOAB they are so at every stable step if the energy is quadratic: half a kick before, the variance
1 - h^2 l / 4 of a curvature l has grown to 1. Steps that are too large for the energy's other terms heat them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import log2, sqrt
from typing import ClassVar, NamedTuple

import numpy as np

from dsgmcmc.kernels.formula import Formula
from dsgmcmc.targets.base import Target
from dsgmcmc.targets.state import Replicated
from dsgmcmc.types import Float64

#: Sweeps between measurements, within which momenta forget what they were; and how many may tell of divergence.
MEASURE_EVERY, MIN_MEASUREMENTS = 20, 10

#: Above this a chain has diverged.
DIVERGED_ABOVE = 1.3

SQUARES = Formula("square = theta * theta", column_sums=("square",))
NAME = "temperature.{}"


class Temperature(NamedTuple):
    """The temperature of a field.

    Attributes
    ----------
    value : float
    error : float
        Its standard error if the momenta are N(0, 1), independent from one measurement to the next.
    """

    value: float
    error: float

    def exceeds(self, bound: float) -> bool:
        """Whether it is above a bound, and not by chance: by four standard errors."""
        return not self.value - 4 * self.error <= bound


@dataclass
class Temperatures(Replicated):
    """Sums of the squares of momenta, over the last half to three quarters of the measurements after burn-in.

    A chain that still moves towards its posterior is hot, too: where tau rises, for example, positions lose the energy
    that momenta gain. So the first measurements are left out after a while: sums are kept of the measurements 1, 2 to
    3, 4 to 7, 8 to 15, ..., and the last two sums count.

    Attributes
    ----------
    sums : dict of str to (2, 2) float64
        For every field, the sum of the squares, and how many there were: of the last such group, and that before it.
    measurements : (1,) float64
    """

    saved_as: ClassVar[dict[str, str]] = {"measurements": "temperature.measurements"}

    sums: dict[str, Float64] = field(default_factory=dict)
    measurements: Float64 = field(default_factory=lambda: np.zeros(1))

    def arrays(self) -> dict[str, Float64]:
        """All arrays, by their names on disk."""
        return super().arrays() | {NAME.format(name): sums for name, sums in self.sums.items()}

    def take(self, arrays: Mapping[str, Float64]) -> None:
        """Replace the arrays whose names are in `arrays`; other entries are ignored."""
        super().take(arrays)
        first = NAME.format("")
        self.sums |= {
            name.removeprefix(first): a for name, a in arrays.items() if a.shape == (2, 2) and name.startswith(first)
        }

    def measure(self, target: Target, momentum: str, turned: bool = False) -> None:
        """Measure momenta as they are now; arguments as of `Target.momenta`. Collective."""
        fields = target.momenta(momentum, turned)
        partials = {block: dict.fromkeys(fields, np.zeros(2)) for block in target.blocks()}
        for rows in target.together():
            of_rows = {name: momenta for name, momenta in fields.items() if momenta.factor == rows.factor}
            theirs = {} if rows.frozen else of_rows
            squares = {
                place: rows.update(SQUARES, theta=place)["square"] for place in {m.field for m in theirs.values()}
            }
            for name, momenta in theirs.items():
                for block, sums in zip(rows.blocks, np.atleast_2d(squares[momenta.field]), strict=True):
                    chosen = sums[momenta.columns]
                    partials[block][name] = np.array([chosen.sum(), chosen.size * len(block.counts)])
        totals = target.sum(partials, dict, dict.fromkeys(fields, (2,)))
        self.measurements = self.measurements + 1
        begins = log2(self.measurements[0]).is_integer()
        for name, sums in totals.items():
            last, before = self.sums.get(name, np.zeros((2, 2)))
            self.sums[name] = np.array([sums, last] if begins else [last + sums, before])

    def by_field(self) -> dict[str, Temperature]:
        """The temperature of every field that has momenta."""
        totals = {name: sums.sum(axis=0) for name, sums in self.sums.items()}
        return {name: Temperature(s / n, sqrt(2 / n)) for name, (s, n) in totals.items() if n}

    def find_divergence(self) -> str:
        """Describe the first field that is so hot that the chain has diverged; empty if there is none."""
        for name, temperature in self.by_field().items() if self.measurements[0] >= MIN_MEASUREMENTS else ():
            if temperature.exceeds(DIVERGED_ABOVE):
                factor, _, what = name.rpartition(".")
                whose = f"the {what} of {factor}" if factor else what
                return f"the momenta of {whose} have the temperature {temperature.value:.3g} and not 1,"
        return ""
