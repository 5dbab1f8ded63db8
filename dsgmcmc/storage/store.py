"""Snapshots: directories of arrays. A snapshot is either complete or absent.

Format ``dsgmcmc-snapshot``, version 2: a directory with HDF5 files (the shards) and
``manifest.json``. A shard is written by one process and holds blocks, each in one data set,
``/OBJECT/FACTOR/BLOCK/FIELD``. In this module a block is one array, for example one field of a
numbered block of rows. The manifest is plain JSON: it lists the shard and the SHA-256 of every
block, and of every draw in it, and holds small arrays of the chain's state. Its last member,
``sha256``, is the hash of the preceding text. The files are first written to ``NAME.tmp-XXXXXXXX``
and synced; once all processes agree that this has succeeded, the directory is renamed. A reader
rejects an incomplete or damaged snapshot with an error. Nothing in a snapshot is executed or
unpickled.
"""

from __future__ import annotations

import errno
import hashlib
import io
import math
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from time import monotonic, sleep
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from typing_extensions import TypedDict  # Pydantic needs it before Python 3.12

from dsgmcmc.errors import GoneError, InputError, refusing
from dsgmcmc.parallel.alone import Alone, Comm
from dsgmcmc.parallel.machine import usable_cores
from dsgmcmc.settings import named
from dsgmcmc.storage.files import read_plain, remove_folder, sync, write_file
from dsgmcmc.storage.hdf5 import PlainFile, add_dataset, new_hdf5
from dsgmcmc.terminal import log
from dsgmcmc.types import Array, Factor, Float64

T = TypeVar("T")
#: An array, or a function that computes it, called as late as possible.
Lazy = Array | Callable[[], Array]

MAX_WRITERS = 64
_MAX_READERS = 8
_PIECE_NUMBERS = 1 << 27  # numbers of a block in a message, fewer than the 2^31 that MPI counts
#: Longest wait until a network file system shows a new directory to other hosts.
_VISIBLE_SECONDS = 60.0
_PIECE_BYTES = 1 << 22  # part of a block that is read at a time to check the block

MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 1 << 28
#: Member of `state` that lists iterations of saved draws: the draws to which a checkpoint or
#: posterior refers, or the draws in a snapshot of draws.
SAVED_DRAWS = "observer.kept"
#: Member of a checkpoint's `state` that lists the iterations at which the chain has diverged;
#: absent if there are none.
DIVERGED = "chain.diverged"

#: Version of the format of runs and their snapshots; other versions are refused.
VERSION = 2

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}$")]
Size = Annotated[int, Field(ge=0)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Key(NamedTuple):
    """Name of an array: object, factor, number of the block of rows, and field."""

    object: Name
    factor: Name
    block: Size
    field: Name

    @property
    def path(self) -> str:
        """Name of the data set in the shard."""
        return f"{self.object}/{self.factor}/{self.block:06d}/{self.field}"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="constants")


class BlockEntry(_Strict):
    """An array of the snapshot.

    `draws` are the hashes of the draws in it, along the first axis, if each is read on its own.
    """

    key: Key
    shard: Annotated[str, Field(pattern=r"^shard-[0-9]{5,}\.h5$")]
    shape: tuple[Size, ...]
    dtype: Annotated[str, Field(pattern=r"^(<[fi][48]|\|u1)$")]
    sha256: Sha256
    draws: tuple[Sha256, ...] = ()

    @model_validator(mode="after")
    def _check_draws(self) -> Self:
        if self.draws and self.shape[:1] != (len(self.draws),):
            raise ValueError(f"{len(self.draws)} hashes of draws do not fit the shape {self.shape}")
        return self


class SmallArray(_Strict):
    """A small replicated array; JSON keeps every bit of a float64."""

    shape: tuple[Size, ...]
    values: list[float]

    @model_validator(mode="after")
    def _check_shape(self) -> Self:
        if math.prod(self.shape) != len(self.values):
            raise ValueError(f"{len(self.values)} values do not have the shape {self.shape}")
        return self

    @classmethod
    def from_array(cls, array: npt.ArrayLike) -> SmallArray:
        """Convert from a float64 array."""
        data = np.asarray(array, dtype=np.float64)
        return cls(shape=data.shape, values=data.ravel().tolist())

    def array(self) -> Float64:
        """Convert to a float64 array."""
        return np.array(self.values, dtype=np.float64).reshape(self.shape)


