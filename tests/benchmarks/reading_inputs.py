"""Inputs of `readings.py`: ratings and features as files and in memory, good and bad."""

import io
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import bench  # noqa: F401  # finds the helpers of tests
import duckdb
import pandas as pd
import pyarrow

Content = bytes | str | Callable[[Path], object]
Settings = Mapping[str, Any]
NOTHING: Mapping[str, Any] = MappingProxyType({})


class Input(NamedTuple):
    """Ratings to be read.

    Parameters
    ----------
    name : str
    ratings : tuple of str, or any object
        Names of files, or an object in memory.
    settings : mapping
        Settings by their names in Python; `test` is a name of a file or an object.
    files : mapping of str to bytes, str or function
        Contents of files by name, or a function that writes the file at a path.
    y : optional
        The second argument of `fit`.
    """

    name: str
    ratings: Any
    settings: Settings = NOTHING
    files: Mapping[str, Content] = NOTHING
    y: Any = None

    @property
    def of_files(self) -> bool:
        """Whether the ratings are in files."""
        return isinstance(self.ratings, tuple)

    def write(self) -> None:
        """Write the files to the current folder."""
        for name, content in self.files.items():
            path = Path(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, str):
                path.write_text(content, encoding="utf-8", newline="")
            elif isinstance(content, bytes):
                path.write_bytes(content)
            else:
                content(path)


def options_of(settings: Settings) -> list[str]:
    """Settings as options of `prepare`."""
    options = []
    for name, value in settings.items():
        option = name.replace("_", "-")
        text = value
        if isinstance(value, Mapping):
            text = ",".join(f"{key}={kind}" for key, kind in value.items())
        elif isinstance(value, list):
            text = ",".join(map(str, value))
        if isinstance(value, bool):
            options.append(f"--{option}" if value else f"--no-{option}")
        else:
            options.append(f"--{option}={text}")
    return options


def file(name: str, content: Content, settings: Settings = NOTHING, **more: Any) -> Input:
    """Make an input of one file, called ``r.csv`` unless `path` says otherwise."""
    path = more.pop("path", "r.csv")
    return Input(name, (path,), {**settings, **more.pop("options", {})}, {path: content, **more})


# ------------------------------------------------------------------------ files and frames alike


def of_one_type(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table whose columns of several types are texts, as Arrow and Parquet need."""
    mixed = [
        name
        for name in table
        if table[name].map(type).nunique() > 1 and table[name].dtype == object
    ]
    texts = {name: table[name].map(str).where(table[name].notna(), None) for name in mixed}
    return table.assign(**texts)


def parquet(table: pd.DataFrame) -> bytes:
    """Write a data frame as Parquet."""
    buffer = io.BytesIO()
    of_one_type(table).to_parquet(buffer)
    return buffer.getvalue()


def in_forms(
    name: str, table: pd.DataFrame, settings: Settings = NOTHING, *, every: bool = False
) -> Iterator[Input]:
    """Yield a table as a file and as a data frame, and in one or `every` other form.

    Which other form it has depends on its name alone.
    """
    is_named = bool(settings.get("matrix")) and not isinstance(table.index, pd.RangeIndex)

    def arrow() -> pyarrow.Table:
        return pyarrow.Table.from_pandas(of_one_type(table), preserve_index=False)

    files: dict[str, Callable[[], Content]] = {
        "r.csv": lambda: table.to_csv(index=is_named),
        "r.tsv": lambda: table.to_csv(index=is_named, sep="\t", na_rep="NA"),
        "r.json": lambda: table.to_json(orient="records", lines=True, date_format="iso"),
        "r.parquet": lambda: parquet(table),
    }
    objects: dict[str, Callable[[], Any]] = {
        "frame": lambda: table,
        "arrow": arrow,
        "relation": lambda: duckdb.from_arrow(arrow()),
        "array": table.to_numpy,
        "records": lambda: table.to_records(index=False),
        "dict": lambda: {column: table[column].tolist() for column in table},
    }
    number = zlib.crc32(name.encode())
    of_files = chosen(list(files), number)
    of_objects = chosen([*objects, "y"], number)
    if every:
        of_files = list(files)
        of_objects = [*objects, "y"]
    elif number % 2:
        of_files.pop()
    else:
        of_objects.pop()
    for form in of_files:
        yield Input(f"{name}, {form}", (form,), settings, {form: files[form]()})
    for form in of_objects:
        if form != "y":
            yield Input(f"{name}, {form}", objects[form](), settings)
        elif "rating" in table:
            pairs = table.drop(columns="rating")
            yield Input(f"{name}, frame and y", pairs, settings, y=table.rating)


def chosen(forms: list[str], number: int) -> list[str]:
    """Return the first form and one of the others, which a number chooses."""
    return [forms[0], forms[1 + number % (len(forms) - 1)]]


# 5 users, 4 items, half stars; ids as sparse as in real exports
RATINGS = [
    (100200, 7, 4.0, 960),
    (100200, 31, 0.5, 961),
    (100200, 900001, 5.0, 962),
    (3, 7, 3.5, 100),
    (3, 12, 2.0, 101),
    (58, 31, 4.5, 500),
    (58, 12, 1.0, 501),
    (58, 900001, 3.0, 502),
    (999999, 7, 2.5, 300),
    (41, 900001, 1.5, 300),
]
COLUMNS = ["user", "item", "rating", "timestamp"]
FRAME = pd.DataFrame(RATINGS, columns=COLUMNS)
HEADER = "userId,movieId,rating,timestamp\n"
BIG = 76561197960265729  # an id that no float64 has


def rows(form: str, end: str = "\n") -> str:
    """Write the ratings with a format of u, i, r and t."""
    return "".join(form.format(u=u, i=i, r=r, t=t) + end for u, i, r, t in RATINGS)


def text(header: Sequence[str], table: Sequence[Sequence]) -> str:
    """Write rows as CSV."""
    return pd.DataFrame(table, columns=list(header)).to_csv(index=False)


PLAIN = rows("{u},{i},{r},{t}")
GOOD = HEADER + PLAIN
