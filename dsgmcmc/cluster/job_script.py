"""Job scripts for batch systems, rendered from the templates in ``templates``.

A template is the script of one batch system: its directives, its launcher, how it requeues. What they share is in
``settings.sh.in``, ``mpirun.sh.in`` and ``start.sh.in``; ``body.sh.in`` samples, ``bench.sh.in`` measures. A line whose
value was not given is left out.
``launch/slurm.sbatch`` and its like are the renderings without options.
"""

from __future__ import annotations

import re
import shlex
import string
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from dsgmcmc.config.units import seconds_of
from dsgmcmc.errors import InputError

#: What can be written, and the name of its rendering in ``launch/``.
KINDS = {"slurm": "slurm.sbatch", "pbs": "pbs.sh", "lsf": "lsf.sh", "flux": "flux.sh"}
SHARED = ("settings", "mpirun", "start")
#: Ratings file and run directory that a job has by default, and the folder of one that measures.
DATA, RUN, STUDY = "ratings.h5", "run", "scaling"
#: Of a name in a directive: no space, quote, newline or anything else that a batch system or a shell interprets.
_NAME = re.compile(r"[A-Za-z0-9_][\w.,:@%+/=-]*", re.ASCII)
_MEMORY = re.compile(r"[1-9]\d*[MGT]", re.ASCII)


@dataclass(frozen=True)
class JobScript:
    """A job: its fields are the options of ``dsgmcmc launch-script``, whose help explains them.

    Raises InputError if a value could be taken for something else by a batch system or a shell, or makes no sense.
    """

    kind: str
    nodes: int = 1
    processes: int = 4
    time: str = "1:00:00"
    warning: str = "2min"
    queue: str | None = None
    account: str | None = None
    memory: str | None = None
    name: str = "dsgmcmc"
    launcher: str = "mpirun"
    modules: tuple[str, ...] = ()
    environment: str | None = None
    image: str | None = None
    data: str | None = None
    run: str | None = None
    options: tuple[str, ...] = ()
    requeue: bool = True
    bench: bool = False

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(f"{self.kind}: expected one of {', '.join(KINDS)}")
        for option, number in (("--nodes", self.nodes), ("--processes", self.processes)):
            if number < 1:
                raise InputError(f"{option} {number}: expected 1 or more")
        for option, text in (("--queue", self.queue), ("--account", self.account), ("--name", self.name)):
            if text is not None and not _NAME.fullmatch(text):
                raise InputError(f"{option} {text!r}: expected a name of letters, digits and _.,:@%+/=-")
        if "/" in self.name:
            raise InputError(f"--name {self.name!r}: the log is named after the job, so expected no /")
        if self.memory is not None and not _MEMORY.fullmatch(self.memory):
            raise InputError(f"--memory {self.memory}: expected the memory of one machine, such as 500M or 32G")
        if self.memory is not None and self.kind == "flux":
            raise InputError("--memory: Flux cannot request memory; jobs get all memory of their machines")
        if self.launcher != "mpirun" and (self.kind, self.launcher) != ("slurm", "srun"):
            raise InputError(f"--launcher {self.launcher}: expected mpirun, or with slurm also srun")
        if {"--out", "-o"} & {option.split("=")[0] for option in self.options}:
            raise InputError(f"give the folder with --run, not among the options of {self._command}")
        texts = (*self.modules, *self.options, self.environment, self.image, self.data, self.run)
        for text in filter(None, texts):
            if not text.isprintable():  # a batch system may take a line inside quotes for a directive
                raise InputError(f"{text!r}: expected printable characters and no line breaks")
        if self._seconds <= self._warning_seconds:
            raise InputError(
                f"--time {self.time} is not longer than --warning {self.warning}: nothing would be sampled"
            )

    @property
    def _command(self) -> str:
        return "bench cluster" if self.bench else "sample"

    @property
    def _seconds(self) -> int:
        return round(seconds_of("--time", self.time))

    @property
    def _warning_seconds(self) -> int:
        return round(seconds_of("--warning", self.warning))

    def render(self) -> str:
        """Return the script."""
        values = self._values()
        for name, template in {**dict.fromkeys(SHARED), "work": "bench" if self.bench else "body"}.items():
            values[name] = _fill(_template(template or name), values).rstrip("\n")
        return _fill(_template(self.kind), values)

    def _values(self) -> dict[str, str | None]:
        seconds, warning = self._seconds, self._warning_seconds
        minutes = -(-seconds // 60)
        given = {
            "modules": f"module load {shlex.join(self.modules)}" if self.modules else "# module load openmpi",
            "environment": f". {_path(self.environment, 'bin/activate')}"
            if self.environment
            else '# . "$HOME/dsgmcmc/bin/activate"',
            "image": f"program=(apptainer exec {_path(self.image)} dsgmcmc)"
            if self.image
            else "# program=(apptainer exec dsgmcmc.sif dsgmcmc)",
        }
        return {
            **given,
            "name": self.name,
            "log": f"{self.name}.log",
            "nodes": str(self.nodes),
            "processes": str(self.processes),
            "total": str(self.nodes * self.processes),
            "clock": f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}",
            "hours_minutes": f"{minutes // 60}:{minutes % 60:02}",
            "seconds": str(seconds),
            "warning": str(warning),
            "warning_minutes": str(-(-warning // 60)),
            "queue": self.queue,
            "account": self.account,
            "memory": self.memory,
            "chunk_memory": f":mem={self.memory.lower()}b" if self.memory else "",
            "inherit": None if self.modules or self.environment or self.image else "-V",
            "no": "" if self.requeue and not self.bench else "no-",
            "automatic": "yes" if self.requeue else "no",
            "requeue_status": "75" if self.requeue and not self.bench else None,
            "with_mpirun": "" if self.launcher == "mpirun" else "# ",
            "with_srun": "" if self.launcher == "srun" else "# ",
            **(self._measuring() if self.bench else self._sampling()),
        }

    def _sampling(self) -> dict[str, str | None]:
        return {
            "about": "Samples with dsgmcmc",
            "done": "sampled",
            "command": self._command,
            "sampling": "",
            "data": _path(self.data or DATA),
            "run": _path(self.run or RUN),
            "options": shlex.join(("--resume", *self.options)),
        }

    def _measuring(self) -> dict[str, str | None]:
        """Lines with ``sampling`` are left out; ratings are an argument, for without any they are synthetic."""
        data = () if self.data is None else (str(Path(self.data).expanduser()),)
        return {
            "about": "Measures how dsgmcmc scales",
            "done": "measured",
            "command": self._command,
            "sampling": None,
            "data": None,
            "run": _path(self.run or STUDY),
            "options": shlex.join((f"--time={self._seconds - self._warning_seconds}s", *self.options, *data)),
        }


class _Text(string.Template):
    """``%%{name}``: neither bash nor a batch system uses that."""

    delimiter = "%%"


def _template(name: str) -> str:
    return (files("dsgmcmc.cluster") / "templates" / f"{name}.sh.in").read_text(encoding="utf-8")


def _fill(text: str, values: dict[str, str | None]) -> str:
    """Put the values in; lines that need one that is None are left out."""
    absent = [f"%%{{{name}}}" for name, value in values.items() if value is None]
    lines = [line for line in text.splitlines(keepends=True) if not any(mark in line for mark in absent)]
    return _Text("".join(lines)).substitute(values)


def _path(text: str, inside: str = "") -> str:
    """Return a path for the shell; a ``~`` that no shell has replaced is the home directory."""
    return shlex.quote(str(Path(text).expanduser() / inside))
