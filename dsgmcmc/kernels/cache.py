"""The folder of compiled kernels.

It is ``DSGMCMC_CACHE_DIR``, or else ``$XDG_CACHE_HOME/dsgmcmc``, or else ``~/.cache/dsgmcmc``. If that folder cannot be
written or its disk is full, the process uses a private temporary folder and removes it at exit. Numba's cache files are
pickles: whoever can write them can run code as the user. So the folder is created with mode 0700, and a folder that
belongs to another user, or that group or others may write, is refused.
"""

from __future__ import annotations

import atexit
import fcntl
import functools
import os
import shutil
import stat
import tempfile
from contextlib import ExitStack
from pathlib import Path

from dsgmcmc.errors import InputError, naming

_ROOM = 1 << 18  # bytes, enough for nearly every kernel


@functools.cache
def cache_directory() -> Path:
    """Return the folder of compiled kernels. The first call creates it if it is missing, and checks it."""
    given = os.environ.get("DSGMCMC_CACHE_DIR")
    home = os.environ.get("XDG_CACHE_HOME")
    try:
        folder = Path(given) if given else (Path(home) if home else Path.home() / ".cache") / "dsgmcmc"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_ROOM))  # a full quota still lets empty files be created
    except (OSError, RuntimeError):
        private = tempfile.mkdtemp(prefix="dsgmcmc-kernels-")
        atexit.register(shutil.rmtree, private, ignore_errors=True)
        return Path(private)
    status = folder.stat()
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise InputError(
            f"the kernel cache {folder} belongs to user {status.st_uid} with mode "
            f"{stat.S_IMODE(status.st_mode):o}: code is loaded from it, so it must be yours and writable by you "
            f"alone; chmod 700 it or set DSGMCMC_CACHE_DIR"
        )
    return folder.resolve()


def wait_for_turn(source: str, turn: ExitStack) -> bool:
    """Wait until no other process compiles this source, and hold the lock until `turn` ends. False without locks."""
    try:
        folder = os.open(Path(source).parent, os.O_RDONLY)
        turn.callback(os.close, folder)
        fcntl.flock(folder, fcntl.LOCK_EX)
    except OSError:  # a file system without locks
        return False
    return True


def publish(cache: Path, digest: str, file_name: str, source: str) -> Path:
    """Write the source into the cache by an atomic rename, unless the file exists, and return its path."""
    final = cache / digest
    path = final / file_name
    if path.exists():
        return path
    draft = Path(tempfile.mkdtemp(prefix=f".{digest}-", dir=cache))
    with naming(path), (draft / file_name).open("w", encoding="utf-8") as file:
        file.write(source)
        file.flush()
        os.fsync(file.fileno())
    try:
        draft.rename(final)
    except OSError:
        if not path.exists():
            raise
        shutil.rmtree(draft, ignore_errors=True)  # another process wrote the same text first
    return path
