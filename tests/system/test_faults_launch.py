"""Wrong and unlucky launches, slow processes: said before any output, and the result is the same."""

from __future__ import annotations

import json
import os
import shutil
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


def test_mpirun_inside_a_slurm_step_is_right(data: Path, tmp_path: Path) -> None:
    """Slurm then counts one task, in which mpirun starts two."""
    run(*command(data, tmp_path / "run", 2), env={"SLURM_STEP_NUM_TASKS": "1"}).expect(0)


def test_more_processes_than_cores_are_warned_of(data: Path, tmp_path: Path) -> None:
    """Before anything else is said, and once; the run is the same."""
    taskset = shutil.which("taskset")
    if not taskset:
        pytest.skip("no taskset")
    core = str(min(os.sched_getaffinity(0)))
    line = command(data, tmp_path / "run", 2, "--no-biases")
    result = run(taskset, "-c", core, line[0], "--bind-to", "none", *line[1:]).expect(0)
    assert result.err.splitlines()[0].startswith("warning: 2 processes share 1 core(s) of ")
    assert result.err.count("warning:") == 1


# ---------------------------------------------------------------------- slow processes


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
