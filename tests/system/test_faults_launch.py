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
    ("launcher", "refused"),
    [
        # a bare srun, or one without pmix, which starts singletons
        ({"SLURM_STEP_NUM_TASKS": "4"}, "SLURM_STEP_NUM_TASKS=4"),
        # the mpirun of MPICH
        ({"PMI_SIZE": "2", "PMI_RANK": "0"}, "PMI_SIZE=2"),
        # an Open MPI that is not the linked one, also in a Slurm step of one task
        ({"OMPI_COMM_WORLD_SIZE": "3"}, "OMPI_COMM_WORLD_SIZE=3"),
        ({"OMPI_COMM_WORLD_SIZE": "3", "SLURM_STEP_NUM_TASKS": "1"}, "OMPI_COMM_WORLD_SIZE=3"),
    ],
)
def test_singletons_are_refused(
    data: Path, tmp_path: Path, launcher: dict[str, str], refused: str
) -> None:
    """Several processes that see only themselves would overwrite each other."""
    line = command(data, tmp_path / "run", iterations=20)
    result = run(*line, env=launcher).expect(2)
    assert refused in result.err
    assert "different MPI installations, or a container separates them" in result.err
    advice = "With Slurm use `srun --mpi=pmix`" if "SLURM" in refused else "Use the mpirun of this"
    assert advice in result.err
    assert "RuntimeWarning" not in result.err  # of mpi4py, which says less
    assert not (tmp_path / "run").exists()
    if "OMPI_COMM_WORLD_SIZE" in launcher:  # the first of them says it, for all
        assert run(*line, env={**launcher, "OMPI_COMM_WORLD_RANK": "1"}).expect(2).err == ""


@pytest.mark.parametrize(
    ("launcher", "processes"),
    [
        # a batch script, also of an array of jobs, which starts no step
        ({"SLURM_NTASKS": "8", "SLURM_PROCID": "0", "SLURM_ARRAY_TASK_COUNT": "5"}, None),
        # srun -n 1, in a job of eight tasks
        ({"SLURM_STEP_NUM_TASKS": "1", "SLURM_NTASKS": "8"}, None),
        # the one task that Slurm counts is an mpirun, which starts two
        ({"SLURM_STEP_NUM_TASKS": "1"}, 2),
        # each of four tasks is an mpirun for a run of its own
        ({"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "3"}, 1),
    ],
)
def test_a_lone_process_is_not_refused(
    data: Path, tmp_path: Path, launcher: dict[str, str], processes: int | None
) -> None:
    """The innermost launcher says how many there are; tasks of a job are no processes."""
    run(*command(data, tmp_path / "run", processes, iterations=20), env=launcher).expect(0)


def test_one_task_needs_no_mpi(data: Path, tmp_path: Path) -> None:
    """`srun -n 1` starts it on a node where no MPI library is installed; two need one."""
    without = {"MPI4PY_LIBMPI": "/nonexistent/libmpi.so"}
    line = command(data, tmp_path / "run", iterations=20)
    done = run(*line, env=without | {"SLURM_STEP_NUM_TASKS": "2"}).expect(2)
    assert "no MPI library can be loaded" in done.err
    run(*line, env=without | {"SLURM_STEP_NUM_TASKS": "1"}).expect(0)


#: A container as of `apptainer exec -C`: its first process, files in memory over /etc/passwd and at
#: the folder that is the first argument.
CONTAINED = """
mount -t tmpfs tmpfs "$1" && cp /etc/passwd "$1/passwd" && mount --bind "$1/passwd" /etc/passwd
shift
"$@"
status=$?
exit $status
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_a_run_that_ends_with_its_container_is_refused(data: Path, tmp_path: Path) -> None:
    """With `apptainer exec -C` the home folder is in memory, and launchers cannot be seen.

    In a folder of the machine the run is sampled, and so it is if another command of the container
    may read it.
    """
    memory = tmp_path / "home"
    memory.mkdir()
    enter = ("unshare", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", CONTAINED, "sh")
    inside = {"APPTAINER_CONTAINER": "dsgmcmc.sif"}
    lost = command(data, memory / "run", iterations=20)
    refused = run(*enter, memory, *lost, env=inside).expect(2)
    assert f"{memory / 'run'} is in the memory of this container" in refused.err
    run(*enter, memory, *command(data, tmp_path / "run", iterations=20), env=inside).expect(0)
    run(*enter, memory, "sh", "-c", '"$@" && true', "sh", *lost, env=inside).expect(0)


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
    slow = tmp_path / "slow"
    settings = {"iterations": 60, "evaluate_every": 20}
    result = run(
        *command(data, slow, 3, **settings), env=injected("iteration=sleep:0.1,rank=2,at=*")
    ).expect(0)
    straggler = json.loads((slow / "summary.json").read_text())["straggler"]
    assert straggler["process"] == 2
    # the clock starts after the first sweep
    assert straggler["busy_seconds"] > 5 > straggler["others_seconds"]
    assert "process 2 on " in result.out
    assert digest(slow) == alone(data, tmp_path / "alone", **settings)
    assert json.loads((tmp_path / "alone" / "summary.json").read_text())["straggler"] is None
