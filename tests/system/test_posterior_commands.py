"""predict, recommend, export and info --diagnostics as users start them: files, pipes, exit codes,
messages.
"""

import json
import re
import shutil
import signal
from pathlib import Path

import duckdb
import numpy as np
import pytest
from runs import SETTINGS, Made, make_run
from support import Running, dsgmcmc, options_of, typed, write_cells

from dsgmcmc import open_run
from dsgmcmc.errors import InputError


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Made:
    return make_run(tmp_path_factory.mktemp("run"), strings=False, iterations=70, chains=2)


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Made:
    """Names that need quoting, items as rows."""
    return make_run(
        tmp_path_factory.mktemp("text"), users=18, items=40, strings=True, iterations=60
    )


def table(path: Path) -> list[dict[str, str]]:
    """Rows of a CSV or Parquet file."""
    read = f"read_csv('{path}', all_varchar=true)"
    if path.suffix == ".parquet":
        read = f"read_parquet('{path}')"
    return duckdb.sql(f"FROM {read}").df().to_dict("records")


def pairs(made: Made, path: Path, n: int = 25) -> Path:
    """CSV with the columns in an unusual order, and one of the user's own."""
    rng = np.random.default_rng(0)
    users, items = (sorted(set(made.ratings[:, k].tolist())) for k in (0, 1))
    rows = [(items[rng.integers(len(items))], k, users[rng.integers(len(users))]) for k in range(n)]
    quoted = [['"' + str(field).replace('"', '""') + '"' for field in row] for row in rows]
    path.write_text(
        "movieId,note, mine,userId\n" + "".join(f"{i},{k},,{u}\n" for i, k, u in quoted),
        encoding="utf-8",
    )
    return path


@pytest.mark.parametrize("which", ["made", "text"])
def test_predict_keeps_rows_columns_and_their_order(which, request, tmp_path):
    """From CSV to CSV and Parquet, and from Parquet: the same numbers beside the same rows."""
    made = request.getfixturevalue(which)
    source = pairs(made, tmp_path / "pairs.csv")
    typed("predict", made.path, source, "-o", tmp_path / "out.csv").expect()
    rows = table(tmp_path / "out.csv")
    asked = table(source)
    assert [{k: v for k, v in row.items() if k in asked[0]} for row in rows] == asked
    assert list(rows[0]) == [*asked[0], "mean", "sd", "q05", "q95"]
    for row in rows:
        assert float(row["q05"]) < float(row["mean"]) < float(row["q95"])
    duckdb.sql(
        f"COPY (SELECT * FROM read_csv('{source}', all_varchar=true)) TO '{tmp_path}/in.parquet'"
    )
    typed("predict", made.path, tmp_path / "in.parquet", "-o", tmp_path / "out.parquet").expect()
    again = [float(row["sd"]) for row in table(tmp_path / "out.parquet")]
    assert again == pytest.approx([float(row["sd"]) for row in rows], rel=1e-6)


PREDICT = ["predict", "RUN", "pairs.csv", "-o", "out.csv"]


