"""Files with random damage are read as they were written or refused, within limits of memory and
time.

`fuzzer` damages them, and opens every one in a separate process. The number of files is also the
seed, so that the longer tests have other damage than the short ones.
"""

from pathlib import Path

import fuzzer
import numpy as np
import pytest
from runs import make_run
from support import features_of, planted, write_cells

from dsgmcmc.storage.rundir import RunDirectory

# processes that read the files need none of this one's threads, which are not copied
pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")


def fuzz(target: str, source: Path, folder: Path, names: list[str], count: int, seed: int) -> int:
    """Damage and open one of the named files `count` times; return how many were refused."""
    report = fuzzer.fuzzed(target, source, folder, names, count, seed)
    assert report["wrong"] == []
    assert report["results"].total() == count
    return int(report["results"][fuzzer.REFUSED])


@pytest.mark.parametrize("count", [100, pytest.param(400, marks=pytest.mark.long)])
@pytest.mark.parametrize("names", ["integers", "text"])
def test_damaged_ratings_files(tmp_path: Path, names: str, count: int) -> None:
    """The checksums of a ratings file tell every change as it is read."""
    i, j, x = planted(29, 17)
    more = {
        "features": {
            "rows": features_of(np.eye(29, 3, dtype=np.float32), ("a", "b", "c"), ("x", "x", "y"))
        }
    }
    if names == "text":
        more |= {
            f"{side}_ids": np.array([f"{k}-ä".encode() for k in range(n)])
            for side, n in (("row", 29), ("col", 17))
        }
    undamaged = write_cells(
        tmp_path / "whole.h5", (29, 17), i, j, x, np.arange(len(i)) % 5 == 0, **more
    )
    assert fuzz("ratings", undamaged, tmp_path, [""], count, count + (names == "text")) > count // 5


@pytest.mark.parametrize("suffix", [".csv", ".json", ".mtx", ".parquet"])
def test_damaged_tables(tmp_path: Path, suffix: str) -> None:
    """Refused, or read as Python reads it where the text has one meaning;
    `tests/benchmarks/attack.py` has more.
    """
    assert fuzz("table", fuzzer.write_table(tmp_path / f"r{suffix}"), tmp_path, [""], 25, 5) > 5


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run with all text files."""
    short = {"grid": 2, "iterations": 60, "burn_in": 20, "evaluate_every": 5, "save_draws": 2}
    path = make_run(tmp_path_factory.mktemp("fuzzed"), users=30, items=14, **short).path
    RunDirectory(path).note("resumed", chain=0)
    return path


@pytest.mark.parametrize("count", [20, pytest.param(80, marks=pytest.mark.long)])
def test_text_files_of_a_run_with_random_damage(run: Path, tmp_path: Path, count: int) -> None:
    """Commands and the Python interface read a text file as it was written, or refuse it."""
    assert fuzz("run", run, tmp_path, [*fuzzer.FILES], count, count) > count // 4
