"""Snapshots: directories of blocks of arrays, which are either complete or absent.

Format ``dsgmcmc-snapshot``, version 2: a directory of HDF5 files, the shards, and ``manifest.json``
(`dsgmcmc.storage.manifest`). A shard is written by one process and holds whole blocks (data sets
``/OBJECT/FACTOR/BLOCK/FIELD``). The manifest lists the shard and the SHA-256 of every block. A snapshot is written into
``NAME.tmp-XXXX``, synced, agreed on by all processes, and renamed. A reader rejects an incomplete or damaged snapshot
with an error. Nothing in a snapshot is executed or unpickled.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from io import BufferedReader
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any

import h5py
import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.storage.files import open_plain
from dsgmcmc.storage.hdf5 import check_size, plain_dataset, stored_bytes
from dsgmcmc.storage.manifest import BlockEntry, Key, Manifest, lost, read_manifest, seen_by_all
from dsgmcmc.types import Array, Int32

Lazy = Array | Callable[[], Array]  # an array, or a function that computes it when it is written


def block_hash(array: Array) -> str:
    """SHA-256 of an array's type, shape and little-endian bytes in C order."""
    data = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return _hash(data, [data.reshape(-1).view(np.uint8).data])


def _hash(data: Any, pieces: Iterable[bytes | memoryview]) -> str:
    """SHA-256 of the type and shape of an array or data set, and of its bytes."""
    digest = hashlib.sha256(f"{data.dtype.str} {data.shape}\n".encode())
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


class Snapshot:
    """A snapshot, read block by block; every block is checked against its hash.

    Raises InputError if it is incomplete, damaged, or of another version.

    Parameters
    ----------
    path : Path
        Directory of the snapshot.
    manifest : Manifest, optional
        Manifest of the snapshot, if it has already been read (by another process).
    finite : bool
        Refuse values that are not finite, except in traces of predictions and log likelihoods.
    """

    def __init__(self, path: Path, manifest: Manifest | None = None, finite: bool = False) -> None:
        self.path, self._finite = path, finite
        self.manifest = manifest or read_manifest(path)
        self._entries = {entry.key: entry for entry in self.manifest.blocks}
        self._whole: set[Key] = set()  # blocks that have been checked against their hashes

    def _open(self, shard: str) -> BufferedReader:
        """Open a shard. Raises InputError if the shard is missing or no file."""
        path = self.path / shard
        try:
            return seen_by_all(self.path, lambda: open_plain(path, sys.maxsize))
        except FileNotFoundError as error:
            raise lost(self.path, f"{path} is missing") from error
        except OSError as error:
            raise lost(self.path, f"{path} cannot be read: {error}") from error

    def names(self) -> Iterable[Key]:
        """Keys of all blocks."""
        return self._entries.keys()

    def read(self, key: Key) -> Array:
        """Read a block and check it; raises as `read_all`."""
        return self.read_all([key])[0]

    def read_all(self, keys: Iterable[Key], number: int | None = None) -> list[Array]:
        """Read blocks and check them; a shard is opened once for consecutive keys.

        With a `number`, only this entry along the first axis of each block is kept in memory. The whole block is
        checked when one of its entries is first read.

        Raises InputError if a block is missing, differs from the manifest, or is not stored in its shard.
        """
        arrays: list[Array] = []
        for shard, entries in groupby(map(self._entry, keys), attrgetter("shard")):
            arrays += self._read_shard(self.path / shard, list(entries), number)
        return arrays

    def whole(self, thing: str, factor: str, field: str) -> Array:
        """Read a field of an object and factor, its blocks joined; raises as `read_all`."""
        return self.wholes(thing, [(factor, field)])[0]

    def wholes(
        self,
        thing: str,
        wanted: Sequence[tuple[str, str]],
        rows: Mapping[str, Int32] = MappingProxyType({}),
        number: int | None = None,
    ) -> list[Array]:
        """Read several fields, (factor, field) each, as `whole` does, opening a shard once for adjacent blocks.

        For a factor in `rows`, only the blocks that hold these rows are read; the other blocks are filled with NaN.
        With a `number`, only this entry of every block is read, as in `read_all`.
        """
        axis = 0 if number is None else 1
        blocks: dict[str, set[int]] = {factor: set() for factor, _ in wanted}
        for key in self._entries:
            if key.object == thing and key.factor in blocks:
                blocks[key.factor].add(key.block)
        entries = [
            [self._entry(Key(thing, factor, b, field)) for b in sorted(blocks[factor])] for factor, field in wanted
        ]
        keys = [
            entry.key
            for several, (factor, _) in zip(entries, wanted, strict=True)
            for entry in (_with(several, rows[factor], axis) if factor in rows else several)
        ]
        read = dict(zip(keys, self.read_all(keys, number), strict=True))
        return [
            np.concatenate(
                [read[e.key] if e.key in read else np.full(e.shape[axis:], np.nan, e.dtype) for e in several]
            )
            for several in entries
        ]

    def _entry(self, key: Key) -> BlockEntry:
        entry = self._entries.get(key)
        if entry is None:
            raise InputError(f"{self.path} has no block {key.path}")
        return entry

    def _read_shard(self, shard: Path, entries: list[BlockEntry], number: int | None) -> list[Array]:
        if number is not None and (unchecked := [entry for entry in entries if entry.key not in self._whole]):
            with self._open(shard.name) as blocks:
                check_blocks(shard, blocks, unchecked)
            self._whole.update(entry.key for entry in unchecked)
        part = ... if number is None else number

        def read() -> list[Array]:
            status = shard.stat()
            if not stat.S_ISREG(status.st_mode):
                raise ValueError("it is a directory, a pipe or a device")
            with h5py.File(shard, "r", locking=False) as file:
                return [np.asarray(_find_entry(file, entry, status.st_size)[part]) for entry in entries]

        try:
            arrays = seen_by_all(self.path, read)
        except _UNREADABLE as error:
            raise lost(self.path, f"{shard} cannot be read: {error}") from error
        for entry, array in zip(entries, arrays, strict=True):
            if number is None and block_hash(array) != entry.sha256:
                raise _damaged(shard, entry)
            of_draws = entry.key.object == "trace" and entry.key.factor != "run"
            if self._finite and not of_draws and array.dtype.kind == "f" and not np.isfinite(array).all():
                raise InputError(f"{shard} is inconsistent: {entry.key.path} has values that are not finite")
        return arrays

    def verify(self) -> None:
        """Check every block against its hash, in little memory. Raises InputError naming the first bad block."""
        for shard in self.manifest.shards:
            self.check_shard(shard)

    def check_shard(self, shard: str) -> None:
        """Check the blocks in a shard against their hashes; raises as `verify`."""
        with self._open(shard) as file:
            entries = [entry for entry in self._entries.values() if entry.shard == shard]
            check_blocks(self.path / shard, file, entries)
            self._whole.update(entry.key for entry in entries)

    def hashes_of(self, number: int) -> dict[Key, str]:
        """Hashes, by key, of entry `number` along the first axis of every block; raises as `read_all`."""
        arrays = self.read_all(self._entries, number)
        return {key: block_hash(array) for key, array in zip(self._entries, arrays, strict=True)}


