"""Snapshots of several processes: written together, read at any layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from dsgmcmc.errors import InputError
from dsgmcmc.parallel.partition import blocks_of
from dsgmcmc.storage import writer
from dsgmcmc.storage.manifest import Key
from dsgmcmc.storage.snapshot import Snapshot
from dsgmcmc.storage.writer import write_snapshot

pytestmark = pytest.mark.mpi
GRID = 7


def block(b: int) -> np.ndarray:
    return np.random.default_rng(b).normal(size=(b % 4, 3)).astype(np.float32)


def mine(comm: MPI.Comm) -> dict[Key, np.ndarray]:
    blocks = {Key("state", "W", b, "theta"): block(b) for b in blocks_of(comm.rank, comm.size, GRID)}
    if comm.rank == comm.size - 1:
        blocks[Key("trace", "run", 0, "tau")] = np.arange(3.0)
    return blocks


def header() -> dict[str, Any]:
    hashes = {"config_hash": "0" * 64, "data_hash": "0" * 64}
    return {"kind": "checkpoint", "chain": 0, "iteration": 1, "grid": GRID, "state": {}, "about": {}, **hashes}


def shards(path: Path) -> list[str]:
    return sorted(file.name for file in path.glob("shard-*"))


def test_all_processes_write_and_any_reads_all(comm: MPI.Comm, together, mpi_tmp_path: Path) -> None:
    """One shard a process; every process reads every block, whoever wrote it."""
    path = write_snapshot(mpi_tmp_path, "step-000000000001", mine(comm), header, comm)
    snapshot = Snapshot(path)
    snapshot.verify()
    with together():
        assert shards(path) == [f"shard-{rank:05d}.h5" for rank in range(comm.size)]
        for b in range(GRID):
            assert snapshot.read(Key("state", "W", b, "theta")).tobytes() == block(b).tobytes()
        assert snapshot.read(Key("trace", "run", 0, "tau")).tolist() == [0, 1, 2]
        assert [entry.name for entry in mpi_tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("writers", [1, 2])
def test_few_write_for_many(
    comm: MPI.Comm, together, mpi_tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writers: int
) -> None:
    """A thousand processes must not make a thousand files: neighbours hand their blocks to one of them."""
    monkeypatch.setattr(writer, "MAX_WRITERS", writers)
    path = write_snapshot(mpi_tmp_path, "step-000000000001", mine(comm), header, comm)
    Snapshot(path).verify()
    with together():
        assert len(shards(path)) <= writers
        for b in range(GRID):
            assert Snapshot(path).read(Key("state", "W", b, "theta")).tobytes() == block(b).tobytes()


def test_a_failing_commit_fails_on_all(comm: MPI.Comm, together, mpi_tmp_path: Path) -> None:
    """Process 0 commits for everyone; its error reaches everyone, and nothing is left."""

    def full() -> dict[str, Any]:
        raise OSError(28, "No space left on device")

    message = ""
    try:
        write_snapshot(mpi_tmp_path, "step-000000000001", mine(comm), full, comm)
    except InputError as error:
        message = str(error)
    comm.Barrier()
    with together():
        assert "No space left" in message
        assert list(mpi_tmp_path.iterdir()) == []
