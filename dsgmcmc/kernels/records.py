"""Source of the passes over a cell's ratings, row by row: predictors, and contributions to both
gradients.

With eta = W_i . H_j + a_i + b_j and e the score of a rating,

    out_w[i] -= e * (H_j, 1)        out_h[j] -= e * (W_i, 1)

Factors are (n, D), with the biases in column K, so rows of 33 numbers would cross cache lines at
every load and store. A kernel therefore copies each row of the cell into a *record*: theta and its
gradient, each padded to whole vectors and, if longer than half a cache line, to whole cache lines.
The records of all columns are made when the kernel starts, first theta of every column, then the
gradients; these are added to `out_h` when it ends. A row has a record while its ratings are
processed. If the last vector has room for both biases, it contains them:

    (W_i, a_i, 1) . (H_j, 1, b_j) = W_i . H_j + a_i + b_j

and the gradients of the biases are computed with the other gradients. For rank 0 there is only this
vector. If there is no room, the biases of columns follow all records, as pairs of value and
gradient. A vector fills 1, 2, 4 or 8 registers, because few wide vectors compile faster than many;
at the end of a row it may have 8 elements where registers have 16. Predictors are summed four
ratings at a time (`dsgmcmc.kernels.vectors.sums_of`); up to three predictors after those of a row
are replaced by the next row's.

Rows are prefetched, and so are the records of columns if they do not fit into the second-level
cache. Columns and values of a group of ratings (`dsgmcmc.kernels.stored`) are looked up before its
passes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, NamedTuple

from dsgmcmc.kernels import jit
from dsgmcmc.kernels.jit import indented
from dsgmcmc.kernels.stored import COLUMN, RATINGS

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

#: Expression for the column of a rating in a group; `by_groups` has stored the columns in
#: ``places``.
IN_GROUP = "uint64(places[{} - base])"


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
        return self.rank + (self.biases or self.split)

    @property
    def inside(self) -> bool:
        """Whether the last vector has room for both biases."""
        return self.biases and -(-(self.rank + 2) // 8) == max(-(-self.rank // 8), 1)

    @cached_property
    def vectors(self) -> list[tuple[int, int]]:
        """First elements and widths of the vectors of theta."""
        return self._spans(-(-(self.rank + 2 * self.inside) // 8) * 8)

    @cached_property
    def _register(self) -> int:
        """Number of float32 in a register."""
        from dsgmcmc.kernels.compiler import vector_width  # imports Numba

        return vector_width()

    def _spans(self, length: int) -> list[tuple[int, int]]:
        """First elements and widths of the vectors that cover `length` elements, a multiple of 8;
        the widest first.
        """
        spans, at, width = [], 0, REGISTERS * self._register
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
        return length if length <= LINE // 2 else -(-length // LINE) * LINE

    @property
    def group(self) -> int:
        """Number of ratings in a group: a multiple of `LINE`, for kernels that score `LINE` ratings
        at once.
        """
        return min(max(HALF_FIRST_LEVEL // self.half // LINE * LINE, 32), 128)

    @property
    def _copied(self) -> tuple[list[tuple[int, int]], range]:
        """Vectors that are copied whole, and the columns after them."""
        whole = self.rank // 8 * 8
        return self._spans(whole), range(whole, self.rank)

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
        """Lines that copy a row of D numbers, which starts at `p` of `theta`, to the record at `q`
        of `record`.

        Theta is needed for the other side's gradients, and a gradient starts at zero.
        """
        whole, rest = self._copied
        apart = self._apart and side == "h"
        zeros = [
            f"store({record}, q_sums, {at}, spread(float32(0), {n}))" for at, n in self.vectors
        ]
        zeros += ["records[pairs + j + j + uint64(1)] = float32(0)"] if apart else []
        if self.sides == side:
            return zeros
        lines = [f"store({record}, q, {at}, load({theta}, p, {at}, {n}))" for at, n in whole]
        lines += [f"{record}[q + uint64({k})] = {theta}[p + uint64({k})]" for k in rest]
        if self.inside:
            bias, one = (self.rank, self.rank + 1) if side == "w" else (self.rank + 1, self.rank)
            lines += [f"{record}[q + uint64({bias})] = {theta}[p + uint64({self.rank})]"]
            lines += [f"{record}[q + uint64({one})] = float32(1)"]
        used = self.rank + 2 * self.inside
        lines += [
            f"{record}[q + uint64({k})] = float32(0)" for k in range(used, sum(self.vectors[-1]))
        ]
        lines += [f"records[pairs + j + j] = th[p + uint64({self.rank})]"] if apart else []
        return lines + zeros if side in self.sides else lines

    def _emptied(self, side: str, record: str, out: str) -> list[str]:
        """Lines that add the gradient in a record to the row of D numbers at `p` of `out`."""
        if side not in self.sides:
            return []
        whole, rest = self._copied
        lines = []
        for at, n in whole:
            sums = f"plus(load({out}, p, {at}, {n}), load({record}, q_sums, {at}, {n}))"
            lines += [f"store({out}, p, {at}, {sums})"]
        lines += [f"{out}[p + uint64({k})] += {record}[q_sums + uint64({k})]" for k in rest]
        if self.inside:
            bias = self.rank + (side == "h")
            lines += [f"{out}[p + uint64({self.rank})] += {record}[q_sums + uint64({bias})]"]
        if self._apart:
            last = "bias" if side == "w" else "records[pairs + j + j + uint64(1)]"
            lines += [f"{out}[p + uint64({self.rank})] += {last}"]
        return lines

    @property
    def _apart(self) -> bool:
        """Whether the last column, such as the biases, follows all records."""
        return self.split or (self.biases and not self.inside)

    def begin(self) -> list[str]:
        """Lines that begin a kernel: records of all columns, and flat views."""
        column = [f"p = j * uint64({self.dimension})", f"q = aligned + j * uint64({self.half})"]
        column += [f"q_sums = gradients + j * uint64({self.half})"]
        column += self._filled("h", "th", "records")
        return [
            "tw = theta_w.reshape(theta_w.size)",
            "th = theta_h.reshape(theta_h.size)",
            *(
                ["ow = out_w.reshape(out_w.size)", "oh = out_h.reshape(out_h.size)"]
                if self.sides
                else []
            ),
            "columns = uint64(theta_h.shape[0])",
            (
                f"records = np.empty(columns * uint64({2 * self.half + 2}) + uint64({LINE}),"
                " np.float32)"
            ),
            f"aligned = {_aligned('records')}",
            f"gradients = aligned + columns * uint64({self.half})",
            f"pairs = gradients + columns * uint64({self.half})",
            f"far = pairs - aligned > uint64({SECOND_LEVEL})",
            f"row_record = np.empty({2 * self.half + LINE}, np.float32)",
            f"row_start = {_aligned('row_record')}",
            "final = uint64(indptr[theta_w.shape[0]])",
            "halves = uint64(indices.size) > final",
            "one = uint64(indptr.strides[0] // 8)",  # not a literal: LLVM would unroll the loops over short rows
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
        lines = [
            f"p = min(uint64(i) + uint64({ROWS_AHEAD}), uint64(theta_w.shape[0] - 1)) *"
            f" uint64({self.dimension})"
        ]
        lines += [f"prefetch({ahead}, p, {self.dimension}, {LINE})"]
        lines += [
            f"p = uint64(i) * uint64({self.dimension})",
            "q = row_start",
            f"q_sums = q + uint64({self.half})",
        ]
        return lines + self._filled("w", "tw", "row_record")

    def predictors(self, also: Sequence[str] = (), column: str = COLUMN_UP_TO) -> list[str]:
        """Lines that write the predictors of row i's ratings to ``errors``, and up to three numbers
        after them.

        Lines `also` run for every rating r, of column j, after its predictor is complete; `column`
        is the expression for the column of a rating.
        """
        lines, last = self._row("tw"), len(self._blocks) - 1
        lines += [f"bias = spread(tw[p + uint64({self.rank})], 4)"] if self._apart else []
        for number, block in enumerate(self._blocks):
            lines += [f"w{at} = load(row_record, q, {at}, {n})" for at, n in block]
            arguments = block, column, number > 0, also if number == last else []
            four = [
                *([] if number else self._prefetches()),
                *self._ratings(*arguments),
                "s += uint64(4)",
            ]
            lines += ["s = begin", "while s < end:", *indented(four)]
        return lines

    def _ratings(
        self, block: list[tuple[int, int]], column: str, more: bool, also: Sequence[str]
    ) -> list[str]:
        """Lines for four ratings from s on: predictors (`more`: terms of a further block), then
        `also`.
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
                products = f"d{min(width, self._register)}_{x}"
                lines += [
                    f"{products} = times_plus(w{at}, load(records, c, {at}, {width}), {products})"
                ]
        terms = [f"sums_of({', '.join(f'd{n}_{x}' for x in range(4))})" for n in widths]
        if more:
            terms += ["load(errors, s - base, 0, 4)"]
        elif self._apart:
            terms += [
                "bias",
                f"four({', '.join(f'records[pairs + j{x} + j{x}]' for x in range(4))})",
            ]
        lines += [f"store(errors, s - base, 0, {reduce('plus({}, {})'.format, terms)})"]
        return lines + [
            line for x in range(4) if also for line in (f"r = s + uint64({x})", f"j = j{x}", *also)
        ]

    def _prefetches(self) -> list[str]:
        """Lines that prefetch the records of four later ratings."""
        lines = []
        for x in range(4):
            lines += [
                f"ahead = {COLUMN_UP_TO.format(f's + uint64({AHEAD + x})')} * uint64({self.half})"
            ]
            lines += [
                f"prefetch(records, {begin} + ahead, {self.half}, {LINE})"
                for begin in ("aligned", "gradients")
            ]
        return ["if far:", *indented(lines)]

    def gradients(self, score: str, also: Sequence[str] = (), column: str = COLUMN_OF) -> list[str]:
        """Lines that add the contributions of row i's ratings to the gradients, for `by_groups`.

        Lines `also` run once for every rating r, of column j; `score` and `column` are the
        expressions for its score and its column.
        """
        lines = self._row("ow" if "w" in self.sides else "tw")
        terms = (
            ("e * records[pairs + j + j]", f"e * tw[p + uint64({self.rank})]")
            if self.split
            else ("e", "e")
        )
        lines += ["bias = float32(0)"] if self._apart else []
        for number, block in enumerate(self._blocks):
            rating = [f"e = {score}", f"j = {column.format('r')}"]
            rating += [
                f"c = aligned + j * uint64({self.half})",
                f"c_sums = gradients + j * uint64({self.half})",
            ]
            rating += [f"e{n} = spread(-e, {n})" for n in sorted({n for _, n in block})]
            for at, n in block:
                sums = {"w": f"g{at} = times_plus(e{n}, load(records, c, {at}, {n}), g{at})"}
                sums["h"] = (
                    f"store(records, c_sums, {at}, times_plus(e{n}, w{at}, load(records, c_sums,"
                    f" {at}, {n})))"
                )
                rating += [sums[side] for side in self.sides]
            if not number:
                last = {
                    "w": f"bias -= {terms[0]}",
                    "h": f"records[pairs + j + j + uint64(1)] -= {terms[1]}",
                }
                rating += [last[side] for side in self.sides if self._apart]
                rating += also
            lines += [f"w{at} = load(row_record, q, {at}, {n})" for at, n in block]
            lines += [f"g{at} = spread(float32(0), {n})" for at, n in block]
            lines += ["r = begin", "while r < end:", *indented([*rating, "r += one"])]
            lines += [
                f"store(row_record, q_sums, {at}, g{at})" for at, _ in block if "w" in self.sides
            ]
        return lines + self._emptied("w", "row_record", "ow")


