"""Fixtures of tests that run under ``mpirun -n P python -m pytest --with-mpi tests/mpi``, on every process alike."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
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

    Without it a process that failed would leave the others waiting in the next collective call. Nothing inside
    communicates.
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


@pytest.fixture(scope="session")
def timed(comm: MPI.Comm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ratings of five levels, with times."""
    path = write_planted(tmp_path_factory.mktemp("timed") / "r.h5", stars=True, timed=True) if comm.rank == 0 else None
    return comm.bcast(path, root=0)


@pytest.fixture(scope="session")
def data(comm: MPI.Comm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small ratings file that all processes read."""
    path = write_planted(tmp_path_factory.mktemp("data") / "r.h5") if comm.rank == 0 else None
    return comm.bcast(path, root=0)


@pytest.fixture(scope="session")
def described(comm: MPI.Comm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same ratings with features of both sides, four of the rows and three of the columns, some without any."""
    path = None
    if comm.rank == 0:
        path = write_planted(tmp_path_factory.mktemp("described") / "r.h5", features=(4, 3))
    return comm.bcast(path, root=0)


@pytest.fixture(scope="session")
def turned_stars(comm: MPI.Comm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with ratings of 1 to 5, whose columns are the users."""
    folder = tmp_path_factory.mktemp("turned")
    path = write_planted(folder / "r.h5", stars=True, transposed=True) if comm.rank == 0 else None
    return comm.bcast(path, root=0)


@pytest.fixture(scope="session")
def stars(comm: MPI.Comm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with ratings of 1 to 5."""
    path = write_planted(tmp_path_factory.mktemp("stars") / "r.h5", stars=True) if comm.rank == 0 else None
    return comm.bcast(path, root=0)
