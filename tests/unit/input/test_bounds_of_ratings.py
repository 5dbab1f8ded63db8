"""Ratings that are known to lie within bounds: in texts, relations and columns of bounds."""

import json

import numpy as np
import pandas as pd
import pytest
from cases import pairs_of
from ingest_cases import prepare
from support import typed

from dsgmcmc import BPMF
from dsgmcmc.errors import InputError
from dsgmcmc.ratings.description import describe_ratings
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.ratings.held_out import InnerSplit

INF = np.inf
EXACT = [("a", "x", 1.0), ("a", "y", 1.5), ("b", "x", 2.5), ("b", "y", 3.25)]


def table(header: str, *rows: tuple) -> str:
    """CSV with exact ratings and some rows."""
    width = header.count(",") + 1
    exact = [(*row, *[""] * (width - 3)) for row in EXACT]
    return "\n".join([header, *(";".join(map(str, row)) for row in (*exact, *rows)), ""]).replace(
        header, header.replace(",", ";")
    )


def bounds_of(path) -> dict[tuple, tuple]:
    """Value, lower and upper bound of every training rating, by user and item."""
    with Ratings(path) as ratings:
        ratings.verify()
        slab = ratings.slab("train", 0, ratings.n_rows)
        pairs = pairs_of(ratings, slab)
        assert slab.bounds is not None
        numbers = [array.tolist() for array in (slab.values, *slab.bounds)]
    return dict(zip(pairs, zip(*numbers, strict=True), strict=True))


def bounds_read(tmp_path, header: str, rows: list[tuple], **options) -> dict[tuple, tuple]:
    """`bounds_of` a file that is prepared from exact ratings and some rows."""
    prepare(tmp_path, table(header, *rows), test_fraction=0, **options)
    return bounds_of(tmp_path / "out.h5")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<0.5", (0.5, -INF, 0.5)),
        ("< 0.5", (0.5, -INF, 0.5)),
        ("<=2", (2, -INF, 2)),
        (">5", (5, 5, INF)),
        (">= 1e1", (10, 10, INF)),
        ("[2, 3]", (2.5, 2, 3)),
        ("[-1,.5]", (-0.25, -1, 0.5)),
    ],
)
def test_a_text_is_a_bound(tmp_path, text, expected):
    """In a file, and in a data frame; exact ratings keep their values."""
    summary = prepare(
        tmp_path, table("user,item,rating", ("c", "x", text)), test_fraction=0, name="r.csv"
    )
    found = bounds_of(tmp_path / "out.h5")
    assert found["c", "x"] == pytest.approx(expected)
    assert found["b", "y"] == (3.25, 3.25, 3.25)
    assert summary.bounded == 1
    frame = pd.DataFrame([*EXACT, ("c", "x", text)], columns=["user", "item", "rating"])
    BPMF(iterations=4, burn_in=2, rank=0, out=tmp_path / "run").fit(frame)
    assert bounds_of(tmp_path / "run.ratings.h5") == found


def test_relations_and_columns_of_bounds(tmp_path):
    """A relation says on which side of the number a rating lies; columns may have either bound."""
    rows = [("c", "x", 7.0, "<"), ("c", "y", 9.0, ">="), ("d", "x", 4.0, "=")]
    header = "user,item,rating,standard_relation"
    found = bounds_read(tmp_path, header, rows, columns="relation=standard_relation")
    assert found["c", "x"] == (7, -INF, 7)
    assert found["c", "y"] == (9, 9, INF)
    assert found["d", "x"] == (4, 4, 4)
    rows = [("c", "x", "", 1.0, 2.0), ("c", "y", "", "", 0.5), ("d", "x", 4.0, "", "")]
    found = bounds_read(tmp_path, "user,item,rating,from,to", rows, columns="lower=from,upper=to")
    assert found["c", "x"] == (1.5, 1, 2)
    assert found["c", "y"] == (0.5, -INF, 0.5)
    assert found["d", "x"] == (4, 4, 4)


@pytest.mark.parametrize(
    ("header", "row", "columns", "message"),
    [
        ("user,item,rating,rel", ("c", "x", 1, "about"), "relation=rel", "has 'about': expected"),
        ("user,item,rating", ("c", "x", "[3, 2]"), None, "lower bound is above the upper bound"),
        ("user,item,rating", ("c", "x", "<low"), None, "not a number|cannot be read|DOUBLE"),
        ("user,item,rating,to", ("c", "x", 9, 2), "upper=to", "outside its bounds"),
    ],
)
def test_what_could_mean_two_things_is_refused(tmp_path, header, row, columns, message):
    """The message says what was found."""
    with pytest.raises(InputError, match=message):
        prepare(tmp_path, table(header, row), columns=columns)


