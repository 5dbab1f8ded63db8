"""A disk that stalls in the middle of a run: a real file system, frozen as a storage system that hangs would be."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import Running, run, write_planted

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("mkfs.ext4", "mount", "umount", "fsfreeze")
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}{os.pathsep}/usr/sbin{os.pathsep}/sbin"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, which is thawed and gone in the end."""
    absent = [name for name in PROGRAMS if not shutil.which(name, path=PATH)]
    if absent or os.getuid():
        pytest.skip(f"needs root, {', '.join(PROGRAMS)}; not here: {', '.join(absent) or 'root'}")
    image, folder = tmp_path / "image", tmp_path / "disk"
    with image.open("wb") as file:
        file.truncate(1 << 26)
    folder.mkdir()
    run("mkfs.ext4", "-q", image, env={"PATH": PATH}).expect(0)
    mounted = run("mount", "-o", "loop", image, folder, env={"PATH": PATH})
    if mounted.code:
        pytest.skip(f"no loop device can be mounted here: {mounted.err.strip()}")
    try:
        yield folder
    finally:
        run("fsfreeze", "--unfreeze", folder, env={"PATH": PATH})
        run("umount", "--lazy", folder, env={"PATH": PATH})


def test_the_watchdog_names_the_file_that_does_not_answer(tmp_path: Path, disk: Path) -> None:
    """Whoever looks at the log of a job that ended knows where to look next.

    No checkpoint is under way: HDF5 keeps Python's lock while it writes, and then the other process says what it knows.
    """
    data, out = write_planted(tmp_path / "data.h5"), disk / "run"
    options = ["--rank", "2", "--checkpoint-every", "1000000", "--watchdog", "5", "--iterations", "1000000"]
    command = [ROOT / "launch" / "mpirun.sh", "-n", "2", "sample", data, "--out", out, *options]
    with Running(command, {"PATH": PATH}) as running:
        running.wait_for(out / "metrics.jsonl", 30)
        run("fsfreeze", "--freeze", disk, env={"PATH": PATH}).expect(0)

        def give_up() -> None:
            """If nobody says it: else this would wait for ever."""
            run("fsfreeze", "--unfreeze", disk, env={"PATH": PATH})
            running.process.kill()

        thaw = threading.Timer(60, give_up)
        thaw.start()
        said = next(line for line in running.process.stderr if "whose disk does not answer" in line)
        thaw.cancel()
        run("fsfreeze", "--unfreeze", disk, env={"PATH": PATH}).expect(0)  # a process in such a call cannot be killed
        running.wait().expect(70)
    assert "has made no progress for 5 s and ends the job. It is waiting for " in said
    assert f"{out}/metrics.jsonl" in said
