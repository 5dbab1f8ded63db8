"""Snapshots are complete or absent, all damage is detected, and files of other origin are not
touched.
"""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from dsgmcmc.errors import GoneError, InputError
from dsgmcmc.storage.store import (
    MANIFEST,
    Key,
    Manifest,
    SmallArray,
    Snapshot,
    block_hash,
    clean,
    prune,
    read_manifest,
    seal,
    step_name,
    steps,
    write_snapshot,
)

SHARD = "shard-00000.h5"
HASH = "0123456789abcdef" * 4
CONTENT: dict[str, Any] = {
    "format": "dsgmcmc-snapshot",
    "version": 2,
    "kind": "checkpoint",
    "chain": 0,
    "iteration": 12,
    "grid": 4,
    "config_hash": HASH,
    "data_hash": HASH,
    "state": {
        "tau": {"shape": [2], "values": [0.1, 2.5]},
        "observer.kept": {"shape": [1], "values": [3.0]},
    },
    "about": {"seconds": 3.5},
    "blocks": [
        {
            "key": ["state", "W", 0, "theta"],
            "shard": "shard-00000.h5",
            "shape": [3, 2],
            "dtype": "<f4",
            "sha256": HASH,
        }
    ],
}
THETA = Key("state", "W", 0, "theta")
BLOCKS = {
    THETA: np.arange(6, dtype=np.float32).reshape(3, 2),
    Key("state", "H", 1, "theta"): np.zeros((0, 2), np.float32),
    Key("test", "W", 0, "mean"): np.array([np.pi, -0.0, np.inf, np.nan]),
    Key("trace", "run", 0, "W.mean"): np.ones((2, 3)),
}


#: A small array of a state, whose floats are unlike each other.
SMALL = np.array([0.1, 1e-310, np.nextafter(1, 2), -0.0, np.inf, -np.inf, np.nan, 1e22]).reshape(
    2, 4
)


def write(
    parent: Path, iteration: int = 7, blocks: dict[Key, np.ndarray] = BLOCKS, **changes: Any
) -> Path:
    header = {name: value for name, value in CONTENT.items() if name != "blocks"}
    header |= {"iteration": iteration, "state": {"tau": SmallArray.from_array(SMALL)}}
    return write_snapshot(parent, step_name(iteration), blocks, header | changes)


def names(parent: Path) -> list[str]:
    return sorted(path.name for path in parent.iterdir())


def test_what_is_written_is_read_bit_by_bit(tmp_path: Path) -> None:
    """A snapshot has the shapes, types and bits that were written, also in the place of a damaged
    one.
    """
    path = write(tmp_path)
    (path / MANIFEST).unlink()
    assert write(tmp_path) == path
    assert names(tmp_path) == [path.name]
    assert names(path) == [MANIFEST, SHARD]
    snapshot = Snapshot(path)
    snapshot.verify()
    assert set(snapshot.block_keys()) == set(BLOCKS)
    for key, array in BLOCKS.items():
        block = snapshot.read(key)
        assert (block.dtype, block.shape) == (array.dtype, array.shape)
        assert block.tobytes() == array.tobytes()
    small = snapshot.manifest.state["tau"].array()
    assert (small.shape, small.tobytes()) == (SMALL.shape, SMALL.tobytes())


def test_block_hashes_see_type_shape_and_content() -> None:
    """A hash depends on type, shape and content, and not on the order in memory or of bytes."""
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    others = [array.reshape(3, 2), array.view(np.int32), array.astype(np.float64), -array]
    assert len({block_hash(array), *map(block_hash, others)}) == 5
    same = [np.asfortranarray(array), array.astype(">f4"), array.copy()]
    assert {block_hash(array), *map(block_hash, same)} == {block_hash(array)}


# ---------------------------------------------------------------------- damage to shards


def test_every_damaged_byte_and_every_cut_of_a_shard_is_found(tmp_path: Path) -> None:
    """`verify` refuses any damage, and `read` gives a block as it was written or refuses."""
    path = write(tmp_path)
    shard = path / SHARD
    written = shard.read_bytes()
    for at in range(0, len(written), 13):
        for damaged in (
            written[:at] + bytes([written[at] ^ 0x41]) + written[at + 1 :],
            written[:at],
        ):
            shard.write_bytes(damaged)
            snapshot = Snapshot(path)
            with pytest.raises(InputError, match="shard-00000"):
                snapshot.verify()
            last = np.empty(2, np.float32)
            try:
                block = Snapshot(path).read(THETA)
                Snapshot(path).read_entries({THETA: {2: last}})
            except InputError:
                continue
            assert block.tobytes() == BLOCKS[THETA].tobytes(), at
            assert last.tobytes() == BLOCKS[THETA][2].tobytes(), at


