"""Checks of a run's or a snapshot's files, and the digest of what they hold.

The digest is SHA-256 over block hashes in the order of (chain, object, factor, block, field), of the newest
checkpoint, the saved draws that belong to it, and the posterior. It has no times, no versions and no number of
processes in it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from dsgmcmc.errors import InputError
from dsgmcmc.storage.manifest import SmallArray
from dsgmcmc.storage.rundir import SERIES, RunDirectory
from dsgmcmc.storage.series import step_name, steps
from dsgmcmc.storage.snapshot import Snapshot, block_hash


def snapshot_lines(snapshot: Snapshot, label: str) -> list[str]:
    """One line for everything that a snapshot holds: its name and its hash."""
    chain = snapshot.manifest.chain
    lines = [
        f"{chain} {label} {key.object} {key.factor} {key.block} {key.field} {snapshot.manifest.blocks[i].sha256}"
        for i, key in enumerate(entry.key for entry in snapshot.manifest.blocks)
    ]
    small: dict[str, SmallArray] = snapshot.manifest.state
    lines += [f"{chain} {label} replicated {name} {block_hash(small[name].array())}" for name in small]
    return sorted(lines)


def verify_run(run: RunDirectory) -> str:
    """Check all snapshots of a run, and return its content digest.

    Raises
    ------
    InputError
        Naming the first file or block that is wrong.
    """
    _, facts = run.read_settings()
    if "target" not in facts:  # a factorisation, whose rows and columns have names
        run.open_index(facts).verify()
    for path in run.starts() if "start" in facts else ():
        Snapshot(path).verify()
    lines = []
    for chain in run.chains():
        draws: set[int] = set()
        for kind in SERIES:  # checkpoints come first, and say which draws there must be
            parent = run.series(kind, chain)
            found = steps(parent)
            for iteration in found:
                snapshot = run.open_snapshot(kind, chain, iteration, facts)
                snapshot.verify()
                if iteration in draws if kind == "draws" else iteration == found[-1]:
                    lines += snapshot_lines(snapshot, f"{kind} {iteration}")
                if kind == "checkpoints":
                    draws = snapshot.manifest.saved_draws
            missing = draws.difference(found) if kind == "draws" else ()
            if missing:
                raise InputError(f"{parent / step_name(min(missing))} is missing: the newest checkpoint counts on it")
    if not lines:
        raise InputError(f"{run.path} has no snapshot yet")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def verify_snapshot(path: Path) -> str:
    """Check one snapshot, and return the digest of its content."""
    snapshot = Snapshot(path)
    snapshot.verify()
    return hashlib.sha256("\n".join(snapshot_lines(snapshot, "")).encode()).hexdigest()
