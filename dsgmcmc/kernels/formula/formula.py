"""Fused elementwise updates, written as in the paper and compiled to one pass.

A `Formula` is a few assignments between arrays of one shape (n, D). Its noise, prior gradient, row and column
vectors and sums are made on the way, so that nothing of the size of the state is written but the fields that
the formula assigns:

>>> sgld = Formula(
...     "theta = theta - eps * (g + prior) + sqrt(2 * eps) * z",
...     fields=("theta", "g"), scalars=("eps",), prior_of="theta",
... )

The compiled function serves every D; its result depends on the arrays' contents and shape alone.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsgmcmc.kernels import jit
from dsgmcmc.kernels.formula.codegen import Layout, formula_source
from dsgmcmc.kernels.formula.parser import Assignments, parse
from dsgmcmc.kernels.philox import NoiseKey, noise_words

Array = NDArray[Any]
_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Formula:
    """Elementwise assignments over (n, D) arrays, compiled when first applied.

    Parameters
    ----------
    source : str
        Assignments, one a line. Operators + - * / and ** with a positive integer literal, functions sqrt,
        abs, minimum, maximum, exp and log. Names that are assigned but not declared are local. `z` is the
        element's standard normal, `prior` the prior's gradient at the field `prior_of` before this pass.
    fields : tuple of str
        (n, D) arrays, float32 or float64, read and, where assigned, written in place.
    scalars, columns, rows : tuple of str
        Numbers, (D,) vectors and (n,) vectors.
    sums, column_sums, row_sums : tuple of str
        Assigned names whose totals are returned: over all elements, per column, per row.
    row_max : tuple of str
        Assigned names whose maximum per row is returned.
    prior_of : str
        The field at which `prior` is taken.

    Raises
    ------
    ValueError
        The source is not such a formula; on construction.
    """

    source: str
    fields: tuple[str, ...]
    scalars: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    sums: tuple[str, ...] = ()
    column_sums: tuple[str, ...] = ()
    row_sums: tuple[str, ...] = ()
    row_max: tuple[str, ...] = ()
    prior_of: str = ""

    def __post_init__(self) -> None:
        if not self.fields:
            raise ValueError("a formula needs a field")
        body = self._body
        if ("prior" in body.read) != bool(self.prior_of):
            raise ValueError("`prior` is read if and only if `prior_of` says at which field")
        if self.prior_of and self.prior_of not in self.fields:
            raise ValueError(f"prior_of = {self.prior_of!r} is no field")
        totals = [*self.sums, *self.column_sums, *self.row_sums, *self.row_max]
        for name in totals:
            if name not in body.written:
                raise ValueError(f"the total of {name!r} is asked for, which the formula does not assign")
        if len(set(totals)) != len(totals):
            raise ValueError(f"two totals of one name among {totals}; assign it to a second name")

    @functools.cached_property
    def _body(self) -> Assignments:
        declared = (*self.fields, *self.scalars, *self.columns, *self.rows, "z", "prior")
        return parse(self.source, declared, self.fields)

    def apply(
        self,
        fields: Mapping[str, Array],
        *,
        scalars: Mapping[str, float] = _NOTHING,
        columns: Mapping[str, Array] = _NOTHING,
        rows: Mapping[str, Array] = _NOTHING,
        noise: NoiseKey | None = None,
        prior: tuple[Array, Array] | None = None,
    ) -> dict[str, Any]:
        """Run the formula over all elements, in place.

        Parameters
        ----------
        fields : mapping of str to (n, D) array
            C-contiguous, all float32 or all float64, none overlapping another.
        scalars : mapping of str to float
            Taken in the fields' dtype.
        columns, rows : mapping of str to (D,) and (n,) arrays
            Of the fields' dtype.
        noise : NoiseKey, if `z` is read
            `first` names the first element.
        prior : (mean, precision), if `prior` is read
            Mean m (D,) and precision (D,): the gradient is precision[k] (x[k] - m[k]). Or precision (D, D),
            symmetric: it is sum_l precision[k, l] (x[l] - m[l]). Of the fields' dtype.

        Returns
        -------
        totals : dict of str to float or float64 array
            By name: a float for `sums`, (D,) for `column_sums`, (n,) for `row_sums` and `row_max`.

        Raises
        ------
        KeyError
            An array or a scalar is missing.
        ValueError
            An array has the wrong shape, dtype or order; noise or prior is missing; the noise's numbers are out of
            range.
        """
        arrays = [fields[name] for name in self.fields]
        shape, dtype = arrays[0].shape, arrays[0].dtype
        n, D = shape
        for name, array in zip(self.fields, arrays, strict=True):
            if array.shape != shape:
                raise ValueError(f"field {name!r} has shape {array.shape}, the first one {shape}")
        arguments: list[Any] = arrays
        arguments += [_vector(name, columns[name], D) for name in self.columns]
        arguments += [_vector(name, rows[name], n) for name in self.rows]
        arguments += [scalars[name] for name in self.scalars]
        kind = ""
        if self.prior_of:
            if prior is None:
                raise ValueError("the formula reads the prior: pass prior=(mean, precision)")
            mean, precision = prior
            if mean.shape != (D,) or precision.shape not in ((D,), (D, D)):
                raise ValueError(f"prior of shapes {mean.shape} and {precision.shape} where D = {D}")
            kind = "diagonal" if precision.ndim == 1 else "dense"
            arguments += prior
        if "z" in self._body.read:
            if noise is None:
                raise ValueError("the formula reads z: pass noise=NoiseKey(...)")
            arguments += noise_words(noise)
        totals: dict[str, Any] = {name: np.zeros(D) for name in self.column_sums}
        for name in (*self.row_sums, *self.row_max):
            totals[name] = np.zeros(n)
        arguments += totals.values()
        if self.sums:
            sums = np.zeros(len(self.sums))
            arguments.append(sums)
        if n == 0 or D == 0:
            return totals | dict.fromkeys(self.sums, 0.0)
        try:
            self._kernel(dtype, kind)(*arguments)
        except TypeError as error:  # what Numba says when no signature fits
            raise ValueError(f"arrays must be C-contiguous and {dtype} like the first field") from error
        if self.sums:
            totals.update(zip(self.sums, sums.tolist(), strict=True))
        return totals

    def _kernel(self, dtype: np.dtype[Any], prior: str) -> Any:
        """Return the compiled function for one dtype and kind of prior, compiling it where needed."""
        kernel = self._kernels.get((dtype.char, prior))  # `char` is quick, and this is called all the time
        if kernel is None:
            if dtype not in (np.float32, np.float64):
                raise ValueError(f"fields are {dtype}; float32 or float64 is needed")
            layout = Layout(
                body=self._body,
                fields=self.fields,
                scalars=self.scalars,
                columns=self.columns,
                rows=self.rows,
                sums=self.sums,
                column_sums=self.column_sums,
                row_sums=self.row_sums,
                row_max=self.row_max,
                prior_of=self.prior_of,
                prior=prior,
                noise="z" in self._body.read,
                dtype=dtype.name,
            )
            kernel = jit.compile_source("formula", formula_source(layout)).formula
            self._kernels[dtype.char, prior] = kernel
        return kernel

    @functools.cached_property
    def _kernels(self) -> dict[tuple[str, str], Any]:
        return {}


def _vector(name: str, vector: Array, length: int) -> Array:
    if vector.shape != (length,):
        raise ValueError(f"{name!r} has shape {vector.shape} where ({length},) is needed")
    return vector
