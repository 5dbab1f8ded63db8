"""Context columns: the categories that values of a file make, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import pytest

from dsgmcmc.data.prepare import prepare_ratings
from dsgmcmc.data.ratings import open_ratings
from dsgmcmc.errors import InputError

#: user, item, rating, time, device, price
LINES = [
    "a,p,1,2020-01-31,mobile,1.5",
    "a,q,2,2020-02-01, mobile ,2.5",
    "a,r,3,2020-04-01,Gerät,9",
    "b,p,2,2021-04-01,,0.5",
    "b,q,4,2021-04-05,007,",
    "b,r,5,2021-12-31,10,3.5",
    "b,s,5,2021-12-31,9,3.5",
]
HEADER = "user,item,rating,timestamp,device,price"


def prepared(folder: Path, context: str, lines: list[str] = LINES, header: str = HEADER, **options) -> Path:
    """Ratings file of these lines."""
    (folder / "r.csv").write_text("\n".join([*([header] if header else []), *lines]) + "\n", encoding="utf-8")
    prepare_ratings([str(folder / "r.csv")], folder / "r.h5", context=context, force=True, **options)
    return folder / "r.h5"


def categories(path: Path, column: str) -> dict[tuple[str, str], str]:
    """Name of the category of every rating, by user and item."""
    found = {}
    with open_ratings(path) as ratings:
        ratings.verify()
        rows, cols, names = ratings.row_ids(), ratings.col_ids(), ratings.context.columns[column].names
        for part in ("train", "test"):
            for row in range(ratings.n_rows):
                _, indices, _ = ratings.slab(part, row, row + 1)
                for column_index, code in zip(indices, ratings.context.slab(column, part, row, row + 1), strict=True):
                    pair = (rows[row], cols[column_index])
                    found[pair[::-1] if ratings.transposed else pair] = names[code]
    return found


def test_values_are_categories(tmp_path: Path) -> None:
    """Text without the spaces around it; leading zeros stay; what is missing is a category of its own, the last one."""
    path = prepared(tmp_path, "device", test_fraction=0.4)
    expected = ["mobile", "mobile", "Gerät", "", "007", "10", "9"]
    assert categories(path, "device") == {
        tuple(line.split(",")[:2]): e for line, e in zip(LINES, expected, strict=True)
    }
    with open_ratings(path) as ratings:
        assert ratings.context.columns["device"].names == ("007", "9", "10", "Gerät", "mobile", "")
        assert ratings.context.columns["device"].codes(["9", None, "mobile", "tablet"]).tolist() == [1, 5, 4, -1]


def test_numbers_are_cut_into_groups_of_equal_size(tmp_path: Path) -> None:
    """New numbers fall into the groups of the old ones, beyond their ends as well; a missing one has its own group."""
    path = prepared(tmp_path, "price:3", test_fraction=0)
    found = categories(path, "price")
    assert [found[tuple(line.split(",")[:2])] for line in LINES] == [
        *("to 1.5", "1.5 to 3.5", "above 3.5", "to 1.5", "", "1.5 to 3.5", "1.5 to 3.5")
    ]
    with open_ratings(path) as ratings:
        assert ratings.context.columns["price"].codes(["-7", "1.5", "1.6", "99", None, "x"]).tolist() == [
            0,
            0,
            1,
            2,
            3,
            -1,
        ]


@pytest.mark.parametrize(
    ("period", "expected"),
    [
        ("year", ["2020"] * 3 + ["2021"] * 4),
        ("quarter", ["2020-Q1", "2020-Q1", "2020-Q2", "2021-Q2", "2021-Q2", "2021-Q4", "2021-Q4"]),
        ("month", ["2020-01", "2020-02", "2020-04", "2021-04", "2021-04", "2021-12", "2021-12"]),
        ("weekday", ["Friday", "Saturday", "Wednesday", "Thursday", "Monday", "Friday", "Friday"]),
    ],
)
def test_periods_are_made_of_timestamps(tmp_path: Path, period: str, expected: list[str]) -> None:
    """In UTC, under their own name or another; a column of that name comes first."""
    assert list(categories(prepared(tmp_path, f"when={period}"), "when").values()).count(expected[0]) == expected.count(
        expected[0]
    )
    found = categories(prepared(tmp_path, period), period)
    assert [found[tuple(line.split(",")[:2])] for line in LINES] == expected
    found = categories(prepared(tmp_path, period, header=HEADER.replace("device", period)), period)
    assert found["a", "r"] == "Gerät"


def test_columns_have_positions_and_other_names(tmp_path: Path) -> None:
    """As in a file without a header; JSON lines and their numbers alike."""
    columns = "user=1,item=2,rating=3"
    assert categories(prepared(tmp_path, "store=5", header="", columns=columns), "store")["a", "r"] == "Gerät"
    records = [{"user": line[0], "item": line[2], "rating": k, "shop": k % 2} for k, line in enumerate(LINES)]
    (path := tmp_path / "r.jsonl").write_text("\n".join(map(json.dumps, records)))
    prepare_ratings([str(path)], tmp_path / "j.h5", context="shop")
    assert categories(tmp_path / "j.h5", "shop")["a", "q"] == "1"


@pytest.mark.parametrize(("which", "expected"), [("first", "mobile"), ("last", "9"), ("mean", "9")])
def test_of_ratings_that_come_twice_one_has_its_context(tmp_path: Path, which: str, expected: str) -> None:
    """That of the line that counts; of a mean, of the last."""
    path = prepared(tmp_path, "device", [*LINES, "a,p,5,2020-01-01,9,1"], duplicates=which)
    assert categories(path, "device")["a", "p"] == expected


def test_context_does_not_change_the_split(tmp_path: Path) -> None:
    """A file with it has the test ratings of one without, and another digest."""
    plain, more = (open_ratings(prepared(tmp_path, context, test_fraction=0.4)) for context in ("", "device"))
    assert plain.digest != more.digest
    assert not plain.context.columns
    assert [a.tolist() for a in plain.slab("test", 0, 2)] == [a.tolist() for a in more.slab("test", 0, 2)]


@pytest.mark.parametrize(
    ("context", "said"),
    [
        ("store", "no 'store' that --context names; year, quarter, month"),
        ("price", "price has fractions, such as .*: cut its numbers into groups, such as price:10"),
        ("device:3", "device:3 needs numbers, and 3 values are none, such as"),
        ("price:1", "in 2 to 1000 groups"),
        ("device,device", "names a column twice"),
        ("a/b", "'a/b' is no name of a context column"),
        ("=5", "expected NAME"),
    ],
)
def test_columns_that_cannot_be_are_refused(tmp_path: Path, context: str, said: str) -> None:
    """With what was found, and what helps."""
    with pytest.raises(InputError, match=said):
        prepared(tmp_path, context)
    assert not (tmp_path / "r.h5").exists()


def test_a_file_that_contradicts_itself_is_refused(tmp_path: Path) -> None:
    """Codes without a category, names that come twice, a link in the place of a group."""
    path = prepared(tmp_path, "device", test_fraction=0)

    def changed(change) -> None:
        with h5py.File(path, "r+") as file:
            change(file)
        with pytest.raises(InputError, match="is not a usable ratings file"), open_ratings(path) as ratings:
            ratings.context.slab("device", "train", 0, ratings.n_rows)
        prepared(tmp_path, "device", test_fraction=0)

    changed(lambda file: file["train/context/device"].__setitem__(0, 6))
    changed(lambda file: file["train/context/device"].__setitem__(0, -1))
    changed(lambda file: file["context/device/names"].__setitem__(0, b"mobile"))
    changed(lambda file: file.move("context/device", "context/a:b"))

    def linked(file: h5py.File) -> None:
        del file["context"]
        file["context"] = h5py.ExternalLink("/etc/passwd", "/")

    changed(linked)
