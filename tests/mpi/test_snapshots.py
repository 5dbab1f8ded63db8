"""Snapshots of several processes: written together, read at any layout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

from dsgmcmc.parallel.partition import blocks_of
from dsgmcmc.storage import store
from dsgmcmc.storage.store import Key, Snapshot, SnapshotWriter

pytestmark = pytest.mark.mpi
GRID = 7


def block(b: int) -> np.ndarray:
    return np.random.default_rng(b).normal(size=(b % 4, 3)).astype(np.float32)


def mine(comm: MPI.Comm) -> dict[Key, np.ndarray]:
    blocks = {Key("state", "W", b, "theta"): block(b) for b in blocks_of(comm.rank, comm.size, GRID)}
    if comm.rank == comm.size - 1:
        blocks[Key("trace", "run", 0, "tau")] = np.arange(3.0)
    return blocks


HASHES = {"config_hash": "0" * 64, "data_hash": "0" * 64}
HEADER = {"kind": "checkpoint", "chain": 0, "iteration": 1, "grid": GRID, "state": {}, "about": {}, **HASHES}


@pytest.mark.parametrize("writers", [64, 2, 1])
def test_all_processes_write_and_any_reads_all(
    comm: MPI.Comm, together, mpi_tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writers: int
) -> None:
    """Few processes write a shard each; of many, neighbours send their blocks to one, so that there are few files."""
    monkeypatch.setattr(store, "MAX_WRITERS", writers)
    draft = SnapshotWriter(mpi_tmp_path, "step-000000000001", mine(comm), HEADER, comm)
    at_root = comm.rank == 0
    for step in (draft.make if at_root else None, draft.shard, draft.gather, draft.commit if at_root else None):
        if step:
            step()
        comm.Barrier()
    snapshot = Snapshot(draft.final)
    snapshot.verify()
    with together():
        assert len(list(draft.final.glob("shard-*"))) == min(writers, comm.size)
        for b in range(GRID):
            assert snapshot.read(Key("state", "W", b, "theta")).tobytes() == block(b).tobytes()
        assert snapshot.read(Key("trace", "run", 0, "tau")).tolist() == [0, 1, 2]
        assert [entry.name for entry in mpi_tmp_path.iterdir()] == [draft.final.name]
