"""Detect the format of a file: kind, delimiter, header, columns."""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from dsgmcmc.data.ingest.columns import assign_columns
from dsgmcmc.data.ingest.files import SUFFIXES, suffix_of
from dsgmcmc.data.ingest.packed import DAMAGED, LONGEST, SAMPLE, is_packed, read_head, unpacked
from dsgmcmc.errors import InputError
from dsgmcmc.settings import named

Kind = Literal["text", "json", "columnar", "mtx", "npz"]

# --format: the kind, and for text the delimiter (None: detected)
FORMATS: dict[str, tuple[Kind, str | None]] = {
    "text": ("text", None),
    "csv": ("text", ","),
    "tsv": ("text", "\t"),
    "dat": ("text", "::"),
    "json": ("json", None),
    "jsonl": ("json", None),
    "parquet": ("columnar", None),
    "mtx": ("mtx", None),
    "npz": ("npz", None),
}
DELIMITERS = ("::", "\t", ",", ";", "|", " ")
_LINE_END = r"\r\n|\n|\r"
_MAGIC = {
    b"PK\x03\x04": "a zip archive or an Excel workbook: unpack it, or save the sheet as CSV",
    b"PK\x05\x06": "an empty zip archive",
    b"BZh": "compressed with bzip2: decompress it first",
    b"\xfd7zXZ": "compressed with xz: decompress it first",
    b"\x28\xb5\x2f\xfd": "compressed with zstd: decompress it first",
    b"\x89HDF": "an HDF5 file, which prepare does not read: write Parquet or CSV",
    b"PAR1": "a Parquet file: give --format parquet",
    b"ARROW1": "a Feather file: write Parquet",
    b"FEA1": "a Feather file: write Parquet",
    b"\xd0\xcf\x11\xe0": "an Excel workbook: save the sheet as CSV",
    b"\x80": "a pickle, which may run any program when it is opened: write Parquet instead",
}


@dataclass(frozen=True)
class RatingsInput:
    """One file and how to read it.

    Attributes
    ----------
    path : Path
    kind : {"text", "json", "columnar", "mtx", "npz"}
    columns : dict of str to int
        Position, from 0, of the columns "user", "item", "rating" and, if wanted, "timestamp". Without "rating" all
        ratings are 1.
    width : int
        Number of columns of the file.
    delimiter, header
        For text.
    packed : bool
        Whether text, JSON or MatrixMarket are compressed by gzip.
    skip : int
        For text, number of lines before the first rating.
    names : tuple of str
        Names of the columns; empty where the file has none.
    array : bool
        Of JSON, whether it is one array of objects, and not an object on each line.
    """

    path: Path
    kind: Kind
    columns: dict[str, int]
    width: int = 3
    delimiter: str = ","
    header: bool = False
    packed: bool = False
    skip: int = 0
    names: tuple[str, ...] = ()
    array: bool = False

    @property
    def roles(self) -> str:
        """Roles of the columns, for users to check."""
        if self.kind in ("mtx", "npz"):
            return "user row, item column"
        names = self.names or [f"column {k + 1}" for k in range(self.width)]
        text = ", ".join(f"{role} {names[k]}" for role, k in self.columns.items())
        return text if "rating" in self.columns else f"{text}, no rating column: treated as clicks"

    def open(self) -> IO[str]:
        """Open as text, decompressed, without its byte order mark."""
        file = unpacked(self.path)
        return io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="")

    def lines(self) -> Iterator[str]:
        """Yield the lines; one without an end comes in pieces, as it may not fit into memory."""
        with self.open() as file:
            while line := file.readline(LONGEST):
                yield line


def inspect(path: Path, wanted: str | None, columns: dict[str, str], timestamp: bool) -> RatingsInput:
    """Find out how a file is written.

    `wanted` is the value of ``--format``, `columns` are from `parse_columns`; `timestamp`: whether a column with times
    is needed. Raises InputError if the file is empty, of no known format, or without the columns that are needed.
    """
    if not path.is_file():
        pipe = " but a pipe: write what comes through it to a file first" if path.is_fifo() else ""
        raise InputError(f"{path} is not a file{pipe}")
    kind, delimiter = FORMATS[wanted or _format_of(path)]
    if kind == "columnar":
        return _inspect_columnar(path, columns, timestamp)
    if kind == "npz":
        if read_head(path)[:2] != b"PK":
            raise InputError(f"{path} is not an .npz file")
        return RatingsInput(path, kind, _fixed(path, columns, timestamp))
    packed = is_packed(path)
    text = decode_head(path, array=kind == "json")
    if kind == "mtx":
        return RatingsInput(path, kind, _fixed(path, columns, timestamp), packed=packed)
    if kind == "json":
        return _inspect_json(path, text, columns, timestamp, packed)
    return _inspect_text(path, text, delimiter, columns, timestamp, packed)


def _format_of(path: Path) -> str:
    """Return the value of ``--format`` by the file's suffix."""
    suffix = suffix_of(path)
    if suffix in SUFFIXES:
        return SUFFIXES[suffix]
    if what := next((what for magic, what in _MAGIC.items() if read_head(path).startswith(magic)), None):
        raise InputError(f"{path} is {what}")
    has = f"the suffix {suffix!r}" if suffix else "no suffix"
    raise InputError(f"{path} has {has}: say what it is with --format {'|'.join(FORMATS)}")


