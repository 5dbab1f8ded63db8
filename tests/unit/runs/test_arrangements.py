"""Models of a table of three directions: the arrangement is chosen, and names keep their parts."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support import typed

from dsgmcmc import BPMF, open_run
from dsgmcmc.diagnostics.comparison import Comparison
from dsgmcmc.errors import InputError
from dsgmcmc.ratings.directions import arrangement_of
from dsgmcmc.ratings.file import Ratings

COLUMNS = "user=place,item=hour,context=day,rating=number"
#: Settings that leave few candidates.
FEW = ("--likelihood", "gaussian", "--noise", "shared", "--implicit-features", "no")
SHORT = ("--iterations", "120", "--burn-in", "40", "--until", "none")


def table(holes: str) -> pd.DataFrame:
    """Return a table of places, days and hours; ``hidden`` marks single cells or whole days.

    Where cells are hidden, every day of a place has a profile of its own, which other hours of this
    day tell. Where whole days are, places differ in how they feel the events of all days.
    """
    rng = np.random.default_rng(5)
    place, day, hour = (axis.ravel() for axis in np.indices((14, 12, 10)))
    own, common = (1.5, 0.4) if holes == "cells" else (0.2, 1.5)
    mixture = rng.normal(0, own, (14, 12, 2)) + rng.normal(0, 2, (14, 1, 2))
    profiles = np.stack([np.sin(np.arange(10) / 1.5), np.cos(np.arange(10) / 1.2)])
    events = rng.normal(0, common, (1, 12, 10)) * rng.normal(0, 1, (14, 1, 1))
    noise = rng.normal(0, 0.3, (14, 12, 10))
    number = 20 + np.einsum("pdk,kh->pdh", mixture, profiles) + events + noise
    hidden = rng.random(number.shape) < 0.3
    if holes == "days":
        hidden = np.broadcast_to(rng.random((14, 12, 1)) < 0.25, number.shape)
    return pd.DataFrame(
        {
            "day": day,
            "place": [f"p{p}" for p in place],
            "hour": [f"h{h}" for h in hour],
            "number": np.round(number.ravel(), 2),
            "hidden": hidden.ravel(),
        }
    )


def files(folder: Path, holes: str) -> None:
    """Write known and hidden cells."""
    frame = table(holes)
    for name, chosen in (("known", ~frame["hidden"]), ("hidden", frame["hidden"])):
        frame[chosen].drop(columns="hidden").to_csv(folder / f"{name}.csv", index=False)
    result = typed("prepare", folder / "known.csv", folder / "t.h5", "--columns", COLUMNS)
    assert result.code == 0, result.err


@pytest.fixture(scope="module", params=["cells", "days"])
def sampled(request, tmp_path_factory) -> Path:
    """A folder with a run in the arrangement that a comparison chose."""
    folder = tmp_path_factory.mktemp(request.param)
    files(folder, request.param)
    result = typed(
        "sample", folder / "t.h5", "--out", folder / "run", "--model", "auto", *FEW, *SHORT
    )
    assert result.code == 0, result.err
    (folder / "said").write_text(result.err)
    (folder / "holes").write_text(request.param)
    return folder


def test_the_arrangement_follows_the_holes(sampled):
    """Single cells are told by the day of their place, whole days by other places."""
    comparison = Comparison.read(sampled / "run" / "comparison.json")
    chosen = comparison.model(comparison.recommended)
    holes = (sampled / "holes").read_text()
    expected = {"cells": "place+day x hour", "days": "place x hour+day"}
    assert chosen.arrangement == expected[holes]
    arrangements = {model.arrangement for model in comparison.models}
    assert arrangements == {"place x hour+day", "place+day x hour", "place+hour x day"}
    with Ratings(sampled / "run" / "ratings.h5") as ratings:
        assert arrangement_of(ratings).name == chosen.arrangement


def test_a_context_that_is_no_column_is_named_with_those_that_may_be(tmp_path):
    """It is called a context, not an item, in Python and by the command."""
    frame = table("cells").drop(columns="hidden").rename(columns={"place": "user", "hour": "item"})
    frame.to_csv(tmp_path / "r.csv", index=False)
    found = "no column 'nope' for the context; the context may be day"
    columns = "user=user,item=item,rating=number,context=nope"
    result = typed("prepare", tmp_path / "r.csv", tmp_path / "x.h5", "--columns", columns)
    assert result.code == 2
    assert f"{found}\n" in result.err
    with pytest.raises(InputError, match=found):
        BPMF(context="nope", user="user", item="item").fit(frame)
    with pytest.raises(InputError, match="a context needs a column beside those of users"):
        BPMF(context="nope").fit(frame.drop(columns="day").rename(columns={"number": "rating"}))


def test_arrays_of_new_ratings_have_the_directions_of_the_table(sampled):
    """An array has users, items, context and ratings; a data frame has columns in any order."""
    model = BPMF.load(sampled / "run")
    frame = pd.read_csv(sampled / "hidden.csv")[:40]
    array = frame[["place", "hour", "day", "number"]].to_numpy()
    scores = model.evaluate(frame)
    assert model.evaluate(array) == scores
    assert model.evaluate(array[:, :3], array[:, 3].astype(float)) == scores
    assert model.score(array) == model.score(frame)
    with pytest.raises(InputError, match=r"place, hour, day, number; found \(40, 3\)"):
        model.fold_in(array[:, :3])


def test_says_what_was_taken_and_what_was_next(sampled):
    """One line has both, with the gap and its standard error."""
    (line,) = [line for line in (sampled / "said").read_text().splitlines() if "Take" in line]
    comparison = Comparison.read(sampled / "run" / "comparison.json")
    assert line.startswith(f"Take {comparison.recommended}")
    assert "The next arrangement is place" in line
    assert "standard error" in line


def test_predicts_by_columns_in_any_arrangement(sampled):
    """Pairs of a file, a frame and an array have the three columns; hidden cells are told well."""
    result = typed("predict", sampled / "run", sampled / "hidden.csv", "-o", sampled / "p.csv")
    assert result.code == 0, result.err
    predicted = pd.read_csv(sampled / "p.csv")
    error = predicted["mean"] - predicted["number"]
    assert np.sqrt(np.mean(error**2)) < 0.8 * predicted["number"].std()
    model = open_run(sampled / "run")
    hidden = pd.read_csv(sampled / "hidden.csv")
    by_frame = model.predict(hidden)
    by_array = model.predict(hidden[["place", "hour", "day"]].to_numpy())
    assert np.array_equal(by_frame, by_array)
    assert np.allclose(by_frame, predicted["mean"], atol=1e-5)
    headerless = hidden[["place", "hour", "day"]]
    headerless.to_csv(sampled / "bare.csv", index=False, header=False)
    assert (
        typed("predict", sampled / "run", sampled / "bare.csv", "-o", sampled / "b.csv").code == 0
    )
    bare = pd.read_csv(sampled / "b.csv")
    assert np.array_equal(bare["mean"], predicted["mean"])
    assert model.score(hidden.rename(columns={"number": "rating"})) > 0.3


def trained(path: Path, place: str) -> set[tuple]:
    """Return hour and day of the training ratings of a place in an open file."""
    with Ratings(path) as ratings:
        assert ratings.entities == ("item", "user")
        column = ratings.ids("cols").tolist().index(place)
        slab = ratings.slab("train", 0, ratings.n_rows)
        rows = slab.rows[slab.indices == column]
        return {ratings.ids("rows")[row] for row in rows}


def test_recommends_by_columns_in_any_arrangement(sampled):
    """Cells of a place on a day are ranked together; those that are known are left out."""
    model = open_run(sampled / "run")
    hidden = pd.read_csv(sampled / "hidden.csv")
    place, day = hidden.groupby(["place", "day"]).size().idxmax()
    options = ("--by", "mean", "--top", "3", "--json")
    user = ("--user", f"day={day},place={place}")
    result = typed("recommend", sampled / "run", *user, *options)
    assert result.code == 0, result.err
    lines = json.loads(result.out)
    of_day = hidden[(hidden["place"] == place) & (hidden["day"] == day)]
    means = pd.Series(model.predict(of_day), of_day["hour"]).sort_values(ascending=False)
    assert [line["hour"] for line in lines] == means.index[:3].tolist()
    assert {(line["place"], line["day"]) for line in lines} == {(place, day)}
    assert [line["rank"] for line in lines] == [1, 2, 3]
    table = model.recommend({"place": place, "day": day}, n=3, by="mean")
    assert table["hour"].tolist() == [line["hour"] for line in lines]
    twice = model.recommend(
        [{"day": day, "place": place}, f"place={place},day={day}"], 3, by="mean"
    )
    assert twice["hour"].tolist() == table["hour"].tolist()  # a slice is listed once
    of_place = model.recommend(place, n=200, by="mean")
    cells = set(zip(of_place["hour"], of_place["day"], strict=True))
    assert cells
    assert not cells & trained(sampled / "t.h5", place)
    result = typed("recommend", sampled / "run", "--user", "place=p99,day=3")
    assert result.code == 2
    assert "unknown to the run: write a place, or values of place, hour, day" in result.err


def test_a_run_goes_on_in_its_arrangement(sampled):
    """The same command resumes it; a run that was moved has its ratings with it."""
    more = ("--resume", "--iterations", "160", "--until", "none")
    command = ("sample", sampled / "t.h5", "--out", sampled / "run", "--model", "auto")
    result = typed(*command, *more)
    assert result.code == 0, result.err
    moved = sampled / "moved"
    (sampled / "run").rename(moved)
    try:
        assert len(open_run(moved).recommend(n=1)["rank"])
    finally:
        moved.rename(sampled / "run")


def test_an_open_arrangement_is_not_sampled(sampled):
    """The message says both ways out."""
    result = typed("sample", sampled / "t.h5", "--out", sampled / "other")
    assert result.code == 2
    assert "--model auto" in result.err
    assert "--columns user=place+day,item=hour, or" in result.err


def test_wrong_settings_leave_no_folder(sampled):
    """A corrected command finds an empty directory."""
    command = ("sample", sampled / "t.h5", "--out", sampled / "wrong", "--model", "auto")
    result = typed(*command, "--likelihood", "ordinal-logit")
    assert result.code == 2, result.err
    assert not any((sampled / "wrong").glob("**/*.h5"))


def test_compare_writes_the_arrangement(tmp_path):
    """`compare` writes ratings beside the settings, and prints the command that samples them."""
    files(tmp_path, "cells")
    result = typed(
        "compare",
        tmp_path / "t.h5",
        "--out",
        tmp_path / "best.toml",
        "--set",
        "rank=3",
        *["--set", "likelihood=gaussian", "--set", "noise=shared", "--set", "implicit_features=no"],
    )
    assert result.code == 0, result.err
    command = result.out.strip().splitlines()[-1].partition(": ")[2]
    arguments = shlex.split(command)[1:]
    arguments[arguments.index("RUN")] = str(tmp_path / "run")
    assert arguments[1] == str(tmp_path / "best.h5")
    result = typed(*arguments, *SHORT)
    assert result.code == 0, result.err
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["rank"] == 3
    assert typed("compare", tmp_path / "t.h5", "--out", tmp_path / "best.toml").code == 2


def test_in_python_a_context_is_a_third_column(tmp_path):
    """`fit` compares, and predictions take the three columns."""
    frame = table("cells")
    model = BPMF(
        user="place",
        item="hour",
        context="day",
        columns="rating=number",
        iterations=120,
        burn_in=40,
        until="none",
        noise="shared",
        implicit_features="no",
        options={"likelihood": "gaussian"},
        out=tmp_path / "run",
    )
    known = frame[~frame["hidden"]].drop(columns="hidden")
    hidden = frame[frame["hidden"]].drop(columns="hidden")
    comparison = model.compare(known)
    assert comparison.model(comparison.recommended).arrangement == "place+day x hour"
    model.fit(known)
    assert set(model.run_.users.labels) == {"place", "day"}
    error = model.predict(hidden) - hidden["number"]
    assert np.sqrt(np.mean(error**2)) < 0.6 * hidden["number"].std()
    scores = model.evaluate(hidden)
    assert scores["rmse"] == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-3)
    completed, sd = model.complete(return_std=True)
    assert len(completed) == len(frame)
    filled = completed.merge(hidden, on=["place", "hour", "day"])
    assert np.allclose(filled["rating"], model.predict(filled), atol=1e-5)
    assert (sd["rating"] > 0).sum() == len(hidden)
    cube = known.set_index(["place", "day", "hour"])["number"].to_xarray()
    with_holes, _ = model.complete(cube, return_std=True)
    assert with_holes.dims == cube.dims
    assert not np.isnan(with_holes).any()
    assert np.array_equal(with_holes.values[~np.isnan(cube)], cube.values[~np.isnan(cube)])
    first = hidden.iloc[[0]]
    cell = {column: first[column].item() for column in ("place", "day", "hour")}
    assert with_holes.sel(cell).item() == pytest.approx(model.predict(first)[0], abs=1e-5)
    with pytest.raises(InputError, match="a DataArray of xarray with the dimensions place, hour"):
        model.complete(known)
    again = model.set_params(warm_start=True, iterations=150).fit(known)
    assert again.run_.config.iterations == 150


def test_clicks_have_no_arrangement_to_choose(tmp_path):
    """Their criterion ranks items, which differ between arrangements."""
    frame = table("cells")[["place", "day", "hour"]][::3]
    frame.to_csv(tmp_path / "clicks.csv", index=False)
    columns = "user=place,item=hour,context=day,rating=none"
    assert (
        typed("prepare", tmp_path / "clicks.csv", tmp_path / "t.h5", "--columns", columns).code == 0
    )
    result = typed("sample", tmp_path / "t.h5", "--out", tmp_path / "run", "--model", "auto")
    assert result.code == 2
    assert "say on which side the third column is" in result.err
    with pytest.raises(InputError, match="give one of them"):
        BPMF(user="a", item="b", context="c", columns="context=d").fit(frame)


def test_a_data_array_of_three_dimensions_is_filled(tmp_path):
    """`fit` takes it, whole days are held out as asked, and it comes back without holes."""
    frame = table("days")
    cube = frame[~frame["hidden"]].set_index(["place", "day", "hour"])["number"].to_xarray()
    options = {"likelihood": "gaussian"}
    few = {"noise": "shared", "implicit_features": "no", "until": "none", "options": options}
    with pytest.raises(InputError, match="user='place', item='day', context='hour'"):
        BPMF().fit(cube)
    model = BPMF(
        user="place",
        item="hour",
        context="day",
        hold_out_by=["place", "day"],
        test_fraction=0.1,
        iterations=120,
        burn_in=40,
        **few,
    )
    filled = model.fit_transform(cube)
    assert filled.dims == cube.dims
    assert not np.isnan(filled).any()
    with model.run_.open_ratings() as ratings:
        assert ratings.grouped
    truth = frame.set_index(["place", "day", "hour"])["number"].to_xarray()
    error = (filled - truth).values[np.isnan(cube.values)]
    assert np.sqrt(np.mean(error**2)) < 0.8 * frame["number"].std()
