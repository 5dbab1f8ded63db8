"""What all Metropolis kernels have: rows of theta that are chains of their own, and a tally of what they cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dsgmcmc.densities.targets.density import D
from dsgmcmc.densities.targets.vector import VectorTarget
from dsgmcmc.samplers.base import C, Sampler
from dsgmcmc.targets.state import Replicated
from dsgmcmc.types import Float64


@dataclass
class Tally(Replicated):
    """What the rows have done since burn-in, and what they know of where they are.

    Attributes
    ----------
    counts : (n, 4) float64
        Moves, evaluations of the energy of a datum, decisions from all data, iterations.
    energies : (n,) float64
        Energy of all data at theta, NaN where it is not known.
    """

    saved_as: ClassVar[dict[str, str]] = {"counts": "metropolis.counts", "energies": "metropolis.energies"}

    counts: Float64 | None = None
    energies: Float64 | None = None

    def take(self, arrays: Mapping[str, Float64]) -> None:
        """Replace the arrays whose names are in `arrays`; other entries are ignored.

        The arrays are changed in place, so they are copied.
        """
        super().take({name: np.array(array) for name, array in arrays.items()})


class Metropolis(Sampler[C, VectorTarget[D]]):
    """A kernel that proposes a move of every row, and accepts it or not."""

    gradients = ("none",)
    scratch = ()
    defaults: ClassVar[dict[str, Any]] = {"iterations": 20_000, "burn_in": 1_000, "evaluate_every": 500}

    def __init__(self, config: C, burn_in: int) -> None:
        super().__init__(config, burn_in)
        self.tally = Tally()
        self.replicated = (self.tally,)

    @classmethod
    def default_thin(cls, config: C, grid: int) -> int:
        """Every tenth iteration: many proposals are rejected, and to look at a state takes all data."""
        return 10

    def metrics(self) -> dict[str, float]:
        """Part of the proposals that were accepted, and evaluations of the energy of a datum a step."""
        if self.tally.counts is None:
            return {}
        moves, evaluations, _, steps = self.tally.counts.sum(axis=0)
        return {"acceptance": float(moves / max(steps, 1.0)), "evaluations": float(evaluations / max(steps, 1.0))}

    def tallied(self, target: VectorTarget[D], first: int) -> tuple[Float64, Float64]:
        """Energies and counts, which begin anew at the end of burn-in."""
        rows = len(target.block.counts)
        if self.tally.counts is None or self.tally.energies is None:
            self.tally.counts, self.tally.energies = np.zeros((rows, 4)), np.full(rows, np.nan)
        if first == self.burn_in:
            self.tally.counts[:] = 0.0
        return self.tally.energies, self.tally.counts
