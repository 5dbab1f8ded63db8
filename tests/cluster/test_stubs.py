"""Job scripts for PBS, LSF and Flux under STUBS of these systems, which are not available here.

The scripts, mpirun, the processes and what they sample are real. A stub is the variables that the system sets, its
commands, which only note how they were called, and its signals, as its manuals describe them.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from batch_runs import SLOW, expected, not_getting_on, prepare, write_script
from support import Result, Running, digest

NOTE = 'printf "%s " "$(basename "$0")" "$@" >>"$STUB_CALLS"; echo >>"$STUB_CALLS"\n'
COMMANDS = {
    "qsub": NOTE + "echo 43.stub",
    "qstat": 'printf "Job Id: %s\\n    Resource_List.walltime = %s\\n" "$2" "$STUB_WALLTIME"',
    "mpirun": NOTE + 'exec "$STUB_MPIRUN" "$@"',
    "flux": NOTE
    + """case "$1 $2" in
"run "*) # --nodes=N --ntasks=N -o OPTION PROGRAM
  shift 5
  "$STUB_MPIRUN" -n 2 "$@" &
  echo $! >"$STUB_CALLS.job"
  status=0
  wait $! || status=$?
  exit $status ;;
"job killall") kill -USR1 "$(cat "$STUB_CALLS.job")" ;;
esac""",
}


class Batch:
    """A stub of a batch system, in which jobs of two processes run one at a time.

    Parameters
    ----------
    kind : str
        Of `batch_runs.SCRIPTS`.
    folder : Path
        Where jobs are submitted from.
    """

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.folder, self.home = kind, folder, folder / "stub"
        for name in ("bin", "spool", "home"):
            (self.home / name).mkdir(parents=True)
        for name, text in COMMANDS.items():
            path = self.home / "bin" / name
            path.write_text(f"#!/bin/bash\n{text}\n")
            path.chmod(0o755)
        hosts = self.home / "hosts"
        hosts.write_text(f"{socket.gethostname()}\n" * 2)
        beside = str(Path(sys.executable).parent)
        path = os.pathsep.join((str(self.home / "bin"), beside, os.environ["PATH"]))
        self.environment = {
            "PATH": path,
            "STUB_CALLS": str(self.home / "calls"),
            "STUB_MPIRUN": str(shutil.which("mpirun", path=os.pathsep.join((beside, os.environ["PATH"])))),
            "STUB_WALLTIME": "01:00:00",
            **{
                "pbs": {"PBS_JOBID": "42.stub", "PBS_O_WORKDIR": str(folder), "PBS_NODEFILE": str(hosts)},
                "lsf": {"LSB_JOBID": "42", "LSB_DJOB_HOSTFILE": str(hosts), "LSB_DJOB_NUMPROC": "2"},
                "flux": {"FLUX_JOB_ID": "f42"},
            }[kind],
        }

    def script(self, edits: Mapping[str, str] | None = None, *, iterations: int) -> Path:
        return write_script(self.kind, self.folder, edits, iterations=iterations)

    def start(self, script: Path, **environment: str) -> Running:
        """Start a job: a copy of the script, in the folder that the system starts it in."""
        copy = self.home / "spool" / "script"
        shutil.copy(script, copy)
        where = self.home / "home" if self.kind == "pbs" else self.folder
        line = f"cd {shlex.quote(str(where))} && exec {shlex.quote(str(copy))} 2>&1"
        return Running(["bash", "-c", line], {**self.environment, **environment})

    def calls(self) -> list[str]:
        """How the system's commands and mpirun were called."""
        file = self.home / "calls"
        return [line.strip() for line in file.read_text().splitlines()] if file.exists() else []

    def requeues(self) -> list[str]:
        """How the script asked to be started again; LSF is asked by the exit status."""
        return [call for call in self.calls() if call.startswith(("qsub", "flux --parent batch"))]

    def log(self, result: Result) -> str:
        file = self.folder / "dsgmcmc.log"
        return result.out + (file.read_text() if file.exists() else "")

    def warn(self, running: Running) -> None:
        """The signal before the time limit, to those who get it."""
        if self.kind == "lsf":  # all processes of the job
            os.killpg(running.process.pid, signal.SIGUSR1)
        else:
            running.signal(signal.SIGUSR1)


@pytest.fixture(params=["pbs", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("lsf", "flux"))])
def batch(request, tmp_path) -> Batch:
    folder = tmp_path / "with space"
    folder.mkdir()
    return Batch(request.param, prepare(folder))


def sampling(batch: Batch, running: Running) -> None:
    """Wait until a job has made a few iterations."""
    running.wait_for(batch.folder / "run" / "metrics.jsonl", 2)