def decode_head(path: Path, encoding: str = "utf-8-sig", array: bool = False) -> str:
    """Return the beginning of a text file; refuse what is no text.

    `array`: whether it may be a JSON array, whose first line may be of any length.
    """
    try:
        with unpacked(path) as file:
            head = file.read(SAMPLE)
    except DAMAGED as error:
        raise InputError(f"{path} is not a whole gzip file: {error}") from error
    for magic, what in _MAGIC.items():
        if head.startswith(magic):
            raise InputError(f"{path} is {what}")
    refuse_utf16(path, head)
    if b"\0" in head:
        raise InputError(f"{path} is not a text file: it contains zero bytes")
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(head)
    except UnicodeDecodeError as error:
        line = head[: error.start].count(b"\n") + 1
        raise InputError(f"{path}, line {line}: not UTF-8 text; convert it, e.g. with iconv") from error
    if not text.strip():
        raise InputError(f"{path} is empty")
    if len(head) == SAMPLE and not {10, 13} & set(head) and not (array and text.lstrip().startswith("[")):
        raise InputError(f"{path} is no table: its first line has more than {SAMPLE:,} bytes")
    return text


def refuse_utf16(path: Path, head: bytes) -> None:
    """Refuse text of 16 bits, as spreadsheets write it."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise InputError(f"{path} is UTF-16: convert it to UTF-8, e.g. with `iconv -f UTF-16 -t UTF-8`")


def _fixed(path: Path, columns: dict[str, str], timestamp: bool) -> dict[str, int]:
    """Return the columns of a matrix file, which has no others."""
    if columns:
        raise InputError(f"{path} is a matrix: {named('columns')} has no meaning for it")
    if timestamp:
        raise InputError(f"{path} is a matrix, without the times that --split temporal needs")
    return {"user": 0, "item": 1, "rating": 2}


def _inspect_text(
    path: Path, text: str, delimiter: str | None, columns: dict[str, str], timestamp: bool, packed: bool
) -> RatingsInput:
    every, lines = re.split(_LINE_END, text), whole_lines(text)
    plain = [line for line in lines if not line.startswith("#")] or lines
    delimiter = delimiter or detect_delimiter(plain, 3)
    width = len(split_line(plain[0], delimiter))
    while lines[0] != plain[0] and len(split_line(lines[0], delimiter)) != width:
        lines.pop(0)  # a comment; a header may begin with # as well
    comments = every.index(lines[0]) if every[0].startswith("#") else 0
    first = split_line(lines[0], delimiter)
    header = not any(_is_number(field) for field in first)
    names = [field.strip() for field in first] if header else None
    roles = assign_columns(path, names, len(first), columns, timestamp)
    skip = every.index(lines[0]) + 1 if header else comments
    return RatingsInput(path, "text", roles, len(first), delimiter, header, packed, skip, tuple(names or ()))


def _inspect_json(path: Path, text: str, columns: dict[str, str], timestamp: bool, packed: bool) -> RatingsInput:
    """Look at the first object, whose keys are the columns, of JSON lines or of an array."""
    start = text.lstrip()
    array = start.startswith("[")
    try:
        record, _ = json.JSONDecoder().raw_decode(start[1:].lstrip() if array else start.splitlines()[0])
        names = list(record.keys())
    except (ValueError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{path}, line 1: expected JSON, an array of objects or an object on each line, such as "
            f'{{"user": 1, "item": 2, "rating": 3}}; found {start.splitlines()[0][:60]!r}'
        ) from error
    roles = assign_columns(path, names, len(names), columns, timestamp)
    return RatingsInput(path, "json", roles, packed=packed, names=tuple(names), array=array)


def whole_lines(text: str) -> list[str]:
    """Lines of the beginning of a file that are not empty, without the last one where the sample may have cut it."""
    lines = [line for line in re.split(_LINE_END, text) if line.strip()]
    return lines[:-1] if len(lines) > 1 and not text.endswith("\n") else lines


def split_line(line: str, delimiter: str) -> list[str]:
    """Return the fields of a line."""
    if delimiter == "::":
        return line.split("::")
    return next(csv.reader([line], delimiter=delimiter), [])


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def detect_delimiter(lines: list[str], least: int, candidates: tuple[str, ...] = DELIMITERS) -> str:
    """Return the first delimiter that cuts the first 50 lines into the same number, at least `least`, of fields.

    Where none does some lines are bad: then the first line tells.
    """
    counts = {d: [len(split_line(line, d)) for line in lines[:50]] for d in candidates}
    for d, n in counts.items():
        if n[0] >= least and len(set(n)) == 1:
            return d
    return max(candidates, key=lambda d: min(counts[d][0], least))


def _inspect_columnar(path: Path, columns: dict[str, str], timestamp: bool) -> RatingsInput:
    import duckdb  # a run that is sampled needs none

    from dsgmcmc.data.ingest.columnar import is_parquet, open_columns

    if not is_parquet(path):
        raise InputError(f"{path} is not a Parquet file")
    with duckdb.connect() as connection:
        names = open_columns(connection, path).columns
    roles = assign_columns(path, names, len(names), columns, timestamp)
    return RatingsInput(path, "columnar", roles, len(names), names=tuple(names))
