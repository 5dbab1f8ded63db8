"""Loaded runs find the columns of new ratings that the training ratings had, or name them."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from dsgmcmc import BPMF
from dsgmcmc.cli.app import app
from dsgmcmc.errors import InputError
from dsgmcmc.posterior.fitted import open_run
from dsgmcmc.prepare.prepare import prepare_ratings
from dsgmcmc.ratings.file import Ratings

pytestmark = pytest.mark.filterwarnings("ignore::dsgmcmc.errors.RunWarning")
SHORT: dict[str, Any] = {
    "rank": 2,
    "sampler": "baoab",
    "iterations": 16,
    "burn_in": 10,
    "options": {"save_draws": 2},
}


def measured() -> pd.DataFrame:
    """Ratings with weights and relations, and further columns that have usual names."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"buyer": rng.integers(0, 12, 200), "sku": rng.integers(0, 9, 200)})
    frame = frame.drop_duplicates(ignore_index=True)
    frame["logged"] = 0.2 * frame.buyer - 0.1 * frame.sku + rng.normal(0, 0.3, len(frame))
    frame["w"] = rng.uniform(0.1, 10, len(frame))
    frame["rel"] = np.where(rng.random(len(frame)) < 0.2, "<", "=")
    frame["user"] = rng.permutation(frame.buyer)
    frame["item"] = rng.permutation(frame.sku)
    frame["rating"] = np.exp(frame.logged)
    return frame


