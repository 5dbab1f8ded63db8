"""Cores and memory available to this process, its peak memory and its age."""

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
#: Variables that set the number of threads of numerical libraries.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


@cache
def cpu_name() -> str:
    """Name of the processor, on which the last bits of results of compiled code depend."""
    with contextlib.suppress(OSError):
        for line in (ROOT / "proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("model name", "CPU part"):
                return value.strip()
    return platform.machine()


def cpu_quota() -> float | None:
    """CPU quota in cores: the smallest quota of the cgroups; None without a quota."""
    versions = [*_cgroup_values("cpu", "cpu.max"), *_cgroup_values("cpu", "cpu.cfs_quota_us", "cpu.cfs_period_us")]
    return min((int(quota) / int(period) for quota, period in versions if quota.isdigit()), default=None)


def usable_cores() -> int:
    """Number of processes that can compute at once: cores in the affinity mask, or the CPU quota if it is smaller."""
    cores, quota = len(os.sched_getaffinity(0)), cpu_quota()
    return cores if quota is None else max(1, min(cores, int(quota)))


def memory_limit() -> int:
    """Bytes that this process may use: the memory of the machine, or the smallest limit of the cgroups."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for name in ("memory.max", "memory.limit_in_bytes"):
        limits += [int(limit) for (limit,) in _cgroup_values("memory", name) if limit.isdigit()]
    return min(limits)


def _cgroup_values(controller: str, *files: str) -> Iterator[list[str]]:
    """Yield the words in `files` of the cgroup of this process, and of each parent cgroup.

    A word that is a limit is a number; without a limit the word is ``max`` or -1.
    """
    groups = ROOT / "proc/self/cgroup"
    for line in groups.read_text().splitlines() if groups.exists() else []:
        _, controllers, name = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = ROOT / "sys/fs/cgroup" / (controller if controllers else "")
        group = top / name.lstrip("/")
        # a container sees its cgroup at the top, under whatever name the host gives it
        for folder in (group, *group.parents):
            with contextlib.suppress(OSError):
                yield " ".join((folder / file).read_text() for file in files).split()
            if folder == top:
                break


def peak_memory() -> int:
    """Peak resident memory of this process, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def seconds_since_start() -> float:
    """Wall seconds since this process began."""
    with Path("/proc/self/stat").open(encoding="ascii") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
