"""Reads tables of ratings into the DuckDB table ``raw`` (user_id, item_id, rating, time, test).

`open_ratings` detects the format of a table and the roles of its columns, and `load` appends its
rows. A table has a row for each rating, or is a matrix (`dsgmcmc.input.wide`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, Self

from dsgmcmc.errors import InputError
from dsgmcmc.input.bounds import FAULTS, refuse_relations, set_bounds
from dsgmcmc.input.check import name_faults, refuse_faults
from dsgmcmc.input.detect import open_table
from dsgmcmc.input.odd_columns import OddColumns
from dsgmcmc.input.roles import (
    MEASURES,
    NAMED_ROLES,
    OF_BOUNDS,
    Heading,
    assign_columns,
    expand_parts,
    find_named,
    names_recur,
)
from dsgmcmc.input.sources.base import Source
from dsgmcmc.input.sources.marks import describe_mark, mark_of, may_be_number
from dsgmcmc.input.sources.matrix import Entries
from dsgmcmc.input.sources.numbers import missing_words, with_open_sides
from dsgmcmc.input.sources.tables import (
    add_columns,
    scalar,
    trim_names,
)
from dsgmcmc.input.times import (
    DateReading,
    UnreadTimes,
    doubtful,
    read_dates,
    time_sql,
    unit_of_times,
)
from dsgmcmc.input.values import is_word, truth_sql
from dsgmcmc.input.wide import (
    WideMatrix,
    columns_of_entries,
    describe_wide,
    insert_names,
    inspect_wide,
    load_wide,
    matrix_of_file,
)
from dsgmcmc.ratings.format import NAMED
from dsgmcmc.ratings.names import join_sql, main_role, of_parts
from dsgmcmc.ratings.reading import NOTHING_SAID, Reading
from dsgmcmc.settings import named
from dsgmcmc.tables.frames import unmasked
from dsgmcmc.tables.session import Session, identifier
from dsgmcmc.tables.usual import joined
from dsgmcmc.types import Array

_FEW = 10  # ratings that may be equal by chance
_TYPICAL = 100_000  # times that show the unit of all times of a file
#: Columns that are added to the table ``raw`` if a table has them, and their types.
ADDED = {"weight": "DOUBLE", "lower": "DOUBLE", "upper": "DOUBLE", "relation": "TEXT"}


class RatingsTable(NamedTuple):
    """A table of ratings whose columns have roles; its rows have not been read.

    Attributes
    ----------
    file : Source
    columns : dict of str to int
        Positions of columns by role: "user", "item", "rating", "timestamp" and `MEASURES`, of which
        only the first two are never missing. Without "rating", all ratings are 1. Further parts of
        names have roles of their own (`dsgmcmc.ratings.names`). A matrix has other roles
        (`inspect_wide`), and no "item".
    test : bool
        Whether the ratings are test ratings.
    groups : tuple of int
        Positions of the columns of groups that are held out together.
    about : str
        How a matrix in memory was read.
    labels : dict of str to str
        Columns of a data frame by role.
    reading : Reading
        What users have said of the table.
    matrix : WideMatrix, optional
        A matrix in memory.
    """

    file: Source
    columns: dict[str, int]
    test: bool = False
    groups: tuple[int, ...] = ()
    about: str = ""
    labels: Mapping[str, str] = MappingProxyType({})
    reading: Reading = NOTHING_SAID
    matrix: WideMatrix | None = None

    @property
    def is_wide(self) -> bool:
        """Whether a row has all ratings of a user."""
        return "item" not in self.columns

    @property
    def names_of_axes(self) -> Mapping[str, Array]:
        """Names of the rows and columns of a matrix that is read as entries, by role."""
        if isinstance(self.file, Entries) and self.file.axes is not None:
            return dict(zip(NAMED_ROLES, self.file.axes, strict=True))
        return {}

    @property
    def heading(self) -> str:
        """Column of the names of users in a matrix with a header; "" without one."""
        if self.is_wide and self.file.header and "user" in self.columns:
            return self.file.names[self.columns["user"]]
        return ""

    @property
    def has_bounds(self) -> bool:
        """Whether a column has bounds of ratings."""
        return not set(OF_BOUNDS).isdisjoint(self.columns)

    def text(self, role: str) -> str:
        """Return SQL of the text in the column of a role."""
        return f"c{self.columns[role]}::VARCHAR"

    @property
    def measures(self) -> list[str]:
        """Roles of the columns that say more of a rating."""
        return [role for role in MEASURES if role in self.columns]

    @property
    def has_ratings(self) -> bool:
        """Whether the table has ratings, and not clicks alone."""
        has_column = self.is_wide or "rating" in self.columns or self.has_bounds
        return has_column and self.file.has_ratings

    def has_integers(self, role: str) -> bool:
        """Whether the names of a role are integers by the type of their column."""
        positions = of_parts(self.columns, role)
        return len(positions) == 1 and self.file.has_integers(positions[0])

    def n_parts(self, role: str) -> int:
        """Return the number of parts of a role's names; 1 for labels of a matrix."""
        return len(of_parts(self.columns, role)) or 1

    def parts(self, role: str) -> tuple[str, ...]:
        """Return the columns of the parts of a role's names; none if the names have one part."""
        positions = of_parts(self.columns, role)
        if len(positions) < 2:
            return ()
        return tuple(self.file.names[k] for k in positions)

    def marked(self, choice: Reading) -> Self:
        """Return the table with the mark of its decimals, as users say or the first rows show."""
        measured = [self.columns[role] for role in ("rating", *MEASURES) if role in self.columns]
        texts = (row[k] for row in self.file.sample for k in measured if k < len(row))
        return self._replace(file=replace(self.file, mark=mark_of(choice.decimal, texts)))

    @property
    def named_columns(self) -> dict[str, str]:
        """Columns by role (`NAMED`) if the table names them; without names of several parts."""
        if isinstance(self.file, Entries):
            return dict(self.file.limits)
        if self.is_wide or self.file.is_matrix or not self.file.header:
            return {}
        found = self.labels
        if not self.file.is_in_memory:
            found = {role: self.file.names[k] for role, k in self.columns.items()}
        return {
            role: name for role, name in found.items() if role in NAMED and not self.parts(role)
        }

    def describe(self, timed: bool) -> str:
        """Describe the roles of the columns, so that users can check them."""
        if self.about:
            return self.about
        if self.is_wide:
            return describe_wide(self.file, self.columns)
        if self.file.is_matrix:
            return "user row, item column"
        texts = []
        for role in dict.fromkeys(map(main_role, self.columns)):
            if timed or role != "timestamp":
                names = [self.file.names[k] for k in of_parts(self.columns, role)]
                texts.append(f"{role} {' + '.join(names)}")
        text = ", ".join(texts)
        if not self.has_ratings:
            text += ", no rating column: treated as clicks"
        return text + describe_mark(self.file.mark)


