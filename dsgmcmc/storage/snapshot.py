"""Snapshots: directories of blocks of arrays, which are either complete or absent.

Format ``dsgmcmc-snapshot``, version 2: a directory of HDF5 files, the shards, and ``manifest.json``
(`dsgmcmc.storage.manifest`). A shard is written by one process and holds whole blocks (data sets
``/OBJECT/FACTOR/BLOCK/FIELD``). The manifest lists the shard and the SHA-256 of every block. A snapshot is written into
``NAME.tmp-XXXX``, synced, agreed on by all processes, and renamed. A reader rejects an incomplete or damaged snapshot
with an error. Nothing in a snapshot is executed or unpickled.
"""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.storage.hdf5 import plain_dataset
from dsgmcmc.storage.manifest import BlockEntry, Key, read_manifest, read_part
from dsgmcmc.types import Array

_PIECE = 1 << 22  # bytes of a block that are read at a time to check it

Lazy = Array | Callable[[], Array]  # an array, or a function that computes it when it is written


def block_hash(array: Array) -> str:
    """SHA-256 of an array's type, shape and little-endian bytes in C order."""
    return _hash(np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")))


def _hash(data: Any) -> str:
    """SHA-256 of an array or data set, which is read piece by piece."""
    digest = hashlib.sha256(f"{data.dtype.str} {data.shape}\n".encode())
    for piece in _pieces(data) if data.shape else [data[...]]:
        digest.update(piece.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _pieces(data: Any) -> Iterator[Array]:
    step = max(1, _PIECE * len(data) // max(1, data.nbytes))
    for start in range(0, len(data), step):
        yield data[start : start + step]


class Snapshot:
    """A snapshot, read block by block; every block is checked against its hash.

    Raises InputError if it is incomplete, damaged, or of another version.

    Parameters
    ----------
    path : Path
        Directory of the snapshot.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest = read_manifest(path)
        self._entries = {entry.key: entry for entry in self.manifest.blocks}
        self._checked: set[Key] = set()  # blocks that have been checked against their hashes

    def names(self) -> Iterable[Key]:
        """Keys of all blocks."""
        return self._entries.keys()

    def read(self, key: Key) -> Array:
        """Read a block and check it; raises as `read_all`."""
        return self.read_all([key])[0]

    def read_all(self, keys: Iterable[Key], number: int | None = None) -> list[Array]:
        """Read blocks and check them; a shard is opened once for consecutive keys.

        With a `number`, only this entry along the first axis of each block is kept in memory. The whole block is
        checked when it, or one of its entries, is first read.

        Raises InputError if a block is missing, differs from the manifest, or is not stored in its shard.
        """
        arrays: list[Array] = []
        for shard, entries in groupby(map(self._entry, keys), attrgetter("shard")):
            arrays += self._read_shard(self.path / shard, list(entries), ... if number is None else number)
        return arrays

    def read_field(self, thing: str, factor: str, field: str) -> Array:
        """Read a field of an object and factor, its blocks joined; raises as `read_all`."""
        return self.read_fields(thing, [(factor, field)])[0]

    def read_fields(self, thing: str, wanted: Sequence[tuple[str, str]], number: int | None = None) -> list[Array]:
        """Read several fields, (factor, field) each, as `read_field` does, opening a shard once for adjacent blocks.

        With a `number`, only this entry of every block is read, as in `read_all`.
        """
        blocks: dict[str, set[int]] = {factor: set() for factor, _ in wanted}
        for key in self._entries:
            if key.object == thing and key.factor in blocks:
                blocks[key.factor].add(key.block)
        keys = [[Key(thing, factor, b, field) for b in sorted(blocks[factor])] for factor, field in wanted]
        read = iter(self.read_all([key for several in keys for key in several], number))
        return [np.concatenate([next(read) for _ in several]) for several in keys]

    def _entry(self, key: Key) -> BlockEntry:
        entry = self._entries.get(key)
        if entry is None:
            raise InputError(f"{self.path} has no block {key.path}")
        return entry

    def _read_shard(self, shard: Path, entries: list[BlockEntry], part: Any) -> list[Array]:
        """Read a part of each block, and check the blocks that have not been checked."""

        def read() -> list[Array]:
            status = shard.stat()
            if not stat.S_ISREG(status.st_mode):
                raise ValueError("it is a directory, a pipe or a device")
            with h5py.File(shard, "r", locking=False) as file:
                return [self._read(file, entry, status.st_size, part) for entry in entries]

        return read_part(shard, read)

    def _read(self, file: Any, entry: BlockEntry, file_bytes: int, part: Any) -> Array:
        name = entry.key.path
        data = plain_dataset(file, name, file_bytes)
        if data.shape != entry.shape or data.dtype.str != entry.dtype:
            found = f"{data.dtype.str} {data.shape}"
            raise ValueError(f"{name} is {found}; the manifest says {entry.dtype} {entry.shape}")
        if part is ...:
            data = np.asarray(data[...])  # read once, and checked in memory
        if entry.key not in self._checked and _hash(data) != entry.sha256:
            raise ValueError(f"{name} does not match its checksum")
        self._checked.add(entry.key)
        return np.asarray(data[part])

    def verify(self) -> None:
        """Check every block against its hash, in little memory. Raises InputError naming the first bad block."""
        for shard in self.manifest.shards:
            self.check_shard(shard)

    def check_shard(self, shard: str) -> None:
        """Check the blocks in a shard against their hashes; raises as `verify`."""
        entries = [entry for entry in self._entries.values() if entry.shard == shard]
        self._read_shard(self.path / shard, entries, slice(0))

    def hashes_of(self, number: int) -> dict[Key, str]:
        """Hashes, by key, of entry `number` along the first axis of every block; raises as `read_all`."""
        arrays = self.read_all(self._entries, number)
        return {key: block_hash(array) for key, array in zip(self._entries, arrays, strict=True)}