def check_blocks(shard: Path, file: BufferedReader, entries: Iterable[BlockEntry]) -> None:
    """Check blocks in an open shard against their hashes, in little memory.

    Raises InputError naming the first bad block.
    """
    try:
        size = os.fstat(file.fileno()).st_size
        with h5py.File(file, "r") as blocks:
            for entry in entries:
                data = _find_entry(blocks, entry, size)
                if _hash(data, stored_bytes(file, data)) != entry.sha256:
                    raise _damaged(shard, entry)
    except InputError:
        raise
    except _UNREADABLE as error:
        raise InputError(f"{shard} cannot be read: {error}") from error


#: Errors that HDF5 and h5py raise for damaged files.
_UNREADABLE = (OSError, KeyError, RuntimeError, ValueError, TypeError)


def _damaged(shard: Path, entry: BlockEntry) -> InputError:
    return InputError(f"{shard} is damaged: {entry.key.path} does not match its checksum")


def _with(entries: list[BlockEntry], rows: Int32, axis: int) -> list[BlockEntry]:
    """Return the blocks of a factor that hold at least one of `rows`, counted along `axis`."""
    ends = np.cumsum([entry.shape[axis] for entry in entries])
    places = set(np.searchsorted(ends, rows, side="right").tolist())  # np.unique would import masked arrays
    return [entries[place] for place in sorted(places)]


def _find_entry(file: Any, entry: BlockEntry, file_bytes: int) -> Any:
    """Return a block's data set in an open file; raise ValueError if it differs from the manifest."""
    data = plain_dataset(file, entry.key.path)
    if data.shape != entry.shape or data.dtype.str != entry.dtype:
        raise ValueError(
            f"{entry.key.path} is {data.dtype.str} {data.shape}; the manifest says {entry.dtype} {entry.shape}"
        )
    check_size(data, file_bytes)
    return data
