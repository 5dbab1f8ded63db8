"""Every option that changes what a file means is stored, shown by `info`, and holds later."""

import json
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from support import typed

from dsgmcmc.bpmf import BPMF
from dsgmcmc.errors import InputError
from dsgmcmc.posterior.fitted import open_run

pytestmark = [
    pytest.mark.filterwarnings("ignore::dsgmcmc.errors.RunWarning"),
    pytest.mark.filterwarnings("ignore:the mean of several measurements"),
]
SHORT = {"iterations": 20, "burn_in": 10, "options": {"save_draws": 5}}
CHAIN = ["--rank", "0", "--iterations", "20", "--burn-in", "10", "--save-draws", "5"]
RNG = np.random.default_rng(4)
TRUTH = np.round(RNG.normal(5, 1, (12, 1)) + RNG.normal(0, 0.2, (12, 6)), 2)
USERS = [f"p{i}" for i in range(12)]
ITEMS = [f"q{j}" for j in range(6)]


def wide(*above, items=ITEMS, more="", write=str, delimiter=","):
    """A matrix below some lines; `more` is a further field of every row."""
    lines = [*above, delimiter.join(["id", *items])]
    for user, row in zip(USERS, TRUTH.tolist(), strict=True):
        fields = [user, *map(write, row)]
        lines.append(delimiter.join([*fields, more + user] if more else fields))
    return "\n".join(lines) + "\n"


def long(*above, head="user,item,rating", step=None, write=str, delimiter=","):
    """A line for each rating, and with `step` a second one, which is larger by it."""
    lines = list(above)
    if head:
        lines.append(head.replace(",", delimiter))
    for user, row in zip(USERS, TRUTH.tolist(), strict=True):
        for item, x in zip(ITEMS, row, strict=True):
            steps = [0] if step is None else [0, step]
            lines += [delimiter.join([user, item, write(x + more)]) for more in steps]
    return "\n".join(lines) + "\n"


def comma(x):
    """Three decimals after a comma, which may be a thousand."""
    return f"{x:.3f}".replace(".", ",")


def below(text, line):
    """A text with a line below its first one."""
    return text.replace("\n", f"\n{line}\n", 1)


class Case(NamedTuple):
    """A file that is read right with some options, and by how much its mean is above the truth."""

    text: str
    options: dict
    above: float = 0.0


TITLE = "Trials of 2019,,,,,,"
CASES = {
    "decimal, matrix": Case(
        wide(write=comma, delimiter=";"), {"matrix": True, "decimal": ",", "ignore": "none"}
    ),
    "decimal": Case(long(write=comma, delimiter=";"), {"decimal": ","}),
    "columns": Case(
        long(head="plot,variety,harvest"), {"columns": "user=plot,item=variety,rating=harvest"}
    ),
    "columns with usual names": Case(
        long(head="item,user,rating"), {"columns": "user=item,item=user"}
    ),
    "columns by position": Case(long(head=""), {"columns": "user=2,item=1,rating=3"}),
    "columns of a matrix": Case(
        wide(items=[*ITEMS, "plot"], more="of "),
        {"matrix": True, "columns": "user=plot", "ignore": "id"},
    ),
    "columns of a matrix by position": Case(
        wide().split("\n", 1)[1], {"matrix": True, "columns": "user=1", "first_line": "ratings"}
    ),
    "ignore": Case(wide(items=[*ITEMS, "note"], more="of "), {"matrix": True, "ignore": "note"}),
    "lines above a matrix": Case(wide(TITLE, "by two,,,,,,"), {"matrix": True, "skip_rows": "1-2"}),
    "units": Case(below(wide(), ",t/ha" * 6), {"matrix": True, "skip_rows": "2"}),
    "a line above": Case(long("Trials,,"), {"skip_rows": "1"}),
    "units in a line": Case(below(long(), ",,t/ha"), {"skip_rows": "2"}),
    "first line, names": Case(wide(items=list("123456")), {"matrix": True, "first_line": "names"}),
    "first line, ratings": Case(
        wide().split("\n", 1)[1], {"matrix": True, "first_line": "ratings"}
    ),
    "duplicates, mean": Case(long(step=1), {"duplicates": "mean"}, above=0.5),
    "duplicates, first": Case(long(step=1), {"duplicates": "first"}),
    "duplicates, last": Case(long(step=1), {"duplicates": "last"}, above=1),
    "unit": Case(long(), {"unit": "t/ha"}),
}


