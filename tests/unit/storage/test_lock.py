"""The lock of a run directory: who gets it, who waits, and what the others are told."""

import errno
import fcntl
import os
import re
import socket
import sys
import threading
import time
from pathlib import Path

import pytest
from support import Running

from dsgmcmc.errors import InputError
from dsgmcmc.storage import lock
from dsgmcmc.storage.lock import ATTEMPT_SECONDS, Lock, is_held

HOLD = """
import pathlib, sys, time
from dsgmcmc.storage.lock import Lock
Lock(pathlib.Path(sys.argv[1])).attempt()
print("held", flush=True)
time.sleep(60)
"""


def wait_for(claim: Lock) -> None:
    """Attempt until the lock is got, or refused."""
    while not claim.attempt():
        time.sleep(ATTEMPT_SECONDS)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting for a lock ends soon."""
    monkeypatch.setattr(lock, "WAIT_SECONDS", 0.6)
    monkeypatch.setattr(lock, "GRACE_SECONDS", 0.2)


def test_one_at_a_time(tmp_path: Path) -> None:
    """A second run, also in one process, is refused with the holder of the lock until it is
    released.
    """
    first = Lock(tmp_path / "lock")
    second = Lock(tmp_path / "lock")
    first.attempt()
    with pytest.raises(
        InputError, match=rf"in use: process {os.getpid()} on {socket.gethostname()} holds its lock"
    ):
        wait_for(second)
    first.release()
    assert second.attempt()
    assert is_held(tmp_path / "lock")
    second.release()
    assert not is_held(tmp_path / "lock")


@pytest.mark.parametrize(
    ("variables", "job"),
    [
        ({"SLURM_JOB_ID": "12"}, " of Slurm job 12"),
        (
            {"SLURM_JOB_ID": "13", "SLURM_ARRAY_JOB_ID": "12", "SLURM_ARRAY_TASK_ID": "0"},
            " of Slurm job 12, array task 0,",
        ),
        (
            {"PBS_JOBID": "12[3].server", "PBS_ARRAY_INDEX": "3"},
            " of PBS job 12[3].server, array task 3,",
        ),
        ({"LSB_JOBID": "12", "LSB_JOBINDEX": "0"}, " of LSF job 12"),
        ({"LSB_JOBID": "12", "LSB_JOBINDEX": "3"}, " of LSF job 12, array task 3,"),
        ({"FLUX_JOB_ID": "f12"}, " of Flux job f12"),
    ],
)
def test_the_holder_is_named_with_its_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], job: str
) -> None:
    """Tasks of an array are also told that each needs a directory."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    first = Lock(tmp_path / "lock")
    assert first.attempt()
    holder = f"process {os.getpid()}{job} on {socket.gethostname()} holds its lock"
    with pytest.raises(InputError, match=re.escape(holder)) as refused:
        wait_for(Lock(tmp_path / "lock"))
    assert ("Each task of an array" in str(refused.value)) == ("array task" in job)
    first.release()


@pytest.mark.parametrize("text", [b"process 5 on elsewhere", b"\xff\x1b" * 5000])
def test_a_process_of_another_host_is_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: bytes
) -> None:
    """A lock of another host is waited for, with a warning; it is taken once free, or refused."""
    path = tmp_path / "lock"
    claim = Lock(path)
    with (
        Running([sys.executable, "-c", HOLD, path]) as holder,
        caplog.at_level("WARNING", "dsgmcmc"),
    ):
        assert holder.process.stdout.readline() == "held\n"
        path.write_bytes(text)
        with pytest.raises(InputError, match=r"in use: .* holds its lock"):
            wait_for(claim)
        assert "waiting for up to 0.6 s" in caplog.text
        assert is_held(path)
        threading.Timer(0.3, holder.process.kill).start()  # a process that was killed holds nothing
        wait_for(claim)
    claim.release()


def test_a_file_system_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A file system without locks gives a warning, and the run goes on."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with caplog.at_level("WARNING", "dsgmcmc"):
        Lock(tmp_path / "lock").attempt()
    assert "has no locks" in caplog.text
