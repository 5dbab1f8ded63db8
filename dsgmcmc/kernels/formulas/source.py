"""Generates the source of a formula's function: loops over blocks, chunks of rows, and elements.

A table contains the addresses of the arrays of every block
(`dsgmcmc.kernels.formulas.formula.Batch`). The function divides a block into chunks of whole rows,
about `CHUNK` elements, which fit into the first-level cache. For each chunk it computes the noise
and the gradient of a dense prior, and repeats the elements of row vectors along their rows. Column
vectors are repeated to the length of a chunk only once. Then one unit-stride loop evaluates the
formula. All its loads precede its stores, so the compiler can use vector instructions. Sums are
float64. Sums per column are accumulated for each position in a chunk, and combined at the end of a
block; totals per row are computed after each chunk.

Chunks and the order of sums depend only on the shape, so a block's result does not depend on the
other blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from dsgmcmc.kernels.compiling.jit import indented
from dsgmcmc.kernels.formulas.parser import Assignments, functions
from dsgmcmc.kernels.philox import STREAMS, groups_module

#: Maximum number of elements of a chunk, if a row is not longer. A few float32 arrays of this
#: length fit a first-level cache.
CHUNK = 2048

#: The field at which the gradient of the prior is computed.
PRIOR_AT = "theta"

#: Arguments that describe the noise, and their types.
_NOISE = dict.fromkeys(("_stride", "_first"), "int64")
_NOISE |= dict.fromkeys(("_c1", "_c2", "_c3", "_k0", "_k1"), "uint64")


class PriorForm(NamedTuple):
    """Whether a prior's precision is a full matrix, and what differs between rows.

    Every row may shift the mean, and may multiply the precision by a scale.
    """

    dense: bool
    shift: bool
    scale: bool = False


@dataclass(frozen=True)
class DeclaredFormula:
    """What a formula declares; the attributes are those of `Formula`."""

    source: str
    columns: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    sums: tuple[str, ...] = ()
    column_sums: tuple[str, ...] = ()
    row_sums: tuple[str, ...] = ()


class FormulaLayout(NamedTuple):
    """Roles of the names in a formula, for given names of arrays and numbers.

    Attributes
    ----------
    formula : DeclaredFormula
    body : Assignments
        The formula's lines, after definitions of the gradient have been inserted.
    fields : mapping of str to str
        Names of (n, D) arrays, by their names in the formula; the first array determines D and the
        dtype.
    scalars : tuple of str
        Names of numbers.
    rows : tuple of str
        Names of row vectors that are given as one array for all blocks.
    row_fields : mapping of str to str
        Names of (n, 1) arrays that are row vectors, by their names in the formula.
    arrays : tuple of str
        Names of the arrays of a block, `fields` first.
    reads_prior : bool
    noise : tuple of str
        The random numbers that the formula reads, of `dsgmcmc.kernels.philox.STREAMS`.
    kernels : dict
        Compiled functions, by dtype of the arrays and form of the prior.
    dtype : str
        Dtype of the arrays of one compiled function.
    prior : PriorForm, optional
        Form of the prior of one compiled function; None if the formula does not read it.
    """

    formula: DeclaredFormula
    body: Assignments
    fields: Mapping[str, str]
    scalars: tuple[str, ...]
    rows: tuple[str, ...]
    row_fields: Mapping[str, str]
    arrays: tuple[str, ...]
    reads_prior: bool
    noise: tuple[str, ...]
    kernels: dict[tuple[str, PriorForm | None], Any]
    dtype: str = ""
    prior: PriorForm | None = None

    @property
    def vectors(self) -> tuple[str, ...]:
        """Names of all row vectors."""
        return (*self.rows, *self.row_fields)

    @property
    def is_dense(self) -> bool:
        """Whether the prior is read, and its precision is a full matrix."""
        return self.prior is not None and self.prior.dense

    @property
    def is_diagonal(self) -> bool:
        """Whether the prior is read, and its precision is a diagonal."""
        return self.prior is not None and not self.prior.dense

    @property
    def is_shifted(self) -> bool:
        """Whether the prior is read, and every row shifts its mean."""
        return self.prior is not None and self.prior.shift

    @property
    def is_scaled(self) -> bool:
        """Whether the prior is read, and every row multiplies its precision."""
        return self.prior is not None and self.prior.scale


def formula_source(layout: FormulaLayout) -> str:
    """Source of ``formula(table, D, columns, rows, scalars, prior, noise, totals)``.

    Names are in declared order.
    """
    parts = [
        functions(layout.dtype),
        "from numba import carray\nfrom dsgmcmc.kernels.compiling.vectors import pointer\n",
    ]
    for groups in dict.fromkeys(STREAMS[name][0] for name in layout.noise):
        parts.append(f"from {groups_module(groups).__name__} import {groups}\n")
    chunk = [*_chunk(layout), "for _i in range(_size):", *indented(_element(layout))]
    chunk += _row_totals(layout)
    block = [*_located(layout), "for _row in range(0, _n, _step):", *indented(chunk)]
    block += _block_totals(layout)
    lines = [*_working_arrays(layout), "for _block in range(_table.shape[0]):", *indented(block)]
    parts.append("\n".join((*_signature(layout), *indented(lines))))
    return "\n\n".join(parts) + "\n"


def _signature(layout: FormulaLayout) -> list[str]:
    """Lines with the decorator and the ``def`` of the function."""
    vector = f"{layout.dtype}[::1]"
    matrix = f"{layout.dtype}[:, ::1]"
    types = {"_table": "int64[:, ::1]", "_D": "int64"}
    types |= {f"_c_{name}": vector for name in layout.formula.columns}
    types |= {f"_all_{name}": vector for name in layout.rows}
    types |= dict.fromkeys(layout.scalars, "float64")
    if layout.prior:
        types |= {"_mean": vector, "_precision": matrix if layout.prior.dense else vector}
    if layout.noise:
        types |= _NOISE
    types |= {f"_totals_{name}": "float64[:, ::1]" for name in layout.formula.column_sums}
    types |= {f"_totals_{name}": "float64[::1]" for name in layout.formula.row_sums}
    if layout.formula.sums:
        types["_sums"] = "float64[:, ::1]"
    return [f'@kernel("void({", ".join(types.values())})")', f"def formula({', '.join(types)}):"]


def _working_arrays(layout: FormulaLayout) -> list[str]:
    """Lines that make the working arrays for the longest chunk, and repeat column vectors."""
    dtype = layout.dtype
    lines = [
        "_longest = 1",
        "for _block in range(_table.shape[0]):",
        f"    _longest = max(_longest, min(_table[_block, 0], {CHUNK} // _D))",
        "_most = _longest * _D",
    ]
    lines += [f"{name} = {dtype}({name})" for name in layout.scalars]
    repeated = [(f"_t_{name}", f"_c_{name}") for name in layout.formula.columns]
    if layout.prior:
        repeated += [("_t_mean", "_mean")]
    if layout.is_diagonal:
        repeated += [("_t_precision", "_precision")]
    lines += [f"{long} = np.empty(_most, np.{dtype})" for long, _ in repeated]
    if repeated:
        lines += ["for _i in range(_longest):", "    for _k in range(_D):"]
        lines += [f"        {long}[_i * _D + _k] = {short}[_k]" for long, short in repeated]
    lines += [f"_e_{name} = np.empty(_most, np.{dtype})" for name in _repeated(layout)]
    if layout.is_dense:
        lines += [
            f"_deviation = np.empty((_longest, _D), np.{dtype})",
            f"_product = np.empty((_longest, _D), np.{dtype})",
            "_prior = _product.reshape(_most)",
        ]
    lines += [f"_a_{name} = np.empty(_most, np.float64)" for name in layout.formula.column_sums]
    lines += [f"_b_{name} = np.empty(_most, np.float64)" for name in layout.formula.row_sums]
    lines += [f"_noise_{name} = np.empty(_most + 128, np.float32)" for name in layout.noise]
    return lines


def _located(layout: FormulaLayout) -> list[str]:
    """Lines that make views of a block's arrays, and set its sums to zero."""
    lines = ["_n = _table[_block, 0]", f"_step = max(1, min(_n, {CHUNK} // _D))"]
    arrays = [(f"_flat_{name}", "_n * _D") for name in layout.fields]
    arrays += [(f"_r_{name}", "_n") for name in layout.row_fields]
    if layout.is_shifted:
        arrays += [("_flat__shift", "_n * _D")]
    if layout.is_scaled:
        arrays += [("_r__scale", "_n")]
    for column, (name, size) in enumerate(arrays, 3):
        lines += [f"{name} = carray(pointer(_table[_block, {column}]), {size}, np.{layout.dtype})"]
    if layout.rows or layout.formula.row_sums:
        lines += ["_before = _table[_block, 2]"]
    lines += [f"_r_{name} = _all_{name}[_before : _before + _n]" for name in layout.rows]
    lines += [
        f"_total_{name} = _totals_{name}[_before : _before + _n]"
        for name in layout.formula.row_sums
    ]
    lines += [f"_total_{name} = _totals_{name}[_block]" for name in layout.formula.column_sums]
    lines += [f"_a_{name}[:] = 0.0" for name in layout.formula.column_sums]
    lines += [f"_s_{name} = 0.0" for name in layout.formula.sums]
    if layout.noise:
        lines += ["_begin = _first + _table[_block, 1] * _stride"]
    return lines


