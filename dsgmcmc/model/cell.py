"""A pair of a row block and a column block, and their ratings."""

from __future__ import annotations

from typing import NamedTuple

from dsgmcmc.model.blocks import RatingsBlock
from dsgmcmc.targets.state import ParameterBlock


class RatingsCell(NamedTuple):
    """A pair of a row block and a column block. On a tour the column block has only the arrays that are sent.

    Attributes
    ----------
    row, column : ParameterBlock
    ratings : RatingsBlock
    """

    row: ParameterBlock
    column: ParameterBlock
    ratings: RatingsBlock