@pytest.mark.parametrize("options", [{}, {"duplicates": "keep"}])
def test_ratings_within_bounds_are_held_out_as_others(tmp_path, options):
    """They keep their bounds in a split of the file, and in one of its training ratings."""
    rng = np.random.default_rng(0)
    rows = []
    for user in range(20):
        for item in range(15):
            value = round(rng.normal(), 2)
            text = f"<{value}" if rng.random() < 0.3 else value
            rows += [(f"u{user}", f"i{item}", text)] * (2 if rng.random() < 0.2 else 1)
    summary = prepare(tmp_path, table("user,item,rating", *rows), test_fraction=0.3, **options)
    with Ratings(tmp_path / "out.h5") as ratings:
        ratings.verify()
        numbers = [ratings.count_bounded(part) for part in ("train", "test")]
        assert sum(numbers) == summary.bounded
        assert abs(numbers[1] / summary.bounded - 0.3) < 0.15  # three sds of a random split
        described = describe_ratings(ratings)
        for part, number in zip(("training", "test"), numbers, strict=True):
            assert f"{number} known only by bounds" in described[part]
        inner = InnerSplit(ratings, 0.3, seed=1)
        of_inner = [inner.count_bounded(part) for part in ("train", "test")]
        assert sum(of_inner) == numbers[0]
        assert of_inner[1] > 0


def test_a_test_file_may_have_bounds(tmp_path):
    """They are stored with the test ratings; a file of earlier versions had none there."""
    (tmp_path / "test.csv").write_text("user,item,rating\nc,y,<1\nc,x,3\n")
    text = table("user,item,rating", ("d", "x", "<2"))
    prepare(tmp_path, text, test=str(tmp_path / "test.csv"))
    with Ratings(tmp_path / "out.h5") as ratings:
        ratings.verify()
        slab = ratings.slab("test", 0, ratings.n_rows)
        assert sorted(zip(*map(np.ndarray.tolist, slab.bounds), strict=True)) == [(-INF, 1), (3, 3)]


@pytest.mark.parametrize(
    ("header", "row", "columns"),
    [
        ("user,item,rating,to", ("c", "x", "<0.1", 5), "upper=to"),
        ("user,item,rating,rel", ("c", "x", "<0.1", ">"), "relation=rel"),
        ("user,item,rating,rel,to", ("c", "x", 7, "<", 5), "relation=rel,upper=to"),
    ],
)
def test_contradicting_bounds_are_refused(tmp_path, header, row, columns):
    """A bound that one source gives would hide the other."""
    message = "line 6: it has two different bounds on one side"
    with pytest.raises(InputError, match=message):
        prepare(tmp_path, table(header, row), columns=columns)


def test_sources_of_bounds_complete_each_other(tmp_path):
    """A text may have one bound, and a column the other; the same bound may come twice."""
    rows = [("c", "x", "<5", 1.0, "<"), ("c", "y", 7, "", ">="), ("d", "x", "<5", "", "")]
    header = "user,item,rating,from,rel"
    found = bounds_read(tmp_path, header, rows, columns="lower=from,relation=rel")
    assert found["c", "x"] == (3, 1, 5)
    assert found["c", "y"] == (7, 7, INF)
    assert found["d", "x"] == (5, -INF, 5)


def test_an_empty_bound_is_no_missing_rating(tmp_path):
    """A word for what is not known leaves out a line by its rating, not by its bounds."""
    rows = [("c", "x", 1.5, 1.0, ""), ("c", "y", "NA", "", "")]
    found = bounds_read(
        tmp_path,
        "user,item,rating,from,to",
        rows,
        columns="lower=from,upper=to",
        missing="NA,",
    )
    assert found["c", "x"] == (1.5, 1, INF)
    assert ("c", "y") not in found
    assert found["a", "x"] == (1, 1, 1)


def test_equal_bounds_are_no_step_of_exact_ratings(tmp_path):
    """A fifth of the ratings have the same bound, and no exact one occurs twice: no step is found,
    and `info` says so, with the numbers of bounds.
    """
    lines = [f"u{k % 20},i{k // 20},{k + k * k / 1e4:.3f}" for k in range(1, 150)]
    lines += [f"u{k % 20},i{k // 20},<9" for k in range(150, 200)]
    (tmp_path / "r.csv").write_text("\n".join(["user,item,rating", *lines, ""]))
    summary = prepare(tmp_path, (tmp_path / "r.csv").read_text(), test_fraction=0.1, name="r.csv")
    assert summary.resolution is None
    facts = json.loads(typed("info", tmp_path / "out.h5", "--json").expect(0).out)
    assert facts["resolution"] is None
    assert facts["bounded"] + facts["bounded_test"] == 50


def test_python_names_no_temporary_file():
    """What is wrong with ratings in memory is said of X, and not of the file that they became."""
    frame = pd.DataFrame({"user": [1, 1, 2, 2], "item": [1, 2, 1, 2]})
    frame["rating"] = ["<0.1", "2.5", "3.5", "4.25"]
    for method in ("fit", "compare"):
        with pytest.raises(InputError, match=r"^X has ratings that are known to lie within bounds"):
            getattr(BPMF(1, sampler="sgld", iterations=4), method)(frame)
