"""What predictions see: the draws of a run, and rows that the run did not see, with a law given each draw."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy.typing as npt

from dsgmcmc.config.run import ResolvedConfig
from dsgmcmc.posterior.draws import Draw
from dsgmcmc.posterior.names import Vocabulary
from dsgmcmc.types import Float64, Int32


class Drawn(Protocol):
    """Draws of a run, as predictions need them; see `dsgmcmc.posterior.run.Run`."""

    path: Path
    mean: float
    config: ResolvedConfig
    facts: dict[str, Any]

    @property
    def users(self) -> Vocabulary:
        """Original names of the users."""

    @property
    def items(self) -> Vocabulary:
        """Original names of the items."""

    def vocabulary(self, kind: str) -> Vocabulary:
        """Names of the users or of the items."""

    @property
    def levels(self) -> Float64 | None:
        """What training ratings there are, where they are few."""

    @property
    def draws(self) -> list[tuple[int, int]]:
        """Chain and iteration of every saved draw."""

    @property
    def draw_weights(self) -> Float64:
        """Weights of the saved draws, which sum to 1."""

    def draw(self, number: int) -> Draw:
        """Saved draw of that number."""

    def need_draws(self) -> None:
        """Raise InputError if no draws were saved."""


@dataclass(frozen=True)
class Rows:
    """Rows of one side at one draw: known up to a covariance.

    Attributes
    ----------
    mean : (q, D) float64
    covariance : (q, D, D) float64
    noise : (q,) float64
        1 / g of each; where ratings are of levels, 1 / s of its scale.
    cuts : (q, R - 1) float64 or None
        Thresholds of each, where users have their own.
    """

    mean: Float64
    covariance: Float64
    noise: Float64
    cuts: Float64 | None = None


class Newcomers(Protocol):
    """Users or items that the run did not see, with a law given each draw (`dsgmcmc.posterior.foldin`)."""

    kind: str
    vocabulary: Vocabulary

    def rows(self, number: int, which: npt.NDArray[Any]) -> Rows:
        """Rows of the newcomers `which` at the draw of that number."""

    def rated(self, which: int) -> Int32:
        """Rows of the items (or users) that a newcomer rated."""