def _chunk(layout: FormulaLayout) -> list[str]:
    """Lines that make views of a chunk's fields, and its arrays.

    These are the noise, repeated row vectors, and a dense prior's gradient.
    """
    lines = ["_rows = min(_step, _n - _row)", "_size = _rows * _D", "_at = _row * _D"]
    lines += [f"_x_{name} = _flat_{name}[_at : _at + _size]" for name in layout.fields]
    if layout.noise:
        lines += ["_e = _begin + _at", "_group = _e >> 6"]
    for name in layout.noise:
        groups, bits = STREAMS[name]
        counter = f"_c1 | uint64({bits << 24}), _c2, _c3, _k0, _k1"
        lines += [
            f"{groups}(_noise_{name}, _group, ((_e + _size + 63) >> 6) - _group, {counter})",
            f"_{name} = _noise_{name}[_e & 63 : (_e & 63) + _size]",
        ]
    repeated = _repeated(layout)
    if repeated:
        lines += ["for _i in range(_rows):", "    for _k in range(_D):"]
        lines += [f"        _e_{name}[_i * _D + _k] = _r_{name}[_row + _i]" for name in repeated]
    if layout.is_shifted:
        lines += ["_x__shift = _flat__shift[_at : _at + _size]"]
    if layout.is_dense:
        lines += ["_flat_deviation = _deviation.reshape(_most)", "for _i in range(_size):"]
        lines += [f"    _flat_deviation[_i] = {_deviation(layout, f'_x_{PRIOR_AT}[_i]')}"]
        lines += ["np.dot(_deviation[:_rows], _precision, _product[:_rows])"]
    return lines


