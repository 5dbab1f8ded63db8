"""Temporary folders that are removed with their user or, if it was killed, when the next one is made."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import IO

PREFIX, LOCK = "dsgmcmc-scratch-", "in-use"


class Scratch:
    """A temporary folder that is removed when this object is, or the process ends.

    A lock on a file in it says that it is in use: the system lets go of it however the process ends, so what a process
    left that was killed is found by the next one, and removed.

    Attributes
    ----------
    path : Path
    """

    def __init__(self) -> None:
        _remove_left()
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        lock = (self.path / LOCK).open("w")
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        weakref.finalize(self, _remove, self.path, lock)


def _remove(folder: Path, lock: IO[str]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    lock.close()


def _remove_left() -> None:
    """Remove the folders of this user that nobody uses any more."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            with (folder / LOCK).open("r") as lock:  # between mkdtemp and its lock a folder has none
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
