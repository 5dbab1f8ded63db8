"""Fixtures of tests that run under ``mpirun -n P python -m pytest --with-mpi tests/mpi``, on every
process alike.
"""

import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from measurements import write_answers, write_measured
from mpi4py import MPI
from support import rest, write_planted

Together = Callable[[], AbstractContextManager[None]]
HERE = Path(__file__).parent
SECONDS = 240  # a test that hangs on one process is ended on all: mpirun notices that one is gone


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give every test of this folder a timeout that works also while Python waits in MPI."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.timeout(SECONDS, method="thread"))


@pytest.fixture(scope="session")
def comm() -> MPI.Comm:
    """All processes."""
    return MPI.COMM_WORLD


@pytest.fixture
def together(comm: MPI.Comm) -> Together:
    """Context for assertions: if one process fails in it, all fail.

    Without it a process that failed would leave the others waiting in the next collective call.
    Nothing inside communicates.
    """

    @contextmanager
    def context() -> Iterator[None]:
        failure: BaseException | None = None
        try:
            yield
        except BaseException as error:
            failure = error
        rest(comm)
        texts = comm.allgather("".join(traceback.format_exception_only(failure)) if failure else "")
        if failure is not None:
            raise failure
        failed = [rank for rank, text in enumerate(texts) if text]
        assert not failed, f"failed on process {failed[0]}: {texts[failed[0]]}"

    return context


#: Arguments of `write_planted` for ratings files that all processes read.
FILES: dict[str, dict[str, Any]] = {
    "plain": {},
    "timed": {"stars": True, "timed": True},
    "described": {"features": (4, 3)},  # of the rows and of the columns; some rows have none
    "stars": {"stars": True},
    "turned stars": {"stars": True, "transposed": True},  # whose columns are the users
}
#: Arguments of `write_measured`, likewise.
MEASURED: dict[str, dict[str, Any]] = {
    "replicates": {"replicated": True},
    "weights": {"replicated": True, "weighted": True},
    "bounds": {"replicated": True, "weighted": True, "bounded": True},
}


@pytest.fixture(scope="session")
def files(comm: MPI.Comm, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The paths of `FILES` and `MEASURED`, and of answers whose items differ in their levels."""
    folder = tmp_path_factory.mktemp("data")
    paths: dict[str, Path] = {}
    if comm.rank == 0:
        for name, how in FILES.items():
            paths[name] = write_planted(folder / f"{name}.h5", **how)
        for name, how in MEASURED.items():
            paths[name] = write_measured(folder / f"{name}.h5", **how)
        paths["answers"] = write_answers(folder / "answers.h5")
        paths["turned answers"] = write_answers(folder / "turned answers.h5", transposed=True)
    return comm.bcast(paths, root=0)


@pytest.fixture(scope="session")
def data(files: dict[str, Path]) -> Path:
    """Small ratings file that all processes read."""
    return files["plain"]
