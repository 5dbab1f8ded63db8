"""Packs named float64 arrays into one vector, so that they are sent and added together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

import numpy as np

from dsgmcmc.types import Float64

Named = Mapping[str, Float64]
Shapes = Mapping[str, tuple[int, ...]]


def shapes_of(arrays: Named) -> dict[str, tuple[int, ...]]:
    """Shapes of named arrays."""
    return {name: array.shape for name, array in arrays.items()}


def size_of(shapes: Shapes) -> int:
    """Total number of elements in arrays of the given shapes."""
    return sum(prod(shape) for shape in shapes.values())


def pack(arrays: Named, shapes: Shapes) -> Float64:
    """Join named arrays into one vector, in the order of `shapes`.

    Raises
    ------
    ValueError
        If names or shapes differ from `shapes`.
    """
    if shapes_of(arrays) != dict(shapes):
        raise ValueError(f"arrays of {shapes_of(arrays)} where {dict(shapes)} are expected")
    return np.concatenate([arrays[name].ravel() for name in shapes]).astype(np.float64, copy=False)


def stacked(addends: Iterable[Named]) -> dict[str, Float64]:
    """Stack the arrays of several addends with equal names and shapes: (addends, ...) each."""
    several = list(addends)
    return {name: np.array([addend[name] for addend in several]) for name in several[0]}


def unpack(vector: Float64, shapes: Shapes) -> dict[str, Float64]:
    """Split a vector into views with the given names and shapes."""
    arrays, begin = {}, 0
    for name, shape in shapes.items():
        end = begin + prod(shape)
        arrays[name] = vector[begin:end].reshape(shape)
        begin = end
    return arrays
