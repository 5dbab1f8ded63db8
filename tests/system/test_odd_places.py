"""Where files cannot be written: a full disk, a read-only one, another user's folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support import dsgmcmc, run, typed
from tiny import command, content

SOMEBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


@pytest.fixture
def full_disk(small_disk: Path) -> Path:
    """File system without room; files can be made."""
    with suppress(OSError), (small_disk / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 16))
    return small_disk


def test_a_cache_without_room(finished: Path, full_disk: Path, pairs: Path) -> None:
    """A quota that is used up: kernels are compiled into a temporary folder, as where the cache may not be written."""
    line = ("predict", finished, pairs)
    result = run(*dsgmcmc(*line), env={"DSGMCMC_CACHE_DIR": str(full_disk / "cache")}).expect(0)
    assert result.out == typed(*line).expect(0).out


@pytest.mark.parametrize("words", ["report RUN -o OUT.html", "predict RUN PAIRS -o OUT.csv"])
def test_a_read_only_file_system(finished: Path, small_disk: Path, pairs: Path, words: str) -> None:
    """One line with the reason, and nothing left behind."""
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    line = words.replace("RUN", str(finished)).replace("PAIRS", str(pairs)).replace("OUT", str(small_disk / "out"))
    result = run(*dsgmcmc(*line.split())).expect(2)
    assert result.err.count("\n") == 1
    assert str(small_disk) in result.err
    assert "Read-only file system" in result.err
    assert not list(small_disk.iterdir())


@pytest.fixture
def of_root(finished: Path) -> Iterator[Path]:
    """Run of root's that others may read; `tmp_path` they may not enter."""
    if os.geteuid() != 0:
        pytest.skip("only root can be somebody else")
    if subprocess.run(
        [*SOMEBODY, sys.executable, "-c", "import dsgmcmc.cli.app, h5py"], capture_output=True
    ).returncode:
        pytest.skip("others may not run this Python")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield shutil.copytree(finished, Path(folder) / "run")


def test_a_run_of_another_user(of_root: Path, data: Path) -> None:
    """Who may read it can ask it everything; what would write there is refused in one line."""
    env = {"HOME": "/nonexistent", "DSGMCMC_CACHE_DIR": ""}
    before = content(of_root)
    for line in (
        ("info", of_root),
        ("verify", of_root),
        ("recommend", of_root, "--user", "3", "--by", "mean", "--include-rated"),
    ):
        run(*SOMEBODY, *dsgmcmc(*line), env=env).expect(0)
    shared = shutil.copy(data, of_root.parent)
    for refused in (
        dsgmcmc("report", of_root, "-o", of_root / "page.html"),
        command(Path(shared), of_root, None, "--resume", iterations=60),
    ):
        result = run(*SOMEBODY, *refused, env=env).expect(2)
        assert result.err.splitlines()[-1].endswith("Permission denied")
        assert "Traceback" not in result.err
    assert content(of_root) == before
