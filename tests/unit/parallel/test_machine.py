"""Limits of the machine: what containers and batch systems grant is not what the machine has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dsgmcmc.parallel import machine
from dsgmcmc.parallel.machine import cpu_quota, memory_limit, usable_cores

MACHINE_MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of the root of the file system."""
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    return tmp_path


def tree(root: Path, cgroup: str, files: dict[str, str]) -> None:
    """Make the files that a kernel would show under ``root``."""
    for name, text in {"proc/self/cgroup": cgroup, **{f"sys/fs/cgroup/{k}": v for k, v in files.items()}}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_no_cgroups_means_the_whole_machine():
    """A machine without cgroups must not end in an error, nor in a limit."""
    assert cpu_quota() is None
    assert usable_cores() == len(os.sched_getaffinity(0))
    assert memory_limit() == MACHINE_MEMORY


def test_version_2_takes_the_least_of_the_group_and_those_above(root):
    """A batch job's group may be unlimited inside a slice that is not: 'max' is no limit, the slice's is."""
    files = {
        "a.slice/cpu.max": "150000 100000\n",
        "a.slice/memory.max": "1000000\n",
        "a.slice/job/cpu.max": "max 100000\n",
        "a.slice/job/memory.max": "max\n",
        "b.slice/memory.max": "5\n",
    }
    tree(root, "0::/a.slice/job\n", files)
    assert cpu_quota() == 1.5
    assert usable_cores() == 1
    assert memory_limit() == 1_000_000


@pytest.mark.parametrize(("quota", "cores"), [("-1", None), ("400000", 4.0)])
def test_version_1_inside_a_container(root, quota, cores):
    """A container has its own group at the top, under a name that only the host's tree knows; -1 is no limit."""
    files = {
        "cpu/cpu.cfs_quota_us": quota,
        "cpu/cpu.cfs_period_us": "100000",
        "memory/memory.limit_in_bytes": "2000000000",
    }
    tree(root, "5:cpuset:/\n4:memory:/docker/1f\n3:cpu,cpuacct:/docker/1f\n0::/\n", files)
    assert cpu_quota() == cores
    assert memory_limit() == min(2_000_000_000, MACHINE_MEMORY)