class About(TypedDict, total=False):
    """Facts about a snapshot that the digest of the run does not cover."""

    versions: dict[str, str]
    processes: int
    seconds: float
    made_with: dict[str, Any]


class Manifest(_Strict):
    """Content of ``manifest.json``.

    Attributes
    ----------
    kind : {"checkpoint", "draws", "posterior", "index", "start"}
        Kind of the snapshot.
    chain, iteration, grid : int
        Chain, number of completed iterations, and grid size B of the run.
    config_hash, data_hash : str
        Hashes of the configuration and of the ratings.
    state : dict of str to SmallArray
        Small arrays that are equal on all processes; the digest of the run covers them.
    about : About
        Facts that the digest of the run does not cover: versions, number of processes, seconds, and
        facts about the data (`dsgmcmc.storage.rundir`).
    """

    format: Literal["dsgmcmc-snapshot"] = "dsgmcmc-snapshot"
    version: Literal[2] = 2
    kind: Literal["checkpoint", "draws", "posterior", "index", "start"]
    chain: int = Field(ge=0)
    iteration: int = Field(ge=0)
    grid: int = Field(ge=1)
    config_hash: Sha256
    data_hash: Sha256
    state: dict[str, SmallArray]
    about: About
    blocks: list[BlockEntry]

    @property
    def shards(self) -> list[str]:
        """Files that hold the blocks, in order."""
        return sorted({entry.shard for entry in self.blocks})

    @property
    def saved_draws(self) -> list[int]:
        """Iterations of the saved draws that the snapshot holds or refers to, in order."""
        saved = self.state.get(SAVED_DRAWS)
        if saved is None:
            return []
        return [int(number) for number in saved.values]

    @property
    def diverged(self) -> tuple[int, ...]:
        """Iterations at which the chain diverged and restarted."""
        diverged = self.state.get(DIVERGED)
        if diverged is None:
            return ()
        return tuple(map(int, diverged.values))

    @model_validator(mode="after")
    def _check_iterations(self) -> Self:
        # both raise an error unless they are finite numbers
        _ = self.saved_draws
        _ = self.diverged
        return self


def seal(text: str) -> str:
    """Add to the text of a JSON object, as its last member, the hash of the preceding text."""
    body = text.rstrip().removesuffix("}").rstrip()
    return f'{body},\n "sha256": "{hashlib.sha256(body.encode()).hexdigest()}"\n}}\n'


def unseal(text: str, path: Path) -> str:
    """Return the original text of a sealed JSON object.

    Raises InputError if the text does not match its hash.
    """
    body = text[: text.rfind(',\n "sha256"')] + "}"
    if seal(body) != text:
        raise InputError(f"{path} is incomplete or damaged: it does not match its own checksum")
    return body


def read_snapshot_file(path: Path, read: Callable[[], T]) -> T:
    """Read a file of a snapshot; raise an InputError that names it if it is missing or damaged.

    Raises GoneError if the snapshot is gone. A snapshot is renamed before it is removed, so a file
    that is missing in an existing directory means damage.
    """
    try:
        return _read_again_if_stale(path, read)
    except InputError:
        raise
    except _READ_ERRORS as error:
        if not path.parent.is_dir():
            raise GoneError(
                f"{path.parent} is gone: the run has since removed it. Open the run again; if it is"
                f" not being sampled, {named('resume')} makes what is missing"
            ) from error
        fault = "cannot be read" if isinstance(error, PermissionError) else "is missing or damaged"
        raise InputError(f"{path} {fault}: {error}") from error


_READ_ERRORS = (OSError, KeyError, RuntimeError, ValueError, TypeError)  # of HDF5, h5py and Python


def _read_again_if_stale(path: Path, read: Callable[[], T]) -> T:
    """Read a file; if it seems to be missing, list its directory and read it again.

    If another host has just renamed the directory, a network file system may have cached that a
    name was missing or belonged to another file; listing the directory refreshes the cache.
    """
    try:
        return read()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ESTALE):
            raise
        list(path.parent.iterdir())
        return read()


