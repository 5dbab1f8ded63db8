"""Limits of the machine: what containers and batch systems grant is not what the machine has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dsgmcmc.parallel.machine import affinity, cpu_quota, memory_limit, usable_cores

MACHINE_MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def tree(root: Path, cgroup: str, files: dict[str, str]) -> Path:
    """Make the files that a kernel would show under ``root``."""
    for name, text in {"proc/self/cgroup": cgroup, **{f"sys/fs/cgroup/{k}": v for k, v in files.items()}}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_no_cgroups_means_the_whole_machine(tmp_path):
    """A machine without cgroups must not end in an error, nor in a limit."""
    assert cpu_quota(tmp_path) is None
    assert usable_cores(tmp_path) == affinity()
    assert memory_limit(tmp_path) == MACHINE_MEMORY


def test_version_2_takes_the_least_of_the_group_and_those_above(tmp_path):
    """A batch job's group may be unlimited inside a slice that is not: 'max' is no limit, the slice's is."""
    files = {
        "a.slice/cpu.max": "150000 100000\n",
        "a.slice/memory.max": "1000000\n",
        "a.slice/job/cpu.max": "max 100000\n",
        "a.slice/job/memory.max": "max\n",
        "b.slice/memory.max": "5\n",
    }
    root = tree(tmp_path, "0::/a.slice/job\n", files)
    assert cpu_quota(root) == 1.5
    assert usable_cores(root) == 1
    assert memory_limit(root) == 1_000_000


@pytest.mark.parametrize(("quota", "cores"), [("-1", None), ("400000", 4.0)])
def test_version_1_inside_a_container(tmp_path, quota, cores):
    """A container has its own group at the top, under a name that only the host's tree knows; -1 is no limit."""
    files = {
        "cpu/cpu.cfs_quota_us": quota,
        "cpu/cpu.cfs_period_us": "100000",
        "memory/memory.limit_in_bytes": "2000000000",
    }
    root = tree(tmp_path, "5:cpuset:/\n4:memory:/docker/1f\n3:cpu,cpuacct:/docker/1f\n0::/\n", files)
    assert cpu_quota(root) == cores
    assert memory_limit(root) == min(2_000_000_000, MACHINE_MEMORY)
