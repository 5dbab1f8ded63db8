"""Kinds of columns of features: which are guessed, chosen and said, in commands and in Python."""

import json

import numpy as np
import pandas as pd
import pytest
from ingest_cases import features_of, prepare_typed

from dsgmcmc import BPMF
from dsgmcmc.errors import InputError
from dsgmcmc.ratings.file import Ratings

USERS = 300


def write_ratings(folder):
    """Write a table of ratings of `USERS` users."""
    rng = np.random.default_rng(0)
    lines = [
        f"u{user},{item},{rng.integers(1, 6)}"
        for user in range(USERS)
        for item in rng.permutation(12)[:3]
    ]
    (folder / "r.csv").write_text("user,item,rating\n" + "\n".join(lines) + "\n")


def fingerprints(separator="|", size=2048):
    """Lists of 20 of `size` bits; the last one of most lists looks like a year."""
    rng = np.random.default_rng(1)
    chosen = [np.sort(rng.permutation(size)[:20]) for _ in range(USERS)]
    return [separator.join(map(str, bits)) for bits in chosen]


def write_users(folder, **columns):
    """Write a table of users."""
    frame = pd.DataFrame({"user": [f"u{k}" for k in range(USERS)], **columns})
    frame.to_csv(folder / "users.csv", index=False)
    return frame


def test_lists_of_numbers_are_no_years(tmp_path):
    """A list that ends with a number from 1500 to 2099 is a list: the separator comes first."""
    write_ratings(tmp_path)
    lists = fingerprints()
    ends = [int(text.split("|")[-1]) for text in lists]
    assert np.mean([1500 <= end < 2100 for end in ends]) > 0.9
    frame = write_users(tmp_path, fp=lists)
    done = prepare_typed(tmp_path, "--user-features", tmp_path / "users.csv")
    expected = {f"fp={bit}" for bit in lists[7].split("|")}
    assert set(features_of(tmp_path / "x.h5")["u7"]) == expected
    n_bits = len({bit for text in lists for bit in text.split("|")})
    assert f"{n_bits:,}: fp (list, {n_bits:,})" in done.expect(0).out
    features = pd.read_csv(tmp_path / "r.csv")
    model = BPMF(1, user_features=frame, iterations=4, burn_in=1, out=tmp_path / "run")
    model.fit(features)
    assert set(features_of(tmp_path / "run.ratings.h5")["u7"]) == expected


@pytest.mark.parametrize("of_one", [0.6, 0.9])
def test_short_lists_of_numbers_are_lists(tmp_path, of_one):
    """A list of one number looks like a number; the others have separators."""
    write_ratings(tmp_path)
    codes = [f"{k % 7}" if k < of_one * USERS else f"{k % 7}|{k % 5}" for k in range(USERS)]
    write_users(tmp_path, codes=codes)
    prepare_typed(tmp_path, "--user-features", tmp_path / "users.csv").expect(0)
    assert features_of(tmp_path / "x.h5")["u299"] == {"codes=4": 1, "codes=5": 1}
    assert features_of(tmp_path / "x.h5")["u3"] == {"codes=3": 1}


def test_one_separator_among_numbers_is_an_error(tmp_path):
    """It is more probably a typing error than a list; the message says how to declare lists."""
    write_ratings(tmp_path)
    ages = [f"{20 + k % 50}" for k in range(USERS)]
    ages[40] = "3|5"
    write_users(tmp_path, age=ages)
    done = prepare_typed(tmp_path, "--user-features", tmp_path / "users.csv").expect(2)
    assert "line 42: the number age is '3|5'" in done.err
    assert "--feature-kinds age=category (or list, skip)" in done.err


def test_titles_with_a_separator_are_years(tmp_path):
    """Most titles have no separator, and end with a year."""
    write_ratings(tmp_path)
    titles = [f"Title {k} ({1980 + k % 40})" for k in range(USERS)]
    titles[::10] = [f"This | that ({1980 + k % 40})" for k in range(len(titles[::10]))]
    write_users(tmp_path, title=titles)
    prepare_typed(tmp_path, "--user-features", tmp_path / "users.csv").expect(0)
    assert features_of(tmp_path / "x.h5")["u21"] == {"title=2000s": 1}


