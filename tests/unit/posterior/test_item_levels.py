"""Items with levels of their own: every prediction keeps to them, by command and in Python."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support import cells_of, typed

from dsgmcmc import BPMF, open_run
from dsgmcmc.errors import InputError

FEW = [f"q{k}" for k in range(0, 12, 3)]  # items of 0 and 1; the others have 0 to 3
SHORT = {"rank": 2, "iterations": 400, "burn_in": 100}


@pytest.fixture(scope="module")
def answers() -> pd.DataFrame:
    """Answers of 150 pupils to 12 items, a tenth of them missing, as a matrix with names."""
    rng = np.random.default_rng(1)
    ability = rng.normal(size=(150, 1))
    eta = 1.2 * ability - rng.normal(size=12) + rng.logistic(size=(150, 12))
    matrix = pd.DataFrame(np.digitize(eta, [-1.2, 0.1, 1.3]) * 1.0).add_prefix("q")
    for item in FEW:
        matrix[item] = eta[:, int(item[1:])] > 0
    matrix = matrix.astype(float)
    matrix = matrix.mask(rng.random(matrix.shape) < 0.1)
    matrix.insert(0, "pupil", [f"p{k}" for k in range(150)])
    return matrix


@pytest.fixture(scope="module")
def model(answers) -> BPMF:
    with pytest.warns(UserWarning, match="4 of 12 items have other levels than the rest"):
        return BPMF(**SHORT, matrix=True).fit(answers)


@pytest.fixture(scope="module")
def run(answers, tmp_path_factory) -> Path:
    """The folder of a run by commands; a tenth of the answers is its test part."""
    folder = tmp_path_factory.mktemp("run")
    answers.to_csv(folder / "answers.csv", index=False)
    options = ("--matrix", "--seed", "0")
    typed("prepare", folder / "answers.csv", folder / "r.h5", *options).expect(0)
    sampled = ("--rank", "2", "--iterations", "400", "--burn-in", "100")
    typed("sample", folder / "r.h5", "--out", folder / "run", *sampled).expect(0)
    return folder / "run"


def test_predictions_keep_to_the_levels_of_their_items(model, answers):
    """Probabilities, means, intervals and draws of completed matrices."""
    assert model.run_.config.likelihood == "ordinal-logit"
    assert model.run_.config.thresholds == "item"
    pairs = pd.DataFrame({"user": answers["pupil"].repeat(2), "item": ["q0", "q1"] * 150})
    probability = model.predict_proba(pairs)
    np.testing.assert_allclose(probability.sum(axis=1), 1, atol=1e-5)
    assert (probability[::2, 2:] < 1e-30).all()
    assert (probability[1::2] > 1e-4).all()
    mean, sd = model.predict(pairs, return_std=True)
    np.testing.assert_allclose(mean, probability @ [0, 1, 2, 3], rtol=1e-4)
    np.testing.assert_allclose(sd[::2] ** 2, mean[::2] * (1 - mean[::2]), rtol=1e-3)
    high = model.predict_interval(pairs, 0.9)[1]
    assert set(np.unique(high[::2])) <= {0, 1}
    assert high[1::2].max() == 3
    np.testing.assert_allclose(model.predict(pairs, at_least=1)[::2], mean[::2], rtol=1e-4)
    assert (model.predict(pairs, at_least=2)[::2] < 1e-30).all()
    complete = model.complete(answers)
    assert complete[FEW].to_numpy().max() <= 1
    assert complete["q1"].max() > 1
    assert {*np.unique(model.complete(answers, draws=3)[0][FEW])} == {0, 1}


def test_an_only_threshold_is_the_shared_one(model):
    """The bias of an item of 0 and 1 moves it; deviations of gaps between it and a middle threshold
    that the item lacks would move it, too, and chains diverged along the ridge.
    """
    draw = model.run_.draw(3)
    few = model.run_.items.index_of(np.array(FEW))
    cuts = draw.rows["item"]["cuts"]
    np.testing.assert_allclose(cuts[few, 0], draw.shared["thresholds"][0], rtol=1e-5)
    others = np.setdiff1d(np.arange(12), few)
    np.testing.assert_allclose(cuts[others, 1], draw.shared["thresholds"][1], rtol=1e-5)
    assert np.ptp(cuts[others, 0]) > 0.01


def test_unknown_items_have_all_levels(model):
    """What an item without answers has is not known."""
    pairs = pd.DataFrame({"user": ["p3"], "item": ["new"]})
    with pytest.warns(UserWarning, match="one item is unknown"):
        probability = model.predict_proba(pairs)
    assert (probability > 0.01).all()


def test_pupils_are_folded_in(model, answers):
    """Answers at the levels of the items; one at a level that an item does not have is refused."""
    new = answers.head(1).fillna(0.0).assign(pupil="new")
    new[FEW] = 1.0
    pairs = pd.DataFrame({"user": "new", "item": ["q0", "q1"]})
    probability = model.fold_in(new).predict_proba(pairs)
    assert (probability[0, 2:] < 1e-30).all()
    assert probability[0, 1] > 0.4
    new["q0"] = 3.0
    said = r"item q0 has a rating of 3, and .* only the levels 0, 1"
    with pytest.raises(InputError, match=said):
        model.fold_in(new)
    with pytest.raises(InputError, match=said):
        model.evaluate(new.assign(pupil="p0"))


def test_items_that_lack_levels_are_not_folded_in(run):
    """They would get thresholds between all levels; new items, and those with all levels, may."""
    new = pd.DataFrame({"user": ["p1", "p2", "p3"], "item": "q0", "rating": [0.0, 1.0, 1.0]})
    model = open_run(run)
    said = "item q0 has only the levels 0, 1, which it would lose"
    with pytest.raises(InputError, match=said):
        model.fold_in(new, kind="item")
    pairs = pd.DataFrame({"user": ["p3"], "item": ["new"]})
    folded = model.fold_in(new.assign(item="new"), kind="item")
    assert (folded.predict_proba(pairs) > 1e-3).all()


def test_lists_rank_by_the_levels_of_items(model):
    """An item of 0 and 1 is never expected above 1, as `predict` says of every pair."""
    listed = model.recommend("p5", n=12, by="mean", include_rated=True)
    pairs = pd.DataFrame({"user": "p5", "item": listed["item_id"]})
    np.testing.assert_allclose(listed["score"], model.predict(pairs), rtol=1e-5)


def test_commands_keep_to_them(run, tmp_path):
    """`predict`, `info`, the summary, and draws that were exported."""
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("user,item\np3,q0\np3,q1\n")
    options = ("--probabilities", "--at-least", "2", "--out", tmp_path / "p.csv")
    typed("predict", run, pairs, *options).expect(0)
    found = pd.read_csv(tmp_path / "p.csv")
    assert (found.loc[0, ["p_2", "p_3"]] < 1e-30).all()
    assert found.filter(like="at_least").iloc[0, 0] < 1e-30
    assert (found.loc[1, ["p_0", "p_1", "p_2", "p_3"]] > 0).all()
    scores = json.loads((run / "summary.json").read_text())
    assert np.isfinite(scores["log_probability"])
    assert "thresholds" in typed("info", run, "--settings").expect(0).out
    typed("report", run, "-o", tmp_path / "report.html").expect(0)


def test_no_test_rating_is_impossible(run):
    """Every item has the levels of its training and test ratings."""
    _, j, x = cells_of(run.parent / "r.h5", "test")
    opened = open_run(run).run_
    cuts = opened.draw(0).rows["item"]["cuts"]
    level = x.astype(int)
    upper = np.pad(cuts, ((0, 0), (0, 1)), constant_values=1e30)[j, level]
    lower = np.pad(cuts, ((0, 0), (1, 0)), constant_values=-1e30)[j, level]
    assert (upper > lower).all()
    assert (cuts > 1e29).any()


def test_a_run_keeps_the_rule_with_which_it_was_begun(run, tmp_path):
    """New runs store that items have their observed levels; one that was begun by the earlier rule,
    which run.toml does not have, is resumed by it.
    """
    assert 'item_levels = "observed"' in (run / "run.toml").read_text()
    earlier = tmp_path / "earlier"
    sample = ("sample", run.parent / "r.h5", "--out", earlier, "--iterations", "4")
    more = ("--set", "item_levels=expected", "--burn-in", "1", "--rank", "1")
    typed(*sample, *more).expect(0)
    assert "item_levels" not in (earlier / "run.toml").read_text()
    typed(*sample[:-1], "6", "--resume").expect(0)
    assert "item_levels" not in (earlier / "run.toml").read_text()


def test_other_models_are_compared(run):
    """`compare` tries levels of items, and finds them better than levels that all items have."""
    done = typed("compare", run.parent / "r.h5", "-o", run.parent / "best.toml")
    done.expect(0)
    table = done.out
    assert "item levels" in table
    settings = (run.parent / "best.toml").read_text()
    assert 'thresholds = "item"' in settings


def test_settings_that_exclude_them(answers):
    """Another likelihood, or thresholds that all items share, are used as they are given."""
    frame = answers
    for options in ({"likelihood": "gaussian"}, {"thresholds": "shared"}):
        with pytest.warns(UserWarning, match="4 of 12 items"):
            model = BPMF(rank=2, iterations=5, burn_in=2, matrix=True, options=options).fit(frame)
        assert model.run_.config.thresholds == "shared"
