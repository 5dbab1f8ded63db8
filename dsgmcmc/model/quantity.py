"""What a model keeps, said once: every quantity's name on disk, its shape, its unit, and what becomes of it.

A quantity belongs to the rows of the factors, of which every row has one, or is one small array that all processes
share. From the list of a model's quantities follow the layout of blocks, what a reader of snapshots expects, saved
draws, moments and traces, the ratings' own unit, warm starts, exports, diagnostics, and what a run costs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

import numpy as np

from dsgmcmc.targets.state import Replicated, StateField
from dsgmcmc.types import Array, Factor, Float64

#: Lengths by the names that stand in `Quantity.dims`.
Sizes = Mapping[str, int]


@dataclass(frozen=True)
class Quantity:
    """One quantity of a model.

    Attributes
    ----------
    name : str
        On disk. ``{}`` stands for a factor, where each has an array of its own.
    dims : tuple of str
        Names of its axes, whose lengths are in `Sizes`; of a row's quantity those of one row. None: it is a number.
    of_rows : bool
        Whether every row of a factor has one.
    columns, rating : int
        Power of the unit of a row's columns, and of a rating, by which it is multiplied to be in the ratings' own unit.
    kept : bool
        Whether a checkpoint has it; else it follows from others.
    drawn : bool
        Whether it belongs to a draw. Of rows' quantities that are drawn there are posterior moments, too.
    traced : bool
        Whether a shared one that is drawn is part of the trace of every draw; of a matrix the diagonal is.
    started : bool
        Whether a warm start takes it from the earlier run.
    positive : bool
        Whether it, or its diagonal, is positive.
    per_chain : bool
        Whether there is one for each interleaved sub-chain.
    diagnosed : str
        What chains are compared by: its name in diagnostics, if it can be compared between chains. ``{kind}`` stands
        for user or item, ``{number}`` for 1, 2, ... and ``{label}`` for what an element is called.
    as_sd : bool
        Whether the standard deviation of a precision is what is diagnosed.
    exported : str
        Its name in exports, if that is another one.
    label : str
        What people read that it is; ``{kind}`` as above.
    factor : Factor or None
        The factor that it is about, if it is about one.
    general : Quantity or None
        What it then was made of: the one that may be about any factor.
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
    per_chain: bool = False
    diagnosed: str = ""
    as_sd: bool = False
    exported: str = ""
    label: str = ""
    factor: Factor | None = None
    general: Quantity | None = None

    def of(self, factor: Factor) -> Quantity:
        """The one that is about this factor; also given the one about the other."""
        general = self.general or self
        dims = tuple(dim.format(factor.name) for dim in general.dims)
        return replace(general, name=general.name.format(factor.name), dims=dims, factor=factor, general=general)

    def shape(self, sizes: Sizes) -> tuple[int, ...]:
        """Lengths of its axes."""
        return tuple(sizes[dim] for dim in self.dims)

    def width(self, sizes: Sizes) -> int:
        """Numbers of one row."""
        return prod(self.shape(sizes))

    def field(self, sizes: Sizes) -> StateField:
        """Array of a block that has it."""
        return StateField(self.name, self.width(sizes))

    def in_rating_unit(self, value: Array, columns: Array, rating: float) -> Array:
        """Its value in the ratings' own unit.

        Parameters
        ----------
        value : array
            Of standardised ratings; the last axis, and of a matrix both, are the columns of a row.
        columns : (D,) array
            By what a row of a factor is multiplied.
        rating : float
            What ratings were divided by.
        """
        factor: Array | float = rating ** abs(self.rating)
        if self.columns:
            factor = columns ** abs(self.columns)
            if self.dims.count("column") > 1:
                factor = np.outer(columns, columns)
        found: Array = value / factor if self.columns + self.rating < 0 else value * factor
        return found


#: A row of a factor, whatever field of a block a sampler keeps its state in.
THETA = Quantity("theta", ("column",), of_rows=True, columns=1, started=True)


#: What the means of rows have besides m.
SHIFT = Quantity("shift", ("column",), of_rows=True, drawn=False)


