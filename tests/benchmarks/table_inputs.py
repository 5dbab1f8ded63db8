"""Inputs of `readings.py`: tables whose columns have roles, and matrices."""

from collections.abc import Iterator

import bench  # noqa: F401  # finds the helpers of tests
import numpy as np
import pandas as pd
from reading_inputs import BIG, COLUMNS, FRAME, Input, file, in_forms

# ------------------------------------------------------------------------------- roles of columns


def long_tables() -> Iterator[Input]:
    """Yield tables with a line for each rating, whose columns have further roles."""
    yield from in_forms("long ratings", FRAME)
    yield from in_forms("long held out", FRAME, {"test_fraction": 0.3})
    yield from in_forms("long texts", FRAME.assign(user=FRAME.user.map("u{}".format)))
    large = FRAME.assign(user=BIG + FRAME.user, item=pd.Categorical(FRAME.item.astype(str)))
    yield from in_forms("long large ids", large, every=True)
    gaps = FRAME.astype({"rating": object})
    gaps.loc[3, "rating"] = None
    gaps.loc[5, "user"] = None
    yield from in_forms("long gaps", gaps, every=True)
    yield from in_forms("long gaps left out", gaps, {"missing": ""}, every=True)
    for word in ("NULL", "\\N", "n.d."):
        table = FRAME.astype({"rating": object, "user": object, "item": object})
        table.loc[1, "rating"] = word
        table.loc[2, "user"] = word
        table.loc[4, "item"] = word
        yield from in_forms(f"long {word}", table)
        yield from in_forms(f"long {word} left out", table, {"missing": [word, 77]})
    for words in (("TRUE", "FALSE"), ("True", "False"), ("T", "F"), ("yes", "no"), ("Y", "N")):
        cells = [(u, i, words[(u * i + u) % 2]) for u in range(8) for i in range(5)]
        table = pd.DataFrame(cells, columns=COLUMNS[:3])
        yield from in_forms(f"long {words[0]}", table)
    mixed = pd.DataFrame([(1, 1, 1), (2, 2, 2), (3, 1, "yes")], columns=COLUMNS[:3], dtype=object)
    yield from in_forms("long yes among numbers", mixed.astype({"rating": str}))


EXACT = [("a", "x", 1.0), ("a", "y", 1.5), ("b", "x", 2.5), ("b", "y", 3.25)]


def bounds() -> Iterator[Input]:
    """Yield ratings that lie within bounds, as texts, relations and columns."""
    for word in ("<0.5", "< 0.5", "<=2", ">5", ">= 1e1", "[2, 3]", "[-1,.5]", "[3, 2]", "<low"):
        table = pd.DataFrame([*EXACT, ("c", "x", word)], columns=COLUMNS[:3])
        yield from in_forms(f"bounds {word}", table)
    for name, columns, cells in (
        ("relation", "relation=rel", [(7.0, "<"), (9.0, ">="), (4.0, "=")]),
        ("words", "relation=rel", [(7.0, "about")]),
        (
            "columns",
            "lower=from,upper=to",
            [(None, 1.0, 2.0), (None, None, 0.5), (4.0, None, None)],
        ),
        ("outside", "upper=to", [(9, 2)]),
        ("two", "upper=to", [("<0.1", 5)]),
        ("two signs", "relation=rel", [("<0.1", ">")]),
        ("completed", "lower=from,relation=rel", [("<5", 1.0, "<"), (7, None, ">=")]),
    ):
        roles = [role.partition("=")[2] for role in columns.split(",")]
        table = pd.DataFrame(
            [*((*row, *[None] * len(roles)) for row in EXACT),
             *(("c", f"i{k}", *cell) for k, cell in enumerate(cells))],
            columns=[*COLUMNS[:3], *roles],
        )  # fmt: skip
        yield from in_forms(f"bounds by {name}", table, {"columns": columns})
    rng = np.random.default_rng(0)
    cells = [(u, i, round(rng.normal(), 2)) for u in range(20) for i in range(15)]
    cells = [(u, i, f"<{x}" if rng.random() < 0.3 else str(x)) for u, i, x in cells]
    table = pd.DataFrame(cells, columns=COLUMNS[:3])
    yield from in_forms("bounds held out", table, {"test_fraction": 0.3})
    yield Input("bounds of texts", table.iloc[:, :2], y=table.rating.tolist())


