"""The folder of compiled kernels.

It is ``DSGMCMC_CACHE_DIR``, or else ``$XDG_CACHE_HOME/dsgmcmc``, or else ``~/.cache/dsgmcmc``. If that folder cannot be
written or its disk is full, the process uses a private temporary folder and removes it at exit. Numba's cache files are
pickles: whoever can write them can run code as the user, so the folder is created with mode 0700.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
from pathlib import Path

from dsgmcmc.errors import naming

_ROOM = 1 << 18  # bytes, enough for nearly every kernel


@functools.cache
def cache_directory() -> Path:
    """Return the folder of compiled kernels. The first call creates it if it is missing."""
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
    return folder.resolve()


def publish(folder: Path, file_name: str, source: str) -> Path:
    """Write source into a new folder by an atomic rename, unless the folder exists, and return the file's path."""
    path = folder / file_name
    if path.exists():
        return path
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    with naming(path), (draft / file_name).open("w", encoding="utf-8") as file:
        file.write(source)
        file.flush()
        os.fsync(file.fileno())
    try:
        draft.rename(folder)
    except OSError:
        if not path.exists():
            raise
        shutil.rmtree(draft, ignore_errors=True)  # another process wrote the same text first
    return path
