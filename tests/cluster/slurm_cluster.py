"""A Slurm of one machine for the tests, with its own munged, slurmctld and slurmd; nothing of it is
left afterwards.
"""

from __future__ import annotations

import ctypes.util
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from support import Result, kill, kill_session, processes, run, wait_until

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel", "squeue")
SYSTEM_PATH = f"{os.environ['PATH']}{os.pathsep}/usr/sbin{os.pathsep}/usr/local/sbin"
ENDED = ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL")
#: A requeued job waits until its credential cannot be valid any more: cred_expire, by default 120
#: s.
CONFIGURATION = """
ClusterName=dsgmcmc-test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmdPort={port_of_slurmd}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=10
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,bf_interval=1
# as at many sites: a task that ends with another status than 0 ends the step
KillOnBadExit=1
# more processors than there are, so that jobs of several tests need not wait for each other
SlurmdParameters=config_overrides
# by its real name, else Open MPI's processes under srun do not see that they share a machine
NodeName={host} NodeAddr=127.0.0.1 CPUs=16
PartitionName=main Nodes=ALL Default=YES
# whose jobs take the nodes of others, as at sites with preemption
PartitionName=urgent Nodes=ALL PriorityTier=10
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
"""


def missing() -> str:
    """Why there can be no Slurm here; empty if there can."""
    absent = [name for name in PROGRAMS if not shutil.which(name, path=SYSTEM_PATH)]
    if absent:
        return f"no {', '.join(absent)}: on Debian, apt-get install slurm-wlm munge libpmix-dev"
    if not ctypes.util.find_library("pmix"):
        return "no libpmix.so, which srun --mpi=pmix loads: on Debian, apt-get install libpmix-dev"
    return "" if os.getuid() == 0 else "slurmd starts jobs as root only"


class Slurm:
    """A running Slurm. A context manager."""

    def __init__(self) -> None:
        # not pytest's folder: a socket's path must be short
        self.folder = Path(tempfile.mkdtemp(prefix="dsgmcmc-slurm-"))
        self.environment = {"SLURM_CONF": str(self.folder / "slurm.conf"), "PATH": SYSTEM_PATH}
        self._daemons: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Slurm:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        if (self.folder / "slurm.conf").exists() and all(
            daemon.poll() is None for daemon in self._daemons
        ):
            self.command("scancel", "--state=PENDING")
            self.command("scancel", "--full", "--signal=KILL", "--state=RUNNING")
        for daemon in reversed(self._daemons):
            kill_session(daemon.pid)
            daemon.wait()
        self._kill_started()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _kill_started(self) -> None:
        """Kill the processes that slurmd has started, which are in their own sessions."""
        mark = f"SLURM_CONF={self.environment['SLURM_CONF']}".encode()
        daemons = {daemon.pid for daemon in self._daemons}
        kill(pid for pid, _, variables in processes() if mark in variables and pid not in daemons)

    def lose_node(self) -> None:
        """Let the node die, with slurmd and all that it has started; the controller is told that it
        is DOWN.
        """
        slurmd = self._daemons.pop()
        kill_session(slurmd.pid)
        slurmd.wait()
        self._kill_started()
        self.command("scontrol", "update", "NodeName=ALL", "State=DOWN", "Reason=lost").expect(0)

    def repair_node(self) -> None:
        """Start the node again."""
        self._daemon("slurmd", "-D")
        self.command("scontrol", "update", "NodeName=ALL", "State=RESUME").expect(0)

    def _start(self) -> None:
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        key = self.folder / "munge.key"
        key.touch(0o600)
        key.write_bytes(os.urandom(128))
        with socket.socket() as first, socket.socket() as second:
            for one in (first, second):
                one.bind(("127.0.0.1", 0))
            ports = {"port": first.getsockname()[1], "port_of_slurmd": second.getsockname()[1]}
        text = CONFIGURATION.format(
            host=socket.gethostname().partition(".")[0], folder=self.folder, **ports
        )
        (self.folder / "slurm.conf").write_text(text, encoding="utf-8")
        files = {
            "socket": "socket",
            "key-file": "key",
            "pid-file": "pid",
            "log-file": "log",
            "seed-file": "seed",
        }
        options = [f"--{option}={self.folder}/munge.{name}" for option, name in files.items()]
        self._daemon("munged", "--foreground", "--force", *options)
        self._until(lambda: (self.folder / "munge.socket").exists())
        self._daemon("slurmctld", "-D", "-c")
        self._until(lambda: "is UP" in self.command("scontrol", "ping").out)
        self._daemon("slurmd", "-D")
        self._until(lambda: "idle" in self.command("sinfo", "--noheader", "--format=%T").out)

    def _daemon(self, name: str, *options: str) -> None:
        with (self.folder / f"{name}.out").open("wb") as out:
            self._daemons.append(
                subprocess.Popen(
                    [str(shutil.which(name, path=SYSTEM_PATH)), *options],
                    env={**os.environ, **self.environment},
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )

    def _until(self, condition: Callable[[], bool]) -> None:
        def holds() -> bool:
            ended = [daemon.args for daemon in self._daemons if daemon.poll() is not None]
            assert not ended, f"Slurm does not start; ended: {ended}\n{self._logs()}"
            return condition()

        wait_until(holds, lambda: f"Slurm does not start\n{self._logs()}", 60)

    def _logs(self) -> str:
        return "\n".join(
            f"{path.name}:\n{path.read_text()[-3000:]}" for path in self.folder.glob("*.out")
        )

    def command(self, *command: str | Path, env: dict[str, str] | None = None) -> Result:
        """Run a command of this Slurm to its end."""
        return run(*command, env={**self.environment, **(env or {})})

    # ------------------------------------------------------------------ jobs

    def submit(
        self, folder: Path, script: Path, *options: str, env: dict[str, str] | None = None
    ) -> str:
        """Submit a job from a folder; return its number."""
        done = self.command(
            "sbatch", f"--chdir={folder}", "--parsable", *options, script, env=env
        ).expect(0)
        return done.out.strip()

    def job(self, number: str) -> dict[str, str]:
        """Facts of Slurm about a job."""
        shown = self.command("scontrol", "--oneliner", "show", "job", number).expect(0).out
        return dict(re.findall(r"(\S+?)=(\S*)", shown))

    def wait(self, number: str, folder: Path, state: str) -> dict[str, str]:
        """Wait until a job is in a state; fail with its log if it ends in another."""

        def complaint() -> str:
            return f"job {number} is not {state}: {self.job(number)}\n{log(folder)}\n{self._logs()}"

        def reached() -> bool:
            time.sleep(0.3)
            now = self.job(number)["JobState"]
            assert now == state or now not in ENDED, complaint()
            return now == state

        wait_until(reached, complaint)
        return self.job(number)


def log(folder: Path) -> str:
    """Everything that the jobs of a folder have logged."""
    return "\n".join(path.read_text() for path in sorted(folder.glob("*.log")))
