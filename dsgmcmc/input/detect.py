"""Detects the format and the columns of a table in a file, by the beginning of the file.

The suffix is used only for .npz. Formats of other tools are in `dsgmcmc.input.sources.formats`.
DuckDB's detection of delimiters and headers is not used: if one line at the end of its sample has
too many columns, DuckDB takes all earlier lines for comments and skips them.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import hashlib
import itertools
import re
from collections.abc import Callable, Sequence, Set
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any

from dsgmcmc.errors import InputError
from dsgmcmc.input.sources.base import BLOCK_BYTES, SAMPLE_BYTES, Source, opened
from dsgmcmc.input.sources.columns import (
    JsonFile,
    ParquetFile,
    columns_of_parquet,
    objects_of_json,
)
from dsgmcmc.input.sources.formats import Layout, blank_separated, find_layout, read_smurff
from dsgmcmc.input.sources.labelled import (
    LabelledMatrix,
    as_table,
    as_texts,
    refuse_limit,
    refuse_lines,
    refuse_unstored,
    refuse_variable,
)
from dsgmcmc.input.sources.matrix import ENTRIES, Entries, SparseFile, read_matrix
from dsgmcmc.input.sources.science import open_folder, open_scientific
from dsgmcmc.input.sources.tables import first_column
from dsgmcmc.input.sources.text import LONGEST_LINE, ParsedFile, ParsedMatrix, TextFile
from dsgmcmc.ratings.reading import NOTHING_SAID, Reading
from dsgmcmc.settings import named
from dsgmcmc.tables.session import Session, memory_of, reading
from dsgmcmc.tables.usual import usual_roles

_BLANKS = "blanks"  # any number of spaces and tabs
_KONECT = "% *(?:sym|asym|bip) "  # the first line of a network of KONECT
_RECBOLE = "[^:]+:(?:token|float|token_seq|float_seq)"  # names of columns in files of RecBole
_DELIMITERS = ("::", "\t", ",", ";", "|", " ")
_LINE_END = r"\r\n|\n|\r"
_SAMPLE_ROWS = 50
_MOST_ABOVE = 30  # lines above a table

#: Whether the fields in the first line of a text file name columns, given those of the next lines.
IsHeader = Callable[[list[str], list[list[str]]], bool]


def open_table(
    db: Session,
    path: Path,
    is_header: IsHeader,
    *,
    latin1: bool = False,
    choice: Reading = NOTHING_SAID,
) -> Source:
    """Detect the format and the columns of a file from its beginning.

    Raises InputError if the file cannot be read, is text with fewer than two columns, or cannot be
    what the user has chosen.

    Parameters
    ----------
    is_header : callable
        Returns whether the fields in the first line of a text file are column names, given the
        fields of the next lines.
    latin1 : bool
        Read text as Latin-1 if any part of the file is not UTF-8.
    choice : Reading
        What the user chooses in files that can be read in several ways.
    """
    if not path.exists():
        raise InputError(f"{path} does not exist")
    if path.is_dir():
        read_market = partial(_read_market, db)
        return open_folder(path, read_market, choice, memory_of(db))
    if not path.is_file():
        raise InputError(f"{path} is not a file")
    with opened(path) as file:
        head = _read_head(file)
    if path.suffix.lower() != ".npz":
        found = open_scientific(path, head, choice, memory_of(db))
        if found is not None:
            refuse_lines(path, choice)
            return found
    table = _open_other(db, path, is_header, latin1=latin1, choice=choice)
    if not table.is_text and not table.is_parsed:
        refuse_lines(path, choice)
    refuse_variable(path, choice)
    refuse_limit(path, choice)
    if choice.unstored == "zero" and table.is_matrix:
        return _with_zeros(db, table, choice)
    if not table.is_matrix:
        refuse_unstored(path, choice)
    return table


def _read_market(db: Session, path: Path) -> Any:
    """Return the matrix in a MatrixMarket file."""
    matrix, _ = read_matrix(db, _open_other(db, path, lambda fields, rows: False, latin1=False))
    return matrix


def _with_zeros(db: Session, table: Source, choice: Reading) -> Source:
    """Return a sparse matrix with ratings of 0 in the cells that it does not store."""
    matrix, first = read_matrix(db, table)
    users, items = (as_texts(range(first, first + n)) for n in matrix.shape)
    about = "user row, item column"
    return as_table(table.path, LabelledMatrix(users, items, matrix, about), choice, memory_of(db))


def _open_other(
    db: Session,
    path: Path,
    is_header: IsHeader,
    *,
    latin1: bool,
    choice: Reading = NOTHING_SAID,
) -> Source:
    """Return the table in a file of text, JSON, Parquet, NumPy or SMURFF."""
    if path.suffix.lower() == ".npz":
        return SparseFile(path, list(ENTRIES))
    with opened(path) as file:
        head = _read_head(file)
        packed = isinstance(file, gzip.GzipFile)
        if smurff := read_smurff(path, file, head, memory_of(db)):
            shape, arrays = smurff
            return Entries(path, list(ENTRIES), shape=shape, arrays=list(arrays.values()))
        if head.startswith(b"PAR1"):
            return _open_parquet(db, path)
        encoding = "latin-1" if latin1 and not _is_utf8(file) else "utf-8"
    is_matrix_market = head[:14].lower() == b"%%matrixmarket"  # any encoding in comments
    text = _decode(path, head, "latin-1" if is_matrix_market else encoding)
    lines = re.split(_LINE_END, text)
    has_mixed_ends = len(set(re.findall(_LINE_END, text))) > 1
    if layout := find_layout(path, lines):
        return _with_layout(path, layout, packed=packed, mixed=has_mixed_ends)
    if text.lstrip()[0] in "[{":
        return _open_json(db, path, packed=packed)
    if not text.endswith("\n") and any(line.strip() for line in lines[:-1]):
        lines.pop()  # the sample may end within this line
    left_out, skipped = lines_left_out(lines, choice)
    table = _open_lines(path, lines, is_header, left_out)
    return replace(table, skipped=skipped, packed=packed, encoding=encoding, mixed=has_mixed_ends)


def _read_head(file: IO[bytes]) -> bytes:
    """Read the beginning of a file: at least three lines, which are long in a wide table."""
    head = file.read(SAMPLE_BYTES)
    while head.count(b"\n") < 3 and len(head) < 2 * LONGEST_LINE:
        more = file.read(SAMPLE_BYTES)
        if not more:
            break
        head += more
    return head


def _open_parquet(db: Session, path: Path) -> Source:
    """Return the table in a Parquet file."""
    with reading(path):
        columns = db.execute(f"DESCRIBE FROM {columns_of_parquet(path)}").fetchall()
    names = [str(column[0]) for column in columns]
    types = [str(column[1]) for column in columns]
    return ParquetFile(path, names, types)


def _open_json(db: Session, path: Path, *, packed: bool) -> Source:
    """Return the table in a JSON file; any of its first objects may lack a key."""
    objects = objects_of_json(path, packed=packed)
    with reading(path):
        keys = first_column(db, f"SELECT unnest(json_keys(json)) FROM (FROM {objects} LIMIT 1000)")
    names = list(dict.fromkeys(keys))
    return JsonFile(path, names, ["VARCHAR"] * len(names), packed=packed)


def _with_layout(path: Path, layout: Layout, *, packed: bool, mixed: bool) -> ParsedFile:
    """Return the table, or matrix, in a text file whose lines have a layout of another tool."""
    if "value" in layout.columns:
        return ParsedMatrix(
            path, list(ENTRIES), layout=layout, shape=layout.shape, packed=packed, mixed=mixed
        )
    names = list(layout.columns)
    types = ["DOUBLE" if name == "rating" else "VARCHAR" for name in names]
    return ParsedFile(path, names, types, layout=layout, packed=packed, mixed=mixed)


# ------------------------------------------------------------------------------------------- text


def _open_lines(
    path: Path, lines: list[str], is_header: IsHeader, left_out: Set[int] = frozenset()
) -> TextFile:
    """Return the table that a text file has, by its first lines, without those that are no rows."""
    filled = [k for k, line in enumerate(lines) if line.strip() and k + 1 not in left_out]
    if not filled:
        raise InputError(f"{path}: {named('skip_rows')} leaves no line")
    said = re.fullmatch("sep=(.)", lines[filled[0]].strip().strip('"'))
    if said:  # the line tells spreadsheets the delimiter
        del filled[0]
    body = list(itertools.dropwhile(lambda k: lines[k].lstrip().startswith(("#", "%")), filled))
    if not body:
        body = filled
    comments = [lines[k].lstrip() for k in filled if k < body[0]]
    rows = [lines[k] for k in body[:_SAMPLE_ROWS]]
    if said:
        delimiter = said[1]
    else:
        _refuse_preamble(path, body, rows)
        delimiter = _detect_delimiter(comments, rows)
    sample = [_split(row, delimiter) for row in rows]
    fields = None
    if comments:
        fields = _commented_header(path, comments, sample, delimiter, is_header=is_header)
    if fields is None and is_header(_stripped(sample[0]), sample[1:]):
        fields = _stripped(sample.pop(0))
        del body[0]
    first_line = body[0] + 1 if body else len(lines) + 1
    _refuse_late(path, left_out, first_line)
    width = len(sample[0]) if fields is None else len(fields)
    names = [f"column {k + 1}" for k in range(width)]
    if fields is not None:
        names = _names_of_columns(fields, sample)
    if len(names) < 2:
        raise InputError(f"{path} has one column: expected several, with a delimiter between them")
    table = TextFile(
        path,
        names,
        ["VARCHAR"] * len(names),
        header=fields is not None,
        first_line=first_line,
        delimiter=delimiter,
        sample=sample,
    )
    if delimiter != _BLANKS:
        return table
    return ParsedFile(
        path,
        names,
        table.types,
        header=table.header,
        first_line=first_line,
        sample=sample,
        layout=blank_separated(len(names), first_line - 1),
    )


def _stripped(fields: Sequence[str]) -> list[str]:
    """Return fields without the blanks around them."""
    return [field.strip() for field in fields]


def _names_of_columns(fields: list[str], sample: list[list[str]]) -> list[str]:
    """Return the names of columns in the fields of a header; that of row names is empty."""
    names = fields
    if _has_row_names(sample, len(fields)):
        names = ["", *fields]
    if len(names) > 1 and all(re.fullmatch(_RECBOLE, name) for name in names):
        return [name.partition(":")[0] for name in names]
    return names


def _refuse_late(path: Path, left_out: Set[int], first_line: int) -> None:
    """Raise InputError if lines that are left out are below the first row."""
    late = [number for number in left_out if number > first_line]
    if late:
        raise InputError(
            f"{path}: line {min(late)} of {named('skip_rows')} is below the first row, in line"
            f" {first_line}: remove it from the file"
        )


def parse_skipped(text: str) -> set[int]:
    """Return the numbers of lines in a text such as ``1-3,5``; raise InputError for another one."""
    numbers = set[int]()
    if not text:
        return numbers
    for part in text.split(","):
        found = re.fullmatch(r"\s*([1-9][0-9]{0,5})(?:-([1-9][0-9]{0,5}))?\s*", part)
        if found is None:
            raise InputError(
                f"{named('skip_rows')} {text}: expected numbers of lines, such as 2, or 1-3"
            )
        numbers |= set(range(int(found[1]), int(found[2] or found[1]) + 1))
    return numbers


def lines_left_out(lines: Sequence[str], choice: Reading) -> tuple[Set[int], str]:
    """Return the numbers of the lines of a text file that are no rows, and a hash of their text.

    What was said of earlier ratings holds for a file that has the same text in these lines.
    """
    numbers = parse_skipped(choice.skip_rows)
    if not numbers:
        return numbers, ""
    texts = [lines[number - 1] for number in sorted(numbers) if number <= len(lines)]
    text_hash = hashlib.sha256("\n".join(texts).encode()).hexdigest()
    if choice.remembered and text_hash != choice.skipped:
        return set(), ""
    return numbers, text_hash


def _refuse_preamble(path: Path, numbers: Sequence[int], rows: list[str]) -> None:
    """Raise InputError if a table begins below lines that have other columns than all its rows.

    `numbers` are those of the lines of `rows`, from 0.
    """
    if any(_splits_alike(rows, delimiter) for delimiter in (*_DELIMITERS, _BLANKS)):
        return
    for n in range(1, min(_MOST_ABOVE, len(rows) - 3)):
        for delimiter in _DELIMITERS:
            above = {len(_split(row, delimiter)) for row in rows[:n]}
            width = len(_split(rows[n], delimiter))
            if width not in above and _splits_alike(rows[n:], delimiter):
                last = numbers[n]
                lines_above = "1" if last == 1 else f"1-{last}"
                raise InputError(
                    f"{path}: line {last + 1} and all below have {width} columns, and the lines"
                    f" above have not: remove these, or leave them out by {named('skip_rows')}"
                    f" {lines_above}"
                )


def _has_row_names(sample: list[list[str]], n_fields: int) -> bool:
    """Whether rows have one column more than the header: row names, which are all different.

    R's write.table leaves their column without a name.
    """
    widths = {len(row) for row in sample}
    return widths == {n_fields + 1} and len({row[0] for row in sample}) == len(sample)


def _commented_header(
    path: Path, comments: list[str], rows: list[list[str]], delimiter: str, *, is_header: IsHeader
) -> list[str] | None:
    """Return the names of columns if they are in a comment before the rows, or else None.

    `comments` are lines that begin with # or %, and `rows` have the fields of the lines below. The
    last comment names the columns if it has as many fields as the rows, and among them a usual name
    of users or items, or no blanks between them. Raises InputError if the last one may be a row.
    """
    widths = {len(row) for row in rows}
    last = comments[-1]
    fields = _stripped(_split(last.lstrip("#%").lstrip(" "), delimiter))
    has_usual_name = bool(usual_roles(fields, ("user", "item")))
    is_as_wide = bool(widths & {len(fields), len(fields) + 1})
    if (
        is_as_wide
        and is_header(fields, rows)
        and (has_usual_name or delimiter not in (_BLANKS, "\t", " "))
    ):
        return fields
    if {len(_split(last, delimiter))} == widths and not re.match("[#%]+[ \t]", last):
        raise InputError(
            f"{path}: is {last[:60]!r} at its beginning a comment, or a row? Remove it, or write"
            " the names of columns above it"
        )
    return None


def _split(line: str, delimiter: str) -> list[str]:
    """Return the fields of a line."""
    if delimiter == _BLANKS:
        return line.split()
    if delimiter == "::":
        return line.split(delimiter)
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:  # more than 128 KiB without a delimiter
        return [line]


def _detect_delimiter(comments: list[str], lines: list[str]) -> str:
    """Return the delimiter that splits all lines into the same number of fields, at least two.

    If several delimiters do so, the delimiter with the most fields is returned. The first line may
    have one field fewer, as in files of R's write.table. If no delimiter does so, because lines are
    bad or names contain line ends, the first delimiter that splits the first line is returned.
    Several blanks may delimit columns if nothing else does, or if the comments are those of KONECT.
    """
    if comments and re.match(_KONECT, comments[0]):
        return _BLANKS
    consistent = [d for d in _DELIMITERS if _splits_alike(lines, d)]
    best = max(consistent, key=lambda d: len(_split(lines[0], d)), default="")
    if best in ("", " ") and _splits_alike(lines, _BLANKS):
        has_other = any(re.search('[",;|]|::', line) for line in lines)
        repeats = any("\t" in line or "" in line.split(" ") for line in lines)
        if not has_other and (best == "" or repeats):
            return _BLANKS
    if best:
        return best
    splitting = (d for d in _DELIMITERS if len(_split(lines[0], d)) > 1)
    return next(splitting, _DELIMITERS[0])


def _splits_alike(lines: list[str], delimiter: str) -> bool:
    """Whether a delimiter splits all lines into as many fields; the first may have one fewer."""
    first, *others = (len(_split(line, delimiter)) for line in lines)
    return first > 1 and (set(others) <= {first} or set(others) == {first + 1})


# ------------------------------------------------------------------------------------------ bytes


def _is_utf8(file: IO[bytes]) -> bool:
    """Whether an open file is UTF-8."""
    file.seek(0)
    try:
        for _ in codecs.iterdecode(iter(lambda: file.read(BLOCK_BYTES), b""), "utf-8"):
            pass
    except UnicodeDecodeError:
        return False
    return True


def _decode(path: Path, head: bytes, encoding: str) -> str:
    """Return the beginning of a text file; raise InputError if it is empty, or not text."""
    if encoding == "utf-8":
        encoding = "utf-8-sig"
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(head)
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise InputError(
            f"{path} is neither UTF-8 text nor in another known format: convert text with iconv;"
            " read other formats into a data frame, and give the data frame to BPMF, or write it as"
            " Parquet"
        )
    if not text.strip():
        raise InputError(f"{path} is empty")
    return text
