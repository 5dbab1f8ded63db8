"""The lock of a run directory: who may take it over, and who may not."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dsgmcmc.errors import InputError
from dsgmcmc.storage.lock import STALE_SECONDS, Lock

HOST = socket.gethostname()


def leave(path: Path, age: float = 0.0, **owner: Any) -> None:
    """Leave the lock of another run, touched `age` seconds ago."""
    path.write_text(json.dumps(owner))
    then = path.stat().st_mtime - age
    os.utime(path, (then, then))


def began(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def test_one_at_a_time(tmp_path: Path) -> None:
    """A living process of this host keeps its lock, however long ago it touched it; released, it is free."""
    first = Lock(tmp_path / "lock")
    assert first.acquire() == ""
    os.utime(tmp_path / "lock", (0, 0))
    with pytest.raises(InputError, match=rf"in use: process {os.getpid()} on {HOST} \(this host\) is alive"):
        Lock(tmp_path / "lock").acquire()
    first.release()
    assert list(tmp_path.iterdir()) == []
    second = Lock(tmp_path / "lock")
    assert second.acquire() == ""
    first.release()  # it is not the first one's any more
    assert (tmp_path / "lock").exists()
    second.release()


def test_a_dead_process_of_this_host(tmp_path: Path) -> None:
    """Its number is free, or was given to a process that began later."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    for pid, start in ((child.pid, 1), (os.getpid(), began(os.getpid()) - 1)):
        leave(tmp_path / "lock", host=HOST, pid=pid, began=start)
        lock = Lock(tmp_path / "lock")
        assert lock.acquire() == f"process {pid} on {HOST} is dead"
        lock.release()


def test_a_process_of_another_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot be asked: its lock counts while it is touched, unless it was of this very batch job."""
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    other = {"host": "elsewhere", "pid": 5, "began": 5}
    leave(tmp_path / "lock", STALE_SECONDS - 20, **other, job="SLURM_JOB_ID=76")
    with pytest.raises(InputError, match=r"process 5 on elsewhere touched its lock 1\d\d s ago"):
        Lock(tmp_path / "lock").acquire()
    for age, job, reason in (
        (STALE_SECONDS + 20, "SLURM_JOB_ID=76", "has not touched"),
        (0, "SLURM_JOB_ID=77", "this batch"),
    ):
        leave(tmp_path / "lock", age, **other, job=job)
        lock = Lock(tmp_path / "lock")
        assert reason in lock.acquire()
        lock.release()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"host": 3}', "[" * 4000, "[" * (1 << 20)])
def test_a_lock_that_says_nothing(tmp_path: Path, text: str) -> None:
    """It may be written just now; when it is old it counts no more."""
    path = tmp_path / "lock"
    path.write_text(text)
    with pytest.raises(InputError, match="in use"):
        Lock(path).acquire()
    os.utime(path, (0, 0))
    lock = Lock(path)
    assert "has not touched" in lock.acquire()
    lock.release()


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_a_lock_that_is_no_file(tmp_path: Path, make: Any) -> None:
    """It is refused and left alone, and nothing waits for the writer of a pipe."""
    path = tmp_path / "lock"
    make(path)
    with pytest.raises(InputError, match="a lock is a file"):
        Lock(path).acquire()
    assert path.exists()


def test_a_run_whose_lock_was_taken_ends(tmp_path: Path) -> None:
    """It was suspended for minutes, and another host took over: two writers would mix two runs."""
    code = (
        "import sys, time, pathlib, dsgmcmc.storage.lock as lock\n"
        "lock.TOUCH_SECONDS = 0.05\n"
        "path = pathlib.Path(sys.argv[1])\n"
        "lock.Lock(path).acquire()\n"
        "time.sleep(0.3)\n"
        "if sys.argv[2] == 'removed': path.unlink()\n"
        'else: path.write_text(\'{"token": "other"}\')\n'
        "time.sleep(60)\n"
    )
    for how in ("removed", "taken"):
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "lock"), how], capture_output=True, text=True, timeout=50
        )
        assert done.returncode == 70, done
        assert "taken over by another run" in done.stderr
        (tmp_path / "lock").unlink(missing_ok=True)


def test_the_lock_is_touched(tmp_path: Path) -> None:
    """So that another host sees that it is alive."""
    code = (
        "import sys, os, time, pathlib, dsgmcmc.storage.lock as lock\n"
        "lock.TOUCH_SECONDS = 0.05\n"
        "path = pathlib.Path(sys.argv[1])\n"
        "one = lock.Lock(path); one.acquire()\n"
        "os.utime(path, (0, 0))\n"
        "while path.stat().st_mtime == 0: time.sleep(0.01)\n"
        "one.release()\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "lock")], check=True, timeout=50)
    assert list(tmp_path.iterdir()) == []
