"""Job scripts on a real Slurm of one machine, which these tests start and stop
(slurm_cluster.py).
"""

import os
import re
import shlex
import socket
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from batch_runs import SLOW, expected, prepare, write_script
from slurm_cluster import SYSTEM_PATH, Slurm, log, missing
from support import ROOT, digest, dsgmcmc, lacking, run, wait_until

from dsgmcmc.storage.store import steps

pytestmark = pytest.mark.long
ITERATIONS = 1000
#: How a user makes Slurm's own launcher start the processes.
BY_SRUN = {"\nlauncher=(": "\n# launcher=(", "# launcher=(srun": "launcher=(srun"}
script = partial(write_script, "slurm", iterations=ITERATIONS)


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    if reason := missing():
        lacking(reason)
    with Slurm() as running:
        # jobs have the environment of the submission, with the tests' dsgmcmc and mpirun
        running.environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{SYSTEM_PATH}"
        yield running


@pytest.fixture
def folder(tmp_path) -> Path:
    return prepare(tmp_path)


@pytest.fixture(scope="module")
def limited(slurm, tmp_path_factory) -> tuple[str, Path]:
    """A job whose time limit is too short.

    It takes more than a minute, so the other tests run meanwhile.

    A minute is Slurm's shortest limit. It looks at them every 30 s and warns at the last look that
    is early enough, here 20 to 50 s after a start. A job that goes on takes longer than that on a
    slow machine, and raises its limit.
    """
    folder = prepare(tmp_path_factory.mktemp("limited"))
    limits = {"--time=01:00:00": "--time=00:01:00", "USR1@120": "USR1@10"}
    job = script(
        folder, limits | slow_once(folder, "scontrol update JobId=$SLURM_JOB_ID TimeLimit=01:00:00")
    )
    return slurm.submit(folder, job), folder


def slow_once(folder: Path, then: str = ":") -> dict[str, str]:
    """An environment that makes the first job of a folder so slow that it is stopped; those that go
    on run `then`.
    """
    activate = folder / "environment" / "bin" / "activate"
    activate.parent.mkdir(parents=True)
    slow = " ".join(f"{name}={shlex.quote(value)}" for name, value in SLOW.items())
    activate.write_text(
        f"if [ -e was-slow ]; then {then}; else touch was-slow; export {slow}; fi\n"
    )
    return {'# . "$HOME/dsgmcmc/bin/activate"': f". {shlex.quote(str(activate))}"}


def sampling(slurm: Slurm, number: str, folder: Path) -> None:
    """Wait until a job has made a few iterations."""
    slurm.wait(number, folder, "RUNNING")
    path = folder / "run" / "metrics.jsonl"
    wait_until(lambda: path.exists() and path.read_bytes().count(b"\n") >= 2, lambda: log(folder))


def expect_one_restart(slurm: Slurm, number: str, folder: Path) -> None:
    """Wait for the end of a job that was started again once: it has the same bits as in one go."""
    done = slurm.wait(number, folder, "COMPLETED")
    assert done["Restarts"] == "1", log(folder)
    starts = re.findall(rf"job {number}, start (\d) on .* from iteration (\d+)", log(folder))
    assert [start for start, _ in starts] == ["1", "2"]
    assert 0 == int(starts[0][1]) < int(starts[1][1]) < ITERATIONS
    assert digest(folder / "run") == expected(ITERATIONS)


def test_the_shipped_script_samples(limited, slurm, folder):
    """The README's `sbatch launch/slurm.sbatch` with nothing changed but the number of processes:
    mpirun, defaults.
    """
    # compiles for both
    run(*dsgmcmc("sample", folder / "ratings.h5", "--out", folder / "alone")).expect(0)
    number = slurm.submit(folder, ROOT / "launch" / "slurm.sbatch", "--ntasks-per-node=2")
    slurm.wait(number, folder, "COMPLETED")
    assert re.search(
        rf"== .* job {number}, start 1 on .*: run, from iteration 0$", log(folder), re.MULTILINE
    )
    assert digest(folder / "run") == digest(folder / "alone")


def test_a_bare_srun_is_refused(slurm, folder):
    """It starts processes that do not know each other, and would overwrite each other's files."""
    job = folder / "job.sbatch"
    job.write_text(
        "#!/bin/bash\n#SBATCH --output=job.log\nsrun dsgmcmc sample ratings.h5 --out run\n"
    )
    number = slurm.submit(folder, job, "--ntasks=2")
    assert slurm.wait(number, folder, "FAILED")["ExitCode"] == "2:0"
    assert "With Slurm use `srun --mpi=pmix` if `srun --mpi=list` names it" in log(folder)
    assert not (folder / "run").exists()


def test_a_signal_to_the_batch_script_requeues(slurm, folder):
    """The job goes on, also under srun, and if the signal comes before the run listens."""
    number = slurm.submit(folder, script(folder, BY_SRUN | slow_once(folder)))
    wait_until(lambda: "start 1 on" in log(folder), lambda: slurm.job(number))
    slurm.command("scancel", "--batch", "--signal=USR1", number).expect(0)
    done = slurm.wait(number, folder, "COMPLETED")
    assert done["Restarts"] == "1", log(folder)
    assert "on 2 process(es)" in log(folder)
    assert digest(folder / "run") == expected(ITERATIONS)


