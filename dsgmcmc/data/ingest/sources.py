"""Detect the format of a file: kind, delimiter, header, columns."""

from __future__ import annotations

import bz2
import codecs
import csv
import glob
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal, cast

from dsgmcmc.data.ingest.columns import assign_columns
from dsgmcmc.data.ingest.files import SUFFIXES, suffix_of
from dsgmcmc.errors import InputError
from dsgmcmc.settings import named

Kind = Literal["text", "json", "parquet", "mtx", "npz"]

# --format: the kind, and for text the delimiter (None: detected)
FORMATS: dict[str, tuple[Kind, str | None]] = {
    "text": ("text", None),
    "csv": ("text", ","),
    "tsv": ("text", "\t"),
    "dat": ("text", "::"),
    "jsonl": ("json", None),
    "parquet": ("parquet", None),
    "mtx": ("mtx", None),
    "npz": ("npz", None),
}
DELIMITERS = ("::", "\t", ",", ";", "|", " ")
_LINE_END = r"\r\n|\n|\r"
_SAMPLE = 1 << 16
_BLOCK = 1 << 20
_LONGEST = 1 << 21  # characters of a line; DuckDB reads no longer ones
#: What is raised where something is not what "gzip" or "bzip2" makes.
DAMAGED = (OSError, EOFError, zlib.error)
_MAGIC = {
    b"PK\x03\x04": "a zip archive: unpack it first",
    b"BZh": "compressed with bzip2: decompress it first",
    b"\xfd7zXZ": "compressed with xz: decompress it first",
    b"\x28\xb5\x2f\xfd": "compressed with zstd: decompress it first",
    b"\x89HDF": "an HDF5 file: prepare reads text, Parquet, MatrixMarket and .npz",
    b"PAR1": "a Parquet file: give --format parquet",
}


@dataclass(frozen=True)
class RatingsInput:
    """One file and how to read it.

    Attributes
    ----------
    path : Path
    kind : {"text", "json", "parquet", "mtx", "npz"}
    columns : dict of str to int
        Position, from 0, of the columns "user", "item", "rating" and, if wanted, "timestamp". Without "rating" all
        ratings are 1.
    width : int
        Number of columns of the file.
    delimiter, header
        For text.
    packed : {"", "gzip", "bzip2"}
        How text, JSON lines or MatrixMarket are compressed.
    skip : int
        For text, number of lines before the first rating.
    names : tuple of str
        Names of the columns; empty where the file has none.
    context : dict of str to int
        Position of every context column, by its field in the table that ratings are read into.
    """

    path: Path
    kind: Kind
    columns: dict[str, int]
    width: int = 3
    delimiter: str = ","
    header: bool = False
    packed: str = ""
    skip: int = 0
    names: tuple[str, ...] = ()
    context: dict[str, int] = field(default_factory=dict)

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
        file = unpacked(self.path, self.packed)
        return io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="")

    def lines(self) -> Iterator[str]:
        """Yield the lines; one without an end comes in pieces, as it may not fit into memory."""
        with self.open() as file:
            while line := file.readline(_LONGEST):
                yield line


def unpacked(path: Path, packed: str) -> IO[bytes]:
    """Open what was compressed with "gzip", "bzip2" or, "", not at all."""
    if packed == "bzip2":
        return bz2.open(path)
    return cast("IO[bytes]", gzip.open(path)) if packed else path.open("rb")


def blocks(path: Path, packed: str) -> Iterator[bytes]:
    """Yield the content of a compressed file, a megabyte at a time, up to where it holds nothing or is damaged.

    Raises InputError if it is damaged, a few bytes of it stand for megabytes of white space, or its last line is too
    long.
    """
    end = b""
    try:
        with unpacked(path, packed) as file:
            while block := file.read(_BLOCK):
                if len(block) == _BLOCK and not block.strip(b"\0 \t\r\n"):
                    raise InputError(f"{path} holds a megabyte of empty lines, spaces or zero bytes: remove them")
                end = (end + block)[-_LONGEST:]
                yield block
        refuse_long_end(path, end)
    except DAMAGED as error:
        raise InputError(f"{path} is not a whole {packed} file: {error}") from error


