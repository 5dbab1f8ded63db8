"""Compiles generated source once per CPU, and loads it from the cache afterwards.

Kernels are Python source, generated for a rank, a formula or a dtype. Numba's cache cannot store
functions defined by ``exec``. So the source is written to a folder

    CACHE / <SHA-256 of source, name, compiler flags, versions, CPU> / <module>.py

and imported from there; Numba keeps the machine code in the same folder. A folder appears by an
atomic rename, and its source never changes, so many processes can start at once. One process
compiles, and the others wait for it, if the file system has locks.

CACHE is ``DSGMCMC_CACHE_DIR``, else ``$XDG_CACHE_HOME/dsgmcmc``, else ``~/.cache/dsgmcmc``. If it
cannot be written or its disk is full, the process uses a temporary folder and removes it at exit.
Numba's cache files are pickles, which can run code as the user, so the folder has mode 0700.

Numba is imported with the first kernel (`kernels.compiler`): commands without kernels start
without it. So do those whose kernels are compiled to machine code alone (`native_kernels`).
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import IO

from dsgmcmc.errors import naming
from dsgmcmc.kernels.compiling.native import Kernel, MachineCode, from_json
from dsgmcmc.parallel.launcher import is_first
from dsgmcmc.terminal import log

_HEADER = """\
import math
from typing import Any
import numpy as np
from dsgmcmc.kernels.compiling.compiler import EXACT, exact_helper, helper, kernel, wide_vectors
from numpy import float32, float64, int32, int64, uint32, uint64

"""

_NATIVE_HEADER = _HEADER.replace(", kernel,", ", exported as kernel,")
_MACHINE_CODE = "machine-code.json"

#: Flags of Numba on which machine code depends; its variables are named NUMBA_FLAG.
_FLAGS = (
    "OPT",
    "LOOP_VECTORIZE",
    "SLP_VECTORIZE",
    "CPU_NAME",
    "CPU_FEATURES",
    "BOUNDSCHECK",
    "DEBUGINFO_DEFAULT",
)

#: Seconds in which any kernel is compiled; a process that has waited for so long compiles it, too.
_PATIENCE = 60.0
#: Processor seconds in which this process has compiled modules, also beside other work.
_SECONDS: list[float] = []
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
    from dsgmcmc.kernels.compiling.compiler import configuration  # Numba is slow to import

    source = _HEADER + source
    digest = _digest(_machine(), configuration(_FLAGS), name, source)
    path = _publish(cache_directory() / digest, f"{name}.py", source)
    with naming(path), _one_compiles(path.parent, "*.nbi"):  # Numba writes the code beside it
        return _import_source(path, f"dsgmcmc_{name}_{digest}")


def _digest(*facts: str) -> str:
    """Return the name of the folder of source that is compiled under these facts."""
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()[:32]


def _import_source(path: Path, module_name: str) -> ModuleType:
    """Import a file of generated source."""
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # Numba looks up a cached function's globals by module name
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[module_name]
        raise
    return module


@functools.cache
def native_kernels(name: str, source: str) -> dict[str, Kernel]:
    """Return the kernels of generated source, by name, as machine code that needs no Numba.

    Parameters are as for `compile_source`. Their machine code is beside their source.
    """
    source = _NATIVE_HEADER + source
    digest = _digest(_machine(), name, source)
    path = _publish(cache_directory() / digest, f"{name}.py", source)
    stored = path.with_name(_MACHINE_CODE)
    with naming(path):
        if not stored.exists():
            with _one_compiles(path.parent, _MACHINE_CODE):
                if not stored.exists():
                    _store(_import_source(path, f"dsgmcmc_{name}_{digest}"), stored)
        compiled = [from_json(kernel) for kernel in json.loads(stored.read_text())]
    return {kernel.name: Kernel(kernel) for kernel in compiled}


def _store(module: ModuleType, path: Path) -> None:
    """Write the machine code of all kernels in a module to a file, atomically."""
    compiled = [value for value in vars(module).values() if isinstance(value, MachineCode)]
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        json.dump(compiled, file)
        file.flush()
        os.fsync(file.fileno())
    Path(file.name).replace(path)


@functools.cache
def _machine() -> str:
    """Describe, without Numba, everything except the source on which machine code depends."""
    from llvmlite import binding  # slow to import

    facts = [
        platform.python_implementation() + sys.version,
        *(importlib.metadata.version(name) for name in ("numba", "llvmlite", "numpy")),
        binding.get_process_triple(),
        binding.get_host_cpu_name(),
        binding.get_host_cpu_features().flatten(),
    ]
    facts += [f"{flag}={os.environ.get(f'NUMBA_{flag}')}" for flag in _FLAGS]
    folder = Path(__file__).parent
    facts += [
        (folder / f"{name}.py").read_text() for name in ("vectors", "tiles", "compiler", "native")
    ]
    return "\n".join(facts)


@functools.cache
def cache_directory() -> Path:
    """Return the folder of compiled kernels. The first call creates it if it is missing."""
    try:
        folder = _chosen_directory()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_uid != os.geteuid():  # of another user, whose code must not be run
            folder = folder / str(os.geteuid())
            folder.mkdir(mode=0o700, exist_ok=True)
            if folder.stat().st_uid != os.geteuid():
                raise PermissionError(f"{folder} belongs to another user")
        with tempfile.TemporaryFile(dir=folder) as file:
            # with a full quota, empty files can still be created
            file.write(bytes(_REQUIRED_BYTES))
    except (OSError, RuntimeError):
        private = tempfile.mkdtemp(prefix="dsgmcmc-kernels-")
        atexit.register(shutil.rmtree, private, ignore_errors=True)
        return Path(private)
    return folder.resolve()


def _chosen_directory() -> Path:
    """Return the folder that the environment names, or the default."""
    requested = os.environ.get("DSGMCMC_CACHE_DIR")
    if requested:
        return Path(requested)
    caches = os.environ.get("XDG_CACHE_HOME")
    if caches:
        return Path(caches, "dsgmcmc")
    return Path.home() / ".cache" / "dsgmcmc"


def _publish(folder: Path, file_name: str, source: str) -> Path:
    """Write source to a file in a new folder, unless it exists, and return its path.

    An atomic rename shows both.
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
        # another process has written the same source earlier
        shutil.rmtree(draft, ignore_errors=True)
    return path


