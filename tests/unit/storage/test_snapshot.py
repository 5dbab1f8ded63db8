"""Snapshots: there whole or not at all, every kind of damage found, nothing of anybody else's touched."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from mpi4py import MPI
from support import spoil

from dsgmcmc.errors import GoneError, InputError
from dsgmcmc.storage.manifest import MANIFEST, Key, SmallArray, seal
from dsgmcmc.storage.series import clean, prune, remove, step_name, steps
from dsgmcmc.storage.snapshot import Snapshot, block_hash
from dsgmcmc.storage.writer import write_snapshot

SHARD = "shard-00000.h5"
THETA = Key("state", "W", 0, "theta")
BLOCKS = {
    THETA: np.arange(6, dtype=np.float32).reshape(3, 2),
    Key("state", "H", 1, "theta"): np.zeros((0, 2), np.float32),
    Key("test", "W", 0, "mean"): np.array([np.pi, -0.0, np.inf, np.nan]),
    Key("trace", "run", 0, "W.mean"): np.ones((2, 3)),
}


def header(iteration: int = 7, **changes: Any) -> Callable[[], dict[str, Any]]:
    content = {
        "kind": "checkpoint",
        "chain": 0,
        "iteration": iteration,
        "grid": 4,
        "config_hash": "0" * 64,
        "data_hash": "f" * 64,
        "state": {"tau": SmallArray.of([1 / 3, np.inf])},
        "about": {"seconds": 1.5},
    }
    return lambda: content | changes


def write(parent: Path, iteration: int = 7, blocks: dict[Key, np.ndarray] = BLOCKS) -> Path:
    return write_snapshot(parent, step_name(iteration), blocks, header(iteration), MPI.COMM_SELF)


def names(parent: Path) -> list[str]:
    return sorted(path.name for path in parent.iterdir())


def edit(snapshot: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the manifest as somebody would who also knows how to seal it."""
    path = snapshot / MANIFEST
    content = json.loads(path.read_text(encoding="utf-8"))
    del content["sha256"]
    change(content)
    path.write_text(seal(json.dumps(content, indent=1)), encoding="utf-8")


# ---------------------------------------------------------------------- writing and reading


def test_what_is_written_is_read_bit_by_bit(tmp_path: Path) -> None:
    """Shapes, types, NaN, infinities and minus zero; replicated numbers too."""
    path = write(tmp_path)
    assert path == tmp_path / "step-000000000007"
    assert names(tmp_path) == [path.name]
    assert names(path) == [MANIFEST, SHARD]
    snapshot = Snapshot(path)
    snapshot.verify()
    assert set(snapshot.names()) == set(BLOCKS)
    for key, array in BLOCKS.items():
        found = snapshot.read(key)
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        assert found.tobytes() == array.tobytes()
    assert snapshot.manifest.state["tau"].array().tolist() == [1 / 3, np.inf]
    assert (snapshot.manifest.iteration, snapshot.manifest.grid) == (7, 4)


def test_block_hashes_see_type_shape_and_content() -> None:
    """Equal bytes of another shape or type are another block; memory order and byte order are not."""
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    others = [array.reshape(3, 2), array.view(np.int32), array.astype(np.float64), -array]
    assert len({block_hash(array), *map(block_hash, others)}) == 5
    same = [np.asfortranarray(array), array.astype(">f4"), array.copy()]
    assert {block_hash(array), *map(block_hash, same)} == {block_hash(array)}


def test_a_missing_block_is_said_and_never_filled(tmp_path: Path) -> None:
    """A reader asks for what is not there."""
    with pytest.raises(InputError, match="has no block state/W/000003/theta"):
        Snapshot(write(tmp_path)).read(Key("state", "W", 3, "theta"))


def test_a_process_without_blocks_writes_no_shard(tmp_path: Path) -> None:
    """A snapshot of nothing but replicated numbers is one."""
    path = write(tmp_path, blocks={})
    assert names(path) == [MANIFEST]
    Snapshot(path).verify()


# ---------------------------------------------------------------------- commit


def test_a_failing_writer_leaves_nothing_and_touches_nothing(tmp_path: Path) -> None:
    """What was there before is intact, and no temporary directory is left."""
    write(tmp_path, 6)

    def fail() -> dict[str, Any]:
        raise OSError(28, "No space left on device")

    with pytest.raises(InputError, match=r"step-000000000007: .*No space left"):
        write_snapshot(tmp_path, step_name(7), BLOCKS, fail, MPI.COMM_SELF)
    assert names(tmp_path) == [step_name(6)]
    Snapshot(tmp_path / step_name(6)).verify()


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """A file is where its folder is to be."""
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file.* File exists"):
        write(tmp_path / "file")


