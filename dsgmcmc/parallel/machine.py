"""The cores and the memory that this process may use, and how long it has been running."""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path("/")
#: Variables that set the number of threads of the libraries that we use.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


def affinity() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0))


@cache
def cpu_name(root: Path = ROOT) -> str:
    """Name of the processor: the last bits of what compiled code computes depend on it."""
    with contextlib.suppress(OSError):
        for line in (root / "proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("model name", "CPU part"):
                return value.strip()
    return platform.machine()


def cpu_quota(root: Path = ROOT) -> float | None:
    """CPU quota in cores: the smallest that the cgroups set; None without a limit.

    Parameters
    ----------
    root : Path
        Where ``proc`` and ``sys`` lie.
    """
    quotas = []
    for folder, version in _groups("cpu", root):
        with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
            if version == 2:
                quota, period = (folder / "cpu.max").read_text().split()
            else:
                quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
            if int(quota) > 0:  # -1 is no limit
                quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def usable_cores(root: Path = ROOT) -> int:
    """Number of processes that can compute at once: the cores of the affinity, or the quota if it is smaller."""
    quota = cpu_quota(root)
    return affinity() if quota is None else max(1, min(affinity(), int(quota)))


def memory_limit(root: Path = ROOT) -> int:
    """Bytes that this process may use: the machine's memory, or the smallest limit of its cgroups."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for folder, version in _groups("memory", root):
        with contextlib.suppress(OSError, ValueError):
            limits.append(int((folder / ("memory.max" if version == 2 else "memory.limit_in_bytes")).read_text()))
    return min(limits)


def peak_memory() -> int:
    """Most bytes of memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def seconds_since_start() -> float:
    """Wall seconds since this process began."""
    with Path("/proc/self/stat").open(encoding="ascii") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def _groups(controller: str, root: Path) -> Iterator[tuple[Path, int]]:
    """Yield the folder of this process's cgroup and of those above it, each with the cgroup version."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    mount = root / "sys/fs/cgroup"
    for line in lines:
        _, controllers, name = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = mount / controller if controllers else mount
        own = top / name.lstrip("/")
        # a container sees its own group at the top, whatever name the host has for it
        for folder in (own, *own.parents):
            yield folder, 1 if controllers else 2
            if folder == top:
                break
