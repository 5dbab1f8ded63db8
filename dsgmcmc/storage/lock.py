"""The lock of a run directory: one run at a time.

The operating system locks a file in the directory (``flock``), and releases the lock however its holder ends. The file
names the holder. A holder on another host may have died with its host without the file server noticing yet; another
run therefore waits up to `WAIT_SECONDS` for the lock. If the file system has no locks, a warning is logged.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import socket
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from dsgmcmc.errors import InputError
from dsgmcmc.storage.files import open_plain
from dsgmcmc.terminal import plain

WAIT_SECONDS = 120.0  # for a holder on another host
GRACE_SECONDS = 1.0  # for a holder on this host, which may be about to end, or be a short check by `is_held`
LOOK_SECONDS = 0.05
MAX_BYTES = 1 << 12
NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL)

log = logging.getLogger(__name__)


class Lock:
    """Claim on a directory by a lock on a file in it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1

    def acquire(self) -> None:
        """Claim the directory for this process.

        Raises InputError if another run works in the directory, and OSError if the lock cannot be made.
        """
        if self._path.exists() and not self._path.is_file():
            raise InputError(f"{self._path} is a directory, a pipe or a device: a lock is a file. Remove it")
        begin = monotonic()
        warned = False
        while not self._try():
            owner = _owner(self._path)
            named = {"pid", "host"} <= owner.keys()
            who = plain(f"process {owner['pid']} on {owner['host']}") if named else "its holder"
            here = owner.get("host") == socket.gethostname()
            waited = monotonic() - begin
            if here and waited > GRACE_SECONDS:
                stop = f"Wait for it, or stop it with `kill -USR1 {plain(str(owner.get('pid')))}`"
                raise InputError(f"{self._path.parent} is in use: {who} (this host) is alive. {stop}")
            if waited > WAIT_SECONDS:
                raise InputError(f"{self._path.parent} is in use: {who} holds its lock. Wait for that run, or stop it")
            if not here and not warned and waited > GRACE_SECONDS:
                log.warning("%s: %s holds its lock; waiting for up to %g s", self._path.parent, who, WAIT_SECONDS)
                warned = True
            sleep(LOOK_SECONDS)

    def _try(self) -> bool:
        """Lock the file, unless another process holds the lock; return whether it is locked."""
        file = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is(file, self._path):  # the last holder removed the file meanwhile
                os.close(file)
                return False
        except BlockingIOError:
            os.close(file)
            return False
        except OSError as error:
            if error.errno not in NO_LOCKS:
                os.close(file)
                raise
            log.warning("%s: its file system has no locks; see to it that no other run works there", self._path.parent)
        self._file = file
        with suppress(OSError):  # the content is only for messages
            os.ftruncate(file, 0)
            os.pwrite(file, json.dumps({"host": socket.gethostname(), "pid": os.getpid()}).encode(), 0)
        return True

    def release(self) -> None:
        """Release the directory, if this process holds the lock."""
        if self._file < 0:
            return
        if _is(self._file, self._path):
            with suppress(OSError):
                self._path.unlink()
        os.close(self._file)
        self._file = -1


def is_held(path: Path) -> bool:
    """Whether a process holds a lock; on a file system without locks, whether the lock file exists."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError as error:
        return error.errno in NO_LOCKS
    finally:
        os.close(file)
    return False


def _is(file: int, path: Path) -> bool:
    """Whether a path still refers to an open file."""
    with suppress(OSError):
        return os.path.samestat(os.fstat(file), path.stat())
    return False


def _owner(path: Path) -> dict[str, Any]:
    """Host and process of a lock's holder, as written in the lock file; empty if unreadable."""
    try:
        with open_plain(path, MAX_BYTES) as file:
            owner = json.loads(file.read(MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return owner if isinstance(owner, dict) else {}