class Sampled(Replicated):
    """Replicated parameters of a model; a dataclass with an attribute for each of its `quantities`."""

    quantities: ClassVar[Mapping[str, Quantity]] = {}

    def __init_subclass__(cls) -> None:
        cls.saved_as = {attribute: q.name for attribute, q in cls.quantities.items() if q.kept}

    @classmethod
    def about(cls, factors: Sequence[Factor], without: Sequence[str] = ()) -> tuple[Quantity, ...]:
        """Its quantities where each factor's are about these `factors`, but for some attributes."""
        chosen = [quantity for attribute, quantity in cls.quantities.items() if attribute not in without]
        return tuple(each for q in chosen for each in ([q.of(factor) for factor in factors] if "{}" in q.name else [q]))

    def drawn(self, subchain: int = 0) -> Iterator[tuple[Quantity, Float64]]:
        """What belongs to a draw, of one sub-chain."""
        for attribute, quantity in self.quantities.items():
            value = getattr(self, attribute) if quantity.drawn else None
            if isinstance(value, dict):
                for factor, array in value.items():
                    yield quantity.of(factor), array[subchain] if quantity.per_chain else array
            elif value is not None:
                yield quantity, value[subchain] if quantity.per_chain else value


@dataclass(frozen=True)
class Quantities:
    """All quantities of a model.

    Attributes
    ----------
    all : tuple of Quantity
        In the order in which a block has its fields.
    sizes : Sizes
        Lengths of their axes.
    """

    all: tuple[Quantity, ...]
    sizes: Sizes

    @property
    def of_rows(self) -> tuple[Quantity, ...]:
        """What a block keeps for every row besides the sampler's fields."""
        return tuple(quantity for quantity in self.all if quantity.of_rows)

    @property
    def drawn_of_rows(self) -> tuple[Quantity, ...]:
        """What every row has in a draw."""
        return (THETA, *(quantity for quantity in self.of_rows if quantity.drawn))

    @property
    def shared(self) -> tuple[Quantity, ...]:
        """What of a draw all rows share."""
        return tuple(quantity for quantity in self.all if quantity.drawn and not quantity.of_rows)

    @property
    def traced(self) -> tuple[Quantity, ...]:
        """What every draw has in the trace."""
        return tuple(quantity for quantity in self.shared if quantity.traced)

    def width_of_rows(self, drawn: bool = False) -> int:
        """Numbers of a row that blocks keep besides the sampler's; or, `drawn`, those that a draw has."""
        return sum(quantity.width(self.sizes) for quantity in (self.drawn_of_rows if drawn else self.of_rows))


def collected(
    common: Sequence[Quantity],
    law: Sequence[Quantity],
    means: Sequence[Quantity],
    others: Sequence[Quantity],
    sizes: Sizes,
) -> Quantities:
    """All quantities of a model, in the order in which a block has their fields.

    Parameters
    ----------
    common : sequence of Quantity
        Of the priors and the noise.
    law : sequence of Quantity
        Of the likelihood.
    means : sequence of Quantity
        Of the parts of the rows' prior means, which add up to `SHIFT`.
    others : sequence of Quantity
        Of what else there is.
    sizes : Sizes
        Lengths of their axes.
    """
    return Quantities((*common, *law, *([SHIFT] if means else []), *means, *others), sizes)


def sizes_of(
    dimension: int, levels: int = 0, time_levels: int = 0, features: Mapping[Factor, tuple[int, int]] | None = None
) -> dict[str, int]:
    """Lengths of the axes of a model's quantities.

    Parameters
    ----------
    dimension : int
        Columns D of a row.
    levels : int
        Levels R of the ratings, if they have some.
    time_levels : int
        Levels of time.
    features : dict of Factor to (int, int)
        Features F, and groups of features, of the rows of a factor.
    """
    found = {"one": 1, "column": dimension, "time_level": time_levels}
    found |= {"threshold": max(levels - 1, 0), "gap": max(levels - 2, 0)}
    for factor, (number, groups) in (features or {}).items():
        found |= {f"{factor.name}.feature": number, f"{factor.name}.feature_group": groups}
    return found