def test_a_step_that_slurm_kills_after_its_checkpoint_requeues(slurm, folder):
    """With KillOnBadExit=1, a process that ends with 75 has the others killed: srun ends with 143.

    Processes of `sample` end together; here one ends three seconds before the other one.
    """
    late = folder / "late"
    late.write_text(
        '#!/bin/sh\ntrap : USR1\nstatus=0\ndsgmcmc "$@" || status=$?\n'
        '[ "${SLURM_PROCID-0}" = 0 ] || sleep 3\nexit $status\n'
    )
    late.chmod(0o755)
    program = {"program=(dsgmcmc)": f"program=({shlex.quote(str(late))})"}
    number = slurm.submit(folder, script(folder, BY_SRUN | slow_once(folder) | program))
    sampling(slurm, number, folder)
    slurm.command("scancel", "--batch", "--signal=USR1", number).expect(0)
    expect_one_restart(slurm, number, folder)
    assert "ended with status 143 at iteration" in log(folder)


def test_without_requeueing_the_command_to_go_on_is_printed_and_works(slurm, folder):
    """A site or the user may have switched it off: sbatch --no-requeue."""
    number = slurm.submit(folder, script(folder, slow_once(folder)), "--no-requeue")
    sampling(slurm, number, folder)
    slurm.command("scancel", "--batch", "--signal=USR1", number).expect(0)
    assert slurm.wait(number, folder, "FAILED")["ExitCode"] == "1:0"
    (command,) = re.findall(r"== .* to go on: (.*)", log(folder))
    assert command == f"cd {folder} && sbatch {folder / 'job.slurm'}"
    again = slurm.command("bash", "-c", command).expect(0).out.split()[-1]
    slurm.wait(again, folder, "COMPLETED")
    assert digest(folder / "run") == expected(ITERATIONS)


def test_a_preempted_job_writes_a_checkpoint_and_is_started_again(slurm, folder):
    """An urgent job takes the node: the most frequent stop on a shared cluster, of which the script
    hears by SIGTERM alone.
    """
    number = slurm.submit(folder, script(folder, slow_once(folder)))
    sampling(slurm, number, folder)
    urgent = ("--partition=urgent", "--exclusive", "--wrap=sleep 1")
    slurm.command("sbatch", f"--chdir={folder}", "--parsable", *urgent).expect(0)
    expect_one_restart(slurm, number, folder)


def test_tasks_of_an_array_share_a_run_one_at_a_time(slurm, folder):
    """The second task is refused and told who samples the run. It leaves the first one able to
    hear, and to be requeued without it.

    Task 1 samples: as the last task it has the number of the whole array.
    """
    edits = slow_once(folder)
    activate = folder / "environment" / "bin" / "activate"
    wait = '[ "$SLURM_ARRAY_TASK_ID" = 1 ] || until [ -e run/listening ]; do sleep 0.1; done\n'
    activate.write_text(wait + activate.read_text())
    number = slurm.submit(folder, script(folder, edits), "--array=0-1")
    refused = slurm.wait(f"{number}_0", folder, "FAILED")
    assert refused["ExitCode"] == "2:0"
    holder = rf"process \d+ of Slurm job {number}, array task 1, on {socket.gethostname()}"
    assert re.search(
        rf"run is in use: {holder} holds its lock\. Wait, or stop it\. Each", log(folder)
    )
    slurm.command("scancel", "--batch", "--signal=USR1", f"{number}_1").expect(0)
    expect_one_restart(slurm, f"{number}_1", folder)
    assert slurm.job(f"{number}_0")["Restarts"] == "0"


def test_an_array_of_one_job_after_the_other_continues_a_run(slurm, folder):
    """`--array=0-1%1`: the second task finds the run complete; logs have the name of their task."""
    named = "--output=%x-%A_%a.log"
    assert named in (ROOT / "docs" / "clusters.md").read_text(encoding="utf-8")
    number = slurm.submit(folder, script(folder), "--array=0-1%1", named)
    for task in range(2):
        slurm.wait(f"{number}_{task}", folder, "COMPLETED")
        assert f"job {number}_{task}," in (folder / f"dsgmcmc-{number}_{task}.log").read_text()
    assert digest(folder / "run") == expected(ITERATIONS)


def test_the_time_limit_requeues_until_all_is_sampled(limited, slurm):
    """Slurm warns, the run writes a checkpoint, the job requeues itself and goes on."""
    expect_one_restart(slurm, *limited)


def test_a_node_that_is_lost_requeues(slurm, folder):
    """Without a warning slurmd and the job die, and the node is DOWN; Slurm requeues the job, and
    the run goes on.
    """
    number = slurm.submit(folder, script(folder, slow_once(folder), checkpoint_every=5))
    sampling(slurm, number, folder)
    wait_until(lambda: bool(steps(folder / "run" / "checkpoints" / "chain-0")), lambda: log(folder))
    slurm.lose_node()
    slurm.wait(number, folder, "PENDING")
    slurm.repair_node()
    expect_one_restart(slurm, number, folder)