def _element(layout: FormulaLayout) -> list[str]:
    """Lines of the loop over elements: loads, formula, stores."""
    lines = [f"{name} = _x_{name}[_i]" for name in layout.fields]
    lines += [f"{name} = _t_{name}[_i]" for name in layout.formula.columns]
    lines += [f"{name} = _e_{name}[_i]" for name in layout.vectors]
    lines += [f"{name} = {layout.dtype}(_{name}[_i])" for name in layout.noise]
    if layout.is_dense:
        lines += ["grad_prior = _prior[_i]"]
    if layout.is_diagonal:
        lines += [f"grad_prior = _t_precision[_i] * ({_deviation(layout, PRIOR_AT)})"]
    if layout.is_scaled:
        lines += ["grad_prior = _e__scale[_i] * grad_prior"]
    lines += layout.body.lines
    lines += [f"_x_{name}[_i] = {name}" for name in layout.fields if name in layout.body.written]
    lines += [f"_s_{name} += float64({name})" for name in layout.formula.sums]
    lines += [f"_a_{name}[_i] += float64({name})" for name in layout.formula.column_sums]
    lines += [f"_b_{name}[_i] = float64({name})" for name in layout.formula.row_sums]
    return lines


def _repeated(layout: FormulaLayout) -> list[str]:
    """Names of the vectors over rows that are repeated along rows, the prior's scale included."""
    names = list(layout.vectors)
    if layout.is_scaled:
        names.append("_scale")
    return names


def _deviation(layout: FormulaLayout, theta: str) -> str:
    """Expression for an element minus its prior mean; `theta` is the expression for the element."""
    if layout.is_shifted:
        return f"{theta} - _t_mean[_i] - _x__shift[_i]"
    return f"{theta} - _t_mean[_i]"


def _row_totals(layout: FormulaLayout) -> list[str]:
    """Lines that compute the sums of the chunk's rows."""
    lines = []
    for name in layout.formula.row_sums:
        lines += [
            "for _i in range(_rows):",
            f"    _value = _b_{name}[_i * _D]",
            "    for _k in range(1, _D):",
            f"        _value += _b_{name}[_i * _D + _k]",
            f"    _total_{name}[_row + _i] = _value",
        ]
    return lines


def _block_totals(layout: FormulaLayout) -> list[str]:
    """Lines that store a block's sums, and combine its sums per column."""
    lines = [
        f"_sums[{position}, _block] = _s_{name}"
        for position, name in enumerate(layout.formula.sums)
    ]
    if layout.formula.column_sums:
        lines += ["for _i in range(_step):", "    for _k in range(_D):"]
        lines += [
            f"        _total_{name}[_k] += _a_{name}[_i * _D + _k]"
            for name in layout.formula.column_sums
        ]
    return lines