def typed_options(options):
    """Options as one types them."""
    typed_ones = []
    for name, value in options.items():
        typed_ones.append(f"--{name.replace('_', '-')}")
        if value is not True:
            typed_ones.append(value)
    return typed_ones


@pytest.mark.parametrize("name", CASES)
def test_a_file_is_read_again_as_it_was(tmp_path, name):
    """By evaluate, in a run that is opened, and in one that was fitted; info shows the options."""
    text, options, above = CASES[name]
    path = tmp_path / "r.csv"
    path.write_text(text)
    data = tmp_path / "r.h5"
    run = tmp_path / "run"
    said = typed_options(options)
    typed("prepare", path, data, "--test-fraction", "0", *said).expect(0)
    typed("sample", data, "--out", run, *CHAIN).expect(0)
    scores = json.loads(typed("evaluate", run, path, "--json").expect(0).out)
    assert (scores["ratings"], scores["unknown"]) == (72, 0)
    for place in (run, data):
        shown = " ".join(typed("info", place).expect(0).out.split())
        for option, value in options.items():
            stated = f"--{option.replace('_', '-')}"
            assert (stated if value is True else f"{stated} {value}") in shown
    opened = open_run(run)
    assert opened.evaluate(path)["rmse"] == pytest.approx(scores["rmse"])
    fitted = BPMF(0, out=tmp_path / "fit", test_fraction=0, **SHORT, **options).fit(path)
    of_fit = open_run(tmp_path / "fit")
    assert of_fit.run_.reading.stored() == opened.run_.reading.stored()
    for model in (opened, fitted, of_fit):
        found = model.evaluate(path)
        assert found["ratings"] == 72
        assert found["rmse"] < 0.7
        assert model.score(path) > 0.5
        new = model.fold_in(path)._rows.new
        assert len(new.values) == 72
        assert np.mean(new.values) == pytest.approx(TRUTH.mean() + above, abs=1e-3)


def test_levels_are_shown(tmp_path):
    """Levels that users say are those of predictions, and are in what info shows."""
    path = tmp_path / "r.csv"
    path.write_text(
        "user,item,rating\n" + "".join(f"u{k % 9},i{k % 4},{2 + k % 3}\n" for k in range(36))
    )
    (tmp_path / "levels.csv").write_text(
        "item,lowest,highest\n" + "".join(f"i{k},1,5\n" for k in range(4))
    )
    typed("prepare", path, tmp_path / "r.h5", "--levels", tmp_path / "levels.csv").expect(0)
    assert "4 items have said levels, from 1 to 5" in " ".join(
        typed("info", tmp_path / "r.h5").expect(0).out.split()
    )


def test_other_lines_are_not_skipped(tmp_path):
    """A later file without the title has a row in this line; another title is asked for."""
    text, options, _ = CASES["lines above a matrix"]
    path = tmp_path / "r.csv"
    path.write_text(text)
    model = BPMF(0, test_fraction=0, **SHORT, **options).fit(path)
    path.write_text(wide())
    assert model.evaluate(path)["ratings"] == 72
    path.write_text(wide("Trials of 2020,,,,,,", "by two,,,,,,"))
    with pytest.raises(InputError, match="remove"):
        model.evaluate(path)


def test_a_frame_is_read_as_it_was(tmp_path):
    """Columns, marks of decimals and repeated ratings of data frames, in a run that is opened."""
    matrix = pd.DataFrame(TRUTH, USERS, ITEMS).map(comma)
    matrix.insert(0, "plot", [f"of {user}" for user in USERS])
    matrix = matrix.rename_axis("id").reset_index()
    options = {"matrix": True, "columns": "user=plot", "ignore": "id", "decimal": ","}
    fitted = BPMF(0, out=tmp_path / "matrix", test_fraction=0, **SHORT, **options).fit(matrix)
    for model in (fitted, open_run(tmp_path / "matrix")):
        assert model.evaluate(matrix)["ratings"] == 72
        assert model.evaluate(matrix)["rmse"] < 0.7
        filled = model.complete(matrix)[ITEMS].to_numpy(float)
        np.testing.assert_allclose(filled, TRUTH, rtol=1e-6)
    lines = pd.DataFrame(
        [
            [user, item, TRUTH[i, j] + k]
            for i, user in enumerate(USERS)
            for j, item in enumerate(ITEMS)
            for k in (0, 1)
        ],
        columns=["plot", "variety", "harvest"],
    )
    options = {"columns": "user=plot,item=variety,rating=harvest", "duplicates": "mean"}
    fitted = BPMF(0, out=tmp_path / "lines", test_fraction=0, **SHORT, **options).fit(lines)
    for model in (fitted, open_run(tmp_path / "lines")):
        assert model.evaluate(lines)["ratings"] == 72
        assert np.mean(model.fold_in(lines)._rows.new.values) == pytest.approx(TRUTH.mean() + 0.5)


