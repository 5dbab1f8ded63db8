"""The shared parameters of the states that a sampler advances in turns.

Most samplers have one state; HAMCMC has several (docs/hamcmc.md). For each state, blocks have a
field with its factors, and the quantities with `Quantity.per_state` have values, which are drawn
given these factors. The parts of the model hold the values of one state, the current state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from dsgmcmc.model.parts.base import Part
from dsgmcmc.model.quantity import Quantity, Sampled
from dsgmcmc.targets.state import arrays_of, take_all
from dsgmcmc.types import Float64


class StateParameters:
    """The parameters that all processes share, for every state of a chain.

    In iteration t, the state with number t modulo the number of states moves.

    Parameters
    ----------
    positions : tuple of str
        For each state, the field that holds its factors.
    parts : sequence of Part
        The parts of the model.
    quantities : sequence of Quantity
        The quantities of all parts.
    """

    def __init__(
        self,
        positions: tuple[str, ...],
        parts: Sequence[Part[Any]],
        quantities: Sequence[Quantity],
    ) -> None:
        self.positions = positions
        self._parts = parts
        self._names = {quantity.name for quantity in quantities if quantity.per_state}
        self._current = 0
        #: Values of every state, by name on disk; those of the current state are out of date.
        self._values: list[dict[str, Float64]] = []
        self.start()

    def start(self) -> None:
        """Give all states the parts' values."""
        values = self._of_current()
        self._values = [
            {name: array.copy() for name, array in values.items()} for _ in self.positions
        ]

    @property
    def replicated(self) -> list[Sampled]:
        """The parameters of the parts: those of the current state."""
        return [parameters for part in self._parts for parameters in part.replicated]

    def _of_current(self) -> dict[str, Float64]:
        """The current state's values of the quantities that differ between states."""
        arrays = arrays_of(self.replicated)
        return {name: array for name, array in arrays.items() if name in self._names}

    # ------------------------------------------------------------------ the current state

    @property
    def position(self) -> str:
        """Field that holds the factors of the current state."""
        return self.positions[self._current]

    def begin(self, iteration: int) -> None:
        """Make the state that moves in this iteration the current one."""
        self._select(iteration % len(self.positions))

    def _select(self, number: int) -> None:
        if number == self._current:
            return
        self._values[self._current] = self._of_current()
        self._current = number
        take_all(self.replicated, self._values[number])

    def each(self) -> Iterator[str]:
        """Make every state the current one, and yield its position; at the end, go back."""
        moving = self._current
        for number, position in enumerate(self.positions):
            self._select(number)
            yield position
        self._select(moving)

    @contextmanager
    def first_for_all(self) -> Iterator[str]:
        """Make the first state the current one, and yield its position; at the end, go back.

        All states get the values that the ``with`` block changes.
        """
        if len(self.positions) == 1:
            yield self.position
            return
        moving = self._current
        self._select(0)
        before = {name: array.copy() for name, array in self._of_current().items()}
        yield self.position
        for name, array in self._of_current().items():
            if not np.array_equal(array, before[name]):
                for values in self._values:
                    values[name] = array.copy()
        self._select(moving)

    # ------------------------------------------------------------------ saved states

    def arrays(self) -> dict[str, Float64]:
        """All parameters by name on disk; if they differ between states, (states, ...)."""
        self._values[self._current] = self._of_current()
        arrays = arrays_of(self.replicated)
        for name in self._values[self._current]:
            arrays[name] = np.stack([values[name] for values in self._values])
        return arrays

    def take(self, arrays: Mapping[str, Float64]) -> None:
        """Replace the parameters whose names are in `arrays`, which has the form of `arrays()`."""
        self._values[self._current] = self._of_current()
        own = arrays.keys() & self._names
        for number, values in enumerate(self._values):
            for name in own:
                values[name] = arrays[name][number, ...]
        common = {name: array for name, array in arrays.items() if name not in own}
        take_all(self.replicated, common | self._values[self._current])