def test_a_list_may_have_a_hundred_thousand_values(tmp_path):
    """They are stored sparse; more than a model may have are said in the summary."""
    write_ratings(tmp_path)
    lists = ["|".join(str(100_000 + 400 * k + j) for j in range(400)) for k in range(250)]
    lists += [""] * (USERS - len(lists))
    frame = write_users(tmp_path, fp=lists)
    declared = ("--user-features", tmp_path / "users.csv", "--feature-kinds", "fp=list")
    done = prepare_typed(tmp_path, *declared).expect(0)
    assert "100,000: fp (list, 100,000); 50 users have none" in done.out
    message = "100,000 features of users are more than the 4,000 that a model may have"
    assert message in " ".join(done.err.split())
    with Ratings(tmp_path / "x.h5") as ratings:
        (stored,) = ratings.features.values()
        assert len(stored.names) == 100_000
        assert stored.indptr[-1] == 100_000
    model = BPMF(1, user_features=frame, feature_kinds={"fp": "list"}, out=tmp_path / "run")
    with pytest.raises(InputError, match="100,000 features"), pytest.warns(match="100,000"):
        model.fit(pd.read_csv(tmp_path / "r.csv"))
    assert len(features_of(tmp_path / "run.ratings.h5")["u3"]) == 400


def test_kinds_are_said_by_column(tmp_path):
    """The summary names the kind of every column that is used, and JSON does, too."""
    write_ratings(tmp_path)
    write_users(
        tmp_path,
        age=[20 + k % 50 for k in range(USERS)],
        job=[f"job {k % 3}" for k in range(USERS)],
        tags=["a|b", "b|c", "c"] * (USERS // 3),
    )
    done = prepare_typed(tmp_path, "--user-features", tmp_path / "users.csv").expect(0)
    assert "7: age (number), job (category, 3), tags (list, 3)" in " ".join(done.out.split())
    done = prepare_typed(tmp_path, "--user-features", tmp_path / "users.csv", "--json").expect(0)
    kinds = json.loads(done.out)["features"]["user"]["kinds"]
    assert kinds == {"age": "number", "job": "category", "tags": "list"}


def test_kinds_are_chosen_in_python(tmp_path):
    """`feature_kinds` does what --feature-kinds does, and is checked likewise."""
    write_ratings(tmp_path)
    frame = write_users(tmp_path, codes=[k % 3 for k in range(USERS)])
    ratings = pd.read_csv(tmp_path / "r.csv")
    settings = {"iterations": 4, "burn_in": 1, "out": tmp_path / "run"}
    kinds = {"codes": "category"}
    BPMF(1, user_features=frame, feature_kinds=kinds, **settings).fit(ratings)
    assert features_of(tmp_path / "run.ratings.h5")["u4"] == {"codes=1": 1}
    for wrong, message in (
        ({"code": "category"}, "feature_kinds names 'code', but the columns are codes"),
        ({"codes": "categories"}, "the kind of 'codes' is 'categories', but expected is one of"),
    ):
        with pytest.raises(InputError, match=message):
            BPMF(1, user_features=frame, feature_kinds=wrong).fit(ratings)
    with pytest.raises(InputError, match="without user_features or item_features"):
        BPMF(1, feature_kinds=kinds).fit(ratings)


def test_lists_of_a_data_frame_and_of_parquet_are_lists(tmp_path):
    """Their types tell it, also where every list has one number."""
    write_ratings(tmp_path)
    frame = pd.DataFrame(
        {"user": [f"u{k}" for k in range(USERS)], "codes": [[k % 3] for k in range(USERS)]}
    )
    frame.to_parquet(tmp_path / "users.parquet")
    prepare_typed(tmp_path, "--user-features", tmp_path / "users.parquet").expect(0)
    assert features_of(tmp_path / "x.h5")["u4"] == {"codes=1": 1}
    settings = {"iterations": 4, "burn_in": 1, "out": tmp_path / "run"}
    BPMF(1, user_features=frame, **settings).fit(pd.read_csv(tmp_path / "r.csv"))
    assert features_of(tmp_path / "run.ratings.h5")["u4"] == {"codes=1": 1}


def stored(path):
    """Return the features of users in a ratings file."""
    with Ratings(path) as ratings:
        (side,) = ratings.features
        return ratings.feature_slab(side, 0, len(ratings.ids(side)))


@pytest.mark.parametrize("as_text", [str, float, {0: "False", 1: "True"}.get])
def test_columns_of_0_and_1_are_flags(tmp_path, as_text):
    """They are used as they are, not as standard scores, however 0 and 1 are written."""
    write_ratings(tmp_path)
    member = [as_text(int(k % 5 == 0)) for k in range(USERS)]
    write_users(tmp_path, member=member, age=[20 + k % 50 for k in range(USERS)])
    done = prepare_typed(tmp_path, "--user-features", tmp_path / "users.csv").expect(0)
    assert "2: member (flag), age (number)" in " ".join(done.out.split())
    features = features_of(tmp_path / "x.h5")
    assert [features[f"u{k}"]["member"] for k in range(6)] == [1, 0, 0, 0, 0, 1]
    assert stored(tmp_path / "x.h5").groups == ("member", "age")


def test_a_missing_flag_is_average(tmp_path):
    """It has the mean of the column; a user whose cells are all empty has no features."""
    write_ratings(tmp_path)
    member = [str(int(k % 4 == 0)) for k in range(USERS)]
    member[3] = member[5] = ""
    age = [str(20 + k % 50) for k in range(USERS)]
    age[5] = ""
    write_users(tmp_path, member=member, age=age)
    done = prepare_typed(tmp_path, "--user-features", tmp_path / "users.csv").expect(0)
    assert "; 1 users have none" in " ".join(done.out.split())
    features = features_of(tmp_path / "x.h5")
    assert features["u3"]["member"] == pytest.approx(75 / 298)
    assert features["u4"]["member"] == 1
    assert features["u5"] == {}


def test_many_flags_share_a_group_like_a_matrix(tmp_path):
    """A data frame of 0 and 1 is stored as the sparse matrix of it is, and predicts alike."""
    rng = np.random.default_rng(2)
    bits = rng.random((USERS, 64)) < 0.1
    bits[7] = False
    names = [f"b{k}" for k in range(64)]
    frame = pd.DataFrame(bits.astype(int), columns=names).assign(user=np.arange(USERS))
    pairs = np.column_stack([np.repeat(np.arange(USERS), 3), np.tile(np.arange(12), USERS // 4)])
    ratings = rng.normal(size=len(pairs))
    model = BPMF(1, user_features=frame, iterations=4, burn_in=1, out=tmp_path / "run")
    model.fit(pairs, ratings)
    features = stored(tmp_path / "run.ratings.h5")
    assert set(features.groups) == {"flags"}
    assert features.names == tuple(names)
    with Ratings(tmp_path / "run.ratings.h5") as opened:
        (side,) = opened.features
        rows = opened.ids(side)
    np.testing.assert_array_equal(features.matrix().toarray(), bits[rows])
    lengths = np.diff(features.indptr)
    np.testing.assert_array_equal(lengths, np.maximum(bits[rows].sum(axis=1), 1))
    new = np.zeros((2, 65))
    new[:, 0] = [900, 901]
    new[1, 1:6] = 1
    folded = model.fold_in(features=pd.DataFrame(new.astype(int), columns=["user", *names]))
    assert np.isfinite(folded.predict([[900, 0], [901, 0]])).all()


def test_flags_named_alike_keep_their_group(tmp_path):
    """One-hot columns `genres=Comedy` are features of the group genres, also if many."""
    write_ratings(tmp_path)
    flags = {f"genre={k}": [int(user % 25 == k) for user in range(USERS)] for k in range(25)}
    write_users(tmp_path, **flags)
    prepare_typed(tmp_path, "--user-features", tmp_path / "users.csv").expect(0)
    assert set(stored(tmp_path / "x.h5").groups) == {"genre"}


COUNTRIES = ("NA", "DE", "SE")  # Namibia has the code NA


def countries():
    """The country of every user."""
    return [COUNTRIES[k % 3] for k in range(USERS)]


def test_na_is_a_category_of_a_data_frame(tmp_path):
    """Only a missing value is missing there: a word is a value, alone and in lists."""
    write_ratings(tmp_path)
    country = [*countries()[:-2], None, np.nan]
    visited = [["NA", "DE"], ["SE"], []] * (USERS // 3)
    frame = pd.DataFrame(
        {"user": [f"u{k}" for k in range(USERS)], "country": country, "visited": visited}
    )
    settings = {"iterations": 100, "burn_in": 50, "out": tmp_path / "run"}
    model = BPMF(1, user_features=frame, **settings).fit(pd.read_csv(tmp_path / "r.csv"))
    features = features_of(tmp_path / "run.ratings.h5")
    assert features["u0"] == {"country=NA": 1, "visited=NA": 1, "visited=DE": 1}
    assert features["u1"] == {"country=DE": 1, "visited=SE": 1}
    assert features["u298"] == {"visited=SE": 1}
    assert features["u299"] == {}
    new = pd.DataFrame({"user": ["n0", "n1"], "country": ["NA", "DE"], "visited": ["NA", "NA"]})
    new.to_csv(tmp_path / "new.csv", index=False)
    by_frame = model.fold_in(features=new).predict([["n0", 0], ["n1", 0]])
    by_file = model.fold_in(features=tmp_path / "new.csv").predict([["n0", 0], ["n1", 0]])
    np.testing.assert_array_equal(by_frame, by_file)
    assert by_frame[0] != by_frame[1]


@pytest.mark.parametrize("suffix", ["parquet", "json"])
def test_na_is_a_category_where_a_format_has_missing_values(tmp_path, suffix):
    """Parquet and JSON have them, as data frames do."""
    write_ratings(tmp_path)
    frame = write_users(tmp_path, country=[*countries()[:-1], None])
    path = tmp_path / f"users.{suffix}"
    if suffix == "parquet":
        frame.to_parquet(path)
    else:
        frame.to_json(path, orient="records", lines=True)
    prepare_typed(tmp_path, "--user-features", path).expect(0)
    features = features_of(tmp_path / "x.h5")
    assert features["u0"] == {"country=NA": 1}
    assert features["u299"] == {}


def test_words_that_are_taken_for_missing_are_said(tmp_path):
    """In text they are, and the summary counts them by column."""
    write_ratings(tmp_path)
    tags = ["NA|a", "b", "null"] * (USERS // 3)
    write_users(tmp_path, country=countries(), tags=tags, age=[20 + k % 9 for k in range(USERS)])
    done = prepare_typed(tmp_path, "--user-features", tmp_path / "users.csv").expect(0)
    features = features_of(tmp_path / "x.h5")
    assert set(features["u0"]) == {"tags=a", "age"}
    said = " ".join(done.err.split())
    assert "users.csv: taken for missing values: country 'NA' (100); tags" in said
    assert "'null' (100), 'NA' (100) (if it is a value, write it in another way" in said
    write_users(tmp_path, country=[name.replace("NA", "") for name in countries()])
    done = prepare_typed(tmp_path, "--user-features", tmp_path / "users.csv").expect(0)
    assert "taken for missing" not in done.err


def test_thousands_of_columns_are_summarised(tmp_path):
    """The summary and every message name the first of them, not all."""
    write_ratings(tmp_path)
    rng = np.random.default_rng(3)
    names = [f"b{k}" for k in range(500)]
    bits = (rng.random((USERS, 500)) < 0.2).astype(int)
    bits[:, :200] = 0
    bits[:, 200] = 1
    numbers = pd.DataFrame(rng.normal(size=(USERS, 30)), columns=[f"x{k}" for k in range(30)])
    frame = pd.concat([pd.DataFrame(bits, columns=names), numbers], axis=1)
    frame.insert(0, "user", [f"u{k}" for k in range(USERS)])
    frame.to_csv(tmp_path / "users.csv", index=False)
    done = prepare_typed(tmp_path, "--user-features", tmp_path / "users.csv").expect(0)
    said = " ".join((done.out + done.err).split())
    assert "329: flags (flag, 299), x0 (number), x1 (number)" in said
    assert "x6 (number), ... (31 groups)" in said
    assert "b0, b1, b2, b3, b4, b5, b6, b7, ... (201 columns) are left out, each because" in said
    assert max(map(len, (done.out + done.err).splitlines())) < 400
    done = prepare_typed(
        tmp_path, "--user-features", tmp_path / "users.csv", "--feature-kinds", "zz=skip"
    ).expect(2)
    assert "--feature-kinds names 'zz', but the columns are b0" in done.err
    assert len(done.err) < 400
    repeated = frame.rename(columns={"b1": "b3"})
    with pytest.raises(InputError) as caught:
        BPMF(1, user_features=repeated).fit(pd.read_csv(tmp_path / "r.csv"))
    assert str(caught.value).endswith("two columns have the same name (b3, b3)")
    settings = {"iterations": 4, "burn_in": 1, "out": tmp_path / "run"}
    model = BPMF(1, user_features=frame, **settings).fit(pd.read_csv(tmp_path / "r.csv"))
    with pytest.raises(InputError) as caught:
        model.fold_in(features=frame.drop(columns=["b444", "x5"]))
    assert "; it lacks b444, x5" in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("form", ["frame", "parquet"])
def test_whole_numbers_name_columns_of_a_data_frame(tmp_path, form):
    """They are no rows without a header there, nor in Parquet."""
    write_ratings(tmp_path)
    frame = pd.DataFrame({k: [(user + k) % 7 for user in range(USERS)] for k in range(3)})
    frame.index = pd.Index([f"u{k}" for k in range(USERS)], name="user")
    path = tmp_path / "run.ratings.h5"
    if form == "frame":
        settings = {"iterations": 4, "burn_in": 1, "out": tmp_path / "run"}
        BPMF(1, user_features=frame, **settings).fit(pd.read_csv(tmp_path / "r.csv"))
    else:
        path = tmp_path / "x.h5"
        frame.rename(columns=str).reset_index().to_parquet(tmp_path / "users.parquet")
        prepare_typed(tmp_path, "--user-features", tmp_path / "users.parquet").expect(0)
    assert stored(path).names == ("0", "1", "2")
