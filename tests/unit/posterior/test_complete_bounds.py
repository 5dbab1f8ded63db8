"""Matrices with cells that are known only by bounds, as text: read, and completed."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from ingest_cases import bounds_in
from measurements import write_measured
from support import typed

from dsgmcmc import BPMF, open_run
from dsgmcmc.errors import InputError
from dsgmcmc.parallel.alone import Alone
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.runs.job import Job
from dsgmcmc.runs.source import RatingsSource

FIT = {"iterations": 60, "burn_in": 20, "rank": 1}
N, M = 12, 6


def wide() -> pd.DataFrame:
    """Numbers of one factor, of which some are texts of bounds, and some are missing."""
    rng = np.random.default_rng(3)
    values = 5 + np.outer(rng.normal(size=N), rng.normal(size=M)) + rng.normal(0, 0.1, (N, M))
    frame = pd.DataFrame(
        values.round(2), index=[f"s{k}" for k in range(N)], columns=[f"p{k}" for k in range(M)]
    ).astype(object)
    frame.iloc[0, 0] = "<4.5"
    frame.iloc[1, 2] = ">= 6"
    frame.iloc[2, 3] = "[4, 5]"
    frame.iloc[3, 1] = np.nan
    return frame


EXPECTED = {("s0", "p0"): (-np.inf, 4.5), ("s1", "p2"): (6, np.inf), ("s2", "p3"): (4, 5)}


def test_cells_of_a_file_may_be_bounds(tmp_path: Path) -> None:
    """`prepare --matrix` reads the texts that a table of ratings may have."""
    wide().to_csv(tmp_path / "m.csv")
    typed("prepare", tmp_path / "m.csv", tmp_path / "r.h5", "--matrix", "--test-fraction", "0")
    found = bounds_in(tmp_path / "r.h5")
    assert found == EXPECTED


@pytest.mark.parametrize("kind", ["pandas", "polars", "array"])
def test_cells_in_memory_may_be_bounds(tmp_path: Path, kind: str) -> None:
    """Frames, and arrays of objects, are taken for matrices if all cells are numbers or bounds."""
    frame = wide()
    expected = EXPECTED
    if kind == "polars":
        polars = pytest.importorskip("polars")
        cells = {
            name: [None if cell != cell else str(cell) for cell in column]
            for name, column in frame.items()
        }
        frame = polars.DataFrame({"user": list(frame.index), **cells})
    if kind == "array":
        frame = frame.to_numpy(object)
        expected = {(int(u[1:]), int(i[1:])): bounds for (u, i), bounds in EXPECTED.items()}
    model = BPMF(**FIT, out=tmp_path / "run", matrix=True if kind == "polars" else None)
    model.fit(frame)
    assert bounds_in(tmp_path / "run.ratings.h5") == expected


@pytest.mark.parametrize("text", ["[5, 4]", "<low", "~5"])
def test_other_texts_are_refused(tmp_path: Path, text: str) -> None:
    """Bounds in the wrong order too, in a file and in memory."""
    frame = wide()
    frame.iloc[4, 4] = text
    frame.to_csv(tmp_path / "m.csv")
    with pytest.raises(InputError):
        BPMF(**FIT, matrix=True).fit(frame)
    failed = typed("prepare", tmp_path / "m.csv", tmp_path / "r.h5", "--matrix")
    assert failed.code != 0
    assert repr(text) in failed.err


def test_a_completed_matrix_has_values_between_the_bounds() -> None:
    """Means and draws are within; their sds are those of draws; `fitted` predicts without them."""
    model = BPMF(**FIT).fit(wide())
    done = model.complete()
    assert done.iloc[0, 0] < 4.5
    assert done.iloc[1, 2] > 6
    assert 4 < done.iloc[2, 3] < 5
    assert not done.isna().any().any()
    known = wide().map(lambda cell: isinstance(cell, float) and cell == cell).to_numpy()
    np.testing.assert_array_equal(done.to_numpy(float)[known], wide().to_numpy()[known])
    draws = np.array([draw.to_numpy(float) for draw in model.complete(draws=400)])
    assert (draws[:, 0, 0] <= 4.5).all()
    assert (draws[:, 1, 2] >= 6).all()
    assert ((draws[:, 2, 3] >= 4) & (draws[:, 2, 3] <= 5)).all()
    mean, sd = model.complete(return_std=True)
    for row, column in ((0, 0), (1, 2), (2, 3)):
        cell = draws[:, row, column]
        assert mean.iloc[row, column] == pytest.approx(cell.mean(), abs=4 * cell.std() / 20)
        assert sd.iloc[row, column] == pytest.approx(cell.std(), rel=0.2)
    fitted = model.complete(known="fitted")
    assert fitted.iloc[2, 3] != done.iloc[2, 3]


def test_new_rows_may_have_bounds() -> None:
    """They are folded in with them, and completed between them."""
    model = BPMF(**FIT).fit(wide())
    new = wide().iloc[:2].copy()
    new.index = ["t0", "t1"]
    new.iloc[0] = "<4"
    done = model.complete(new)
    assert (done.iloc[0].astype(float) <= 4).all()
    again = model.transform(wide())
    pd.testing.assert_frame_equal(again, model.complete())


@pytest.mark.parametrize("scale", ["identity", "log"])
@pytest.mark.parametrize("likelihood", ["gaussian", "student-t"])
def test_the_matrix_of_a_run_has_values_between_the_bounds(
    tmp_path: Path, likelihood: str, scale: str
) -> None:
    """`predict --matrix` writes them, draws and quantiles of them, also of test ratings."""
    path = write_measured(tmp_path / "r.h5", weighted=True, bounded=True)
    settings = {**FIT, "save_draws": 10, "likelihood": likelihood, "scale": scale}
    Job(Alone(), RatingsSource(path), tmp_path / "run", settings, quiet=True).run()
    run = open_run(tmp_path / "run").run_
    with Ratings(path) as ratings:
        slabs = {part: ratings.slab(part, 0, ratings.n_rows) for part in ("train", "test")}
        user_side = 1 if ratings.orientation.transposed else 0
    asked = [("m", ()), ("drawn", ("--draws", "3")), ("m.q10", ("--interval", "0.8"))]
    for name, options in asked:
        out = tmp_path / f"{name.removesuffix('.q10')}.npy"
        made = typed("predict", tmp_path / "run", "--matrix", "--out", out, *options)
        assert made.code == 0, made.err
        matrices = np.load(tmp_path / f"{name}.npy").reshape(-1, len(run.users), len(run.items))
        names = [np.sort(run.users.ids).tolist(), np.sort(run.items.ids).tolist()]
        for slab in slabs.values():
            sides = [slab.rows, slab.indices]
            users = [names[0].index(k) for k in sides[user_side].tolist()]
            items = [names[1].index(k) for k in sides[1 - user_side].tolist()]
            cells = matrices[:, users, items]
            assert (cells >= slab.bounds.lower - 1e-4).all()
            assert (cells <= slab.bounds.upper + 1e-4).all()
            bounded = slab.bounds.bounded & np.isfinite(slab.bounds.lower)
            assert (cells[:, bounded] > slab.bounds.lower[bounded]).any()
