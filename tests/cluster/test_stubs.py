"""Job scripts for PBS, LSF and Flux under STUBS of these systems, which are not available here.

The scripts, mpirun, the processes and their runs are real. A stub has the variables that the system
sets, its commands, which only note their arguments, and its signals, as its manuals describe them.
"""

import os
import shlex
import shutil
import signal
import socket
import sys
from pathlib import Path

import pytest
from batch_runs import SLOW, expected, not_getting_on, prepare, write_script
from support import Running, digest

NOTE = 'printf "%s " "$(basename "$0")" "$@" >>"$STUB_CALLS"; echo >>"$STUB_CALLS"\n'
COMMANDS = {
    "qsub": NOTE + "echo 43.stub",
    "qstat": 'printf "Job Id: %s\\n    Resource_List.walltime = %s\\n" "$2" "$STUB_WALLTIME"',
    "mpirun": NOTE
    + """[ -n "${STUB_STATUS-}" ] || exec "$STUB_MPIRUN" "$@"
trap 'kill -USR1 $job' USR1
"$STUB_MPIRUN" "$@" &
job=$!
while kill -0 $job 2>/dev/null; do wait $job; done
exit "$STUB_STATUS\"""",
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

    def __init__(self, system: str, folder: Path) -> None:
        self.kind = system
        self.folder = folder
        self.home = folder / "stub"
        for name in ("bin", "spool", "home"):
            (self.home / name).mkdir(parents=True)
        for name, text in COMMANDS.items():
            path = self.home / "bin" / name
            path.write_text(f"#!/bin/bash\n{text}\n")
            path.chmod(0o755)
        hosts = self.home / "hosts"
        hosts.write_text(f"{socket.gethostname()}\n" * 2)
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        self.environment = {
            "PATH": f"{self.home / 'bin'}{os.pathsep}{path}",
            "STUB_CALLS": str(self.home / "calls"),
            "STUB_MPIRUN": str(shutil.which("mpirun", path=path)),
            "STUB_WALLTIME": "01:00:00",
        } | {
            "pbs": {
                "PBS_JOBID": "42.stub",
                "PBS_O_WORKDIR": str(folder),
                "PBS_NODEFILE": str(hosts),
            },
            "lsf": {"LSB_JOBID": "42", "LSB_DJOB_HOSTFILE": str(hosts), "LSB_DJOB_NUMPROC": "2"},
            "flux": {"FLUX_JOB_ID": "f42"},
        }[system]

    def run(self, script: Path, code: int, *, warned: bool = False, **environment: str) -> str:
        """Run a job to its end, and return its log; it is `warned` after a few iterations, and has
        this status.

        The system runs a copy of the script, in a folder of its choice.
        """
        copy = self.home / "spool" / "script"
        shutil.copy(script, copy)
        where = self.home / "home" if self.kind == "pbs" else self.folder
        line = f"cd {shlex.quote(str(where))} && exec {shlex.quote(str(copy))} 2>&1"
        with Running(["bash", "-c", line], {**self.environment, **environment}) as running:
            if warned:
                running.wait_for(self.folder / "run" / "metrics.jsonl", 2)
                if self.kind == "lsf":  # all processes of the job
                    os.killpg(running.process.pid, signal.SIGUSR1)
                else:
                    running.signal(signal.SIGUSR1)
            result = running.wait()
        file = self.folder / "dsgmcmc.log"
        log = result.out + (file.read_text() if file.exists() else "")
        assert result.code == code, log
        return log

    def calls(self, *starts: str) -> list[str]:
        """Calls of the system's commands and of mpirun that start so."""
        file = self.home / "calls"
        lines = file.read_text().splitlines() if file.exists() else []
        return [line.strip() for line in lines if line.startswith(starts)]

    def requeues(self) -> list[str]:
        """Calls by which the script asks to be started again; LSF learns it from the exit
        status.
        """
        return self.calls("qsub", "flux --parent batch")


@pytest.fixture(
    params=["pbs", *(pytest.param(system, marks=pytest.mark.long) for system in ("lsf", "flux"))]
)
def batch(request, tmp_path) -> Batch:
    folder = tmp_path / "with space"
    folder.mkdir()
    return Batch(request.param, prepare(folder))


pbs = pytest.mark.parametrize("batch", ["pbs"], indirect=True)


def test_the_warning_stops_and_requeues_once_and_the_next_job_goes_on(batch):
    """A job ends with a checkpoint, status 75 and one request; the job that it requests ends with
    the right bits.

    A real mpirun takes the command line of the launcher, on the machines that the system names.
    """
    script = write_script(batch.kind, batch.folder, iterations=60)
    batch.run(script, 75, warned=True, **SLOW)
    if batch.kind == "lsf":
        assert '#BSUB -Q "75"' in script.read_text().splitlines()
    else:
        (call,) = batch.requeues()
        kept = batch.folder / call.removeprefix("qsub ").removeprefix("flux --parent batch ")
        assert kept.read_text() == script.read_text()
        script = kept
    batch.run(script, 0)
    assert digest(batch.folder / "run") == expected(60)
    assert len(batch.requeues()) == (batch.kind != "lsf")
    launch = f"mpirun --hostfile {batch.home}/hosts -n 2 --bind-to core "
    if batch.kind == "flux":
        launch = "flux run --nodes=1 --ntasks=2 -o cpu-affinity=per-task "
    assert len(batch.calls(launch)) == 2


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (75, "no newer checkpoint than at the start"),
        (0, "not all iterations were made. To go on: "),
    ],
)
def test_a_run_that_does_not_get_on_is_not_requeued(batch, status, said):
    """A job whose limit is too short must not start for ever, nor pass for finished after mpirun
    lost a host.
    """
    not_getting_on(batch.home, sys.executable, status)
    assert said in batch.run(write_script(batch.kind, batch.folder, iterations=40), 1)
    assert not batch.requeues()


@pbs
def test_a_launcher_with_a_status_of_its_own_requeues_if_there_is_a_checkpoint(batch):
    """At many sites srun ends with 143, although the run was stopped in time and ended with 75."""
    script = write_script(batch.kind, batch.folder, iterations=60)
    log = batch.run(script, 75, warned=True, STUB_STATUS="143", **SLOW)
    assert "ended with status 143 at iteration" in log
    assert len(batch.requeues()) == 1


@pbs
def test_a_status_without_a_request_to_stop_is_that_of_the_job(batch):
    """A run that fails by itself would fail again, although it has made progress."""
    script = write_script(batch.kind, batch.folder, iterations=60)
    batch.run(script, 143, STUB_STATUS="143")
    assert not batch.requeues()


@pytest.mark.long
@pbs
def test_pbs_is_warned_by_the_script_itself(batch):
    """PBS sends no signal before the walltime is over, so the script asks for the walltime."""
    script = write_script(
        batch.kind, batch.folder, {"warning=120": "warning=90"}, iterations=100000
    )
    batch.run(script, 75, STUB_WALLTIME="00:01:36", **SLOW)
    assert len(batch.requeues()) == 1


@pytest.mark.long
@pbs
def test_intel_mpi_is_started_by_its_hydra(batch):
    """Its mpirun, a shell script, does not pass on SIGUSR1, so that the run would not be warned."""
    mpirun = batch.home / "bin" / "mpirun"
    shutil.copy(mpirun, mpirun.with_name("mpiexec.hydra"))
    mpirun.write_text("#!/bin/sh\necho 'Intel(R) MPI Library for Linux* OS'\nexit 99\n")
    batch.run(write_script(batch.kind, batch.folder, iterations=40), 0)
    assert batch.calls("mpiexec.hydra --hostfile")
