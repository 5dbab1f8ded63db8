"""Inputs of `readings.py`: times, several files, features, and values in doubt."""

import io
from collections.abc import Iterator
from typing import Any

import bench  # noqa: F401  # finds the helpers of tests
import numpy as np
import pandas as pd
import pyarrow
import scipy.sparse
from reading_inputs import FRAME, GOOD, Input, file, in_forms, parquet, rows, text

# ------------------------------------------------------------------------------------------- times

DAYS = pd.to_datetime(["2021-03-28", "2021-03-15", "2021-03-04"])
DATES = (
    *("%Y-%m-%d", "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%Y.%m.%d", "%d-%b-%Y", "%B %d, %Y"),
    *("%a, %d %b %Y 10:20:30 GMT", "%d/%m/%Y 22:30", "%m/%d/%Y 10:30 PM", "%d/%m/99", "day %d"),
    *("%Y-%m-%dT10:20:30+02:00", "%s", "%s000", "%d-%m-%y", "%Y%m%d", "x"),
)


def times() -> Iterator[Input]:
    """Yield ratings with times, as texts, numbers and dates."""
    table = pd.DataFrame(
        {
            "user": [1, 1, 1, 2, 2, 3, 3],
            "item": [1, 1, 1, 1, 2, 1, 2],
            "rating": [5.0, 3.0, 1.0, 2.0, 2.0, 2.0, 2.0],
            "date": [*DAYS, *[DAYS[1]] * 4],
        }
    )
    seconds = (table.date - pd.Timestamp(0)) // pd.Timedelta("1s")
    for form in DATES:
        if form.startswith("%s"):
            dates = seconds.astype(str) + form.removeprefix("%s")
        else:
            dates = table.date.dt.strftime(form)
        dated = table.assign(date=dates)
        yield from in_forms(f"times {form}", dated, {"duplicates": "last"})
        csv = dated.to_csv(index=False)
        yield file(f"times {form}, temporal", csv, {"split": "temporal", "test_fraction": 0.2})
        yield file(f"times {form}, kept", csv, {"timestamps": True})
        yield Input(f"times {form}, effects", dated, {"duplicates": "last", "time_levels": "user"})
    early = table.assign(date=["8/3/2021", "5/3/2021", "4/3/2021", *["5/3/2021"] * 4])
    for name, dates in {
        "two orders": early.date,
        "dates": table.date,
        "a time zone": table.date.dt.tz_localize("Asia/Tokyo"),
        "datetime.date": table.date.dt.date,
        "gaps": table.date.where(np.arange(7) != 2),
        "seconds": seconds,
        "milliseconds": seconds * 1000,
        "nanoseconds": seconds * 10**9,
        "floats": seconds + 0.25,
    }.items():
        dated = table.assign(date=dates)
        yield from in_forms(f"times {name}", dated, {"duplicates": "last"})
        settings = {"duplicates": "last", "time_levels": "user"}
        yield from in_forms(f"times {name}, effects", dated, settings)
    parts = {"a.csv": seconds * 1000, "b.csv": table.date, "c.csv": seconds}
    files = {
        name: table.assign(date=dates)[k::3].to_csv(index=False)
        for k, (name, dates) in enumerate(parts.items())
    }
    yield Input("times of several files", tuple(files), {"timestamps": True}, files)
    empty = "user,item,rating,time\n1,1,2,10\n1,2,3,\n2,1,4,20\n2,2,1,30\n"
    yield file("times empty", empty, {"missing": ""})
    yield file("times empty, kept", empty, {"missing": "", "timestamps": True})


def several_files() -> Iterator[Input]:
    """Yield files of one call, and files of test ratings."""
    files = {
        "1.csv": GOOD[: GOOD.index("3,12")],
        "2.tsv": rows("{u}\t{i}\t{r}\t{t}").split("\n")[4] + "\n",
        "3.dat": "".join(rows("{u}::{i}::{r}::{t}").splitlines(keepends=True)[5:]),
    }
    yield Input("several formats", tuple(files), {}, files)
    pairs = "user,item\n" + "".join(f"{u},{i}\n" for u in range(8) for i in range(6, 9))
    two = {"a.csv": GOOD, "b.csv": pairs}
    yield Input("several, pairs beside", ("a.csv", "b.csv"), {}, two)
    yield Input("several, pairs first", ("b.csv", "a.csv"), {}, two)
    yield Input("several, clicks", ("a.csv", "b.csv"), {"columns": "rating=none"}, two)
    same = {"a.csv": GOOD, "b.csv": "user,item,rating\n1,20,3\n", "c.csv": "film,by,stars\n1,3,3\n"}
    yield Input("several, other columns", tuple(same), {}, same)
    for name, test in {
        "ratings": "user,item,rating\n3,31,1\n777,7,2\n41,888,3\n666,555,4\n",
        "pairs": pairs,
        "a common pair": "user,item,rating\n3,7,1\n58,12,2\n",
        "other names": "movie,reviewer,stars\n1,30,3\n",
        "equal ratings": pairs.replace("\n", ",0\n").replace("item,0", "item,rating"),
        "other types": "user,item,rating\na,b,3\n",
        "another scale": "user,item,rating\n3,31,50\n",
        "bad": "user,item,rating\n3,31,x\n",
    }.items():
        for more in ({}, {"duplicates": "mean"}, {"test_fraction": 0.2}):
            yield file(f"test of {name} {more}", GOOD, {"test": "t.csv", **more}, **{"t.csv": test})
        frame = pd.read_csv(io.StringIO(test))
        yield Input(f"test frame of {name}", FRAME.iloc[:, :3], {"test": frame})
    for fraction in (0, 0.003, 0.25, 0.5):
        for split in ("random", "temporal"):
            for seed in (0, 7):
                settings = {"test_fraction": fraction, "split": split, "seed": seed}
                yield file(f"split {settings}", GOOD, settings)