def test_an_entry_is_refused_if_another_entry_of_its_block_is_damaged(tmp_path: Path) -> None:
    """The whole block is checked when one of its entries is first read, and not again."""
    path = write(tmp_path)
    entries = [np.empty(2, np.float32) for _ in range(2)]
    intact = Snapshot(path)
    intact.read_entries({THETA: {1: entries[0], 2: entries[1]}})
    np.testing.assert_array_equal(entries, BLOCKS[THETA][1:])
    shard = path / SHARD
    first, *_ = BLOCKS[THETA]
    place = shard.read_bytes().index(BLOCKS[THETA].tobytes()) + first.nbytes - 1
    with shard.open("r+b") as file:
        file.seek(place)
        file.write(b"A")
    with pytest.raises(InputError, match="does not match its checksum"):
        Snapshot(path).read_entries({THETA: {2: entries[0]}})
    intact.read_entries({THETA: {2: entries[0]}})
    np.testing.assert_array_equal(entries[0], BLOCKS[THETA][2])


def test_a_draw_is_checked_alone(tmp_path: Path) -> None:
    """A draw is refused if it is damaged; other damage is left to those who read what it hit."""
    key = Key("draw", "W", 0, "theta")
    draws = np.arange(60, dtype=np.float32).reshape(5, 4, 3)
    path = write(tmp_path, blocks={key: draws})
    shard = path / SHARD
    content = bytearray(shard.read_bytes())
    content[content.index(draws[2].tobytes()) + 5] ^= 1
    shard.write_bytes(content)
    snapshot = Snapshot(path)
    read = np.empty((2, 4, 3), np.float32)
    for _ in range(2):  # those that have been checked are read again
        snapshot.read_entries({key: {1: read[0], 4: read[1]}})
        np.testing.assert_array_equal(read, draws[[1, 4]])
    with pytest.raises(InputError, match="draw 2 of draw/W/000000/theta does not match"):
        snapshot.read_entries({key: {2: read[0]}})
    with pytest.raises(InputError, match="does not match its checksum"):
        snapshot.verify()


def test_draws_without_hashes_of_their_own_are_checked_together(tmp_path: Path) -> None:
    """Snapshots of version 2 that were written before can be read, and are checked as before."""
    key = Key("draw", "W", 0, "theta")
    draws = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    path = write(tmp_path, blocks={key: draws})
    manifest = Snapshot(path).manifest.model_dump()
    for block in manifest["blocks"]:
        del block["draws"]
    (path / MANIFEST).write_text(seal(json.dumps(manifest, indent=1)))
    read = np.empty((2, 3), np.float32)
    Snapshot(path).read_entries({key: {3: read}})
    np.testing.assert_array_equal(read, draws[3])
    content = bytearray((path / SHARD).read_bytes())
    content[content.index(draws[1].tobytes())] ^= 1
    (path / SHARD).write_bytes(content)
    with pytest.raises(InputError, match="does not match its checksum"):
        Snapshot(path).read_entries({key: {3: read}})


def test_rejects_hashes_that_do_not_fit_the_draws(tmp_path: Path) -> None:
    path = write(tmp_path, blocks={Key("draw", "W", 0, "theta"): np.ones((2, 2, 3), np.float32)})
    manifest = Snapshot(path).manifest.model_dump()
    manifest["blocks"][0]["draws"] = manifest["blocks"][0]["draws"][:1]
    (path / MANIFEST).write_text(seal(json.dumps(manifest, indent=1)))
    with pytest.raises(InputError, match="1 hashes of draws do not fit"):
        Snapshot(path)


