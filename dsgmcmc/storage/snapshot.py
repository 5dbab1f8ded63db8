"""Snapshots: blocks of arrays in a directory that is complete or not there at all.

Format ``dsgmcmc-snapshot``, version 1: a directory of HDF5 shards, each written by one process and holding whole
blocks (data set ``/OBJECT/FACTOR/BLOCK/FIELD``), and ``manifest.json`` (`dsgmcmc.storage.manifest`), which says what
lies where, with a SHA-256 of every block and every shard. It is written into ``NAME.tmp-XXXX``, synced, hashed by
reading it back, agreed on by all processes, and renamed. A reader finds it whole, or says what is wrong with it, and
never fills holes. Nothing in it is executed or unpickled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.storage.hdf5 import check_size, plain_dataset
from dsgmcmc.storage.manifest import BlockEntry, Key, Manifest, read_manifest, seen_by_all
from dsgmcmc.types import Array

Lazy = Array | Callable[[], Array]  # an array, or what makes it at the moment it is written


def block_hash(array: Array) -> str:
    """SHA-256 of an array's type, shape and little-endian bytes in C order."""
    data = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    digest = hashlib.sha256(f"{data.dtype.str} {data.shape}\n".encode())
    digest.update(data.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def file_hash(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Snapshot:
    """A snapshot, read block by block; every block is checked against its hash.

    Parameters
    ----------
    path : Path
        Its directory.
    manifest : Manifest, optional
        Its manifest, if it was read before (by another process).

    Raises
    ------
    InputError
        If it is incomplete, damaged, or of another version.
    """

    def __init__(self, path: Path, manifest: Manifest | None = None) -> None:
        self.path = path
        self.manifest = manifest or read_manifest(path)
        self._entries = {entry.key: entry for entry in self.manifest.blocks}

    def names(self) -> Iterable[Key]:
        """Keys of all blocks."""
        return self._entries.keys()

    def read(self, key: Key) -> Array:
        """Read a block and check it; see `read_all`."""
        return self.read_all([key])[0]

    def read_all(self, keys: Iterable[Key]) -> list[Array]:
        """Read blocks and check them; a shard is opened once for those that follow each other in it.

        Raises
        ------
        InputError
            If one is missing, not what the manifest says, or stored anywhere but in its shard.
        """
        arrays: list[Array] = []
        for shard, entries in groupby(map(self._entry, keys), attrgetter("shard")):
            arrays += self._read_shard(self.path / shard, list(entries))
        return arrays

    def whole(self, thing: str, factor: str, field: str) -> Array:
        """Read a field of all blocks of an object and factor, one after the other; raises as `read_all`."""
        blocks = sorted({key.block for key in self._entries if key[:2] == (thing, factor)})
        found: Array = np.concatenate(self.read_all(Key(thing, factor, b, field) for b in blocks))
        return found

    def _entry(self, key: Key) -> BlockEntry:
        entry = self._entries.get(key)
        if entry is None:
            raise InputError(f"{self.path} has no block {key.path}")
        return entry

    def _read_shard(self, shard: Path, entries: list[BlockEntry]) -> list[Array]:
        def read() -> list[Array]:
            with h5py.File(shard, "r", locking=False) as file:
                return [_read_entry(file, entry, shard.stat().st_size) for entry in entries]

        try:
            arrays = seen_by_all(self.path, read)
        except (OSError, KeyError, RuntimeError, ValueError, TypeError) as error:
            raise InputError(f"{shard} cannot be read: {error}") from error
        for entry, array in zip(entries, arrays, strict=True):
            if block_hash(array) != entry.sha256:
                raise InputError(f"{shard} is damaged: {entry.key.path} does not match its checksum")
        return arrays

    def verify(self) -> None:
        """Check every shard and every block against its hash.

        Raises
        ------
        InputError
            Naming the first file or block that is wrong.
        """
        for shard in self.manifest.shards:
            path = self.path / shard.file
            if not path.is_file():
                raise InputError(f"{path} is missing")
            if path.stat().st_size != shard.bytes:
                raise InputError(f"{path} has {path.stat().st_size} bytes; the manifest says {shard.bytes}")
            if file_hash(path) != shard.sha256:
                raise InputError(f"{path} is damaged: it does not match its checksum")
        for key in self._entries:
            self.read(key)


def _read_entry(file: Any, entry: BlockEntry, file_bytes: int) -> Array:
    """Read a block that lies in this file as the manifest says, and refuse any other."""
    data = plain_dataset(file, entry.key.path)
    if data.shape != entry.shape or data.dtype.str != entry.dtype:
        raise ValueError(
            f"{entry.key.path} is {data.dtype.str} {data.shape}; the manifest says {entry.dtype} {entry.shape}"
        )
    check_size(data, file_bytes)
    array: Array = data[...]
    return array
