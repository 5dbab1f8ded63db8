"""Launchers, transports, and the limits that containers and batch systems set, all known before MPI
is loaded.
"""

import os
import sys
from pathlib import Path

import pytest
from support import run

from dsgmcmc.parallel import comm

MACHINE_MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of the root of the file system, and no variables of launchers."""
    for name in (
        *comm.LAUNCHERS,
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        "PMIX_RANK",
        comm.TRANSPORT_VARIABLE,
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(comm, "FILESYSTEM", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("variables", "certain"),
    [
        ({}, True),  # Python alone, also inside a batch job
        (
            {"OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_SIZE": "8"},
            True,
        ),  # mpirun on one machine
        (
            {"OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"},
            False,
        ),  # mpirun --host a:4,b:4
        ({"SLURM_STEP_NUM_TASKS": "8", "PMIX_RANK": "3"}, False),  # srun --mpi=pmix
        ({"PMI_SIZE": "8"}, False),  # MPICH, Intel MPI
    ],
)
def test_one_host_is_assumed_only_where_it_is_certain(monkeypatch, variables, certain):
    """On several hosts Open MPI needs its network cards: without them the processes would use TCP,
    which is slower.
    """
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert comm.on_one_host() == certain
    with comm.ignoring_network_cards():
        assert os.environ.get(comm.TRANSPORT_VARIABLE) == (
            (comm.NO_NETWORK_CARDS if variables else comm.NO_TRANSPORT) if certain else None
        )
    assert (
        comm.TRANSPORT_VARIABLE not in os.environ
    )  # a process started from here may run on several hosts
    monkeypatch.setenv(comm.TRANSPORT_VARIABLE, "tcp,self")  # a setting of the user stays
    with comm.ignoring_network_cards():
        assert os.environ[comm.TRANSPORT_VARIABLE] == "tcp,self"
    assert os.environ[comm.TRANSPORT_VARIABLE] == "tcp,self"


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
    assert comm.cpu_quota() is None
    assert comm.usable_cores() == len(os.sched_getaffinity(0))
    assert comm.memory_limit() == MACHINE_MEMORY


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
    assert comm.cpu_quota() == 1.5
    assert comm.usable_cores() == 1
    assert comm.memory_limit() == 1_000_000


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
    assert comm.cpu_quota() == cores
    assert comm.memory_limit() == min(2_000_000_000, MACHINE_MEMORY)


def test_peak_memory_is_that_of_the_process_itself():
    """The peak that getrusage reports starts at that of the parent, here 320 MB."""
    held = bytearray(320_000_000)
    code = "from dsgmcmc.parallel.comm import peak_memory; print(peak_memory())"
    assert int(run(sys.executable, "-c", code).expect(0).out) < len(held) / 2
