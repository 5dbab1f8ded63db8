"""Values of ratings that are in doubt: codes for "not rated", and values in another unit."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix
from support import typed

from dsgmcmc import BPMF
from dsgmcmc.errors import InputError
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.ratings.item_levels import levels_of_items

RNG = np.random.default_rng(5)
SHORT = {"rank": 1, "iterations": 4, "burn_in": 2, "options": {"grid": 1}}
USERS, ITEMS = np.divmod(np.arange(1440), 24)
HEAT = np.round(20 + 3 * RNG.normal(size=1440), 2)
STARS = RNG.choice([1.0, 2, 3, 4, 5], 1440, p=[0.05, 0.1, 0.25, 0.35, 0.25])


def long(ratings: np.ndarray) -> pd.DataFrame:
    """A table with a row for each rating."""
    return pd.DataFrame({"user": USERS, "item": ITEMS, "rating": ratings})


@pytest.mark.parametrize("codes", [[98, 99], [77, 88, 99], [-9, -8], [99]])
def test_codes_are_hinted_at_by_command_and_in_python(tmp_path, codes):
    """Several codes at once, and a rare one, are named with the option that leaves them out."""
    ratings = STARS.copy()
    step = 180 if codes == [99] else 20  # 99 alone is rare
    for k, code in enumerate(codes):
        ratings[k::step] = code
    long(ratings).to_csv(tmp_path / "r.csv", index=False)
    text = ",".join(map(str, codes))
    done = typed("prepare", tmp_path / "r.csv", tmp_path / "o.h5").expect(0)
    assert f"--missing={text} leaves them out" in done.err
    with pytest.warns(UserWarning, match=f"missing={text} leaves them out"):
        BPMF(**SHORT).fit(long(ratings))
    again = typed("prepare", tmp_path / "r.csv", tmp_path / "o.h5", f"--missing={text}", "--force")
    assert "warning" not in again.expect(0).err


def test_zeros_of_spectra_are_codes_and_intensities_are_no_ids(tmp_path):
    """Zeros stand for what was not measured; without them no column is doubted, long or wide."""
    intensities = np.floor(2.0 ** (25 + 2 * np.clip(RNG.normal(size=(60, 24)), -2.9, 4)))
    intensities[RNG.random((60, 24)) < 0.18] = 0
    frame = pd.DataFrame(intensities).add_prefix("p")
    frame.insert(0, "name", [f"s{k}" for k in range(60)])
    frame.to_csv(tmp_path / "wide.csv", index=False)
    long(intensities.ravel()).to_csv(tmp_path / "long.csv", index=False)
    for name, option in (("wide.csv", "--matrix"), ("long.csv", "--force")):
        command = ("prepare", tmp_path / name, tmp_path / "o.h5", option, "--force")
        assert "--missing=0 leaves them out" in typed(*command).expect(0).err
        assert "warning" not in typed(*command, "--missing", "0").expect(0).err


@pytest.mark.parametrize("kind", ["half the limit", "cap", "zeros", "none", "stars"])
def test_limits_without_a_sign_lead_to_bounds(tmp_path, kind):
    """Lowest or highest values of many ratings of an item, and neither zeros nor levels."""
    values = np.exp(RNG.normal(size=(60, 24)))
    low = np.quantile(values, 0.2, axis=0)
    ratings = {
        "half the limit": np.where(values < low, low / 2, values),
        "cap": np.minimum(values, 2.5),
        "zeros": np.where(values < low, 0, values),
        "none": values,
        "stars": STARS.reshape(60, 24),
    }[kind]
    long(ratings.ravel().round(3)).to_csv(tmp_path / "r.csv", index=False)
    said = " ".join(typed("prepare", tmp_path / "r.csv", tmp_path / "o.h5").expect(0).err.split())
    expected = {"half the limit": "lowest rating of 24 of 24", "cap": "highest rating of"}
    assert ("write bounds" in said) == (kind in expected)
    assert expected.get(kind, "") in said
    if kind == "cap":  # what the message says
        written = pd.DataFrame(ratings.round(3), [f"u{k}" for k in range(60)]).astype(object)
        written.mask(ratings == 2.5, ">2.5").to_csv(tmp_path / "b.csv", index_label="id")
        done = typed("prepare", tmp_path / "b.csv", tmp_path / "b.h5", "--matrix").expect(0)
        assert "write bounds" not in " ".join(done.err.split())


@pytest.mark.parametrize("factor", [1e3, 1e6])
def test_a_value_in_another_unit_is_named(tmp_path, factor):
    """With user and item, by command and in Python; the clean values are not in doubt."""
    ratings = HEAT.copy()
    ratings[300] *= factor
    long(ratings).to_csv(tmp_path / "r.csv", index=False)
    said = f"1 rating is farther from the median.*{ratings[300]:g} .user 12, item 12"
    options = (tmp_path / "r.csv", tmp_path / "o.h5", "--force", "--json")
    doubts = json.loads(typed("prepare", *options).expect(0).out)["doubts"]
    assert len(doubts) == 1
    with pytest.warns(UserWarning, match=said.replace("+", "[+]")):
        BPMF(**SHORT).fit(long(ratings))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BPMF(**SHORT).fit(long(HEAT))


def test_a_code_is_not_also_a_value_in_another_unit(tmp_path):
    """999999 is far from temperatures, and so is 99999, which is a usual code."""
    ratings = HEAT.copy()
    ratings[::30] = 99999
    long(ratings).to_csv(tmp_path / "r.csv", index=False)
    done = typed("prepare", tmp_path / "r.csv", tmp_path / "o.h5").expect(0)
    assert done.err.count("warning") == 1
    assert "--missing=99999" in done.err


def answers(highest: list[int]) -> pd.DataFrame:
    """A matrix of 60 users with an item for each of these highest levels; the lowest is 0."""
    eta = RNG.normal(size=(60, 1)) + RNG.normal(size=(60, len(highest)))
    columns = {}
    for k, level in enumerate(highest):
        cuts = np.quantile(eta, np.linspace(0, 1, level + 2)[1:-1])
        columns[f"q{k}"] = np.digitize(eta[:, k], cuts)
    return pd.DataFrame(columns)


@pytest.mark.parametrize("form", ["wide", "long"])
def test_items_with_fewer_levels_are_said(tmp_path, form):
    """By command and in Python: without levels of their own, items of 0 and 1 would get 2 and 3."""
    frame = answers([3, 3, 3, 3, 1, 1, 1, 1])
    if form == "long":
        frame = frame.rename_axis("user").reset_index().melt("user", var_name="item")
        frame = frame.rename(columns={"value": "rating"})
    frame.to_csv(tmp_path / "r.csv", index=False)
    options = ["--matrix"] if form == "wide" else []
    done = typed("prepare", tmp_path / "r.csv", tmp_path / "o.h5", *options).expect(0)
    said = "4 of 8 items have other levels than the rest (q4, q5, q6, q7), as q4 has 0, 1: by"
    assert said in " ".join(done.err.split())
    with pytest.warns(UserWarning, match="4 of 8 items have other levels"):
        BPMF(**SHORT).fit(frame)


def test_items_that_lack_a_level_by_chance_are_not_said(tmp_path):
    """Bad and good items, few ratings, and stars of which some are rare."""
    frames = {
        "answers": answers([4] * 12) + 1,
        "bad and good": np.clip(
            np.round(3 + np.linspace(-2, 2, 15) + 0.8 * RNG.normal(size=(60, 15))), 1, 5
        ),
        "few": answers([4] * 12).iloc[:12],
        "stars": STARS.reshape(60, 24),
        "counts": RNG.poisson(RNG.gamma(2, 1, 15), (60, 15)),
    }
    for name, frame in frames.items():
        table = pd.DataFrame(np.asarray(frame)).add_prefix("q")
        table.to_csv(tmp_path / "m.csv", index=False)
        command = ("prepare", tmp_path / "m.csv", tmp_path / "o.h5", "--matrix", "--force")
        assert "other levels" not in typed(*command).expect(0).err, name


def test_the_levels_of_items_are_those_of_training_ratings(tmp_path):
    """The model, which has the training ratings, gives as many items levels of their own."""
    frame = answers([3, 3, 3, 3, 1, 1, 1, 1]).rename_axis("user").reset_index()
    long = frame.melt("user", var_name="item", value_name="rating")
    is_test = (long["item"] == "q0") & (long.rating > 1)  # in the training ratings q0 has 0 and 1
    long[~is_test].to_csv(tmp_path / "r.csv", index=False)
    long[is_test].to_csv(tmp_path / "test.csv", index=False)
    command = ("prepare", tmp_path / "r.csv", tmp_path / "o.h5", "--test", tmp_path / "test.csv")
    done = typed(*command).expect(0)
    said = (
        "in the training ratings 5 of 8 items have other levels than the rest (q0, q4, q5, q6, q7)"
    )
    assert said in " ".join(done.err.split())
    with Ratings(tmp_path / "o.h5") as ratings:
        slab = ratings.slab("train", 0, ratings.n_rows)
        items = slab.rows if ratings.orientation.transposed else slab.indices
        counts = np.zeros((8, 4), int)
        np.add.at(counts, (items, slab.values.astype(int)), 1)
        assert np.count_nonzero(~levels_of_items(counts).all(axis=1)) == 5


@pytest.mark.parametrize("wrong", ["oops", "1_0", [1], np.datetime64("2021-03-01")])
def test_a_cell_that_is_no_number_is_named(wrong):
    """Row, column and value, in a data frame, an array and a column of ratings."""
    frame = pd.DataFrame(RNG.normal(size=(30, 8)), columns=list("abcdefgh")).astype(object)
    frame.at[5, "d"] = wrong
    shown = str(wrong).replace("[", r"\[").replace("]", r"\]")
    with pytest.raises(InputError, match=rf"row 5 \(the first is row 0\), item d: '{shown}'"):
        BPMF(**SHORT, matrix=True).fit(frame)
    with pytest.raises(InputError, match=rf"row 5 .*, item 3: '{shown}'"):
        BPMF(**SHORT, matrix=True).fit(frame.to_numpy())
    ratings = list(STARS[:40])
    ratings[7] = wrong
    table = long(STARS)[:40].assign(rating=pd.Series(ratings, dtype=object))
    with pytest.raises(InputError, match=rf"row 7 .*not a number \(.*rating {shown}\)"):
        BPMF(**SHORT).fit(table)


@pytest.mark.parametrize("form", ["frame", "array", "sparse"])
def test_an_infinite_cell_is_named(form):
    """By its user and its item, not by its place among all filled cells."""
    values = RNG.normal(size=(30, 8))
    values[0, :4] = np.nan
    values[5, 3] = np.inf
    frame = pd.DataFrame(values, columns=list("abcdefgh"))
    given = {
        "frame": frame,
        "array": values,
        "sparse": csr_matrix(np.nan_to_num(values, posinf=np.inf)),
    }
    name = "d" if form == "frame" else 3
    place = rf"item {name}: 'inf' \(user 5\)"
    if form == "sparse":
        place = rf"a cell of the matrix: .*not finite \(user 5, item {name},"
    with pytest.raises(InputError, match=place):
        BPMF(**SHORT).fit(given[form])