# ------------------------------------------------------------------------------------------ columns


def open_ratings(db: Session, path: Path, choice: Reading, *, timed: bool) -> RatingsTable:
    """Return the table in a file, and the positions of its columns by role.

    Raises InputError if the file is empty, is not a table, or lacks a required column.

    Parameters
    ----------
    choice : Reading
        What the user says of the file.
    timed : bool
        Whether a column of times is required.
    """
    if choice.matrix:
        wide = inspect_wide(db, path, choice)
        if wide is not None:
            file, positions = wide
            about = file.about
            if about and not file.is_labelled:
                about = f"{describe_wide(file, positions)}; {about}"
            return RatingsTable(file, positions, about=about)
    file = open_long(db, path, choice)
    if file.is_labelled and not timed:
        return RatingsTable(file, columns_of_entries(file), about=file.about)
    if file.is_matrix and (choice.columns or timed):
        needless = []
        if choice.columns:
            needless.append(named("columns"))
        if timed:
            needless += [named("timestamps"), f"{named('split')} temporal"]
        raise InputError(f"{path} is a matrix: leave out {joined(needless)}")
    positions = assign_columns(Heading.of(file), choice.columns, timed=timed)
    return RatingsTable(file, positions).marked(choice)


def measures_of(db: Session) -> list[str]:
    """Return the columns of ``raw`` that say more of a rating: its weight, and its bounds."""
    columns = {name for name, *_ in db.execute("DESCRIBE raw").fetchall()}
    return [name for name in ("weight", "lower", "upper") if name in columns]


