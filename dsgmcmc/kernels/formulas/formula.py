"""Elementwise updates, written as in a paper and compiled to one pass over the arrays.

A `Formula` consists of a few assignments between arrays of one shape (n, D). Noise, prior gradients
and sums are computed within the pass, so the only arrays of the size of the state that are written
are the assigned fields:

>>> sgld = Formula("theta = theta - eps * grad + noise * z")

The arguments determine the role of a name. If a number is given for it, the name is a scalar; if
the block has a field of that name, it is the field. Otherwise it is a local variable, which must be
assigned before it is read. Only row and column vectors are declared, because their shapes do not
differ if n = D.

One compiled function serves all D. Its result depends on contents and shapes of the arrays alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from operator import is_not
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.kernels.compiling import jit
from dsgmcmc.kernels.formulas.parser import Assignments, parse
from dsgmcmc.kernels.formulas.source import (
    PRIOR_AT,
    DeclaredFormula,
    FormulaLayout,
    PriorForm,
    formula_source,
)
from dsgmcmc.kernels.philox import STREAMS, NoiseKey, noise_words
from dsgmcmc.types import Array, Int64

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Gradient(NamedTuple):
    """Definitions of `grad` and `grad_likelihood`: expressions in fields, and their scalars."""

    total: str
    likelihood: str = ""
    numbers: Mapping[str, float] = _NOTHING


def dense(precision: Array) -> Array:
    """Return a precision (D,) or (D, D) as a matrix."""
    if precision.ndim == 2:
        return precision
    return np.diag(precision)


def diagonal(precision: Array) -> Array:
    """Return the diagonal (D,) of a precision (D,) or (D, D)."""
    if precision.ndim == 2:
        return np.diag(precision).copy()
    return precision


class RowPrior(NamedTuple):
    """Normal prior of the rows theta_i, with mean m + shift_i and precision scale_i Lambda.

    Attributes
    ----------
    mean : (D,) array
        m.
    precision : (D,) or (D, D) array
        Lambda: its diagonal, or the full symmetric matrix.
    shift : (n, D) array, optional
        Row i is added to the mean of theta_i. Default: no shift.
    scale : (n, 1) array, optional
        Multiplies the precision of every row. Default: 1.
    """

    mean: Array
    precision: Array
    shift: Array | None = None
    scale: Array | None = None


class AddressTable(NamedTuple):
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
    layout : FormulaLayout
        The layout for which the table was made.
    """

    numbers: Int64
    rows: int
    width: int
    dtype: np.dtype[np.generic]
    arrays: list[Array]
    layout: FormulaLayout


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
        self.blocks = blocks
        self._starts = starts
        if not starts:
            self._starts = [0] * len(blocks)
        self._tables: dict[int, AddressTable] = {}

    def table(self, layout: FormulaLayout, priors: Sequence[RowPrior]) -> AddressTable:
        """Return the table of addresses, which is rebuilt only if an array has been replaced.

        Parameters
        ----------
        layout : FormulaLayout
            Names of the arrays.
        priors : sequence of RowPrior
            The prior of each block; empty if the formula does not read it.

        Raises
        ------
        ValueError
            If an array has the wrong shape, dtype or memory order.
        """
        arrays = [block[name] for block in self.blocks for name in layout.arrays]
        arrays += [array for prior in priors for array in _of_rows(prior)]
        table = self._tables.get(id(layout))
        if (
            table is None
            or len(arrays) != len(table.arrays)
            or any(map(is_not, arrays, table.arrays))
        ):
            table = self._tables[id(layout)] = self._new_table(layout, priors, arrays)
        return table

    def _new_table(
        self, layout: FormulaLayout, priors: Sequence[RowPrior], arrays: list[Array]
    ) -> AddressTable:
        first = self.blocks[0][layout.arrays[0]]
        numbers = []
        rows = 0
        for b, (block, start) in enumerate(zip(self.blocks, self._starts, strict=True)):
            shape = (len(block[layout.arrays[0]]), *first.shape[1:])
            _check_shapes(layout, block, shape)
            addressed = [block[name] for name in layout.arrays]
            if priors:
                _check_of_rows(priors[b], shape)
                addressed += _of_rows(priors[b])
            if not all(array.flags.carray and array.dtype == first.dtype for array in addressed):
                raise ValueError(
                    f"arrays must be C-contiguous, writable and {first.dtype} like the first field"
                )
            addresses = [array.ctypes.data for array in addressed]
            numbers.append([shape[0], start, rows, *addresses])
            rows += shape[0]
        return AddressTable(
            numbers=np.array(numbers, np.int64),
            rows=rows,
            width=first.shape[1],
            dtype=first.dtype,
            arrays=arrays,
            layout=layout,
        )