@contextlib.contextmanager
def _one_compiles(folder: Path, compiled: str) -> Iterator[None]:
    """Let one process at a time compile the source in a folder; the others find the machine code.

    It is in files with names like `compiled`. Folders that cannot be written, and file systems
    without locks, raise `OSError`: then every process compiles.
    """
    if any(folder.rglob(compiled)):
        yield
        return
    stored = folder.parent / "seconds"
    if is_first():
        _announce(stored)
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):
            _wait_for_lock(held.enter_context((folder / "lock").open("wb")))
        if any(folder.rglob(compiled)):  # another process has compiled it
            yield
            return
        begin = time.process_time()
        yield
        _SECONDS.append(time.process_time() - begin)
    if sum(_SECONDS) > _longest(stored):
        with contextlib.suppress(OSError):
            stored.write_text(f"{sum(_SECONDS):.1f}")


def _longest(stored: Path) -> float:
    """Return the most processor seconds in which a process compiled; 0 if none has."""
    with contextlib.suppress(OSError, ValueError):
        return float(stored.read_text())
    return 0.0


@functools.cache
def _announce(stored: Path) -> None:
    """Log once that this process compiles, or waits for one that does, and how long that takes."""
    took = "it takes about 10 s"
    longest = _longest(stored)
    if longest:
        took = f"it took {longest:.0f} s of a processor at most so far"
    log.info("compiling kernels for this processor, once (%s)", took)


def _wait_for_lock(file: IO[bytes]) -> None:
    """Lock a file, or give up after `_PATIENCE` seconds."""
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.02)
        else:
            return


def indented(lines: Sequence[str], depth: int = 1) -> list[str]:
    """Indent lines of source by `depth` levels."""
    return ["    " * depth + line for line in lines]