def find_groups(table: RatingsTable, columns: Sequence[str]) -> RatingsTable:
    """Return a table with the positions of the columns of groups that are held out together.

    Raises InputError if it is a matrix, or lacks a column.
    """
    file = table.file
    if table.is_wide or file.is_matrix:
        raise InputError(
            f"{file.path} is a matrix, without columns for {named('hold_out_by')}: leave it out"
        )
    heading = Heading.of(file)
    groups = [find_named(heading, named("hold_out_by"), column) for column in columns]
    return table._replace(groups=tuple(groups))


def open_long(db: Session, path: Path, choice: Reading) -> Source:
    """Open a file with a row for each rating; a first line that recurs below is no header."""

    def is_header(fields: list[str], rows: list[list[str]]) -> bool:
        if choice.first_line is not None:
            return choice.first_line == "names"
        return not any(map(may_be_number, fields))

    file = open_table(db, path, is_header, choice=choice)
    names_columns = bool(set(expand_parts(choice.columns, file.names).values()) & set(file.names))
    is_said = names_columns or choice.first_line is not None
    if file.header and not is_said and names_recur(file.names, file.sample):
        return open_table(db, path, lambda fields, rows: False, choice=choice)
    return file


# --------------------------------------------------------------------------------------------- rows


class LoadedTable(NamedTuple):
    """What is known of a table that was read.

    Attributes
    ----------
    number : int
        Number of ratings.
    low, high : float
        Range of the ratings.
    left_out : int
        Number of ratings that are not in ``raw``, because they are not known.
    unit : str
        A note on the unit of times, if it is not seconds.
    unread : UnreadTimes, optional
        Times that cannot be read.
    dates : str
        The order of day, month and year in dates, if it was found by their values.
    odd : OddColumns
        Columns of a matrix that may be no items.
    weightless : int
        Number of ratings that are left out because their weight is 0.
    """

    number: int
    low: float
    high: float
    left_out: int = 0
    unit: str = ""
    unread: UnreadTimes | None = None
    dates: str = ""
    odd: OddColumns = OddColumns()
    weightless: int = 0


def create_raw(db: Session, tables: Sequence[RatingsTable]) -> None:
    """Create the tables ``raw`` and ``matrix_names`` for the ratings of some tables.

    Names are integers in it if the columns of all tables have integers by their type, else text.
    """
    types = {}
    for role in NAMED_ROLES:
        types[role] = "TEXT"
        if all(table.has_integers(role) for table in tables):
            types[role] = "BIGINT"
    declare_raw(db, types, grouped=bool(tables[0].groups))
    db.execute("CREATE TABLE matrix_names (entity TEXT, id TEXT)")


def declare_raw(db: Session, types: Mapping[str, str], *, grouped: bool) -> None:
    """Create the table ``raw``; `types` are the SQL types of the names of users and of items."""
    columns = {f"{role}_id": types[role] for role in NAMED_ROLES}
    columns |= {"rating": "DOUBLE", "time": "DOUBLE", "test": "BOOLEAN"}
    if grouped:
        columns["group_id"] = "TEXT"
    declared = ", ".join(f"{name} {sql_type}" for name, sql_type in columns.items())
    db.execute(f"CREATE TABLE raw ({declared})")


