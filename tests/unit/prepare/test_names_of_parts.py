"""Names of several parts: how they are read, stored, turned into features, and held out."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest
from ingest_cases import ODD, csv_of, everything, features_of, full_table, prepare, read_back

from dsgmcmc.errors import InputError
from dsgmcmc.input.arrays import list_names, ratings_source, read_pairs
from dsgmcmc.input.roles import Heading, assign_columns, parse_columns
from dsgmcmc.prepare.prepare import prepare_ratings
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.ratings.held_out import InnerSplit
from dsgmcmc.ratings.reading import Reading

COLUMNS = "user=station+day,item=hour,rating=passengers"
HEADER = ["station", "day", "hour", "passengers"]


def as_csv(rows: list[tuple]) -> str:
    """Write rows under the header."""
    return csv_of(HEADER, rows)


def grid(n_stations: int = 4, n_days: int = 6, n_hours: int = 5) -> list[tuple]:
    """Return a full table of station, day and hour."""
    stations = [f"s{k}" for k in range(n_stations)]
    days = [f"d{k}" for k in range(n_days)]
    hours = [f"h{k}" for k in range(n_hours)]
    return full_table(stations, days, hours)


def test_names_with_any_character_stay_apart(tmp_path):
    """A part may have commas, signs and quotes; names that any separator would join stay two."""
    rows = [(s, d, f"h{h}", h + 1) for s in ODD for d in ODD for h in range(3)]
    prepare(tmp_path, as_csv(rows), columns=COLUMNS)
    stored = everything(tmp_path / "out.h5")
    assert stored == {((s, d), h): x for s, d, h, x in rows}


def test_integer_parts_stay_integers(tmp_path):
    """Each part is stored with its own type."""
    rows = [(s, f"d{d}", h, s + d + h) for s in range(3) for d in range(4) for h in range(3)]
    prepare(tmp_path, as_csv(rows), columns=COLUMNS)
    assert set(everything(tmp_path / "out.h5")) == {((s, d), h) for s, d, h, _ in rows}


def test_a_file_without_parts_keeps_version_2(tmp_path):
    """Only files with parts have another version and other contents."""
    prepare(tmp_path, as_csv(grid()), columns="user=station,item=hour,rating=passengers")
    with h5py.File(tmp_path / "out.h5") as file:
        assert file.attrs["version"] == 2
        assert "parts" not in file["rows"]
    prepare(tmp_path, as_csv(grid()), columns=COLUMNS)
    with h5py.File(tmp_path / "out.h5") as file:
        assert file.attrs["version"] == 3
        labels = file["rows/parts/labels"][:].tolist()
    assert labels == [b"station", b"day"]


def test_equals_a_table_with_joined_names_and_a_file_of_features(tmp_path):
    """The order of rows, the split and the features are those of names joined by U+001F."""
    rows = grid()
    prepare(tmp_path, as_csv(rows), columns=COLUMNS)
    with Ratings(tmp_path / "out.h5") as ratings:
        names = ratings.ids("rows").tolist()
        expected = ratings.feature_slab("rows", 0, ratings.n_rows)
        values = ratings.slab("train", 0, ratings.n_rows).values
    joined = [["user", "hour", "passengers"]]
    joined += [[f"{s}\x1f{d}", h, str(x)] for s, d, h, x in rows]
    described = {f"{s}\x1f{d},{s},{d}" for s, d, _, _ in rows}
    (tmp_path / "users.csv").write_text("user,station,day\n" + "\n".join(sorted(described)))
    prepare(
        tmp_path,
        "\n".join(map(",".join, joined)),
        columns="user=user,item=hour,rating=passengers",
        user_features=str(tmp_path / "users.csv"),
    )
    with Ratings(tmp_path / "out.h5") as ratings:
        assert ratings.ids("rows").tolist() == ["\x1f".join(name) for name in names]
        features = ratings.feature_slab("rows", 0, ratings.n_rows)
        assert np.array_equal(ratings.slab("train", 0, ratings.n_rows).values, values)
    for found, wanted in zip(features, expected, strict=True):
        assert np.array_equal(found, wanted)


def test_parts_are_features_unless_left_out(tmp_path):
    """The value of each part is a category of the user; --no-part-features leaves them out."""
    summary = prepare(tmp_path, as_csv(grid()), columns=COLUMNS)
    assert summary.features["user"]["parts"] == ["station", "day"]
    assert features_of(tmp_path / "out.h5")["s1", "d3"] == {"station=s1": 1.0, "day=d3": 1.0}
    summary = prepare(tmp_path, as_csv(grid()), columns=COLUMNS, part_features=False)
    assert not summary.features


def test_a_part_with_a_value_for_each_name_is_no_feature(tmp_path):
    """A category that nearly every name has alone says nothing of another name; that is said."""
    rows = [(f"s{k}", f"d{k % 3}", f"h{h}", k + h) for k in range(60) for h in range(3)]
    summary = prepare(tmp_path, as_csv(rows), columns=COLUMNS)
    assert summary.features["user"]["parts"] == ["day"]
    assert "station is left out: 60 different values" in summary.features["user"]["notes"][0]


def test_features_of_a_file_stand_before_those_of_parts(tmp_path):
    """A file of features has the columns of the parts; one that lacks a part is refused."""
    weather = "".join(f"s{s},d{d},{s + d}\n" for s in range(4) for d in range(6))
    (tmp_path / "days.csv").write_text("station,day,warm\n" + weather)
    options = {"columns": COLUMNS, "user_features": str(tmp_path / "days.csv")}
    prepare(tmp_path, as_csv(grid()), **options)
    found = features_of(tmp_path / "out.h5")["s3", "d5"]
    assert list(found) == ["warm", "station=s3", "day=d5"]
    (tmp_path / "days.csv").write_text("station,warm\ns1,2\ns2,3\n")
    with pytest.raises(InputError, match="but not day: names of users are in the columns"):
        prepare(tmp_path, as_csv(grid()), **options)


def test_both_sides_may_have_parts(tmp_path):
    """Four columns can be split into two sides in any way."""
    columns = "user=station+hour,item=day+line,rating=passengers"
    rows = [(s, d, h, f"l{k}", x + k) for s, d, h, x in grid(3, 3, 3) for k in range(2)]
    text = "station,day,hour,line,passengers\n" + "\n".join(",".join(map(str, r)) for r in rows)
    prepare(tmp_path, text, columns=columns)
    stored = everything(tmp_path / "out.h5")
    assert stored == {((s, h), (d, line)): x for s, d, h, line, x in rows}


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ("user=station+week,item=hour,rating=passengers", "no column 'week' for user"),
        ("user=station+day,item=day,rating=passengers", "one column serves for two"),
    ],
)
def test_refuses_columns_that_are_no_parts(tmp_path, columns, reason):
    """The message names the column, or what to write."""
    with pytest.raises(InputError, match=reason):
        prepare(tmp_path, as_csv(grid()), columns=columns)


def test_refuses_a_test_file_without_a_part(tmp_path):
    """Ratings of unknown days must not become test ratings."""
    (tmp_path / "test.csv").write_text("station,hour,passengers\ns1,h1,3\n")
    with pytest.raises(InputError, match=r"test.csv has .* no column 'day' for user"):
        prepare(tmp_path, as_csv(grid()), columns=COLUMNS, test=str(tmp_path / "test.csv"))


def test_refuses_an_empty_part(tmp_path):
    """The line and the parts are named."""
    rows = [*grid(), ("s1", "", "h9", 2)]
    with pytest.raises(InputError, match="line 122: the user is missing"):
        prepare(tmp_path, as_csv(rows), columns=COLUMNS)


def test_a_plus_in_the_name_of_a_column_is_no_part():
    """`a+b` is one column if the table has it, and refused if it may also be two."""
    columns = parse_columns("user=a+b,item=c,rating=d")
    alone = Heading("table", ["a+b", "c", "d"], 3)
    assert assign_columns(alone, columns, timed=False)["user"] == 0
    both = Heading("table", ["a+b", "a", "b", "c", "d"], 5)
    with pytest.raises(InputError, match=r"give positions, user=1 or user=2[+]3"):
        assign_columns(both, columns, timed=False)


def test_spaces_after_delimiters_belong_to_no_part(tmp_path):
    """Each part is trimmed if all its values have spaces."""
    text = "station, day,hour,passengers\n" + "".join(
        f"{s}, {d},{h},{x}\n" for s, d, h, x in grid()
    )
    prepare(tmp_path, text.replace("station, day", "station,day"), columns=COLUMNS)
    assert (("s0", "d0"), "h0") in everything(tmp_path / "out.h5")


def test_data_frames_have_a_column_for_each_part(tmp_path):
    """In Python columns are a list; pairs come from frames, arrays and tuples."""
    frame = pd.DataFrame(grid(), columns=HEADER)
    columns = {"user": ("station", "day"), "item": "hour", "rating": "passengers"}
    table = ratings_source(frame, form=Reading(columns))
    prepare_ratings([table], tmp_path / "out.h5")
    stored = everything(tmp_path / "out.h5")
    assert stored == {((s, d), h): x for s, d, h, x in grid()}
    labels = {"user": ("station", "day"), "item": ("hour",)}
    for pairs in (frame[["hour", "day", "station"]], frame[["station", "day", "hour"]].to_numpy()):
        users, items = read_pairs(pairs, None, labels)
        found = list(zip(users.tolist(), items.tolist(), strict=True))
        assert found == [((s, d), h) for s, d, h, _ in grid()]
    with pytest.raises(InputError, match="no column 'day' for user"):
        read_pairs(frame[["station", "hour"]], None, labels)


@pytest.mark.parametrize(
    "names",
    [
        ("s1", "d2"),
        {"day": "d2", "station": "s1"},
        [("s1", "d2")],
        np.array([["s1", "d2"]], object),
        pd.DataFrame({"day": ["d2"], "station": ["s1"]}),
    ],
)
def test_lists_names_of_parts(names):
    """A name is a tuple or a dict, and a list, an array or a data frame has several."""
    assert list_names(names, "user", ("station", "day")) == [("s1", "d2")]


def without_days(rows: list[tuple]) -> list[tuple]:
    """Leave out a third of the days of stations."""
    return [row for row in rows if (int(row[0][1:]) + int(row[1][1:])) % 3]


def test_says_that_whole_days_are_missing(tmp_path):
    """A random split would hold out single cells, which are never missing."""
    summary = prepare(tmp_path, as_csv(without_days(grid())), columns=COLUMNS)
    assert summary.holes == (
        "of the cells that are missing, 100 % miss with their whole (station, day): use"
        " --hold-out-by station+day"
    )


@pytest.mark.parametrize("rows", [grid(), [row for k, row in enumerate(grid()) if k % 7]])
def test_says_nothing_of_full_tables_and_single_cells(tmp_path, rows):
    """A random split looks like cells that are missing one by one."""
    assert prepare(tmp_path, as_csv(rows), columns=COLUMNS).holes == ""


def test_holds_out_whole_groups(tmp_path):
    """No pair of station and day is in both parts; all columns of the table may make groups."""
    rows = without_days(grid(6, 8, 5))
    options = {"columns": "user=station,item=hour+day,rating=passengers", "test_fraction": 0.25}
    summary = prepare(tmp_path, as_csv(rows), **options, hold_out_by="station+day")
    assert summary.holes == ""
    parts = read_back(tmp_path / "out.h5")
    groups = {name: {(s, d) for s, (_, d) in cells} for name, cells in parts.items()}
    assert not groups["train"] & groups["test"]
    assert len(parts["test"]) == 5 * len(groups["test"])
    assert abs(summary.test / summary.ratings - 0.25) < 0.02
    with Ratings(tmp_path / "out.h5") as ratings:
        ratings.verify()
        assert ratings.grouped_by == ("station", "day")
        numbers = {part: ratings.groups(part, 0, ratings.n_rows) for part in parts}
    assert not set(numbers["train"]) & set(numbers["test"])
    assert len(set(numbers["test"])) == len(groups["test"])
    assert set(np.bincount(numbers["test"])) <= {0, 5}


def test_an_item_that_is_held_out_whole_is_in_no_doubt(tmp_path):
    """Whoever holds out whole items knows that these have no training ratings."""
    rows = [(f"u{k % 9}", f"i{k % 7}", k % 5) for k in range(63)]
    columns = "user=station,item=hour,rating=passengers"
    text = "station,hour,passengers\n" + "".join(f"{u},{i},{r}\n" for u, i, r in rows)
    summary = prepare(tmp_path, text, columns=columns, hold_out_by="hour", test_fraction=0.3)
    with Ratings(tmp_path / "out.h5") as ratings:
        assert ratings.untrained["item"] == summary.test > 0
    assert not summary.doubts


def test_models_are_compared_on_whole_groups(tmp_path):
    """What a comparison holds out looks like the test ratings."""
    rows = grid(8, 9, 5)
    columns = "user=station,item=hour+day,rating=passengers"
    prepare(tmp_path, as_csv(rows), columns=columns, hold_out_by="station+day")
    with Ratings(tmp_path / "out.h5") as ratings:
        inner = InnerSplit(ratings, 0.25, seed=1)
        groups = {}
        for part in ("train", "test"):
            indptr = np.diff(inner.slab(part, 0, ratings.n_rows).indptr)
            columns_of_cells = inner.columns(part, 0, ratings.n_rows)
            rows_of_cells = np.repeat(np.arange(ratings.n_rows), indptr)
            names = [ratings.ids(side).tolist() for side in ("rows", "cols")]
            cells = zip(rows_of_cells, columns_of_cells, strict=True)
            pairs = {names[0][i] + (names[1][j],) for i, j in cells}
            groups[part] = {(s, d) for _, d, s in pairs}
    assert groups["test"]
    assert not groups["train"] & groups["test"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"hold_out_by": "station+week"}, "no column 'week'"),
        ({"hold_out_by": "station+"}, "expected COLUMN[+]COLUMN"),
        ({"hold_out_by": "day", "split": "temporal"}, "does not go with"),
        ({"hold_out_by": "line"}, "all ratings are in one group"),
    ],
)
def test_refuses_groups_that_cannot_be_held_out(tmp_path: Path, options, reason):
    """An unknown column, another split, and a single group are refused."""
    text = as_csv(grid()).replace("passengers", "passengers,line").replace("\r\n", ",l\r\n")
    text = text.replace("line,l", "line")
    with pytest.raises(InputError, match=reason):
        prepare(tmp_path, text, columns=COLUMNS, **options)
