"""Probes of MPI and compiled libraries, which may crash, hang or abort, each in its own process."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any

from dsgmcmc.errors import InputError
from dsgmcmc.parallel import machine
from dsgmcmc.parallel.launch import library, world_comm

TIMEOUT = 60.0  # seconds for one trial; starting Python from a busy shared file system takes a while
#: Vector instructions that the kernels profit from, widest first.
VECTOR_FEATURES = ("avx512f", "avx2", "avx", "sve", "neon")


def _first_kernel() -> None:
    import numpy as np

    from dsgmcmc.kernels.philox import philox4x32

    philox4x32(np.zeros((1, 4), np.uint32), np.zeros(2, np.uint32))


def _settings() -> None:
    from dsgmcmc.config.layers import build

    build({})  # imports the default sampler


#: What a process does before it samples, in this order, after Python and MPI.
STARTUP: dict[str, Callable[[], object]] = {
    "NumPy": partial(import_module, "numpy"),
    "Numba": partial(import_module, "dsgmcmc.kernels.compiler"),
    "HDF5": partial(import_module, "dsgmcmc.data.ratings"),
    "samplers": _settings,
    "first kernel": _first_kernel,
}


@dataclass(frozen=True)
class Failure:
    """Why a trial did not work."""

    reason: str


def attempt(
    probe: Callable[..., None],
    *arguments: object,
    launcher: Sequence[str] = (),
    environment: dict[str, str] | None = None,
    seconds: float = TIMEOUT,
) -> Any | Failure:
    """Run a probe in a process group of its own, with plain arguments; return the JSON that it prints, or a failure."""
    code = f"from {__name__} import {probe.__name__} as probe; probe(*{arguments!r})"
    process = subprocess.Popen(
        [*launcher, sys.executable, "-c", code],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
        env={**os.environ, **(environment or {})},
    )
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        _end(process)
        return Failure(f"no answer within {seconds:.0f} s")
    if process.returncode == 0:
        return json.loads(out.splitlines()[-1])
    return Failure(_reason(process.returncode, err or out))


def _end(process: subprocess.Popen[str]) -> None:
    """End a process group: a launcher gets time to end its processes, which may be in groups of their own."""
    for number, seconds in ((signal.SIGTERM, 5.0), (signal.SIGKILL, None)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=seconds)


def _reason(status: int, text: str) -> str:
    """Return the informative lines of a failed child's output."""
    lines = [line.strip() for line in text.splitlines() if line.strip(" -\t")]
    for number, line in enumerate(lines):
        kind, colon, _ = line.partition(": ")
        if colon and kind.endswith(("Error", "Exception")) and " " not in kind:  # where a traceback ends
            return " ".join([line.removeprefix(f"{InputError.__module__}.InputError: "), *lines[number + 1 :]][:4])
    how = f"killed by signal {-status}" if status < 0 else f"exit status {status}"
    return " ".join([f"{how}:", *lines[:6]]) if lines else how


# ---------------------------------------------------------------------- what the children do


def probe_mpi() -> None:
    """Load the MPI library, without initialising it, and print its version."""
    import mpi4py

    mpi4py.rc.initialize = False
    from mpi4py import MPI

    print(json.dumps({"library": library(MPI.Get_library_version()), "mpi4py": mpi4py.__version__}))


def probe_alone() -> None:
    """Initialise MPI in a single process."""
    world_comm().Barrier()
    print("{}")


def probe_startup(mpi: bool) -> None:
    """Run the start-up of a process, with or without MPI, and print the seconds of its steps."""
    seconds = {"Python": machine.seconds_since_start()}
    for name, work in {**({"MPI": world_comm} if mpi else {}), **STARTUP}.items():
        begin = perf_counter()
        work()
        seconds[name] = perf_counter() - begin
    print(json.dumps(seconds))


def probe_two() -> None:
    """Exchange a megabyte between two processes, as the blocks of a run do. Collective."""
    import numpy as np

    comm = world_comm()
    if comm.size != 2:
        raise InputError(f"expected 2 processes that know of each other, found {comm.size}")
    sent, received = np.full(1 << 18, comm.rank, np.float32), np.full(1 << 18, -1, np.float32)
    comm.Sendrecv(sent, 1 - comm.rank, recvbuf=received, source=1 - comm.rank)
    if not (received == 1 - comm.rank).all():
        raise InputError("a message arrived damaged")
    if comm.rank == 0:
        print(json.dumps({"bytes": sent.nbytes}))


def probe_files() -> None:
    """Write a small ratings file and read it back."""
    import numpy as np

    from dsgmcmc.data.ratings import open_ratings, write_ratings

    indptr, indices = np.arange(3, dtype=np.int64), np.arange(2, dtype=np.int32)
    train = indptr, indices, np.array([1.0, 2.0], np.float32)
    test = np.zeros(3, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32)
    with tempfile.TemporaryDirectory(prefix="dsgmcmc-doctor-") as folder:
        path = Path(folder) / "ratings.h5"
        write_ratings(path, train, test, np.arange(2), np.arange(2))
        with open_ratings(path) as ratings:
            ratings.verify()
    print("{}")


def probe_kernels() -> None:
    """Compile a kernel, or load it from the cache, compare it with published values, and print the facts."""
    import llvmlite.binding
    import numpy as np

    from dsgmcmc.kernels.cache import cache_directory
    from dsgmcmc.kernels.philox import philox4x32

    words = philox4x32(np.zeros((1, 4), np.uint32), np.zeros(2, np.uint32))
    expected = [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]  # of Random123's kat_vectors
    if words[0].tolist() != expected:
        raise InputError("a compiled kernel computes wrong values on this CPU")
    features = llvmlite.binding.get_host_cpu_features()
    facts = {
        "cpu": llvmlite.binding.get_host_cpu_name(),
        "features": [name for name in VECTOR_FEATURES if features.get(name)],
        "cache": str(cache_directory()),
        "private": cache_directory().name.startswith("dsgmcmc-kernels-"),
    }
    print(json.dumps(facts))