def load(
    db: Session,
    table: RatingsTable,
    *,
    timed: bool,
    missing: Sequence[str] = (),
    report: Callable[[str], None] = lambda stage: None,
) -> LoadedTable:
    """Append the ratings of a table to ``raw``, in its order; times are in seconds, or NULL.

    Names of rows and columns of a matrix are in the table ``matrix_names`` (entity, id). Rows
    that have one of the words in `missing` in place of a user, an item, a rating or, if `timed`, a
    time have NULL for ``test`` (`dsgmcmc.prepare.doubts.leave_out` deletes them). Raises InputError
    if the file cannot be read, has no ratings, or has other rows with missing, non-numeric,
    infinite or NaN values. The error gives the number of bad rows and the first five.
    """
    for entity, names in table.names_of_axes.items():
        insert_names(db, entity, names)
    first = scalar(db, "SELECT count(*) FROM raw")
    dates = DateReading()
    left_out = 0
    odd = OddColumns()
    weightless = 0
    matrix = table.matrix
    if table.is_wide:
        matrix = matrix_of_file(db, table.file, table.columns, missing)
    if matrix is not None:
        wide = load_wide(
            db,
            matrix,
            test=table.test,
            missing=missing,
            report=lambda progress: report(f"reading {table.file.path.name}: {progress}"),
        )
        left_out = wide.left_out
        odd = wide.odd
    else:
        _append(db, table, missing_words(missing), timed=timed)
        weightless = _mark_weightless(db, table, first)
        _read_texts(db, table, first)
        dates = _load_dates(db, table, first)
        unread = dates.unread
        if unread is not None and unread.orders and timed:
            raise InputError(f"{table.file.path}: {unread}")
        refuse_faults(db, table.file, first, _faults(db, table, timed=timed))
    number, low, high = db.execute(
        "SELECT count(*), min(rating), max(rating) FROM raw"
        f" WHERE rowid >= {first} AND test IS NOT NULL"
    ).fetchall()[0]
    if not number:
        raise InputError(f"{table.file.path} has no ratings")
    for role in NAMED_ROLES:
        if not table.has_integers(role):
            trim_names(db, "raw", f"{role}_id", first, n_parts=table.n_parts(role))
    unit = _scale_times(db, table.file, first)
    return LoadedTable(
        number=number,
        low=low,
        high=high,
        left_out=left_out,
        unit=unit,
        unread=dates.unread,
        dates=dates.order,
        odd=odd,
        weightless=weightless,
    )


def _mark_weightless(db: Session, table: RatingsTable, first: int) -> int:
    """Set ``test`` to NULL in rows of weight 0, which say nothing; return their number."""
    if "weight" not in table.measures:
        return 0
    rows = f"rowid >= {first} AND test IS NOT NULL AND weight = 0"
    return int(scalar(db, f"UPDATE raw SET test = NULL WHERE {rows}"))


def _append(db: Session, table: RatingsTable, words: Sequence[str], *, timed: bool) -> None:
    """Append the rows of a table to ``raw``; a rating that is no number is NULL.

    All values of a row are NULL, also ``test``, if a column that must be filled has a word.
    """
    values = {
        "user_id": _name_sql(table, "user"),
        "item_id": _name_sql(table, "item"),
        "rating": _rating_sql(table),
        "time": _time_sql(table),
        "test": str(table.test),
    }
    if table.groups:
        values["group_id"] = join_sql([f"coalesce({table.file.name(k)}, '')" for k in table.groups])
    measures = _measures_sql(table)
    add_columns(db, {name: ADDED[name] for name in measures})
    values |= measures
    if words:
        needed = [role for role in table.columns if role not in OF_BOUNDS]
        if not timed:
            needed = [role for role in needed if role != "timestamp"]
        unknown = " OR ".join(is_word(table.text(role), words) for role in needed)
        values = {name: f"CASE WHEN NOT ({unknown}) THEN {sql} END" for name, sql in values.items()}
    columns = ", ".join(values)
    selected = ", ".join(values.values())
    table.file.create(db, f"INSERT INTO raw ({columns}) SELECT {selected} FROM {{table}}")