#: Imports and functions at the beginning of the source of a module with passes.
PASSES = (
    "from dsgmcmc.kernels.vectors import four, load, plus, prefetch, spread, store, sums_of,"
    " times_plus\n\n\n"
)
PASSES += COLUMN


class Passes(NamedTuple):
    """Lines of a kernel that computes, for `Record.group` ratings at a time, predictors, then
    scores, then gradients.

    Attributes
    ----------
    scores : list of str
        Lines that replace the first `count` elements of ``errors``, which are predictors, by
        scores.
    kept : sequence of str
        Names of further arrays, (group,) float32, with one value for each rating of a group.
    before, after : list of str
        Lines for rating r of row i and column j, before and after the scores are computed. Its
        index in the arrays of a group is r - `base`, and the rating itself is in ``given``.
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
    """Return the lines of the whole loop over a cell's ratings."""

    def of_rows(lines: Sequence[str]) -> list[str]:
        """Lines that run `lines` for every row i with ratings in the group."""
        bounds = ["begin = max(uint64(indptr[i]), base)", "end = min(uint64(indptr[i + 1]), last)"]
        row = [*bounds, "if begin < end:", "    row = i", *indented(lines), "begin = end", "i += 1"]
        return ["i = first_row", "begin = base", "while begin < last:", *indented(row)]

    return [
        *record.begin(),
        *(
            f"{name} = np.empty({record.group + 3}, np.float32)"
            for name in ("errors", "given", *passes.kept)
        ),
        f"places = np.empty({record.group + 3}, np.uint32)",
        f"for t in range({record.group + 3}):",  # lines before the scores also run for up to three ratings too many
        "    places[t] = uint32(0)",
        "    given[t] = float32(0)",
        "coded = codes.size > 0",
        "first_row = 0",
        "row = 0",
        "base = uint64(indptr[0])",
        "while base < final:",
        f"    last = min(base + uint64({record.group}), final)",
        "    count = last - base",
        "    for t in range(count):",
        "        places[t] = column(indices, halves, base + t)",
        "    if coded:",
        "        for t in range(count):",
        "            given[t] = values[uint64(codes[base + t])]",
        "    else:",
        "        for t in range(count):",
        "            given[t] = values[base + t]",
        *indented(of_rows(record.predictors(passes.before, IN_GROUP))),
        *indented(passes.scores),
        *indented(
            of_rows(
                [
                    *passes.row_before,
                    *record.gradients(passes.score, passes.after, IN_GROUP),
                    *passes.row_after,
                ]
            )
        ),
        "    first_row = row",
        "    base = last",
        *record.end(),
    ]


