"""Valid input in its many shapes gives the right ratings, names and features, or is refused: files
and Python alike.
"""

import json
import re
from contextlib import nullcontext
from functools import partial

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from ingest_cases import features_of, prepare
from support import planted, typed

from dsgmcmc import BPMF
from dsgmcmc.errors import InputError
from dsgmcmc.features.arrays import read_features
from dsgmcmc.features.described import Description
from dsgmcmc.input.arrays import ratings_source
from dsgmcmc.input.titles import read_titles
from dsgmcmc.prepare.prepare import prepare_ratings
from dsgmcmc.ratings.description import independent_tests
from dsgmcmc.ratings.file import Ratings

BIG = 76561197960265729  # an id of Steam, which no float64 has
USERS, ITEMS, X = planted(rows=12, columns=9, share=0.6)
FRAME = pd.DataFrame({"user": BIG + 16 * USERS, "item": ITEMS + 1, "rating": X.astype(float)})
SHORT = {"rank": 2, "iterations": 60, "burn_in": 20, "options": {"grid": 2}}


@pytest.fixture(scope="module")
def model() -> BPMF:
    """A model whose users have large numbers as names."""
    return BPMF(**SHORT).fit(FRAME)


# -------------------------------------------------------------------- names that are rounded floats

AS_FLOATS = FRAME.to_numpy()
PYTHON = {
    "fit of an array": lambda m: BPMF(**SHORT).fit(AS_FLOATS),
    "fit of a frame with float ids": lambda m: BPMF(**SHORT).fit(FRAME.astype({"user": float})),
    "fit of float32": (
        lambda m: BPMF(**SHORT).fit(FRAME.assign(user=np.float32(2**24) + USERS.astype(np.float32)))
    ),
    "predict": lambda m: m.predict(AS_FLOATS[:3, :2]),
    "fold_in": lambda m: m.fold_in(AS_FLOATS[:3]),
    "recommend": lambda m: m.recommend(AS_FLOATS[:1, 0]),
    "recommend one": lambda m: m.recommend(float(BIG)),
    "candidates": lambda m: m.recommend(BIG, candidates=[1e16, 3]),
    "similar": lambda m: m.similar(float(BIG), kind="user"),
    "features": lambda m: BPMF(**SHORT, user_features=np.c_[AS_FLOATS[:, 0], X]).fit(FRAME),
    "an index": lambda m: read_features(
        pd.DataFrame({"age": X}, index=pd.Index(AS_FLOATS[:, 0], name="who")), "user"
    ),
}


@pytest.mark.parametrize("call", PYTHON)
def test_rounded_names_are_refused_in_python(model, call):
    """A float of 2^53 or more stands for several integers, so it names nobody; the ids of the frame
    are exact.
    """
    assert BIG in model.users_
    with pytest.raises(InputError, match="or more, which are rounded integers: row 0 has"):
        PYTHON[call](model)


@pytest.mark.parametrize(
    "name", ["7.656119797626573e+16", "7.656119797626573E16", "9007199254740993.0"]
)
def test_rounded_names_are_refused_in_files(tmp_path, model, name):
    """Rounded floats as pandas, DuckDB, R and Java write them are no names; hexadecimal names such
    as 12e3 are.
    """
    text = f"user,item,rating\n{name},2,3\n5,3,4\n6,2,5\n"
    path = tmp_path / "p.csv"
    path.write_text(text)
    with pytest.raises(InputError, match="line 2: a name is a float that may be rounded"):
        prepare(tmp_path, text)
    with pytest.raises(InputError, match="the user is missing, or a rounded float, in line 2"):
        prepare(tmp_path, text.replace(name, "7"), user_features=path)
    assert (
        "1 pairs lack an exact name"
        in typed("predict", model.run_.path, path, "--unknown", "prior").err
    )
    assert prepare(tmp_path, text.replace(name, "12e3")).users == 3


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rounded_names_are_refused_in_parquet(tmp_path, dtype):
    """Floats in Parquet are refused from the first number on whose neighbour they cannot tell."""
    first = 2.0 ** (np.finfo(dtype).nmant + 1)
    for least, said in (
        (first - 12, nullcontext()),
        (first, pytest.raises(InputError, match="float that may be")),
    ):
        FRAME.assign(user=(least + USERS).astype(dtype)).to_parquet(tmp_path / "r.parquet")
        with said:
            prepare_ratings([tmp_path / "r.parquet"], tmp_path / "o.h5", force=True)


# -------------------------------------------------------------- columns that are not what they seem

TRIPLES = [(u, i, (7 * u + 3 * i) % 5 + 1) for u in range(12) for i in range(9)]
DOUBTFUL = {
    "line numbers": ("{k},{u},{i},{r}", "each of the 108 ratings has another user"),
    "items first, and line numbers": ("{i},{k},{r}", "each of the 108 ratings has another item"),
    "times": ("{u},{i},{t},{r}", "the ratings are from 800000000 to 1.*, as times are"),
    "ids of reviews": (
        "{u},{i},{k},{r}",
        "the ratings are whole numbers, all different, such as 0, as ids are",
    ),
}