def test_the_warning_stops_and_requeues_once_and_the_next_job_goes_on(batch):
    """A checkpoint, status 75, one request to go on, and from what it asks for the same bits as in one go.

    The launcher's command line is one that a real mpirun takes, on the machines that the system names.
    """
    script = batch.script(iterations=60)
    with batch.start(script, **SLOW) as running:
        sampling(batch, running)
        batch.warn(running)
        result = running.wait()
    assert result.code == 75, batch.log(result)
    if batch.kind == "lsf":
        assert '#BSUB -Q "75"' in script.read_text().splitlines()
    else:
        (call,) = batch.requeues()
        kept = batch.folder / call.removeprefix("qsub ").removeprefix("flux --parent batch ")
        assert kept.read_text() == script.read_text()
        script = kept
    with batch.start(script) as running:
        result = running.wait()
    assert result.code == 0, batch.log(result)
    assert digest(batch.folder / "run") == expected(60)
    assert len(batch.requeues()) == (batch.kind != "lsf")
    by_hosts = f"mpirun --hostfile {batch.home}/hosts -n 2 --bind-to core "
    launch = "flux run --nodes=1 --ntasks=2 -o cpu-affinity=per-task " if batch.kind == "flux" else by_hosts
    assert sum(call.startswith(launch) for call in batch.calls()) == 2


@pytest.mark.long
@pytest.mark.parametrize("batch", ["lsf", "flux"], indirect=True)
def test_without_requeueing_the_command_to_go_on_is_printed(batch):
    """Where the user has switched it off; LSF must then not see a status that it requeues on."""
    script = batch.script({"automatic=yes": "automatic=no"}, iterations=60)
    with batch.start(script, **SLOW) as running:
        sampling(batch, running)
        batch.warn(running)
        result = running.wait()
    assert result.code == 1, batch.log(result)
    assert not batch.requeues()
    where = str(batch.folder).replace(" ", "\\ ")
    line = {
        "lsf": "to go on: brequeue -e 42",
        "flux": f"to go on: cd {where} && flux batch run.flux.sh",
    }[batch.kind]
    assert line in batch.log(result).splitlines()[-1]


def test_a_run_that_does_not_get_on_is_not_requeued(batch):
    """Else a job whose time limit is too short would start for ever."""
    not_getting_on(batch.home, sys.executable)
    with batch.start(batch.script(iterations=40)) as running:
        result = running.wait()
    assert result.code == 1, batch.log(result)
    assert "no newer checkpoint than at the start" in batch.log(result)
    assert not batch.requeues()


@pytest.mark.long
@pytest.mark.parametrize("batch", ["pbs"], indirect=True)
def test_status_0_of_a_run_that_is_not_complete_is_a_failure(batch):
    """Open MPI's mpirun was seen to end so after it had lost a machine; the job would count as done."""
    not_getting_on(batch.home, sys.executable, status=0)
    with batch.start(batch.script(iterations=40)) as running:
        result = running.wait()
    assert result.code == 1, batch.log(result)
    assert "not all iterations were made. To go on: cd " in batch.log(result)


@pytest.mark.parametrize("batch", ["pbs"], indirect=True)
def test_pbs_is_warned_by_the_script_itself(batch):
    """PBS sends nothing before the walltime is over, which the script therefore asks for."""
    with batch.start(
        batch.script({"warning=120": "warning=90"}, iterations=100000), STUB_WALLTIME="00:01:36", **SLOW
    ) as running:
        result = running.wait()
    assert result.code == 75, batch.log(result)
    assert len(batch.requeues()) == 1


@pytest.mark.long
@pytest.mark.parametrize("batch", ["pbs"], indirect=True)
def test_pbs_without_a_walltime_is_said(batch):
    """Then nothing can stop the run in time, and whoever reads the log must know."""
    with batch.start(batch.script(iterations=40), STUB_WALLTIME="") as running:
        result = running.wait()
    assert result.code == 0, batch.log(result)
    assert "tells no walltime" in batch.log(result)


@pytest.mark.long
@pytest.mark.parametrize("batch", ["pbs"], indirect=True)
def test_intel_mpi_is_started_by_its_hydra(batch):
    """Its mpirun, a shell script, was seen to keep SIGUSR1 to itself, so that the run would never hear of its end."""
    mpirun = batch.home / "bin" / "mpirun"
    shutil.copy(mpirun, mpirun.with_name("mpiexec.hydra"))
    mpirun.write_text("#!/bin/sh\nexit 99\n")
    with batch.start(batch.script(iterations=40)) as running:
        result = running.wait()
    assert result.code == 0, batch.log(result)
    assert any(call.startswith("mpiexec.hydra --hostfile") for call in batch.calls())


@pytest.mark.parametrize("batch", ["pbs"], indirect=True)
def test_a_refused_submission_prints_the_command_to_go_on(batch):
    """Some sites allow no qsub on their nodes."""
    (batch.home / "bin" / "qsub").write_text("#!/bin/sh\necho 'qsub: no jobs from here' >&2\nexit 1\n")
    with batch.start(batch.script(iterations=100000), **SLOW) as running:
        sampling(batch, running)
        batch.warn(running)
        result = running.wait()
    assert result.code == 1
    assert "qsub: no jobs from here" in batch.log(result)
    assert batch.log(result).splitlines()[-1].endswith("&& qsub run.pbs.sh")