def refuse_long_end(path: Path, end: bytes | None = None) -> None:
    """Refuse text whose last line is longer than DuckDB reads, as it leaves out such a line without a word.

    `end` is that of the content, where it is not that of the file.
    """
    if end is None:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, io.SEEK_END) - _LONGEST))
            end = file.read()
    if len(end) == _LONGEST and b"\n" not in end and b"\r" not in end:
        raise InputError(f"{path} is no table: its last line has more than {_LONGEST:,} bytes")


def inspect(path: Path, wanted: str | None, columns: dict[str, str], timestamp: bool) -> RatingsInput:
    """Find out how a file is written.

    `wanted` is the value of ``--format``, `columns` are from `parse_columns`; `timestamp`: whether a column with times
    is needed. Raises InputError if the file is empty, of no known format, or without the columns that are needed.
    """
    if not path.is_file():
        pipe = ": what comes through a pipe has to be written to one first" if path.is_fifo() else ""
        raise InputError(f"{path} is not a file{pipe}")
    if wanted is None and suffix_of(path) not in SUFFIXES:
        packed = next((what for magic, what in _MAGIC.items() if read_head(path).startswith(magic)), None)
        if packed is not None:
            raise InputError(f"{path} is {packed}")
        suffix = f"the suffix {suffix_of(path)!r}" if suffix_of(path) else "no suffix"
        raise InputError(f"{path} has {suffix}: say what it is with --format {'|'.join(FORMATS)}")
    kind, delimiter = FORMATS[wanted or SUFFIXES[suffix_of(path)]]
    head = read_head(path)
    if kind == "parquet":
        if head[:4] != b"PAR1":
            raise InputError(f"{path} is not a Parquet file")
        return _inspect_parquet(path, columns, timestamp)
    if kind == "npz":
        if head[:2] != b"PK":
            raise InputError(f"{path} is not an .npz file")
        return RatingsInput(path, kind, _fixed(path, columns, timestamp))
    packed = packed_how(head)
    text = decode_head(path, head, packed)
    if kind == "mtx":
        return RatingsInput(path, kind, _fixed(path, columns, timestamp), packed=packed)
    if kind == "json":
        return _inspect_json(path, text, columns, timestamp, packed)
    return _inspect_text(path, text, delimiter, columns, timestamp, packed)


def read_head(path: Path) -> bytes:
    """Return the first bytes of a file that is not empty."""
    try:
        with path.open("rb") as file:
            head = file.read(_SAMPLE)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    if not head:
        raise InputError(f"{path} is empty")
    return head


def packed_how(head: bytes) -> str:
    """How a file that begins so is compressed: "gzip", "bzip2" or "" for not."""
    magic = {"gzip": b"\x1f\x8b", "bzip2": b"BZh"}
    return next((name for name, start in magic.items() if head.startswith(start)), "")


def decode_head(path: Path, head: bytes, packed: str, encoding: str = "utf-8-sig") -> str:
    """Return the beginning of a text file; refuse what is no text."""
    if packed:
        try:
            with unpacked(path, packed) as file:
                head = file.read(_SAMPLE)
        except DAMAGED as error:
            raise InputError(f"{path} is not a whole {packed} file: {error}") from error
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
    if len(head) == _SAMPLE and not {10, 13} & set(head):
        raise InputError(f"{path} is no table: its first line has more than {_SAMPLE:,} bytes")
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
    path: Path, text: str, delimiter: str | None, columns: dict[str, str], timestamp: bool, packed: str
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


def _inspect_json(path: Path, text: str, columns: dict[str, str], timestamp: bool, packed: str) -> RatingsInput:
    """Look at the first line of JSON lines: an object, whose keys are the columns."""
    first = next(line for line in text.splitlines() if line.strip())
    try:
        record = json.loads(first)
        names = list(record.keys())
    except (ValueError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{path}, line 1: expected JSON lines, an object on each such as "
            f'{{"user": 1, "item": 2, "rating": 3}}; found {first[:60]!r}'
        ) from error
    return RatingsInput(
        path, "json", assign_columns(path, names, len(names), columns, timestamp), packed=packed, names=tuple(names)
    )


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


def _inspect_parquet(path: Path, columns: dict[str, str], timestamp: bool) -> RatingsInput:
    import duckdb  # a run that is sampled needs none

    from dsgmcmc.data.session import reading

    with reading(path), duckdb.connect() as connection:
        names = connection.read_parquet(glob.escape(str(path))).columns
    roles = assign_columns(path, names, len(names), columns, timestamp)
    return RatingsInput(path, "parquet", roles, len(names), names=tuple(names))
