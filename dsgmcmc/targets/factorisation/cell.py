"""A row block and a column block that meet, and their ratings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from dsgmcmc.targets.factorisation.blocks import RatingsBlock
from dsgmcmc.targets.state import ParameterBlock

if TYPE_CHECKING:
    from dsgmcmc.targets.factorisation.target import FactorTarget


class RatingsCell(NamedTuple):
    """Where a row block and a column block meet. On a tour the column block has the arrays that travel, and no others.

    Attributes
    ----------
    row, column : ParameterBlock
    ratings : RatingsBlock
    """

    row: ParameterBlock
    column: ParameterBlock
    ratings: RatingsBlock


@dataclass
class FactorCell:
    """A cell as a sampler sees it; a `dsgmcmc.targets.base.Cell`."""

    target: FactorTarget
    cell: RatingsCell

    @property
    def blocks(self) -> tuple[ParameterBlock, ...]:
        """See `Cell.blocks`."""
        return tuple(block for block in (self.cell.row, self.cell.column) if not block.frozen)

    def gradient(self, position: str, out: str, prior: bool = True, errors: bool = True) -> None:
        """See `Cell.gradient`; of one part, scaled by 1 / p_t [Simsekli 2016, eq. 3]."""
        target, probability = self.target, self.target.circulation.part_probability
        for block in (self.cell.row, self.cell.column):
            block.begin_gradient(position, out, prior)
        # a sweep's iterations sum to an estimate for all ratings
        share = 1.0 / (probability * target.grid) if errors else 0.0
        target.add_gradient(self.cell, position, out, target.noise_precision / probability, share)
