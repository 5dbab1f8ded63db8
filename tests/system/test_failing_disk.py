"""A disk that fails at any call, once or from then on: one message, nothing half-written that counts, nothing lost.

`failing_disk.c` is preloaded into real commands, so that HDF5, DuckDB and Python fail alike.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mpi4py import MPI
from support import Result, dsgmcmc, options_of, run, sample

from dsgmcmc.diagnostics.overview import audit
from dsgmcmc.storage.rundir import RunDirectory
from dsgmcmc.storage.store import steps

SOURCE = Path(__file__).parent / "failing_disk.c"
WRITING = "write,pwrite,pwrite64,writev,fsync,ftruncate,ftruncate64"
CALLS = f"{WRITING},rename,unlink,unlinkat,mkdir"
ALWAYS = 10**9
SETTINGS: dict[str, Any] = {
    "sampler": "psgld",
    "rank": 2,
    "grid": 2,
    "burn_in": 6,
    "thin": 3,
    "evaluate_every": 10,
    "save_draws": 2,
    "checkpoint_every": 20,
    "iterations": 60,
}

Failing = Callable[..., Result]


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Failing:
    """Run a command while calls `at` to `at + also` on files under a folder fail."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("a C compiler is needed")
    library = tmp_path_factory.mktemp("library") / "failing_disk.so"
    run(compiler, "-shared", "-fPIC", "-O2", "-o", library, SOURCE, "-ldl").expect()

    def start(
        under: Path, *arguments: str | Path, at: int, also: int = 0, code: int = errno.EIO, **more: str
    ) -> Result:
        told = {"UNDER": under, "CALLS": CALLS, "AT": at, "ALSO": also, "ERRNO": code, **more}
        env = {f"FAIL_{name}": str(value) for name, value in told.items()}
        return run(*dsgmcmc(*arguments), env={"LD_PRELOAD": str(library), **env})

    return start


