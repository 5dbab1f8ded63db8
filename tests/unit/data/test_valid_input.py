"""Valid input in its many shapes gives the right ratings, names and features, or is refused: files and Python alike."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from ingest_cases import prepare
from support import planted, typed

from dsgmcmc import BPMF
from dsgmcmc.data.arrays import read_features
from dsgmcmc.data.features import Description
from dsgmcmc.data.titles import read_titles
from dsgmcmc.errors import InputError

BIG = 76561197960265729  # an id of Steam, which no float64 has
USERS, ITEMS, X = planted(rows=12, columns=9, share=0.6)
FRAME = pd.DataFrame({"user": BIG + 16 * USERS, "item": ITEMS + 1, "rating": X.astype(float)})
SHORT = {"rank": 2, "iterations": 60, "burn_in": 20, "options": {"grid": 2}}


@pytest.fixture(scope="module")
def model() -> BPMF:
    """A model whose users have large numbers as names."""
    return BPMF(**SHORT).fit(FRAME)


def fitted(path: Path) -> None:
    """Fit a frame that is written to a file."""
    BPMF(**SHORT).fit(path)


# ---------------------------------------------------------------------- names that are rounded floats

AS_FLOATS = FRAME.to_numpy()
PYTHON = {
    "fit of an array": lambda m: BPMF(**SHORT).fit(AS_FLOATS),
    "fit of a frame with float ids": lambda m: BPMF(**SHORT).fit(FRAME.astype({"user": float})),
    "fit of float32": lambda m: BPMF(**SHORT).fit(FRAME.assign(user=np.float32(2**24) + USERS.astype(np.float32))),
    "predict": lambda m: m.predict(AS_FLOATS[:3, :2]),
    "fold_in": lambda m: m.fold_in(AS_FLOATS[:3]),
    "recommend": lambda m: m.recommend(AS_FLOATS[:1, 0]),
    "recommend one": lambda m: m.recommend(float(BIG)),
    "candidates": lambda m: m.recommend(BIG, candidates=[1e16, 3]),
    "similar": lambda m: m.similar(float(BIG), kind="user"),
    "features": lambda m: BPMF(**SHORT, user_features=np.c_[AS_FLOATS[:, 0], X]).fit(FRAME),
    "an index": lambda m: read_features(pd.DataFrame({"age": X}, index=pd.Index(AS_FLOATS[:, 0], name="who")), "user"),
}


@pytest.mark.parametrize("call", PYTHON)
def test_rounded_names_are_refused_in_python(model, call):
    """A float of 2^53 or more stands for several integers, so it names nobody; the ids of the frame are exact."""
    assert BIG in model.users_
    with pytest.raises(InputError, match="or more, which are rounded integers: row 0 has"):
        PYTHON[call](model)


@pytest.mark.parametrize("name", ["7.656119797626573e+16", "7.656119797626573E16", "9007199254740993.0"])
@pytest.mark.parametrize("place", ["ratings", "pairs", "features"])
def test_rounded_names_are_refused_in_files(tmp_path, model, name, place):
    """Rounded floats as pandas, DuckDB, R and Java write them are no names; hexadecimal names such as 12e3 are."""
    text = f"user,item,rating\n{name},2,3\n5,3,4\n6,2,5\n"
    if place == "features":
        (tmp_path / "u.csv").write_text(f"user,age\n{name},2\n5,3\n6,1\n")
        with pytest.raises(InputError, match=r"the user in line 2 is a float that may be rounded"):
            prepare(tmp_path, "user,item,rating\n5,2,3\n6,3,4\n", described={"user": Description(tmp_path / "u.csv")})
    elif place == "pairs":
        from dsgmcmc.posterior.predict import PredictOptions, predict_table

        (tmp_path / "p.csv").write_text(text)
        with pytest.raises(InputError, match=r"1 pairs have a missing or rounded name[^\n]*\n  line 2: user "):
            predict_table(model.run_, tmp_path / "p.csv", None, PredictOptions(), unknown="prior")
    else:
        with pytest.raises(InputError, match="line 2: a name is a float that may be rounded"):
            prepare(tmp_path, text)
        assert prepare(tmp_path, text.replace(name, "12e3")).users == 3


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rounded_names_are_refused_in_parquet(tmp_path, dtype):
    """Floats in Parquet are refused from the first number on whose neighbour they cannot tell."""
    first = 2.0 ** (np.finfo(dtype).nmant + 1)
    for least, refused in ((first - 12, False), (first, True)):
        frame = FRAME.assign(user=(least + USERS).astype(dtype))
        frame.to_parquet(tmp_path / "r.parquet")
        if refused:
            with pytest.raises(InputError, match="a name is a float that may be rounded"):
                fitted(tmp_path / "r.parquet")
        else:
            assert prepare(tmp_path, (tmp_path / "r.parquet").read_bytes(), "s.parquet").users == len(np.unique(USERS))


# ---------------------------------------------------------------------- columns that are not what they seem

TRIPLES = [(u, i, (7 * u + 3 * i) % 5 + 1) for u in range(12) for i in range(9)]
DOUBTFUL = {
    "line numbers": ("{k},{u},{i},{r}", "each of the 108 ratings has another user"),
    "items first, and line numbers": ("{i},{k},{r}", "each of the 108 ratings has another item"),
    "times": ("{u},{i},{t},{r}", "the ratings are from 800000000 to 1.*, as times are"),
    "ids of reviews": ("{u},{i},{k},{r}", "the ratings are whole numbers, all different, such as 0, as ids are"),
}


def table(form: str) -> str:
    """Lines of ratings with a format of u, i, r, t and the number k of the line."""
    rows = ((u, i, r, 800_000_000 + 3_000_000 * k, k) for k, (u, i, r) in enumerate(TRIPLES))
    return "".join(form.format(u=u, i=i, r=r, t=t, k=k) + "\n" for u, i, r, t, k in rows)


@pytest.mark.parametrize("case", DOUBTFUL)
def test_columns_that_cannot_be_ratings_are_doubted(tmp_path, case):
    """What stands in place of users, items and ratings is looked at; the right columns have no note."""
    form, message = DOUBTFUL[case]
    (doubt,) = prepare(tmp_path, table(form)).doubts
    assert re.match(message, doubt)
    assert "--columns" in doubt
    done = typed("prepare", tmp_path / "ratings.csv", tmp_path / "again.h5").expect(0)
    assert doubt in done.err
    places = {letter: position for position, letter in enumerate(re.findall("[uirtk]", form), 1)}
    if "u" in places:
        columns = f"user={places['u']},item={places['i']},rating={places['r']}"
        assert prepare(tmp_path, table(form), columns=columns).doubts == []


def test_times_that_are_close_are_called_times(tmp_path):
    """Times of one day are too close for single precision; to subtract their mean would not help."""
    text = "".join(f"{u},{i},{1_300_000_000 + k},{r}\n" for k, (u, i, r) in enumerate(TRIPLES))
    with pytest.raises(
        InputError, match=r"too close .*; the ratings are from 1300000000 to .*, as times are: .*--columns"
    ):
        prepare(tmp_path, text)


def test_a_rating_that_is_left_out_is_named(tmp_path):
    """Who names user and item alone has clicks; a column of ratings that is thereby passed over is named."""
    text = "who,what,rating\n" + table("{u},{i},{r}")
    assert prepare(tmp_path, text, columns="user=who,item=what").columns.endswith(
        "rating is left out: treated as clicks"
    )
    clicks = prepare(tmp_path, "who,what,x\n" + table("{u},{i},{r}"), columns="user=who,item=what")
    assert clicks.columns.endswith("no rating column: treated as clicks")


def test_titles_after_years(tmp_path):
    """The titles of the Netflix prize come after years."""
    (tmp_path / "movie_titles.txt").write_text("1,2003,Dinosaur Planet\n2,2004,Isle of Man\n", encoding="utf-8")
    assert read_titles(tmp_path / "movie_titles.txt") == {"1": "Dinosaur Planet", "2": "Isle of Man"}
