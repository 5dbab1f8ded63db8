"""`dsgmcmc evaluate RUN RATINGS` scores the ratings in a file, as Python does those in memory."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support import typed
from test_columns_of_runs import COLUMNS, SHORT, measured, trips

from dsgmcmc import BPMF, open_run
from dsgmcmc.errors import InputError
from dsgmcmc.prepare.prepare import prepare_ratings

pytestmark = pytest.mark.filterwarnings("ignore::dsgmcmc.errors.RunWarning")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on weighted ratings, some of which are bounds, in columns that need to be named."""
    path = tmp_path_factory.mktemp("named") / "run"
    BPMF(**SHORT, columns=COLUMNS, out=path).fit(measured())
    return path


def scores_of(*arguments: str | Path) -> dict[str, Any]:
    """The scores that the command prints as JSON."""
    scores: dict[str, Any] = json.loads(typed("evaluate", *arguments, "--json").expect(0).out)
    scores["coverage"] = {float(level): share for level, share in scores["coverage"].items()}
    return scores


@pytest.mark.parametrize("name", ["new.csv", "new.csv.gz", "new.parquet", "new.json"])
def test_a_file_has_the_scores_of_its_data_frame(run: Path, tmp_path: Path, name: str) -> None:
    """Names, weights and bounds are in the columns that the run's ratings had."""
    new = measured()[:60]
    file = tmp_path / name
    if name.endswith("parquet"):
        new.to_parquet(file)
    elif name.endswith("json"):
        file.write_text("\n".join(json.dumps(row) for row in new.to_dict("records")))
    else:
        new.to_csv(file, index=False)
    expected = open_run(run).evaluate(new)
    assert expected["bounded"]
    assert scores_of(run, file) == {**expected, "unknown": 0, "trained": 60}
    assert open_run(run).evaluate(file) == expected
    assert open_run(run).score(str(file)) == open_run(run).score(new)
    shown = typed("evaluate", run, file).expect(0).out
    assert f"60 ratings, {expected['bounded']} of which count in log scores alone" in shown
    assert f"{expected['rmse']:.4f}" in shown


def test_other_columns_can_be_named(run: Path, tmp_path: Path) -> None:
    """By name or, without a header, by position."""
    new = measured()[:60][["sku", "buyer", "logged", "w"]]
    expected = open_run(run).evaluate(new)
    new.set_axis(list("abcd"), axis=1).to_csv(tmp_path / "named.csv", index=False)
    new.to_csv(tmp_path / "bare.csv", index=False, header=False)
    of_named = scores_of(
        run, tmp_path / "named.csv", "--columns", "user=b,item=a,rating=c,weight=d"
    )
    of_bare = scores_of(run, tmp_path / "bare.csv", "--columns", "user=2,item=1,rating=3,weight=4")
    assert of_named == of_bare == {**expected, "unknown": 0, "trained": 60}


def test_unknown_names_are_refused_or_predicted_from_the_prior(run: Path, tmp_path: Path) -> None:
    """As `predict` does; integers may have been written as floats."""
    new = measured()[:6].astype({"buyer": float})
    new.loc[0, "buyer"] = 99
    new.loc[1, "sku"] = 77
    file = tmp_path / "new.csv"
    new.to_csv(file, index=False)
    message = typed("evaluate", run, file).expect(2).err
    assert f"{file}: one user is unknown to the run: 99" in message
    assert "one item is unknown to the run: 77" in message
    assert "--unknown prior" in message
    scores = scores_of(run, file, "--unknown", "prior")
    assert scores.pop("unknown") == 2
    assert scores.pop("trained") == 4
    assert scores == open_run(run).evaluate(new)
    assert (
        "2 of the ratings are of unknown users or items"
        in typed("evaluate", run, file, "--unknown", "prior").expect(0).out
    )


