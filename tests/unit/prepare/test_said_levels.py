"""Levels of items that users say: `prepare --levels FILE`, `BPMF(levels=)`."""

import numpy as np
import pandas as pd
import pytest
from support import typed

from dsgmcmc import BPMF
from dsgmcmc.errors import InputError
from dsgmcmc.ratings.file import Ratings

SHORT = {"rank": 0, "iterations": 400, "burn_in": 100, "matrix": True}


@pytest.fixture(scope="module")
def answers() -> pd.DataFrame:
    """200 pupils and 12 items of 0 to 3; q0 to q2 were never given a 3, and q3 no 0."""
    rng = np.random.default_rng(2)
    ability = rng.normal(size=(200, 1))
    eta = ability - np.linspace(-1, 1, 12) + rng.logistic(size=(200, 12))
    marks = pd.DataFrame(np.digitize(eta, [-1.2, 0.1, 1.3]) * 1.0).add_prefix("q")
    marks.iloc[:, :3] = marks.iloc[:, :3].clip(upper=2)
    marks["q3"] = marks["q3"].clip(lower=1)
    marks.insert(0, "pupil", [f"p{k}" for k in range(200)])
    return marks


def levels(**others) -> pd.DataFrame:
    """Said levels of three items."""
    said = {"q0": (0, 3), "q1": (0, 2), "q3": (0, 3)} | others
    rows = [(item, *ends) for item, ends in said.items()]
    return pd.DataFrame(rows, columns=["item", "lowest", "highest"])


def test_items_have_the_levels_that_are_said(answers):
    """q0 and q3 have four although three were given, q1 three, and q2 those that were given."""
    model = BPMF(**SHORT, levels=levels()).fit(answers)
    assert model.run_.config.thresholds == "item"
    items = model.item_parameters(fit=False)
    table = items.to_pandas().set_index("item_id")
    n_thresholds = table[["threshold_1", "threshold_2", "threshold_3"]].notna().sum(axis=1)
    assert n_thresholds[["q0", "q1", "q2", "q3", "q4"]].tolist() == [3, 2, 2, 3, 3]
    pairs = pd.DataFrame({"user": "p0", "item": ["q0", "q1", "q3"]})
    probability = model.predict_proba(pairs)
    assert 0 < probability[0, 3] < 0.2
    assert probability[1, 3] < 1e-30
    assert 0 < probability[2, 0] < 0.2


def test_the_file_of_ratings_has_them(answers, tmp_path, monkeypatch):
    """By command, from a file; with features of items, and verified with the rest."""
    monkeypatch.chdir(tmp_path)
    answers.to_csv("answers.csv", index=False)
    said = levels(unknown=(0, 1)).rename(columns={"lowest": "Lowest"})
    said.to_csv("levels.csv", index=False)
    features = pd.DataFrame({"item": [f"q{k}" for k in range(12)], "topic": ["a", "b", "c"] * 4})
    features.to_csv("items.csv", index=False)
    shared = ["prepare", "answers.csv", "--matrix", "--item-features", "items.csv"]
    done = typed(*shared, "said.h5", "--levels", "levels.csv")
    done.expect(0)
    assert "levels.csv has levels of items without ratings: unknown" in done.out + done.err
    typed(*shared, "plain.h5").expect(0)
    with Ratings("said.h5") as ratings, Ratings("plain.h5") as plain:
        ratings.verify()
        side = "rows" if ratings.orientation.transposed else "cols"
        by_item = dict(zip(ratings.ids(side).tolist(), ratings.said_levels.T.tolist(), strict=True))
        assert (by_item["q0"], by_item["q1"]) == ([0, 3], [0, 2])
        assert np.isnan(by_item["q7"]).all()
        assert ratings.item_levels
        assert plain.said_levels is None
        assert ratings.digest != plain.digest


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (levels(q4=(0, 1)), r"item q4 has a rating of 2, and levels says 0 to 1"),
        (levels(q4=(3, 0)), "item q4 needs two numbers, lowest and highest"),
        (levels(q4=(0, "many")), "item q4 needs two numbers"),
        (levels(q4=(0, None)), "item q4 needs two numbers"),
        (levels().rename(columns={"highest": "top"}), "are in the columns lowest and highest"),
        (levels().assign(item=["a", "b", "c"]), "describes no item of the ratings"),
    ],
)
def test_refuses_levels_that_cannot_be(answers, said, words):
    """Before anything is sampled."""
    with pytest.raises(InputError, match=words):
        BPMF(**SHORT, levels=said).fit(answers)


def test_refuses_levels_of_measurements(answers):
    """They have no thresholds; nor has an answer of yes or no a second one."""
    measured = answers.copy()
    measured.iloc[:, 1:] += np.random.default_rng(0).normal(size=(200, 12))
    low = levels(q0=(-99, 99), q1=(-99, 99), q3=(-99, 99))
    yes = answers.copy()
    yes.iloc[:, 1:] = (yes.iloc[:, 1:] > 1).astype(float)
    for given in (measured, yes):
        with pytest.raises(InputError, match="is for 3 to 25 ordered levels"):
            BPMF(**SHORT, levels=low).fit(given)
