"""Whole groups that were held out: the correlation within them, in Python and by commands."""

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest
from scipy.stats import pearsonr
from sklearn.metrics import make_scorer
from sklearn.model_selection import GroupKFold, LeaveOneGroupOut, cross_val_score
from support import typed

from dsgmcmc import BPMF, open_run
from dsgmcmc.ratings.file import Ratings

pytestmark = pytest.mark.filterwarnings("ignore::dsgmcmc.errors.RunWarning")

SHORT: dict[str, Any] = {
    "rank": 1,
    "iterations": 120,
    "burn_in": 40,
    "until": "none",
    "duplicates": "keep",
    "options": {"likelihood": "gaussian"},
}
COLUMNS = "user=variety,item=environment,rating=yield"


def plots() -> pd.DataFrame:
    """Yields of 40 varieties in 12 environments of 3 years, in two plots each."""
    rng = np.random.default_rng(0)
    mean = rng.normal(0, 1, (40, 1)) + rng.normal(0, 1, 12) + rng.normal(0, 0.3, (40, 12))
    cells = [(i, j) for i in range(40) for j in range(12) if rng.random() < 0.7 for _ in range(2)]
    table = pd.DataFrame(cells, columns=["variety", "environment"])
    table["year"] = 2001 + table["environment"] % 3
    table["yield"] = np.round([mean[cell] + rng.normal(0, 0.4) for cell in cells], 3)
    return table


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> BPMF:
    """A model of which a quarter of the environments were held out."""
    path = tmp_path_factory.mktemp("groups")
    settings = SHORT | {"hold_out_by": "environment", "test_fraction": 0.25, "out": path / "run"}
    return BPMF(columns=COLUMNS, **settings).fit(plots())


def within(table: pd.DataFrame, by: str = "environment") -> list[float]:
    """Return the correlations of yields and predictions within groups."""
    return [pearsonr(of["yield"], of["predicted"]).statistic for _, of in table.groupby(by)]


def test_the_correlation_is_that_of_test_ratings_within_environments(model: BPMF) -> None:
    """It is what a user computes from predictions, also after the run was opened again."""
    run = model.run_
    users, items = run.test_pairs()
    with run.open_ratings() as ratings:
        held_out = sorted(
            {int(ratings.ids("cols")[c]) for c in ratings.columns("test", 0, ratings.n_rows)}
        )
    tested = plots()
    tested = tested[tested["environment"].isin(held_out)]
    assert len(tested) == len(users)
    assert sorted(set(run.items.ids[items].tolist())) == held_out
    tested["predicted"] = model.predict(tested[["variety", "environment"]])
    each = within(tested)
    for opened in (model, open_run(run.path)):
        by_group = opened.by_group_
        assert by_group["columns"] == ["environment"]
        assert by_group["groups"] == by_group["correlated_groups"] == len(held_out) == 3
        assert by_group["correlation"] == pytest.approx(np.mean(each), abs=1e-5)
        error = np.std(each, ddof=1) / np.sqrt(3)
        assert by_group["correlation_error"] == pytest.approx(error, abs=1e-5)
    evaluated = model.evaluate(tested.drop(columns="predicted"))
    assert evaluated["by_group"]["correlation"] == pytest.approx(np.mean(each), abs=1e-5)


