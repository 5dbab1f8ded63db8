"""Wrong and unlucky launches, slow processes: said before any output, and the result is the
same.
"""

import json
import os
import shutil
from pathlib import Path

import pytest
from support import digest, injected, run
from tiny import alone, command

# ---------------------------------------------------------------------- launches


@pytest.mark.parametrize(
    ("launcher", "processes", "refused"),
    [
        (
            {"SLURM_STEP_NUM_TASKS": "4"},
            None,
            "SLURM_STEP_NUM_TASKS=4",
        ),  # a bare srun, which starts singletons
        ({"PMI_SIZE": "2", "PMI_RANK": "0"}, None, "PMI_SIZE=2"),  # the mpirun of MPICH
        (
            {"OMPI_COMM_WORLD_SIZE": "3"},
            None,
            "OMPI_COMM_WORLD_SIZE=3",
        ),  # an Open MPI that is not the linked one
        (
            {"SLURM_STEP_NUM_TASKS": "1", "SLURM_NTASKS": "8"},
            None,
            "",
        ),  # mpirun -n 1 in a batch script
        (
            {"SLURM_STEP_NUM_TASKS": "1"},
            2,
            "",
        ),  # the one task that Slurm counts is an mpirun, which starts two
    ],
)
def test_singletons_are_refused(
    data: Path, tmp_path: Path, launcher: dict[str, str], processes: int | None, refused: str
) -> None:
    """Several processes that see only themselves would overwrite each other."""
    line = command(data, tmp_path / "run", processes, iterations=20)
    result = run(*line, env=launcher).expect(2 if refused else 0)
    assert refused in result.err
    assert ("different MPI installations" in result.err) == bool(refused)
    assert "RuntimeWarning" not in result.err  # of mpi4py, which says less
    assert (tmp_path / "run").exists() == (not refused)
    if "OMPI_COMM_WORLD_SIZE" in launcher:  # the first of them says it, for all
        assert run(*line, env={**launcher, "OMPI_COMM_WORLD_RANK": "1"}).expect(2).err == ""


def test_more_processes_than_cores_are_warned_of(data: Path, tmp_path: Path) -> None:
    """Before anything else is said, and once; the run is the same."""
    taskset = shutil.which("taskset")
    if not taskset:
        pytest.skip("no taskset")
    core = str(min(os.sched_getaffinity(0)))
    line = command(data, tmp_path / "run", 2, "--no-biases", iterations=20)
    result = run(taskset, "-c", core, line[0], "--bind-to", "none", *line[1:]).expect(0)
    assert result.err.splitlines()[0].startswith("warning: 2 processes share 1 core(s) of ")
    assert result.err.count("warning:") == 1


# ---------------------------------------------------------------------- slow processes


def test_a_slow_process_changes_nothing_and_is_named(data: Path, tmp_path: Path) -> None:
    """The summary and the terminal name it."""
    slow, settings = tmp_path / "slow", {"iterations": 60, "evaluate_every": 20}
    result = run(
        *command(data, slow, 3, **settings), env=injected("iteration=sleep:0.1,rank=2,at=*")
    ).expect(0)
    straggler = json.loads((slow / "summary.json").read_text())["straggler"]
    assert straggler["process"] == 2
    assert (
        straggler["busy_seconds"] > 5 > straggler["others_seconds"]
    )  # the clock starts after the first sweep
    assert "process 2 on " in result.out
    assert digest(slow) == alone(data, tmp_path / "alone", **settings)
    assert json.loads((tmp_path / "alone" / "summary.json").read_text())["straggler"] is None
