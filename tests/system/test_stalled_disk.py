"""A disk that stalls in the middle of a run: a real file system, frozen as a storage system that hangs would be."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import TIMEOUT, Running, dsgmcmc, run, write_planted

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


def sample(tmp_path: Path, disk: Path, *options: str) -> Running:
    """A run of two processes on the disk, with a watchdog of 5 s."""
    data = write_planted(tmp_path / "data.h5")
    options = ("--rank", "2", "--watchdog", "5", "--iterations", "1000000", *options)
    return Running(
        [ROOT / "launch" / "mpirun.sh", "-n", "2", "sample", data, "--out", disk / "run", *options], {"PATH": PATH}
    )


def said_while_frozen(running: Running, disk: Path, what: str) -> None:
    """Freeze the disk until a line with this is said."""
    run("fsfreeze", "--freeze", disk, env={"PATH": PATH}).expect(0)

    def give_up() -> None:
        """If nobody says it: else this would wait for ever."""
        run("fsfreeze", "--unfreeze", disk, env={"PATH": PATH})
        running.process.kill()

    thaw = threading.Timer(60, give_up)
    thaw.start()
    lines: list[str] = []
    for line in running.process.stderr or ():
        lines.append(line)
        if what in line:
            break
    thaw.cancel()
    assert what in lines[-1], "".join(lines)
    run("fsfreeze", "--unfreeze", disk, env={"PATH": PATH}).expect(0)  # a process in such a call cannot be killed


def test_the_watchdog_ends_a_job_whose_disk_does_not_answer(tmp_path: Path, disk: Path) -> None:
    """Whoever looks at the log of a job that ended sees why. No checkpoint is under way."""
    with sample(tmp_path, disk, "--checkpoint-every", "1000000") as running:
        running.wait_for(disk / "run" / "metrics.jsonl", 30)
        said_while_frozen(running, disk, "has made no progress for 5 s and ends the job")
        running.wait().expect(70)


def test_a_checkpoint_that_stalls_is_said_and_waited_for(tmp_path: Path, disk: Path) -> None:
    """A slow disk ends no job; somebody who looks for why nothing happens finds a line, and the run goes on."""
    with sample(tmp_path, disk, "--checkpoint-every", "3", "--set", "evaluate_every=1000000") as running:
        checkpoint_after(disk, 30)
        said_while_frozen(running, disk, "has been writing for 5 s")
        checkpoint_after(disk, checkpoint_after(disk, 0))
        running.signal(signal.SIGTERM)
        running.wait().expect(75)
    run(*dsgmcmc("verify", disk / "run")).expect(0)


def checkpoint_after(disk: Path, iteration: int) -> int:
    """Wait for a checkpoint of a later iteration; its iteration."""
    end = time.monotonic() + TIMEOUT
    while time.monotonic() < end:
        names = [path.name for path in (disk / "run").glob("checkpoints/chain-0/step-*") if "." not in path.name]
        newest = max((int(name.removeprefix("step-")) for name in names), default=0)
        if newest > iteration:
            return newest
        time.sleep(0.01)
    raise AssertionError(f"no checkpoint after iteration {iteration} in {TIMEOUT} s")