# ---------------------------------------------------------------------------------------- features

USERS = """userId,age,job,likes,zip
100200,20,writer,jazz|rock,00123
3,30,nurse, rock ,00124
58,,writer,,00125
999999,40,NaN,folk|jazz|jazz,00126
41,30,nurse,pop,00127
7777,60,none,rock,00128
"""
DESCRIBED = {
    "users": (USERS, {}),
    "a skipped column": (USERS, {"zip": "skip"}),
    "an unknown column": (USERS, {"agee": "number"}),
    "a wrong kind": (USERS, {"job": "number"}),
    "an unknown kind": (USERS, {"job": "jobs"}),
    "categories": (USERS, {"age": "category", "zip": "category"}),
    "other names": (USERS.replace("userId", "no").replace("zip", "userId"), {}),
    "a wrong number": (USERS.replace("30,nurse, ", "3O,nurse, "), {}),
    "two rows": (USERS + "3,31,nurse,rock,00124\n", {}),
    "a name of text": (USERS + "x9,31,nurse,rock,00124\n", {}),
    "no name": (USERS + ",31,nurse,rock,1\n", {}),
    "1_0": (USERS.replace("30,nurse, ", "3_0,nurse, "), {}),
    "equal columns": (USERS.replace("age", "zip"), {}),
    "no header": ("3,20\n58,30\n", {}),
    "one column": ("userId\n3\n", {}),
    "no rows": ("userId,age\n", {}),
    "a constant": ("userId,age\n3,2\n58,2\n", {}),
    "a long name": (USERS.replace("age", "x" * 1025), {}),
    "without a name": (USERS.replace("userId", ""), {}),
    "numbered from 0": ("user,age\n0,20\n1,30\n2,40\n", {}),
    "flags": ("userId,f,g\n3,0,True\n58,1,False\n41,1,True\n100200,,True\n", {}),
    "years": ("userId,title\n3,A (1995)\n58,B (2003)\n41,C (1987)\n", {}),
    "lists of numbers": ("userId,codes\n3,1|2\n58,2\n41,3|1999\n", {"codes": "list"}),
    "one separator": ("userId,age\n3,3|5\n58,2\n41,3\n999999,7\n100200,9\n", {}),
    "words for missing": ("userId,land\n3,NA\n58,DE\n41,null\n999999,SE\n", {}),
}
HOURS = pd.date_range("2021-03-01", periods=84, freq="6h")


def features() -> Iterator[Input]:
    """Yield descriptions of users and items, and names that are times."""
    for name, (content, kinds) in DESCRIBED.items():
        settings: dict[str, Any] = {"user_features": "u.csv", "test_fraction": 0}
        if kinds:
            settings["feature_kinds"] = kinds
        yield file(f"features {name}", GOOD, settings, **{"u.csv": content})
        try:
            frame = pd.read_csv(io.StringIO(content), dtype={"zip": str})
        except ValueError:
            continue
        for form, given in (
            ("frame", frame),
            ("index", frame.set_index(frame.columns[0])),
            ("array", frame.select_dtypes("number").to_numpy()),
            ("arrow", pyarrow.Table.from_pandas(frame, preserve_index=False)),
        ):
            more = {**settings, "user_features": given}
            yield Input(f"features {name}, {form}", FRAME.iloc[:, :3], more)
        packed = {**settings, "user_features": "u.parquet"}
        yield file(f"features {name}, parquet", GOOD, packed, **{"u.parquet": parquet(frame)})
        lines = {**settings, "user_features": "u.json"}
        as_json = frame.to_json(orient="records", lines=True)
        yield file(f"features {name}, JSON", GOOD, lines, **{"u.json": as_json})
    lens = {
        "users.dat": "3::F::25::12::02139\n58::M::1::0::1234\n41::F::25::0::1234-55\n",
        "movies.dat": "7::Amélie (2001)::Comedy|Romance\n31::Heat (1995)::Action\n".encode(
            "latin-1"
        ),
    }
    both = {"user_features": "users.dat", "item_features": "movies.dat"}
    yield file("features of MovieLens", GOOD, both, **lens)
    sparse = scipy.sparse.csr_matrix(([1.5, 2.0], ([3, 58], [0, 1])), shape=(60, 2))
    yield Input("features sparse", FRAME.iloc[:, :3], {"user_features": sparse})
    yield file(
        "features npz", GOOD, {"user_features": "u.npz"},
        **{"u.npz": lambda path: scipy.sparse.save_npz(path, sparse)},
    )  # fmt: skip
    yield from times_as_features()