def table(form: str) -> str:
    """Lines of ratings with a format of u, i, r, t and the number k of the line."""
    rows = ((u, i, r, 800_000_000 + 3_000_000 * k, k) for k, (u, i, r) in enumerate(TRIPLES))
    return "".join(form.format(u=u, i=i, r=r, t=t, k=k) + "\n" for u, i, r, t, k in rows)


@pytest.mark.parametrize("case", DOUBTFUL)
def test_columns_that_cannot_be_ratings_are_doubted(tmp_path, case):
    """What stands in place of users, items and ratings is looked at; the right columns have no
    note.
    """
    form, message = DOUBTFUL[case]
    doubt = prepare(tmp_path, table(form)).doubts[0]
    assert re.match(message, doubt)
    assert "--columns" in doubt
    done = typed("prepare", tmp_path / "ratings.csv", tmp_path / "again.h5").expect(0)
    assert doubt in done.err
    position_of = {
        letter: position for position, letter in enumerate(re.findall("[uirtk]", form), 1)
    }
    if "u" in position_of:
        columns = f"user={position_of['u']},item={position_of['i']},rating={position_of['r']}"
        assert prepare(tmp_path, table(form), columns=columns).doubts == []


def test_times_that_are_close_are_called_times(tmp_path):
    """Times of one day are too close for single precision; without their mean, too."""
    text = "".join(f"{u},{i},{1_300_000_000 + k},{r}\n" for k, (u, i, r) in enumerate(TRIPLES))
    with pytest.raises(
        InputError,
        match=r"too close .*; the ratings are from 1300000000 to .*, as times are: .*--columns",
    ):
        prepare(tmp_path, text)


def test_titles_after_years(tmp_path):
    """The titles of the Netflix prize come after years."""
    (tmp_path / "movie_titles.txt").write_text(
        "1,2003,Dinosaur Planet\n2,2004,Isle of Man\n", encoding="utf-8"
    )
    assert read_titles(tmp_path / "movie_titles.txt") == {
        "1": "Dinosaur Planet",
        "2": "Isle of Man",
    }


# ------------------------------------------------------------ names, times and columns across files

RATED = pd.DataFrame({"user": USERS, "item": ITEMS, "rating": X.astype(float)})
BRIEF = partial(BPMF, rank=2, iterations=4, burn_in=2, options={"grid": 2})


def test_names_are_the_same_in_every_file(tmp_path):
    """Float ids, as pandas writes them where one was missing, name the same users; other test
    ratings are counted.
    """
    frame = pd.DataFrame({"user": [1, 2, 3, 4] * 2, "item": [1] * 4 + [2] * 4, "rating": range(8)})
    frame.astype({"user": float}).to_csv(tmp_path / "a.csv", index=False)
    assert (
        "have no"
        not in typed("prepare", tmp_path / "a.csv", tmp_path / "o.h5", "--test-fraction", "0").out
    )
    for test, users, items in (("1,3,2\n7,4,3\n2,3,1\n", 1, 3), ("001,1,2\n002,2,3\n", 2, 0)):
        (tmp_path / "t.csv").write_text(f"user,item,rating\n{test}")
        result = typed(
            "prepare",
            tmp_path / "a.csv",
            tmp_path / "o.h5",
            "--force",
            "--test",
            tmp_path / "t.csv",
        )
        said = f"the users of {users} and the items of {items} have no training ratings"
        assert said in " ".join(result.out.split())
        assert json.loads(typed("info", tmp_path / "o.h5", "--json").out)["untrained"] == {
            "user": users,
            "item": items,
        }
        with Ratings(tmp_path / "o.h5") as ratings:
            assert independent_tests(ratings) == 2, "a user or item without training counts once"
        entity = "item" if items else "user"
        assert (
            result.err.count(f"warning: all test ratings are of {entity}s without training ratings")
            == 1
        )
    run = typed(
        "sample",
        tmp_path / "o.h5",
        "--out",
        tmp_path / "run",
        "--rank",
        "1",
        "--iterations",
        "4",
        "--burn-in",
        "2",
    )
    assert "test ratings: the users of 2 and the items of 0 have no training ratings" in run.out


def test_predict_warns_of_unknown_names(model):
    """A call of which the run knows no user, or no item, was probably given other names."""
    for pairs, said in (
        ([[1, 1], [2, 1]], "users are unknown to the run: 1, 2"),
        ([[BIG, 99]], "one item is unknown"),
    ):
        with pytest.warns(UserWarning, match=said) as warned:
            model.predict(pairs)
        assert warned[0].filename == __file__
    model.predict([[BIG, 99], [BIG, 1]])


def test_a_fit_names_its_parameters():
    """Messages about data that a thread reads name parameters of Python, not options."""
    with pytest.raises(InputError, match="to merge them: duplicates first"):
        BRIEF().fit(pd.concat([FRAME, FRAME]))


