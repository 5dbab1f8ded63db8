"""The index of a run: the original names of rows and columns, for use without its ratings file.

The index is a snapshot of kind ``index`` in ``RUN/index``, written once, before the first
iteration:

``ids/{W,H}/000000/integers``
    (n,) int64: names, if all are integers; otherwise ``text``, (bytes,) uint8: names as UTF-8,
    concatenated, and ``offsets``, (n + 1,) int64: positions in ``text`` at which names begin.
``parts/{W,H}/000000/labels_text``, ``labels_offsets``
    If the names of one side have several parts: columns of the parts, stored like text. In place of
    ``ids``, each of several parts is stored like them: ``0_integers``, or ``0_text`` and
    ``0_offsets``.
``layout/{W,H}/000000/text``, ``offsets``
    If ratings were a matrix: its names in its order, also without ratings; and ``heading_text``,
    ``heading_offsets``: the column of users.
``ratings/{W,H}/000000/count``
    (n,) int64: training ratings of each row or column.
``features/{W,H}/000000/NAME``
    If there are features: their names and groups, stored like ids: ``names_text``,
    ``names_offsets``, ``groups_text`` and ``groups_offsets``; ``centre`` (F,) float64: means over
    the rows that have features; and ``encoding`` (bytes,) uint8: JSON as UTF-8, if the ratings file
    has it.
``test/W/000000/{rows,columns}``
    (q,) int32: the pairs of the test ratings, in the order of the ratings file; with ``groups``,
    the numbers of their groups, if groups were held out.

Arrays are in the order of the rows of the factors, with all blocks joined. The rows of W are the
rows of the ratings file, which are items if the run is ``transposed``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from dsgmcmc.config.run import ResolvedConfig
from dsgmcmc.errors import InputError
from dsgmcmc.input.roles import refuse_rounded
from dsgmcmc.input.titles import read_titles
from dsgmcmc.model.quantity import Quantities
from dsgmcmc.orientation import Orientation
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.ratings.format import Side
from dsgmcmc.ratings.names import array_of, columns_of, tuples_of
from dsgmcmc.settings import named
from dsgmcmc.storage.rundir import INDEX, Facts, RunDirectory, check_made_with, header
from dsgmcmc.storage.store import Key, is_intact, read_manifest, write_snapshot
from dsgmcmc.tables.frames import plain_values
from dsgmcmc.types import Array, Factor, Float64, Int32, Int64

#: Original names of users or items.
Names = Sequence[Any] | Array
#: The factor that has the rows, or the columns, of the ratings file.
FACTOR_OF: dict[Side, str] = {"rows": "W", "cols": "H"}
#: The side of the ratings file that is the rows of a factor.
SIDE_OF: dict[str, Side] = {"W": "rows", "H": "cols"}
_SLAB_ROWS = 1 << 20  # rows whose features are read at a time


def write_index(run: RunDirectory, ratings: Ratings, config_hash: str, facts: Facts) -> None:
    """Write the index of a run that this process has locked.

    An index that is complete and made from these facts stays. `facts` are the facts with which the
    run's snapshots must agree (`dsgmcmc.storage.rundir`).
    """
    recorded = {**facts, "config_hash": config_hash, "data_hash": ratings.digest}
    path = run.path / INDEX
    with suppress(InputError):  # of a job with other settings, which ended before it wrote run.toml
        if is_intact(path, "it is written again"):
            check_made_with(read_manifest(path), recorded, path)
            return
    write_snapshot(run.path, INDEX, _blocks(ratings), header("index", recorded))


def _blocks(ratings: Ratings) -> dict[Key, Array]:
    """Return the arrays of the index."""
    blocks: dict[Key, Array] = {}
    counts = {"W": np.diff(ratings.row_indptr), "H": ratings.column_counts}
    for side, factor in FACTOR_OF.items():
        blocks[Key("ratings", factor, 0, "count")] = counts[factor]
        if side in ratings.labels:
            blocks |= _encode_texts("parts", factor, ratings.labels[side], "labels_")
        if side in ratings.parts:
            for k, ids in enumerate(ratings.name_parts(side)):
                blocks |= _encode_ids("parts", factor, ids, f"{k}_")
        else:
            blocks |= _encode_ids("ids", factor, ratings.ids(side))
        if side in ratings.layouts:
            blocks |= _encode_texts("layout", factor, ratings.ids(side, "layout"))
            blocks |= _encode_texts("layout", factor, [ratings.heading], "heading_")
    for side, stored in ratings.features.items():
        factor = FACTOR_OF[side]
        blocks |= _encode_texts("features", factor, stored.names, "names_")
        blocks |= _encode_texts("features", factor, stored.groups, "groups_")
        blocks[Key("features", factor, 0, "centre")] = _feature_means(ratings, side)
        if stored.encoding:
            blocks[Key("features", factor, 0, "encoding")] = np.frombuffer(
                stored.encoding.encode(), np.uint8
            )
    rows = np.arange(ratings.n_rows, dtype=np.int32)
    blocks[Key("test", "W", 0, "rows")] = np.repeat(rows, np.diff(ratings.test_indptr))
    blocks[Key("test", "W", 0, "columns")] = ratings.columns("test", 0, ratings.n_rows)
    if ratings.grouped_by:
        blocks[Key("test", "W", 0, "groups")] = ratings.groups("test", 0, ratings.n_rows)
    return blocks


def _feature_means(ratings: Ratings, side: Side) -> Float64:
    """Return the means of the features over rows (or columns) that have some, (F,) float64."""
    stored = ratings.features[side]
    total = np.zeros(len(stored.names))
    n = len(stored.indptr) - 1
    for start in range(0, n, _SLAB_ROWS):
        part = ratings.feature_slab(side, start, min(start + _SLAB_ROWS, n))
        total += np.bincount(part.indices, part.values.astype(np.float64), minlength=len(total))
    return total / max(int((np.diff(stored.indptr) > 0).sum()), 1)


def _encode_ids(content: str, factor: str, ids: Array, prefix: str = "") -> dict[Key, Array]:
    """Return the fields of names: ``integers``, or ``text`` and ``offsets``."""
    if ids.dtype == np.int64:
        return {Key(content, factor, 0, f"{prefix}integers"): ids}
    return _encode_texts(content, factor, ids, prefix)


def _encode_texts(
    content: str, factor: str, names: Iterable[str], prefix: str = ""
) -> dict[Key, Array]:
    """Encode names as the fields ``text`` and ``offsets`` of the object `content`."""
    encoded = [name.encode() for name in names]
    offsets = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(name) for name in encoded], out=offsets[1:])
    text = np.frombuffer(b"".join(encoded), np.uint8)
    return {
        Key(content, factor, 0, f"{prefix}text"): text,
        Key(content, factor, 0, f"{prefix}offsets"): offsets,
    }


class Vocabulary:
    """Original names of the users or of the items, and their rows in the factor.

    Parameters
    ----------
    entity : {"user", "item"}
        Side of the names, for messages.
    ids : (n,) int64, or (n,) object array of str or of tuples of int or str
        Names in the order of the factor's rows.
    labels : sequence of str
        Columns of names, one a part; unknown if the ratings had no names of columns.
    heading : str
        Column of users in the matrix of ratings, if it is known.

    Attributes
    ----------
    parts : tuple of str
        Columns of the parts of names, if these are tuples.
    integers : bool
        Whether all names are integers, of one part.
    integer_parts : list of bool
        Whether all names are integers, for each part.
    columns : list of str
        Columns of names in tables: ``user_id`` (or ``item_id``), or one for each part.
    """

    def __init__(
        self, entity: str, ids: Array, labels: Sequence[str] = (), heading: str = ""
    ) -> None:
        self.entity = entity
        self._heading = heading
        self.ids = ids
        self.labels = tuple(labels)
        parts = self.labels if len(labels) > 1 else ()
        self.parts = parts
        self.columns = [f"{entity}_id"]
        if parts:
            self.columns = [_result_column(entity, part) for part in parts]
        self.integers = ids.dtype == np.int64
        self.integer_parts = [self.integers]
        if parts and len(ids):
            self.integer_parts = [isinstance(part, int) for part in ids[0]]
        self._order = np.zeros(0, np.int32)  # rows in the order of names, if these are integers
        self._rows: dict[Any, int] = {}  # rows by name, if names are no integers
        if self.integers:
            self._order = np.argsort(ids, kind="stable").astype(np.int32)
        else:
            self._rows = {name: row for row, name in enumerate(ids.tolist())}
        self._sorted = ids[self._order]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def heading(self) -> str:
        """Column, or dimension, of these names in a matrix: as in the ratings of the run.

        It is the entity if that column is unknown, or would have the name of another one.
        """
        heading = self._heading
        if len(self.labels) == 1:
            heading = self.labels[0]
        if not heading or heading in _MATRIX_COLUMNS or "/" in heading:
            return self.entity
        return heading

    @property
    def title(self) -> str:
        """What the ratings call these users or items: the columns of their names."""
        if len(self.labels) > 1:
            return ", ".join(self.labels)
        return self.heading

    @override
    def __repr__(self) -> str:
        names = ", ".join(map(str, self.ids[:3].tolist()))
        if len(self) > 3:
            names += ", ..."
        return f"<{len(self):,} {self.entity}s: {names}>"

    def parts_of(self, name: Any) -> tuple[Any, ...]:
        """Return the parts of a name: itself alone, if names have one part."""
        if self.parts:
            return tuple(name)
        return (name,)

    def name_of(self, parts: tuple[Any, ...]) -> Any:
        """Return the name that has some parts."""
        if self.parts:
            return parts
        return parts[0]

    def table(self, names: Array) -> dict[str, Array]:
        """Return columns of a table with some names, (m,) each."""
        if not self.parts:
            return {self.columns[0]: names}
        by_part = columns_of(names, self.integer_parts)
        return dict(zip(self.columns, by_part, strict=True))

    def index_of(self, names: Names, *, refuse: bool = False) -> Int32:
        """Look up the factor rows of some names.

        Parameters
        ----------
        names : (q,) int64 if the run's names are integers, else (q,) of str, or of tuples
        refuse : bool
            Whether to raise an error for unknown names.

        Returns
        -------
        (q,) int32
            -1 for names that are unknown.

        Raises
        ------
        InputError
            If `names` must be integers but has other values, or if `refuse` is true and names are
            unknown; the error lists the first five.
        """
        names = self.typed(names)
        if self.integers:
            positions = np.minimum(np.searchsorted(self._sorted, names), len(self.ids) - 1)
            is_known = self._sorted[positions] == names
            index = np.where(is_known, self._order[positions], np.int32(-1))
        else:
            index = np.array([self._rows.get(name, -1) for name in names.tolist()], np.int32)
        if refuse and (index < 0).any():
            raise unknown_names(self.entity, list(dict.fromkeys(names[index < 0].tolist())))
        return index

    def rows_in_order(self, names: Array | None = None) -> Int64:
        """Return the rows of names, without unknown ones; by default all, in the order of ids."""
        if names is None:
            return np.argsort(self.ids, kind="stable")
        rows = self.index_of(names)
        return rows[rows >= 0].astype(np.int64)

    def typed(self, names: Names) -> Array:
        """Convert names to the type of `ids`, int64 or object.

        A name of several parts is a tuple, or a text such as ``station=s3,day=d4``. Raises
        InputError if names cannot be int64, or have other parts.
        """
        if self.parts:
            return array_of(map(self._typed_parts, names))
        array = np.asarray(names)
        if array.dtype.kind == "M":
            names = plain_values(array)
            array = array_of(names)
        if array.dtype.kind == "f":
            refuse_rounded(array, self.entity)
        if array.dtype.kind == "O":
            refuse_rounded([name for name in array if isinstance(name, float)], self.entity)
            if any(isinstance(name, tuple) for name in array):
                raise InputError(f"names of {self.entity}s have one part in the run")
        if not self.integers:
            if array is names:
                names = array.tolist()
            return np.array([str(name) for name in names], object)
        if array.dtype.kind == "i" or array.size == 0:
            return array.astype(np.int64)
        try:
            numbers = [_integer(name) for name in array.tolist()]
            return np.array(numbers, np.int64)
        except (TypeError, ValueError, OverflowError):
            raise InputError(
                f"the run's {self.entity}s have integer names; found {listed(array.tolist())}"
            ) from None

    def _typed_parts(self, name: object) -> tuple[Any, ...]:
        """Return a name of several parts with the types of the run's names."""
        if isinstance(name, str):
            return self._parse(name)
        if not isinstance(name, tuple) or len(name) != len(self.parts):
            raise InputError(
                f"{self.entity}s have names of {len(self.parts)} parts, {', '.join(self.parts)};"
                f" found {name!r}"
            )
        typed: list[Any] = []
        for label, part, integer in zip(self.parts, name, self.integer_parts, strict=True):
            if not integer:
                typed.append(str(part))
                continue
            try:
                typed.append(_integer(part))
            except (TypeError, ValueError, OverflowError):
                raise InputError(
                    f"the run's {label} of {self.entity}s is an integer; found {part!r}"
                ) from None
        return tuple(typed)

    def _parse(self, text: str) -> tuple[Any, ...]:
        """Return the name in a text such as ``station=s3,day=d4``, in any order of the parts.

        Raises InputError if the text has another form, or is the text of several names, because
        parts may have commas and equals signs.
        """
        candidates = []
        for labels in permutations(self.parts):
            for values in split_labelled(text, labels):
                by_label = dict(zip(labels, values, strict=True))
                candidates.append(self._typed_parts(tuple(by_label[part] for part in self.parts)))
        candidates = list(dict.fromkeys(candidates))
        if not candidates:
            form = ",".join(f"{part}=VALUE" for part in self.parts)
            raise InputError(f"{text!r}: {self.entity}s have names of parts: write {form}")
        known = [name for name in candidates if name in self._rows] or candidates
        if len(known) > 1:
            raise InputError(
                f"{text!r} may be {' or '.join(map(shown, known[:2]))}: in Python, give a tuple"
            )
        return known[0]


