"""Writes snapshots (`dsgmcmc.storage.snapshot`): into ``NAME.tmp-XXXX``, which is synced and then renamed."""

from __future__ import annotations

import logging
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.parallel.comm import Alone
from dsgmcmc.storage.files import sync, write_whole
from dsgmcmc.storage.hdf5 import new_hdf5
from dsgmcmc.storage.manifest import MANIFEST, BlockEntry, Key, Manifest, seal
from dsgmcmc.storage.series import remove
from dsgmcmc.storage.snapshot import Lazy, Snapshot, block_hash
from dsgmcmc.types import Comm

log = logging.getLogger(__name__)

MAX_WRITERS = 64
VISIBLE_SECONDS = 60.0  # the latest that a network file system shows a new directory to other hosts


class SnapshotWriter:
    """A snapshot that is being written: it appears complete, or not at all.

    `make`, `shard` and `commit` make no MPI calls, so a thread can run them while the chain continues. Constructing a
    writer is collective and does not touch the disk.

    Parameters
    ----------
    parent : Path
        Directory for the snapshot; created if missing.
    blocks : mapping of Key to array, or to a function that computes the array when it is written
        The blocks of this process; no key is on two processes. The arrays must not change until `shard` is done.
    header : mapping
        The remaining fields of the manifest (`dsgmcmc.storage.facts.header`); needed on process 0.
    comm : MPI.Comm
        All processes that hold blocks.
    """

    def __init__(
        self, parent: Path, name: str, blocks: Mapping[Key, Lazy], header: Mapping[str, Any], comm: Comm
    ) -> None:
        self.final = parent / name
        self._header, self._comm = header, comm
        temporary = parent / f"{name}.tmp-{secrets.token_hex(4)}"
        self._temporary = Path(comm.bcast(str(temporary), root=0))
        self._blocks = _collect(blocks, comm)
        self._entries: list[BlockEntry] = []

    def make(self) -> None:
        """Create the temporary directory; on process 0, before `shard` on any process."""
        self.final.parent.mkdir(parents=True, exist_ok=True)
        self._temporary.mkdir()

    def shard(self) -> None:
        """Write the blocks of this process to a shard, and sync it."""
        if self._blocks:
            _wait_for(self._temporary)
            path = self._temporary / f"shard-{self._comm.rank:05d}.h5"
            self._entries = _write_shard(path, self._blocks)
            sync(path)
        self._blocks = {}

    def gather(self) -> None:
        """Send the entries of all shards to process 0. Collective."""
        everything = self._comm.gather(self._entries, root=0)
        self._entries = [entry for several in everything or [] for entry in several]

    def commit(self) -> None:
        """Write the manifest and give the snapshot its name, in place of an earlier snapshot; on process 0."""
        manifest = Manifest(blocks=sorted(self._entries, key=lambda entry: entry.key), **self._header)
        write_whole(self._temporary / MANIFEST, seal(manifest.model_dump_json(indent=1)))
        sync(self._temporary)
        if self.final.exists():
            remove(self.final)
        self._temporary.rename(self.final)
        sync(self.final.parent)

    def discard(self) -> None:
        """Delete the files that were written; on process 0. Harmless after `commit`."""
        shutil.rmtree(self._temporary, ignore_errors=True)


def write_snapshot(parent: Path, name: str, blocks: Mapping[Key, Lazy], header: Mapping[str, Any]) -> Path:
    """Write a snapshot by this process alone and return its directory; parameters as of `SnapshotWriter`.

    Raises OSError if writing fails.
    """
    draft = SnapshotWriter(parent, name, blocks, header, Alone())
    try:
        for step in (draft.make, draft.shard, draft.commit):
            step()
    finally:
        draft.discard()
    return draft.final


def is_whole(path: Path, otherwise: str) -> bool:
    """Whether a snapshot exists and is intact; a damaged one is logged, with `otherwise` as its consequence."""
    try:
        if path.exists():
            Snapshot(path).verify()
            return True
    except InputError as error:
        log.warning("%s: %s", error, otherwise)
    return False


def _wait_for(directory: Path) -> None:
    """Wait until this host sees a directory that another host has created on a shared file system."""
    end = monotonic() + VISIBLE_SECONDS
    while not directory.is_dir() and monotonic() < end:
        sleep(0.05)


def _collect(blocks: Mapping[Key, Lazy], comm: Comm) -> dict[Key, Lazy]:
    """Send the blocks of neighbouring processes to one writer, if there are more than `MAX_WRITERS` processes."""
    stride = -(-comm.size // MAX_WRITERS)
    if stride == 1:
        return dict(blocks)
    neighbours = comm.Split(comm.rank // stride, comm.rank)
    here = {key: block() if callable(block) else block for key, block in blocks.items()}
    everything = neighbours.gather(here, root=0)
    neighbours.Free()
    return {key: array for several in everything or [] for key, array in several.items()}


def _write_shard(path: Path, blocks: Mapping[Key, Lazy]) -> list[BlockEntry]:
    entries = []
    with new_hdf5(path) as (file, check):
        for key, block in blocks.items():
            array = block() if callable(block) else block
            stored = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
            file.create_dataset(key.path, data=stored)
            check()
            hashed = block_hash(array)
            entries.append(
                BlockEntry(key=key, shard=path.name, shape=array.shape, dtype=stored.dtype.str, sha256=hashed)
            )
            del array, stored  # before the next block is computed
    return entries
