"""Checks of what sampling needs on this machine, with advice for what is missing."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from dsgmcmc._version import __version__
from dsgmcmc.cluster.probes import (
    Failure,
    attempt,
    probe_alone,
    probe_files,
    probe_kernels,
    probe_mpi,
    probe_startup,
    probe_two,
)
from dsgmcmc.parallel import machine
from dsgmcmc.parallel.launch import LAUNCHER_SIZES, alone
from dsgmcmc.parallel.machine import THREAD_VARIABLES
from dsgmcmc.parallel.mpirun import OPENMPI_AS_ROOT, find_mpirun, openmpi_environment

#: Variables that say: a batch job, or a process that a launcher started.
JOB_VARIABLES = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", *LAUNCHER_SIZES)
#: Beginnings of the variables that steer how MPI libraries communicate.
COMMUNICATION = ("OMPI_MCA_", "PRTE_MCA_", "PMIX_MCA_", "MPIR_CVAR_", "I_MPI_", "FI_", "UCX_")
#: What says that this is a container, and which kind.
CONTAINERS = {"Docker": "/.dockerenv", "Podman": "/run/.containerenv", "Apptainer": "/.singularity.d"}
LEAST_MEMORY = 1 << 30  # bytes; interpreter and libraries take 0.2 GB of it for each process
LONG_START = 10.0  # seconds; 1 on a machine with its libraries in memory
LEAST_SHARED = 256 << 20  # bytes of /dev/shm; Docker's 64 MB are too few for more than a few processes

Level = Literal["ok", "warning", "error"]


@dataclass(frozen=True)
class Finding:
    """One thing looked at.

    Attributes
    ----------
    name : str
        What was looked at.
    level : {"ok", "warning", "error"}
        An error means that sampling cannot work.
    found : str
        What is there.
    advice : str
        What to do; empty where all is well.
    """

    name: str
    level: Level
    found: str
    advice: str = ""


def examine(launch: bool = True) -> list[Finding]:
    """Look at everything that sampling needs; it can work if no finding is an error.

    `launch`: whether MPI processes may be started; login nodes of clusters often forbid it.
    """
    return [
        *(_python(), *_mpi(launch), _launcher_variables()),
        *(_communication(), _shared_memory()),
        *(_files(), *_kernels(), *_startup(launch), _threads(), _cores(), _memory()),
    ]


# ---------------------------------------------------------------------- MPI


def _mpi(launch: bool) -> Iterator[Finding]:
    answer = attempt(probe_mpi)
    if isinstance(answer, Failure):
        yield Finding(
            "MPI library",
            "warning" if alone() else "error",
            f"cannot be loaded: {answer.reason}",
            "one process needs none; for several pip install openmpi (or mpich), on a cluster load its MPI module and "
            "run pip install --no-binary=mpi4py --force-reinstall mpi4py",
        )
        return
    yield Finding("MPI library", "ok", f"{answer['library']}, mpi4py {answer['mpi4py']}")
    installed = [name for name in ("openmpi", "mpich", "impi-rt") if _version(name)]
    if len(installed) > 1:
        yield Finding(
            "MPI packages",
            "warning",
            f"{' and '.join(installed)} are installed here, and the later one has overwritten the other's mpirun",
            "pip uninstall them, then install one of them again",
        )
    if not launch:
        yield Finding("MPI start", "ok", "not tried (--no-launch)")
    else:
        yield from _start(answer["library"])


def _start(library: str) -> Iterator[Finding]:
    """Try one process without a launcher, then two with it."""
    alone = attempt(probe_alone)
    if isinstance(alone, Failure):
        yield Finding("MPI start", "error", f"one process alone: {alone.reason}", "see the message of the MPI library")
        return
    mpirun = find_mpirun()
    if mpirun is None:
        yield Finding(
            "MPI start",
            "warning",
            "one process works; no mpirun next to this Python or on the PATH",
            "pip install the package openmpi or mpich, or use your cluster's launcher (Slurm: srun --mpi=pmix)",
        )
        return
    two = attempt(probe_two, launcher=[mpirun, "-n", "2"], environment=openmpi_environment(oversubscribe=True))
    if isinstance(two, Failure):
        yield Finding(
            "MPI start",
            "error",
            f"{mpirun} -n 2: {two.reason}",
            f"this mpirun must be of the same installation as the library ({library}); check PATH and LD_LIBRARY_PATH",
        )
        return
    yield Finding("MPI start", "ok", f"{mpirun} started 2 processes, which exchanged {two['bytes']:,} bytes")
    on_path = shutil.which("mpirun")
    if on_path is not None and Path(on_path).resolve() != Path(mpirun).resolve():
        yield Finding(
            "mpirun",
            "warning",
            f"the PATH finds another one first: {on_path}",
            f"activate this environment, or call {mpirun}",
        )
    if os.geteuid() == 0 and "Open MPI" in library and not all(os.environ.get(name) for name in OPENMPI_AS_ROOT):
        yield Finding(
            "root",
            "warning",
            "Open MPI's mpirun refuses to work for root",
            f"use another account, or export {OPENMPI_AS_ROOT[0]}=1 {OPENMPI_AS_ROOT[1]}=1 (launch/mpirun.sh does)",
        )


# ---------------------------------------------------------------------- communication


def _communication() -> Finding:
    settings = [f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith(COMMUNICATION)]
    container = next((name for name, mark in CONTAINERS.items() if Path(mark).exists()), None)
    place = [] if container is None else [f"in a container ({container})"]
    return Finding("Communication", "ok", ", ".join(place + settings) or "no settings: the MPI library chooses")


def _shared_memory() -> Finding:
    """Messages between the processes of a host pass through files here, and blocks of a tour lie in one."""
    try:
        usage = shutil.disk_usage("/dev/shm")
    except OSError as error:
        advice = "MPI libraries pass the messages of a host through it: mount a tmpfs there"
        return Finding("Shared memory", "warning", f"no /dev/shm: {error.strerror}", advice)
    text = f"/dev/shm has {usage.free / 1e6:,.0f} MB free"
    if usage.free < LEAST_SHARED:
        advice = "start the container with --shm-size=1g, or remove what lies in /dev/shm"
        return Finding("Shared memory", "warning", text, advice)
    return Finding("Shared memory", "ok", text)


# ---------------------------------------------------------------------- everything else


def _python() -> Finding:
    text = f"{platform.python_version()}, {sys.executable}, {platform.system()} {platform.machine()}"
    text += f", dsgmcmc {__version__}"
    if platform.system() != "Linux":
        return Finding("Python", "error", text, "dsgmcmc samples on Linux only: use a container or a virtual machine")
    return Finding("Python", "ok", text)


def _launcher_variables() -> Finding:
    variables = [f"{name}={os.environ[name]}" for name in JOB_VARIABLES if name in os.environ]
    return Finding("Launcher", "ok", ", ".join(variables) or "none: not in a batch job, not under mpirun")


def _files() -> Finding:
    answer = attempt(probe_files)
    if isinstance(answer, Failure):
        advice = "pip install --force-reinstall h5py, and check that the temporary folder (TMPDIR) can be written"
        return Finding("HDF5", "error", answer.reason, advice)
    return Finding("HDF5", "ok", f"h5py {_version('h5py')}; a ratings file was written and read back")


def _kernels() -> Iterator[Finding]:
    answer = attempt(probe_kernels)
    if isinstance(answer, Failure):
        advice = "if Numba itself fails: pip install --force-reinstall numba llvmlite"
        yield Finding("Kernels", "error", answer.reason, advice)
        return
    features = ", ".join(answer["features"])
    text = f"Numba {_version('numba')}, CPU {answer['cpu']}, {features or 'no vector instructions'}"
    if platform.machine() == "x86_64" and "avx2" not in answer["features"]:
        yield Finding("Kernels", "warning", text, "sampling will be several times slower than on a CPU with AVX2")
    else:
        yield Finding("Kernels", "ok", text)
    if answer["private"]:
        yield Finding(
            "Kernel cache",
            "warning",
            "no folder is writable: every process compiles its kernels again",
            "set DSGMCMC_CACHE_DIR to a folder that only you can write",
        )
    else:
        yield Finding("Kernel cache", "ok", answer["cache"])


def _startup(launch: bool) -> Iterator[Finding]:
    """Time that a process needs before it samples; after the kernels, so that the first one is in the cache."""
    seconds = attempt(probe_startup, launch)
    if isinstance(seconds, Failure):
        seconds = attempt(probe_startup)
    if isinstance(seconds, Failure):
        return  # what failed was said above
    total = sum(seconds.values())
    text = f"{total:.1f} s: {', '.join(f'{name} {taken:.2f}' for name, taken in seconds.items())}"
    if total < LONG_START:
        yield Finding("Start-up", "ok", text)
    elif seconds.get("MPI", 0.0) > total / 2:
        advice = "the MPI library looks for networks; what Open MPI may use is set by OMPI_MCA_btl and OMPI_MCA_pml"
        yield Finding("Start-up", "warning", text, advice)
    else:
        advice = "Python and its libraries come from a slow disk: install them on a local one, or use an image"
        yield Finding("Start-up", "warning", text, advice)


def _threads() -> Finding:
    values = {name: os.environ.get(name, "not set") for name in THREAD_VARIABLES}
    text = ", ".join(f"{name}={value}" for name, value in values.items())
    if set(values.values()) == {"1"}:
        return Finding("Threads", "ok", f"one for each process ({text})")
    return Finding("Threads", "warning", text, "unset them or set them to 1: each process computes with one thread")


def _cores() -> Finding:
    affinity, quota, cores = machine.affinity(), machine.cpu_quota(), machine.usable_cores()
    text = f"{affinity} of {os.cpu_count()} may be used"
    if quota is not None and quota < affinity:
        text += f", and the cgroup grants {quota:g} cores' worth of time"
        return Finding("Cores", "warning", text, f"start at most {cores} processes here")
    return Finding("Cores", "ok", text)


def _memory() -> Finding:
    limit = machine.memory_limit()
    text = f"{limit / 1e9:.1f} GB may be used"
    if limit < LEAST_MEMORY:
        return Finding("Memory", "warning", text, "ask for more: each process takes 0.2 GB before any data")
    return Finding("Memory", "ok", text)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