#: Columns of tables that have names of users or items among others.
_RESULT_COLUMNS = re.compile(
    r"(user_id|item_id|item_name|score|rank|sd|mean|median|q[0-9]+|ratings|similarity|side|id"
    r"|chain|iteration|weight|tau|bias|bias_sd|factor_[0-9]+(_sd)?)"
)

#: Columns, and variables, of completed matrices.
_MATRIX_COLUMNS = ("draw", "rating", "sd")


def _result_column(entity: str, part: str) -> str:
    """Return the column of a part of names in tables, where other columns have other names."""
    if _RESULT_COLUMNS.fullmatch(part.lower()):
        return f"{entity}_{part}"
    return part


def split_labelled(text: str, labels: Sequence[str]) -> Iterator[list[str]]:
    """Yield all ways in which a text is LABEL=VALUE,..., with labels in this order: the values."""
    label, *others = labels
    if not text.startswith(f"{label}="):
        return
    text = text[len(label) + 1 :]
    if not others:
        yield [text]
        return
    following = f",{others[0]}="
    end = text.find(following)
    while end >= 0:
        for values in split_labelled(text[end + 1 :], others):
            yield [text[:end], *values]
        end = text.find(following, end + 1)


def shown(name: object) -> str:
    """Return a name as messages show it: the parts of a name in brackets."""
    if isinstance(name, tuple):
        return f"({', '.join(map(str, name))})"
    return str(name)


