"""Fused elementwise updates, written as in the paper and compiled to one pass.

A `Formula` is a few assignments between arrays of one shape (n, D). Its noise, prior gradient, row and column
vectors and sums are made on the way, so that nothing of the size of the state is written but the fields that
the formula assigns:

>>> sgld = Formula("theta = theta - eps * grad + noise * z")

Every name is said once, here: it is a field if the block that the formula is applied to has a field of that name, a
scalar if it comes with a number, else the formula's own, and then assigned before it is read. Only vectors are
declared, because a shape cannot tell a row's from a column's where n = D.

The compiled function serves every D; its result depends on the arrays' contents and shape alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.kernels import jit
from dsgmcmc.kernels.formula.batch import Batch, Table, Wanted
from dsgmcmc.kernels.formula.codegen import ArgumentLayout, PriorKind, formula_source
from dsgmcmc.kernels.formula.parser import Assignments, parse
from dsgmcmc.kernels.philox import NoiseKey, noise_words
from dsgmcmc.types import Array

_NOTHING: Mapping[str, Any] = MappingProxyType({})

#: Where the gradient of the prior is taken.
PRIOR_AT = "theta"


class Gradient(NamedTuple):
    """Definition of `grad` and `grad_likelihood`: expressions of fields, and the numbers in them."""

    total: str
    likelihood: str = ""
    numbers: Mapping[str, float] = _NOTHING


class RowPrior(NamedTuple):
    """Normal prior of rows theta_i: mean m + shift_i and precision Lambda.

    Attributes
    ----------
    mean : (D,) array
        m.
    precision : (D,) or (D, D) array
        Lambda: its diagonal, or all of it, symmetric.
    shift : (n, D) array, optional
        What the mean of every row has besides; none if not given.
    """

    mean: Array
    precision: Array
    shift: Array | None = None


class _Roles(NamedTuple):
    """Roles of the names of a formula, for one set of arrays and numbers."""

    body: Assignments
    arrays: Wanted
    scalars: tuple[str, ...]
    rows: tuple[str, ...]  # row vectors of which each block has its own
    vectors: tuple[str, ...]  # those of all blocks together
    reads_prior: bool
    reads_noise: bool
    kernels: dict[tuple[str, PriorKind | None], Any]  # by the arrays' dtype and what the prior has


@dataclass(frozen=True)
class Formula:
    """Elementwise assignments over (n, D) arrays, compiled when first applied.

    Parameters
    ----------
    source : str
        Assignments, one a line. Operators + - * / and ** with a positive integer literal, functions sqrt,
        abs, minimum, maximum, exp and log. Built in are `z`, the element's standard normal; `grad`, the gradient of
        the energy, and `grad_likelihood`, its part without the prior, as they were taken last; `grad_prior`, the
        gradient of the prior's energy at field `theta` before this pass.
    columns, rows : tuple of str
        Names of (D,) vectors and of (n,) vectors.
    sums, column_sums, row_sums : tuple of str
        Assigned names whose totals are returned: over all elements, per column, per row.
    row_max : tuple of str
        Assigned names whose maximum per row is returned.

    Raises
    ------
    ValueError
        The source is not such a formula; on construction.
    """

    source: str
    columns: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    sums: tuple[str, ...] = ()
    column_sums: tuple[str, ...] = ()
    row_sums: tuple[str, ...] = ()
    row_max: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        body = self._body
        totals = [*self.sums, *self.column_sums, *self.row_sums, *self.row_max]
        for name in totals:
            if name not in body.written:
                raise ValueError(f"the total of {name!r} is asked for, which the formula does not assign")
        if len(set(totals)) != len(totals):
            raise ValueError(f"two totals of one name among {totals}; assign it to a second name")

    @functools.cached_property
    def _body(self) -> Assignments:
        return parse(self.source, (*self.columns, *self.rows))

    @functools.cached_property
    def _reads_gradient(self) -> bool:
        return not self._body.read.isdisjoint(("grad", "grad_likelihood"))

    @functools.cached_property
    def _of_rows(self) -> tuple[str, ...]:
        """Totals of which every row has one."""
        return (*self.row_sums, *self.row_max)

    @functools.cached_property
    def _roles(self) -> dict[tuple[Any, ...], _Roles]:
        return {}

    def of_one(self, totals: dict[str, Any]) -> dict[str, Any]:
        """Totals of a batch of one block: a float for `sums`, (D,) for `column_sums`; the others as they are."""
        return totals and {name: total if name in self._of_rows else total[0] for name, total in totals.items()}

    def apply(
        self,
        batch: Batch,
        given: Mapping[str, Any] = _NOTHING,
        *,
        noise: NoiseKey | None = None,
        prior: Callable[[], Sequence[RowPrior]] | None = None,
        gradient: Gradient | None = None,
        stride: int = 0,
    ) -> dict[str, Any]:
        """Run the formula over all elements of all blocks of a batch, in place, in one call.

        Parameters
        ----------
        batch : Batch
            The blocks. Their arrays are fields, of which the formula may name some: (n, D), C-contiguous, all float32
            or all float64, none overlapping another.
        given : mapping of str to float, (D,) or (n,) array, or str
            Scalars, taken in the fields' dtype; declared vectors, of the fields' dtype, row vectors for the rows of all
            blocks, one after the other; or, as a str, the name of the field that stands for this name, of width 1 if it
            stands for a row vector.
        noise : NoiseKey, if `z` is read
            `first` names the first element.
        prior : callable, if the prior's gradient is read
            The blocks' priors, of the fields' dtype, of which only the shifts may differ: one for each block, or one if
            there are no shifts. The gradient is Lambda (theta_i - m - shift_i).
        gradient : Gradient, if `grad` or `grad_likelihood` is read
            What they mean.
        stride : int
            Numbers of noise for each row before a block's first.

        Returns
        -------
        totals : dict of str to float64 array
            By name: (blocks,) for `sums`, (blocks, D) for `column_sums`, (rows of all blocks,) for `row_sums` and
            `row_max`.

        Raises
        ------
        ValueError
            A name is neither a field nor given; an array has the wrong shape, dtype or order; noise or prior is
            missing; the noise's numbers are out of range.
        """
        if gradient is not None and not self._reads_gradient:
            gradient = None
        if gradient is not None and gradient.numbers:
            given = _with_numbers(given, gradient.numbers)
        roles = self._resolved(batch.blocks[0], given, gradient)
        priors, shifts = _priors(roles, prior)
        table = batch.table(roles.arrays, shifts)
        arguments: list[Any] = [table.numbers, table.width]
        arguments += [_vector(name, given, table.width) for name in self.columns]
        arguments += [_vector(name, given, table.rows) for name in roles.vectors]
        arguments += [given[name] for name in roles.scalars]
        kind = None
        if priors:
            kind, arrays_of_prior = _checked(priors[0], table.width, bool(shifts))
            arguments += arrays_of_prior
        if roles.reads_noise:
            if noise is None:
                raise ValueError("the formula reads z: pass noise=NoiseKey(...)")
            arguments += (stride, *noise_words(noise))
        return self._run(roles, arguments, table, kind)

    def _run(self, roles: _Roles, arguments: list[Any], table: Table, kind: PriorKind | None) -> dict[str, Any]:
        """Call the compiled function, and name its totals."""
        totals: dict[str, Any] = {}
        blocks = len(table.numbers)
        for name in self.column_sums:
            totals[name] = np.zeros((blocks, table.width))
        for name in self._of_rows:
            totals[name] = np.zeros(table.rows)
        arguments += totals.values()
        if self.sums:
            sums = np.zeros((len(self.sums), blocks))
            arguments.append(sums)
            totals.update(zip(self.sums, sums, strict=True))
        if table.rows and table.width:
            try:
                self._kernel(roles, table.dtype, kind)(*arguments)
            except TypeError as error:  # what Numba says when no signature fits
                raise ValueError(f"vectors must be C-contiguous and {table.dtype} like the fields") from error
        return totals

    def _resolved(self, arrays: Mapping[str, Array], given: Mapping[str, Any], gradient: Gradient | None) -> _Roles:
        """Tell what every name is; quick when it was told before."""
        aliases = tuple([item for item in given.items() if isinstance(item[1], str)])
        key = (tuple(arrays), tuple(given), aliases, gradient and gradient[:2])
        roles = self._roles.get(key)
        if roles is None:
            roles = self._roles[key] = self._resolve(arrays, given, dict(aliases), gradient)
        return roles

    def _resolve(
        self,
        arrays: Mapping[str, Array],
        given: Mapping[str, Any],
        aliases: dict[str, str],
        gradient: Gradient | None,
    ) -> _Roles:
        body = self._body
        for name, expression in (("grad", gradient and gradient.total), ("grad_likelihood", gradient and gradient[1])):
            if name in body.read:
                if not expression:
                    raise ValueError(f"the formula reads {name!r}, which was not taken")
                body = body.with_definition(name, expression)
        names = body.read | body.written | ({PRIOR_AT} if "grad_prior" in body.read else set())
        vectors = {*self.columns, *self.rows}
        scalars = tuple(name for name in given if name in names and name not in aliases and name not in vectors)
        known = aliases | {name: name for name in arrays if name not in aliases}
        fields = {name: array for name, array in known.items() if name in names and name not in {*scalars, *vectors}}
        for name in sorted(body.free - {*fields, *scalars, *vectors}):
            raise ValueError(f"{name!r} is no field of {', '.join(arrays)}, and is not given")
        for name in sorted(body.written & {*scalars}):
            raise ValueError(f"{name!r} cannot be assigned: it is given as a number")
        for name in sorted({*aliases.values()} - {*arrays}):
            raise ValueError(f"{name!r} is no field of {', '.join(arrays)}")
        if "grad_prior" in body.read and PRIOR_AT not in fields:
            raise ValueError(f"the prior's gradient is taken at field {PRIOR_AT!r}, which there is not")
        if not fields:  # the first one gives the shape
            fields = {name: name for name in list(arrays)[:1]}
        rows = tuple(name for name in self.rows if name in aliases)
        fields_of_rows = tuple(aliases[name] for name in rows)
        wanted = Wanted(fields, fields_of_rows, (*fields.values(), *fields_of_rows))
        together = tuple(name for name in self.rows if name not in aliases)
        return _Roles(body, wanted, scalars, rows, together, "grad_prior" in body.read, "z" in body.read, {})

    def _kernel(self, roles: _Roles, dtype: np.dtype[Any], prior: PriorKind | None) -> Any:
        """Return the compiled function for one dtype and kind of prior, compiling it where needed."""
        kernel = roles.kernels.get((dtype.char, prior))  # `char` is quick, and this is called all the time
        if kernel is None:
            if dtype not in (np.float32, np.float64):
                raise ValueError(f"fields are {dtype}; float32 or float64 is needed")
            layout = ArgumentLayout(
                body=roles.body,
                fields=tuple(roles.arrays.fields),
                scalars=roles.scalars,
                columns=self.columns,
                rows=roles.vectors,
                row_fields=roles.rows,
                sums=self.sums,
                column_sums=self.column_sums,
                row_sums=self.row_sums,
                row_max=self.row_max,
                prior_at=PRIOR_AT,
                prior=prior,
                noise=roles.reads_noise,
                dtype=dtype.name,
            )
            kernel = jit.compile_source("formula", formula_source(layout)).formula
            roles.kernels[dtype.char, prior] = kernel
        return kernel


def _with_numbers(given: Mapping[str, Any], numbers: Mapping[str, float]) -> dict[str, Any]:
    """Combine the numbers that are given with those of a gradient."""
    combined = {**given, **numbers}
    if len(combined) < len(given) + len(numbers):
        taken = min(given.keys() & numbers.keys())
        raise ValueError(f"{taken!r} is a number of the gradient: call the formula's own by another name")
    return combined


def _priors(
    roles: _Roles, prior: Callable[[], Sequence[RowPrior]] | None
) -> tuple[Sequence[RowPrior], Sequence[Array]]:
    """The priors, where they are read, and their shifts."""
    if not roles.reads_prior:
        return (), ()
    if prior is None:
        raise ValueError("the formula reads the prior: pass prior=lambda: RowPrior(mean, precision)")
    priors = prior()
    return priors, [prior.shift for prior in priors if prior.shift is not None]


def _checked(prior: RowPrior, D: int, shifted: bool) -> tuple[PriorKind, list[Array]]:
    """Check the shapes of a prior; return its kind and its arrays."""
    mean, precision, _ = prior
    if mean.shape != (D,) or precision.shape not in ((D,), (D, D)):
        raise ValueError(f"prior of shapes {mean.shape} and {precision.shape} where D = {D}")
    return PriorKind(precision.ndim == 2, shifted), [mean, precision]


def _vector(name: str, given: Mapping[str, Any], length: int) -> Array:
    vector: Array | None = given.get(name)
    if vector is None or vector.shape != (length,):
        problem = "is missing" if vector is None else f"has shape {vector.shape}"
        raise ValueError(f"{name!r} {problem} where a vector ({length},) is needed")
    return vector
