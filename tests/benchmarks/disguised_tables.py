"""Made-up matrices in the shapes in which people have them, whose right reading is known.

A matrix is disguised: years for names, a row of units, decimal commas, a total beside the items, a
code for what was not measured. It is read from text by ``dsgmcmc prepare``, from Parquet, and as a
data frame of pandas and of polars. A reading holds if it is the right one, or if it is refused and
an option that the message names leads to the right one. Numbers that are not the right ones, and
refusals without a way out, are faults.

    python tests/benchmarks/disguised_tables.py FOLDER 0 300    # the tables of seeds 0 to 299
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from shutil import rmtree
from typing import Any, Protocol
from warnings import catch_warnings, simplefilter

import numpy as np
import pandas as pd
from bench import folder_and_seeds
from support import typed
from valid_tables import Triples, _as_polars, _triples

from dsgmcmc import BPMF
from dsgmcmc.errors import InputError

#: Ratings by their user, item and, among several of a pair, number.
Values = Mapping[Any, float]
#: What whoever made a table in Python or Parquet can do alone.
REMOVED = re.compile(r"remove (row|line) ")
#: Readings equal the truth within rounding to float32.
TOLERANCE = 1e-5
#: Options that say how a table is read.
NAMES = ("columns", "decimal", "duplicates", "first-line", "ignore", "missing", "skip-rows")
#: An option with a value, as a message of a command, or of Python, names it.
OPTION = re.compile(
    rf"(?:--)?\b({'|'.join(NAMES).replace('-', '[-_]')})[ =]\[?['\"]?([^\s;:()'\"\]]+)"
)


class Disguised(Protocol):
    """A table, the options that are given at once, and what leads to its right reading."""

    options: dict[str, str]
    answers: dict[str, str]
    below: list[list[str]]
    has_way: bool
    delimiter: str

    @property
    def truth(self) -> Values:
        """The right reading."""
        ...

    def text(self) -> str:
        """Return the table as its file has it."""
        ...


@dataclass
class Matrix:
    """A matrix as its owner has it.

    Attributes
    ----------
    corner : str
        Name of the column of names.
    items, users : list of str
        Names of columns and rows.
    cells : list of lists of str
        Texts of the cells; empty where nothing was measured.
    truth : dict
        The right reading: values by user and item.
    above, below : list of lists of str
        Lines above the header, and lines between the header and the rows.
    options : dict
        Options that are given at once.
    answers : dict
        Values of options for which messages have a placeholder, such as ``VALUE,...``.
    delimiter : str
    has_way : bool
        Whether some option leads to the right reading, or a refusal is all that is right.
    is_text : bool
        Whether nobody would read such text into a data frame as it is.
    """

    corner: str
    items: list[str]
    users: list[str]
    cells: list[list[str]]
    truth: Triples
    above: list[list[str]] = field(default_factory=list)
    below: list[list[str]] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)
    answers: dict[str, str] = field(default_factory=dict)
    delimiter: str = ","
    has_way: bool = True
    is_text: bool = False

    @classmethod
    def random(cls, rng: np.random.Generator) -> Matrix:
        """Make a matrix of positive measurements with holes, and with names of text."""
        n_users = int(rng.integers(12, 40))
        n_items = int(rng.integers(5, 14))
        decimals = int(rng.integers(1, 4))
        values = 5 + rng.normal(0, 1, (n_users, 1)) + rng.normal(0, 1, (n_users, n_items))
        texts = [[f"{abs(value):.{decimals}f}" for value in row] for row in values.tolist()]
        kept = rng.random(values.shape) > 0.2
        cells = [
            [text if is_kept else "" for text, is_kept in zip(*of_row, strict=True)]
            for of_row in zip(texts, kept.tolist(), strict=True)
        ]
        users = [f"plot {number}" for number in rng.permutation(n_users)]
        items = [f"env{number}" for number in range(n_items)]
        made = cls(str(rng.choice(["variety", "sample", "name"])), items, users, cells, {})
        made.read_again()
        return made

    def read_again(self) -> None:
        """Set the truth to what names and cells say."""
        self.truth = {
            (user, item): float(text)
            for user, row in zip(self.users, self.cells, strict=True)
            for item, text in zip(self.items, row, strict=True)
            if text
        }

    def lines(self) -> list[list[str]]:
        """Return the lines of the text."""
        rows = [[user, *row] for user, row in zip(self.users, self.cells, strict=True)]
        return [*self.above, [self.corner, *self.items], *self.below, *rows]

    def text(self) -> str:
        """Return the table as its file has it."""
        return "".join(self.delimiter.join(line) + "\n" for line in self.lines())

    def filled(self, rng: np.random.Generator, number: int) -> list[tuple[int, int]]:
        """Choose cells that were measured."""
        places = [
            (i, j)
            for i, user in enumerate(self.users)
            for j, item in enumerate(self.items)
            if (user, item) in self.truth
        ]
        chosen = rng.choice(len(places), min(number, len(places)), replace=False)
        return [places[k] for k in chosen.tolist()]

    def add_column(self, rng: np.random.Generator, name: str, texts: list[str]) -> None:
        """Add a column that is no item, first or last; messages may ask for it."""
        place = int(rng.choice([0, len(self.items)]))
        self.items.insert(place, name)
        for row, text in zip(self.cells, texts, strict=True):
            row.insert(place, text)
        self.answers["ignore"] = name


# ---------------------------------------------------------------------- disguises


def turned(made: Matrix, rng: np.random.Generator) -> None:
    """Make columns of rows: there are more items than users."""
    users = [f"of {item}" for item in made.items]
    made.items = made.users
    made.users = users
    made.cells = [list(column) for column in zip(*made.cells, strict=True)]
    made.read_again()


def years(made: Matrix, rng: np.random.Generator) -> None:
    """Name the columns by years, doses or wavelengths, in some order."""
    n = len(made.items)
    numbers: list[Any] = [
        list(range(2000, 2000 + n)),
        list(range(2024, 2024 - n, -1)),
        [1900 + 10 * k for k in range(n)],
        rng.permutation(1000)[:n].tolist(),
        [400 + 12.5 * k for k in range(n)],
    ][int(rng.integers(5))]
    made.items = [f"{number:g}" for number in numbers]
    made.corner = str(rng.choice(["country", "", "name"]))
    made.read_again()


def numbered_users(made: Matrix, rng: np.random.Generator) -> None:
    """Name rows by numbers of some thousands."""
    made.users = [str(number) for number in 1000 + rng.permutation(5000)[: len(made.users)]]
    made.corner = str(rng.choice(["user", "id", "patient"]))
    made.answers["columns"] = f"user={made.corner}"
    made.read_again()


def units(made: Matrix, rng: np.random.Generator) -> None:
    """Put a line of units below the header."""
    made.below = [["", *[str(rng.choice(["t/ha", "mg/l", "%"]))] * len(made.items)]]


def second_header(made: Matrix, rng: np.random.Generator) -> None:
    """Put a line of years or doses below the header."""
    made.below = [["", *[str(2000 + k) for k in range(len(made.items))]]]
    made.answers["skip-rows"] = "2"


def title(made: Matrix, rng: np.random.Generator) -> None:
    """Put a title and a date above the table."""
    width = len(made.items)
    made.above = [["Trials of the year", *[""] * width], ["measured by two", *[""] * width]]
    made.answers["skip-rows"] = "1-2"
    made.is_text = True


def commas(made: Matrix, rng: np.random.Generator) -> None:
    """Write decimals after a comma."""
    made.delimiter = ";"
    made.cells = [[text.replace(".", ",") for text in row] for row in made.cells]
    made.answers["decimal"] = ","


def words(made: Matrix, rng: np.random.Generator) -> None:
    """Write words where nothing was measured."""
    word = str(rng.choice(["ND", "n.d.", "-", "*", "missing", "NaN", "#N/A", "?"]))
    made.cells = [[text or word for text in row] for row in made.cells]
    made.answers["missing"] = word


def letters(made: Matrix, rng: np.random.Generator) -> None:
    """Write letters of laboratories in some cells."""
    word = str(rng.choice(["T", "n", "Y", "yes", "F"]))
    for i, j in made.filled(rng, 4):
        made.cells[i][j] = word
        del made.truth[made.users[i], made.items[j]]
    made.answers["missing"] = word


def code(made: Matrix, rng: np.random.Generator) -> None:
    """Write a code, which was said, where nothing was measured."""
    number = str(rng.choice(["-9", "99", "999", "-1"]))
    made.cells = [[text or number for text in row] for row in made.cells]
    made.options["missing"] = number


def other_column(made: Matrix, rng: np.random.Generator) -> None:
    """Add a column that is no item: numbers of rows, years, totals, ages, flags."""
    n = len(made.users)
    sums = [sum(float(text or 0) for text in row) for row in made.cells]
    columns = {
        "no": [str(k) for k in range(1, n + 1)],
        "year": [str(1990 + k % 30) for k in rng.integers(0, 30, n)],
        "total": [f"{value:.3f}" for value in sums],
        "age": [str(k) for k in rng.integers(18, 90, n)],
        "checked": [str(k) for k in rng.integers(0, 2, n)],
    }
    name = str(rng.choice(list(columns)))
    made.add_column(rng, name, columns[name])


def bounds(made: Matrix, rng: np.random.Generator) -> None:
    """Know some cells only by limits."""
    for i, j in made.filled(rng, 5):
        made.cells[i][j] = str(rng.choice(["<", ">"])) + made.cells[i][j]


def tenths(made: Matrix, rng: np.random.Generator) -> None:
    """Give grades in tenths in place of measurements."""
    grades = ["1.0", "1.3", "1.7", "2.0", "2.3", "2.7", "3.0"]
    made.cells = [[str(rng.choice(grades)) if text else "" for text in row] for row in made.cells]
    made.read_again()


def other_units(made: Matrix, rng: np.random.Generator) -> None:
    """Give one column another unit, 1,000 times smaller."""
    j = int(rng.integers(len(made.items)))
    for row in made.cells:
        if row[j]:
            row[j] = f"{1000 * float(row[j]):.1f}"
    made.read_again()
    made.options["ignore"] = "none"


def equal_rows(made: Matrix, rng: np.random.Generator) -> None:
    """Give two rows one name: they may be two measurements, or two people."""
    made.users[1] = made.users[0]
    made.has_way = False


#: In the order in which they are put on: names, numbers, lines, texts.
DISGUISES: dict[str, Callable[[Matrix, np.random.Generator], None]] = {
    disguise.__name__: disguise
    for disguise in (
        turned,
        years,
        numbered_users,
        tenths,
        other_units,
        other_column,
        units,
        second_header,
        title,
        bounds,
        letters,
        words,
        code,
        commas,
        equal_rows,
    )
}
#: Pairs that say nothing more together, or contradict each other.
APART = {
    frozenset(pair)
    for pair in (
        ("units", "second_header"),
        ("title", "units"),
        ("title", "second_header"),
        ("letters", "bounds"),
        ("letters", "words"),
        ("letters", "tenths"),
        ("letters", "code"),
        ("words", "code"),
        ("other_units", "other_column"),
    )
}


def disguised(seed: int) -> tuple[list[str], Matrix]:
    """Return the names of one or two disguises, and the matrix of a seed in them."""
    rng = np.random.default_rng([93, seed])
    made = Matrix.random(rng)
    names = choose_disguises(rng, list(DISGUISES), APART)
    for name in names:
        DISGUISES[name](made, rng)
    return names, made


def choose_disguises(
    rng: np.random.Generator, names: Sequence[str], apart: Set[frozenset[str]]
) -> list[str]:
    """Choose one or two disguises, in their order, that do not contradict each other."""
    numbers = sorted(rng.choice(len(names), int(rng.integers(1, 3)), replace=False).tolist())
    chosen = [names[k] for k in numbers]
    if len(chosen) == 2 and frozenset(chosen) in apart:
        return chosen[:1]
    return chosen


# ---------------------------------------------------------------------- readings


def by_command(made: Matrix, options: dict[str, str], folder: Path) -> Values | str:
    """Read the text by ``dsgmcmc prepare``."""
    path = folder / "m.csv"
    path.write_text(made.text(), encoding="utf-8")
    return prepared([path], options, "--matrix", reader=_triples)


def as_parquet(made: Matrix, options: dict[str, str], folder: Path) -> Values | str:
    """Read Parquet, as pandas writes it, by ``dsgmcmc prepare``."""
    path = folder / "m.parquet"
    frame_of(made).to_parquet(path, index=False)
    return prepared([path], options, "--matrix", reader=_triples)


def prepared(
    paths: list[Path], options: dict[str, str], *more: str, reader: Callable[[Path], Values]
) -> Values | str:
    """Return the ratings that ``dsgmcmc prepare`` reads in files, or its message.

    `reader` returns those of a ratings file.
    """
    said = [text for name, value in options.items() for text in (f"--{name}", value)]
    out = paths[0].with_suffix(".h5")
    done = typed("prepare", *paths, out, "--force", "--test-fraction", "0", *said, *more)
    if done.code:
        return done.err
    return reader(out)


def as_indexed(made: Matrix, options: dict[str, str], folder: Path) -> Values | str:
    """Read a frame of pandas with names in its index."""
    frame = frame_of(made)
    return _in_memory(frame.set_index(frame.columns[0]), options, folder)


def as_columns(made: Matrix, options: dict[str, str], folder: Path) -> Values | str:
    """Read a frame of pandas with names in its first column."""
    return _in_memory(frame_of(made), options, folder)


def as_polars(made: Matrix, options: dict[str, str], folder: Path) -> Values | str:
    """Read a frame of polars with names in its first column."""
    return _in_memory(_as_polars(frame_of(made)), options, folder)


def frame_of(made: Disguised) -> pd.DataFrame:
    """Return the table as ``pandas.read_csv`` gives it, with empty cells alone missing."""
    text = StringIO(made.text())
    return pd.read_csv(text, sep=made.delimiter, keep_default_na=False, na_values=[""])


def _in_memory(table: object, options: dict[str, str], folder: Path) -> Values | str:
    """Return the ratings that `BPMF.fit` reads in a matrix, or its message."""
    return fitted(BPMF(0, matrix=True), table, options, folder, reader=_triples)


def fitted(
    model: BPMF,
    table: object,
    options: dict[str, str],
    folder: Path,
    *,
    reader: Callable[[Path], Values],
) -> Values | str:
    """Return the ratings that `BPMF.fit` reads, or its message; `reader` is as for `prepared`."""
    said: dict[str, Any] = {name.replace("-", "_"): value for name, value in options.items()}
    out = folder / "run"
    rmtree(out, ignore_errors=True)
    try:
        with catch_warnings():
            simplefilter("ignore")
            model.set_params(out=str(out), iterations=6, burn_in=2, **said).fit(table)
    except InputError as error:
        return str(error)
    return reader(folder / "run.ratings.h5")


OF_TEXT = {"text": by_command}
OF_TABLES = {"parquet": as_parquet, "index": as_indexed, "columns": as_columns}


# ---------------------------------------------------------------------- faults


def faults_of(seed: int, folder: Path) -> list[str]:
    """Read the matrix of a seed in all ways; return what is wrong."""
    names, made = disguised(seed)
    disguises = " and ".join(names)
    folder.mkdir(parents=True, exist_ok=True)
    found = faults_in(made, folder)
    return [f"seed {seed}, {disguises}, {kind}: {fault}" for kind, fault in found.items()]


def faults_in(made: Matrix, folder: Path) -> dict[str, str]:
    """Read a matrix in all ways; return what is wrong, by what was read."""
    readers = dict(OF_TEXT)
    if not made.is_text:
        readers |= OF_TABLES
        if find_spec("polars") is not None:
            readers["polars"] = as_polars
    return faults_by(made, readers, folder)


def faults_by(
    made: Disguised, readers: Mapping[str, Callable[..., Values | str]], folder: Path
) -> dict[str, str]:
    """Read a table in some ways, by what is read; return what is wrong."""
    faults = {}
    for kind, read in readers.items():
        fault = fault_of(made, partial(read, made, folder=folder), kind)
        if fault:
            faults[kind] = fault
    return faults


def fault_of(made: Disguised, read: Callable[..., Values | str], kind: str) -> str:
    """Say what is wrong with a reading; "" if it is right, or options that it names make it so."""
    found = read(made.options)
    if not isinstance(found, str):
        return difference(found, made.truth)
    if not made.has_way:
        return ""
    if kind != "text" and (made.below or REMOVED.search(found)):
        return ""  # whoever made the object can leave out a row
    tried = []
    for options in _advised(found, made):
        again = read(options)
        if isinstance(again, str):
            tried.append(f"{options}: {' '.join(again.split())[:200]}")
            for further in _advised(again, made):
                last = read(options | further)
                if not isinstance(last, str) and not difference(last, made.truth):
                    return ""
        elif not difference(again, made.truth):
            return ""
        else:
            tried.append(f"{options}: {difference(again, made.truth)}")
    return f"no way out of: {' '.join(found.split())[:400]}; tried {tried}"


def _advised(message: str, made: Disguised) -> Iterator[dict[str, str]]:
    """Yield the options that a message names, with values for its placeholders."""
    seen = []
    for name, value in OPTION.findall(message):
        name = name.replace("_", "-")
        is_placeholder = value.isupper() or "," in value[:-1]
        if is_placeholder and name in made.answers:
            value = made.answers[name]
        elif name != "decimal":
            value = value.rstrip(".,")
        options = made.options | {name: value}
        if (value or is_placeholder) and options not in seen:
            seen.append(options)
            yield options


def difference(found: Values, truth: Values) -> str:
    """Say how a reading differs from the truth; "" if it does not."""
    if found.keys() != truth.keys():
        more = sorted(found.keys() - truth.keys())[:3]
        fewer = sorted(truth.keys() - found.keys())[:3]
        return f"{len(found)} ratings for {len(truth)}: {more} more, {fewer} not there"
    wrong = [
        (pair, value, truth[pair])
        for pair, value in found.items()
        if not np.isclose(value, truth[pair], rtol=TOLERANCE)
    ]
    if not wrong:
        return ""
    pair, value, right = wrong[0]
    return f"{len(wrong)} values differ: {pair} is {value:g} for {right:g}"


def main() -> None:
    """Print the faults of the tables of some seeds as JSON."""
    folder, seeds = folder_and_seeds(__doc__)
    faults = []
    for seed in seeds:
        faults += faults_of(seed, folder)
    print(json.dumps(faults, indent=1))


if __name__ == "__main__":
    main()
