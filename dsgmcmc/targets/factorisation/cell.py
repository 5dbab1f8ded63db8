"""A row block and a column block that meet, and their ratings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dsgmcmc.targets.factorisation.blocks import RatingsBlock
from dsgmcmc.targets.state import ParameterBlock

if TYPE_CHECKING:
    from dsgmcmc.targets.factorisation.target import FactorTarget


@dataclass
class RatingsCell:
    """Where a row block and a column block of a factorisation meet; a `dsgmcmc.targets.base.Cell`.

    On a tour the column block has the arrays that travel, and no others.
    """

    target: FactorTarget
    row: ParameterBlock
    column: ParameterBlock

    @property
    def ratings(self) -> RatingsBlock:
        """Their ratings."""
        return self.target.ratings.train[self.row.index, self.column.index]

    @property
    def blocks(self) -> tuple[ParameterBlock, ...]:
        """See `Cell.blocks`."""
        return tuple(block for block in (self.row, self.column) if not block.frozen)

    def gradient(self, position: str, out: str, prior: bool = True, errors: bool = True) -> None:
        """See `Cell.gradient`; of one part, scaled by 1 / p_t [Simsekli 2016, eq. 3]."""
        target = self.target
        for block in (self.row, self.column):
            block.begin_gradient(position, out, prior)
        scale = target.noise_precision / target.part_probability
        # a sweep's iterations sum to an estimate for all ratings
        share = 1.0 / (target.part_probability * target.grid) if errors else 0.0
        self.add_gradient(position, out, scale, share)

    def add_gradient(self, position: str, out: str, scale: float, share: float) -> None:
        """Add the gradient of the likelihood's energy, times `scale`, to `out` of both blocks.

        Parameters
        ----------
        position, out : str
            Where the gradient is taken, and what it is added to.
        scale : float
            tau / p_t.
        share : float
            What the squared errors count for; 0 if they do not.
        """
        target = self.target
        begin = target.timers.enter()
        error = target.likelihood.add_gradient(self, position, out, scale, share)
        target.squared_error[self.row.index - target.ring.blocks.start, 0] += error * share
        target.timers.leave("gradient", begin)