def weights_and_replicates() -> Iterator[Input]:
    """Yield weights, and several ratings of a pair."""
    cells = [
        (1, 1, 3.0, 0.5),
        (1, 2, 4.0, 2.0),
        (2, 1, 5.0, 1.0),
        (2, 2, 1.5, 8.0),
        (3, 1, 2.0, 1.5),
    ]
    names = [*COLUMNS[:3], "precision"]
    columns = {"columns": "weight=precision"}
    yield from in_forms("weights", pd.DataFrame(cells, columns=names), columns)
    for wrong in (0, -1, None, "much", float("inf"), 1e300, 1e-300):
        table = pd.DataFrame([*cells, (3, 2, 2.5, wrong)], columns=names)
        yield from in_forms(f"weights {wrong}", table, columns)
    repeated = pd.DataFrame([*cells, (1, 1, 2.5, 3.0)], columns=names)
    rng = np.random.default_rng(0)
    many = pd.DataFrame(
        {
            "user": rng.integers(0, 12, 300),
            "item": rng.integers(0, 8, 300),
            "rating": np.round(rng.normal(size=300), 2),
            "timestamp": rng.integers(0, 50, 300),
        }
    )
    for choice in ("error", "first", "last", "mean", "keep"):
        settings = {"duplicates": choice}
        yield from in_forms(f"weights {choice}", repeated, {**columns, **settings})
        yield from in_forms(f"replicates {choice}", many, settings)
        yield from in_forms(f"replicates untimed {choice}", many.iloc[:, :3], settings)
        for split in ("random", "temporal"):
            more = {**settings, "split": split, "test_fraction": 0.25}
            yield file(f"replicates {choice}, {split}", many.to_csv(index=False), more)


# --------------------------------------------------------------------------------- more than pairs


def grid(places: int, days: int, hours: int) -> list[tuple]:
    """Return a row (place, day, hour, number) for each cell."""
    return [
        (f"p{p}", d, f"h{h}", 1 + (3 * p + 5 * d + 7 * h) % 11)
        for p in range(places)
        for d in range(days)
        for h in range(hours)
    ]


PARTS = ["place", "day", "hour", "number"]


def parts_and_directions() -> Iterator[Input]:
    """Yield names of several parts, and tables of three directions."""
    table = pd.DataFrame(grid(5, 6, 4), columns=PARTS)
    holes = pd.DataFrame(
        [row for row in grid(9, 8, 5) if (int(row[0][1:]) + row[1]) % 3], columns=PARTS
    )
    for columns in (
        "user=place+day,item=hour,rating=number",
        "user=place,item=hour+day,rating=number",
        "user=place,item=hour,context=day,rating=number",
        "user=place+week,item=hour,rating=number",
        "user=place+day,item=day,rating=number",
        "user=place,item=hour,context=day+number",
        "user=place,item=hour,context=week,rating=number",
        "user=place,item=hour,context=",
    ):
        given = {"columns": columns}
        yield from in_forms(f"parts {columns}", table, given)
        yield from in_forms(f"parts {columns}, holes", holes, given)
        if "week" in columns or (columns.endswith(("=", "number")) and "rating" not in columns):
            continue
        for more in (
            {"part_features": False},
            {"hold_out_by": "place+day", "test_fraction": 0.25},
            {"hold_out_by": "place+week"},
            {"hold_out_by": "place+"},
            {"test_fraction": 0.2},
            {"item_features": "names"},
        ):
            yield from in_forms(f"parts {columns} {more}", holes, {**given, **more})
    odd = ["a", "a,b", "a=b", 'a"b', "a|b", "a+b", "a\x1fb", "ä ", "b"]
    cells = [(s, d, f"h{h}", h + 1) for s in odd for d in odd for h in range(3)]
    yield from in_forms(
        "parts odd",
        pd.DataFrame(cells, columns=PARTS),
        {"columns": "user=place+day,item=hour,rating=number"},
    )
    measured = [
        (p, d, h, x if k % 10 != 3 else None, 1 + k % 3, *(x - 1, x + 2) * (k % 10 == 3))
        for k, (p, d, h, x) in enumerate(grid(5, 6, 4))
    ]
    table = pd.DataFrame(measured, columns=[*PARTS, "w", "low", "high"])
    table = pd.concat([table, table[::9].assign(w=2)], ignore_index=True)
    columns = "user=place,item=hour,context=day,rating=number,weight=w,lower=low,upper=high"
    yield from in_forms("parts measured", table, {"columns": columns, "duplicates": "keep"})
    for context in (None, "day"):
        settings = {"user": "place", "item": "hour", "context": context, "columns": "rating=number"}
        yield Input(f"parts by parameters {context}", holes, settings)