def test_what_was_removed_is_gone_and_what_is_missing_is_damage(tmp_path: Path) -> None:
    """A snapshot that the run has removed is told from a damaged one, so that a reader begins
    again.
    """
    path = write(tmp_path)
    snapshot = Snapshot(path)
    (path / SHARD).unlink()
    for replace in (Path.mkdir, lambda shard: (shard.rmdir(), os.mkfifo(shard))):
        with pytest.raises(InputError, match="is missing or damaged"):
            snapshot.verify()
        replace(path / SHARD)
    with pytest.raises(InputError, match="a directory, a pipe or a device"):
        snapshot.verify()
    shutil.rmtree(path)
    for read in (lambda: snapshot.read(THETA), snapshot.verify, lambda: Snapshot(path)):
        with pytest.raises(GoneError, match="is gone: the run has since removed it"):
            read()


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


def _never_written(file: Any, elsewhere: Path) -> None:
    file.create_dataset(THETA.path, (3, 2), np.float32)


@pytest.mark.parametrize("replace", [_linked_group, _virtual, _external_storage, _never_written])
def test_blocks_stored_in_any_but_the_plainest_way_are_refused(
    tmp_path: Path, replace: Callable[[Any, Path], None]
) -> None:
    """Blocks that refer to other files, or have no data, are refused."""
    elsewhere = tmp_path / "elsewhere.h5"
    with h5py.File(elsewhere, "w") as file:
        file["other"] = BLOCKS[THETA]
        file[THETA.path] = BLOCKS[THETA]
    path = write(tmp_path)
    with h5py.File(path / SHARD, "r+", locking=False) as file:
        del file[THETA.path]
        replace(file, elsewhere)
    with pytest.raises(InputError, match="shard-00000"):
        Snapshot(path).read(THETA)


# ---------------------------------------------------------------------- manifests


def read_text(folder: Path, text: str) -> Manifest:
    (folder / MANIFEST).write_text(text, encoding="utf-8")
    return read_manifest(folder)


def test_every_changed_character_and_every_cut_is_found(tmp_path: Path) -> None:
    """Any change of a manifest is refused, also one that leaves valid JSON."""
    text = seal(json.dumps(CONTENT))
    for at, old in enumerate(text):
        new = "7" if old != "7" else "8"
        for damaged in (text[:at] + new + text[at + 1 :], text[:at]):
            with pytest.raises(InputError, match=r"manifest\.json is"):
                read_text(tmp_path, damaged)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("version",), 1),
        (("kind",), "other"),
        (("iteration",), "many"),
        (("data_hash",), None),
        (("about", "made_with"), 3),
        (("blocks", 0, "dtype"), "|O8"),
        (("blocks", 0, "key"), ["..", "W", 0, "theta"]),
        (("blocks", 0, "key"), ["state", "W/../..", 0, "theta"]),
        (("blocks", 0, "shard"), "../shard-00000.h5"),
        (("blocks", 0, "shard"), "shard-00000.h5\n"),
        (("state", "tau", "shape"), [3]),
        (("state", "tau", "values"), ["a", "b"]),
        (("state", "observer.kept", "values"), [float("nan")]),
        (("state", "observer.kept", "values"), [float("inf")]),
    ],
)
def test_a_manifest_of_another_form_is_refused(
    tmp_path: Path, path: tuple[Any, ...], value: Any
) -> None:
    """A sealed manifest of another form is refused before anything is read by it, such as other
    files.
    """
    content = json.loads(json.dumps(CONTENT))
    at = content
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    with pytest.raises(InputError, match="is not a snapshot that this version can read"):
        read_text(tmp_path, seal(json.dumps(content)))


# ---------------------------------------------------------------------- series of snapshots


def test_unknown_names_are_neither_read_nor_touched(tmp_path: Path) -> None:
    """The user's names stay untouched, and of ours the newest snapshots, and nothing unfinished."""
    for iteration in (1, 2, 3, 1000):
        write(tmp_path, iteration)
    of_user = ["notes", "step-", "step-5", "step-000000000004.bak", "step-²", "my.tmp-1"]
    for name in (*of_user, f"{step_name(2)}.tmp-00ff00ff", f"{step_name(1)}.trash-00ff00ff"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "keep").touch()
    (tmp_path / step_name(9)).touch()  # a file, no directory
    assert steps(tmp_path) == [1, 2, 3, 1000]
    clean(tmp_path)
    prune(tmp_path, 2, spare=1)
    assert names(tmp_path) == sorted(
        [*of_user, step_name(1), step_name(3), step_name(9), step_name(1000)]
    )
    assert all((tmp_path / name / "keep").exists() for name in of_user)
    assert steps(tmp_path / "absent") == []