def test_ratings_of_training_are_counted(tmp_path: Path) -> None:
    """Their scores are better than those of new ones; a missing ratings file is said to be so."""
    rated = np.random.default_rng(0).random((12, 30)) < 0.8
    users, items = np.nonzero(rated)
    frame = pd.DataFrame({"user": users, "item": items, "rating": 1.0 + (users + items) % 5})
    run = tmp_path / "run"
    frame.to_csv(tmp_path / "old.csv", index=False)
    prepare_ratings([tmp_path / "old.csv"], tmp_path / "r.h5", test_fraction=0.0)
    BPMF(**SHORT, out=run).fit(tmp_path / "r.h5")
    users, items = np.nonzero(~rated)
    new = pd.DataFrame({"user": users, "item": items, "rating": 3.0})
    file = tmp_path / "new.csv"
    for part in (new, frame.iloc[:7], frame.iloc[-3:]):  # a user's rows alone are read
        pd.concat([part, new]).to_csv(file, index=False)
        trained = len(part) if part is not new else 0
        assert scores_of(run, file)["trained"] == trained
        warned = f"{trained} of the ratings were in training" in typed("evaluate", run, file).err
        assert warned == (trained > 0)
    (tmp_path / "r.h5").rename(tmp_path / "moved.h5")
    assert scores_of(run, file)["trained"] is None
    assert "--data says where" in typed("evaluate", run, file).expect(0).err
    assert scores_of(run, file, "--data", tmp_path / "moved.h5")["trained"] == 3
    (tmp_path / "r.h5").write_bytes(b"")
    assert "r.h5" in typed("evaluate", run, file, "--data", tmp_path / "r.h5").expect(2).err


def test_what_does_not_go_together_is_refused(run: Path, tmp_path: Path) -> None:
    """Settings of rankings with a file, those of a file without one, and a file without ratings."""
    file = tmp_path / "new.csv"
    measured()[["buyer", "sku"]].to_csv(file, index=False)
    for option in (("--at", "5"), ("--liked", "1"), ("--all",)):
        assert f"leave out {option[0]}" in typed("evaluate", run, file, *option).expect(2).err
    for option in (("--unknown", "prior"), ("--columns", "user=a")):
        message = typed("evaluate", run, *option).expect(2).err
        assert f"give RATINGS, or leave out {option[0]}" in message
    assert "pairs without ratings" in typed("evaluate", run, file).expect(2).err
    with pytest.raises(InputError, match="leave out y"):
        open_run(run).evaluate(file, np.ones(6))


def test_names_of_parts_are_read_from_their_columns(tmp_path: Path) -> None:
    """Also of a table of three directions, in the arrangement of the run."""
    frame = trips()
    file = tmp_path / "new.csv"
    new = frame[["hour", "station", "rating", "day"]][:30]
    new.to_csv(file, index=False)
    for number, names in enumerate(
        [
            {"user": ["station", "day"], "item": "hour"},
            {"user": "station", "item": "hour", "context": "day"},
        ]
    ):
        path = tmp_path / f"run{number}"
        settings: dict[str, Any] = {**SHORT, **names}
        if "context" in names:
            settings = {**names, "model": "auto", "rank": 0, "options": {"save_draws": 2}}
        model = BPMF(**settings, out=path).fit(frame)
        assert scores_of(path, file) == {**model.evaluate(new), "unknown": 0, "trained": 30}


def test_clicks_have_rankings_alone(tmp_path: Path) -> None:
    """The message names the command that compares them."""
    clicks = measured()[["buyer", "sku"]].assign(rating=1)
    options = {**SHORT, "options": {"likelihood": "all-cells", "save_draws": 2}}
    BPMF(**options, columns="user=buyer,item=sku", out=tmp_path / "run").fit(clicks)
    clicks.to_csv(tmp_path / "new.csv", index=False)
    message = typed("evaluate", tmp_path / "run", tmp_path / "new.csv").expect(2).err
    assert "compare rankings by dsgmcmc evaluate RUN" in message


def test_a_matrix_is_known_by_its_items(tmp_path: Path) -> None:
    """Its cells are scored as in Python; bounds are bounds, and holes are none."""
    values = np.random.default_rng(3).normal(5, 1, (20, 6)).round(2)
    values[::3, 2] = np.nan
    wide = pd.DataFrame(values, columns=[f"g{k}" for k in range(6)])
    wide.index = pd.Index([f"c{k}" for k in range(20)], name="compound")
    model = BPMF(**SHORT, matrix=True, out=tmp_path / "run").fit(wide)
    new = wide.astype(object)[:8]
    new.iloc[1, 1] = "<4"
    new.to_csv(tmp_path / "new.csv", na_rep="n/a")
    expected = {**model.evaluate(new), "unknown": 0, "trained": 45}
    assert expected["bounded"] == 1
    assert scores_of(tmp_path / "run", tmp_path / "new.csv") == expected
