"""The limits that containers and batch systems set."""

import os
import sys
from pathlib import Path

import pytest
from support import run

from dsgmcmc.parallel import machine

MACHINE_MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of the root of the file system."""
    monkeypatch.setattr(machine, "FILESYSTEM", tmp_path)
    return tmp_path


def write_cgroup(root: Path, cgroup: str, files: dict[str, str]) -> None:
    """Write the files that a kernel would show below `root`."""
    for name, text in {
        "proc/self/cgroup": cgroup,
        **{f"sys/fs/cgroup/{k}": v for k, v in files.items()},
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_no_cgroups_means_the_whole_machine():
    """A machine without cgroups causes neither an error nor a limit."""
    assert machine.cpu_quota() is None
    assert machine.usable_cores() == len(os.sched_getaffinity(0))
    assert machine.memory_limit() == MACHINE_MEMORY


def test_version_2_takes_the_smallest_limit_of_the_group_and_its_parents(root):
    """The group of a batch job may have no limit ('max') inside a slice that has one."""
    files = {
        "a.slice/cpu.max": "150000 100000\n",
        "a.slice/memory.max": "1000000\n",
        "a.slice/job/cpu.max": "max 100000\n",
        "a.slice/job/memory.max": "max\n",
        "b.slice/memory.max": "5\n",
    }
    write_cgroup(root, "0::/a.slice/job\n", files)
    assert machine.cpu_quota() == 1.5
    assert machine.usable_cores() == 1
    assert machine.memory_limit() == 1_000_000


@pytest.mark.parametrize(("quota", "cores"), [("-1", None), ("400000", 4.0)])
def test_version_1_inside_a_container(root, quota, cores):
    """A container sees its group at the top, under a name that only the host's tree has; -1 is no
    limit.
    """
    files = {
        "cpu/cpu.cfs_quota_us": quota,
        "cpu/cpu.cfs_period_us": "100000",
        "memory/memory.limit_in_bytes": "2000000000",
    }
    write_cgroup(root, "5:cpuset:/\n4:memory:/docker/1f\n3:cpu,cpuacct:/docker/1f\n0::/\n", files)
    assert machine.cpu_quota() == cores
    assert machine.memory_limit() == min(2_000_000_000, MACHINE_MEMORY)


def test_peak_memory_is_that_of_the_process_itself():
    """The peak that getrusage reports starts at that of the parent, here 320 MB."""
    held = bytearray(320_000_000)
    code = "from dsgmcmc.parallel.machine import peak_memory; print(peak_memory())"
    assert int(run(sys.executable, "-c", code).expect(0).out) < len(held) / 2