def test_an_existing_valid_snapshot_is_kept(tmp_path: Path) -> None:
    """A run that repeats the iteration after a resume writes the same; the first one stays as it is."""
    first = write(tmp_path)
    before = {path.name: path.stat().st_ino for path in first.iterdir()}
    write(tmp_path)
    assert names(tmp_path) == [first.name]
    assert {path.name: path.stat().st_ino for path in first.iterdir()} == before


@pytest.mark.parametrize("damage", ["shard", "manifest", "empty"])
def test_an_existing_invalid_snapshot_makes_way(tmp_path: Path, damage: str) -> None:
    """It is renamed, not deleted: somebody may want to look at it."""
    first = write(tmp_path)
    if damage == "shard":
        with (first / SHARD).open("r+b") as file:
            file.seek(-8, os.SEEK_END)
            file.write(b"\xff" * 4)
    else:
        (first / MANIFEST).unlink()
        if damage == "empty":
            (first / SHARD).unlink()
    write(tmp_path)
    Snapshot(first).verify()
    bad = [name for name in names(tmp_path) if name != first.name]
    assert len(bad) == 1
    assert bad[0].startswith(f"{first.name}.bad-")
    assert steps(tmp_path) == [7]


# ---------------------------------------------------------------------- damage to shards


def test_every_damaged_byte_of_a_shard_is_found(tmp_path: Path) -> None:
    """`verify` refuses any; `read` gives the block as it was written or refuses, and never anything else."""
    path = write(tmp_path)
    shard = path / SHARD
    whole = shard.read_bytes()
    for at in range(0, len(whole), 7):
        shard.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        snapshot = Snapshot(path)
        with pytest.raises(InputError, match="shard-00000"):
            snapshot.verify()
        for key in (THETA, Key("test", "W", 0, "mean")):
            try:
                found = snapshot.read(key)
            except InputError:
                continue
            assert found.tobytes() == BLOCKS[key].tobytes(), at


def test_a_truncated_shard_is_refused(tmp_path: Path) -> None:
    """At any length."""
    path = write(tmp_path)
    shard = path / SHARD
    whole = shard.read_bytes()
    snapshot = Snapshot(path)
    for length in [*range(0, len(whole), 97), len(whole) - 1]:
        shard.write_bytes(whole[:length])
        for read in (snapshot.verify, lambda: snapshot.read(THETA)):
            with pytest.raises(InputError, match=r"cannot be read|is damaged"):
                read()


def test_entries_along_the_first_axis_are_read_by_their_number(tmp_path: Path) -> None:
    """As draws are: the whole block is checked first, also where another entry is damaged."""
    path = write(tmp_path)
    snapshot = Snapshot(path)
    for number in range(3):
        assert np.array_equal(snapshot.read_all([THETA], number)[0], BLOCKS[THETA][number])
    spoil(path / SHARD)
    with pytest.raises(InputError, match="state/W/000000/theta does not match its checksum"):
        Snapshot(path).read_all([THETA], 2)


def test_what_was_removed_is_gone_and_not_damaged(tmp_path: Path) -> None:
    """A run that is being sampled removes checkpoints that somebody reads, who then begins again with the newest."""
    path = write(tmp_path)
    snapshot = Snapshot(path)
    shutil.rmtree(path)
    for read in (lambda: snapshot.read(THETA), snapshot.verify, lambda: Snapshot(path)):
        with pytest.raises(GoneError, match="is gone: the run has removed it since"):
            read()


def test_a_missing_shard_is_refused(tmp_path: Path) -> None:
    """Also where something else has its name."""
    path = write(tmp_path)
    (path / SHARD).unlink()
    with pytest.raises(InputError, match="is missing"):
        Snapshot(path).verify()
    with pytest.raises(InputError, match="cannot be read"):
        Snapshot(path).read(THETA)
    (path / SHARD).mkdir()
    with pytest.raises(InputError, match="expected a file"):
        Snapshot(path).verify()


def _soft_link(file: Any, elsewhere: Path) -> None:
    file[THETA.path] = h5py.SoftLink("/other")


def _external_link(file: Any, elsewhere: Path) -> None:
    file[THETA.path] = h5py.ExternalLink(elsewhere, "other")


def _linked_group(file: Any, elsewhere: Path) -> None:
    del file["state"]
    file["state"] = h5py.ExternalLink(elsewhere, "state")


def _virtual(file: Any, elsewhere: Path) -> None:
    layout = h5py.VirtualLayout((3, 2), np.float32)
    layout[:] = h5py.VirtualSource(elsewhere, "other", (3, 2))
    file.create_virtual_dataset(THETA.path, layout)


def _external_storage(file: Any, elsewhere: Path) -> None:
    raw = elsewhere.with_suffix(".raw")
    raw.write_bytes(BLOCKS[THETA].tobytes())
    file.create_dataset(THETA.path, (3, 2), np.float32, external=[(str(raw), 0, 24)])


