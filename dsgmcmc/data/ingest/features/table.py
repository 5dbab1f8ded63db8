"""Reads a file that describes users or items into a DuckDB table of text."""

from __future__ import annotations

import codecs
import glob
import re
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

from dsgmcmc.data.ingest.columnar import is_parquet, open_columns
from dsgmcmc.data.ingest.columns import NAMES, find_column, plain
from dsgmcmc.data.ingest.features.movielens import FILES
from dsgmcmc.data.ingest.load import read_csv, scalar
from dsgmcmc.data.ingest.packed import DAMAGED, check, is_packed, unpacked
from dsgmcmc.data.ingest.sources import DELIMITERS, decode_head, detect_delimiter, split_line, whole_lines
from dsgmcmc.data.session import identifier, literal, reading
from dsgmcmc.errors import InputError
from dsgmcmc.types import Float64, Int64

#: Texts that stand for a missing value.
MISSING = ("", "na", "n/a", "nan", "null", "\\n", "(no genres listed)")

#: Entries as they are found: rows, features, and values.
Entries = tuple[Int64, Int64, Float64]


@dataclass(frozen=True)
class Table:
    """A DuckDB table with ``id`` and the columns ``c0, c1 ...`` of a file, as text; what is missing is NULL.

    Attributes
    ----------
    path : Path
    entity : {"user", "item"}
        What a row describes.
    columns : dict of str to str
        From a column's name in the file to its name in the table.
    kinds : dict of str to str
        Kinds of columns that are known beforehand, by the name in the file.
    first_line : int
        Line of the file that the first row stands in; 0 where there are no lines.
    notes : list of str
        What there is to say of it.
    """

    path: Path
    entity: str
    columns: dict[str, str]
    kinds: dict[str, str] = field(default_factory=dict)
    first_line: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Name of the table."""
        return f"described_{self.entity}s"

    def where(self, rows: list[int]) -> str:
        """Where rows stand in the file, for messages."""
        if not self.first_line:
            return f"row{'s' * (len(rows) > 1)} {', '.join(str(row + 1) for row in rows)}"
        return f"line{'s' * (len(rows) > 1)} {', '.join(str(row + self.first_line) for row in rows)}"


def read_table(db: duckdb.DuckDBPyConnection, path: Path, entity: str, id_column: str | None, separator: str) -> Table:
    """Read a file of features: text with a header, one of MovieLens' own files, or Parquet.

    Users or items are named by `id_column`, by default one that is called so, or else the first. Parquet's own lists
    are joined by the separator. Raises InputError if it cannot be read, has no such column, or names nobody in some
    rows.
    """
    read = _read_columnar if is_parquet(path) else _read_text
    with reading(path):
        table = read(db, path, entity, id_column, separator)
    if not scalar(db, f"SELECT count(*) FROM {table.name}"):
        raise InputError(f"{path} has no rows")
    nameless = [row for (row,) in db.execute(f"SELECT rowid FROM {table.name} WHERE id IS NULL LIMIT 5").fetchall()]
    if nameless:
        raise InputError(f"{path}: the {entity} is missing in {table.where(nameless)}")
    return table


def is_missing(text: str) -> str:
    """Return SQL that is true for text that says that nothing is known.

    No ``IN``: DuckDB makes a join of each, and takes minutes and gigabytes for those of some hundred columns.
    """
    return f"regexp_full_match(trim({text}), {literal('|'.join(map(re.escape, MISSING)))}, 'i')"


def _create(
    db: duckdb.DuckDBPyConnection, table: Table, id_text: str, texts: list[str], source: str, path: Path | None = None
) -> Table:
    cleaned = [
        f"CASE WHEN {is_missing(text)} THEN NULL ELSE trim({text}) END AS {column}"
        for text, column in zip(texts, table.columns.values(), strict=True)
    ]
    names = ", ".join([f"nullif(trim({id_text}), '') AS id", *cleaned])
    parameters = None if path is None else [glob.escape(str(path.absolute()))]
    db.execute(f"CREATE TABLE {table.name} AS SELECT {names} FROM {source}", parameters)
    return table


def _read_columnar(
    db: duckdb.DuckDBPyConnection, path: Path, entity: str, id_column: str | None, separator: str
) -> Table:
    given = open_columns(db, path)
    names, types = given.columns, [str(kind) for kind in given.types]
    position = _id_position(path, names, entity, id_column)

    def text(k: int) -> str:
        name = identifier(names[k])
        if types[k].endswith("[]"):
            return f"array_to_string({name}, {literal(separator)})"
        if k == position and types[k] in ("DOUBLE", "FLOAT"):  # as pandas makes of integers when one is missing
            return f"CASE WHEN {name} = floor({name}) THEN {name}::BIGINT::VARCHAR ELSE {name}::VARCHAR END"
        return f"{name}::VARCHAR"

    others = [k for k in range(len(names)) if k != position]
    table = Table(path, entity, {names[k]: f"c{k}" for k in others})
    db.register("given", given)
    _create(db, table, text(position), [text(k) for k in others], "given")
    db.unregister("given")
    return table


def _read_text(db: duckdb.DuckDBPyConnection, path: Path, entity: str, id_column: str | None, separator: str) -> Table:
    encoding = _encoding(path)
    text = decode_head(path, "latin-1" if encoding == "latin-1" else "utf-8-sig")
    lines = whole_lines(text)
    delimiter, known = FILES.get(path.name.removesuffix(".gz"), ("", {}))
    fields = split_line(lines[0], delimiter) if known else []
    if known and len(fields) == len(known) and plain(fields[0]) not in NAMES[entity]:
        names, skip, kinds = list(known), 0, {name: kind for name, kind in known.items() if kind != "id"}
    else:
        delimiter = detect_delimiter(lines, 2, DELIMITERS[:-1])
        if len(split_line(lines[0], delimiter)) < 2:
            raise InputError(f"{path} has one column: expected an id and its features in every line")
        names, skip, kinds = [name.strip() for name in split_line(lines[0], delimiter)], 1, {}
        if any(re.fullmatch(r"[+-]?[0-9.]+", name) for name in names):
            raise InputError(
                f"{path} has no header: its first line must name the columns ({lines[0][:60]!r} is not a name)"
            )
    position = _id_position(path, names, entity, id_column)
    columns = [f"c{k}" for k in range(len(names))]
    others = [k for k in range(len(names)) if k != position]
    table = Table(path, entity, {names[k]: columns[k] for k in others}, kinds, 1 + skip)
    more = f", store_rejects = true, encoding = '{encoding}'"
    source = read_csv(columns, delimiter, skip, is_packed(path), more, quoted=skip > 0)
    check(path)
    _create(db, table, columns[position], [columns[k] for k in others], source, path)
    rejected = db.execute("SELECT line, error_message FROM reject_errors ORDER BY line LIMIT 5").fetchall()
    if rejected:
        raise InputError(
            f"{path} has lines that are not of {len(names)} columns; correct or remove them."
            + "".join(f"\n  line {line}: {reason.splitlines()[0]}" for line, reason in rejected)
        )
    db.execute("DROP TABLE reject_errors; DROP TABLE reject_scans")
    return table


def _encoding(path: Path) -> str:
    """UTF-8, or else Latin-1, as of MovieLens."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        with unpacked(path) as file:
            while block := file.read(1 << 20):
                decoder.decode(block)
    except UnicodeDecodeError:
        return "latin-1"
    except DAMAGED as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    return "utf-8"


def _id_position(path: Path, names: list[str], entity: str, wanted: str | None) -> int:
    """Which column names the users or items."""
    if len({name.lower() for name in names}) < len(names):
        raise InputError(f"{path}: two columns have the same name ({', '.join(names)})")
    if len(names) < 2:
        raise InputError(f"{path} has one column: expected an id and its features")
    if wanted is None:
        return find_column(names, entity) or 0
    if wanted not in names:
        raise InputError(f"{path} has columns {', '.join(names)}, and no {wanted!r} that --{entity}-id names")
    return names.index(wanted)
