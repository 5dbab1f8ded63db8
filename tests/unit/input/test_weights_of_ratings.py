"""A column of weights, in files and in data frames."""

import json

import numpy as np
import pandas as pd
import pytest
from cases import pairs_of
from ingest_cases import prepare
from support import typed

from dsgmcmc import BPMF, RunWarning
from dsgmcmc.errors import InputError
from dsgmcmc.ratings.file import Ratings

ROWS = [(1, 1, 3.0, 0.5), (1, 2, 4.0, 2.0), (2, 1, 5.0, 1.0), (2, 2, 1.5, 8.0), (3, 1, 2.0, 1.5)]
COLUMNS = "weight=precision"


def text_of(rows: list[tuple]) -> str:
    """CSV with a header."""
    lines = [",".join(map(str, row)) for row in rows]
    return "\n".join(["user,item,rating,precision", *lines, ""])


def weights_of(path) -> dict[tuple, float]:
    """Weight of every training rating, by user and item, as the file has them."""
    with Ratings(path) as ratings:
        ratings.verify()
        slab = ratings.slab("train", 0, ratings.n_rows)
        pairs = pairs_of(ratings, slab)
        stored = ratings.stored_weights("train", 0, ratings.n_rows).tolist()
        assert slab.weights.mean() == pytest.approx(1)
    return dict(zip(pairs, stored, strict=True))


def test_weights_go_with_their_ratings(tmp_path):
    """They are stored as given; the reader divides them by their mean over the training ratings."""
    summary = prepare(tmp_path, text_of(ROWS), columns=COLUMNS, test_fraction=0)
    assert weights_of(tmp_path / "out.h5") == {row[:2]: row[3] for row in ROWS}
    assert "weight precision" in summary.columns


def test_info_says_that_ratings_have_weights(tmp_path):
    """And that pairs have replicates: a run on such a file is another run."""
    rows = [*ROWS, (1, 1, 2.5, 3.0)]
    prepare(tmp_path, text_of(rows), columns=COLUMNS, duplicates="keep", test_fraction=0)
    mean = sum(row[3] for row in rows) / len(rows)
    words = typed("info", tmp_path / "out.h5").out.split()
    assert words[words.index("weights") :][:3] == ["weights", "mean", f"{mean:.5g}"]
    facts = json.loads(typed("info", tmp_path / "out.h5", "--json").out)
    assert facts["replicates"] == 1
    assert facts["mean_weight"] == pytest.approx(mean)


@pytest.mark.parametrize(("choice", "expected"), [("last", 3.0), ("first", 0.5)])
def test_a_chosen_rating_brings_its_weight(tmp_path, choice, expected):
    """The weight is that of the measurement that is used."""
    rows = [*ROWS, (1, 1, 2.5, 3.0)]
    prepare(tmp_path, text_of(rows), columns=COLUMNS, duplicates=choice, test_fraction=0)
    assert weights_of(tmp_path / "out.h5")[1, 1] == expected


def test_a_mean_has_no_weight(tmp_path):
    """Means of measurements of different precision would need another formula: keep them."""
    with pytest.raises(InputError, match=r"duplicates=?'? ?mean.*keep"):
        prepare(tmp_path, text_of([*ROWS, (1, 1, 2.5, 3.0)]), columns=COLUMNS, duplicates="mean")


@pytest.mark.parametrize("wrong", ["-1", "", "much", "inf", "1e300", "1e-300"])
def test_wrong_weights_are_refused_with_their_line(tmp_path, wrong):
    """A weight is a number above 0, also in float32; 0 leaves its rating out."""
    rows = [*ROWS, (3, 2, 2.5, wrong)]
    with pytest.raises(InputError, match=r"line 7: the weight is missing or not a number above 0"):
        prepare(tmp_path, text_of(rows), columns=COLUMNS)


def test_a_file_without_weights_beside_one_with_them_is_refused(tmp_path):
    """Ratings without weights would count as of some precision."""
    (tmp_path / "test.csv").write_text("user,item,rating\n3,2,4\n")
    with pytest.raises(InputError, match="weight"):
        prepare(tmp_path, text_of(ROWS), columns=COLUMNS, test=str(tmp_path / "test.csv"))


def test_a_data_frame_has_the_weights_of_a_file(tmp_path):
    """`BPMF` reads the column that its `columns` names, and names the row of a wrong one."""
    frame = pd.DataFrame(ROWS, columns=["user", "item", "rating", "precision"])
    model = BPMF(columns=COLUMNS, iterations=4, burn_in=2, rank=0, out=tmp_path / "run")
    model.fit(frame)
    assert weights_of(tmp_path / "run.ratings.h5") == {row[:2]: row[3] for row in ROWS}


