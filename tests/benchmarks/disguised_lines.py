"""Made-up tables with a line for each rating, and sparse arrays, whose right reading is known.

A table is disguised as `disguised_tables` disguises matrices: numbers for names, decimal commas,
codes and letters for what was not measured, several measurements of a pair, weights of 0, levels in
tenths, bounds as text, columns in another order, several files with the same names. It is read from
text, Parquet and JSON by ``dsgmcmc prepare``, and as a frame of pandas and of polars. Sparse arrays
are read in all forms of SciPy, and from files.

    python tests/benchmarks/disguised_lines.py FOLDER 0 300    # the tables of seeds 0 to 299
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import scipy.io
import scipy.sparse
from bench import folder_and_seeds
from disguised_tables import (
    Matrix,
    Values,
    choose_disguises,
    difference,
    faults_by,
    fitted,
    frame_of,
    prepared,
)
from valid_tables import _as_polars

from dsgmcmc import BPMF
from dsgmcmc.ratings.file import Ratings


@dataclass
class Lines:
    """A table with a line for each rating, as its owner has it.

    Attributes
    ----------
    heads : list of str
        Names of the columns.
    columns : dict of str to list of str
        Texts of the columns, by role: user, item, rating, and others.
    counts : list of bool
        Which lines have a rating that counts.
    values : list of float
        The ratings; those that are known only by bounds have their finite bound.
    limits : dict
        Lower and upper bounds by user and item, where a rating is not exact.
    header : bool
        Whether the table names its columns.
    rule : str
        Which ratings of a pair count: all ("keep"), their "mean", the "first" or the "last".
    options, answers, delimiter, has_way, below
        As of `Matrix`.
    """

    heads: dict[str, str]
    columns: dict[str, list[str]]
    counts: list[bool]
    values: list[float]
    limits: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)
    header: bool = True
    rule: str = "keep"
    options: dict[str, str] = field(default_factory=dict)
    answers: dict[str, str] = field(default_factory=dict)
    delimiter: str = ","
    has_way: bool = True
    below: list[list[str]] = field(default_factory=list)

    @classmethod
    def random(cls, rng: np.random.Generator) -> Lines:
        """Make lines of positive measurements, in any order, with names of text."""
        shape = (int(rng.integers(8, 30)), int(rng.integers(8, 30)))
        rated = rng.random(shape) < 0.4
        rated[0, 0] = True
        users, items = np.nonzero(rated)
        order = rng.permutation(len(users))
        decimals = int(rng.integers(1, 4))
        numbers = np.abs(5 + rng.normal(0, 1, len(order)))
        columns = {
            "user": [f"plot {k}" for k in users[order].tolist()],
            "item": [f"env{k}" for k in items[order].tolist()],
            "rating": [f"{x:.{decimals}f}" for x in numbers.tolist()],
        }
        heads = {role: role for role in columns}
        return cls(heads, columns, [True] * len(order), list(map(float, columns["rating"])))

    @property
    def truth(self) -> Values:
        """The ratings that count, by user, item and their number among those of the pair."""
        found: dict[tuple[str, str], list[float]] = {}
        pairs = zip(self.columns["user"], self.columns["item"], strict=True)
        for pair, counts, value in zip(pairs, self.counts, self.values, strict=True):
            if counts:
                found.setdefault(pair, []).append(value)
        limits = {pair: limit for pair, limit in self.limits.items() if pair in found}
        return {**chosen(found, self.rule), **bounded(limits)}

    def text(self) -> str:
        """Return the table as its file has it."""
        rows = list(zip(*self.columns.values(), strict=True))
        if self.header:
            rows.insert(0, tuple(self.heads[role] for role in self.columns))
        return "".join(self.delimiter.join(row) + "\n" for row in rows)

    def some(self, rng: np.random.Generator, number: int) -> list[int]:
        """Choose lines."""
        return rng.choice(len(self.values), min(number, len(self.values)), replace=False).tolist()

    def read_again(self) -> None:
        """Set the values to what the ratings say."""
        self.values = list(map(float, self.columns["rating"]))


def chosen(several: dict[tuple[str, str], list[float]], rule: str) -> Values:
    """Return those of several ratings of pairs that count by a rule."""
    choose: dict[str, Callable[[list[float]], list[float]]] = {
        "keep": lambda found: found,
        "mean": lambda found: [float(np.mean(found))],
        "first": lambda found: found[:1],
        "last": lambda found: found[-1:],
    }
    return numbered({pair: choose[rule](found) for pair, found in several.items()})


def bounded(limits: dict[tuple[str, str], tuple[float, float]]) -> Values:
    """Return lower and upper bounds of pairs as further values."""
    return {
        (*pair, 0, name): bound
        for pair, found in limits.items()
        for name, bound in zip(("lower", "upper"), found, strict=True)
    }


def numbered(several: dict[tuple[str, str], list[float]]) -> Values:
    """Return the ratings of pairs by user, item and number, in ascending order."""
    return {
        (*pair, number): value
        for pair, found in several.items()
        for number, value in enumerate(sorted(found))
    }


# ---------------------------------------------------------------------- disguises


def numbers_for_names(made: Lines, rng: np.random.Generator) -> None:
    """Name users and items by numbers, which overlap."""
    for role in ("user", "item"):
        known = {name: str(k) for k, name in enumerate(dict.fromkeys(made.columns[role]), 1)}
        made.columns[role] = [known[name] for name in made.columns[role]]


def other_heads(made: Lines, rng: np.random.Generator) -> None:
    """Give columns names of a field."""
    made.heads |= {"user": "plot", "item": "variety", "rating": "harvest"}
    made.answers["columns"] = "user=plot,item=variety,rating=harvest"


def other_order(made: Lines, rng: np.random.Generator) -> None:
    """Put the columns in another order."""
    made.columns = {role: made.columns[role] for role in rng.permutation(list(made.columns))}


def more_columns(made: Lines, rng: np.random.Generator) -> None:
    """Add columns that say nothing of ratings, one of them first."""
    n = len(made.values)
    made.columns = {"no": [str(k) for k in range(1, n + 1)], **made.columns}
    made.columns["note"] = [f"note {k % 3}" for k in range(n)]
    made.heads |= {"no": "no", "note": "note"}


def swapped(made: Lines, rng: np.random.Generator) -> None:
    """Put items before users, without a header, and say so."""
    made.header = False
    made.columns = {role: made.columns[role] for role in ("item", "user", "rating")}
    made.options["columns"] = "user=2,item=1,rating=3"


def tenths(made: Lines, rng: np.random.Generator) -> None:
    """Give grades in tenths in place of measurements."""
    grades = ["1", "1.3", "1.7", "2", "2.3", "2.7", "3"]
    made.columns["rating"] = [str(rng.choice(grades)) for _ in made.values]
    made.read_again()


def replicates(made: Lines, rng: np.random.Generator) -> None:
    """Measure some pairs again, at the end of the file."""
    for k in made.some(rng, 12):
        for role, texts in made.columns.items():
            texts.append(texts[k] if role != "rating" else f"{made.values[k] + 0.7:.2f}")
        made.counts.append(True)
        made.values.append(float(made.columns["rating"][-1]))
    made.rule = str(rng.choice(["keep", "mean", "first", "last"]))
    made.options["duplicates"] = made.rule


def weights(made: Lines, rng: np.random.Generator) -> None:
    """Give some ratings the weight 0, which leaves them out."""
    drawn = rng.choice([0.0, 0.5, 1.0, 2.0], len(made.values), p=[0.2, 0.3, 0.3, 0.2])
    made.columns["weight"] = [f"{x:g}" for x in drawn.tolist()]
    made.heads["weight"] = "w"
    names = {role: made.heads[role] for role in ("user", "item", "rating", "weight")}
    made.options["columns"] = ",".join(f"{role}={name}" for role, name in names.items())
    made.counts = [counts and x > 0 for counts, x in zip(made.counts, drawn.tolist(), strict=True)]


def bounds(made: Lines, rng: np.random.Generator) -> None:
    """Know some ratings only by limits."""
    for k in made.some(rng, 6):
        pair = (made.columns["user"][k], made.columns["item"][k])
        value = made.values[k]
        sign = str(rng.choice(["<", ">"]))
        made.limits[pair] = (-np.inf, value) if sign == "<" else (value, np.inf)
        made.columns["rating"][k] = sign + made.columns["rating"][k]


def letters(made: Lines, rng: np.random.Generator) -> None:
    """Write letters of laboratories in place of some ratings."""
    word = str(rng.choice(["T", "n", "Y", "yes", "ND", "-", "n.d."]))
    for k in made.some(rng, 4):
        made.columns["rating"][k] = word
        made.counts[k] = False
    made.answers["missing"] = word


def blanks(made: Lines, rng: np.random.Generator) -> None:
    """Leave some ratings empty."""
    for k in made.some(rng, 4):
        made.columns["rating"][k] = ""
        made.counts[k] = False
    made.answers["missing"] = ""


def code(made: Lines, rng: np.random.Generator) -> None:
    """Write a code, which was said, in place of some ratings."""
    number = str(rng.choice(["99", "-1", "-9", "999"]))
    for k in made.some(rng, 5):
        made.columns["rating"][k] = number
        made.counts[k] = False
    made.options["missing"] = number


def commas(made: Lines, rng: np.random.Generator) -> None:
    """Write decimals after a comma."""
    made.delimiter = str(rng.choice([";", "\t"]))
    for role in ("rating", "weight"):
        if role in made.columns:
            made.columns[role] = [text.replace(".", ",") for text in made.columns[role]]
    made.answers["decimal"] = ","


#: In the order in which they are put on.
DISGUISES: dict[str, Callable[[Lines, np.random.Generator], None]] = {
    disguise.__name__: disguise
    for disguise in (
        numbers_for_names,
        other_heads,
        tenths,
        replicates,
        weights,
        bounds,
        letters,
        blanks,
        code,
        commas,
        more_columns,
        other_order,
        swapped,
    )
}
#: Pairs that contradict each other.
APART = {
    frozenset(pair)
    for pair in (
        ("swapped", "other_heads"),
        ("swapped", "weights"),
        ("swapped", "more_columns"),
        ("swapped", "other_order"),
        ("letters", "blanks"),
        ("letters", "code"),
        ("blanks", "code"),
        ("letters", "bounds"),
        ("replicates", "weights"),
        ("replicates", "bounds"),
    )
}


def disguised(seed: int) -> tuple[list[str], Lines]:
    """Return the names of one or two disguises, and the lines of a seed in them."""
    rng = np.random.default_rng([931, seed])
    made = Lines.random(rng)
    names = choose_disguises(rng, list(DISGUISES), APART)
    for name in names:
        DISGUISES[name](made, rng)
    return names, made


# ---------------------------------------------------------------------- readings


def by_command(made: Lines, options: dict[str, str], folder: Path) -> Values | str:
    """Read the text by ``dsgmcmc prepare``."""
    path = folder / "m.csv"
    path.write_text(made.text(), encoding="utf-8")
    return prepared([path], options, reader=values_in)


def as_parquet(made: Lines, options: dict[str, str], folder: Path) -> Values | str:
    """Read Parquet, as pandas writes it."""
    path = folder / "m.parquet"
    frame_of(made).to_parquet(path, index=False)
    return prepared([path], options, reader=values_in)


def as_json(made: Lines, options: dict[str, str], folder: Path) -> Values | str:
    """Read JSON, an object a line, as pandas writes it."""
    path = folder / "m.jsonl"
    frame_of(made).to_json(path, orient="records", lines=True)
    return prepared([path], options, reader=values_in)


def as_frame(made: Lines, options: dict[str, str], folder: Path) -> Values | str:
    """Read a frame of pandas."""
    return in_memory(frame_of(made), options, folder)


def as_polars(made: Lines, options: dict[str, str], folder: Path) -> Values | str:
    """Read a frame of polars."""
    return in_memory(_as_polars(frame_of(made)), options, folder)


def as_array(made: Lines, options: dict[str, str], folder: Path) -> Values | str:
    """Read an array of the columns, without their names."""
    return in_memory(frame_of(made).to_numpy(object), options, folder)


def in_memory(table: object, options: dict[str, str], folder: Path) -> Values | str:
    """Return the ratings that `BPMF.fit` reads in a table of lines, or its message."""
    model = BPMF(0, test_fraction=0, duplicates=None)
    return fitted(model, table, options, folder, reader=values_in)


def values_in(path: Path) -> Values:
    """Return the training ratings of a ratings file by user, item and number."""
    several: dict[tuple[str, str], list[float]] = {}
    limits: dict[tuple[str, str], tuple[float, float]] = {}
    with Ratings(path) as ratings:
        rows = ratings.ids("rows").tolist()
        columns = ratings.ids("cols").tolist()
        slab = ratings.slab("train", 0, ratings.n_rows)
        numbers = np.repeat(np.arange(ratings.n_rows), np.diff(slab.indptr))
        for k, (row, column) in enumerate(zip(numbers, slab.indices, strict=True)):
            pair = (str(rows[row]), str(columns[column]))
            if ratings.orientation.transposed:
                pair = pair[::-1]
            several.setdefault(pair, []).append(float(slab.values[k]))
            if slab.bounds is not None and slab.bounds.lower[k] < slab.bounds.upper[k]:
                limits[pair] = (float(slab.bounds.lower[k]), float(slab.bounds.upper[k]))
    return {**numbered(several), **bounded(limits)}


# ---------------------------------------------------------------------- sparse arrays


def sparse_faults(seed: int, folder: Path) -> list[str]:
    """Read a sparse array in all forms of SciPy, and from files; return what is wrong."""
    rng = np.random.default_rng([932, seed])
    shape = (2 * int(rng.integers(4, 12)), 3 * int(rng.integers(3, 8)))
    dense = np.where(rng.random(shape) < 0.5, np.round(rng.normal(5, 1, shape), 2), 0)
    dense[0, 0] = 5
    coo = scipy.sparse.coo_array(dense)
    truth = {
        (str(i), str(j), 0): float(dense[i, j])
        for i, j in zip(*map(np.ndarray.tolist, np.nonzero(dense)), strict=True)
    }
    forms = {name: coo.asformat(name) for name in ("csr", "csc", "coo", "lil", "dok", "dia")}
    forms["bsr"] = scipy.sparse.bsr_array(dense, blocksize=(2, 3))
    forms["matrix"] = scipy.sparse.csr_matrix(dense)
    found: dict[str, Values | str] = {
        name: in_memory(form, {}, folder) for name, form in forms.items()
    }
    scipy.sparse.save_npz(folder / "s.npz", coo.tocsr())
    scipy.io.mmwrite(folder / "s.mtx", coo)
    found["npz"] = prepared([folder / "s.npz"], {}, reader=values_in)
    found["mtx"] = prepared([folder / "s.mtx"], {}, reader=values_in)
    if not isinstance(found["mtx"], str):  # its rows count from 1
        found["mtx"] = {
            (str(int(user) - 1), str(int(item) - 1), k): value
            for (user, item, k), value in found["mtx"].items()
        }
    return [
        f"seed {seed}, sparse {name}: {fault}"
        for name, values in found.items()
        if (fault := _fault_of_found(values, truth))
    ]


def _fault_of_found(found: Values | str, truth: Values) -> str:
    """Say what is wrong with a reading that needs no option."""
    if isinstance(found, str):
        return f"refused: {' '.join(found.split())[:300]}"
    return difference(found, truth)


# ---------------------------------------------------------------------- several files


def files_faults(seed: int, folder: Path) -> list[str]:
    """Read two files with the same names: of lines, and of matrices; return what is wrong."""
    return _faults_of_two_tables(seed, folder) + _faults_of_two_matrices(seed, folder)


def _faults_of_two_tables(seed: int, folder: Path) -> list[str]:
    """Read a table of lines that was cut in two, with pairs that are in both parts."""
    rng = np.random.default_rng([934, seed])
    made = Lines.random(rng)
    replicates(made, rng)
    lines = made.text().splitlines()
    half = len(lines) // 2
    paths = [folder / "a.csv", folder / "b.csv"]
    paths[0].write_text("\n".join(lines[:half]) + "\n", encoding="utf-8")
    paths[1].write_text("\n".join([lines[0], *lines[half:]]) + "\n", encoding="utf-8")
    fault = _fault_of_found(prepared(paths, made.options, reader=values_in), made.truth)
    return [f"seed {seed}, two tables, {made.rule}: {fault}"] if fault else []


def _faults_of_two_matrices(seed: int, folder: Path) -> list[str]:
    """Read two matrices whose rows have the same names: of the same items, and of others."""
    rng = np.random.default_rng([933, seed])
    first = Matrix.random(rng)
    second = Matrix.random(rng)
    n = min(len(first.users), len(second.users))
    same_names = sorted(first.users[:n])
    for made in (first, second):
        made.users = list(same_names)
        made.cells = made.cells[:n]
        made.corner = "name"
    if rng.random() < 0.5:
        second.items = [f"more {item}" for item in second.items]
    paths = [folder / "a.csv", folder / "b.csv"]
    truth: dict[tuple[str, str], list[float]] = {}
    for path, made in zip(paths, (first, second), strict=True):
        made.read_again()
        path.write_text(made.text(), encoding="utf-8")
        for pair, value in made.truth.items():
            truth.setdefault(pair, []).append(value)
    is_apart = max(map(len, truth.values())) == 1
    faults = []
    for rule in (None, "keep", "mean", "first", "last"):
        said = [] if rule is None else ["--duplicates", rule]
        found = prepared(paths, {}, "--matrix", *said, reader=values_in)
        if rule is None and not is_apart and isinstance(found, str):
            continue  # asked: they may be other people
        fault = _fault_of_found(found, chosen(truth, rule or "keep"))
        if fault:
            faults.append(f"seed {seed}, two matrices, duplicates {rule}: {fault}")
    return faults


# ---------------------------------------------------------------------- faults


def faults_of(seed: int, folder: Path) -> list[str]:
    """Read the table of a seed in all ways; return what is wrong."""
    folder.mkdir(parents=True, exist_ok=True)
    if seed % 10 == 8:
        return sparse_faults(seed, folder)
    if seed % 10 == 9:
        return files_faults(seed, folder)
    names, made = disguised(seed)
    disguises = " and ".join(names)
    found = faults_in(made, folder)
    return [f"seed {seed}, {disguises}, {kind}: {fault}" for kind, fault in found.items()]


def faults_in(made: Lines, folder: Path) -> dict[str, str]:
    """Read lines in all ways; return what is wrong, by what was read."""
    readers: dict[str, Callable[..., Values | str]] = {"text": by_command}
    if made.header:
        readers |= {"parquet": as_parquet, "json": as_json, "frame": as_frame}
        if find_spec("polars") is not None:
            readers["polars"] = as_polars
        if list(made.columns) == ["user", "item", "rating"] and "columns" not in made.options:
            readers["array"] = as_array
    return faults_by(made, readers, folder)


def main() -> None:
    """Print the faults of the tables of some seeds as JSON."""
    folder, seeds = folder_and_seeds(__doc__)
    faults = []
    for seed in seeds:
        faults += faults_of(seed, folder)
    print(json.dumps(faults, indent=1))


if __name__ == "__main__":
    main()
