"""Declarations of a model's quantities: name on disk, shape, unit, and use.

There are two kinds of quantity: either every row of a factor has a value, or all processes share a
small array. The list of a model's quantities determines the layout of blocks, the contents of
snapshots, saved draws, moments and traces, the conversion to the ratings' own unit, warm starts,
exports, diagnostics, and the cost of a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

import numpy as np

from dsgmcmc.targets.state import Replicated
from dsgmcmc.types import Array, Factor, Float32, Float64

NONE: Mapping[Any, Any] = MappingProxyType({})

#: Lengths of axes, by their names in `Quantity.dims`.
Sizes = Mapping[str, int]


@dataclass(frozen=True)
class Quantity:
    """One quantity of a model.

    Attributes
    ----------
    name : str
        Name on disk. ``{}`` stands for the factor, if each factor has an array.
    dims : tuple of str
        Names of its axes, whose lengths are in `Sizes`; for a quantity of rows, the axes of one
        row. Empty for a scalar.
    of_rows : bool
        Whether every row of a factor has one.
    columns, rating : int
        Exponents of the unit of a row's columns and of the unit of a rating. A value times both
        powers is in the ratings' own unit.
    kept : bool
        Whether it is saved in checkpoints; else it is computed from other quantities.
    drawn : bool
        Whether a draw contains it. A quantity of rows in a draw has posterior moments, too.
    traced : bool
        Whether its value at every draw is kept, if it is shared and in draws; of a matrix, the
        diagonal.
    started : bool
        Whether a warm start takes it from the earlier run.
    positive : bool
        Whether it, or its diagonal, is positive.
    per_state : bool
        Whether it differs between the states that a sampler advances in turns. On disk, the states
        are its first axis.
    diagnosed : str
        Its name in diagnostics; empty if they leave it out, because it cannot be compared between
        chains. ``{entity}`` stands for user or item, ``{number}`` for 1, 2, ... and ``{label}`` for
        the name of an element.
    as_sd : bool
        Whether diagnostics show a precision as a standard deviation.
    label : str
        Its name for people; ``{entity}`` as above.
    factor : Factor or None
        The factor to which it belongs, if it belongs to one.
    general : Quantity or None
        The quantity with ``{}`` in its name from which `for_factor` made this one; None if it did
        not make it.
    """

    name: str
    dims: tuple[str, ...] = ()
    of_rows: bool = False
    columns: int = 0
    rating: int = 0
    kept: bool = True
    drawn: bool = True
    traced: bool = True
    started: bool = False
    positive: bool = False
    per_state: bool = False
    diagnosed: str = ""
    as_sd: bool = False
    label: str = ""
    factor: Factor | None = None
    general: Quantity | None = None

    def for_factor(self, factor: Factor) -> Quantity:
        """Return the quantity for `factor`, even if this object is the other factor's quantity."""
        return (self.general or self)._by_factor[factor]

    @cached_property
    def _by_factor(self) -> dict[Factor, Quantity]:
        dims = {factor: tuple(dim.format(factor.name) for dim in self.dims) for factor in Factor}
        names = {factor: self.name.format(factor.name) for factor in Factor}
        return {
            f: replace(self, name=names[f], dims=dims[f], factor=f, general=self) for f in Factor
        }

    def is_of(self, factor: Factor) -> bool:
        """Whether the rows of `factor` have it, if it is a quantity of rows."""
        return self.factor in (None, factor)

    def shape(self, sizes: Sizes) -> tuple[int, ...]:
        """Lengths of its axes."""
        return tuple(sizes[dim] for dim in self.dims)

    def width(self, sizes: Sizes) -> int:
        """Number of elements in one row."""
        return prod(self.shape(sizes))

    def in_rating_unit(self, value: Array, columns: Array, rating: float) -> Array:
        """Its value in the ratings' own unit.

        Parameters
        ----------
        value : array
            Its value for standardised ratings. The last axis runs over the columns of a row; both
            axes of a matrix do.
        columns : (D,) array
            Unit of each column of a row.
        rating : float
            Unit of a rating: the divisor of the ratings.
        """
        converted = value
        if self.columns != 0:
            if self.dims.count("column") > 1:
                unit = np.outer(columns, columns)
            else:
                unit = columns ** abs(self.columns)
            converted = _converted(converted, unit, self.columns)
        if self.rating != 0:
            converted = _converted(converted, rating ** abs(self.rating), self.rating)
        return converted


def _converted(value: Array, unit: Array | float, power: int) -> Array:
    """A value times a unit or, if the power of the unit is negative, divided by it."""
    if power > 0:
        return value * unit
    return value / unit


def hyperparameter(name: str, label: str, diagnosed: str = "", **more: Any) -> Quantity:
    """A positive parameter that all rows share, with a `label` for people.

    By default it is diagnosed under its `name`.
    """
    return Quantity(
        name, positive=True, started=True, diagnosed=diagnosed or name, label=label, **more
    )