@pytest.fixture(scope="module")
def folder(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ratings as text, pairs, and a run that nothing interrupts."""
    folder = tmp_path_factory.mktemp("folder")
    assert sample(MPI.COMM_SELF, data, folder / "run", **SETTINGS) == 0
    ratings = [(u, i, 1 + (u * i) % 5) for u in range(40) for i in range(30) if (u + i) % 3]
    (folder / "ratings.csv").write_text("user,item,rating\n" + "".join(f"{u},{i},{x}\n" for u, i, x in ratings))
    (folder / "pairs.csv").write_text("user,item\n" + "".join(f"{u},{i}\n" for u in range(20) for i in range(10)))
    return folder


@pytest.fixture(scope="module")
def expected(folder: Path) -> str:
    """Digest of that run."""
    return audit(RunDirectory(folder / "run"))


def count(failing: Failing, under: Path, counts: Path, *arguments: str | Path, **more: str) -> int:
    """How many calls a command makes, which are written to the file `counts`."""
    failing(under, *arguments, at=0, COUNT=str(counts), **more).expect(0)
    return max(map(int, counts.read_text().split())) if counts.exists() else 0


def places(calls: int, usual: int) -> range:
    """Calls that fail: some of each part of a run."""
    step = max(1, calls // usual)
    return range(1 + step // 2, calls + 1, step)


def expect_told(result: Result, at: int) -> None:
    """Done, or one message and status 1: no traceback, nothing of HDF5's own, no crash."""
    assert result.code in (0, 1), (at, result.code, result.err)
    said = [line for line in result.err.splitlines() if line.startswith("dsgmcmc:")]
    assert len(said) == result.code, (at, result.err)
    for word in ("Traceback", "HDF5", "Exception"):
        assert word not in result.err, (at, result.err)


@pytest.mark.parametrize(("code", "also"), [(errno.EIO, 0), (errno.ENOSPC, ALWAYS)])
def test_a_run_survives_any_call_that_fails(
    data: Path, tmp_path: Path, failing: Failing, expected: str, code: int, also: int
) -> None:
    """A run that says it has finished is whole, and a resumed run is the undisturbed one, with nothing left over."""
    command = ("sample", data, *options_of(SETTINGS), "--out")
    calls = count(failing, tmp_path / "counted", tmp_path / "count", *command, tmp_path / "counted")
    for at in places(calls, 5):
        out = tmp_path / f"run-{at}"
        result = failing(out, *command, out, at=at, also=also, code=code)
        expect_told(result, at)
        if result.code == 0:
            assert audit(RunDirectory(out)) == expected, at
        assert sample(MPI.COMM_SELF, data, out, resume=True, **SETTINGS) == 0, at
        assert audit(RunDirectory(out)) == expected, at
        assert [path for path in out.rglob("*") if ".tmp" in path.name or ".trash" in path.name] == [], at
        shutil.rmtree(out)


@pytest.mark.parametrize("log", ["metrics.jsonl", "events.jsonl"])
def test_a_log_that_cannot_be_written_stops_the_run_after_a_checkpoint(
    data: Path, tmp_path: Path, failing: Failing, expected: str, log: str
) -> None:
    """It is said once, and no draw is lost."""
    out = tmp_path / "run"
    command = ("sample", data, *options_of(SETTINGS), "--out")
    result = failing(out / log, *command, out, at=1, also=ALWAYS, code=errno.ENOSPC)
    expect_told(result, 1)
    assert result.code == 1
    assert f"{out / log}: No space left on device; stopped after a checkpoint" in result.err
    assert steps(out / "checkpoints" / "chain-0")
    assert sample(MPI.COMM_SELF, data, out, resume=True, **SETTINGS) == 0
    assert audit(RunDirectory(out)) == expected


#: One of each kind of file.
COMMANDS = {
    "prepare": ("prepare", "{folder}/ratings.csv", "{out}.h5"),
    "export to netCDF": ("export", "{folder}/run", "-o", "{out}.nc"),
    "predict to CSV": ("predict", "{folder}/run", "{folder}/pairs.csv", "-o", "{out}.csv"),
}


@pytest.mark.parametrize("what", COMMANDS)
def test_a_full_disk_is_one_message_and_leaves_nothing(
    folder: Path, tmp_path: Path, failing: Failing, what: str
) -> None:
    """From whichever write on; what was there before stays as it was."""
    place = tmp_path / "full"
    place.mkdir()
    out = place / "out"
    command = [word.format(folder=folder, out=out) for word in COMMANDS[what]]
    calls = count(failing, place, tmp_path / "count", *command, CALLS=WRITING)
    (result_file,) = place.iterdir()
    before = result_file.read_bytes()
    more = [] if command[0] == "predict" else ["--force"]
    for at in places(calls, 4):
        result = failing(place, *command, *more, at=at, also=ALWAYS, code=errno.ENOSPC, CALLS=WRITING)
        expect_told(result, at)
        assert result.code == 1, (at, result.err)
        assert "No space left" in result.err, (at, result.err)
        assert list(place.iterdir()) == [result_file], at
        assert result_file.read_bytes() == before, at


@pytest.mark.parametrize("calls", ["read,pread,pread64", "close", "rmdir,unlinkat,unlink"])
@pytest.mark.parametrize("what", [*COMMANDS, "info", "verify"])
def test_a_file_that_cannot_be_read_or_closed_is_one_message(
    folder: Path, tmp_path: Path, failing: Failing, what: str, calls: str
) -> None:
    """It names the file; what cannot be removed, or read again after it was written, does not matter."""
    command = [word.format(folder=folder, out=tmp_path / "out") for word in COMMANDS.get(what, (what, "{folder}/run"))]
    more = ["--force"] if command[0] in ("prepare", "export") else []
    number = count(failing, folder.parent, tmp_path / "count", *command, CALLS=calls)
    for at in places(number, 3):
        result = failing(folder.parent, *command, *more, at=at, CALLS=calls)
        expect_told(result, at)
        assert result.code == 0 or ("unlink" not in calls and str(folder.parent) in result.err), (at, result.err)