def _read_texts(db: Session, table: RatingsTable, first: int) -> None:
    """Read ratings that are bounds, or true and false; they are in ``raw`` from row `first` on.

    The table ``texts`` (row, text) has all texts of ratings that are no numbers.
    """
    db.execute("CREATE OR REPLACE TABLE texts (row BIGINT, text TEXT)")
    unread = f"rowid >= {first} AND rating IS NULL AND test IS NOT NULL"
    if "rating" in table.columns and scalar(db, f"SELECT count(*) FROM raw WHERE {unread}"):
        table.file.insert_texts(db, "texts", table.columns["rating"], first)
    if "relation" in table.columns:
        refuse_relations(db, table.file, first)
    set_bounds(db, first, table.columns)
    if not table.has_bounds:
        _set_truth(db, first)


def _set_truth(db: Session, first: int) -> None:
    """Set ratings to 1 and 0 that are true and false in words, unless others are numbers."""
    if not scalar(db, f"SELECT count(rating) FROM raw WHERE rowid >= {first}"):
        db.execute(
            f"UPDATE raw SET rating = {truth_sql('text')} FROM texts WHERE raw.rowid = texts.row"
        )


def _name_sql(table: RatingsTable, role: str) -> str:
    """Return SQL of the names of a role: as integers if their type says so, else as text."""
    positions = of_parts(table.columns, role)
    if table.has_integers(role):
        return f"c{positions[0]}"
    return join_sql([table.file.name(k) for k in positions])


def _rating_sql(table: RatingsTable) -> str:
    """Return SQL of the ratings in a table, or NULL for what is no number."""
    if "rating" not in table.columns:
        return "NULL" if table.has_bounds else "1"
    if table.has_bounds:  # a rating in single precision is compared with decimals
        return table.file.number_of_text(table.columns["rating"])
    return table.file.number(table.columns["rating"])


def _measures_sql(table: RatingsTable) -> dict[str, str]:
    """Return SQL of what columns say more of a rating, by column of ``raw``."""
    values = {}
    for role in table.measures:
        number = table.file.number_of_text(table.columns[role])
        values[role] = number
        if role == "relation":
            values[role] = f"coalesce(trim({table.text(role)}), '')"
        elif role in OF_BOUNDS:  # an infinite bound is none
            values[role] = f"CASE WHEN isfinite({number}) THEN {number} END"
    return values


def _time_sql(table: RatingsTable) -> str:
    """Return SQL of the times in a table, in the unit of the table or in seconds, or NULL."""
    if "timestamp" not in table.columns:
        return "NULL"
    return time_sql(f"c{table.columns['timestamp']}::VARCHAR")


def _load_dates(db: Session, table: RatingsTable, first: int) -> DateReading:
    """Read the times of a table that are not yet read."""
    column = table.columns.get("timestamp")
    if column is None or not doubtful(db, first):
        return DateReading()
    return read_dates(db, table.file, column, first)


def _faults(db: Session, table: RatingsTable, *, timed: bool) -> dict[str, str]:
    """Return SQL of what is wrong with a row of ``raw``, by what a message says of it."""
    of_users = name_faults("user_id", table.n_parts("user"), integers=table.has_integers("user"))
    of_items = name_faults("item_id", table.n_parts("item"), integers=table.has_integers("item"))
    faults = {
        "the user is missing": of_users.missing,
        "the item is missing": of_items.missing,
        "the rating is missing or not a number": "rating IS NULL",
        "the rating is not finite": "NOT isfinite(rating)",
        "a name is a float that may be rounded: write integers": (
            f"{of_users.rounded} OR {of_items.rounded}"
        ),
        # a stored name would end at its first NUL byte
        "a name contains a NUL byte": f"{of_users.has_nul} OR {of_items.has_nul}",
    }
    if "lower" in measures_of(db):
        faults = FAULTS | faults
    if "weight" in table.measures:
        stored = "coalesce(try_cast(weight AS FLOAT), 0)"
        faults["the weight is missing or not a number above 0 in float32"] = (
            f"NOT isfinite({stored}) OR {stored} <= 0"
        )
    if timed:
        faults["the timestamp is missing or not a time"] = "time IS NULL OR NOT isfinite(time)"
    return faults