@pytest.mark.parametrize(
    ("content", "arguments", "message"),
    [
        ("", PREDICT, "is empty"),
        ("user,item\n", PREDICT, "no pairs"),
        ("user,item\n3,1000\n3\n3,1000,7\n", PREDICT, "line 3"),
        (
            "user,item\n3,2.5\n",
            PREDICT,
            "not an integer like the .* names in the run.*\n  line 2: user 3, item 2.5",
        ),
        *(
            (
                f"user,item\n{name},1000\n",
                PREDICT,
                f"not an integer .*\n  line 2: user {re.escape(name)}, item",
            )
            for name in ("1_0", "003", "+3", "3e0", "0x3", "٣", "inf", "nan")
        ),
        ("", ["recommend", "RUN", "--user", "0_3"], "integer names; found 0_3"),
        ('{"user": 3, "item": 1000, "x": 1, "X": 2}', PREDICT, "two columns have the same name"),
        ("user,item,mean\n3,1000,1\n", PREDICT, "rename it"),
        (
            "sku,userId\n1000,3\n",
            PREDICT,
            r"cannot tell which column is item \(columns sku, userId\); name them with",
        ),
        ("", ["recommend", "RUN"], "--user ID"),
        ("", ["recommend", "RUN", "--all"], "--out"),
        ("", ["recommend", "RUN", "--user", "12345"], "one user is unknown to the run: 12345"),
        ("", ["recommend", "RUN", "--all", "-o", "x.xlsx"], "suffix"),
        ("", ["predict", "RUN", "nowhere.csv"], "does not exist"),
        (
            "user,item\n3,1000\n",
            ["predict", "RUN", "pairs.csv", "-o", "./pairs.csv"],
            "is the input",
        ),
        (
            "2,1\n",
            [*PREDICT, "--columns", "user=2,item=1"],
            "one user is unknown to the run: 1; one item",
        ),
        ("", ["predict", "RUN", "nowhere.csv", "--interval", "2"], "interval"),
        ("", ["predict", "DATA", "nowhere.csv"], "is not a run directory"),
    ],
)
def test_bad_pairs_and_arguments_are_refused(
    made, tmp_path, monkeypatch, content, arguments, message
):
    """One message says what is wrong and in which line, and no file is written."""
    monkeypatch.chdir(tmp_path)
    Path("pairs.csv").write_text(content)
    places = {"RUN": str(made.path), "DATA": str(made.data)}
    refused = typed(*(places.get(argument, argument) for argument in arguments)).expect(2)
    assert re.search(message, refused.err)
    assert [path.name for path in tmp_path.iterdir()] == ["pairs.csv"]


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("{user},{item}\n", []),
        ("movie,userId\n{item},{user}\n", []),
        ("sku,userId\n{item},{user}\n", ["--columns", "item=sku"]),
        (",user,item\n7, {user},{item}.0\n", []),
        ("RowID,user,item\n7,{user},{item}\n", []),
        ("{item},{user}\n", ["--columns", "user=2,item=1"]),
    ],
)
def test_columns_of_pairs(made, tmp_path, text, columns):
    """Columns that are named come first, then known names; without a header a file has users, then
    items.

    Standard output has the table alone; the number of pairs goes to standard error.
    """
    names = {"user": made.users[3], "item": made.items[5]}
    expected = open_run(made.path).predict([[*names.values()]])
    (tmp_path / "pairs.csv").write_text(text.format(**names))
    done = typed("predict", made.path, tmp_path / "pairs.csv", *columns, "--json").expect()
    header, line = done.out.splitlines()
    assert header.endswith(",mean,sd,q05,q95")
    assert float(line.split(",")[header.split(",").index("mean")]) == pytest.approx(
        expected[0], rel=1e-4
    )
    assert json.loads(done.err) == {"pairs": 1, "unknown": 0}


def test_recommend_writes_what_it_prints(made, tmp_path):
    """The file's columns, the table, and JSON; titles from a file of items."""
    titles = tmp_path / "movies.dat"
    titles.write_text("".join(f"{name}::Film {name}::X\n" for name in made.items))
    user = made.users[0]
    typed("recommend", made.path, "--all", "--top", "3", "-o", tmp_path / "top.csv").expect()
    rows = [row for row in table(tmp_path / "top.csv") if row["user_id"] == str(user)]
    assert [row["rank"] for row in rows] == ["1", "2", "3"]
    arguments = ("recommend", made.path, "--user", str(user), "--top", "3", "--items", titles)
    printed = json.loads(typed(*arguments, "--json").expect().out)
    assert [str(line["item_id"]) for line in printed] == [row["item_id"] for row in rows]
    assert printed[0]["item_name"] == f"Film {printed[0]['item_id']}"
    shown = typed(*arguments).expect().out
    assert all(line["item_name"] in shown for line in printed)


def test_diagnostics_are_printed_and_are_json(made):
    """For people and for scripts."""
    shown = typed("info", made.path, "--diagnostics").expect().out
    assert "R-hat" in shown
    assert "stochastic-gradient" in shown
    facts = json.loads(typed("info", made.path, "--diagnostics", "--json").expect().out)
    assert facts["convergence"]["chains"] == 2
    assert set(facts["calibration"]["coverage"]) == {"0.5", "0.8", "0.9", "0.95"}


