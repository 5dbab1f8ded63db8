"""Python has what commands have: of the mean, probabilities, uncertainty, test ratings, files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support import typed

from dsgmcmc import BPMF, open_run
from dsgmcmc.errors import InputError
from dsgmcmc.posterior.cells.fitted_rows import open_rows
from dsgmcmc.posterior.rated import read_rated

PAIRS = pd.DataFrame({"user": [0, 3, 7], "item": [2, 2, 9]})


@pytest.fixture(scope="module")
def parts() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Ratings of 1 to 5, in data frames: 240 for training and 60 for the test."""
    rng = np.random.default_rng(0)
    cells = rng.choice(30 * 20, 300, replace=False)
    frame = pd.DataFrame({"user": cells // 20, "item": cells % 20})
    score = 3 + 0.1 * (frame.user - 15) + rng.normal(0, 0.7, 300)
    frame["rating"] = np.clip(np.round(score), 1, 5)
    return frame[:240], frame[240:].reset_index(drop=True)


@pytest.fixture(scope="module")
def model(
    parts: tuple[pd.DataFrame, pd.DataFrame], tmp_path_factory: pytest.TempPathFactory
) -> BPMF:
    """A run with test ratings of their own."""
    train, test = parts
    out = tmp_path_factory.mktemp("fit") / "run"
    return BPMF(2, iterations=300, burn_in=100, options={"grid": 2}, out=out).fit(train, test=test)


def predicted(model: BPMF, tmp_path: Path, *options: str) -> pd.DataFrame:
    """The predictions of the command `predict`."""
    PAIRS.to_csv(tmp_path / "pairs.csv", index=False)
    out = tmp_path / "out.parquet"
    typed("predict", model.run_.path, tmp_path / "pairs.csv", "--out", out, *options).expect()
    return pd.read_parquet(out)


def test_predictions_are_those_of_the_command(model: BPMF, tmp_path: Path) -> None:
    """The expected rating, its sd and interval, and the probability of a liked rating."""
    ours = predicted(model, tmp_path, "--of-mean")
    mean, sd = model.predict(PAIRS, return_std=True, of_mean=True)
    low, high = model.predict_interval(PAIRS, of_mean=True)
    for column, values in {"mean": mean, "sd": sd, "q05": low, "q95": high}.items():
        np.testing.assert_allclose(values, ours[column], rtol=1e-5)
    liked = predicted(model, tmp_path, "--at-least", "4")
    np.testing.assert_allclose(model.predict(PAIRS, at_least=4), liked["at_least_4"], rtol=1e-5)
    assert (sd < model.predict(PAIRS, return_std=True)[1]).all()
    with pytest.raises(InputError, match="leave out return_std and of_mean"):
        model.predict(PAIRS, at_least=4, of_mean=True)


def test_test_ratings_of_fit_are_those_of_prepare(
    parts: tuple[pd.DataFrame, pd.DataFrame], model: BPMF, tmp_path: Path
) -> None:
    """`fit(X, test=)` gives the ratings file of ``prepare --test``, and `evaluate` its errors."""
    train, test = parts
    train.to_csv(tmp_path / "train.csv", index=False)
    test.to_csv(tmp_path / "test.csv", index=False)
    files = (tmp_path / "train.csv", tmp_path / "r.h5", "--test", tmp_path / "test.csv")
    made = json.loads(typed("prepare", *files, "--json").expect().out)
    assert made["content_sha256"] == model.run_.facts["data_hash"]
    assert model.rmse_ is not None
    scores = model.evaluate(test)
    assert scores["ratings"] == 60
    assert scores["rmse"] == pytest.approx(
        np.sqrt(np.mean((model.predict(test[["user", "item"]]) - test.rating) ** 2)), rel=1e-6
    )
    assert scores["rmse"] == pytest.approx(model.rmse_, rel=0.05)  # of draws saved, not of all
    low, high = model.predict_interval(test[["user", "item"]], level=0.8)
    inside = (low <= test.rating) & (test.rating <= high)
    assert scores["coverage"][0.8] == pytest.approx(inside.mean())
    assert scores["log_probability"] < 0
    assert model.score(test) == pytest.approx(model.score(test[["user", "item"]], test.rating))
    with pytest.raises(InputError, match="leave out test_fraction"):
        BPMF(test_fraction=0.1).fit(train, test=test)


def test_the_least_certain_pairs_are_those_of_all_pairs(model: BPMF) -> None:
    """By item and over all pairs, as by sorting the sds of all predictions; in commands, too."""
    grid = np.column_stack(np.divmod(np.arange(600), 20))
    known = {*map(tuple, grid.tolist())} & {
        (u, i) for u in model.users_.tolist() for i in model.items_.tolist()
    }
    pairs = np.array(sorted(known))
    sd = model.predict(pairs, return_std=True, of_mean=True)[1]
    best = model.recommend_pairs(7, include_rated=True)
    assert isinstance(best, pd.DataFrame)
    np.testing.assert_allclose(best["score"], np.sort(sd)[::-1][:7], rtol=1e-5)
    assert best["rank"].tolist() == [1, 2, 3, 4, 5, 6, 7]
    options = ("--pairs", "--by", "sd", "-n", "7", "--include-rated", "--json")
    shown = json.loads(typed("recommend", model.run_.path, *options).expect().out)
    assert [(line["user_id"], line["item_id"]) for line in shown] == [
        *zip(best["user_id"], best["item_id"], strict=True)
    ]
    of_user = model.recommend([3], n=2, by="sd", include_rated=True)
    own = np.sort(sd[pairs[:, 0] == 3])[::-1]
    np.testing.assert_allclose(of_user["score"], own[:2], rtol=1e-5)
    rated = {tuple(pair) for pair in model.recommend_pairs(600)[["user_id", "item_id"]].to_numpy()}
    assert len(rated) == len(pairs) - 240
    shown = typed("recommend", model.run_.path, "--pairs", "--by", "sd").expect().out
    assert "pairs of user and item" in shown


@pytest.mark.parametrize("users", [None, [7, 3, 7]])
def test_lists_are_those_of_the_command(
    users: list[int] | None, model: BPMF, tmp_path: Path
) -> None:
    """All columns and rows, with candidates and excluded items; a user is listed once."""
    (tmp_path / "some.txt").write_text("".join(f"{item}\n" for item in range(2, 15)))
    (tmp_path / "not.txt").write_text("4\n")
    chosen = ["--all"]
    if users is not None:
        chosen = [f"--user={user}" for user in users]
    files = ("--candidates", tmp_path / "some.txt", "--exclude", tmp_path / "not.txt")
    options = (*chosen, *files, "--by", "ucb", "--z", "2", "-n", "3", "--json")
    printed = json.loads(typed("recommend", model.run_.path, *options).expect().out)
    table = model.recommend(users, 3, by="ucb", z=2.0, candidates=range(2, 15), exclude=[4])
    pd.testing.assert_frame_equal(pd.DataFrame(printed), table, check_dtype=False)
    assert not set(table["item_id"]) & {0, 1, 4, 15}


def test_ratings_of_other_users_are_read_when_they_are_asked_for(model: BPMF) -> None:
    """The first question reads those of its users alone; lists do not depend on earlier ones."""
    run = model.run_
    everyone = np.arange(len(run.users), dtype=np.int32)
    rows = open_rows(run.path)
    first = rows.rated(everyone[4:6])
    assert not first.has(everyone)
    all_rated = read_rated(run)
    assert all_rated.has(everyone)
    np.testing.assert_array_equal(first.items_of(5), all_rated.items_of(5))
    np.testing.assert_array_equal(rows.rated(everyone[:1]).items_of(0), all_rated.items_of(0))
    again = open_run(run.path)
    again.recommend([7])
    asked_later = again.recommend([3])
    for column, values in open_run(run.path).recommend([3]).items():
        np.testing.assert_array_equal(values, asked_later[column])


def test_frames_come_back_where_frames_were_given(
    parts: tuple[pd.DataFrame, pd.DataFrame], model: BPMF
) -> None:
    """Lists and no users at all give what `fit` was given; a model of arrays gives tables."""
    assert isinstance(model.recommend(n=2), pd.DataFrame)
    assert isinstance(model.recommend([3], n=2), pd.DataFrame)
    assert isinstance(model.similar(3, n=2), pd.DataFrame)
    arrays = BPMF(1, iterations=40, burn_in=10, options={"grid": 2}).fit(parts[0].to_numpy())
    assert isinstance(arrays.recommend(n=2), dict)


def test_a_saved_run_has_its_ratings_beside_it(model: BPMF, tmp_path: Path) -> None:
    """It predicts and recommends as before, also from another folder."""
    model.save(tmp_path / "saved")
    (tmp_path / "elsewhere").mkdir()
    for name in ("saved", "saved.ratings.h5"):
        (tmp_path / name).rename(tmp_path / "elsewhere" / name)
    again = open_run(tmp_path / "elsewhere" / "saved")
    np.testing.assert_array_equal(again.predict(PAIRS), model.predict(PAIRS))
    pd.testing.assert_frame_equal(again.recommend([3]).to_pandas(), model.recommend([3]))
    with pytest.raises(InputError, match="exists: give another path"):
        model.save(tmp_path / "elsewhere" / "saved")


def test_what_a_prompt_shows_is_short(model: BPMF) -> None:
    """A draw prints no arrays, and names only the first of its users."""
    draw = model.run_.draw(0)
    assert repr(draw).startswith("<Draw: chain 0, iteration ")
    assert len(repr(draw)) < 300
    assert repr(model.run_.users).startswith(f"<{len(model.run_.users)} users: ")
    assert len(repr(model.run_.users)) < 80
