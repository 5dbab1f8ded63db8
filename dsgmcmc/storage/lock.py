"""The lock of a run directory: one job at a time.

The operating system locks a file in the directory (``flock``), and releases the lock however its
holder ends. The file names its last holder, with its host and its job of a batch system, and is not
removed. If a holder dies with its host, the file server may notice it only later; another job
therefore tries again for up to `WAIT_SECONDS`. If a file system has no locks, a warning is logged.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from contextlib import suppress
from pathlib import Path
from time import monotonic

from dsgmcmc.errors import InputError
from dsgmcmc.terminal import log, plain

WAIT_SECONDS = 120.0  # for a holder on another host
#: For a holder on this host: it may be about to end, or be a short check by `is_held`.
GRACE_SECONDS = 1.0
ATTEMPT_SECONDS = 0.05  # between attempts to lock the file
#: Variables of batch systems with the number of a job, and with that of a task of an array of jobs.
BATCH_SYSTEMS = {
    "Slurm": ("SLURM_JOB_ID", "SLURM_ARRAY_TASK_ID"),
    "PBS": ("PBS_JOBID", "PBS_ARRAY_INDEX"),
    "LSF": ("LSB_JOBID", "LSB_JOBINDEX"),
    "Flux": ("FLUX_JOB_ID", ""),
}
#: Errors by which a file system shows that it has no locks.
NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL)


class Lock:
    """The claim of a process on a directory, by a lock on the file `path` in the directory."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1
        self._began_at = 0.0
        self._warned = False

    def attempt(self) -> bool:
        """Try to claim the directory; return False if its holder may still release it.

        The directory is made if it is missing. Raises InputError if another process keeps the lock,
        and OSError if the file cannot be opened or locked.
        """
        if self._file < 0:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o644)
            self._began_at = monotonic()
            self._warned = False
        on_host = f"on {socket.gethostname()}"
        if _fails_to_lock(self._file, fcntl.LOCK_EX):
            self._wait_for_holder(on_host)
            return False
        with suppress(OSError):  # the content is only for messages
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"process {os.getpid()}{_of_job()} {on_host}".encode(), 0)
        return True

    def _wait_for_holder(self, on_host: str) -> None:
        """Log that another process holds the lock; raise InputError if it does for too long."""
        holder = os.pread(self._file, 200, 0).decode(errors="replace") or "another process"
        waited = monotonic() - self._began_at
        if waited <= GRACE_SECONDS:
            return
        if holder.endswith(on_host) or waited > WAIT_SECONDS:
            self.release()
            advice = "Wait, or stop it"
            if "array task" in _of_job():
                advice += ". Each task of an array needs a run directory of its own"
            raise InputError(
                f"{self._path.parent} is in use: {plain(holder)} holds its lock. {advice}"
            )
        if not self._warned:
            log.warning(
                "%s: %s holds its lock; waiting for up to %g s",
                self._path.parent,
                holder,
                WAIT_SECONDS,
            )
            self._warned = True

    def release(self) -> None:
        """Release the directory, or give up the claim to it."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _of_job() -> str:
    """Return the job that this process is part of, such as `` of Slurm job 12, array task 3``.

    The text is empty outside of a batch system.
    """
    for system, (number_variable, task_variable) in BATCH_SYSTEMS.items():
        number = os.environ.get(number_variable)
        if not number:
            continue
        task = os.environ.get(task_variable)
        if system == "Slurm" and task:
            number = os.environ.get("SLURM_ARRAY_JOB_ID", number)
        if system == "LSF" and task == "0":
            task = None
        if task:
            return f" of {system} job {number}, array task {task},"
        return f" of {system} job {number}"
    return ""


def _fails_to_lock(file: int, operation: int) -> bool:
    """Try to lock an open file; return whether another process holds the lock.

    `operation` is as for ``flock``. On a file system without locks, nothing is locked, and the
    result is False.
    """
    try:
        fcntl.flock(file, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        if operation == fcntl.LOCK_EX:
            log.warning(
                "the file system of this run has no locks; make sure that no other job works on"
                " this run"
            )
    return False


def last_holder(path: Path) -> str:
    """Return who holds or last held a lock, such as ``process 7 of Slurm job 12 on n1``.

    The text is empty without the file.
    """
    with suppress(OSError):
        return plain(path.read_bytes()[:200].decode(errors="replace"))
    return ""


def is_held(path: Path) -> bool:
    """Whether a process holds the lock on a file.

    The result is False without the file, or on a file system without locks.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        return _fails_to_lock(file, fcntl.LOCK_SH)
    finally:
        os.close(file)
