"""Signs that a chain has diverged: parameters that are not finite or far too large."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from dsgmcmc.model.quantity import Quantity, Sampled
from dsgmcmc.targets.state import ParameterBlock, Rows
from dsgmcmc.types import Float64

#: Largest finite parameter, in float32.
MAX_FINITE = float(np.finfo(np.float32).max)
#: Smallest positive number, in float64.
TINY = 5e-324


def divergent_rows(
    groups: Iterable[Rows],
    position: str,
    largest: float,
    drawn: Sequence[str],
) -> Iterator[str]:
    """Yield a description of every block with a row that is out of bounds.

    Parameters
    ----------
    groups : iterable of Rows
        The rows, by factor.
    position : str
        Field that holds the state.
    largest : float
        Largest mean square of a row's elements.
    drawn : sequence of str
        Other fields that draws contain.
    """
    blocks = [block for rows in groups for block in rows.blocks]
    if not any(_describe(blocks, position, largest, drawn)):
        return  # nearly always
    for block in blocks:
        for found in _describe([block], position, largest, drawn):
            yield f"block {block.index} of {block.factor.name} {found}"


def _describe(
    blocks: Sequence[ParameterBlock], position: str, largest: float, drawn: Sequence[str]
) -> Iterator[str]:
    """Yield what is out of bounds among the rows of blocks."""
    theta = np.concatenate([block[position] for block in blocks])
    squares = np.einsum("ij,ij->i", theta, theta)
    worst = np.maximum.reduce(squares) / theta.shape[1]  # NaN if an element is NaN
    if not worst <= largest:
        yield f"has a row of mean square {worst:.3g}"
    for name in drawn:
        arrays = [block[name].ravel() for block in blocks if name in block.arrays]
        if not arrays:
            continue
        size = np.abs(np.concatenate(arrays)).max(initial=0.0)
        if not size <= MAX_FINITE:
            yield f"has a row whose {name} is {size:.3g}"


def divergent_parameters(replicated: Iterable[Sampled]) -> Iterator[str]:
    """Yield a description of every shared parameter that is out of bounds."""
    parameters = [drawn for sampled in replicated for drawn in sampled.drawn()]
    elements = [_elements(quantity, value) for quantity, value in parameters]
    positive = [found for (q, _), found in zip(parameters, elements, strict=True) if q.positive]
    if _are_sound(elements, -MAX_FINITE) and _are_sound(positive, TINY):
        return  # nearly always
    for (quantity, _), found in zip(parameters, elements, strict=True):
        is_sound = np.abs(found) <= MAX_FINITE  # false for NaN
        if quantity.positive:
            is_sound &= found > 0
        if not is_sound.all():
            yield f"{quantity.name} is {found[np.argmin(is_sound)]:.3g}"


def _are_sound(elements: list[Float64], least: float) -> bool:
    """Whether all elements are between `least` and the largest finite number."""
    if not elements:
        return True
    joined = np.concatenate(elements)
    if joined.size == 0:
        return True
    is_sound = np.minimum.reduce(joined) >= least and np.maximum.reduce(joined) <= MAX_FINITE
    return bool(is_sound)


def _elements(quantity: Quantity, value: Float64) -> Float64:
    """The elements of a parameter that have bounds: of a precision matrix, its diagonal."""
    if quantity.positive and value.ndim == 2:
        return np.diag(value)
    return np.ravel(value)
