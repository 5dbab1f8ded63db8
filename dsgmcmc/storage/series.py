"""Series of snapshots in a directory, named by iteration as in ``step-000000012000``."""

from __future__ import annotations

import re
import secrets
import shutil
from pathlib import Path

KEEP_AT_LEAST = 2
_STEP = re.compile(r"step-([0-9]{12,})(\.(?:tmp|trash)-[0-9a-f]{8})?")  # only names that this module gives


def step_name(iteration: int) -> str:
    """Directory name of the snapshot after `iteration` iterations."""
    return f"step-{iteration:012d}"


def steps(parent: Path) -> list[int]:
    """Iterations of the snapshots in a directory, oldest first; other names are ignored."""
    if not parent.is_dir():
        return []
    matches = [_STEP.fullmatch(path.name) for path in parent.iterdir() if path.is_dir()]
    return sorted(int(match[1]) for match in matches if match and not match[2])


def is_on_its_way(path: Path) -> bool:
    """Whether a file lies in a snapshot whose writing or removal is under way or was interrupted."""
    match = _STEP.fullmatch(path.parent.name)
    return bool(match and match[2])


def remove(path: Path) -> None:
    """Delete a snapshot so that no reader sees a part of it."""
    trash = path.with_name(f"{path.name}.trash-{secrets.token_hex(4)}")
    path.rename(trash)
    shutil.rmtree(trash, ignore_errors=True)


def prune(parent: Path, keep: int, but: int | None = None) -> None:
    """Delete all snapshots but the newest `keep`, at least `KEEP_AT_LEAST`, and the one of iteration `but`."""
    for iteration in steps(parent)[: -max(keep, KEEP_AT_LEAST)]:
        if iteration != but:
            remove(parent / step_name(iteration))


def clean(parent: Path) -> None:
    """Delete remains of interrupted writes and deletions; unknown names are kept."""
    if not parent.is_dir():
        return
    for path in parent.iterdir():
        match = _STEP.fullmatch(path.name)
        if match and match[2]:
            shutil.rmtree(path, ignore_errors=True)
