"""Saved draws side by side in memory, so that compiled loops run over them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dsgmcmc.model.likelihoods.base import Law
from dsgmcmc.model.quantity import WEIGHT
from dsgmcmc.posterior.draws import Draw
from dsgmcmc.types import Array, Float32, Float64

Shape = tuple[int, ...]


@dataclass(frozen=True)
class DrawBatch:
    """Draws of a run, side by side.

    Attributes
    ----------
    shared : dict of str to (draws, ...) float64 array
        Quantities that all rows share, as in `Draw.shared`.
    rows : dict of entity to dict of str to (draws, n, ...) float32 array
        Quantities of every user and item, as in `Draw.rows`.
    inverse_scale : dict of entity to (draws, n) float32 array
        Reciprocals of the noise scales, as in `Draw.inverse_scale`.
    coupled : bool
        As in `Draw.coupled`.
    """

    shared: Mapping[str, Float64]
    rows: Mapping[str, Mapping[str, Float32]]
    inverse_scale: Mapping[str, Float32]
    coupled: bool = False

    @classmethod
    def allocate(
        cls,
        draws: int,
        shared: Mapping[str, Shape],
        rows: Mapping[str, Mapping[str, Shape]],
        coupled: bool,
    ) -> DrawBatch:
        """Allocate a number of draws, given the shapes of the arrays of one draw."""
        return cls(
            shared={name: np.empty((draws, *shape)) for name, shape in shared.items()},
            rows={
                entity: {
                    name: np.empty((draws, *shape), np.float32) for name, shape in shapes.items()
                }
                for entity, shapes in rows.items()
            },
            inverse_scale={
                entity: np.ones((draws, shapes["theta"][0]), np.float32)
                for entity, shapes in rows.items()
            },
            coupled=coupled,
        )

    @property
    def theta(self) -> dict[str, Float32]:
        """Factors of the users and of the items, (draws, n, D)."""
        return {entity: arrays["theta"] for entity, arrays in self.rows.items()}

    @property
    def tau(self) -> Float64:
        """Precisions of the noise, (draws,)."""
        tau: Float64 = self.shared["tau"].reshape(-1)
        return tau

    def parameters(self, law: type[Law]) -> Float64 | None:
        """Return the parameters of a likelihood at every draw, (draws, m); None if it has none.

        They are kept; call it when all draws have been read.
        """
        if law not in self._parameters:
            self._parameters[law] = self._collect_parameters(law)
        return self._parameters[law]

    @cached_property
    def _parameters(self) -> dict[type[Law], Float64 | None]:
        """Parameters that have been collected, by likelihood."""
        return {}

    def _collect_parameters(self, law: type[Law]) -> Float64 | None:
        """Collect the parameters of a likelihood at every draw, as `parameters` returns them."""
        of_draws = []
        for number in range(len(self.tau)):
            shared = {name: array[number] for name, array in self.shared.items()}
            parameters = law.parameters_of(shared)
            if parameters is None:
                return None
            of_draws.append(parameters)
        return np.array(of_draws)

    def own_parameters(self, law: type[Law], entity: str) -> Float32 | None:
        """Return `Draw.own_parameters` at every draw, (draws, n, m), or None."""
        return self.rows[entity].get(law.row_parameters)

    def at(self, part: slice) -> DrawBatch:
        """Return some of the draws, which share the memory of these."""
        return DrawBatch(
            shared={name: array[part] for name, array in self.shared.items()},
            rows={
                entity: {name: array[part] for name, array in arrays.items()}
                for entity, arrays in self.rows.items()
            },
            inverse_scale={entity: array[part] for entity, array in self.inverse_scale.items()},
            coupled=self.coupled,
        )

    def draw(self, number: int, chain: int, iteration: int) -> Draw:
        """Return one of the draws, which shares the memory of these."""
        return Draw(
            chain=chain,
            iteration=iteration,
            shared={name: array[number, ...] for name, array in self.shared.items()},
            rows={
                entity: {name: array[number] for name, array in arrays.items()}
                for entity, arrays in self.rows.items()
            },
            coupled=self.coupled,
        )

    def set_inverse_scales(self, numbers: list[int]) -> None:
        """Compute the reciprocals of the noise scales of some draws, whose rows have been read."""
        for entity, arrays in self.rows.items():
            if WEIGHT.name in arrays:
                for number in numbers:
                    scale: Array = arrays[WEIGHT.name][number, :, 0]
                    np.reciprocal(scale, out=self.inverse_scale[entity][number])