#: Arguments of kernels, and their types: the columns of ratings by row, and both factors with their
#: gradients.
PATTERN = {"indptr": "int64[::1]", "indices": "uint16[::1]"}
FACTORS = dict.fromkeys(("theta_w", "theta_h", "out_w", "out_h"), "float32[:, ::1]")


def by_rows(lines: Sequence[str]) -> list[str]:
    """Lines that run `lines` for every row i, with its ratings from `begin` to `end` - 1."""
    bounds = ["begin = uint64(indptr[i])", "end = uint64(indptr[i + 1])"]
    return ["for i in range(theta_w.shape[0]):", *indented([*bounds, *lines])]


def compile_passes(
    name: str,
    arguments: Mapping[str, str],
    lines: Sequence[str],
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


def compile_gradient(
    name: str,
    record: Record,
    passes: Passes,
    more: Mapping[str, str],
    offset: bool,
    total: bool = False,
) -> Callable[..., Any]:
    """Compile ``f(indptr, indices, codes, values, theta_w, theta_h, out_w, out_h, *more, scale)``.

    `more` has the types of further arguments by name. With `offset` the argument ``offsets``
    follows ``values``; with `total` the kernel returns the number ``total``.
    """
    ratings = {
        "indptr, indices, codes, values": RATINGS,
        **({"offsets": "float32[::1]"} if offset else {}),
    }
    lines = [
        "scale = float32(scale)",
        *passes.begin,
        *by_groups(record, passes),
        *(["return total"] if total else []),
    ]
    arguments = {**ratings, **FACTORS, **more, "scale": "float64"}
    return compile_passes(
        f"{name}_{record.rank}", arguments, lines, passes.functions, "float64" if total else "void"
    )


def _aligned(array: str) -> str:
    """Expression for the index of a flat array's first element that begins a cache line."""
    return f"uint64({LINE - 1}) & (uint64({LINE}) - (uint64({array}.ctypes.data) >> uint64(2)))"
