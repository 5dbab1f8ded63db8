"""The manifest: read whole, of this version and unchanged, or refused with a reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dsgmcmc.errors import InputError
from dsgmcmc.storage.store import MANIFEST, Key, Manifest, SmallArray, read_manifest, seal

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
    "state": {"tau": {"shape": [2], "values": [0.1, 2.5]}, "observer.kept": {"shape": [1], "values": [3.0]}},
    "about": {"seconds": 3.5},
    "blocks": [
        {"key": ["state", "W", 0, "theta"], "shard": "shard-00000.h5", "shape": [3, 2], "dtype": "<f4", "sha256": HASH}
    ],
}


def read(folder: Path, text: str) -> Manifest:
    (folder / MANIFEST).write_text(text, encoding="utf-8")
    return read_manifest(folder)


def test_a_manifest_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    """Every float keeps its bits, whatever it is."""
    values = [0.1, 1e-310, np.nextafter(1, 2), -0.0, np.inf, -np.inf, np.nan, 1e22]
    manifest = read(tmp_path, seal(json.dumps(CONTENT)))
    manifest = manifest.model_copy(update={"state": {"x": SmallArray.of(np.array(values).reshape(2, 4))}})
    found = read(tmp_path, seal(manifest.model_dump_json(indent=1)))
    assert found.state["x"].array().tobytes() == np.array(values).tobytes()
    assert found.state["x"].array().shape == (2, 4)
    assert found.blocks == manifest.blocks
    assert found.blocks[0].key == Key("state", "W", 0, "theta")


def test_every_changed_character_and_every_cut_is_found(tmp_path: Path) -> None:
    """Also one that leaves sound JSON: a digit of the state would change the chain unseen."""
    text = seal(json.dumps(CONTENT))
    for at, old in enumerate(text):
        new = "7" if old != "7" else "8"
        for damaged in (text[:at] + new + text[at + 1 :], text[:at]):
            with pytest.raises(InputError, match=r"manifest\.json is"):
                read(tmp_path, damaged)


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
def test_what_is_not_a_manifest_of_this_version_is_refused(tmp_path: Path, path: tuple[Any, ...], value: Any) -> None:
    """Before anything is read or allocated by it; whoever can seal it must not lead a reader to other files."""
    content = json.loads(json.dumps(CONTENT))
    at = content
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    with pytest.raises(InputError, match="is not a snapshot this version reads"):
        read(tmp_path, seal(json.dumps(content)))