def test_a_count_of_0_where_training_has_none(tmp_path):
    """It has probability 0: as a test rating it is named and the log score is -inf; as a new rating
    it is refused.
    """
    i, j = (side.ravel() for side in np.indices((23, 20)))
    held = (i + j) % 5 == 0
    x = np.random.default_rng(0).poisson(2.0, len(i)) + np.where(held, 0.0, 1.0)
    data = write_cells(tmp_path / "x.h5", (23, 20), i, j, x, held)
    out = tmp_path / "run"
    zeros = np.count_nonzero(x == 0)
    number = np.count_nonzero(held)
    options = options_of(
        {**SETTINGS, "grid": 2, "likelihood": "negative-binomial", "sampler": "baoab"}
    )
    done = typed("sample", data, "--out", out, *options).expect()
    assert f"{zeros} of {number} test ratings are 0, and no training rating is" in done.err
    assert f"log score of the test ratings -inf: {zeros} of {number} have probability 0" in done.out
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert (
        summary["impossible"],
        summary["log_probability"],
        summary["log_predictive_density"],
    ) == (zeros, None, None)
    shown = typed("info", out, "--diagnostics").expect()
    assert re.search(r"log probability of the recorded rating +-inf", shown.out)
    model = open_run(out).fold_in([[0, 1]], [3])
    before = model.predict([[0, 2], [1, 2]])
    for change in (model.update, model.fold_in):
        with pytest.raises(
            InputError, match=r"1 new ratings are 0, and no training rating of the run is"
        ):
            change([[0, 1], [0, 3]], [0, 2])
    np.testing.assert_array_equal(model.predict([[0, 2], [1, 2]]), before)


def test_a_header_with_names_of_its_own_is_no_pair(text, tmp_path):
    """It is refused with a hint also where unknown names are predicted; columns that are named or
    counted say which.
    """
    source = tmp_path / "pairs.csv"
    out = tmp_path / "out.csv"
    source.write_text(
        "compound,assay\n" + "".join(f'"{u}",item {k}\n' for k, u in enumerate(text.users[:3]))
    )
    done = typed("predict", text.path, source, "-o", out, "--unknown", "prior").expect(2)
    assert "knows neither name in line 1 (compound, assay)" in done.err
    assert not out.exists()
    for columns, rows in (("user=compound,item=assay", 3), ("user=1,item=2", 4)):
        typed(
            "predict", text.path, source, "-o", out, "--unknown", "prior", "--columns", columns
        ).expect()
        assert len(table(out)) == rows
    assert list(table(out)[0])[:2] == ["user", "item"]


def test_a_run_does_not_become_shorter(made, tmp_path):
    """--resume to an iteration that is past is refused, and the run stays as it is."""
    out = shutil.copytree(made.path, tmp_path / "run")
    before = (out / "run.toml").read_bytes()
    done = typed("sample", made.data, "--out", out, "--resume", "--iterations", "50").expect(2)
    assert (
        "has made 70 iterations, and cannot end at iteration 50: give --iterations 70 or more"
        in done.err
    )
    assert "cannot predict" not in done.err
    assert (out / "run.toml").read_bytes() == before
    typed("sample", made.data, "--out", out, "--resume", "--iterations", "70").expect()


def test_names_and_ratings_that_are_not_used_are_said(made, tmp_path):
    """Unknown candidates, repeated pairs and ratings beyond the scale are notes, in Python and in
    commands.
    """
    model = open_run(made.path)
    (user, item) = made.ratings[0, :2].tolist()
    (tmp_path / "some.txt").write_text(f"{item}\n9999\n")
    done = typed(
        "recommend",
        made.path,
        "-u",
        str(user),
        "--include-rated",
        "--candidates",
        tmp_path / "some.txt",
    )
    assert "candidates: one item is unknown to the run: 9999" in done.expect().err
    with pytest.warns(match="candidates: one item is unknown to the run: 9999"):
        assert model.recommend(user, include_rated=True, candidates=[item, 9999])[
            "item_id"
        ].tolist() == [item]
    with pytest.warns(match="1 rating.s. left out: later ratings"):
        model.fold_in([[-1, item], [-1, item]], [3.0, 4.0])
    with pytest.warns(match="1 new rating.s. are outside the training ratings"):
        model.fold_in([[-1, item]], [900.0])


def test_a_stop_leaves_nothing_beside_the_output(made, tmp_path):
    """SIGTERM, as batch systems send it, ends a command as Ctrl-C does: its temporary folder
    goes.
    """
    users = "".join(
        f"{user},{item}\n" for user in made.users for item in made.items for _ in range(400)
    )
    (tmp_path / "pairs.csv").write_text("user,item\n" + users)
    with Running(
        dsgmcmc("predict", made.path, tmp_path / "pairs.csv", "-o", tmp_path / "out.csv")
    ) as running:
        running.until(lambda: list(tmp_path.glob(".dsgmcmc-prepare*")), "under way")
        running.signal(signal.SIGTERM)
        assert "interrupted" in running.wait().expect(130).err
    assert [path.name for path in tmp_path.iterdir()] == ["pairs.csv"]
