"""The lock of a run directory: who gets it, who waits, and who is told what."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dsgmcmc.errors import InputError
from dsgmcmc.storage import lock
from dsgmcmc.storage.lock import Lock, is_held

HOLD = """
import pathlib, sys, time
from dsgmcmc.storage.lock import Lock
Lock(pathlib.Path(sys.argv[1])).acquire()
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for long."""
    monkeypatch.setattr(lock, "WAIT_SECONDS", 0.6)
    monkeypatch.setattr(lock, "GRACE_SECONDS", 0.2)


@contextmanager
def held(path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process of this host that holds a lock."""
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def pretend(path: Path, **owner: Any) -> None:
    """Let the file of a lock that is held say that another process has it."""
    path.write_text(json.dumps(owner))


def test_one_at_a_time(tmp_path: Path) -> None:
    """Also in one process: a second run is refused, and told who has the lock. Released, it leaves nothing."""
    first = Lock(tmp_path / "lock")
    first.acquire()
    with pytest.raises(
        InputError, match=rf"in use: process {os.getpid()} on {socket.gethostname()} \(this host\) is al"
    ):
        Lock(tmp_path / "lock").acquire()
    first.release()
    assert list(tmp_path.iterdir()) == []
    second = Lock(tmp_path / "lock")
    second.acquire()
    first.release()  # it is not the first one's any more
    assert is_held(tmp_path / "lock")
    second.release()


def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    """Its file stays, and nobody waits for it."""
    with held(tmp_path / "lock") as process:
        assert is_held(tmp_path / "lock")
        with pytest.raises(InputError, match=rf"process {process.pid} on .* is alive. Wait for it, or stop it with"):
            Lock(tmp_path / "lock").acquire()
    assert (tmp_path / "lock").exists()
    assert not is_held(tmp_path / "lock")
    claim = Lock(tmp_path / "lock")
    claim.acquire()
    assert json.loads((tmp_path / "lock").read_text())["pid"] == os.getpid()
    claim.release()


def test_a_process_of_another_host_is_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its host may be lost: one is told for whom one waits, and gets the lock once it is free, or an error."""
    path = tmp_path / "lock"
    claim = Lock(path)
    with held(path) as process, caplog.at_level("WARNING", "dsgmcmc"):
        pretend(path, host="elsewhere", pid=5)
        with pytest.raises(InputError, match="in use: process 5 on elsewhere holds its lock"):
            claim.acquire()
        assert "waiting for up to 0.6 s" in caplog.text
        threading.Timer(0.3, process.kill).start()
        claim.acquire()
    claim.release()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"host": 3}', "[" * 4000, "[" * (1 << 20)])
def test_a_lock_that_says_nothing(tmp_path: Path, text: str) -> None:
    """It counts as long as it is held."""
    path = tmp_path / "lock"
    with held(path):
        path.write_text(text)
        with pytest.raises(InputError, match="in use: its holder holds its lock"):
            Lock(path).acquire()
    claim = Lock(path)
    claim.acquire()
    claim.release()


def test_a_file_system_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A warning; and who looks whether a run is at work sees its file."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", refuse)
    claim = Lock(tmp_path / "lock")
    with caplog.at_level("WARNING", "dsgmcmc"):
        claim.acquire()
    assert "has no locks" in caplog.text
    assert is_held(tmp_path / "lock")
    claim.release()
    assert not is_held(tmp_path / "lock")


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_a_lock_that_is_no_file(tmp_path: Path, make: Any) -> None:
    """It is refused and left alone, and nothing waits for the writer of a pipe."""
    path = tmp_path / "lock"
    make(path)
    with pytest.raises(InputError, match="a lock is a file"):
        Lock(path).acquire()
    assert path.exists()