RNG = np.random.default_rng(6)
VALUES = np.round(RNG.normal(5, 2, (12, 6)), 2)
VALUES[RNG.random(VALUES.shape) < 0.4] = np.nan
WIDE = pd.DataFrame(VALUES, [f"gene, {i}" for i in range(12)], [f"day {j}" for j in range(6)])
SPECTRA = 0.6 + 0.1 * RNG.normal(size=(60, 8))
COUNTS = RNG.poisson(30, (60, 8))
FIRST_COLUMNS = {
    "wavelength": (np.round(400 + 1.7 * np.arange(60), 1), SPECTRA),
    "year": (1990 + np.arange(60) // 3, SPECTRA),
    "year beside counts": (1990 + np.arange(60) // 3, COUNTS),
    "hour": (np.arange(60) % 24, SPECTRA + 20),
    "latitude": (np.round(RNG.uniform(45, 60, 60), 2), SPECTRA),
    "id": (RNG.permutation(60), COUNTS // 10),
    "names": ([f"s{k}" for k in range(60)], SPECTRA),
    "an item": (SPECTRA[:, 0], SPECTRA),
}


def matrices() -> Iterator[Input]:
    """Yield matrices with a row for each user, in files and in memory."""
    wide = {"matrix": True}
    code = WIDE.fillna(99)
    counts = WIDE.copy()
    counts.insert(0, "n", WIDE.notna().sum(axis=1))
    below = WIDE.astype(object)
    below.iloc[2, 1] = "<0.1"
    text = WIDE.astype(object)
    text.iloc[2, 1] = "x?"
    infinite = WIDE.copy()
    infinite.iloc[5, 3] = np.inf
    for name, table, settings in (
        ("names", WIDE, {}),
        ("no names", pd.DataFrame(VALUES), {}),
        ("a range", pd.DataFrame(VALUES, pd.RangeIndex(1, 13, name="u"), range(1, 7)), {}),
        ("names in a column", WIDE.reset_index(names="gene"), {}),
        ("users in a column", WIDE.assign(k=range(1, 13)), {"columns": "user=k"}),
        ("other roles", WIDE, {"columns": "item=day 1"}),
        ("codes", code, {"missing": [99]}),
        ("codes in doubt", code, {}),
        ("counts first", counts, {}),
        ("integers", (WIDE * 100).round().astype("Int64").fillna(-1), {"missing": [-1]}),
        ("below", below, {}),
        ("text", text, {}),
        ("a word", text, {"missing": "x?"}),
        ("infinite", infinite, {}),
        ("three columns", WIDE.iloc[:, :3], {}),
        ("a recurring name", WIDE.set_axis(["a", *WIDE.index[1:-1], "a"]), {}),
        ("an empty name", WIDE.rename({"gene, 3": ""}), {}),
        ("a usual name", WIDE.assign(rating=1.0), {}),
        ("held out", WIDE, {"test_fraction": 0.2}),
        ("truth", pd.DataFrame(VALUES > 5).add_prefix("q"), {}),
    ):
        yield from in_forms(f"matrix {name}", table, {**wide, **settings})
        yield from in_forms(f"perhaps a matrix {name}", table, settings)
    for name, (first, cells) in FIRST_COLUMNS.items():
        table = pd.DataFrame(cells).add_prefix("v")
        table.insert(0, "x", first)
        yield from in_forms(f"matrix {name} first", table, wide)
        yield from in_forms(f"matrix {name} chosen", table, {**wide, "columns": "user=x"})
    yield Input("matrix of lists", VALUES.tolist())
    bare = "\n".join(
        ",".join("" if np.isnan(x) else repr(x) for x in row) for row in VALUES.tolist()
    )
    yield file("matrix without names", bare, wide)
    yield Input("matrix twice", ("r.csv", "r.csv"), wide, {"r.csv": bare})
    yield file("matrix temporal", WIDE.to_csv(), {**wide, "split": "temporal"})
    yield file(
        "matrix tested", WIDE.to_csv(), {**wide, "test": "t.csv"}, **{"t.csv": WIDE.to_csv()}
    )
    many = pd.DataFrame(np.arange(3 * 3000).reshape(3, 3000) % 7, [*"abc"]).add_prefix("column ")
    yield from in_forms("matrix of many columns", many, wide)


def inputs() -> Iterator[Input]:
    """Yield all of them."""
    yield from long_tables()
    yield from bounds()
    yield from weights_and_replicates()
    yield from parts_and_directions()
    yield from matrices()