def _of_rows(prior: RowPrior) -> list[Array]:
    """Return the arrays of a prior that differ between rows."""
    return [array for array in (prior.shift, prior.scale) if array is not None]


def _check_of_rows(prior: RowPrior, shape: tuple[int, ...]) -> None:
    """Raise ValueError if a prior's shift is not of this shape, or its scale not (n, 1)."""
    if prior.shift is not None and prior.shift.shape != shape:
        raise ValueError(f"the prior's shift has shape {prior.shift.shape} where {shape} is needed")
    if prior.scale is not None and prior.scale.shape != (shape[0], 1):
        raise ValueError(
            f"the prior's scale has shape {prior.scale.shape} where {(shape[0], 1)} is needed"
        )


def _check_shapes(
    layout: FormulaLayout, block: Mapping[str, Array], shape: tuple[int, ...]
) -> None:
    """Raise ValueError if a field is not of this shape, or the field of a row vector not (n, 1)."""
    for name, array in layout.fields.items():
        found = block[array].shape
        if found != shape or len(shape) != 2:
            raise ValueError(f"field {name!r} has shape {found}, the first field {shape}")
    for name in layout.row_fields.values():
        found = block[name].shape
        if found != (shape[0], 1):
            raise ValueError(f"{name!r} has shape {found} where {(shape[0], 1)} is needed")


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
    def _layouts(self) -> dict[tuple[Any, ...], FormulaLayout]:
        return {}

    def for_one_block(self, totals: dict[str, Any]) -> dict[str, Any]:
        """Return the totals of a batch of one block as numbers, and as (D,) for `column_sums`.

        Totals per row are unchanged.
        """
        result = {}
        for name, total in totals.items():
            if name in self.row_sums:
                result[name] = total
            else:
                result[name] = total[0]
        return result

    def apply(
        self,
        batch: Batch,
        values: Mapping[str, Any] = _NOTHING,
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
        values : mapping of str to float, (D,) or (n,) array, or str
            Values of names in the formula. A float is a scalar, which is converted to the dtype of
            the fields. An array is a declared vector, with the dtype of the fields; a row vector
            has one element for each row of all blocks, in their order. A str is the name of the
            field that replaces this name; in place of a row vector the field has width 1.
        noise : callable, if `z`, `z2` or `u` is read
            Returns the key of the noise, whose `first` is the index of the first element.
        prior : callable, if the prior's gradient is read
            Returns the priors of the blocks, with the dtype of the fields: one prior per block, or
            a single prior if there are neither shifts nor scales. Priors of different blocks may
            differ only in these. The gradient is scale_i Lambda (theta_i - m - shift_i).
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
            If a name is neither a field nor in `values`; an array has the wrong shape, dtype or
            memory order; noise or prior is missing; or a member of the noise key is out of range.
        """
        if gradient is not None and not self._reads_gradient:
            gradient = None
        if gradient is not None and gradient.numbers:
            values = _with_scalars(values, gradient)
        layout = self._layout(batch.blocks[0], values, gradient)
        priors: Sequence[RowPrior] = ()
        if layout.reads_prior:
            if prior is None:
                raise ValueError(
                    "the formula reads the prior: pass prior=lambda: [RowPrior(mean, precision)]"
                )
            priors = prior()
        of_rows: Sequence[RowPrior] = ()
        if priors and _of_rows(priors[0]):
            of_rows = priors
        table = batch.table(layout, of_rows)
        arguments: list[Any] = [table.numbers, table.width]
        arguments += [_vector(name, values, table.width) for name in self.columns]
        arguments += [_vector(name, values, table.rows) for name in layout.rows]
        arguments += [values[name] for name in layout.scalars]
        form = None
        if priors:
            _check_prior(priors[0], table.width)
            form = PriorForm(
                dense=priors[0].precision.ndim == 2,
                shift=priors[0].shift is not None,
                scale=priors[0].scale is not None,
            )
            arguments += [priors[0].mean, priors[0].precision]
        if layout.noise:
            if noise is None:
                raise ValueError(
                    f"the formula reads {layout.noise[0]}: pass noise=lambda: NoiseKey(...)"
                )
            arguments += [stride, *noise_words(noise())]
        return self._run(layout, arguments, table, form)

    def _run(
        self,
        layout: FormulaLayout,
        arguments: list[Any],
        table: AddressTable,
        prior: PriorForm | None,
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
            kernel = layout.kernels.get((table.dtype.char, prior))
            if kernel is None:
                kernel = _compile(layout, table.dtype, prior)
            try:
                kernel(*arguments)
            except TypeError as error:  # Numba raises it if no signature fits
                raise ValueError(
                    f"vectors must be C-contiguous and {table.dtype} like the fields"
                ) from error
        return totals

    def _layout(
        self, arrays: Mapping[str, Array], values: Mapping[str, Any], gradient: Gradient | None
    ) -> FormulaLayout:
        """Return the roles of all names, from a cache if these names occurred before."""
        aliases = tuple([item for item in values.items() if isinstance(item[1], str)])
        definitions = None
        if gradient is not None:
            definitions = (gradient.total, gradient.likelihood)
        key = (tuple(arrays), tuple(values), aliases, definitions)
        layout = self._layouts.get(key)
        if layout is None:
            body = self._with_gradient(gradient)
            layout = self._new_layout(body, arrays, values, dict(aliases))
            self._layouts[key] = layout
        return layout

    def _with_gradient(self, gradient: Gradient | None) -> Assignments:
        """Return the formula's lines with definitions of `grad` and `grad_likelihood`, if read."""
        if gradient is None:
            gradient = Gradient("")
        body = self._body
        definitions = {"grad": gradient.total, "grad_likelihood": gradient.likelihood}
        for name, expression in definitions.items():
            if name in body.read:
                if not expression:
                    raise ValueError(f"the formula reads {name!r}, which was not computed")
                body = body.with_definition(name, expression)
        return body

    def _new_layout(
        self,
        body: Assignments,
        arrays: Mapping[str, Array],
        values: Mapping[str, Any],
        aliases: dict[str, str],
    ) -> FormulaLayout:
        reads_prior = "grad_prior" in body.read
        names = body.read | body.written
        if reads_prior:
            names |= {PRIOR_AT}
        vectors = {*self.columns, *self.rows}
        scalars = tuple(
            name for name in values if name in names and name not in aliases and name not in vectors
        )
        known = {name: name for name in arrays} | aliases
        # in sorted order, so that all orders of the arrays share one compiled function
        fields = {name: known[name] for name in sorted(names & known.keys() - {*scalars, *vectors})}
        unknown = body.free - {*fields, *scalars, *vectors}
        if unknown:
            raise ValueError(
                f"{min(unknown)!r} is not a field of {', '.join(arrays)}, and is not given"
            )
        fixed = body.written & {*scalars}
        if fixed:
            raise ValueError(f"{min(fixed)!r} cannot be assigned: it is given as a number")
        if not fields:
            first = next(iter(arrays))  # it gives the shape
            fields = {first: first}
        row_fields = {name: aliases[name] for name in self.rows if name in aliases}
        return FormulaLayout(
            formula=self,
            body=body,
            fields=fields,
            scalars=scalars,
            rows=tuple(name for name in self.rows if name not in aliases),
            row_fields=row_fields,
            arrays=(*fields.values(), *row_fields.values()),
            reads_prior=reads_prior,
            noise=tuple(name for name in STREAMS if name in body.read),
            kernels={},
        )


def _with_scalars(values: Mapping[str, Any], gradient: Gradient) -> dict[str, Any]:
    """Add the scalars of the gradient to the values; raise ValueError if a name is in both."""
    if not values.keys().isdisjoint(gradient.numbers):
        taken = min(values.keys() & gradient.numbers.keys())
        raise ValueError(f"{taken!r} is also a scalar of the gradient: rename the formula's scalar")
    return {**values, **gradient.numbers}


def _compile(layout: FormulaLayout, dtype: np.dtype[Any], prior: PriorForm | None) -> Any:
    """Compile the function for one dtype and form of the prior, and keep it in the layout."""
    if dtype not in (np.float32, np.float64):
        raise ValueError(f"fields are {dtype}; float32 or float64 is needed")
    source = formula_source(layout._replace(dtype=dtype.name, prior=prior))
    kernel = jit.compile_source("formula", source).formula
    layout.kernels[dtype.char, prior] = kernel
    return kernel


def _check_prior(prior: RowPrior, D: int) -> None:
    """Raise ValueError if the mean or the precision of a prior has the wrong shape."""
    mean_shape = prior.mean.shape
    precision_shape = prior.precision.shape
    if mean_shape != (D,) or precision_shape not in ((D,), (D, D)):
        raise ValueError(
            f"the prior's mean and precision have shapes {mean_shape} and {precision_shape},"
            f" but D = {D}"
        )


def _vector(name: str, values: Mapping[str, Any], length: int) -> Array:
    """Return a declared vector; raise ValueError if it is missing or has the wrong shape."""
    vector: Array | None = values.get(name)
    if vector is None:
        raise ValueError(f"{name!r} is missing where a vector ({length},) is needed")
    if vector.shape != (length,):
        raise ValueError(f"{name!r} has shape {vector.shape} where a vector ({length},) is needed")
    return vector
