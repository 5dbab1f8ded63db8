"""Names of several parts in a run: predictions of pairs that were never seen, and tables."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from support import typed

from dsgmcmc import BPMF, open_run
from dsgmcmc.errors import InputError
from dsgmcmc.posterior.cells.predict import PredictOptions, Predictor
from dsgmcmc.posterior.index import Vocabulary
from dsgmcmc.posterior.rows.added import fold_in
from dsgmcmc.posterior.rows.name_features import name_features_of
from dsgmcmc.posterior.rows.new_ratings import NewRatings

PARTS = ("station", "day")


def table() -> pd.DataFrame:
    """Return a table of station, day (an integer) and hour, without some days of stations."""
    rng = np.random.default_rng(0)
    station, day, hour = (axis.ravel() for axis in np.indices((9, 12, 6)))
    level = rng.normal(0, 2, 9)[station] + rng.normal(0, 2, 12)[day]
    passengers = 20 + level + np.sin(hour) * (1 + station) + rng.normal(0, 0.3, len(hour))
    frame = pd.DataFrame(
        {
            "station": [f"s{s}" for s in station],
            "day": day,
            "hour": [f"h{h}" for h in hour],
            "passengers": np.round(passengers, 3),
        }
    )
    frame["known"] = (station + day) % 4 != 0
    return frame


@pytest.fixture(scope="module")
def fitted(tmp_path_factory) -> BPMF:
    """A model of the days that are known."""
    frame = table()
    model = BPMF(
        rank=2,
        sampler="gibbs",
        iterations=150,
        user=["station", "day"],
        item="hour",
        columns="rating=passengers",
        out=tmp_path_factory.mktemp("parts") / "run",
    )
    return model.fit(frame[frame["known"]].drop(columns="known"))


def test_predicts_pairs_that_were_never_seen_from_their_parts(fitted):
    """A new day of a station is known by the station and by the day: far better than the prior."""
    frame = table()
    hidden = frame[~frame["known"]]
    error = fitted.predict(hidden) - hidden["passengers"].to_numpy()
    low, high = fitted.predict_interval(hidden)
    inside = (low <= hidden["passengers"]) & (hidden["passengers"] <= high)
    assert np.sqrt(np.mean(error**2)) < 0.5 * hidden["passengers"].std()
    assert 0.75 < inside.mean() <= 1


def test_a_pair_is_predicted_as_a_new_user_with_features_is(fitted):
    """The moments are those of `fold_in` with the features of the parts."""
    run = fitted.run_
    names = [("s0", 0), ("s4", 4)]
    described = name_features_of(run, "user").by_name(names)
    none = np.zeros(0, object)
    new = NewRatings("user", none, none, np.zeros(0), np.zeros(0), described)
    newcomers, _ = fold_in(run, new)
    predictions = []
    for predictor in (
        Predictor(run, PredictOptions()),
        Predictor(run, PredictOptions(), newcomers),
    ):
        users = predictor.index_of("user", names)
        items = np.array([0, 1], np.int32)
        predictions.append(predictor(users, items))
    for by_parts, folded in zip(*predictions, strict=True):
        assert np.allclose(by_parts, folded, rtol=1e-5)


def test_a_pair_with_an_unknown_part_is_unknown(fitted):
    """An unknown day is predicted from the prior, with a warning; the command refuses it."""
    pairs = pd.DataFrame({"station": ["s1"], "day": [99], "hour": ["h1"]})
    with pytest.warns(match=r"one user is unknown to the run: \(s1, 99\)"):
        fitted.predict(pairs)


def test_arrays_have_a_column_for_each_part(fitted):
    """Rows of an array are station, day and hour."""
    frame = table().iloc[:50]
    pairs = frame[["station", "day", "hour"]].to_numpy(object)
    assert np.array_equal(fitted.predict(pairs), fitted.predict(frame))


def test_recommends_to_seen_and_unseen_pairs(fitted):
    """Names are tuples or texts; the table has a column for each part."""
    found = fitted.recommend([("s0", 0), "day=1,station=s0"], n=2, include_rated=True)
    assert list(found)[:3] == ["station", "day", "item_id"]
    assert found["station"].tolist() == ["s0"] * 4
    assert found["day"].tolist() == [0, 0, 1, 1]
    with pytest.raises(InputError, match=r"unknown to the run: \(s0, 77\)"):
        fitted.recommend([("s0", 77)])
    with pytest.raises(InputError, match="have the parts station, day"):
        fitted.recommend([("s0",)])


def test_folds_in_ratings_of_a_pair(fitted):
    """New ratings of a new pair come on top of what its parts say."""
    new = table()
    new = new[(new["station"] == "s0") & (new["day"] == 0)]
    folded = fitted.fold_in(new.iloc[:3])
    mean, sd = folded.predict(new.iloc[3:], return_std=True)
    _, sd_of_parts = fitted.predict(new.iloc[3:], return_std=True)
    assert (sd < sd_of_parts).all()
    assert np.abs(mean - new["passengers"].iloc[3:]).mean() < 0.5


def test_completes_a_long_table(fitted):
    """A pair has a row, and a part a column; known cells stay what they were."""
    frame = table()
    frame = frame[frame["known"]]
    complete = fitted.complete()
    assert list(complete) == ["station", "day", "item_id", "rating"]
    merged = frame.merge(
        complete.rename(columns={"item_id": "hour"}), on=["station", "day", "hour"]
    )
    assert len(merged) == len(frame)
    assert np.array_equal(merged["passengers"], merged["rating"])


def test_commands_use_the_columns_of_the_parts(fitted, tmp_path):
    """`predict` finds the columns by name, `recommend` and `export` write one for each part."""
    run = str(fitted.run_.path)
    pairs = tmp_path / "pairs.csv"
    table()[["hour", "day", "station"]].to_csv(pairs, index=False)
    summary = typed("predict", run, pairs, "-o", tmp_path / "out.csv", "--json")
    assert json.loads(summary.err)["unknown"] == 0
    predicted = pd.read_csv(tmp_path / "out.csv")
    assert np.allclose(predicted["mean"], fitted.predict(table()), rtol=1e-4)
    lines = typed("recommend", run, "-u", "station=s0,day=4", "-n", "1", "--json", "--by", "mean")
    assert json.loads(lines.out)[0]["day"] == 4
    typed("export", run, "-o", tmp_path / "run.parquet")
    exported = pd.read_parquet(tmp_path / "run.parquet")
    users = exported[exported["side"] == "user"]
    assert set(zip(users["station"], users["day"].astype(int), strict=True)) == set(
        fitted.users_.tolist()
    )
    assert exported[exported["side"] == "item"]["id"].tolist() == fitted.items_.tolist()


def test_the_command_names_what_it_cannot_predict(fitted, tmp_path):
    """A file without a part, and a name with an unknown part, are refused."""
    run = str(fitted.run_.path)
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("station,hour\ns1,h1\n")
    assert "no column 'day' for user" in typed("predict", run, pairs).err
    pairs.write_text("station,day,hour\ns1,1,h1\ns1,99,h1\n")
    refused = typed("predict", run, pairs)
    assert refused.code == 2
    assert "one user is unknown to the run: (s1, 99)" in refused.err


def test_a_run_is_opened_with_its_parts(fitted):
    """Pairs are found by the columns of the ratings, without `columns`."""
    frame = table().iloc[:20]
    assert np.array_equal(open_run(fitted.run_.path).predict(frame), fitted.predict(frame))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("station=a,day=b", ("a", "b")),
        ("day=b,station=a", ("a", "b")),
        ("station=a,day=x,day=b", ("a,day=x", "b")),
        ("station=,day=b", ("", "b")),
    ],
)
def test_parses_names_with_commas_and_signs(text, name):
    """Of several readings of a text, that of a known name counts."""
    ids = np.empty(3, object)
    ids[:] = [("a", "b"), ("a,day=x", "b"), ("", "b")]
    names = Vocabulary("user", ids, PARTS)
    assert names.typed([text]).tolist() == [name]


def test_refuses_a_text_of_two_names():
    """If two known names have one text, a tuple tells them apart."""
    ids = np.empty(2, object)
    ids[:] = [("a,day=x", "b"), ("a", "x,day=b")]
    names = Vocabulary("user", ids, PARTS)
    with pytest.raises(InputError, match="may be"):
        names.typed(["station=a,day=x,day=b"])
    with pytest.raises(InputError, match="write station=VALUE,day=VALUE"):
        names.typed(["a"])


def test_columns_of_parts_do_not_hide_results():
    """A part that is called as a column of results gets the entity before its name."""
    ids = np.empty(1, object)
    ids[0] = ("a", "b")
    assert Vocabulary("user", ids, ("score", "day")).columns == ["user_score", "day"]


def test_loaded_runs_know_their_columns(tmp_path):
    """`evaluate`, `score` and `fold_in` find the columns of names as `predict` does."""
    frame = table()
    options = {"user": list(PARTS), "item": "hour", "columns": "rating=passengers"}
    fitted = BPMF(2, iterations=30, burn_in=10, out=tmp_path / "run", **options).fit(
        frame[frame["known"]].drop(columns="known")
    )
    new = frame[~frame["known"]].drop(columns="known").head(20)
    renamed = new.rename(columns={"passengers": "rating"})
    loaded = BPMF.load(tmp_path / "run")
    assert loaded.evaluate(renamed) == fitted.evaluate(new)
    assert loaded.score(renamed) == fitted.score(new)
    expected = fitted.fold_in(new).predict(new)
    assert np.array_equal(loaded.fold_in(renamed).predict(renamed), expected)
    with pytest.raises(InputError, match="which column is user"):
        loaded.evaluate(renamed.rename(columns={"day": "date"}))
