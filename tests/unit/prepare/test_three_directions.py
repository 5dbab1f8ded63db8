"""Tables of three directions: an open arrangement, the three matrices made of it, and holes."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest
from ingest_cases import ODD, csv_of, everything, features_of, full_table, prepare, read_back

from dsgmcmc.errors import InputError
from dsgmcmc.input.arrays import ratings_source, read_pairs
from dsgmcmc.prepare.prepare import prepare_ratings
from dsgmcmc.prepare.three_way import arrange_ratings
from dsgmcmc.ratings.directions import Arrangement, arrangement_of, arrangements_of
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.ratings.held_out import InnerSplit
from dsgmcmc.ratings.reading import Reading

COLUMNS = "user=place,item=hour,context=day,rating=number"
HEADER = ["place", "day", "hour", "number"]


def as_csv(rows: list[tuple]) -> str:
    """Write rows under the header."""
    return csv_of(HEADER, rows)


def grid(n_places: int = 5, n_days: int = 6, n_hours: int = 4) -> list[tuple]:
    """Return a full table of place, day (an integer) and hour."""
    places = [f"p{k}" for k in range(n_places)]
    hours = [f"h{k}" for k in range(n_hours)]
    return full_table(places, range(n_days), hours)


def cells_of(path: Path) -> dict[str, dict[tuple, float]]:
    """Return the ratings of both parts by (place, day, hour)."""
    with Ratings(path) as ratings:
        arrangement = arrangement_of(ratings)
    parts = {}
    for part, stored in read_back(path).items():
        cells = {}
        for pair, value in stored.items():
            by_label = {}
            for labels, name in zip(arrangement, pair, strict=True):
                values = name if isinstance(name, tuple) else (name,)
                by_label |= dict(zip(labels, values, strict=True))
            cells[tuple(by_label[column] for column in HEADER[:3])] = value
        parts[part] = cells
    return parts


def arranged(tmp_path: Path) -> list[Path]:
    """Make the three arrangements of the open file ``out.h5``."""
    paths = []
    with Ratings(tmp_path / "out.h5") as ratings:
        for number, arrangement in enumerate(arrangements_of(ratings.directions)):
            paths.append(tmp_path / f"{number}.h5")
            arrange_ratings(ratings, arrangement, paths[-1])
    return paths


def contents(path: Path) -> dict[str, np.ndarray]:
    """Return all arrays of a file but its directions."""
    arrays = {}
    with h5py.File(path) as file:

        def add(name: str, stored: object) -> None:
            if isinstance(stored, h5py.Dataset) and name != "directions":
                arrays[name] = stored[:]

        file.visititems(add)
    return arrays


@pytest.mark.parametrize("options", [{}, {"hold_out_by": "place+day"}, {"part_features": False}])
def test_an_arrangement_is_the_table_with_names_of_parts(tmp_path, options):
    """The file is the same as if its sides had been named at once: order, features and names."""
    rows = grid()
    (tmp_path / "test.csv").write_text(as_csv(rows[::5]))
    rest = as_csv([row for k, row in enumerate(rows) if k % 5])
    options = {"test": str(tmp_path / "test.csv"), **options}
    prepare(tmp_path, rest, columns=COLUMNS, **options)
    paths = arranged(tmp_path)
    for path, sides in zip(
        paths, ("place hour+day", "place+day hour", "place+hour day"), strict=True
    ):
        user, item = sides.split()
        with Ratings(path) as ratings:
            ratings.verify()
            assert ratings.directions.columns == ("place", "hour", "day")
            assert not ratings.directions.is_open
            assert arrangement_of(ratings) == Arrangement(
                tuple(user.split("+")), tuple(item.split("+"))
            )
        prepare(tmp_path, rest, columns=f"user={user},item={item},rating=number", **options)
        expected = contents(tmp_path / "out.h5")
        found = contents(path)
        assert found.keys() == expected.keys()
        groups = {"train/group", "test/group"}  # they have other numbers
        for name in found.keys() - groups:
            assert np.array_equal(found[name], expected[name]), name
        for name in found.keys() & groups:
            pairs = set(zip(found[name].tolist(), expected[name].tolist(), strict=True))
            assert len(pairs) == len(set(found[name])) == len(set(expected[name])) > 1, name


def test_all_arrangements_have_the_same_test_ratings(tmp_path):
    """So do views that hold out more of them, by which models are compared."""
    prepare(tmp_path, as_csv(grid()), columns=COLUMNS, test_fraction=0.2)
    open_cells = cells_of(tmp_path / "out.h5")
    for path in arranged(tmp_path):
        assert cells_of(path) == open_cells
    held_out = []
    with Ratings(tmp_path / "out.h5") as ratings:
        view = InnerSplit(ratings, 0.25, seed=3)
        for arrangement in arrangements_of(ratings.directions):
            arrange_ratings(view, arrangement, tmp_path / "inner.h5")
            held_out.append(cells_of(tmp_path / "inner.h5"))
    assert held_out[0]["test"]
    assert held_out[0] == held_out[1] == held_out[2]
    assert held_out[0]["train"] | held_out[0]["test"] == open_cells["train"]


def test_names_with_any_character_stay_apart(tmp_path):
    """No part is joined with another one by a character that it may have."""
    pairs = zip(ODD, reversed(ODD), strict=True)
    rows = [(p, d, h, 1 + k % 7) for k, (p, d) in enumerate(pairs) for h in ODD]
    prepare(tmp_path, as_csv(rows), columns=COLUMNS, test_fraction=0)
    expected = {(p, d, h): x for p, d, h, x in rows}
    for path in arranged(tmp_path):
        assert cells_of(path)["train"] == expected


def numbers_of(ratings: Ratings) -> list[int]:
    """Return the numbers of training, test, replicated and bounded ratings."""
    bounded = [ratings.count_bounded(part) for part in ("train", "test")]
    return [ratings.nnz, ratings.nnz_test, ratings.replicates, *bounded]


def test_weights_bounds_and_replicates_stay(tmp_path):
    """An arrangement keeps what is known of each measurement."""
    lines = ["place,day,hour,number,w,low,high"]
    for k, (p, d, h, x) in enumerate(grid()):
        lines.append(f"{p},{d},{h},{x},{1 + k % 3},,")
        if k % 9 == 0:
            lines.append(f"{p},{d},{h},{x + 1},2,,")
        if k % 10 == 3:
            lines.append(f"{p},{d},{h},,1,{x - 1},{x + 2}")
    columns = f"{COLUMNS},weight=w,lower=low,upper=high"
    prepare(tmp_path, "\n".join(lines), columns=columns, duplicates="keep", test_fraction=0.1)
    with Ratings(tmp_path / "out.h5") as ratings:
        expected = numbers_of(ratings)
        weights = np.sort(ratings.stored_weights("train", 0, ratings.n_rows))
    assert all(expected)
    for path in arranged(tmp_path):
        with Ratings(path) as ratings:
            assert numbers_of(ratings) == expected
            stored = np.sort(ratings.stored_weights("train", 0, ratings.n_rows))
            assert np.array_equal(stored, weights)
            ratings.verify()


def test_parts_are_features_unless_left_out(tmp_path):
    """Pairs have the categories of both parts; a side of one column has none."""
    prepare(tmp_path, as_csv(grid()), columns=COLUMNS)
    second = arranged(tmp_path)[1]
    assert features_of(second)["p1", 3] == {"place=p1": 1.0, "day=3": 1.0}
    prepare(tmp_path, as_csv(grid()), columns=COLUMNS, part_features=False)
    for path in arranged(tmp_path):
        with Ratings(path) as ratings:
            assert not ratings.features


def without_days(rows: list[tuple]) -> list[tuple]:
    """Leave out a third of the days of places."""
    return [row for row in rows if (int(row[0][1:]) + row[1]) % 3]


@pytest.mark.parametrize("with_test_file", [False, True])
def test_ratings_are_held_out_as_they_are_missing(tmp_path, with_test_file):
    """Whole days are missing: so models are compared by whole days, as if it had been asked for."""
    rows = without_days(grid(9, 8, 5))
    options = {"columns": COLUMNS, "test_fraction": 0.25}
    if with_test_file:
        hidden = [row for row in grid(9, 8, 5) if row not in rows]
        (tmp_path / "test.csv").write_text(as_csv(hidden))
        options = {"columns": COLUMNS, "test": str(tmp_path / "test.csv")}
    summary = prepare(tmp_path, as_csv(rows), **options)
    assert summary.holes == (
        "of the cells that are missing, 100 % miss with their whole (place, day): so models are"
        " compared by whole (place, day)"
    )
    found = contents(tmp_path / "out.h5")
    prepare(tmp_path, as_csv(rows), **options, hold_out_by="place+day")
    expected = contents(tmp_path / "out.h5")
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[name], expected[name]) for name in found)


def test_single_cells_are_held_out_where_single_cells_are_missing(tmp_path):
    """There are no groups, and nothing is said."""
    rows = [row for k, row in enumerate(grid(9, 8, 5)) if k % 7]
    assert prepare(tmp_path, as_csv(rows), columns=COLUMNS).holes == ""
    with Ratings(tmp_path / "out.h5") as ratings:
        assert not ratings.grouped


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        (
            "user=place,item=hour,context=day+line",
            r"user=place[+]day[+]line,item=hour or user=place,item=hour[+]day[+]line",
        ),
        ("user=place+line,item=hour,context=day", r"user=place[+]line[+]day,item=hour or"),
        ("context=day+line", r"user=U[+]day[+]line,item=I or"),
        ("user=place,item=hour,context=week,rating=number", "no column 'week'"),
        ("user=place,item=hour,context=hour,rating=number", "one column serves for two"),
        ("user=place,item=hour,context=", "expected one or more of"),
    ],
)
def test_refuses_columns_that_are_no_three_directions(tmp_path, columns, reason):
    """The message says what to write."""
    text = as_csv(grid()).replace("\r\n", ",1\r\n").replace("number,1", "number,line")
    with pytest.raises(InputError, match=reason):
        prepare(tmp_path, text, columns=columns)


@pytest.mark.parametrize(
    "options", [{"user_features": "u.csv"}, {"item_features": "i.csv"}, {"timestamps": True}]
)
def test_refuses_features_and_times(tmp_path, options):
    """Their side, or their order, depends on the arrangement."""
    with pytest.raises(InputError, match="say on which side the third column is"):
        prepare(tmp_path, as_csv(grid()), columns=COLUMNS, **options)


def test_refuses_a_test_file_without_the_context(tmp_path):
    """Ratings of unknown days must not become test ratings."""
    (tmp_path / "test.csv").write_text("place,hour,number\np1,h1,3\n")
    with pytest.raises(InputError, match=r"test.csv has .* no column 'day'"):
        prepare(tmp_path, as_csv(grid()), columns=COLUMNS, test=str(tmp_path / "test.csv"))


def test_refuses_directions_that_are_not_those_of_the_names(tmp_path):
    """A damaged file is not read as another table."""
    prepare(tmp_path, as_csv(grid()), columns=COLUMNS)
    with h5py.File(tmp_path / "out.h5", "a") as file:
        file["directions"][2] = b"week"
    with pytest.raises(InputError, match="are not the columns"):
        Ratings(tmp_path / "out.h5")


def test_data_frames_and_arrays_have_three_columns(tmp_path):
    """Pairs in an array are in the order user, item, context, whatever the arrangement."""
    frame = pd.DataFrame(grid(), columns=HEADER)
    columns = {"user": "place", "item": "hour", "context": "day", "rating": "number"}
    table = ratings_source(frame, form=Reading(columns))
    prepare_ratings([table], tmp_path / "out.h5", columns=columns)
    stored = everything(tmp_path / "out.h5")
    assert stored == {(p, (h, d)): x for p, d, h, x in grid()}
    triples = frame[["place", "hour", "day"]].to_numpy()
    labels = {"user": ("place", "day"), "item": ("hour",)}
    users, items = read_pairs(triples, None, labels, ("place", "hour", "day"))
    found = list(zip(users.tolist(), items.tolist(), strict=True))
    assert found == [((p, d), h) for p, d, h, _ in grid()]