def test_clicks_stay_clicks(tmp_path):
    """Ratings that were said to be none are clicks of later files and frames, too."""
    path = tmp_path / "r.csv"
    path.write_text(long())
    model = BPMF(0, test_fraction=0, out=tmp_path / "run", columns="rating=none", **SHORT).fit(path)
    for later in (model, open_run(tmp_path / "run")):
        for X in (path, pd.read_csv(path)):
            assert (later.fold_in(X)._rows.new.values == 1).all()


def test_a_code_may_be_a_rating_of_a_later_file(tmp_path):
    """An empty list of codes holds for files, as for frames."""
    path = tmp_path / "r.csv"
    path.write_text(long() + "p0,q7,99\n")
    model = BPMF(0, test_fraction=0, missing=99, **SHORT).fit(path)
    assert model.evaluate(path)["ratings"] == 72
    model.missing = []
    model.unknown = "prior"
    assert model.evaluate(path)["ratings"] == 73


def test_options_of_text_hold_for_text(tmp_path):
    """A run of text with a title reads Parquet later, which has no lines."""
    text, options, _ = CASES["lines above a matrix"]
    path = tmp_path / "r.csv"
    path.write_text(text)
    model = BPMF(0, test_fraction=0, **SHORT, **options).fit(path)
    frame = pd.DataFrame(TRUTH, USERS, ITEMS).rename_axis("id").reset_index()
    frame.to_parquet(tmp_path / "r.parquet")
    assert model.evaluate(tmp_path / "r.parquet")["ratings"] == 72


def test_pairs_without_a_header_are_asked_for(tmp_path):
    """Items were in the first column of the ratings: those of pairs may be in either."""
    data = tmp_path / "r.csv"
    data.write_text(long(head=""))
    typed("prepare", data, tmp_path / "r.h5", "--columns", "user=2,item=1,rating=3").expect(0)
    typed("sample", tmp_path / "r.h5", "--out", tmp_path / "run", *CHAIN).expect(0)
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("p0,q1\np3,q2\n")
    failed = typed("predict", tmp_path / "run", pairs, "-o", tmp_path / "1.csv").expect(2).err
    assert "--columns user=2,item=1" in " ".join(failed.split())
    said = ["--columns", "user=2,item=1"]
    typed("predict", tmp_path / "run", pairs, "-o", tmp_path / "2.csv", *said).expect(0)
    pairs.write_text("user,item\nq1,p0\nq2,p3\n")
    typed("predict", tmp_path / "run", pairs, "-o", tmp_path / "3.csv").expect(0)
    found = [pd.read_csv(tmp_path / f"{k}.csv", header=None).iloc[-1, 2:] for k in (2, 3)]
    assert found[0].astype(float).tolist() == found[1].astype(float).tolist()


def test_a_column_that_was_said_by_position_is_found_by_its_name(tmp_path):
    """The names of rows may be in another place of a later matrix."""
    path = tmp_path / "r.csv"
    path.write_text(wide(items=[*ITEMS, "plot"], more="of "))
    options = {"matrix": True, "columns": "user=8", "ignore": "id"}
    model = BPMF(0, test_fraction=0, out=tmp_path / "run", **SHORT, **options).fit(path)
    frame = pd.read_csv(path)
    frame[["plot", "id", *ITEMS]].to_csv(path, index=False)
    opened = open_run(tmp_path / "run")
    assert opened.evaluate(path)["ratings"] == 72
    assert opened.evaluate(path)["rmse"] == pytest.approx(model.evaluate(frame)["rmse"])
