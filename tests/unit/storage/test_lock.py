"""The lock of a run directory: who may take it over, and who may not."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support import injected

from dsgmcmc.errors import InputError
from dsgmcmc.storage import lock
from dsgmcmc.storage.lock import STALE_SECONDS, Lock, is_held

HOST = socket.gethostname()
ELSEWHERE = {"host": "elsewhere", "pid": 5, "began": 5}


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
        claim = Lock(tmp_path / "lock")
        assert claim.acquire() == f"process {pid} on {HOST} is dead"
        claim.release()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock is watched for a moment."""
    monkeypatch.setattr(lock, "STALE_SECONDS", 0.4)
    monkeypatch.setattr(lock, "LOOK_SECONDS", 0.02)


@contextmanager
def touched(path: Path, ahead: float) -> Iterator[None]:
    """The holder of a lock is alive, and its clock so many seconds ahead of ours."""
    done = threading.Event()

    def touch() -> None:
        while not done.wait(0.05):
            then = time.time() + ahead
            os.utime(path, (then, then))

    thread = threading.Thread(target=touch)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_a_process_of_the_same_batch_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On another host it was the job before it was requeued: nobody waits for it."""
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    leave(tmp_path / "lock", **ELSEWHERE, job="SLURM_JOB_ID=77")
    claim = Lock(tmp_path / "lock")
    assert "this batch" in claim.acquire()
    claim.release()


def test_a_reader_sees_whether_a_run_is_at_work(tmp_path: Path) -> None:
    """By its process on this host, by the last touch elsewhere; the lock is left as it is."""
    path = tmp_path / "lock"
    assert not is_held(path)
    claim = Lock(path)
    claim.acquire()
    os.utime(path, (0, 0))
    assert is_held(path)
    claim.release()
    assert not is_held(path)
    for owner, age, held in (
        ({"host": HOST, "pid": os.getpid(), "began": began(os.getpid()) - 1}, 0, False),
        ({"host": HOST, "pid": 1 << 40, "began": None}, 0, False),
        ({"host": "elsewhere", "pid": 5}, STALE_SECONDS - 20, True),
        ({"host": "elsewhere", "pid": 5}, STALE_SECONDS + 20, False),
        ({"host": "elsewhere", "pid": 5}, -90_000, False),
    ):
        leave(path, age, **owner)
        assert is_held(path) == held
        assert json.loads(path.read_text()) == owner


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("age", [-90_000.0, -20.0, 0.0, 100.0, 90_000.0])
def test_a_process_of_another_host(tmp_path: Path, age: float) -> None:
    """It cannot be asked: its lock counts while it is seen touched, whatever time that says, of whatever clock."""
    path = tmp_path / "lock"
    leave(path, age, **ELSEWHERE)
    with touched(path, -age), pytest.raises(InputError, match="process 5 on elsewhere touches its lock"):
        Lock(path).acquire()
    assert json.loads(path.read_text())["host"] == "elsewhere"
    claim = Lock(path)
    assert claim.acquire() == "process 5 on elsewhere has not touched its lock for 0.4 s"
    claim.release()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("impatient")
def test_who_watches_a_lock_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """For whom it waits, and for how long; a lock that is released meanwhile is free."""
    path = tmp_path / "lock"
    leave(path, **ELSEWHERE)
    threading.Timer(0.1, path.unlink).start()
    claim = Lock(path)
    with caplog.at_level("WARNING", "dsgmcmc"):
        assert claim.acquire() == ""
    claim.release()
    assert "process 5 on elsewhere cannot be asked" in caplog.text
    assert "watching it for 0.4 s" in caplog.text


@pytest.mark.usefixtures("impatient")
def test_two_that_find_a_stale_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One takes it over; the other, which comes a moment later, does not take the new one away from it."""
    path = tmp_path / "lock"
    leave(path, **ELSEWHERE)
    first, second = Lock(path), Lock(path)
    judge = second._judge

    def late(stamp: Any) -> tuple[bool, str]:
        found = judge(stamp)
        assert first.acquire()
        return found

    monkeypatch.setattr(second, "_judge", late)
    with pytest.raises(InputError, match="took it over at the same moment"):
        second.acquire()
    assert json.loads(path.read_text())["token"] == first._token
    first.release()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("text", ["", "{", "[]", '{"host": 3}', "[" * 4000, "[" * (1 << 20)])
def test_a_lock_that_says_nothing(tmp_path: Path, text: str) -> None:
    """A host fell over as it was written, or it is being written just now: it counts while it changes."""
    path = tmp_path / "lock"
    path.write_text(text)
    with touched(path, 0.0), pytest.raises(InputError, match="in use: its holder touches its lock"):
        Lock(path).acquire()
    claim = Lock(path)
    assert "its holder has not touched" in claim.acquire()
    claim.release()


def test_a_lock_that_cannot_be_written(tmp_path: Path) -> None:
    """A disk that is full just then leaves no lock of nobody, and is named."""
    code = "import sys, pathlib, dsgmcmc.storage.lock as lock; lock.Lock(pathlib.Path(sys.argv[1])).acquire()"
    path = tmp_path / "lock"
    for name in ("ENOSPC", "EIO"):
        environment = {**os.environ, **injected(f"lock.write={name}")}
        done = subprocess.run([sys.executable, "-c", code, path], env=environment, capture_output=True, text=True)
        assert f"OSError: [Errno {getattr(errno, name)}]" in done.stderr
        assert str(path) in done.stderr.splitlines()[-1]
        assert list(tmp_path.iterdir()) == []


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
