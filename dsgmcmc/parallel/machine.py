"""The machine of this process: its processor, the cores and memory that may be used, and the clock.

Containers and batch systems set limits by cgroups, of version 1 or 2.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

#: Root of the file system, where the kernel shows the machine and its limits.
FILESYSTEM = Path("/")
#: Environment variables that Apptainer and Singularity set in a container.
CONTAINER_VARIABLES = ("APPTAINER_CONTAINER", "SINGULARITY_CONTAINER")


@cache
def cpu_name() -> str:
    """Return the name of the processor; the last bits of compiled code's results depend on it."""
    with suppress(OSError):
        for line in (FILESYSTEM / "proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("model name", "CPU part"):
                return value.strip()
    return platform.machine()


def cpu_quota() -> float | None:
    """Return the smallest CPU quota of this process's cgroups, in cores; None without a quota."""
    limits = [
        *_cgroup_values("cpu", "cpu.max"),
        *_cgroup_values("cpu", "cpu.cfs_quota_us", "cpu.cfs_period_us"),
    ]
    quotas = [int(quota) / int(period) for quota, period in limits if quota.isdigit()]
    return min(quotas, default=None)


def usable_cores() -> int:
    """Return the number of cores in the affinity mask, or the CPU quota if it is smaller."""
    return within_quota(len(os.sched_getaffinity(0)))


def within_quota(cores: int) -> int:
    """Return `cores`, or the CPU quota in whole cores, at least 1, if it is smaller."""
    quota = cpu_quota()
    if quota is None:
        return cores
    return max(1, min(cores, int(quota)))


def memory_limit() -> int:
    """Return the bytes that this process may use.

    They are the machine's memory, or the smallest limit of its cgroups.
    """
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for name in ("memory.max", "memory.limit_in_bytes"):
        limits += [int(limit) for (limit,) in _cgroup_values("memory", name) if limit.isdigit()]
    return min(limits)


def memory_for_data() -> int:
    """Return the bytes that reading data may use by default: 60 % of `memory_limit`."""
    return int(0.6 * memory_limit())


def _cgroup_values(controller: str, *files: str) -> Iterator[list[str]]:
    """Yield, for the cgroup of this process and for each parent cgroup, the words in its `files`.

    A limit is a number; if there is no limit, the word in its place is ``max`` or -1.
    """
    groups = FILESYSTEM / "proc/self/cgroup"
    if not groups.exists():
        return
    for line in groups.read_text().splitlines():
        _, controllers, name = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = FILESYSTEM / "sys/fs/cgroup"
        if controllers:  # version 1
            top /= controller
        group = top / name.lstrip("/")
        # a container sees its cgroup at the top, although the name in the file is the host's
        for folder in (group, *group.parents):
            with suppress(OSError):
                yield " ".join((folder / file).read_text() for file in files).split()
            if folder == top:
                break


def peak_memory() -> int:
    """Return the peak resident memory of this process, in bytes.

    `getrusage` would include that of its parent.
    """
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def seconds_since_start() -> float:
    """Return the seconds of wall time since this process began."""
    ticks = int(Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def ends_with_container(path: Path) -> bool:
    """Whether a path is in the memory of a container that ends with this process.

    Apptainer's ``-C`` and ``--contain`` put the home and temporary folders in memory, as well as
    the files that Apptainer mounts, such as /etc/passwd. With ``-C`` the first process of the
    container (PID 1) is Apptainer's own. If it is the parent of this process, no other command can
    read the path before the container ends.
    """
    if os.getppid() != 1 or not any(name in os.environ for name in CONTAINER_VARIABLES):
        return False
    mounted = Path("/etc/passwd").stat().st_dev
    if mounted == Path("/etc").stat().st_dev:
        return False
    existing = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    return existing.stat().st_dev == mounted