@pytest.mark.parametrize(("unit", "name"), [(10**3, "milli"), (10**6, "micro"), (10**9, "nano")])
def test_times_in_small_units_are_recognised(tmp_path, unit, name):
    """Times in small units are converted to seconds, file by file, beside seconds and dates, and
    from arrays.
    """
    # pages of three ratings
    frame = RATED.assign(time=1_500_000_000 + 1000 * np.arange(len(X)) // 3)
    small = frame.assign(time=frame.time * unit + unit // 3)
    dated = frame.assign(time=pd.to_datetime(frame.time, unit="s"))
    paths = [tmp_path / f"{k}.csv" for k in range(4)]
    for part, path in zip((small[::3], dated[1::3], frame[2::3], frame), paths, strict=True):
        part.to_csv(path, index=False)
    sources = paths[3:], paths[:3], [ratings_source(small, timed=True)]
    prepared = partial(prepare_ratings, out=tmp_path / "o.h5", timestamps=True, force=True)
    expected, mixed, array = map(prepared, sources)
    assert mixed.content_sha256 == array.content_sha256 == expected.content_sha256
    assert mixed.doubts == [f"the times of 0.csv are taken for {name}seconds, by their size"]


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("rated", [True, False])
def test_columns_mean_the_same_in_frames_and_files(tmp_path, asked, rated):
    """Without a named column of ratings, a usual one is used; clicks are asked for, or said in
    Python, too.
    """
    frame = pd.DataFrame(
        {"note": X, "who": USERS, "rating" if rated else "remark": X.astype(float), "what": ITEMS}
    )
    frame.to_csv(tmp_path / "r.csv", index=False)
    columns = "user=who,item=what"
    if asked:
        columns += ",rating=none"
    are_clicks = asked or not rated
    expected = (1, 1) if are_clicks else (X.min(), X.max())
    for ratings in (frame, tmp_path / "r.csv"):
        said = pytest.warns(UserWarning, match="no rating column: treated as clicks")
        with nullcontext() if asked or rated else said:
            facts = BRIEF(columns=columns).fit(ratings).run_.facts
        assert (facts["minimum"], facts["maximum"]) == pytest.approx(expected)


# ---------------------------------------------------------------------- features

WHO, WHAT = np.divmod(np.arange(60), 5)
FROM_1 = pd.DataFrame({"who": WHO + 1, "item": (WHO + WHAT) % 8, "rating": (7.0 * WHO + WHAT) % 9})
NAMES = np.arange(1, 13)
AGES = 20.0 + np.arange(1, 13) ** 2
ROWS = {
    "the column of the ratings": pd.DataFrame({"age": AGES, "who": NAMES, "user": 1.5}),
    "the usual column": pd.DataFrame({"age": AGES, "userId": NAMES}),
    "the first column": pd.DataFrame({"id": NAMES, "age": AGES}),
    "a named index": pd.DataFrame({"k": range(12), "age": AGES}, index=pd.Index(NAMES, name="id")),
    "an index where no column can be names": pd.DataFrame({"age": AGES}, index=NAMES),
    "from 0: a bare index": pd.DataFrame({"age": AGES}),
    "from 0: a matrix": scipy.sparse.csr_matrix(AGES[:, None]),
}


@pytest.mark.parametrize("rows", ROWS)
def test_features_belong_to_their_rows(tmp_path, rows):
    """Frames and files name rows by the same rule; a table numbered from 0 is refused beside
    ratings named from 1.
    """
    FROM_1.to_csv(tmp_path / "r.csv", index=False)
    write = partial(
        prepare_ratings, [tmp_path / "r.csv"], tmp_path / "out.h5", columns="user=who", force=True
    )
    described = read_features(ROWS[rows], "user", columns="user=who")
    if rows.startswith("from 0"):
        with pytest.raises(
            InputError, match="0 to 11, but the ratings have 1 to 12: one is numbered from 0"
        ):
            write(user_features=described)
        return
    ROWS[rows].to_csv(tmp_path / "u.csv", index=" index" in rows)
    for description in (described, Description(tmp_path / "u.csv")):
        assert (
            write(user_features=description)
            .features["user"]["notes"][0]
            .startswith("12 of 12 users")
        )
        z = ((AGES - AGES.mean()) / AGES.std()).astype(np.float32)
        found = features_of(tmp_path / "out.h5")
        assert [found[name]["age"] for name in NAMES.tolist()] == z.tolist()


def test_few_matches_are_a_warning(caplog):
    """Python logs the counts of matched rows, and warns of less than half."""
    for shift, matched in ((0, 12), (8, 4)):
        table = pd.DataFrame({"user": NAMES + shift, "age": AGES})
        said = f"{matched} of 12 users with ratings have a row; {12 - matched} rows have no ratings"
        with (
            caplog.at_level("INFO"),
            pytest.warns(UserWarning, match=said) if shift else nullcontext(),
        ):
            BRIEF(user_features=table).fit(FROM_1.rename(columns={"who": "user"}))
        assert said in caplog.messages