def _integer(name: Any) -> int:
    """Return a name as an integer; raises ValueError for 1.5, and for text such as 007 and 1_0."""
    if isinstance(name, str):
        name = name.strip()
    number = int(name)
    if number != name and str(number) != name:
        raise ValueError
    return number


def listed(names: list[Any]) -> str:
    """Return the first five names as text, followed by "..." if there are more."""
    text = ", ".join(shown(name)[:80] for name in names[:5])
    if len(names) > 5:
        text += ", ..."
    return text


def unknown_names(entity: str, names: list[Any]) -> InputError:
    """Return the error for names that the run does not know."""
    unknown = f"one {entity} is"
    if len(names) > 1:
        unknown = f"{len(names)} {entity}s are"
    return InputError(f"{unknown} unknown to the run: {listed(names)}")


def refuse_unknown_in(path: Path, names: Mapping[str, Iterable[Any]], hint: str = "") -> None:
    """Raise InputError with the first unknown names of users and items in a file, if any."""
    distinct = {entity: list(dict.fromkeys(of_entity)) for entity, of_entity in names.items()}
    described = [
        str(unknown_names(entity, unknown)) for entity, unknown in distinct.items() if unknown
    ]
    if described:
        raise InputError(
            f"{path}: {'; '.join(described)}. Take them out, predict them with {named('unknown')}"
            f" prior, or give their ratings to fold_in in Python{hint}"
        )


