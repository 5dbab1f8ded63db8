"""Elementwise updates, written as in a paper and compiled to one pass over the arrays.

A `Formula` consists of a few assignments between arrays of one shape (n, D). Noise, prior gradients and sums are
computed within the pass, so the only arrays of the size of the state that are written are the assigned fields:

>>> sgld = Formula("theta = theta - eps * grad + noise * z")

The arguments determine the role of a name. If a number is given for it, the name is a scalar; if the block has a field
of that name, it is the field. Otherwise it is a local variable, which must be assigned before it is read. Only row and
column vectors are declared, because their shapes do not differ if n = D.

One compiled function serves all D. Its result depends only on the contents and shapes of the arrays.
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

#: The field at which the gradient of the prior is taken.
PRIOR_AT = "theta"


class Gradient(NamedTuple):
    """Definitions of `grad` and `grad_likelihood`: expressions in fields, and values of the scalars in them."""

    total: str
    likelihood: str = ""
    numbers: Mapping[str, float] = _NOTHING


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


class _Roles(NamedTuple):
    """Roles of the names in a formula, for given names of arrays and numbers."""

    body: Assignments
    arrays: Wanted
    scalars: tuple[str, ...]
    rows: tuple[str, ...]  # row vectors that are fields of the blocks
    vectors: tuple[str, ...]  # row vectors given as one array for all blocks
    reads_prior: bool
    reads_noise: bool
    kernels: dict[tuple[str, PriorKind | None], Any]  # by dtype of the arrays and kind of prior


@dataclass(frozen=True)
class Formula:
    """Elementwise assignments over (n, D) arrays, compiled when first applied.

    Parameters
    ----------
    source : str
        Assignments, one per line, with the operators + - * / and ** (exponent: a positive integer literal) and the
        functions sqrt, abs, minimum, maximum, exp and log. Four names are built in: `z`, a standard normal for every
        element; `grad`, the latest gradient of the energy; `grad_likelihood`, its part without the prior; and
        `grad_prior`, the gradient of the prior's energy at the field `theta`, as it is before this pass.
    columns, rows : tuple of str
        Names of (D,) vectors and of (n,) vectors.
    sums, column_sums, row_sums : tuple of str
        Assigned names whose sums are returned: over all elements, per column, or per row.
    row_max : tuple of str
        Assigned names whose maximum per row is returned.
    """

    source: str
    columns: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    sums: tuple[str, ...] = ()
    column_sums: tuple[str, ...] = ()
    row_sums: tuple[str, ...] = ()
    row_max: tuple[str, ...] = ()

    @functools.cached_property
    def _body(self) -> Assignments:
        return parse(self.source, (*self.columns, *self.rows))

    @functools.cached_property
    def _reads_gradient(self) -> bool:
        return not self._body.read.isdisjoint(("grad", "grad_likelihood"))

    @functools.cached_property
    def _of_rows(self) -> tuple[str, ...]:
        """Totals with one value per row."""
        return (*self.row_sums, *self.row_max)

    @functools.cached_property
    def _roles(self) -> dict[tuple[Any, ...], _Roles]:
        return {}

    def of_one(self, totals: dict[str, Any]) -> dict[str, Any]:
        """Totals for a batch of one block: floats for `sums`, (D,) for `column_sums`; totals per row are unchanged."""
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
            The blocks. Their arrays are the fields that the formula may name: (n, D), C-contiguous, all float32 or all
            float64, none overlapping another.
        given : mapping of str to float, (D,) or (n,) array, or str
            A float is a scalar, which is converted to the dtype of the fields. An array is a declared vector, with the
            dtype of the fields; a row vector has one element for each row of all blocks, in their order. A str is the
            name of the field that replaces this name; in place of a row vector the field has width 1.
        noise : NoiseKey, if `z` is read
            `first` names the first element.
        prior : callable, if the prior's gradient is read
            Returns the priors of the blocks, with the dtype of the fields: one prior per block, or a single prior if
            there are no shifts. Priors of different blocks may differ only in their shifts. The gradient is
            Lambda (theta_i - m - shift_i).
        gradient : Gradient, if `grad` or `grad_likelihood` is read
            Definitions of `grad` and `grad_likelihood`.
        stride : int
            The noise of a block whose first row has number s begins at element `noise.first` + s * `stride`.

        Returns
        -------
        totals : dict of str to float64 array
            By name: (blocks,) for `sums`, (blocks, D) for `column_sums`, (rows of all blocks,) for `row_sums` and
            `row_max`.

        Raises
        ------
        ValueError
            If a name is neither a field nor given; an array has the wrong shape, dtype or memory order; noise or prior
            is missing; or the numbers of the noise are out of range.
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
        """Call the compiled function, and return its totals by name."""
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
            except TypeError as error:  # Numba raises it if no signature fits
                raise ValueError(f"vectors must be C-contiguous and {table.dtype} like the fields") from error
        return totals

    def _resolved(self, arrays: Mapping[str, Array], given: Mapping[str, Any], gradient: Gradient | None) -> _Roles:
        """Return the roles of all names, from a cache if these names occurred in an earlier call."""
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
        if not fields:  # the first array gives the shape
            fields = {name: name for name in list(arrays)[:1]}
        rows = tuple(name for name in self.rows if name in aliases)
        fields_of_rows = tuple(aliases[name] for name in rows)
        wanted = Wanted(fields, fields_of_rows, (*fields.values(), *fields_of_rows))
        together = tuple(name for name in self.rows if name not in aliases)
        return _Roles(body, wanted, scalars, rows, together, "grad_prior" in body.read, "z" in body.read, {})

    def _kernel(self, roles: _Roles, dtype: np.dtype[Any], prior: PriorKind | None) -> Any:
        """Return the compiled function for one dtype and kind of prior, compiling it where needed."""
        kernel = roles.kernels.get((dtype.char, prior))  # `char` is faster than the dtype, and calls are frequent
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
    """Combine the given numbers with the numbers of a gradient."""
    combined = {**given, **numbers}
    if len(combined) < len(given) + len(numbers):
        taken = min(given.keys() & numbers.keys())
        raise ValueError(f"{taken!r} is a number of the gradient: call the formula's own by another name")
    return combined


def _priors(
    roles: _Roles, prior: Callable[[], Sequence[RowPrior]] | None
) -> tuple[Sequence[RowPrior], Sequence[Array]]:
    """Return the priors and their shifts; both are empty if the formula does not read the prior."""
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
