"""Elementwise updates, written as in a paper and compiled to one pass over the arrays.

A `Formula` consists of a few assignments between arrays of one shape (n, D). Noise, prior gradients
and sums are computed within the pass, so the only arrays of the size of the state that are written
are the assigned fields:

>>> sgld = Formula("theta = theta - eps * grad + noise * z")

The arguments determine the role of a name. If a number is given for it, the name is a scalar; if
the block has a field of that name, it is the field. Otherwise it is a local variable, which must be
assigned before it is read. Only row and column vectors are declared, because their shapes do not
differ if n = D.

One compiled function serves all D. Its result depends only on the contents and shapes of the
arrays.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from operator import is_not
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.kernels import jit
from dsgmcmc.kernels.formula_parser import Assignments, parse
from dsgmcmc.kernels.formula_source import (
    PRIOR_AT,
    DeclaredFormula,
    Layout,
    PriorKind,
    formula_source,
)
from dsgmcmc.kernels.philox import STREAMS, NoiseKey, noise_words
from dsgmcmc.types import Array, Int64

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Gradient(NamedTuple):
    """Definitions of `grad` and `grad_likelihood`: expressions in fields, and values of the scalars
    in them.
    """

    total: str
    likelihood: str = ""
    numbers: Mapping[str, float] = _NOTHING


def dense(precision: Array) -> Array:
    """Return a precision (D,) or (D, D) as a matrix."""
    return precision if precision.ndim == 2 else np.diag(precision)


def diagonal(precision: Array) -> Array:
    """Return the diagonal (D,) of a precision (D,) or (D, D)."""
    return np.diag(precision).copy() if precision.ndim == 2 else precision


class RowPrior(NamedTuple):
    """Normal prior of the rows theta_i, with mean m + shift_i and precision Lambda.

    Attributes
    ----------
    mean : (D,) array
        m.
    precision : (D,) or (D, D) array
        Lambda: its diagonal, or the full symmetric matrix.
    shift : (n, D) array, optional
        Row i is added to the mean of theta_i. Default: no shift.
    """

    mean: Array
    precision: Array
    shift: Array | None = None


class Table(NamedTuple):
    """Addresses and shapes of the arrays of a batch.

    Attributes
    ----------
    numbers : (blocks, 3 + arrays of a block) int64
        For every block: its number of rows, the index of its first row (`Batch`), the number of
        rows of all earlier blocks, and the addresses of its arrays.
    rows, width : int
        Number of rows of all blocks, and number of columns D of their fields.
    dtype : dtype
    arrays : list of array
        The arrays at these addresses.
    layout : Layout
        The layout for which the table was made.
    """

    numbers: Int64
    rows: int
    width: int
    dtype: np.dtype[np.generic]
    arrays: list[Array]
    layout: Layout


class Batch:
    """Blocks of rows that a formula updates in one call, in their order.

    Parameters
    ----------
    blocks : sequence of mapping of str to array
        The arrays of each block, with equal names in all blocks. Arrays may be replaced between two
        calls.
    starts : sequence of int, optional
        Index of each block's first row in its factor, which determines where the block's noise
        begins. Default: 0.
    """

    def __init__(self, blocks: Sequence[Mapping[str, Array]], starts: Sequence[int] = ()) -> None:
        self.blocks, self._starts = blocks, starts or [0] * len(blocks)
        self._tables: dict[int, Table] = {}

    def table(self, layout: Layout, shifts: Sequence[Array]) -> Table:
        """Return the table of addresses, which is rebuilt only if an array has been replaced.

        Parameters
        ----------
        layout : Layout
            Names of the arrays.
        shifts : sequence of (n, D) array
            Shift of the prior mean of each block (`RowPrior.shift`); empty if there are no shifts.

        Raises
        ------
        ValueError
            If an array has the wrong shape, dtype or memory order.
        """
        arrays = [block[name] for block in self.blocks for name in layout.arrays]
        arrays += shifts
        table = self._tables.get(id(layout))
        if (
            table is None
            or len(arrays) != len(table.arrays)
            or any(map(is_not, arrays, table.arrays))
        ):
            table = self._tables[id(layout)] = self._new_table(layout, shifts, arrays)
        return table

    def _new_table(self, layout: Layout, shifts: Sequence[Array], arrays: list[Array]) -> Table:
        first = self.blocks[0][layout.arrays[0]]
        numbers, before = [], 0
        for place, (block, start) in enumerate(zip(self.blocks, self._starts, strict=True)):
            fields = {name: block[array] for name, array in layout.fields.items()}
            rows = {array: block[array] for array in layout.row_fields.values()}
            shift = shifts[place : place + 1]
            shape = (len(block[layout.arrays[0]]), *first.shape[1:])
            for name, array in fields.items():
                if array.shape != shape or len(shape) != 2:
                    raise ValueError(
                        f"field {name!r} has shape {array.shape}, the first field {shape}"
                    )
            for name, array in rows.items():
                if array.shape != (shape[0], 1):
                    raise ValueError(
                        f"{name!r} has shape {array.shape} where {(shape[0], 1)} is needed"
                    )
            if shift and shift[0].shape != shape:
                raise ValueError(
                    f"the prior's shift has shape {shift[0].shape} where {shape} is needed"
                )
            addressed = [*(block[name] for name in layout.arrays), *shift]
            if not all(array.flags.carray and array.dtype == first.dtype for array in addressed):
                raise ValueError(
                    f"arrays must be C-contiguous, writable and {first.dtype} like the first field"
                )
            numbers.append([shape[0], start, before, *(array.ctypes.data for array in addressed)])
            before += shape[0]
        return Table(
            np.array(numbers, np.int64), before, first.shape[1], first.dtype, arrays, layout
        )


class Formula(DeclaredFormula):
    """Elementwise assignments over (n, D) arrays, compiled when first applied.

    Parameters
    ----------
    source : str
        Assignments, one per line, with the operators + - * / and ** (exponent: a positive integer
        literal), the functions sqrt, abs, sign, minimum, maximum, exp and log, and where(a < b, x,
        y), with < <= > or >=: x where the comparison is true, else y. These names are built in: `z`
        and `z2`, independent standard normals for every element; `u`, a uniform number between 0
        and 1; `grad`, the latest gradient of the energy; `grad_likelihood`, its part without the
        prior; and `grad_prior`, the gradient of the prior's energy at the field `theta`, as it is
        before this pass.
    columns, rows : tuple of str
        Names of (D,) vectors and of (n,) vectors.
    sums, column_sums, row_sums : tuple of str
        Assigned names whose sums are returned: over all elements, per column, or per row.
    """

    @functools.cached_property
    def _body(self) -> Assignments:
        return parse(self.source, (*self.columns, *self.rows))

    @functools.cached_property
    def _reads_gradient(self) -> bool:
        return not self._body.read.isdisjoint(("grad", "grad_likelihood"))

    @functools.cached_property
    def _layouts(self) -> dict[tuple[Any, ...], Layout]:
        return {}

    def of_one(self, totals: dict[str, Any]) -> dict[str, Any]:
        """Totals for a batch of one block: floats for `sums`, (D,) for `column_sums`; totals per
        row are unchanged.
        """
        return totals and {
            name: total if name in self.row_sums else total[0] for name, total in totals.items()
        }

    def apply(
        self,
        batch: Batch,
        given: Mapping[str, Any] = _NOTHING,
        *,
        noise: Callable[[], NoiseKey] | None = None,
        prior: Callable[[], Sequence[RowPrior]] | None = None,
        gradient: Gradient | None = None,
        stride: int = 0,
    ) -> dict[str, Any]:
        """Run the formula over all elements of all blocks of a batch, in place, in one call.

        Parameters
        ----------
        batch : Batch
            The blocks. Their arrays are the fields that the formula may name: (n, D), C-contiguous,
            all float32 or all float64. No array may overlap another.
        given : mapping of str to float, (D,) or (n,) array, or str
            A float is a scalar, which is converted to the dtype of the fields. An array is a
            declared vector, with the dtype of the fields; a row vector has one element for each row
            of all blocks, in their order. A str is the name of the field that replaces this name;
            in place of a row vector the field has width 1.
        noise : callable, if `z`, `z2` or `u` is read
            Returns the key of the noise, whose `first` is the index of the first element.
        prior : callable, if the prior's gradient is read
            Returns the priors of the blocks, with the dtype of the fields: one prior per block, or
            a single prior if there are no shifts. Priors of different blocks may differ only in
            their shifts. The gradient is Lambda (theta_i - m - shift_i).
        gradient : Gradient, if `grad` or `grad_likelihood` is read
            Definitions of `grad` and `grad_likelihood`.
        stride : int
            The noise of a block whose first row has index s begins at element `first` + s *
            `stride`.

        Returns
        -------
        totals : dict of str to float64 array
            By name: (blocks,) for `sums`, (blocks, D) for `column_sums`, (rows of all blocks,) for
            `row_sums`.

        Raises
        ------
        ValueError
            If a name is neither a field nor given; an array has the wrong shape, dtype or memory
            order; noise or prior is missing; or a member of the noise key is out of range.
        """
        if gradient is not None and not self._reads_gradient:
            gradient = None
        if gradient is not None and gradient.numbers:
            if not given.keys().isdisjoint(gradient.numbers):
                taken = min(given.keys() & gradient.numbers.keys())
                raise ValueError(
                    f"{taken!r} is also a scalar of the gradient: rename the formula's scalar"
                )
            given = {**given, **gradient.numbers}
        layout = self._layout(batch.blocks[0], given, gradient)
        priors: Sequence[RowPrior] = ()
        if layout.reads_prior:
            if prior is None:
                raise ValueError(
                    "the formula reads the prior: pass prior=lambda: [RowPrior(mean, precision)]"
                )
            priors = prior()
        shifts = [block_prior.shift for block_prior in priors if block_prior.shift is not None]
        table = batch.table(layout, shifts)
        arguments: list[Any] = [table.numbers, table.width]
        arguments += [_vector(name, given, table.width) for name in self.columns]
        arguments += [_vector(name, given, table.rows) for name in layout.rows]
        arguments += [given[name] for name in layout.scalars]
        kind = None
        if priors:
            kind, prior_arrays = _checked(priors[0], table.width, bool(shifts))
            arguments += prior_arrays
        if layout.noise:
            if noise is None:
                raise ValueError(
                    f"the formula reads {layout.noise[0]}: pass noise=lambda: NoiseKey(...)"
                )
            arguments += (stride, *noise_words(noise()))
        return self._run(layout, arguments, table, kind)

    def _run(
        self, layout: Layout, arguments: list[Any], table: Table, kind: PriorKind | None
    ) -> dict[str, Any]:
        """Call the compiled function, and return its totals by name."""
        totals: dict[str, Any] = {}
        blocks = len(table.numbers)
        for name in self.column_sums:
            totals[name] = np.zeros((blocks, table.width))
        for name in self.row_sums:
            totals[name] = np.zeros(table.rows)
        arguments += totals.values()
        if self.sums:
            sums = np.zeros((len(self.sums), blocks))
            arguments.append(sums)
            totals.update(zip(self.sums, sums, strict=True))
        if table.rows and table.width:
            # `char` is faster than the dtype, and calls are frequent
            kernel = layout.kernels.get((table.dtype.char, kind)) or _compile(
                layout, table.dtype, kind
            )
            try:
                kernel(*arguments)
            except TypeError as error:  # Numba raises it if no signature fits
                raise ValueError(
                    f"vectors must be C-contiguous and {table.dtype} like the fields"
                ) from error
        return totals

    def _layout(
        self, arrays: Mapping[str, Array], given: Mapping[str, Any], gradient: Gradient | None
    ) -> Layout:
        """Return the roles of all names, from a cache if these names occurred in an earlier call."""
        aliases = tuple([item for item in given.items() if isinstance(item[1], str)])
        key = (tuple(arrays), tuple(given), aliases, gradient and gradient[:2])
        layout = self._layouts.get(key)
        if layout is None:
            layout = self._layouts[key] = self._new_layout(arrays, given, dict(aliases), gradient)
        return layout

    def _new_layout(
        self,
        arrays: Mapping[str, Array],
        given: Mapping[str, Any],
        aliases: dict[str, str],
        gradient: Gradient | None,
    ) -> Layout:
        body = self._body
        for name, expression in (
            ("grad", gradient and gradient.total),
            ("grad_likelihood", gradient and gradient[1]),
        ):
            if name in body.read:
                if not expression:
                    raise ValueError(f"the formula reads {name!r}, which was not computed")
                body = body.with_definition(name, expression)
        names = body.read | body.written | ({PRIOR_AT} if "grad_prior" in body.read else set())
        vectors = {*self.columns, *self.rows}
        scalars = tuple(
            name for name in given if name in names and name not in aliases and name not in vectors
        )
        known = aliases | {name: name for name in arrays if name not in aliases}
        # in sorted order, so that all orders of the arrays share one compiled function
        fields = {name: known[name] for name in sorted(names & known.keys() - {*scalars, *vectors})}
        for name in sorted(body.free - {*fields, *scalars, *vectors}):
            raise ValueError(f"{name!r} is not a field of {', '.join(arrays)}, and is not given")
        for name in sorted(body.written & {*scalars}):
            raise ValueError(f"{name!r} cannot be assigned: it is given as a number")
        if not fields:  # the first array gives the shape
            fields = {name: name for name in list(arrays)[:1]}
        row_fields = {name: aliases[name] for name in self.rows if name in aliases}
        rows = tuple(name for name in self.rows if name not in aliases)
        arrays_used = (*fields.values(), *row_fields.values())
        reads_prior, noise = (
            "grad_prior" in body.read,
            tuple(name for name in STREAMS if name in body.read),
        )
        return Layout(
            self,
            body,
            fields,
            scalars,
            rows,
            row_fields,
            arrays_used,
            reads_prior,
            noise,
            kernels={},
        )


def _compile(layout: Layout, dtype: np.dtype[Any], prior: PriorKind | None) -> Any:
    """Compile the function for one dtype and kind of prior, and keep it in the layout."""
    if dtype not in (np.float32, np.float64):
        raise ValueError(f"fields are {dtype}; float32 or float64 is needed")
    source = formula_source(layout._replace(dtype=dtype.name, prior=prior))
    kernel = jit.compile_source("formula", source).formula
    layout.kernels[dtype.char, prior] = kernel
    return kernel


def _checked(prior: RowPrior, D: int, shifted: bool) -> tuple[PriorKind, list[Array]]:
    """Check the shapes of a prior; return its kind and its arrays."""
    mean, precision = prior.mean, prior.precision
    if mean.shape != (D,) or precision.shape not in ((D,), (D, D)):
        raise ValueError(
            f"the prior's mean and precision have shapes {mean.shape} and {precision.shape}, but D"
            f" = {D}"
        )
    return PriorKind(precision.ndim == 2, shifted), [mean, precision]


def _vector(name: str, given: Mapping[str, Any], length: int) -> Array:
    """Return a declared vector; raise ValueError if it is missing or has the wrong shape."""
    vector: Array | None = given.get(name)
    if vector is None or vector.shape != (length,):
        problem = "is missing" if vector is None else f"has shape {vector.shape}"
        raise ValueError(f"{name!r} {problem} where a vector ({length},) is needed")
    return vector
