"""Files with random damage are read as they were written or refused, within limits of memory and time.

`fuzzer` damages them, and opens every one in a separate process.
"""

import json
import sys
from pathlib import Path

import fuzzer
import numpy as np
import pytest
from runs import make_run
from support import csr, features_of, planted, write_ratings
from support import run as run_program

from dsgmcmc.storage.rundir import RunDirectory


def fuzz(kind: str, source: Path, place: Path, names: str, count: int, seed: int) -> dict[str, int]:
    """Damage and open one of the named files `count` times; return how many were refused (10) or harmless (11)."""
    program = (sys.executable, fuzzer.__file__, kind, source, place, names, str(count), str(seed))
    done = run_program(*program, timeout=500).expect()
    report = json.loads(done.out.splitlines()[-1])
    assert report["wrong"] == [], (report, done.err[-3000:])
    assert sum(report["results"].values()) == count or not count
    return {code: int(number) for code, number in report["results"].items()}


@pytest.mark.parametrize("count", [100, pytest.param(500, marks=pytest.mark.long)])
@pytest.mark.parametrize("names", ["integers", "text"])
def test_damaged_ratings_files(tmp_path: Path, names: str, count: int) -> None:
    """The checksums of a ratings file tell every change as it is read."""
    i, j, x = planted(29, 17)
    held = np.arange(len(i)) % 5 == 0
    parts = [csr(29, i[part], j[part], x[part]) for part in (~held, held)]
    ids = [np.arange(n) for n in (29, 17)]
    if names == "text":
        ids = [np.array([f"{n}-ä".encode() for n in column]) for column in ids]
    features = {"rows": features_of(np.eye(29, 3, dtype=np.float32), ("a", "b", "c"), ("x", "x", "y"))}
    write_ratings(tmp_path / "whole.h5", *parts, *ids, seed=0, source="planted", features=features)
    results = fuzz("ratings", tmp_path / "whole.h5", tmp_path, "", count, 1 + (names == "text"))
    assert results["10"] > count // 5


@pytest.mark.parametrize("suffix", [".csv", ".json", ".mtx", ".parquet"])
def test_damaged_tables(tmp_path: Path, suffix: str) -> None:
    """Refused, or read as Python reads it where the text has one meaning; `tests/benchmarks/attack.py` has more."""
    results = fuzz("table", fuzzer.write_table(tmp_path / f"r{suffix}"), tmp_path, "", 25, 5)
    assert results["10"] > 5


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run with all text files."""
    short = {"grid": 2, "iterations": 60, "burn_in": 20, "evaluate_every": 5, "save_draws": 2}
    path = make_run(tmp_path_factory.mktemp("fuzzed"), users=30, items=14, **short).path
    RunDirectory(path).note("resumed", chain=0)
    return path


@pytest.mark.parametrize("count", [20, pytest.param(100, marks=pytest.mark.long)])
def test_text_files_of_a_run_with_random_damage(run: Path, tmp_path: Path, count: int) -> None:
    """Commands and the Python interface read a text file as it was written, or refuse it."""
    results = fuzz("run", run, tmp_path, ",".join(fuzzer.FILES), count, 4)
    assert results["10"] > count // 4
