"""Series of snapshots in a directory, named by iteration as in ``step-000000012000``."""

from __future__ import annotations

import re
import secrets
import shutil
from pathlib import Path

_STEP = re.compile(r"step-([0-9]{12,})")  # only names that this module gives
_LEFT = re.compile(r".+\.(tmp|trash)-[0-9a-f]{8}")


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
    """Delete a snapshot so that no reader sees a part of it."""
    trash = path.with_name(f"{path.name}.trash-{secrets.token_hex(4)}")
    path.rename(trash)
    shutil.rmtree(trash, ignore_errors=True)


def prune(parent: Path, keep: int, but: int | None = None) -> None:
    """Delete all snapshots but the newest `keep` and the one of iteration `but`."""
    for iteration in steps(parent)[:-keep]:
        if iteration != but:
            remove(parent / step_name(iteration))


def clean(parent: Path) -> None:
    """Delete remains of interrupted writes and deletions; other names are kept."""
    for path in parent.iterdir() if parent.is_dir() else ():
        if _LEFT.fullmatch(path.name):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
