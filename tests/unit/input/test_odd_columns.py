"""Columns of a matrix that are no items are named, and `ignore` leaves them out."""

import json

import numpy as np
import pandas as pd
import pytest
from ingest_cases import everything
from support import typed

from dsgmcmc.bpmf import BPMF
from dsgmcmc.errors import InputError
from dsgmcmc.input.odd_columns import OddColumns, find_odd_columns
from dsgmcmc.posterior.fitted import open_run

pytestmark = pytest.mark.filterwarnings("ignore::dsgmcmc.errors.RunWarning")
RNG = np.random.default_rng(8)
N = 40
ABILITY = RNG.normal(size=(N, 1))
STARS = pd.DataFrame(
    np.clip(np.round(3 + ABILITY + RNG.normal(size=(N, 8))), 1, 5),
    [f"p{i}" for i in range(N)],
    [f"q{j}" for j in range(8)],
).mask(RNG.random((N, 8)) < 0.1)
MEASURED = pd.DataFrame(
    np.round(9 + ABILITY + RNG.normal(0, 0.4, (N, 6)), 2), STARS.index, [*"abcdef"]
)
ODD = {
    "a sample number": (STARS, "sample", RNG.permutation(N) + 3.0),
    "an age": (STARS, "age", RNG.integers(20, 80, N)),
    "a year": (STARS, "year", RNG.integers(1990, 2010, N)),
    "a sum": (STARS, "total", STARS.sum(axis=1)),
    "a mean": (MEASURED, "mean", MEASURED.mean(axis=1).round(2)),
    "one value": (MEASURED, "batch", np.full(N, 3.5)),
    "another unit": (MEASURED, "g", 300 * MEASURED["a"] + RNG.normal(size=N)),
    "flags": (MEASURED, "a_flag", RNG.integers(1, 3, N)),
}


def table(kind, place):
    """A matrix with an odd column, and the name of this column."""
    frame, name, column = ODD[kind]
    frame = frame.copy()
    frame.insert(place, name, np.asarray(column, float))
    return frame, name


@pytest.mark.parametrize("kind", ODD)
def test_they_are_asked_for(tmp_path, kind):
    """In files and frames, by command and in Python; both options that are named work.

    A column with one value alone does no harm, and is named.
    """
    frame, name = table(kind, 3)
    path = tmp_path / "m.csv"
    frame.to_csv(path, index_label="id")
    out = tmp_path / "o.h5"
    done = typed("prepare", path, out, "--matrix", "--json")
    found = " ".join(done.err.split())
    if kind == "one value":
        (found,) = json.loads(done.expect(0).out)["doubts"]
    else:
        assert done.code == 2
        assert "--ignore none says so" in found
        assert not out.exists()
    assert f"column {name} " in found
    assert f"--ignore {name}" in found
    assert "--missing" not in found
    options = {"rank": 0, "iterations": 10, "burn_in": 5, "matrix": True}
    for X in (path, frame):
        if kind == "one value":
            with pytest.warns(UserWarning, match=f"column {name} .* ignore {name}"):
                BPMF(**options).fit(X)
        else:
            with pytest.raises(InputError, match=f"column {name} .* ignore {name}; .*ignore none"):
                BPMF(**options).fit(X)
            assert name in BPMF(**options, ignore="none").fit(X).items_
        model = BPMF(**options, ignore=[name]).fit(X)
        assert set(model.items_) == set(frame.columns) - {name}
    left = ("prepare", path, out, "--matrix", "--force", "--json", "--ignore")
    ignored = json.loads(typed(*left, name).expect(0).out)
    assert ignored["items"] == frame.shape[1] - 1
    assert not any("column" in doubt for doubt in ignored["doubts"])
    assert f"left out: {name}" in ignored["columns"]
    said = json.loads(typed(*left, "none").expect(0).out)
    assert said["items"] == frame.shape[1]
    assert not any("ignore" in doubt for doubt in said["doubts"])


def test_what_is_left_out_stays(tmp_path):
    """A loaded run reads later tables without these columns, and completes the others."""
    frame, _ = table("an age", 0)
    frame.insert(4, "habitat", ["bog", "fen"] * (N // 2))
    path = tmp_path / "m.csv"
    frame.to_csv(path, index_label="id")
    failed = typed("prepare", path, tmp_path / "o.h5", "--matrix", "--ignore", "age").expect(2)
    assert "--ignore habitat" in failed.err.replace("\n", " ")
    option = ("--matrix", "--ignore", "age,habitat")
    typed("prepare", path, tmp_path / "o.h5", *option).expect(0)
    typed(
        "sample", tmp_path / "o.h5", "--out", tmp_path / "run",
        *["--rank", "0", "--iterations", "20", "--burn-in", "10", "--save-draws", "5"],
    ).expect(0)  # fmt: skip
    typed("evaluate", tmp_path / "run", path).expect(0)
    model = open_run(tmp_path / "run")
    assert model.evaluate(frame)["ratings"] == STARS.notna().sum().sum()
    filled = model.complete(frame)
    assert list(filled) == list(frame)
    pd.testing.assert_series_equal(filled["habitat"], frame["habitat"])
    pd.testing.assert_series_equal(filled["age"], frame["age"])
    assert filled[[*STARS]].notna().all(axis=None)


def test_columns_by_position(tmp_path):
    """Without a header; and a column that is not there is refused."""
    frame, _ = table("an age", 8)
    path = tmp_path / "m.csv"
    frame.to_csv(path, header=False)
    found = typed("prepare", path, tmp_path / "o.h5", "--matrix").expect(2)
    assert "--ignore 10;" in " ".join(found.err.split())
    typed("prepare", path, tmp_path / "p.h5", "--matrix", "--ignore", "10").expect(0)
    assert {item for _, item in everything(tmp_path / "p.h5")} == set(range(1, 9))
    typed("prepare", path, tmp_path / "q.h5", "--matrix", "--ignore", "ages").expect(2)
    with pytest.raises(InputError, match="no column 'ages' for ignore"):
        BPMF(matrix=True, ignore="ages").fit(frame)
    typed("prepare", path, tmp_path / "q.h5", "--ignore", "10").expect(2)


def test_ordinary_matrices_are_not_doubted():
    """Of stars, measurements, counts, and effects of items of many sizes."""
    rng = np.random.default_rng(1)
    for values in (
        STARS.to_numpy(),
        MEASURED.to_numpy(),
        rng.integers(0, 2, (50, 6)).astype(float),
        rng.negative_binomial(1, 0.001 ** np.linspace(0.3, 1, 20), (50, 20)).astype(float),
        rng.normal(rng.normal(0, 3, 15), 1, (30, 15)),
        np.exp(rng.normal(0, 1, (60, 8))),
    ):
        labels = [f"x{j}" for j in range(values.shape[1])]
        assert find_odd_columns(values, labels) == OddColumns({}, False, [], False)


def test_different_units_are_asked_for():
    """Columns of heights, incomes and ratios need one scale, unless users say otherwise."""
    sds = [10, 0.1, 20000, 0.08, 15, 40, 3e6]
    means = [45, 1.7, 60000, 0.4, 120, 200, 9e6]
    X = RNG.normal(size=(60, 7)) * sds + means
    frame = pd.DataFrame(X, columns=[*"abcdefg"])
    options = {"rank": 0, "iterations": 10, "burn_in": 5}
    with pytest.raises(InputError, match=r"scale them first .*ignore none says so"):
        BPMF(**options).fit(frame)
    BPMF(**options, ignore="none").fit(frame)
    BPMF(**options).fit((frame - frame.mean()) / frame.std())
