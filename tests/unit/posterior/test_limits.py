"""Predictions of measurements, counts and amounts may exceed what was seen; those of levels not.

What `info`, Python and `predict` say of errors and intervals is of the returned predictions.
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support import typed

from dsgmcmc import BPMF
from dsgmcmc.model.likelihoods.gaussian import GaussianRatings
from dsgmcmc.model.likelihoods.limits import limits_of
from dsgmcmc.model.likelihoods.negative_binomial import NegativeBinomial
from dsgmcmc.prepare.prepare import prepare_ratings
from dsgmcmc.ratings.file import Ratings

SHORT = ("--rank", "0", "--iterations", "200", "--burn-in", "100", "--seed", "1")
rng = np.random.default_rng(0)


def stations() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Temperatures of 30 stations in 24 hours; the hottest hours of the hottest are an outage."""
    station = np.repeat(np.arange(30), 24)
    hour = np.tile(np.arange(24), 30)
    level = np.linspace(-4, 4, 30)
    curve = 5 * np.sin((np.arange(24) - 9) / 24 * 2 * np.pi)
    truth = 18 + level[station] + curve[hour]
    table = pd.DataFrame({"user": station, "item": hour})
    table["rating"] = (truth + np.random.default_rng(0).normal(0, 0.3, len(truth))).round(2)
    outage = (station >= 22) & (hour >= 12) & (hour <= 18)
    return table[~outage], table[outage]


def test_measurements_are_predicted_beyond_those_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An outage in the hottest hours is filled in, by the command and in Python."""
    seen, hidden = stations()
    seen.to_csv(tmp_path / "seen.csv", index=False)
    hidden[["user", "item"]].to_csv(tmp_path / "pairs.csv", index=False)
    monkeypatch.chdir(tmp_path)
    for words in (
        ("prepare", "seen.csv", "seen.h5"),
        ("sample", "seen.h5", "--out", "run", *SHORT),
        ("predict", "run", "pairs.csv", "-o", "predicted.csv"),
    ):
        assert typed(*words).expect(0)
    predicted = pd.read_csv(tmp_path / "predicted.csv")
    model = BPMF(rank=0, iterations=200, burn_in=100, random_state=1, options={"thin": 1}).fit(seen)
    low, high = model.predict_interval(hidden[["user", "item"]])
    truth = hidden["rating"].to_numpy()
    assert truth.max() > seen["rating"].max() + 0.5
    for mean, below, above in (
        (predicted["mean"], predicted["q05"], predicted["q95"]),
        (model.predict(hidden[["user", "item"]]), low, high),
    ):
        assert np.sqrt(np.mean((mean - truth) ** 2)) < 0.6
        assert np.mean((below <= truth) & (truth <= above)) > 0.75
        assert (np.asarray(above) - np.asarray(below)).min() > 0.5


def test_stars_are_predicted_within_the_scale_and_scored_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The RMSE and the coverage that `info` prints are those of the predictions of `predict`."""
    user, item = (axis.ravel() for axis in np.meshgrid(np.arange(60), np.arange(30)))
    mean = np.linspace(1.5, 5.5, 60)[user] + np.linspace(-1, 1, 30)[item]
    stars = np.clip(np.rint(mean + np.random.default_rng(1).normal(0, 0.5, len(mean))), 1, 5)
    table = pd.DataFrame({"user": user, "item": item, "rating": stars.astype(int)})
    held_out = np.random.default_rng(2).random(len(table)) < 0.3
    table[~held_out].to_csv(tmp_path / "train.csv", index=False)
    table[held_out].to_csv(tmp_path / "test.csv", index=False)
    monkeypatch.chdir(tmp_path)
    for words in (
        ("prepare", "train.csv", "r.h5", "--test", "test.csv"),
        ("sample", "r.h5", "--out", "run", *SHORT),
        ("predict", "run", "test.csv", "-o", "clipped.csv"),
        ("predict", "run", "test.csv", "-o", "free.csv", "--no-clip"),
    ):
        assert typed(*words).expect(0)
    truth = table.loc[held_out, "rating"].to_numpy()
    clipped, free = (pd.read_csv(tmp_path / name) for name in ("clipped.csv", "free.csv"))
    assert clipped["q05"].min() == clipped["mean"].min() == 1 > free["mean"].min()
    assert clipped["q95"].max() == clipped["mean"].max() == 5 < free["mean"].max()
    of_clipped, of_free = (
        np.sqrt(np.mean((predicted["mean"] - truth) ** 2)) for predicted in (clipped, free)
    )
    assert of_clipped < of_free - 0.003
    summary = json.loads(typed("info", tmp_path / "run", "--json").expect(0).out)["summary"]
    assert summary["rmse_mean"] == pytest.approx(of_clipped, abs=0.001)
    inside = np.mean((clipped["q05"] <= truth) & (truth <= clipped["q95"]))
    assert summary["coverage"]["0.9"] == pytest.approx(inside, abs=0.01)
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["rmse_mean"] == pytest.approx(summary["rmse_mean"], abs=1e-4)
    model = BPMF.load(tmp_path / "run")
    assert model.rmse_ == pytest.approx(summary["rmse_mean"])
    report = typed("info", tmp_path / "run", "--diagnostics", "--json").expect(0).out
    assert json.loads(report)["calibration"]["rmse"] == pytest.approx(summary["rmse_mean"])