def read_manifest(directory: Path) -> Manifest:
    """Read and check the manifest of a snapshot directory; raises as `read_snapshot_file`."""
    path = directory / MANIFEST
    sealed = read_snapshot_file(path, lambda: read_plain(path, MAX_MANIFEST_BYTES).decode())
    text = unseal(sealed, path)
    problem = f"{path} is not a snapshot that this version can read"
    with refusing(problem, ValidationError, ArithmeticError):
        return Manifest.model_validate_json(text)


# ---------------------------------------------------------------------- reading


def block_hash(array: Array) -> str:
    """Return the SHA-256 of an array's type, shape and little-endian bytes in C order."""
    return _hash(np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")))


def _hash(data: Any) -> str:
    """Return the SHA-256 of an array, or of a data set, which is read piece by piece."""
    digest = _new_digest(data.dtype, data.shape)
    rows = len(data) if data.shape else 1
    step = max(1, _PIECE_BYTES * rows // max(1, data.nbytes))
    for start in range(0, rows, step):
        piece = data[start : start + step] if data.shape else data[...]
        digest.update(piece.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _new_digest(dtype: np.dtype[Any], shape: tuple[int, ...]) -> hashlib._Hash:
    """Return the SHA-256 of an array's type and shape, to which its bytes are added."""
    return hashlib.sha256(f"{dtype.str} {shape}\n".encode())


def write_array(path: Path, array: Array) -> None:
    """Write an array, and its hash, to a file with the suffix ``.npy``, as `write_file` does."""
    content = io.BytesIO()
    np.save(content, array, allow_pickle=False)
    write_file(path, [content.getbuffer(), block_hash(array).encode()])


def open_array(path: Path) -> Array:
    """Map the array of a file of `write_array` into memory; changes stay in memory.

    Raises ValueError if the file is damaged, and OSError if it cannot be read.
    """
    array: Array = np.lib.format.open_memmap(path, mode="c")
    if bytes(np.memmap(path, np.uint8, "r")[-64:]) != block_hash(array).encode():
        raise InputError(f"{path} is damaged: it does not match its own checksum")
    return array


class Snapshot:
    """A snapshot, read block by block; every block is checked against its hash.

    Raises InputError if the manifest is missing, damaged, or of another version; shards are checked
    when they are read.

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
        self._checked_draws: set[tuple[Key, int]] = set()

    def block_keys(self) -> Iterable[Key]:
        """Keys of all blocks."""
        return self._entries.keys()

    def read(self, key: Key) -> Array:
        """Read a block and check it; raises the same errors as `read_all`."""
        return self.read_all([key])[0]

    def read_all(self, keys: Iterable[Key], index: int | None = None) -> list[Array]:
        """Read blocks and check them; a shard is opened once for consecutive blocks.

        With `index`, only this entry along the first axis of each block is kept in memory. All of
        the block is checked when it, or one of its entries, is first read.

        Raises InputError if a block is missing, differs from the manifest, or is not stored in its
        shard.
        """
        part = ... if index is None else index
        arrays: list[Array] = []
        for shard, entries in groupby(map(self._entry, keys), lambda entry: entry.shard):
            arrays += self._read_shard(self.path / shard, list(entries), part)
        return arrays

    def read_field(self, object_name: str, factor: str, field: str) -> Array:
        """Read a field of an object and factor, and join its blocks; raises as `read_all`."""
        return self.read_fields(object_name, [(factor, field)])[0]

    def read_fields(
        self, object_name: str, fields: Sequence[tuple[str, str]], index: int | None = None
    ) -> list[Array]:
        """Read several fields, named by (factor, field), like `read_field`.

        `index` is as in `read_all`. A shard is opened once for consecutive blocks.
        """
        blocks: dict[str, set[int]] = {factor: set() for factor, _ in fields}
        for key in self._entries:
            if key.object == object_name and key.factor in blocks:
                blocks[key.factor].add(key.block)
        keys = [
            Key(object_name, factor, block, field)
            for factor, field in fields
            for block in sorted(blocks[factor])
        ]
        arrays = iter(self.read_all(keys, index))
        return [np.concatenate([next(arrays) for _ in blocks[factor]]) for factor, _ in fields]

    def read_entries(self, targets: Mapping[Key, Mapping[int, Array]]) -> None:
        """Read entries along the first axis of blocks into arrays, and check the blocks.

        Where draws have hashes, only these draws are read and checked. Otherwise a block that has
        not been checked is read entry by entry, so that one entry is in memory besides the arrays.
        A shard is opened once for consecutive blocks, which threads read and check. Raises as
        `read_all`.

        Parameters
        ----------
        targets : mapping of Key to mapping of int to array
            C-contiguous arrays of the blocks' types, by the numbers of entries.
        """
        for shard, entries in groupby(map(self._entry, targets), lambda entry: entry.shard):
            self._read_targets(self.path / shard, list(entries), targets)

    def _read_targets(
        self,
        shard: Path,
        entries: list[BlockEntry],
        targets: Mapping[Key, Mapping[int, Array]],
    ) -> None:
        """Read entries of the blocks in one shard into arrays, as `read_entries` does."""
        readers = min(_MAX_READERS, usable_cores())

        def read() -> None:
            with PlainFile(shard) as file, ThreadPoolExecutor(readers) as threads:
                for _ in threads.map(
                    lambda entry: self._read_target(file, entry, targets[entry.key]), entries
                ):
                    pass

        read_snapshot_file(shard, read)

    def _read_target(
        self, file: PlainFile, entry: BlockEntry, targets: Mapping[int, Array]
    ) -> None:
        """Read entries of a block into arrays; check what has not yet been checked."""
        dtype = np.dtype(entry.dtype)
        name = entry.key.path
        if not entry.draws and entry.key not in self._checked:
            self._check_and_read(file, entry, targets)
            return
        numbers = [number for number in range(entry.shape[0]) if number in targets]
        arrays = file.entries(name, entry.shape, dtype, targets)
        for number, array in zip(numbers, arrays, strict=True):
            if entry.key in self._checked or (entry.key, number) in self._checked_draws:
                continue
            if _hash(array) != entry.draws[number]:
                raise ValueError(f"draw {number} of {name} does not match its checksum")
            self._checked_draws.add((entry.key, number))

    def _check_and_read(
        self, file: PlainFile, entry: BlockEntry, targets: Mapping[int, Array]
    ) -> None:
        """Read all entries of a block, some of them into arrays, and check the block."""
        dtype = np.dtype(entry.dtype)
        name = entry.key.path
        digest = _new_digest(dtype, entry.shape)
        others = np.empty(entry.shape[1:], dtype)
        for array in file.entries(name, entry.shape, dtype, targets, others=others):
            digest.update(array.reshape(-1).view(np.uint8).data)
        if digest.hexdigest() != entry.sha256:
            raise ValueError(f"{name} does not match its checksum")
        self._checked.add(entry.key)

    def _entry(self, key: Key) -> BlockEntry:
        entry = self._entries.get(key)
        if entry is None:
            raise InputError(f"{self.path} has no block {key.path}")
        return entry

    def _read_shard(self, shard: Path, entries: list[BlockEntry], part: object) -> list[Array]:
        """Read a part of each block, and check the blocks that have not yet been checked."""

        def read() -> list[Array]:
            with PlainFile(shard) as file:
                return [self._read(file, entry, part) for entry in entries]

        return read_snapshot_file(shard, read)

    def _read(self, file: PlainFile, entry: BlockEntry, part: Any) -> Array:
        """Read a part of a block, and check the block if that has not yet been done."""
        name = entry.key.path
        dtype = np.dtype(entry.dtype)
        is_checked = entry.key in self._checked
        is_small = dtype.itemsize * math.prod(entry.shape) <= _PIECE_BYTES
        if part is ... or (is_small and not is_checked):
            data = file.array(name, entry.shape, dtype)  # read once, and checked in memory
        else:
            data = file.dataset(name, entry.shape, dtype)
        if not is_checked and _hash(data) != entry.sha256:
            raise ValueError(f"{name} does not match its checksum")
        self._checked.add(entry.key)
        if part is ...:
            return data
        return np.array(data[part])

    def verify(self) -> None:
        """Check all blocks that have not yet been checked, in bounded memory.

        Raises InputError that names the first bad file.
        """
        for shard in self.manifest.shards:
            self.check_shard(shard)

    def check_shard(self, shard: str) -> None:
        """Check the blocks in a shard against their hashes; raises the same errors as `verify`."""
        entries = [entry for entry in self._entries.values() if entry.shard == shard]
        nothing = slice(0)  # the blocks are only checked
        self._read_shard(self.path / shard, entries, nothing)


# ---------------------------------------------------------------------- writing


class SnapshotWriter:
    """A snapshot that is being written: it appears complete, or not at all.

    `make`, `shard` and `commit` make no MPI calls, so a thread can run them while the chain
    continues. The constructor is collective, and does not touch the disk.

    Parameters
    ----------
    parent : Path
        Directory for the snapshot; created if missing.
    name : str
        Name of the snapshot in `parent`.
    blocks : mapping of Key to array, or to a function that computes the array when it is written
        The blocks of this process; no two processes have the same key. The arrays must not change
        until `shard` returns.
    header : mapping
        The remaining fields of the manifest (`dsgmcmc.storage.rundir.header`); needed on process 0.
    comm : MPI.Comm
        All processes that hold blocks.
    """

    def __init__(
        self,
        parent: Path,
        name: str,
        blocks: Mapping[Key, Lazy],
        header: Mapping[str, Any],
        *,
        comm: Comm,
    ) -> None:
        self.final = parent / name
        self._header = header
        self._comm = comm
        temporary = parent / f"{name}.tmp-{secrets.token_hex(4)}"
        self._temporary = Path(comm.bcast(str(temporary), root=0))
        self._blocks = _collect(blocks, comm)
        self._entries: list[BlockEntry] = []

    def make(self) -> None:
        """Create the temporary directory. Call on process 0, before any process calls `shard`."""
        self.final.parent.mkdir(parents=True, exist_ok=True)
        self._temporary.mkdir()

    def shard(self) -> None:
        """Write the blocks assigned to this process, if any, to a shard, and sync it."""
        if self._blocks:
            _wait_for(self._temporary)
            path = self._temporary / f"shard-{self._comm.rank:05d}.h5"
            self._entries = _write_shard(path, self._blocks)
            sync(path)
        self._blocks = {}

    def gather(self) -> None:
        """Send the entries of all shards to process 0. Collective."""
        entries = self._comm.gather(self._entries, root=0)
        self._entries = [entry for shard_entries in entries or [] for entry in shard_entries]

    def commit(self) -> None:
        """Write the manifest, and rename the snapshot; it replaces an earlier one with this name.

        On process 0.
        """
        manifest = Manifest(
            blocks=sorted(self._entries, key=lambda entry: entry.key), **self._header
        )
        write_file(self._temporary / MANIFEST, seal(manifest.model_dump_json(indent=1)))
        if self.final.exists():
            remove(self.final)
        self._temporary.rename(self.final)
        sync(self.final.parent)

    def discard(self) -> None:
        """Delete the files that were written; on process 0. Harmless after `commit`."""
        remove_folder(self._temporary)


def write_snapshot(
    parent: Path, name: str, blocks: Mapping[Key, Lazy], header: Mapping[str, Any]
) -> Path:
    """Write a snapshot from this process alone, and return its directory.

    Parameters are as in `SnapshotWriter`. Raises OSError if writing fails.
    """
    writer = SnapshotWriter(parent, name, blocks, header, comm=Alone())
    try:
        writer.make()
        writer.shard()
        writer.commit()
    finally:
        writer.discard()
    return writer.final


def is_intact(path: Path, consequence: str) -> bool:
    """Whether a snapshot exists and is intact; damage and its `consequence` are logged."""
    try:
        if path.exists():
            Snapshot(path).verify()
            return True
    except InputError as error:
        log.warning("%s: %s", error, consequence)
    return False


def _wait_for(directory: Path) -> None:
    """Wait, up to `_VISIBLE_SECONDS`, until this host sees a directory made by another host."""
    end = monotonic() + _VISIBLE_SECONDS
    while not directory.is_dir() and monotonic() < end:
        sleep(0.05)


def _collect(blocks: Mapping[Key, Lazy], comm: Comm) -> dict[Key, Lazy]:
    """Send blocks of neighbouring processes to one writer, so that at most `MAX_WRITERS` write.

    Blocks are sent in pieces: all blocks of a writer can have more bytes than MPI counts in one
    message.
    """
    stride = -(-comm.size // MAX_WRITERS)
    if stride == 1:
        return dict(blocks)
    neighbours = comm.Split(comm.rank // stride, comm.rank)
    arrays = {key: np.asarray(_compute(block), order="C") for key, block in blocks.items()}
    outlines = [_Outline(key, array.shape, array.dtype) for key, array in arrays.items()]
    outlines_of_all = neighbours.gather(outlines, root=0)
    collected: dict[Key, Lazy] = {}
    if outlines_of_all is None:
        for array in arrays.values():
            for piece in _pieces(array):
                neighbours.Send(piece, dest=0)
    else:
        collected.update(arrays)
        for source in range(1, neighbours.size):
            for outline in outlines_of_all[source]:
                array = np.empty(outline.shape, dtype=outline.dtype)
                for piece in _pieces(array):
                    neighbours.Recv(piece, source=source)
                collected[outline.key] = array
    neighbours.Free()
    return collected


def _pieces(array: Array) -> Iterator[Array]:
    """Yield views of a contiguous array, of at most `_PIECE_NUMBERS` numbers each."""
    flat = array.reshape(-1)
    for start in range(0, flat.size, _PIECE_NUMBERS):
        yield flat[start : start + _PIECE_NUMBERS]


class _Outline(NamedTuple):
    """What a writer must know of a block before it receives the block."""

    key: Key
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def _compute(block: Lazy) -> Array:
    """Return the array of a block."""
    return block() if callable(block) else block


def _write_shard(path: Path, blocks: Mapping[Key, Lazy]) -> list[BlockEntry]:
    """Write blocks to a new shard; return their entries in the manifest."""
    entries = []
    with new_hdf5(path) as (file, check):
        for key, block in blocks.items():
            array = _compute(block)
            stored = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
            add_dataset(file, key.path, stored)
            check()
            entry = BlockEntry(
                key=key,
                shard=path.name,
                shape=array.shape,
                dtype=stored.dtype.str,
                sha256=block_hash(array),
                draws=_hashes_of_draws(key, stored),
            )
            entries.append(entry)
            del array, stored  # before the next block is computed
    return entries


def _hashes_of_draws(key: Key, block: Array) -> tuple[str, ...]:
    """Return the hashes of the draws in a block of rows at saved draws; none for other blocks."""
    if key.object != "draw" or key.factor not in Factor.__members__:
        return ()
    return tuple(_hash(draw) for draw in block)


# ---------------------------------------------------------------------- series of snapshots


_STEP = re.compile(r"step-([0-9]{12,})")  # only names from `step_name`
_REMAINS = re.compile(r".+\.(tmp|trash)-[0-9a-f]{8}")


def step_name(iteration: int) -> str:
    """Directory name of the snapshot after `iteration` iterations."""
    return f"step-{iteration:012d}"


def steps(parent: Path) -> list[int]:
    """Iterations of the snapshots in a directory, oldest first; other names are ignored."""
    if not parent.is_dir():
        return []
    matches = [_STEP.fullmatch(path.name) for path in parent.iterdir() if path.is_dir()]
    return sorted(int(match[1]) for match in matches if match)


def remove(path: Path) -> None:
    """Delete a snapshot; no reader sees a part of it."""
    trash = path.with_name(f"{path.name}.trash-{secrets.token_hex(4)}")
    path.rename(trash)
    remove_folder(trash)


def prune(parent: Path, keep: int, spare: int | None = None) -> None:
    """Delete all snapshots except the `keep` newest (at least 1), and that of iteration `spare`."""
    for iteration in steps(parent)[:-keep]:
        if iteration != spare:
            remove(parent / step_name(iteration))


def clean(parent: Path) -> None:
    """Delete the remains of interrupted writes and deletions; keep all other files."""
    if not parent.is_dir():
        return
    for path in parent.iterdir():
        if not _REMAINS.fullmatch(path.name):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
