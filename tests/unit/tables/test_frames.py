"""Tables of Arrow, polars and DuckDB, structured arrays, and what pandas has in an index of several
levels, are read as the same table in pandas is.
"""

import sys

import duckdb
import numpy as np
import pandas as pd
import pytest
from ingest_cases import everything, features_of

from dsgmcmc import BPMF
from dsgmcmc.errors import InputError
from dsgmcmc.features.arrays import read_features
from dsgmcmc.input.arrays import list_names, ratings_source, read_pairs, read_ratings
from dsgmcmc.prepare.prepare import prepare_ratings
from dsgmcmc.ratings.reading import Reading

pyarrow = pytest.importorskip("pyarrow")
BIG = 76561197960265729  # an id that no float64 has

RATED = pd.DataFrame(
    {
        "user": [BIG, BIG, 2, 3, 3],
        "item": pd.Categorical([*"abaab"]),
        "rating": [1.0, 2, 3, 4, 5],
        "date": pd.to_datetime(["2021-03-15", "2021-03-16", None, "2021-03-18", "2021-03-17"]),
    }
)
AGES = pd.DataFrame({"user": [BIG, 2, 3], "job": ["x", None, "y"], "flag": [True, False, True]})


def arrow(frame: pd.DataFrame) -> object:
    return pyarrow.Table.from_pandas(frame, preserve_index=False)


def relation(frame: pd.DataFrame) -> object:
    return duckdb.from_arrow(arrow(frame))


def polars(frame: pd.DataFrame) -> object:
    return pytest.importorskip("polars").from_arrow(arrow(frame))


def lazy(frame: pd.DataFrame) -> object:
    return polars(frame).lazy()


@pytest.mark.parametrize("convert", [arrow, relation, polars, lazy])
def test_tables_of_other_libraries(tmp_path, convert):
    """Ratings with large ids, categories and missing dates, pairs, names and features."""
    expected = {(BIG, "a"): 1, (BIG, "b"): 2, (2, "a"): 3, (3, "a"): 4, (3, "b"): 5}
    for missing in ((), ("9",)):
        source = ratings_source(convert(RATED), form=Reading(missing=missing))
        prepare_ratings([source], tmp_path / "out.h5", force=True)
        assert everything(tmp_path / "out.h5") == expected
    users, items = read_pairs(convert(RATED[["user", "item"]]))
    assert (users.tolist(), items.tolist()) == (RATED.user.tolist(), RATED.item.tolist())
    assert list_names(convert(RATED[["user"]]), "user") == RATED.user.tolist()
    described = read_features(convert(AGES), "user")
    prepare_ratings([source], tmp_path / "out.h5", user_features=described, force=True)
    assert features_of(tmp_path / "out.h5") == {
        BIG: {"job=x": 1, "flag": 1},
        2: {"flag": 0},
        3: {"job=y": 1, "flag": 1},
    }


@pytest.mark.parametrize("convert", [arrow, relation, polars, lazy])
def test_a_wide_table(convert):
    """A row for each user, with gaps."""
    values = np.random.default_rng(2).normal(size=(30, 6))
    values[::7, 2] = np.nan
    wide = pd.DataFrame(values).add_prefix("v")
    wide.insert(0, "user", [f"u{k}" for k in range(30)])
    model = BPMF(matrix=True, rank=1, iterations=4, burn_in=2, options={"grid": 1})
    assert len(model.fit(convert(wide)).items_) == 6


def test_without_pyarrow_another_form_is_asked_for(monkeypatch):
    """A relation of DuckDB needs it."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match="is read by pyarrow, which is not installed"):
        ratings_source(duckdb.sql("SELECT 1 AS user, 2 AS item, 3 AS rating"))


def test_a_column_of_another_library_is_a_list_of_names():
    """A Series has Arrow's protocol, too, and is no table."""
    assert list_names(pd.Series([BIG, 2]), "user") == [BIG, 2]


