"""Compiles generated source once per CPU, and loads it from the cache afterwards.

Kernels are Python source that is generated for a rank, a formula or a dtype. Numba's cache cannot
store functions defined by ``exec``, and its key contains neither SLP vectorisation nor the
generated text. So the source is written to a folder

    CACHE / <SHA-256 of source, name, compiler flags, versions, CPU> / <module>.py

and imported from there, and Numba's ``cache=True`` keeps the machine code in the same folder. A
folder appears by an atomic rename, and its source never changes, so many processes can start at
once on a shared file system. Of processes that find no machine code one compiles the source, and
the others wait for it, if the file system has locks.

CACHE is ``DSGMCMC_CACHE_DIR``, or else ``$XDG_CACHE_HOME/dsgmcmc``, or else ``~/.cache/dsgmcmc``.
If that folder cannot be written or its disk is full, the process uses a private temporary folder
and removes it at exit. Numba's cache files are pickles: whoever can write them can run code as the
user, so the folder is created with mode 0700.

Numba is imported with the first kernel (`kernels.compiler`), so commands without kernels start
without it.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import hashlib
import importlib.util
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

from dsgmcmc.errors import naming

_HEADER = """\
import math
from typing import Any
import numpy as np
from dsgmcmc.kernels.compiler import EXACT, exact_helper, helper, kernel, wide_vectors
from numpy import float32, float64, int32, int64, uint32, uint64

"""

_PATIENCE = (
    60.0  # seconds in which any kernel is compiled; whoever has waited for so long compiles it, too
)
_REQUIRED_BYTES = 1 << 18  # sufficient for nearly every kernel


@functools.cache
def compile_source(name: str, source: str) -> ModuleType:
    """Write generated source to the cache, if it is new, and import it from there.

    Parameters
    ----------
    name : str
        Part of the module's name; shown in tracebacks and profiles.
    source : str
        Python source, which can use the names that `_HEADER` imports. ``@kernel(signature)``
        decorates a kernel, and ``@helper`` a function that the kernels in this module call
        (`kernels.compiler`).

    Returns
    -------
    module
        The imported module, whose kernels are compiled or loaded.
    """
    from dsgmcmc.kernels.compiler import machine  # importing Numba takes longer than most commands

    source = _HEADER + source
    digest = hashlib.sha256("\0".join((machine(), name, source)).encode()).hexdigest()[:32]
    module_name = f"dsgmcmc_{name}_{digest}"
    path = _publish(cache_directory() / digest, f"{name}.py", source)
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # Numba looks up a cached function's globals by module name
    try:
        with naming(path), _turn(path.parent):  # Numba writes the compiled kernels beside it
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[module_name]
        raise
    return module


@functools.cache
def cache_directory() -> Path:
    """Return the folder of compiled kernels. The first call creates it if it is missing."""
    requested, caches = os.environ.get("DSGMCMC_CACHE_DIR"), os.environ.get("XDG_CACHE_HOME")
    try:
        folder = Path(requested or Path(caches or Path.home() / ".cache", "dsgmcmc"))
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_uid != os.geteuid():  # of another user, whose code must not be run
            folder = folder / str(os.geteuid())
            folder.mkdir(mode=0o700, exist_ok=True)
            if folder.stat().st_uid != os.geteuid():
                raise PermissionError(f"{folder} belongs to another user")
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(
                bytes(_REQUIRED_BYTES)
            )  # with a full quota, empty files can still be created
    except (OSError, RuntimeError):
        private = tempfile.mkdtemp(prefix="dsgmcmc-kernels-")
        atexit.register(shutil.rmtree, private, ignore_errors=True)
        return Path(private)
    return folder.resolve()


def _publish(folder: Path, file_name: str, source: str) -> Path:
    """Write source to a file in a new folder, unless it exists, and return its path; an atomic
    rename shows both.
    """
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
        shutil.rmtree(
            draft, ignore_errors=True
        )  # another process has written the same source earlier
    return path


@contextlib.contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """Let one process at a time compile what is in a folder; those after it find the machine code."""
    with contextlib.ExitStack() as held:
        if not any(folder.rglob("*.nbi")):
            with contextlib.suppress(
                OSError
            ):  # of folders that cannot be written, and file systems without locks
                file, end = (
                    held.enter_context((folder / "lock").open("wb")),
                    time.monotonic() + _PATIENCE,
                )
                while time.monotonic() < end:
                    with contextlib.suppress(BlockingIOError):
                        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        break
                    time.sleep(0.02)
        yield


def indented(lines: Sequence[str], depth: int = 1) -> list[str]:
    """Indent lines of source by `depth` levels."""
    return ["    " * depth + line for line in lines]