def test_commands_say_it_first(model: BPMF, tmp_path: Path) -> None:
    """`info`, its diagnostics, `evaluate` and their --json."""
    path = model.run_.path
    by_group = model.by_group_
    mean = f"{by_group['correlation']:.4f} ± {by_group['correlation_error']:.4f}"
    first = typed("info", path).expect(0).out.splitlines()[1]
    assert first.startswith(f"correlation within environment {mean} (3 groups), RMSE of the")
    facts = json.loads(typed("info", path, "--json").expect(0).out)
    found = facts["summary"]["by_group"]
    assert found.pop("coverage_error") == by_group["coverage_error"]
    assert found.pop("columns") == by_group["columns"]
    for name, value in found.items():
        assert value == pytest.approx(by_group[name], rel=1e-9)
    shown = typed("info", path, "--diagnostics", "--json").expect(0).out
    assert json.loads(shown)["calibration"]["by_group"] == by_group
    plots().to_csv(tmp_path / "plots.csv", index=False)
    shown = typed("evaluate", path, tmp_path / "plots.csv").expect(0).out
    assert shown.index("correlation within environment") < shown.index("RMSE")
    shown = typed("evaluate", path, tmp_path / "plots.csv", "--json").expect(0).out
    assert json.loads(shown)["by_group"] == model.evaluate(plots())["by_group"]
    assert json.loads(shown)["by_group"]["groups"] == 12


@pytest.fixture
def by_year(tmp_path: Path) -> Path:
    """A ratings file of which a year was held out."""
    plots().to_csv(tmp_path / "plots.csv", index=False)
    arguments = ["--columns", COLUMNS, "--hold-out-by", "year", "--test-fraction", "0.3"]
    typed("prepare", tmp_path / "plots.csv", tmp_path / "t.h5", *arguments).expect(0)
    return tmp_path / "t.h5"


def sampled(ratings: Path) -> str:
    """Sample shortly, and return what was said."""
    short = ["--iterations", "60", "--burn-in", "20", "--until", "none", "--rank", "1"]
    return typed("sample", ratings, "--out", ratings.parent / "run", *short).expect(0).out


def test_groups_may_be_by_a_column_that_names_nothing(by_year: Path) -> None:
    """All environments of a year are held out; new ratings do not say their years."""
    said = sampled(by_year)
    assert "correlation within year 0." in said
    assert "(1 group), RMSE of the posterior mean" in said
    assert "standard errors" not in said
    model = open_run(by_year.parent / "run")
    by_group = model.by_group_
    assert by_group["columns"] == ["year"]
    assert by_group["groups"] == 1
    assert by_group["correlation_error"] is None
    assert by_group["correlation"] > 0.5
    assert "by_group" not in model.evaluate(plots())


def test_without_groups_there_are_no_scores_by_group() -> None:
    """Nor in a file of an earlier version, which does not know the groups of test ratings."""
    model = BPMF(columns=COLUMNS, **SHORT, test_fraction=0.1).fit(plots())
    assert model.by_group_ is None
    assert "by_group" not in model.evaluate(plots())


def test_a_file_without_groups_of_test_ratings_is_read(by_year: Path) -> None:
    """Earlier versions wrote the groups of training ratings only."""
    with h5py.File(by_year, "a") as file:
        del file["test/group"]
        del file.attrs["grouped_by"]
    with Ratings(by_year) as ratings:
        assert ratings.grouped
        assert ratings.grouped_by == ()
    assert "correlation within" not in sampled(by_year)


@pytest.mark.filterwarnings("ignore:.* unknown to the run")
@pytest.mark.parametrize("folds", [LeaveOneGroupOut(), GroupKFold(3)])
def test_each_environment_is_left_out_in_turn(folds: Any) -> None:
    """By scikit-learn's folds; the score of a fold of one environment is its correlation."""
    table = plots()
    pairs = table[["variety", "environment"]]
    few = {name: value for name, value in SHORT.items() if name != "duplicates"}
    model = BPMF(columns="user=variety,item=environment", **few, duplicates="keep")
    correlation = make_scorer(lambda truth, predicted: pearsonr(truth, predicted).statistic)
    arguments: dict[str, Any] = {"groups": table["environment"], "cv": folds}
    scores = cross_val_score(
        model, pairs, table["yield"], scoring=correlation, error_score="raise", **arguments
    )
    if isinstance(folds, GroupKFold):  # environments differ in their means
        assert len(scores) == 3
        assert scores.min() > 0.3
    else:
        assert len(scores) == 12
        assert scores.mean() > 0.8
