"""A row block and a column block that meet, and their ratings."""

from __future__ import annotations

from typing import NamedTuple

from dsgmcmc.model.blocks import RatingsBlock
from dsgmcmc.targets.state import ParameterBlock


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