def refuse_unknown(vocabulary: Vocabulary, names: Names) -> Int32:
    """Return the factor rows of names, as `Vocabulary.index_of` does.

    Raises InputError, which says how users and items become known, if a name is unknown.
    """
    index = vocabulary.index_of(names)
    if (index < 0).any():
        entity = vocabulary.entity
        unknown = dict.fromkeys(vocabulary.typed(names)[index < 0].tolist())
        raise InputError(
            f"{unknown_names(entity, list(unknown))}; in Python, fold_in takes ratings of new"
            f" {entity}s, and predictions from the prior need {named('unknown')} prior"
        )
    return index


def item_titles(items: Vocabulary, path: Path, matching: str | None = None) -> dict[int, str]:
    """Read titles of the run's items from a file (`dsgmcmc.input.titles`), by row of the item.

    With `matching`, only of items whose line matches this regular expression. Items that are not in
    the file are left out. Raises InputError if the file cannot be read, or has no item of the run.
    """
    titles = read_titles(path, matching)
    if items.integers:  # a column of floats, as data frames make it where an id is missing
        titles = {name.removesuffix(".0"): title for name, title in titles.items()}
    rows = {str(name): row for row, name in enumerate(items.ids.tolist())}
    result = {rows[name]: title for name, title in titles.items() if name in rows}
    if not result:
        examples = ", ".join(map(shown, items.ids[:3]))
        lines = f"no line of {path}"
        if matching:
            lines += f" that matches {matching!r}"
        raise InputError(
            f"{lines} has an item of the run; their names are, for example, {examples}"
        )
    return result


