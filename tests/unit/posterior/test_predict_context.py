"""Predictions in a context: effects of categories that a run knows, and the prior of those that it does not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas
import pytest

from dsgmcmc import BPMF
from dsgmcmc.errors import InputError
from dsgmcmc.posterior.effects import importance_of_effects

DEVICES = {"mobile": 1.0, "desktop": -1.0, None: 0.0}


@pytest.fixture(scope="module")
def ratings() -> pandas.DataFrame:
    """30 users, 20 items; devices matter, and so do the days of a user."""
    rng = np.random.default_rng(4)
    pairs = np.unique(rng.integers(0, [30, 20], (900, 2)), axis=0)
    device, day = rng.choice(np.array(list(DEVICES), object), len(pairs)), rng.integers(0, 2, len(pairs))
    x = 3 + np.array([DEVICES[each] for each in device]) + rng.normal(0, 1, (30, 2))[pairs[:, 0], day]
    x += rng.normal(0, 0.3, len(pairs))
    return pandas.DataFrame({"user": pairs[:, 0], "item": pairs[:, 1], "rating": x, "device": device, "day": day})


@pytest.fixture(scope="module")
def model(ratings: pandas.DataFrame) -> BPMF:
    """Of two terms: one that all share, and one of users."""
    options = {"grid": 2, "save_draws": 20}
    return BPMF(rank=1, iterations=300, burn_in=100, context="device,user:day", options=options).fit(ratings)


def test_effects_are_found(model: BPMF) -> None:
    """Those of devices to 0.3, of which some is their mean's; and a user's days explain the most of the rest."""
    draws = [model.run_.draw(number) for number in range(len(model.run_.draws))]
    found = np.mean([draw.shared["context.effects"] for draw in draws], axis=0)
    names = model.run_.context.columns["device"].names
    assert names == ("desktop", "mobile", "")
    assert found - found.mean() == pytest.approx([DEVICES[name or None] for name in names], abs=0.3)
    device, day = importance_of_effects(model.run_)
    assert (device.name, day.name) == ("device", "user:day")
    assert 0.6 < day.sd < 1.4


def test_predictions_add_the_effects_or_their_variance(model: BPMF) -> None:
    """Mean and sd of the mixture over the draws, worked out here: of known categories, of unknown ones, of neither."""
    run, share = model.run_, model.run_.draw_weights
    frame = pandas.DataFrame({"user": [3, 3, 3, 99], "item": [4] * 4, "device": ["mobile", "tablet", None, "mobile"]})
    frame["day"] = [1, 1, 0, 1]
    mean, sd = model.predict(frame, return_std=True)
    u, v = run.users.index_of([3])[0], run.items.index_of([4])[0]
    etas, variances = [], []
    for number in range(len(run.draws)):
        draw = run.draw(number)
        w, h = draw.theta["user"][u].astype(float), draw.theta["item"][v].astype(float)
        device = 1 / draw.shared["context.precision"][0]
        shared, own = draw.shared["context.effects"], draw.rows["user"]["context.user.day"][u]
        base = run.mean + w[0] * h[0] + w[1] + h[1]
        etas.append([base + shared[1] + own[1], base + own[1], base + shared[2] + own[0]])
        variances.append(1 / draw.tau + np.array([0, device, 0]))
    etas, variances = np.array(etas), np.array(variances)
    expected = share @ etas
    low, high = run.facts["minimum"], run.facts["maximum"]
    assert mean[:3] == pytest.approx(np.clip(expected, low, high), abs=1e-4)
    assert sd[:3] ** 2 == pytest.approx(share @ variances + share @ (etas - expected) ** 2, rel=1e-3)
    assert sd[3] > sd[0]  # the days of an unknown user


def test_recommendations_are_in_a_context(model: BPMF) -> None:
    """A shared effect moves all means alike; unknown columns and categories are refused with those that there are."""
    plain, mobile = (model.recommend([3], n=5, by="mean", context=context) for context in ({}, {"device": "mobile"}))
    desktop = model.recommend([3], n=5, by="mean", context={"device": "desktop", "day": 1})
    assert plain["item_id"].tolist() == mobile["item_id"].tolist()
    assert (np.asarray(mobile["score"]) >= np.asarray(desktop["score"])).all()
    for context, said in (
        ({"device": "tv"}, "no category 'tv': expected one of 'desktop', 'mobile', ''"),
        ({"x": 1}, "device, day"),
    ):
        with pytest.raises(InputError, match=said):
            model.recommend([3], context=context)


def test_new_ratings_have_their_context(model: BPMF, ratings: pandas.DataFrame, tmp_path: Path) -> None:
    """Ratings that a device explains leave a new user at the mean, in files and frames; old ones keep theirs."""
    run = model.run_
    rated = pandas.DataFrame({"user": [500] * 12, "item": range(12), "rating": [4.0] * 12})
    own = rated.assign(device="mobile", day=0)
    bias = {}
    for name, given in (("known", own), ("unknown", rated)):
        new = model.fold_in(given)
        rows = [new._newcomers.rows(number, np.array([0])) for number in range(len(run.draws))]
        bias[name] = float(np.mean([row.mean[0, 1] for row in rows]))
    assert bias["known"] < bias["unknown"] - 0.5
    mine = ratings[ratings.user == 3]
    item = min(set(range(20)) - set(mine.item))
    rating = pandas.DataFrame({"user": [3], "item": [item], "rating": [3.0], "device": ["mobile"], "day": [1]})
    codes = model.fold_in(rating)._newcomers._context["device"].tolist()
    before = run.context.of_frame(mine, len(mine))["device"].tolist()
    assert sorted(codes) == sorted([*before, 1])


def test_periods_are_made_in_python_too(ratings: pandas.DataFrame) -> None:
    """Of a column of timestamps; without one, and of columns that are not there, the frame is refused."""
    timed = ratings.assign(timestamp=np.arange(len(ratings)) * 40_000.0)
    model = BPMF(rank=1, iterations=20, burn_in=10, context="item:weekday", options={"grid": 2}).fit(timed)
    assert model.run_.context.columns["weekday"].size == 7
    for context, said in (("shop", "a data frame with a column 'shop'"), ("month", "timestamp")):
        with pytest.raises(InputError, match=said):
            BPMF(rank=1, iterations=20, burn_in=10, context=context).fit(ratings)


def test_a_file_of_pairs_has_its_context(model: BPMF, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Predictions of a file are those of a frame; columns that it lacks are said."""
    from typer.testing import CliRunner

    from dsgmcmc.cli.app import app

    frame = pandas.DataFrame({"user": [3, 4], "item": [4, 5], "device": ["mobile", None], "day": [1, 0]})
    frame.to_csv(tmp_path / "pairs.csv", index=False)
    out = tmp_path / "out.csv"
    result = CliRunner().invoke(
        app, ["predict", str(model.run_.path), str(tmp_path / "pairs.csv"), "-o", str(out), "--clip"]
    )
    assert result.exit_code == 0
    assert pandas.read_csv(out)["mean"].to_numpy() == pytest.approx(model.predict(frame), abs=1e-4)
    frame.drop(columns="day").to_csv(tmp_path / "pairs.csv", index=False)
    result = CliRunner().invoke(
        app, ["predict", str(model.run_.path), str(tmp_path / "pairs.csv"), "-o", str(out), "--json"]
    )
    assert "has no column day" in result.stderr
    assert json.loads(result.stderr.splitlines()[-1])["pairs"] == 2