def test_pairs_may_have_weights_beside_their_ratings(tmp_path):
    """With `y`, the frame of users and items has the column of weights."""
    frame = pd.DataFrame(ROWS, columns=["user", "item", "rating", "precision"])
    model = BPMF(columns=COLUMNS, iterations=4, burn_in=2, rank=0, out=tmp_path / "run")
    model.fit(frame[["user", "item", "precision"]], frame["rating"])
    assert weights_of(tmp_path / "run.ratings.h5") == {row[:2]: row[3] for row in ROWS}


@pytest.mark.parametrize("wrong", [-1, np.nan, np.inf, 1e300, 1e-300])
def test_wrong_weights_of_a_data_frame_are_refused_with_their_row(wrong):
    """With the row, its user and item, as in a file; 0 leaves its rating out."""
    frame = pd.DataFrame(ROWS, columns=["user", "item", "rating", "precision"])
    frame.loc[2, "precision"] = wrong
    with pytest.raises(InputError, match=r"row 2 .*weight is missing or not a number above 0"):
        BPMF(columns=COLUMNS).fit(frame)


def weighted_clicks(shape: tuple[int, int]) -> pd.DataFrame:
    """Ratings of 0 and 1 for two pairs in three of a matrix, with weights of 1 and 2."""
    pairs = [(i, j) for i, j in np.ndindex(*shape) if (i + j) % 3]
    return pd.DataFrame(
        [(f"u{i}", f"i{j}", (i * j + j) % 2, 1 + j % 2) for i, j in pairs],
        columns=["user", "item", "rating", "precision"],
    )


def test_two_values_with_weights_are_sampled_and_compared_by_default(tmp_path):
    """The default of two values does not take weights; a warning says how to have it."""
    file = tmp_path / "two.csv"
    weighted_clicks((30, 20)).to_csv(file, index=False)
    data = tmp_path / "two.h5"
    assert typed("prepare", file, data, "--columns", COLUMNS).code == 0
    short = ["--rank", "1", "--iterations", "30", "--burn-in", "10"]
    sampled = typed("sample", data, "--out", tmp_path / "run", *short)
    assert sampled.code == 0
    assert "ordinal-logit, which does not take their weights" in sampled.err
    assert "weight= in --columns" in sampled.err
    compared = typed("compare", data, "--out", tmp_path / "best.toml", "--set", "rank=0")
    assert compared.code == 0
    assert 'likelihood = "gaussian"' in (tmp_path / "best.toml").read_text()


def test_two_values_with_weights_are_fitted_by_default():
    """The warning names the argument in Python."""
    model = BPMF(columns=COLUMNS, rank=1, iterations=30, burn_in=10)
    with pytest.warns(RunWarning, match="does not take their weights.*weight= in columns"):
        model.fit(weighted_clicks((30, 20)))
    assert model.run_.config.likelihood == "gaussian"


@pytest.mark.parametrize("masked", [2.0, np.nan])
def test_a_weight_of_0_leaves_out(tmp_path, masked):
    """Its rating, which may be missing, says nothing; it is counted, in files and in frames."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame([(i, j, 3.0 + i, 1.0) for i in range(6) for j in range(4)])
    frame.columns = ["user", "item", "rating", "precision"]
    frame["rating"] += rng.normal(0, 0.1, 24)
    frame.loc[[2, 7, 9], "precision"] = 0.0
    frame.loc[[2, 7, 9], "rating"] = masked
    kept = frame[frame.precision > 0]
    for rows in (frame, kept):
        rows.to_csv(tmp_path / f"{len(rows)}.csv", index=False)
    option = ("--columns", COLUMNS, "--json")
    found = json.loads(typed("prepare", tmp_path / "24.csv", tmp_path / "a.h5", *option).out)
    right = json.loads(typed("prepare", tmp_path / "21.csv", tmp_path / "b.h5", *option).out)
    assert found["content_sha256"] == right["content_sha256"]
    assert (found["missing"], found["ratings"]) == (3, 21)
    assert "3 ratings have the weight 0 and are left out" in found["doubts"]
    text = typed("prepare", tmp_path / "24.csv", tmp_path / "c.h5", "--columns", COLUMNS).out
    assert "3 ratings of weight 0" in text
    model = BPMF(rank=0, iterations=20, burn_in=10, columns=COLUMNS)
    with pytest.warns(UserWarning, match="3 ratings have the weight 0"):
        model.fit(frame)
    assert model.evaluate(frame)["ratings"] == 21
