"""Signs that a chain has diverged: parameters that are not finite or far too large."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from dsgmcmc.model.quantity import Quantity, Sampled
from dsgmcmc.targets.state import ParameterBlock
from dsgmcmc.types import Float64

#: Largest finite parameter, in float32.
MAX_FINITE = float(np.finfo(np.float32).max)


def divergent_rows(
    blocks: Iterable[ParameterBlock],
    position: str,
    largest: float,
    drawn: Sequence[str],
) -> Iterator[str]:
    """Yield a description of every block with a row that is out of bounds.

    Parameters
    ----------
    blocks : iterable of ParameterBlock
    position : str
        Field that holds the state.
    largest : float
        Largest mean square of a row's elements.
    drawn : sequence of str
        Other fields that draws contain.
    """
    for block in blocks:
        label = f"block {block.index} of {block.factor.name}"
        rows = block[position]
        squares = np.einsum("ij,ij->i", rows, rows)
        worst = squares.max() / block.dimension  # NaN if an element is NaN
        if not worst <= largest:
            yield f"{label} has a row of mean square {worst:.3g}"
        for name in drawn:
            if name not in block.arrays:
                continue
            size = np.abs(block[name]).max(initial=0.0)
            if not size <= MAX_FINITE:
                yield f"{label} has a row whose {name} is {size:.3g}"


def divergent_parameters(replicated: Iterable[Sampled]) -> Iterator[str]:
    """Yield a description of every shared parameter that is out of bounds."""
    for sampled in replicated:
        for quantity, value in sampled.drawn():
            elements = _elements(quantity, value)
            is_sound = np.abs(elements) <= MAX_FINITE  # false for NaN
            if quantity.positive:
                is_sound &= elements > 0
            if not is_sound.all():
                yield f"{quantity.name} is {elements[np.argmin(is_sound)]:.3g}"


def _elements(quantity: Quantity, value: Float64) -> Float64:
    """The elements of a parameter that have bounds: of a precision matrix, its diagonal."""
    if quantity.positive and value.ndim == 2:
        return np.diag(value)
    return np.ravel(value)