@pytest.mark.parametrize(
    ("name", "values", "limits"),
    [
        ("stars", rng.integers(1, 6, 600), (1, 5)),
        ("half stars", rng.integers(1, 11, 600) / 2, (0.5, 5)),
        ("correct or not", rng.random(600) < 0.02, (0, 1)),
        ("minus and plus", 2 * rng.integers(0, 2, 600) - 1, (-1, 1)),
        ("few counts", rng.poisson(1.5, 600), (0, np.inf)),
        ("many counts", rng.integers(0, 5000, 600), (0, np.inf)),
        ("degrees", rng.normal(20, 4, 600).round(1), (-np.inf, np.inf)),
        ("rain", np.maximum(rng.normal(0, 4, 600), 0).round(1), (0, np.inf)),
        ("amounts", rng.lognormal(0, 1, 600), (-np.inf, np.inf)),
        ("differences", rng.normal(0, 4, 600).round(0) / 2, (-np.inf, np.inf)),
        ("signed whole numbers", rng.integers(-300, 300, 600), (-np.inf, np.inf)),
    ],
)
def test_only_levels_have_limits(
    tmp_path: Path, name: str, values: np.ndarray, limits: tuple[float, float]
) -> None:
    """Counts and amounts with zeros end at 0, and measurements nowhere."""
    table = pd.DataFrame(
        {"user": np.arange(600) // 20, "item": np.arange(600) % 20, "rating": values.astype(float)}
    )
    table.to_csv(tmp_path / "r.csv", index=False)
    prepare_ratings([str(tmp_path / "r.csv")], tmp_path / "r.h5", test_fraction=0.0)
    with Ratings(tmp_path / "r.h5") as ratings:
        assert limits_of(ratings, GaussianRatings) == limits
        if name == "stars":
            assert limits_of(ratings, NegativeBinomial) == (0, np.inf)


def test_counts_are_not_predicted_below_zero() -> None:
    """Under the Gaussian default, too, and they may exceed the largest count."""
    user, item = (axis.ravel() for axis in np.meshgrid(np.arange(40), np.arange(20)))
    counts = np.random.default_rng(3).poisson(np.exp(np.linspace(-3, 2.5, 40))[user])
    seen = (user < 36) | (item < 15)
    table = pd.DataFrame({"user": user, "item": item, "rating": counts})
    model = BPMF(rank=0, iterations=100, burn_in=50).fit(table[seen])
    predicted = model.predict(table[["user", "item"]])
    assert predicted.min() == 0
    model.clip = False
    assert model.predict(table[["user", "item"]]).min() < 0
