"""Wrong and unlucky launches, large messages, slow processes: said before any output, and the result is the same."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from mpi4py import MPI
from support import digest, dsgmcmc, injected, options_of, run, sample

SETTINGS: dict[str, Any] = {"rank": 3, "grid": 5, "burn_in": 6, "thin": 3, "evaluate_every": 20, "iterations": 60}


def command(data: Path, out: Path, processes: int | None, *more: str, **settings: Any) -> tuple[str, ...]:
    options = ["--sampler=psgld", *options_of({**SETTINGS, **settings})]
    return dsgmcmc("sample", data, "--out", out, *options, *more, processes=processes)


# ---------------------------------------------------------------------- launches


@pytest.mark.parametrize(
    ("launcher", "refused"),
    [
        ({"SLURM_STEP_NUM_TASKS": "4"}, "SLURM_STEP_NUM_TASKS=4"),  # a bare srun, which starts singletons
        ({"PMI_SIZE": "2", "PMI_RANK": "0"}, "PMI_SIZE=2"),  # the mpirun of MPICH
        ({"OMPI_COMM_WORLD_SIZE": "3"}, "OMPI_COMM_WORLD_SIZE=3"),  # an Open MPI that is not the linked one
        ({"SLURM_STEP_NUM_TASKS": "1", "SLURM_NTASKS": "8"}, ""),  # mpirun -n 1 in a batch script
    ],
)
def test_singletons_are_refused(data: Path, tmp_path: Path, launcher: dict[str, str], refused: str) -> None:
    """Several processes that see only themselves would overwrite each other."""
    result = run(*command(data, tmp_path / "run", None), env=launcher).expect(2 if refused else 0)
    assert refused in result.err
    assert ("different MPIs" in result.err) == bool(refused)
    assert "RuntimeWarning" not in result.err  # of mpi4py, which says less
    assert (tmp_path / "run").exists() == (not refused)
    if "OMPI_COMM_WORLD_SIZE" in launcher and refused:  # the first of them says it, for all
        second = run(*command(data, tmp_path / "run", None), env={**launcher, "OMPI_COMM_WORLD_RANK": "1"}).expect(2)
        assert second.err == ""


def test_another_mpirun_than_the_linked_library_s(data: Path, tmp_path: Path) -> None:
    """For real, where the tests are told of one; it starts singletons."""
    other = os.environ.get("DSGMCMC_OTHER_MPIRUN")
    if not other:
        pytest.skip("DSGMCMC_OTHER_MPIRUN names no mpirun of another MPI library")
    result = run(other, "-n", "2", *command(data, tmp_path / "run", None))
    assert result.code not in (0, 75)
    assert "different MPIs" in result.err
    assert not (tmp_path / "run").exists()


def test_mpirun_inside_a_slurm_step_is_right(data: Path, tmp_path: Path) -> None:
    """Slurm then counts one task, in which mpirun starts two."""
    run(*command(data, tmp_path / "run", 2), env={"SLURM_STEP_NUM_TASKS": "1"}).expect(0)


def test_more_processes_or_threads_than_cores_are_warned_of(data: Path, tmp_path: Path) -> None:
    """Before anything else is said, and once; the run is the same."""
    taskset = shutil.which("taskset")
    if not taskset:
        pytest.skip("no taskset")
    core = str(min(os.sched_getaffinity(0)))
    line = command(data, tmp_path / "run", 2, "--no-biases")
    result = run(taskset, "-c", core, line[0], "--bind-to", "none", *line[1:]).expect(0)
    assert result.err.splitlines()[0].startswith("warning: 2 processes share 1 core(s) of ")
    assert result.err.count("warning:") == 1
    line = command(data, tmp_path / "threads", None)
    result = run(taskset, "-c", core, *line, env={"OMP_NUM_THREADS": "64"}).expect(0)
    assert result.err.splitlines()[0].startswith("warning: 1 processes with OMP_NUM_THREADS=64 threads")
    assert "warning" not in run(*command(data, tmp_path / "well", None)).expect(0).err


# ---------------------------------------------------------------------- slow processes, large messages


def test_a_slow_process_changes_nothing_and_is_named(data: Path, tmp_path: Path) -> None:
    """By the summary and on the terminal."""
    result = run(*command(data, tmp_path / "slow", 3), env=injected("iteration=sleep:0.1,rank=2,at=*")).expect(0)
    found = json.loads((tmp_path / "slow" / "summary.json").read_text())["straggler"]
    assert found["process"] == 2
    assert found["busy_seconds"] > 5 > found["others_seconds"]  # the clock starts after the first sweep
    assert "process 2 on " in result.out
    sampler = {"name": "psgld"}
    assert sample(MPI.COMM_SELF, data, tmp_path / "alone", sampler=sampler, **SETTINGS) == 0
    assert digest(tmp_path / "slow") == digest(tmp_path / "alone")
    assert json.loads((tmp_path / "alone" / "summary.json").read_text())["straggler"] is None


LARGE = """
import numpy as np
from mpi4py import MPI
from dsgmcmc.parallel.ring import Ring

ring = Ring(MPI.COMM_WORLD, 2)
n, mine = 600_000_000, ring.rank
block = np.zeros(n, np.float32)
block[[0, n // 2, -1]] = 1 + mine, 2 + mine, 3 + mine
move = ring.move({mine: block}, 0, 1, lambda c: np.empty(n, np.float32))
move.depart(mine)
(there,) = move.finish().items()
other = 1 - mine
assert there[0] == other
assert there[1][[0, n // 2, -1]].tolist() == [1 + other, 2 + other, 3 + other], there[1][[0, n // 2, -1]]
"""


@pytest.mark.long
def test_a_block_past_two_gibibytes_travels_whole() -> None:
    """2.4 GB each way."""
    free = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable"))
    if int(free.split()[1]) < 14 << 20:
        pytest.skip("needs 14 GiB of free memory")
    mpirun = dsgmcmc(processes=2)[:3]
    run(*mpirun, sys.executable, "-c", LARGE).expect(0)