def _has_ids(
    shapes: Mapping[Key, tuple[int, ...]], content: str, factor: str, n: int, *, prefix: str = ""
) -> bool:
    """Whether an index has n names as `_encode_ids` writes them."""
    if shapes.get(Key(content, factor, 0, f"{prefix}integers")) == (n,):
        return True
    has_offsets = shapes.get(Key(content, factor, 0, f"{prefix}offsets")) == (n + 1,)
    return has_offsets and Key(content, factor, 0, f"{prefix}text") in shapes


class Index:
    """The index of a run, read lazily.

    Raises InputError if the index is missing or damaged.

    Parameters
    ----------
    facts : dict
        Section ``[run]`` of ``run.toml``.
    """

    def __init__(self, run: RunDirectory, facts: Facts) -> None:
        self._snapshot = run.open_index(facts)
        self._columns: Mapping[str, str] = facts.get("columns", {})
        self.orientation = Orientation(bool(facts["transposed"]))
        #: Factor names by "user" and "item".
        self.factors = {
            entity: self.orientation.factor_of(entity).name for entity in ("user", "item")
        }

    def vocabulary(self, entity: str) -> Vocabulary:
        """Return the names of the users or of the items."""
        labels = self._read_texts("parts", entity, "labels_")
        if not labels and entity in self._columns:
            labels = [self._columns[entity]]
        if len(labels) < 2:
            ids = self._read_ids("ids", entity)
            return Vocabulary(entity, ids, labels, self._heading(entity))
        names = [self._read_ids("parts", entity, f"{k}_") for k in range(len(labels))]
        return Vocabulary(entity, tuples_of(names), labels)

    def _heading(self, entity: str) -> str:
        """Return the column of users in the matrix of ratings; "" if it is unknown."""
        headings = self._read_texts("layout", entity, "heading_")
        if entity != "user" or not headings:
            return ""
        return headings[0]

    def layout(self, entity: str) -> list[str]:
        """Return the names of a matrix in its order, with those without ratings; else none."""
        return self._read_texts("layout", entity)

    def features(self, entity: str) -> tuple[list[str], list[str]]:
        """Return names and groups of the features of users or items; empty if there are none."""
        names = self._read_texts("features", entity, "names_")
        groups = self._read_texts("features", entity, "groups_")
        return names, groups

    def feature_sizes(self) -> dict[Factor, tuple[int, int]]:
        """Return the numbers of features and of feature groups, by factor.

        Factors without features are left out.
        """
        sizes = {}
        for entity, factor in self.factors.items():
            names, groups = self.features(entity)
            if names:
                sizes[Factor[factor]] = (len(names), len(set(groups)))
        return sizes

    def quantities(self, config: ResolvedConfig, levels: int) -> Quantities:
        """Return all quantities of the run's model, given the number of levels of the ratings."""
        return config.quantities(self.orientation, self.feature_sizes(), levels)

    def encoding(self, entity: str) -> tuple[str, Float64]:
        """Return the encoding of the features as JSON, and the features' means.

        The encoding is empty if the ratings file has none.
        """
        centre = self._snapshot.read(Key("features", self.factors[entity], 0, "centre"))
        encoding = self._read("features", entity, "encoding")
        if encoding is None:
            return "", centre
        return encoding.tobytes().decode(), centre

    def _read(self, content: str, entity: str, field: str) -> Array | None:
        """Read an array; None if the index does not have it."""
        key = Key(content, self.factors[entity], 0, field)
        if key not in set(self._snapshot.block_keys()):
            return None
        return self._snapshot.read(key)

    def _read_ids(self, content: str, entity: str, prefix: str = "") -> Array:
        """Read names written by `_encode_ids`."""
        integers = self._read(content, entity, f"{prefix}integers")
        if integers is not None:
            return integers
        return np.array(self._read_texts(content, entity, prefix), dtype=object)

    def _read_texts(self, content: str, entity: str, prefix: str = "") -> list[str]:
        """Read names written by `_encode_texts`; none if the index does not have them."""
        text = self._read(content, entity, f"{prefix}text")
        offsets = self._read(content, entity, f"{prefix}offsets")
        if text is None or offsets is None:
            return []
        return [text[start:stop].tobytes().decode() for start, stop in pairwise(offsets.tolist())]

    def lengths(self) -> tuple[dict[str, int], int]:
        """Return the number of rows of each factor, and the number of test ratings.

        Both are read from the manifest. Raises InputError if an array is missing, or lengths
        contradict each other.
        """
        shapes = {entry.key: entry.shape for entry in self._snapshot.manifest.blocks}
        rows = {}
        for factor in self.factors.values():
            (n,) = shapes.get(Key("ratings", factor, 0, "count"), (0,))
            (n_labels,) = shapes.get(Key("parts", factor, 0, "labels_offsets"), (0,))
            has_names = _has_ids(shapes, "ids", factor, n)
            if n_labels > 2:
                parts = range(n_labels - 1)
                has_names = all(_has_ids(shapes, "parts", factor, n, prefix=f"{k}_") for k in parts)
            if not n or not has_names:
                raise InputError(
                    f"{self._snapshot.path} is inconsistent: not every row of {factor} has one name"
                )
            rows[factor] = n
        test_rows = shapes.get(Key("test", "W", 0, "rows"))
        test_columns = shapes.get(Key("test", "W", 0, "columns"))
        if test_rows is None or test_rows != test_columns or len(test_rows) != 1:
            raise InputError(
                f"{self._snapshot.path} is inconsistent: not every test rating has a row and a"
                " column"
            )
        return rows, test_rows[0]

    def counts(self, entity: str) -> Int64:
        """Return the number of training ratings of every user or item, (n,) int64."""
        return self._snapshot.read(Key("ratings", self.factors[entity], 0, "count"))

    def test_pairs(self) -> tuple[Int32, Int32]:
        """Return the rows of users and items of the test ratings, (q,) int32 each.

        They are in the order of the ratings file.
        """
        rows = self._snapshot.read(Key("test", "W", 0, "rows"))
        columns = self._snapshot.read(Key("test", "W", 0, "columns"))
        return self.orientation.users_and_items(rows, columns)

    def test_groups(self) -> Int32 | None:
        """Return the numbers of the groups of the test ratings, (q,); None without groups.

        They are numbered from 0. Raises InputError if not every test rating has one.
        """
        key = Key("test", "W", 0, "groups")
        if key not in set(self._snapshot.block_keys()):
            return None
        groups = self._snapshot.read(key)
        if groups.shape != self._snapshot.read(Key("test", "W", 0, "rows")).shape:
            raise InputError(
                f"{self._snapshot.path} is inconsistent: not every test rating has one group"
            )
        return np.unique(groups, return_inverse=True)[1].astype(np.int32)