#: A row of a factor; the sampler chooses the field of a block that stores it.
THETA = Quantity("theta", ("column",), of_rows=True, columns=1, started=True)


#: Scale of a row: g of its noise, or s of `dsgmcmc.model.likelihoods.row_scales`.
WEIGHT = Quantity("weight", of_rows=True, started=True)


#: Shift of a row's prior mean from the mean m that the rows of its factor share.
SHIFT = Quantity("shift", ("column",), of_rows=True, drawn=False)


class Sampled(Replicated):
    """Replicated parameters of a model; a dataclass with an attribute for each quantity."""

    quantities: ClassVar[Mapping[str, Quantity]] = {}

    def __init_subclass__(cls) -> None:
        cls.saved_as = {attribute: q.name for attribute, q in cls.quantities.items() if q.kept}

    @classmethod
    def about(cls, factors: Sequence[Factor]) -> tuple[Quantity, ...]:
        """Its quantities; a quantity with ``{}`` in its name once for each of these factors."""
        quantities: list[Quantity] = []
        for quantity in cls.quantities.values():
            if "{}" in quantity.name:
                quantities += [quantity.for_factor(factor) for factor in factors]
            else:
                quantities.append(quantity)
        return tuple(quantities)

    def drawn(self) -> Iterator[tuple[Quantity, Float64]]:
        """Yield the quantities in a draw, with their values."""
        for attribute, quantity in self.quantities.items():
            if not quantity.drawn:
                continue
            value = getattr(self, attribute)
            if isinstance(value, dict):
                for factor, array in value.items():
                    yield quantity.for_factor(factor), array
            elif value is not None:
                yield quantity, value


class SavedDraw(Protocol):
    """A saved draw: the interface that parts of the model use.

    Attributes
    ----------
    shared : dict of str to float64 array
        Quantities that all rows share, by their names, with ``user`` or ``item`` in place of the
        factor.
    rows : dict of kind to dict of str to (n, ...) float32 array
        Quantities of the rows of users and of items, by their names. Rows have the order of the
        factor, not that of ids: ``run.users.index_of(ids)`` (`dsgmcmc.posterior.index.Vocabulary`)
        gives the row numbers of ids.
    """

    @property
    def shared(self) -> Mapping[str, Float64]: ...  # noqa: D102

    @property
    def rows(self) -> Mapping[str, Mapping[str, Float32]]: ...  # noqa: D102


@dataclass(frozen=True)
class Quantities:
    """All quantities of a model.

    Attributes
    ----------
    all : tuple of Quantity
        In the order in which a block has its fields, each once.
    sizes : Sizes
        Lengths of their axes.
    """

    all: tuple[Quantity, ...]
    sizes: Sizes

    @cached_property
    def of_rows(self) -> tuple[Quantity, ...]:
        """Quantities of rows that a block keeps besides the sampler's fields."""
        return tuple(quantity for quantity in self.all if quantity.of_rows)

    @cached_property
    def drawn_of_rows(self) -> tuple[Quantity, ...]:
        """Quantities of rows in a draw, each for all rows or for the rows of its factor."""
        return (THETA, *(quantity for quantity in self.all if quantity.of_rows and quantity.drawn))

    @cached_property
    def shared(self) -> tuple[Quantity, ...]:
        """Quantities in a draw that all rows share."""
        return tuple(quantity for quantity in self.all if quantity.drawn and not quantity.of_rows)

    @cached_property
    def traced(self) -> tuple[Quantity, ...]:
        """Shared quantities that are traced at every draw."""
        return tuple(quantity for quantity in self.shared if quantity.traced)

    def width_of_rows(self) -> int:
        """Number of elements that a block keeps for a row besides the sampler's fields."""
        return sum(quantity.width(self.sizes) for quantity in self.of_rows)

    def drawn_elements(self, rows: Mapping[Factor, int]) -> int:
        """Number of elements of rows in a draw, given the number of rows of each factor."""
        elements = 0
        for factor, n in rows.items():
            for quantity in self.drawn_of_rows:
                if quantity.is_of(factor):
                    elements += n * quantity.width(self.sizes)
        return elements


def sizes_of(
    dimension: int,
    levels: int,
    features: Mapping[Factor, tuple[int, int]] = NONE,
    more: Mapping[str, int] = NONE,
) -> dict[str, int]:
    """Lengths of the axes of a model's quantities.

    Parameters
    ----------
    dimension : int
        Columns D of a row.
    levels : int
        Number R of levels of the ratings, if ratings have levels.
    features : dict of Factor to (int, int)
        Number F of features of a factor's rows, and number of groups of features.
    more : dict of str to int
        Lengths of other axes, by name.
    """
    sizes = {"one": 1, "column": dimension, **more}
    sizes |= {"threshold": max(levels - 1, 0), "gap": max(levels - 2, 0)}
    for factor, (number, groups) in features.items():
        sizes |= {f"{factor.name}.feature": number, f"{factor.name}.feature_group": groups}
    return sizes
