"""Snapshots: blocks of arrays in a directory that is complete or not there at all.

Format ``dsgmcmc-snapshot``, version 1: a directory of HDF5 shards, each written by one process and holding whole
blocks (data set ``/OBJECT/FACTOR/BLOCK/FIELD``), and ``manifest.json`` (`dsgmcmc.storage.manifest`), which says what
lies where, with a SHA-256 of every block and every shard. It is written into ``NAME.tmp-XXXX``, synced, hashed by
reading it back, agreed on by all processes, and renamed. A reader finds it whole, or says what is wrong with it, and
never fills holes. Nothing in it is executed or unpickled.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
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
from dsgmcmc.storage.manifest import BlockEntry, Key, Manifest, ShardEntry, lost, read_manifest, seen_by_all
from dsgmcmc.types import Array, Int32

MOST_HELD = 256  # shards that are open at a time: processes may have 1,024 files open
Lazy = Array | Callable[[], Array]  # an array, or what makes it at the moment it is written


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


def file_hash(file: BufferedReader) -> str:
    """SHA-256 of an open file's bytes."""
    file.seek(0)
    return hashlib.file_digest(file, "sha256").hexdigest()


class Snapshot:
    """A snapshot, read block by block; every block is checked against its hash.

    Raises InputError if it is incomplete, damaged, or of another version.

    Parameters
    ----------
    path : Path
        Its directory.
    manifest : Manifest, optional
        Its manifest, if it was read before (by another process).
    finite : bool
        Whether numbers that are not finite are refused; predictions and energies of single draws may be such.
    """

    def __init__(self, path: Path, manifest: Manifest | None = None, finite: bool = False) -> None:
        self.path, self._finite = path, finite
        self.manifest = manifest or read_manifest(path)
        self._entries = {entry.key: entry for entry in self.manifest.blocks}
        self._held: dict[str, BufferedReader] = {}

    @contextmanager
    def held(self) -> Iterator[None]:
        """Have the shards open, `MOST_HELD` at most: they can be read to their ends when the snapshot is removed.

        Raises InputError if one is missing, or no file.
        """
        before = self._held
        with ExitStack() as stack:
            shards = [shard.file for shard in self.manifest.shards[:MOST_HELD]]
            self._held = {shard: stack.enter_context(self._open(shard)) for shard in shards}
            try:
                yield
            finally:
                self._held = before

    @contextmanager
    def _open(self, shard: str) -> Iterator[BufferedReader]:
        """Open a shard, or take the one that is held; raises as `held`."""
        held, path = self._held.get(shard), self.path / shard
        if held is not None:
            held.seek(0)
            yield held
            return
        try:
            file = seen_by_all(self.path, lambda: open_plain(path, sys.maxsize))
        except FileNotFoundError as error:
            raise lost(self.path, f"{path} is missing") from error
        except OSError as error:
            raise lost(self.path, f"{path} cannot be read: {error}") from error
        with file:
            yield file

    def names(self) -> Iterable[Key]:
        """Keys of all blocks."""
        return self._entries.keys()

    def read(self, key: Key) -> Array:
        """Read a block and check it; see `read_all`."""
        return self.read_all([key])[0]

    def read_all(self, keys: Iterable[Key]) -> list[Array]:
        """Read blocks and check them; a shard is opened once for those that follow each other in it.

        Raises InputError if one is missing, not what the manifest says, or stored anywhere but in its shard.
        """
        arrays: list[Array] = []
        for shard, entries in groupby(map(self._entry, keys), attrgetter("shard")):
            arrays += self._read_shard(self.path / shard, list(entries))
        return arrays

    def whole(self, thing: str, factor: str, field: str) -> Array:
        """Read a field of all blocks of an object and factor, one after the other; raises as `read_all`."""
        return self.wholes(thing, [(factor, field)])[0]

    def wholes(
        self, thing: str, wanted: Sequence[tuple[str, str]], rows: Mapping[str, Int32] = MappingProxyType({})
    ) -> list[Array]:
        """Read several fields, (factor, field) each, as `whole` does; what follows each other in a shard at once.

        Of a factor some of whose `rows` are given, the blocks that have these are read; all else is not a number.
        """
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
            for entry in (_with(several, rows[factor]) if factor in rows else several)
        ]
        read = dict(zip(keys, self.read_all(keys), strict=True))
        return [
            np.concatenate([read[e.key] if e.key in read else np.full(e.shape, np.nan, e.dtype) for e in several])
            for several in entries
        ]

    def _entry(self, key: Key) -> BlockEntry:
        entry = self._entries.get(key)
        if entry is None:
            raise InputError(f"{self.path} has no block {key.path}")
        return entry

    def _read_shard(self, shard: Path, entries: list[BlockEntry]) -> list[Array]:
        held = self._held.get(shard.name)

        def read() -> list[Array]:
            status = shard.stat() if held is None else os.fstat(held.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ValueError("it is a directory, a pipe or a device")
            with h5py.File(shard if held is None else held, "r", locking=False) as file:
                return [_find_entry(file, entry, status.st_size)[...] for entry in entries]

        try:
            arrays = seen_by_all(self.path, read)
        except _UNREADABLE as error:
            raise lost(self.path, f"{shard} cannot be read: {error}") from error
        for entry, array in zip(entries, arrays, strict=True):
            if block_hash(array) != entry.sha256:
                raise _damaged(shard, entry)
            of_draws = entry.key.object == "trace" and entry.key.factor != "run"
            if self._finite and not of_draws and array.dtype.kind == "f" and not np.isfinite(array).all():
                raise InputError(f"{shard} is inconsistent: {entry.key.path} has values that are not finite")
        return arrays

    def verify(self) -> None:
        """Check every shard and every block against its hash, in little memory, also if it is removed meanwhile.

        Raises InputError naming the first file or block that is wrong.
        """
        with self.held():
            for shard in self.manifest.shards:
                self.check_shard(shard)
                with self._open(shard.file) as file:
                    check_blocks(
                        self.path / shard.file, file, [e for e in self._entries.values() if e.shard == shard.file]
                    )

    def check_shard(self, shard: ShardEntry) -> None:
        """Check that a file of it is the one that was written; raises as `verify`."""
        path = self.path / shard.file
        with self._open(shard.file) as file:
            size = os.fstat(file.fileno()).st_size
            if size != shard.bytes:
                raise InputError(f"{path} has {size} bytes; the manifest says {shard.bytes}")
            if file_hash(file) != shard.sha256:
                raise InputError(f"{path} is damaged: it does not match its checksum")


def check_blocks(shard: Path, file: BufferedReader, entries: Iterable[BlockEntry]) -> None:
    """Compare blocks as they lie in a shard, which is open, with their hashes, in little memory.

    Raises InputError naming the first one that is wrong.
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


#: What HDF5 and h5py raise for files that are damaged.
_UNREADABLE = (OSError, KeyError, RuntimeError, ValueError, TypeError)


def _damaged(shard: Path, entry: BlockEntry) -> InputError:
    return InputError(f"{shard} is damaged: {entry.key.path} does not match its checksum")


def _with(entries: list[BlockEntry], rows: Int32) -> list[BlockEntry]:
    """Those of the blocks of a factor that have some of these rows."""
    ends = np.cumsum([entry.shape[0] for entry in entries])
    places = set(np.searchsorted(ends, rows, side="right").tolist())  # for `np.unique` NumPy imports masked arrays
    return [entries[place] for place in sorted(places)]


def _find_entry(file: Any, entry: BlockEntry, file_bytes: int) -> Any:
    """Find a block that lies in this file as the manifest says, and refuse any other."""
    data = plain_dataset(file, entry.key.path)
    if data.shape != entry.shape or data.dtype.str != entry.dtype:
        raise ValueError(
            f"{entry.key.path} is {data.dtype.str} {data.shape}; the manifest says {entry.dtype} {entry.shape}"
        )
    check_size(data, file_bytes)
    return data
