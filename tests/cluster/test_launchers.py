"""What a signal to the launcher of each MPI library does to the processes: the table of
docs/clusters.md, measured.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_cluster import Slurm, missing
from support import ROOT, kill, lacking, processes, wait_until

pytestmark = pytest.mark.long
#: A process that hears signals as `sample` does, and needs a second for its checkpoint; or ends
#: with a status at once.
PROCESS = """
import os, signal, sys, time
ranks = map(os.environ.get, ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"))
rank = int(next(filter(None, ranks)))
if len(sys.argv) > 2:
    sys.exit(int(sys.argv[2 + rank]))
log = open(f"{sys.argv[1]}/{rank}", "a", buffering=1)
heard = []
for name in ("HUP", "INT", "TERM", "USR1", "USR2"):
    number = getattr(signal, "SIG" + name)
    signal.signal(number, lambda number, frame: heard.append(signal.Signals(number).name))
log.write("ready\\n")
end = time.monotonic() + 60
while time.monotonic() < end and not heard:
    time.sleep(0.02)
log.write(f"{heard[0]}\\n")
time.sleep(1)
log.write("ended\\n")
sys.exit(75)
"""
#: Suffix of the virtual environment of a library, and its launcher, in the order of the page.
MPIRUNS = {
    "Open MPI": ("", "mpirun"),
    "MPICH": ("-mpich", "mpirun"),
    "Intel MPI hydra": ("-intelmpi", "mpiexec.hydra"),
    "Intel MPI mpirun": ("-intelmpi", "mpirun"),
}
#: All columns of the page; with its default, KillOnBadExit=0.
SRUN = "Slurm"
LAUNCHERS = (*MPIRUNS, SRUN)
SIGNALS = ("SIGUSR1", "SIGTERM", "SIGINT", "SIGHUP", "SIGUSR2")


class Launched(contextlib.AbstractContextManager):
    """Two processes of `PROCESS` under the launcher of a library, in a session of their own.

    A context manager.
    """

    def __init__(self, launcher: list[str], folder: Path, *statuses: int) -> None:
        self.folder = folder
        environment = {**os.environ, "LAUNCHED": str(folder)}
        program = [sys.executable, "-c", PROCESS, folder, *map(str, statuses)]
        line = [*launcher, "-n", "2", *program]
        quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        self.process = subprocess.Popen(line, env=environment, start_new_session=True, **quiet)

    def __exit__(self, *exc: object) -> None:
        kill([self.process.pid, *self.alive()])
        self.process.wait()

    def alive(self) -> list[int]:
        """The launcher and what it has started, also after its end."""
        return [
            pid
            for pid, _, variables in processes()
            if f"LAUNCHED={self.folder}".encode() in variables
        ]

    def logs(self) -> list[list[str]]:
        """Lines of each process."""
        return [path.read_text().split() for path in sorted(self.folder.glob("[01]"))]

    def is_over(self) -> bool:
        """Whether the launcher and what it has started have ended."""
        return self.process.poll() is not None and not self.alive()

    def status(self) -> int | None:
        """Status of the launcher as a shell has it; None if it waits for processes that go on."""
        code = self.process.poll()
        return 128 - code if code is not None and code < 0 else code

    def found(self) -> str:
        """What a signal has done, in the words of the page."""
        logs = self.logs()
        status = self.status()
        heard = sorted({log[1] for log in logs if len(log) > 1})
        if all(log[-1] == "ended" for log in logs):
            what = "heard"
        else:
            what = f"{heard[0] if heard else 'unheard'}, {'go on' if self.alive() else 'killed'}"
        return f"{what}; {'waits' if status is None else status}"


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    if reason := missing():
        lacking(reason)
    with Slurm() as running:
        yield running


@pytest.fixture(params=LAUNCHERS)
def library(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def launcher(request: pytest.FixtureRequest, library: str) -> list[str]:
    """Beginning of the command line that starts processes."""
    if library == SRUN:
        slurm = request.getfixturevalue("slurm")
        variables = [f"{name}={value}" for name, value in slurm.environment.items()]
        return ["env", *variables, "srun", "--mpi=none", "--kill-on-bad-exit=0"]
    suffix, name = MPIRUNS[library]
    scripts = Path(f"{sys.prefix}{suffix}") / "bin"
    if not (scripts / name).exists():
        lacking(f"no {scripts}: launch/test.sh --all makes it")
    return ["env", f"PATH={scripts}{os.pathsep}{os.environ['PATH']}", str(scripts / name)]


def rows() -> dict[str, dict[str, str]]:
    """The table of the page: by what is sent, the text of each launcher."""
    text = (ROOT / "docs" / "clusters.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\|(.*)\|$", text.partition("\n| sent to the launcher")[2], re.MULTILINE)
    cells = [[cell.strip() for cell in line.split("|")] for line in lines[1:]]
    return {
        first: dict(zip(LAUNCHERS, rest, strict=True))
        for first, *rest in cells
        if len(rest) == len(LAUNCHERS)
    }


def test_signals_do_what_the_page_says(tmp_path: Path, library: str, launcher: list[str]) -> None:
    """Whether all processes hear it, have a second for a checkpoint, and with which status the
    launcher ends.

    All signals at once, each to a launcher of its own: those that wait for ever are waited for
    together.
    """
    with contextlib.ExitStack() as stack:
        launched = {}
        for sent in SIGNALS:
            (folder := tmp_path / sent).mkdir()
            launched[sent] = stack.enter_context(Launched(launcher, folder))
        for each in launched.values():
            wait_until(
                lambda each=each: each.logs() == [["ready"]] * 2,
                lambda: f"{library} starts no processes",
                60,
            )
        for sent, each in launched.items():
            os.kill(each.process.pid, getattr(signal, sent))
        with contextlib.suppress(AssertionError):
            wait_until(
                lambda: all(each.is_over() for each in launched.values()), lambda: "some go on", 10
            )
        found = {sent: each.found() for sent, each in launched.items()}
    assert found == {sent: rows()[sent][library] for sent in SIGNALS}


def test_statuses_that_differ(tmp_path: Path, library: str, launcher: list[str]) -> None:
    """One process ends with 70, the other with 75: not every library ends with one of them."""
    with Launched(launcher, tmp_path, 70, 75) as launched:
        launched.process.wait(60)
        assert str(launched.status()) in rows()["statuses 70 and 75"][library].split(" or ")