def _scale_times(db: Session, file: Source, first: int) -> str:
    """Convert a file's times to seconds if their size shows a smaller unit.

    Returns a note that says so, or an empty text. The median decides, so that a few strange times
    do not.
    """
    step = 1 + (scalar(db, "SELECT count(*) FROM raw") - first) // _TYPICAL
    median = scalar(
        db,
        "SELECT approx_quantile(abs(time), 0.5) FROM raw WHERE"
        f" rowid >= {first} AND rowid % {step} = 0 AND isfinite(time) AND time != 0",
    )
    unit = unit_of_times(median or 0.0)
    if unit.size == 1:
        return ""
    db.execute(f"UPDATE raw SET time = time / {unit.size} WHERE rowid >= {first}")
    return f"the times of {file.path.name} are taken for {unit.name}, by their size"


def fetch_ratings(
    db: Session, columns: Mapping[str, str], condition: str = "true"
) -> dict[str, Array]:
    """Return columns of ``raw``, given their SQL by name, with weights and bounds, in its order.

    Rows count for which a condition in SQL is true. Bounds are infinite on an open side, and NaN
    for exact ratings.
    """
    selected = dict(columns) | {name: name for name in measures_of(db)}
    query = ", ".join(f"{sql} AS {identifier(name)}" for name, sql in selected.items())
    found = db.execute(f"SELECT {query} FROM raw WHERE {condition} ORDER BY rowid").fetchnumpy()
    arrays = {name: unmasked(array) for name, array in found.items()}
    if "lower" in arrays:
        lower, upper = with_open_sides(arrays["lower"], arrays["upper"])
        arrays |= {"lower": lower, "upper": upper}
    return arrays


def find_constant(tables: Sequence[RatingsTable], loaded: Sequence[LoadedTable]) -> list[str]:
    """Say which tables have equal ratings, unlike the others: these may stand for missing ones."""
    low = min(part.low for part in loaded)
    high = max(part.high for part in loaded)
    return [
        f"all {part.number:,} ratings of {table.file.path} are {part.low:g}, unlike those of the"
        " other files: do they stand for ratings that are not known?"
        for table, part in zip(tables, loaded, strict=True)
        if part.low == part.high and low < high and part.number >= _FEW
    ]


def describe_order(tables: Sequence[RatingsTable]) -> str:
    """Return the column of times, which orders ratings, or "line" without one."""
    for table in tables:
        if "timestamp" in table.columns:
            return f"column {table.file.names[table.columns['timestamp']]}"
    return "line"


def have_times(tables: Sequence[RatingsTable]) -> bool:
    """Whether any table has a column of times."""
    return any("timestamp" in table.columns for table in tables)


def describe_untimed(
    db: Session, tables: Sequence[RatingsTable], loaded: Sequence[LoadedTable]
) -> str:
    """Say which times are missing in ``raw``, or cannot be read; empty if every rating has one."""
    unread = [
        f"{table.file.path}: {part.unread}"
        for table, part in zip(tables, loaded, strict=True)
        if part.unread is not None
    ]
    if unread:
        return unread[0]
    n_untimed, n = db.execute(
        "SELECT count(*) FILTER (time IS NULL OR NOT isfinite(time)), count(*) FROM raw"
    ).fetchall()[0]
    if not n_untimed:
        return ""
    return f"{n_untimed:,} of {n:,} ratings have no time"


def find_untimed(tables: Sequence[RatingsTable], loaded: Sequence[LoadedTable]) -> list[str]:
    """Say which tables have no times, unlike the others, or times that cannot be read."""
    oldest = "of ratings with the same user and item, those without a time count as the oldest"
    notes = [
        f"{table.file.path}: {part.unread}; {oldest}, in the order of their lines"
        for table, part in zip(tables, loaded, strict=True)
        if part.unread is not None
    ]
    untimed = [str(table.file.path) for table in tables if "timestamp" not in table.columns]
    if 0 < len(untimed) < len(tables):
        notes.append(f"{', '.join(untimed)} has no times, unlike the other files: {oldest}")
    return notes
