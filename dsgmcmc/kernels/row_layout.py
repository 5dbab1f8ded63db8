"""Source of the passes over a cell's ratings, row by row: predictors, and gradients of both sides.

With eta = W_i . H_j + a_i + b_j and e the score of a rating,

    out_w[i] -= e * (H_j, 1)        out_h[j] -= e * (W_i, 1)

A row of 33 numbers would cross cache lines at every load and store. A kernel therefore copies each
row into a *record*: theta and its gradient, padded to vectors and cache lines. The records of all
columns are made when the kernel starts, first theta of every column, then the gradients, which are
added to `out_h` when it ends. A row has a record while its ratings are processed. If the last
vector has room for both biases, it contains them:

    (W_i, a_i, 1) . (H_j, 1, b_j) = W_i . H_j + a_i + b_j

Otherwise the biases of columns follow all records, as pairs of value and gradient. A vector fills
1, 2, 4 or 8 registers, because few wide vectors compile faster than many. Predictors are summed
four ratings at a time (`dsgmcmc.kernels.compiling.vectors.sums_of`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from math import ceil
from typing import Any, NamedTuple

from dsgmcmc.kernels.compact_ratings import COLUMN, RATINGS
from dsgmcmc.kernels.compiling import jit
from dsgmcmc.kernels.compiling.jit import indented

#: Number of float32 in a cache line.
LINE = 16

#: Number of registers for a row, and for its gradient; longer rows are processed in blocks.
REGISTERS = 8

#: How many ratings ahead the records of columns are prefetched.
AHEAD = 16

#: How many rows ahead rows are prefetched.
ROWS_AHEAD = 4

#: Number of float32 that fit into any second-level cache: if all records fit, they are not
#: prefetched.
SECOND_LEVEL = 1 << 18

#: Number of float32 in half a first-level cache, which the columns of a group of ratings may fill.
HALF_FIRST_LEVEL = 1 << 12

#: Expressions for the column of a rating, and for that of a rating that may be beyond the last one.
COLUMN_OF = "column(indices, halves, {})"
COLUMN_UP_TO = "column(indices, halves, min({}, final - uint64(1)))"

#: Expression for the column of a rating in a group; `by_groups` stores the columns in
#: ``group_columns``.
IN_GROUP = "uint64(group_columns[{} - base])"


@dataclass(frozen=True)
class Record:
    """Layout of a row's record.

    Attributes
    ----------
    rank : int
        K, at most 512; 0 only with biases.
    biases : bool
        Whether rows have a bias, in column K of D = K + 1.
    split : bool
        Whether rows without biases have one more column, D = K + 1, which follows all records as
        biases do if there is no room: for K a multiple of 8, where it would fill a vector of its
        own.
    sides : str
        Sides whose gradients are computed: "wh", or "" for predictors only; without predictors also
        only rows, "w", or columns, "h".
    """

    rank: int
    biases: bool
    split: bool = False
    sides: str = "wh"

    def __post_init__(self) -> None:
        if not 1 - self.biases <= self.rank <= 512:
            raise ValueError(f"rank K = {self.rank} is outside {1 - self.biases} to 512")

    @property
    def dimension(self) -> int:
        """Number D of elements in a row."""
        if self.biases or self.split:
            return self.rank + 1
        return self.rank

    @property
    def inside(self) -> bool:
        """Whether the last vector has room for both biases."""
        return self.biases and ceil((self.rank + 2) / 8) == max(ceil(self.rank / 8), 1)

    @property
    def _used(self) -> int:
        """Number of elements of a record's theta that are not padding."""
        if self.inside:
            return self.rank + 2
        return self.rank

    @cached_property
    def vectors(self) -> list[tuple[int, int]]:
        """First elements and widths of the vectors of theta."""
        return self._spans(ceil(self._used / 8) * 8)

    @cached_property
    def _register(self) -> int:
        """Number of float32 in a register."""
        from dsgmcmc.kernels.compiling.compiler import vector_width  # imports Numba

        return vector_width()

    def _spans(self, length: int) -> list[tuple[int, int]]:
        """First elements and widths of the vectors that cover `length` elements, the widest first.

        `length` is a multiple of 8.
        """
        spans = []
        at = 0
        width = REGISTERS * self._register
        while at < length:
            if at + width <= length:
                spans.append((at, width))
                at += width
            else:
                width //= 2
        return spans

    @property
    def half(self) -> int:
        """Number of float32 of theta, and of its gradient, in a record."""
        length = sum(self.vectors[-1])
        if length <= LINE // 2:
            return length
        return ceil(length / LINE) * LINE

    @property
    def group(self) -> int:
        """Number of ratings in a group, a multiple of `LINE`: kernels may score `LINE` at once."""
        return min(max(HALF_FIRST_LEVEL // self.half // LINE * LINE, 32), 128)

    @property
    def _copied(self) -> tuple[list[tuple[int, int]], range]:
        """Vectors that are copied at once, and the columns after them."""
        in_vectors = self.rank // 8 * 8
        return self._spans(in_vectors), range(in_vectors, self.rank)

    @property
    def _blocks(self) -> list[list[tuple[int, int]]]:
        """Vectors in blocks that fit into the registers."""
        most = REGISTERS * self._register
        return [
            [*block]
            for _, block in itertools.groupby(self.vectors, lambda vector: vector[0] // most)
        ]

    # ------------------------------------------------------------------ rows to records and back

    def _filled(self, side: str, theta: str, record: str) -> list[str]:
        """Lines that copy a row of D numbers from `theta` to a record, at `p` and `q`.

        Theta is needed for the other side's gradients, and a gradient starts at zero.
        """
        lines = []
        if self.sides != side:
            lines += self._copied_theta(side, theta, record)
        if side in self.sides:
            lines += [
                f"store({record}, q_sums, {at}, spread(float32(0), {n}))" for at, n in self.vectors
            ]
            if self._apart and side == "h":
                lines += ["records[pairs + j + j + uint64(1)] = float32(0)"]
        return lines

    def _copied_theta(self, side: str, theta: str, record: str) -> list[str]:
        """Lines that copy theta to a record, with the biases in their positions, and zeros."""
        vectors, rest = self._copied
        lines = [f"store({record}, q, {at}, load({theta}, p, {at}, {n}))" for at, n in vectors]
        lines += [f"{record}[q + uint64({k})] = {theta}[p + uint64({k})]" for k in rest]
        if self.inside:
            bias = self._bias_in_record(side)
            one = 2 * self.rank + 1 - bias
            lines += [f"{record}[q + uint64({bias})] = {theta}[p + uint64({self.rank})]"]
            lines += [f"{record}[q + uint64({one})] = float32(1)"]
        padding = range(self._used, sum(self.vectors[-1]))
        lines += [f"{record}[q + uint64({k})] = float32(0)" for k in padding]
        if self._apart and side == "h":
            lines += [f"records[pairs + j + j] = th[p + uint64({self.rank})]"]
        return lines

    def _bias_in_record(self, side: str) -> int:
        """Position of a side's bias in its records; a 1 is at the other side's position."""
        if side == "w":
            return self.rank
        return self.rank + 1

    def _emptied(self, side: str, record: str, out: str) -> list[str]:
        """Lines that add the gradient in a record to the row of D numbers at `p` of `out`."""
        if side not in self.sides:
            return []
        vectors, rest = self._copied
        lines = []
        for at, n in vectors:
            sums = f"plus(load({out}, p, {at}, {n}), load({record}, q_sums, {at}, {n}))"
            lines += [f"store({out}, p, {at}, {sums})"]
        lines += [f"{out}[p + uint64({k})] += {record}[q_sums + uint64({k})]" for k in rest]
        last = f"{out}[p + uint64({self.rank})]"
        if self.inside:
            lines += [f"{last} += {record}[q_sums + uint64({self._bias_in_record(side)})]"]
        elif self._apart and side == "w":
            lines += [f"{last} += bias"]
        elif self._apart:
            lines += [f"{last} += records[pairs + j + j + uint64(1)]"]
        return lines

    @property
    def _apart(self) -> bool:
        """Whether the last column, such as the biases, follows all records."""
        return self.split or (self.biases and not self.inside)

    def begin(self) -> list[str]:
        """Lines that begin a kernel: records of all columns, and flat views."""
        column = [
            f"p = j * uint64({self.dimension})",
            f"q = aligned + j * uint64({self.half})",
            f"q_sums = gradients + j * uint64({self.half})",
            *self._filled("h", "th", "records"),
        ]
        lines = ["tw = theta_w.reshape(theta_w.size)", "th = theta_h.reshape(theta_h.size)"]
        if self.sides:
            lines += ["ow = out_w.reshape(out_w.size)", "oh = out_h.reshape(out_h.size)"]
        length = f"columns * uint64({2 * self.half + 2}) + uint64({LINE})"
        return [
            *lines,
            "columns = uint64(theta_h.shape[0])",
            f"records = np.empty({length}, np.float32)",
            f"aligned = {aligned('records')}",
            f"gradients = aligned + columns * uint64({self.half})",
            f"pairs = gradients + columns * uint64({self.half})",
            f"far = pairs - aligned > uint64({SECOND_LEVEL})",
            f"row_record = np.empty({2 * self.half + LINE}, np.float32)",
            f"row_start = {aligned('row_record')}",
            "final = uint64(indptr[theta_w.shape[0]])",
            "halves = uint64(indices.size) > final",
            # not a literal: LLVM would unroll the loops over short rows
            "one = uint64(indptr.strides[0] // 8)",
            "for j in range(columns):",
            *indented(column),
        ]

    def end(self) -> list[str]:
        """Lines that end a kernel: they add the gradients in the records of columns to `out_h`."""
        column = [
            f"p = j * uint64({self.dimension})",
            f"q_sums = gradients + j * uint64({self.half})",
        ]
        column += self._emptied("h", "records", "oh")
        return ["for j in range(columns):", *indented(column)]

    # ------------------------------------------------------------- passes over the ratings of a row

    def _row(self, ahead: str) -> list[str]:
        """Lines that make the record of row i, and prefetch a later row of the array `ahead`."""
        last_row = "uint64(theta_w.shape[0] - 1)"
        later = f"min(uint64(i) + uint64({ROWS_AHEAD}), {last_row})"
        return [
            f"p = {later} * uint64({self.dimension})",
            f"prefetch({ahead}, p, {self.dimension}, {LINE})",
            f"p = uint64(i) * uint64({self.dimension})",
            "q = row_start",
            f"q_sums = q + uint64({self.half})",
            *self._filled("w", "tw", "row_record"),
        ]

    def predictors(self, also: Sequence[str] = (), column: str = COLUMN_UP_TO) -> list[str]:
        """Lines that write the predictors of row i's ratings to ``errors``.

        Up to three numbers after them are overwritten. Lines `also` run for every rating r, of
        column j, after its predictor is complete; `column` is the expression for the column of a
        rating.
        """
        lines = self._row("tw")
        if self._apart:
            lines += [f"bias = spread(tw[p + uint64({self.rank})], 4)"]
        last = len(self._blocks) - 1
        for number, block in enumerate(self._blocks):
            four = []
            if number == 0:
                four += self._prefetches()
            four += self._products(block, column, first=number == 0)
            if number == last and also:
                for x in range(4):
                    four += [f"r = s + uint64({x})", f"j = j{x}", *also]
            four += ["s += uint64(4)"]
            lines += [f"w{at} = load(row_record, q, {at}, {n})" for at, n in block]
            lines += ["s = begin", "while s < end:", *indented(four)]
        return lines

    def _products(self, block: list[tuple[int, int]], column: str, first: bool) -> list[str]:
        """Lines that add a block's terms to the predictors of four ratings from s on.

        With the `first` block, predictors begin with the biases that are not in the records.
        """
        widths = sorted({min(width, self._register) for _, width in block})
        lines = []
        for x in range(4):
            lines += [
                f"j{x} = {column.format(f's + uint64({x})')}",
                f"c = aligned + j{x} * uint64({self.half})",
            ]
            lines += [f"d{n}_{x} = spread(float32(0), {n})" for n in widths]
            for at, width in block:
                sums = f"d{min(width, self._register)}_{x}"
                lines += [f"{sums} = times_plus(w{at}, load(records, c, {at}, {width}), {sums})"]
        terms = [f"sums_of({', '.join(f'd{n}_{x}' for x in range(4))})" for n in widths]
        if not first:
            terms += ["load(errors, s - base, 0, 4)"]
        elif self._apart:
            biases = ", ".join(f"records[pairs + j{x} + j{x}]" for x in range(4))
            terms += ["bias", f"four({biases})"]
        return [*lines, f"store(errors, s - base, 0, {reduce('plus({}, {})'.format, terms)})"]

    def _prefetches(self) -> list[str]:
        """Lines that prefetch the records of four later ratings, if records are `far`.

        They are if they do not fit into the second-level cache.
        """
        lines = []
        for x in range(4):
            column = COLUMN_UP_TO.format(f"s + uint64({AHEAD + x})")
            lines += [
                f"ahead = {column} * uint64({self.half})",
                f"prefetch(records, aligned + ahead, {self.half}, {LINE})",
                f"prefetch(records, gradients + ahead, {self.half}, {LINE})",
            ]
        return ["if far:", *indented(lines)]

    def gradients(self, score: str, also: Sequence[str] = (), column: str = COLUMN_OF) -> list[str]:
        """Lines that add the contributions of row i's ratings to the gradients, for `by_groups`.

        Lines `also` run once for every rating r, of column j; `score` and `column` are the
        expressions for its score and its column.
        """
        lines = self._row("ow" if "w" in self.sides else "tw")
        if self._apart:
            lines += ["bias = float32(0)"]
        for number, block in enumerate(self._blocks):
            rating = [f"e = {score}", f"j = {column.format('r')}", *self._terms(block)]
            if number == 0:
                rating += self._terms_apart()
                rating += also
            lines += [f"w{at} = load(row_record, q, {at}, {n})" for at, n in block]
            lines += [f"g{at} = spread(float32(0), {n})" for at, n in block]
            lines += ["r = begin", "while r < end:", *indented([*rating, "r += one"])]
            if "w" in self.sides:
                lines += [f"store(row_record, q_sums, {at}, g{at})" for at, _ in block]
        return lines + self._emptied("w", "row_record", "ow")

    def _terms(self, block: list[tuple[int, int]]) -> list[str]:
        """Lines that add a rating's terms to the gradients of a block's vectors."""
        lines = [
            f"c = aligned + j * uint64({self.half})",
            f"c_sums = gradients + j * uint64({self.half})",
        ]
        lines += [f"e{n} = spread(-e, {n})" for n in sorted({n for _, n in block})]
        for at, n in block:
            if "w" in self.sides:
                lines += [f"g{at} = times_plus(e{n}, load(records, c, {at}, {n}), g{at})"]
            if "h" in self.sides:
                sums = f"times_plus(e{n}, w{at}, load(records, c_sums, {at}, {n}))"
                lines += [f"store(records, c_sums, {at}, {sums})"]
        return lines

    def _terms_apart(self) -> list[str]:
        """Lines that add a rating's terms to the gradients of a last column that is apart."""
        if not self._apart:
            return []
        in_w = "e"
        in_h = "e"
        if self.split:
            in_w = "e * records[pairs + j + j]"
            in_h = f"e * tw[p + uint64({self.rank})]"
        lines = []
        if "w" in self.sides:
            lines += [f"bias -= {in_w}"]
        if "h" in self.sides:
            lines += [f"records[pairs + j + j + uint64(1)] -= {in_h}"]
        return lines


#: Imports and functions at the beginning of the source of a module with passes.
PASSES = (
    "from dsgmcmc.kernels.compiling.vectors import four, load, plus, prefetch, spread, store,"
    " sums_of, times_plus\n\n\n"
)
PASSES += COLUMN


class Passes(NamedTuple):
    """Lines of a kernel that computes predictors, then scores, then gradients.

    `Record.group` ratings are processed at a time.

    Attributes
    ----------
    scores : list of str
        Lines that replace the first `count` elements of ``errors``, which are predictors, by
        scores.
    kept : sequence of str
        Names of further arrays, (group,) float32, with one value for each rating of a group.
    before, after : list of str
        Lines for rating r of row i and column j, before and after the scores are computed. Its
        index in the arrays of a group is r - `base`, and the rating itself is in ``observed``.
    row_before, row_after : list of str
        Lines for row i, before and after the gradients of its ratings `begin` to `end` - 1 of the
        group.
    score : str
        Expression for the score of rating r.
    functions : str
        Source of functions that the lines call.
    begin : list of str
        Lines before all passes.
    """

    scores: list[str]
    kept: Sequence[str] = ()
    before: Sequence[str] = ()
    row_before: Sequence[str] = ()
    after: Sequence[str] = ()
    row_after: Sequence[str] = ()
    score: str = "errors[r - base]"
    functions: str = ""
    begin: Sequence[str] = ()


def by_groups(record: Record, passes: Passes) -> list[str]:
    """Return all lines of the loop over a cell's ratings."""
    length = record.group + 3  # lines before the scores also run for up to three ratings too many
    floats = ("errors", "observed", *passes.kept)
    gradients = [
        *passes.row_before,
        *record.gradients(passes.score, passes.after, IN_GROUP),
        *passes.row_after,
    ]
    return [
        *record.begin(),
        *(f"{name} = np.empty({length}, np.float32)" for name in floats),
        f"group_columns = np.empty({length}, np.uint32)",
        f"for t in range({length}):",
        "    group_columns[t] = uint32(0)",
        "    observed[t] = float32(0)",
        "coded = codes.size > 0",
        "first_row = 0",
        "row = 0",
        "base = uint64(indptr[0])",
        "while base < final:",
        f"    last = min(base + uint64({record.group}), final)",
        "    count = last - base",
        "    for t in range(count):",
        "        group_columns[t] = column(indices, halves, base + t)",
        "    if coded:",
        "        for t in range(count):",
        "            observed[t] = values[uint64(codes[base + t])]",
        "    else:",
        "        for t in range(count):",
        "            observed[t] = values[base + t]",
        *indented(_rows_of_group(record.predictors(passes.before, IN_GROUP))),
        *indented(passes.scores),
        *indented(_rows_of_group(gradients)),
        "    first_row = row",
        "    base = last",
        *record.end(),
    ]


def _rows_of_group(lines: Sequence[str]) -> list[str]:
    """Lines that run `lines` for every row i with ratings in the group."""
    return [
        "i = first_row",
        "begin = base",
        "while begin < last:",
        "    begin = max(uint64(indptr[i]), base)",
        "    end = min(uint64(indptr[i + 1]), last)",
        "    if begin < end:",
        "        row = i",
        *indented(lines, 2),
        "    begin = end",
        "    i += 1",
    ]


#: Arguments of kernels, and their types: the columns of ratings by row, and both factors with their
#: gradients.
PATTERN = {"indptr": "int64[::1]", "indices": "uint16[::1]"}
FACTORS = dict.fromkeys(("theta_w", "theta_h", "out_w", "out_h"), "float32[:, ::1]")


def by_rows(lines: Sequence[str]) -> list[str]:
    """Lines that run `lines` for every row i, with its ratings from `begin` to `end` - 1."""
    return [
        "for i in range(theta_w.shape[0]):",
        "    begin = uint64(indptr[i])",
        "    end = uint64(indptr[i + 1])",
        *indented(lines),
    ]


def compile_passes(
    name: str,
    arguments: Mapping[str, str],
    lines: Sequence[str],
    *,
    functions: str = "",
    result: str = "void",
) -> Callable[..., Any]:
    """Compile `lines` as a kernel; `arguments` has the types of its arguments by name.

    `functions` is the source of functions that the lines call, and `result` the type that the
    kernel returns.
    """
    header = [
        f'@kernel("{result}({", ".join(arguments.values())})")',
        f"def passes({', '.join(arguments)}):",
    ]
    source = "\n".join((*header, *indented(["wide_vectors()", *lines]))) + "\n"
    kernel: Callable[..., Any] = jit.compile_source(name, PASSES + functions + source).passes
    return kernel


def rating_arguments(*, offset: bool, by_rating: bool = False) -> dict[str, str]:
    """Return the types of the arguments that have further numbers of each rating, by name."""
    arguments = {}
    if offset:
        arguments["offsets"] = "float32[::1]"
    if by_rating:
        arguments["weights"] = "float32[::1]"
    return arguments


def compile_gradient(
    name: str,
    record: Record,
    passes: Passes,
    *,
    more: Mapping[str, str],
    of_ratings: Mapping[str, str],
    total: bool = False,
) -> Callable[..., Any]:
    """Compile ``f(indptr, indices, codes, values, theta_w, theta_h, out_w, out_h, *more, scale)``.

    `more` has the types of further arguments by name, and `of_ratings` those of arguments that
    follow ``values``. With `total` the kernel returns the number ``total``.
    """
    arguments = {"indptr, indices, codes, values": RATINGS, **of_ratings}
    arguments |= {**FACTORS, **more, "scale": "float64"}
    lines = ["scale = float32(scale)", *passes.begin, *by_groups(record, passes)]
    result = "void"
    if total:
        lines += ["return total"]
        result = "float64"
    return compile_passes(
        f"{name}_{record.rank}", arguments, lines, functions=passes.functions, result=result
    )


def aligned(array: str) -> str:
    """Expression for the index of a flat array's first element that begins a cache line."""
    return f"uint64({LINE - 1}) & (uint64({LINE}) - (uint64({array}.ctypes.data) >> uint64(2)))"