def times_as_features() -> Iterator[Input]:
    """Yield names and columns of features that are times."""
    rng = np.random.default_rng(0)
    cells = rng.normal(10, 1, (6, len(HOURS)))
    cells[:, [5, 40]] = np.nan
    named = {"matrix": True, "item_features": "names"}
    texts = [str(time) for time in HOURS]
    lists = {
        "dates": HOURS,
        "texts": texts,
        "a time zone": pd.date_range("2021-03-15", periods=84, freq="6h", tz="Europe/Berlin"),
        "numbers": range(84),
        "words": [f"g{k}" for k in range(84)],
        "months": pd.date_range("2015-01-01", periods=84, freq="MS").strftime("%Y-%m"),
        "one word": [*texts[:83], "soon"],
        "one offset": [*texts[:83], "2021-05-01 10:00:00+02:00"],
        "two orders": [f"{1 + k % 9}/0{1 + k // 9 % 9}/{2000 + k // 81}" for k in range(84)],
    }
    users = [f"s{k}" for k in range(6)]
    for name, given in lists.items():
        table = pd.DataFrame(cells, users, given)
        yield Input(f"time names {name}", table, named)
        yield Input(f"time names {name}, kind", table, {**named, "feature_kinds": {"item": "time"}})
        yield Input(
            f"time names {name}, users", table.T, {"matrix": True, "user_features": "names"}
        )
        yield file(f"time names {name}", table.to_csv(), named)
        lines = "".join(f"u{u},i{i},{(u * i + i) % 7}\n" for u in range(20) for i in range(84))
        items = text(
            ["item", "measured", "size"], [(f"i{k}", t, k % 5) for k, t in enumerate(given)]
        )
        for kinds in ({}, {"measured": "time"}, {"measured": "skip"}):
            settings: dict[str, Any] = {"item_features": "items.csv"}
            if kinds:
                settings["feature_kinds"] = kinds
            ratings = "user,item,rating\n" + lines
            more = {"items.csv": items}
            yield file(f"time column {name} {kinds}", ratings, settings, **more)


# ------------------------------------------------------------------------------ values in doubt


def values_in_doubt() -> Iterator[Input]:
    """Yield values that may mean "not rated", other units and levels, and steps of measurements."""
    rng = np.random.default_rng(5)
    users, items = np.divmod(np.arange(1440), 24)
    stars = rng.choice([1.0, 2, 3, 4, 5], 1440, p=[0.05, 0.1, 0.25, 0.35, 0.25])
    heat = np.round(20 + 3 * rng.normal(size=1440), 2)
    lists = {
        "stars": stars,
        "heat": heat,
        "tenths": np.round(heat, 1),
        "no step": heat + 1e-5 * stars,
    }
    for codes in ([98, 99], [77, 88, 99], [-9, -8], [-1], [0]):
        coded = stars.copy()
        for k, code in enumerate(codes):
            coded[k::20] = code
        lists[f"codes {codes}"] = coded
    for factor in (1e3, 1e6):
        lists[f"times {factor}"] = np.where(np.arange(1440) == 300, heat * factor, heat)
    for name, values in lists.items():
        table = pd.DataFrame({"user": users, "item": items, "rating": values})
        yield from in_forms(f"values {name}", table)
        wide = pd.DataFrame(values.reshape(60, 24)).add_prefix("q")
        yield from in_forms(f"values {name}, wide", wide, {"matrix": True})
    eta = rng.normal(size=(60, 8))
    answers = pd.DataFrame(
        {f"q{k}": np.digitize(eta[:, k], [-1, 0, 1][: 3 - k % 2 * 2]) for k in range(8)}
    )
    yield from in_forms("values of answers", answers, {"matrix": True})


def inputs() -> Iterator[Input]:
    """Yield all of them."""
    yield from times()
    yield from several_files()
    yield from features()
    yield from values_in_doubt()
