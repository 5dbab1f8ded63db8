"""The manifest: read whole, of this version and unchanged, or refused with a reason."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dsgmcmc.errors import InputError
from dsgmcmc.storage.manifest import (
    MANIFEST,
    Key,
    Manifest,
    SmallArray,
    parse_manifest,
    read_manifest,
    seal,
    seen_by_all,
)

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
    "state": {"tau": {"shape": [2], "values": [0.1, 2.5]}},
    "about": {"seconds": 3.5},
    "blocks": [
        {"key": ["state", "W", 0, "theta"], "shard": "shard-00000.h5", "shape": [3, 2], "dtype": "<f4", "sha256": HASH}
    ],
}


def changed(*path: str | int, to: Any) -> dict[str, Any]:
    """Copy of the content with one value replaced; None removes it."""
    content = json.loads(json.dumps(CONTENT))
    at = content
    for step in path[:-1]:
        at = at[step]
    if to is None:
        del at[path[-1]]
    else:
        at[path[-1]] = to
    return content


def parse(content: dict[str, Any]) -> Manifest:
    return parse_manifest(seal(json.dumps(content)), Path("m"))


def test_a_manifest_is_read_back_as_it_was_written() -> None:
    """Every float keeps its bits, whatever it is."""
    values = [0.1, 1e-310, np.nextafter(1, 2), -0.0, np.inf, -np.inf, np.nan, 1e22]
    manifest = parse(CONTENT).model_copy(update={"state": {"x": SmallArray.of(np.array(values).reshape(2, 4))}})
    found = parse_manifest(seal(manifest.model_dump_json(indent=1)), Path("m"))
    assert found.state["x"].array().tobytes() == np.array(values).tobytes()
    assert found.state["x"].array().shape == (2, 4)
    assert found.blocks == manifest.blocks
    assert found.blocks[0].key == Key("state", "W", 0, "theta")


def test_every_changed_character_is_found() -> None:
    """Also one that leaves sound JSON: a digit of the state would change the chain unseen."""
    text = seal(json.dumps(CONTENT))
    for at, old in enumerate(text):
        new = "7" if old != "7" else "8"
        with pytest.raises(InputError):
            parse_manifest(text[:at] + new + text[at + 1 :], Path("m"))


def test_a_manifest_cut_anywhere_is_refused() -> None:
    """As a crash or a full disk would leave it."""
    text = seal(json.dumps(CONTENT))
    for length in range(len(text)):
        with pytest.raises(InputError, match="m is"):
            parse_manifest(text[:length], Path("m"))


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (changed("version", to=1), "version"),
        (changed("format", to="other"), "format"),
        (changed("kind", to="other"), "kind"),
        (changed("extra", to=1), "extra"),
        (changed("grid", to=0), "grid"),
        (changed("iteration", to=-1), "iteration"),
        (changed("iteration", to="many"), "iteration"),
        (changed("config_hash", to="0" * 63), "config_hash"),
        (changed("data_hash", to=None), "data_hash"),
        (changed("blocks", 0, "dtype", to="|O8"), "dtype"),
        (changed("blocks", 0, "shape", to=[-1, 2]), "shape"),
        (changed("blocks", 0, "key", to=["state", "W", -1, "theta"]), "key"),
        (changed("blocks", 0, "key", to=["state", "W", 0]), "key"),
        (changed("blocks", 0, "key", to=["..", "W", 0, "theta"]), "key"),
        (changed("blocks", 0, "key", to=["state", "W/../..", 0, "theta"]), "key"),
        (changed("blocks", to=CONTENT["blocks"] * 2), "blocks"),
        (changed("state", "tau", "shape", to=[3]), "tau"),
        (changed("state", "tau", "shape", to=[-1]), "tau"),
        (changed("state", "tau", "values", to=["a", "b"]), "tau"),
    ],
)
def test_what_is_not_a_manifest_of_this_version_is_refused(content: dict[str, Any], word: str) -> None:
    """Naming what is wrong, before anything is read or allocated by it."""
    parse(CONTENT)
    with pytest.raises(InputError, match=word):
        parse(content)


@pytest.mark.parametrize(
    "name",
    [
        "../shard-00000.h5",
        "/etc/shard-00000.h5",
        "a/shard-00000.h5",
        "shard-00000.h5/x",
        "shard-1.h5",
        "shard-00000.h5\n",
    ],
)
def test_shards_lie_in_the_snapshot_and_nowhere_else(name: str) -> None:
    """A manifest from elsewhere must not make a reader open other files."""
    with pytest.raises(InputError, match="not the name of a shard"):
        parse(changed("blocks", 0, "shard", to=name))


def test_reading_says_what_is_missing_or_senseless(tmp_path: Path) -> None:
    """No manifest, one that is no text, one that is too large to be one."""
    with pytest.raises(InputError, match="not a complete snapshot"):
        read_manifest(tmp_path)
    path = tmp_path / MANIFEST
    path.write_bytes(b"\xff\xfe{}")
    with pytest.raises(InputError, match="not a complete snapshot"):
        read_manifest(tmp_path)
    with path.open("wb") as file:
        file.truncate(1 << 31)
    with pytest.raises(InputError, match="may have at most 268,435,456"):
        read_manifest(tmp_path)
    path.write_text(seal(json.dumps(CONTENT)), encoding="utf-8")
    assert read_manifest(tmp_path).iteration == 12


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ESTALE])
def test_a_name_that_a_network_file_system_does_not_see_yet(tmp_path: Path, number: int) -> None:
    """It is looked for once more; what is not there then is missing, and other errors are told at once."""
    failures = [number]

    def read() -> str:
        if failures:
            raise OSError(failures.pop(), "not yet")
        return "there"

    assert seen_by_all(tmp_path, read) == "there"
    failures = [number, number]
    with pytest.raises(OSError, match="not yet"):
        seen_by_all(tmp_path, read)
    failures = [number, errno.EIO]
    with pytest.raises(OSError, match="not yet"):
        seen_by_all(tmp_path, read)
    assert failures == [number]
