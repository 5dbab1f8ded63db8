"""The blocks of a factor that a process holds: named fields as views of one contiguous float32 buffer.

A block travels as one message, and checkpoints iterate over its fields without knowing the sampler.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dsgmcmc.kernels.formula import Formula
from dsgmcmc.kernels.philox import NoiseKey

if TYPE_CHECKING:
    from dsgmcmc.targets.base import World

Array = npt.NDArray[Any]  # float32 in the factorisation, float64 for other targets
Int64 = npt.NDArray[np.int64]

#: Noise for different purposes never shares a counter.
PURPOSE_STEP, PURPOSE_START, PURPOSE_MOMENTUM, PURPOSE_WEIGHT = 0, 1, 2, 3


class Field(NamedTuple):
    """A named array of a block's state; `width` columns, or D of them if 0."""

    name: str
    width: int = 0


class Layout:
    """Where the fields of a block lie in its buffer: one after another, each (rows, width) in C order."""

    def __init__(self, fields: Sequence[Field], dimension: int) -> None:
        self.fields = tuple(Field(name, width or dimension) for name, width in fields)
        self.names = tuple(field.name for field in self.fields)
        self.width = sum(field.width for field in self.fields)

    def views(self, buffer: Array, rows: int) -> dict[str, Array]:
        """Fields of a block of `rows` rows as views of its (rows * width,) float32 buffer."""
        result, begin = {}, 0
        for name, width in self.fields:
            result[name] = buffer[begin : begin + rows * width].reshape(rows, width)
            begin += rows * width
        return result


@dataclass
class Side:
    """One factor's block: everything that is done to it row by row.

    Attributes
    ----------
    world : World
        Where it lives; gives priors and noise keys.
    factor : {"W", "H"}
        Row factor or column factor.
    index : int
        Block number.
    start : int
        First global row of the factor in this block.
    counts : (n,) int64
        Training ratings of every row.
    arrays : dict of str to (n, D) float32
        Persistent fields (views of `buffer`) and scratch.
    buffer : (fields * n * D,) float32
        What travels.
    """

    world: World
    factor: str
    index: int
    start: int
    counts: Int64
    arrays: dict[str, Array]
    buffer: Array = field(repr=False)

    def row(self, name: str) -> npt.NDArray[Any]:
        """Field `name` of width 1 as a (n,) view."""
        return self.arrays[name].reshape(-1)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the arrays."""
        return self.buffer.dtype

    def __getitem__(self, name: str) -> Array:
        """Array of field or scratch `name`, (n, D) float32."""
        return self.arrays[name]

    def update(
        self,
        formula: Formula,
        bind: Mapping[str, str] | None = None,
        purpose: int = PURPOSE_STEP,
        **given: Any,
    ) -> dict[str, Any]:
        """Apply a formula to every element in one pass: drift, prior, preconditioner, noise.

        Parameters
        ----------
        formula : Formula
            What to compute. ``z`` is the normal of (seed, chain, purpose, iteration, factor, row, k);
            ``prior`` the gradient of the prior's energy.
        bind : mapping of str to str, optional
            Field of this block for a name in the formula, where they differ.
        purpose : int
            Stream of the noise.
        **given
            Scalars, (D,) columns and (n,) rows that the formula names.

        Returns
        -------
        dict
            The formula's sums, float64.
        """
        if bind:
            fields = {name: self.arrays[bind.get(name, name)] for name in formula.fields}
        else:
            fields = self.arrays
        world = self.world
        first = self.start * world.dimension
        noise = NoiseKey(first, world.seed, world.chain, purpose, world.iteration, _NUMBER[self.factor])
        begin = world.phases.enter()
        result: dict[str, Any] = formula.apply(
            fields,
            scalars={name: given[name] for name in formula.scalars},
            columns={name: given[name] for name in formula.columns},
            rows={name: given[name] for name in formula.rows},
            noise=noise,
            prior=world.prior(self.factor) if formula.prior_of else None,
        )
        world.phases.leave("update", begin)
        return result


_NUMBER = {"W": 0, "H": 1}
