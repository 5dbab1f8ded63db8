"""Text files: tables with a delimiter between columns, and lines that are parsed by a layout."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import duckdb
from typing_extensions import override

from dsgmcmc.errors import InputError
from dsgmcmc.input.sources.base import (
    AS_STORED,
    BLOCK_BYTES,
    Source,
    compression,
    opened,
    quoted,
)
from dsgmcmc.input.sources.formats import CLICK, Layout
from dsgmcmc.input.sources.tables import SHOWN, scalar
from dsgmcmc.tables.session import Session, literal, reading

NO_DELIMITER = "\1"  # of a file whose lines are read whole
LONGEST_LINE = 1 << 21  # bytes of the longest line that DuckDB reads
_MAX_REJECTS = 1000  # bad lines that DuckDB collects; each takes kilobytes


@dataclass(frozen=True)
class TextFile(Source):
    """A text file with a delimiter between columns.

    Attributes
    ----------
    packed : bool
        Whether the file is compressed with gzip.
    encoding : str
    mixed : bool
        Whether lines at the beginning of the file end in different ways, which DuckDB skips
        wrongly.
    """

    is_text: ClassVar[bool] = True

    packed: bool = False
    encoding: str = "utf-8"
    mixed: bool = False

    @override
    def create(self, db: Session, query: str) -> None:
        end = check_packed(self.path) if self.packed else _end_of(self.path)
        _refuse_long_line(self.path, end)
        with reading(self.path):
            self._execute(db, query)
        self._refuse_rejected(db)

    def _execute(self, db: Session, query: str) -> None:
        """Run a query; again, if it fails, for lines of text that end in different ways."""
        table = self._sql(self.mixed)
        try:
            db.execute(query.replace("{table}", table))
        except duckdb.InvalidInputException:
            # DuckDB raises this error if some lines end in \r\n and others in \n
            db.execute("DROP TABLE IF EXISTS reject_errors; DROP TABLE IF EXISTS reject_scans")
            db.execute(query.replace("{table}", self._sql(mixed_ends=True)))

    @override
    def rows(self, db: Session) -> Iterator[Sequence[str | None]]:
        number = 0
        with opened(self.path) as file, io.TextIOWrapper(file, "utf-8-sig", newline="") as text:
            for _ in range(self.first_line - 1):
                text.readline()
            try:
                for row in csv.reader(text, delimiter=self.delimiter):
                    if not row:
                        continue
                    if len(row) != self.width:
                        raise ValueError(f"it has {len(row)} columns: expected {self.width}")
                    yield row
                    number += 1
            except (ValueError, csv.Error) as error:
                raise InputError(
                    f"{self.path}: {self.where(number)} cannot be read: {error}"
                ) from error

    @override
    def sql(self, query: str) -> str:
        return self._sql(self.mixed)

    def _sql(self, mixed_ends: bool) -> str:
        """Return SQL for a text file.

        Mixed line ends need DuckDB's non-strict mode, which ignores surplus columns. Therefore a
        second scan of the file, with one more column, raises an error at the first line with a
        surplus column.
        """
        quote = "" if self.delimiter in ("::", NO_DELIMITER) else '"'
        fields = ", ".join(f"c{k}: 'VARCHAR'" for k in range(self.width))
        source = (
            f"read_csv({quoted(self.path)}, auto_detect = false, header = false,"
            f" skip = {self.first_line - 1}, delim = {literal(self.delimiter)},"
            f" quote = '{quote}', escape = '{quote}', {compression(self.packed)},"
            f" encoding = '{self.encoding}', {AS_STORED}, "
        )
        rejects = f"store_rejects = true, rejects_limit = {_MAX_REJECTS}"
        if not mixed_ends:
            return f"{source}{rejects}, columns = {{{fields}}})"
        source += "strict_mode = false, parallel = false, "
        surplus = literal(f"a line has more than {self.width} columns, and begins with ")
        surplus_lines = (
            f"SELECT count(error({surplus} || c0)) FROM {source}ignore_errors = true,"
            f" null_padding = true, columns = {{{fields}, more: 'VARCHAR'}}) WHERE more IS NOT NULL"
        )
        rows = f"SELECT * FROM {source}{rejects}, columns = {{{fields}}})"
        return f"({rows} WHERE ({surplus_lines}) = 0)"

    def _refuse_rejected(self, db: Session) -> None:
        """Raise InputError if DuckDB could not read some lines."""
        bad = db.execute(
            "SELECT line, first(column_name), first(error_message), first(csv_line), sum(count(*))"
            " OVER () FROM reject_errors GROUP BY line ORDER BY line"
        ).fetchall()
        db.execute("DROP TABLE reject_errors; DROP TABLE reject_scans")
        if not bad:
            return
        n_lines = _count_lines(len(bad))
        if bad[0][-1] >= _MAX_REJECTS:
            n_lines = f"{len(bad)} or more lines"
        message = f"{self.path}: {n_lines} cannot be read; correct or remove them"
        for line, column, error, content, _ in bad[:SHOWN]:
            name = self.names[int(column[1:])] if column else ""
            reason = error.splitlines()[0].replace(f'"{column}"', f'"{name}"')
            message += f"\n  line {line}: {reason} ({str(content).strip()[:60]!r})"
        raise InputError(message)


def _count_lines(n: int) -> str:
    return "1 line" if n == 1 else f"{n} lines"


def check_packed(path: Path) -> bytes:
    """Read a compressed file, and return its end; raise InputError for damaged compression.

    DuckDB overlooks it.
    """
    end = b""
    with opened(path) as file:
        while block := file.read(BLOCK_BYTES):
            end = (end + block)[-LONGEST_LINE:]
    return end


def _end_of(path: Path) -> bytes:
    """Return the end of a file."""
    with opened(path) as file:
        file.seek(max(0, file.seek(0, io.SEEK_END) - LONGEST_LINE))
        return file.read()


def _refuse_long_line(path: Path, end: bytes) -> None:
    """Raise InputError if the last line of a file is too long, which DuckDB overlooks."""
    if len(end) >= LONGEST_LINE and b"\n" not in end and b"\r" not in end:
        raise InputError(
            f"{path} is not a table: its last line has more than {LONGEST_LINE:,} bytes"
        )


@dataclass(frozen=True, kw_only=True)
class ParsedFile(TextFile):
    """A text file whose lines become rows, as a layout says."""

    is_parsed: ClassVar[bool] = True

    layout: Layout

    @override
    def create(self, db: Session, query: str) -> None:
        self._parse(db)
        with reading(self.path):
            db.execute(query.replace("{table}", self.sql(query)))
        db.execute("DROP TABLE lines")

    @override
    def sql(self, query: str) -> str:
        return f"({self.layout.rows})"

    def _parse(self, db: Session) -> None:
        """Parse all lines into the table ``lines``; raise InputError if some cannot be read."""
        layout = self.layout
        lines = TextFile(
            self.path,
            ["line"],
            first_line=layout.skipped + 1,
            delimiter=NO_DELIMITER,
            packed=self.packed,
            encoding=self.encoding,
            mixed=self.mixed,
        )
        lines.create(db, f"CREATE OR REPLACE TABLE lines AS {layout.query}")
        bad = db.execute(
            "SELECT rowid, bad, count(*) OVER () FROM lines WHERE bad IS NOT NULL ORDER BY rowid"
            f" LIMIT {SHOWN}"
        ).fetchall()
        if bad:
            n_bad = bad[0][-1]
            message = (
                f"{self.path}: {_count_lines(n_bad)} cannot be read; expected {layout.expected}"
            )
            for row, line, _ in bad:
                message += f"\n  line {row + layout.skipped + 1}: {line.strip()[:60]!r}"
            raise InputError(message)
        if fault := scalar(db, f"SELECT {layout.fault} FROM lines"):
            raise InputError(f"{self.path} cannot be read: {fault}")


@dataclass(frozen=True, kw_only=True)
class ParsedMatrix(ParsedFile):
    """A text file whose lines become entries of a matrix, as a layout says."""

    is_matrix: ClassVar[bool] = True
    is_text: ClassVar[bool] = False

    @property
    @override
    def has_ratings(self) -> bool:
        return self.layout.columns["value"] != CLICK