def test_masked_cells_are_not_rated():
    """A mask hides cells of a matrix, or a rating, in its row or apart."""
    rng = np.random.default_rng(3)
    values = rng.integers(1, 6, (9, 6))
    mask = rng.random(values.shape) < 0.3
    read = read_ratings(np.ma.masked_array(values, mask))
    assert len(read["rating"]) == np.count_nonzero(~mask)
    expected = np.where(mask, np.nan, values)
    np.testing.assert_array_equal(read["rating"], expected[~np.isnan(expected)])
    texts = np.ma.masked_array(values.astype(str).astype(object), mask)
    read = read_ratings(texts, None, Reading(matrix=True))
    assert len(read["rating"]) == np.count_nonzero(~mask)
    pairs = np.array([[1, 1], [1, 2], [2, 1], [2, 2]])
    ratings = np.ma.masked_array([1.0, 2.0, 3.0, 4.0], [0, 0, 1, 0])
    rows = np.ma.column_stack([pairs, ratings])
    for given in ((pairs, ratings), (rows,)):
        with pytest.raises(InputError, match=r"row 2 .*: the rating is missing"):
            read_ratings(*given)
    whole = np.ma.masked_array(np.column_stack([pairs, [1, 2, 3, 4]]))
    assert read_ratings(whole)["rating"].tolist() == [1, 2, 3, 4]


INDEXED = RATED.set_index(["user", "item"])["rating"]


@pytest.mark.parametrize(
    "X",
    [
        INDEXED,
        INDEXED.rename(None),
        INDEXED.rename_axis([None, None]),
        RATED.set_index(["user", "item"])[["rating"]],
        RATED.assign(item=list("abaab"))[["user", "item", "rating"]].to_records(index=False),
    ],
    ids=["series", "without a name", "without names of levels", "frame", "records"],
)
def test_names_in_an_index_and_in_fields(X):
    """They are those of ratings, and of pairs."""
    found = read_ratings(X)
    assert found["user"].tolist() == RATED.user.tolist()
    assert found["item"].tolist() == list("abaab")
    assert found["rating"].tolist() == RATED.rating.tolist()
    pairs = getattr(X, "index", X)
    assert [names.tolist() for names in read_pairs(pairs)] == [RATED.user.tolist(), list("abaab")]


def test_fields_of_bytes_in_another_order():
    """As columns of a data frame, they are found by their names and by `columns`."""
    rows = list(zip(RATED.user, "abaab", RATED.rating, strict=True))
    X = np.array(rows, dtype=[("item_id", "i8"), ("user_id", "S1"), ("value", "f4")])
    found = read_ratings(X, form=Reading(columns={"rating": "value"}))
    assert found["user"].tolist() == list("abaab")
    assert found["item"].tolist() == RATED.user.tolist()
    assert found["rating"].tolist() == RATED.rating.tolist()


@pytest.mark.parametrize("columns", [list, np.asarray])
def test_dicts_of_columns(columns):
    """They are data frames, as `recommend` returns them."""
    X = {name: columns(RATED[name]) for name in ("item", "rating", "user")}
    found = read_ratings(X)
    assert found["user"].tolist() == RATED.user.tolist()
    assert found["item"].tolist() == list("abaab")
    assert found["rating"].tolist() == RATED.rating.tolist()
    pairs = np.argwhere(np.arange(80).reshape(10, 8) % 3)
    model = BPMF(rank=1, iterations=20, burn_in=4).fit(pairs, pairs.sum(axis=1) % 5)
    best = model.recommend([3, 4], n=2)
    expected = model.predict(np.column_stack([best["user_id"], best["item_id"]]))
    assert model.predict(best).tolist() == expected.tolist()
    with pytest.raises(InputError, match=r"with the columns user, item; found 'pairs\.csv'"):
        model.predict("pairs.csv")


def test_an_index_that_names_users_alone_is_advised():
    """It may as well have no meaning, so users say that it has one."""
    advice = "user of its index would be columns in frame.reset_index"
    with pytest.raises(InputError, match=f"cannot tell which column is user .*{advice}"):
        read_ratings(RATED.set_index("user")[["item", "rating"]])
    with pytest.raises(InputError, match=f"cannot tell which column is user .*{advice}"):
        read_pairs(RATED.set_index("user")[["item", "rating"]])


def test_a_structured_array_may_be_a_matrix():
    """It comes back from `complete` with its fields."""
    values = np.random.default_rng(2).normal(size=(30, 5))
    values[::7, 2] = np.nan
    matrix = np.rec.fromarrays(values.T, names=list("pqrst"))
    model = BPMF(rank=1, iterations=4, burn_in=2, options={"grid": 1}).fit(matrix)
    completed = model.complete(matrix)
    assert completed.dtype.names == tuple("pqrst")
    assert completed["p"].tolist() == values[:, 0].tolist()
    assert np.isfinite(completed["r"]).all()
