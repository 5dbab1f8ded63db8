"""Ratings files and runs that an earlier version wrote are read, and predict what they did."""

import json
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support import ROOT, newest, typed

from dsgmcmc import open_run

ARCHIVES = sorted((ROOT / "tests" / "files-of-version-2").glob("*.zip"))


def test_there_are_archives_of_many_kinds() -> None:
    """An empty folder would pass."""
    assert len(ARCHIVES) >= 28


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.stem)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder with the files of an archive."""
    with zipfile.ZipFile(request.param) as archive:
        archive.extractall(tmp_path)
    return tmp_path


def test_an_old_run_predicts_what_it_did_and_goes_on(folder: Path) -> None:
    """Its files are whole; predictions are those of the version that wrote it, to a millionth; and
    its chains are resumed from their checkpoints.
    """
    typed("verify", folder / "data.h5").expect(0)
    typed("verify", folder / "run").expect(0)
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    pairs = pd.DataFrame(expected["pairs"])
    model = open_run(folder / "run")
    low, high = model.predict_interval(pairs)
    found = {
        "predict": model.predict(pairs),
        "predict of mean": model.predict(pairs, of_mean=True),
        "low": low,
        "high": high,
    }
    for name, values in found.items():
        largest = np.abs(expected[name]).max()
        np.testing.assert_allclose(
            values, expected[name], rtol=0, atol=1e-6 * largest, err_msg=name
        )
    more = ["--resume", "--iterations", "32"]
    if (folder / "run" / "comparison.json").exists():
        more += ["--model", "auto"]
    typed("sample", folder / "data.h5", "--out", folder / "run", *more).expect(0)
    assert newest(folder / "run") == 32
    assert np.isfinite(open_run(folder / "run").predict(pairs)).all()