COLUMNS = "user=buyer,item=sku,rating=logged,weight=w,relation=rel"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose ratings are in columns that need to be named."""
    path = tmp_path_factory.mktemp("named") / "run"
    BPMF(**SHORT, columns=COLUMNS, out=path).fit(measured())
    return path


def test_a_ratings_file_has_the_columns_of_its_ratings(tmp_path: Path) -> None:
    """A file and a data frame have them; an array has none."""
    frame = measured()
    frame.to_csv(tmp_path / "r.csv", index=False)
    prepare_ratings([tmp_path / "r.csv"], tmp_path / "r.h5", columns=COLUMNS)
    with Ratings(tmp_path / "r.h5") as ratings:
        assert ratings.named_columns == dict(part.split("=") for part in COLUMNS.split(","))
    BPMF(**SHORT, out=tmp_path / "run").fit(frame[["buyer", "sku", "logged"]].to_numpy())
    with Ratings(tmp_path / "run.ratings.h5") as ratings:
        assert ratings.named_columns == {}


@pytest.mark.parametrize("text", ["{", "[]", '{"user": 1}', '{"nobody": "a"}', "[" * 9999])
def test_refuses_columns_that_prepare_does_not_write(tmp_path: Path, text: str) -> None:
    """The attribute may come from a stranger."""
    measured().to_csv(tmp_path / "r.csv", index=False)
    prepare_ratings([tmp_path / "r.csv"], tmp_path / "r.h5", columns=COLUMNS)
    with h5py.File(tmp_path / "r.h5", "a") as file:
        file.attrs.create("columns", np.bytes_(text))
    with pytest.raises(InputError, match="its structure cannot be read"):
        Ratings(tmp_path / "r.h5")


def test_loaded_runs_use_the_columns_of_their_ratings(run: Path) -> None:
    """Weights, relations and names are read as if the columns had been named again."""
    loaded = BPMF.load(run)
    named = BPMF.load(run)
    named.columns = COLUMNS
    new = measured()[:60]
    scores = loaded.evaluate(new)
    assert scores == named.evaluate(new)
    assert scores["bounded"] == (new.rel == "<").sum() > 0
    assert loaded.score(new) == named.score(new)
    pairs = new[["buyer", "sku", "user", "item"]]
    np.testing.assert_array_equal(loaded.predict(pairs), named.predict(pairs))
    folded = loaded.fold_in(new).predict(pairs)
    np.testing.assert_array_equal(folded, named.fold_in(new).predict(pairs))
    assert open_run(run).evaluate(new) == scores


def test_columns_that_are_named_again_come_first(run: Path) -> None:
    """Other weights than those of the column of the run are used if they are asked for."""
    new = measured()[:60]
    new["other"] = new.w[::-1].to_numpy()
    model = BPMF.load(run)
    first = model.evaluate(new)
    model.columns = "weight=other"
    assert model.evaluate(new)["log_predictive_density"] != first["log_predictive_density"]


def test_ratings_without_weights_warn(run: Path) -> None:
    """A run with weights names the column that new ratings lack; R^2 needs none."""
    model = BPMF.load(run)
    new = measured().drop(columns="w")[:60]
    with pytest.warns(UserWarning, match=r"no weights, unlike those of the run.* column w,"):
        model.evaluate(new)
    with pytest.warns(UserWarning, match="average weight"):
        model.fold_in(new)
    model.score(new)


def test_pairs_are_no_ratings_of_a_run_with_ratings(run: Path) -> None:
    """Pairs alone are not folded in as ratings of 1."""
    pairs = measured()[["buyer", "sku", "w"]]
    for method in ("evaluate", "fold_in", "score"):
        with pytest.raises(InputError, match=r"pairs without ratings.* rating=NAME"):
            getattr(BPMF.load(run), method)(pairs)


def test_predict_reads_the_columns_of_the_run(run: Path, tmp_path: Path) -> None:
    """The command and Python predict the same pairs of a file with two columns of users."""
    pairs = measured()[["user", "item", "buyer", "sku"]][:20]
    pairs.to_csv(tmp_path / "pairs.csv", index=False)
    out = tmp_path / "out.csv"
    arguments = ["predict", str(run), str(tmp_path / "pairs.csv"), "--out", str(out)]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    expected = BPMF.load(run).predict(pairs[["buyer", "sku"]].to_numpy())
    np.testing.assert_allclose(pd.read_csv(out)["mean"], expected, rtol=1e-4)


def trips() -> pd.DataFrame:
    """A table of station, day and hour."""
    rng = np.random.default_rng(1)
    cells = {"station": rng.integers(0, 6, 300), "day": rng.integers(0, 6, 300)}
    frame = pd.DataFrame({**cells, "hour": rng.integers(0, 8, 300)}).drop_duplicates()
    frame["rating"] = frame.station - 0.5 * frame.hour + rng.normal(0, 0.3, len(frame))
    return frame


def test_arrays_have_a_column_for_each_part() -> None:
    """An array of four columns is read like the data frame, with ratings in it or apart."""
    frame = trips()
    order = ["station", "day", "hour"]
    model = BPMF(**SHORT, user=["station", "day"], item="hour").fit(frame)
    new = frame[[*order, "rating"]][:30]
    array = new.to_numpy()
    scores = model.evaluate(new)
    assert model.evaluate(array) == scores
    assert model.evaluate(array.tolist()) == scores
    assert model.evaluate(array[:, :3], array[:, 3]) == scores
    assert model.score(array) == model.score(new)
    folded = model.fold_in(new).predict(array[:, :3])
    np.testing.assert_array_equal(model.fold_in(array).predict(array[:, :3]), folded)
    with pytest.raises(InputError, match=rf"{', '.join(order)}, rating; found \(30, 3\)"):
        model.evaluate(array[:, :3])


def test_columns_that_cannot_be_found_are_refused_with_what_to_do() -> None:
    """Of equal names, of items of a matrix, and dimensions; the advice is followed."""
    frame = trips().rename(columns={"station": "user", "hour": "item"})[["user", "item", "rating"]]
    frame = frame.drop_duplicates(["user", "item"])
    twice = frame.assign(other=1.0).rename(columns={"other": "rating"})
    with pytest.raises(InputError, match="X has 2 columns 'rating': rename all but one"):
        BPMF(**SHORT).fit(twice)
    renamed = twice.set_axis(["user", "item", "rating", "other"], axis=1)
    assert BPMF(**SHORT).fit(renamed).run_.facts["ratings"] == len(frame)
    values = np.random.default_rng(0).normal(size=(20, 6))
    matrix = pd.DataFrame(values).add_prefix("day ")
    with pytest.raises(InputError, match="a column for each item, and none for item: give user="):
        BPMF(**SHORT, matrix=True, columns="item=day 1").fit(matrix)
    named = matrix.assign(site=[f"s{k}" for k in range(20)])
    assert BPMF(**SHORT, matrix=True, columns="user=site").fit(named).users_[0].startswith("s")
    xarray = pytest.importorskip("xarray")
    axes = {"hour": np.arange(20), "station": [f"s{k}" for k in range(6)]}
    cube = xarray.Dataset({"level": (("hour", "station"), values)}, axes)
    for given in (cube, cube["level"]):
        message = r"leave it out, and give X.transpose\('station', 'hour'\)"
        with pytest.raises(InputError, match=message):
            BPMF(**SHORT, columns="user=station").fit(given)
        fitted = BPMF(**SHORT).fit(given.transpose("station", "hour"))
        assert sorted(fitted.users_) == axes["station"]