def _compressed(file: Any, elsewhere: Path) -> None:
    file.create_dataset(THETA.path, data=BLOCKS[THETA], compression="gzip")


def _group_in_its_place(file: Any, elsewhere: Path) -> None:
    file.create_group(THETA.path)


def _other_shape(file: Any, elsewhere: Path) -> None:
    file.create_dataset(THETA.path, data=BLOCKS[THETA].reshape(2, 3))


def _other_type(file: Any, elsewhere: Path) -> None:
    file.create_dataset(THETA.path, data=BLOCKS[THETA].astype(">f4"))


def _never_written(file: Any, elsewhere: Path) -> None:
    file.create_dataset(THETA.path, (3, 2), np.float32)


@pytest.mark.parametrize(
    "replace",
    [
        _soft_link,
        _external_link,
        _linked_group,
        _virtual,
        _external_storage,
        _compressed,
        _group_in_its_place,
        _other_shape,
        _other_type,
        _never_written,
    ],
)
def test_blocks_stored_in_any_but_the_plainest_way_are_refused(
    tmp_path: Path, replace: Callable[[Any, Path], None]
) -> None:
    """A shard from elsewhere must not make a reader open other files, unpack bombs or fill holes."""
    elsewhere = tmp_path / "elsewhere.h5"
    with h5py.File(elsewhere, "w") as file:
        file["other"] = BLOCKS[THETA]
        file[THETA.path] = BLOCKS[THETA]
    path = write(tmp_path)
    with h5py.File(path / SHARD, "r+", locking=False) as file:
        file["other"] = BLOCKS[THETA]
        del file[THETA.path]
        replace(file, elsewhere)
    with pytest.raises(InputError, match="shard-00000"):
        Snapshot(path).read(THETA)


@pytest.mark.parametrize(("chunks", "message"), [((1 << 20, 2), "in one piece"), (None, "declares 8796093022208")])
def test_a_block_as_large_as_the_manifest_says_is_not_allocated_for_nothing(
    tmp_path: Path, chunks: tuple[int, int] | None, message: str
) -> None:
    """A few bytes of metadata can promise terabytes; a block is never larger than its file."""
    path = write(tmp_path)
    with h5py.File(path / SHARD, "r+", locking=False) as file:
        del file[THETA.path]
        file.create_dataset(THETA.path, (1 << 40, 2), np.float32, chunks=chunks)

    def promise(content: dict[str, Any]) -> None:
        next(entry for entry in content["blocks"] if entry["key"] == list(THETA))["shape"] = [1 << 40, 2]

    edit(path, promise)
    with pytest.raises(InputError, match=message):
        Snapshot(path).read(THETA)


# ---------------------------------------------------------------------- series of snapshots


def test_prune_keeps_the_newest_and_at_least_two(tmp_path: Path) -> None:
    """One checkpoint may be damaged: the one before it must be there."""
    for iteration in (5, 20, 100, 3, 1000):
        write(tmp_path, iteration)
    prune(tmp_path, 3)
    assert steps(tmp_path) == [20, 100, 1000]
    prune(tmp_path, 1)
    assert steps(tmp_path) == [100, 1000]
    assert names(tmp_path) == [step_name(100), step_name(1000)]


def test_remove_takes_all_of_a_snapshot(tmp_path: Path) -> None:
    """Nothing is left, also under another name."""
    remove(write(tmp_path))
    assert names(tmp_path) == []


def test_unknown_names_are_neither_read_nor_touched(tmp_path: Path) -> None:
    """Users keep copies and notes beside checkpoints."""
    for iteration in (1, 2, 3):
        write(tmp_path, iteration)
    mine = ["notes", "step-", "step-5", "step-000000000004.bak", "step-²", "step-000000000002.bad-1f", "my.tmp-1"]
    for name in mine:
        (tmp_path / name).mkdir()
        (tmp_path / name / "keep").touch()
    (tmp_path / step_name(9)).touch()  # a file, no directory
    leftovers = [f"{step_name(2)}.tmp-00ff00ff", f"{step_name(1)}.trash-00ff00ff"]
    for name in leftovers:
        (tmp_path / name).mkdir()
    assert steps(tmp_path) == [1, 2, 3]
    clean(tmp_path)
    prune(tmp_path, 2)
    assert names(tmp_path) == sorted([*mine, step_name(2), step_name(3), step_name(9)])
    assert all((tmp_path / name / "keep").exists() for name in mine)


def test_a_series_that_is_not_there_is_empty(tmp_path: Path) -> None:
    """A run that has no draws yet has no directory for them."""
    assert steps(tmp_path / "absent") == []
    clean(tmp_path / "absent")
