"""Checks of the files of a run, and the digest of their content.

The digest is the SHA-256 of the block hashes of the newest checkpoint, the saved draws that belong to it, and the
posterior, ordered by (chain, object, factor, block, field). It does not depend on times, versions, the number of
processes, or the division of draws into snapshots.
"""

from __future__ import annotations

import hashlib

from dsgmcmc.errors import InputError
from dsgmcmc.storage.draws import SavedDraws
from dsgmcmc.storage.facts import Facts
from dsgmcmc.storage.rundir import RunDirectory
from dsgmcmc.storage.series import steps
from dsgmcmc.storage.snapshot import Snapshot, block_hash


def snapshot_lines(snapshot: Snapshot, label: str) -> list[str]:
    """Return one line, with name and hash, for every array in a snapshot."""
    chain = snapshot.manifest.chain
    lines = [
        f"{chain} {label} {entry.key.object} {entry.key.factor} {entry.key.block} {entry.key.field} {entry.sha256}"
        for entry in snapshot.manifest.blocks
    ]
    small = snapshot.manifest.state
    lines += [f"{chain} {label} replicated {name} {block_hash(small[name].array())}" for name in small]
    return sorted(lines)


def verify_run(run: RunDirectory) -> str:
    """Check all snapshots of a run, and return its content digest.

    Raises InputError naming the first bad file, or GoneError if the run, which is being sampled, has removed a snapshot
    meanwhile: then verify again.
    """
    _, facts = run.read_settings()
    for snapshot in (run.open_index(facts), *map(Snapshot, run.starts())):
        snapshot.verify()
    lines = [line for chain in run.chains() for line in _chain_lines(run, chain, facts)]
    if not lines:
        raise InputError(f"{run.path} has no snapshot yet")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _chain_lines(run: RunDirectory, chain: int, facts: Facts) -> list[str]:
    """Check all snapshots of a chain; return lines for its newest checkpoint, the draws of this, and its posterior."""
    lines = []
    draws = SavedDraws(run, chain, facts)
    for snapshot in map(draws.open, draws.steps):
        snapshot.verify()
    for kind in ("checkpoints", "posterior"):
        snapshots = [run.open_snapshot(kind, chain, step, facts) for step in steps(run.series(kind, chain))]
        for snapshot in snapshots:
            snapshot.verify()
        for newest in snapshots[-1:]:
            lines += snapshot_lines(newest, f"{kind} {newest.manifest.iteration}")
            for saved in newest.manifest.saved_draws if kind == "checkpoints" else ():
                lines += _draw_lines(draws, chain, saved)
    return lines


def _draw_lines(draws: SavedDraws, chain: int, iteration: int) -> list[str]:
    """Return one line, with name and hash, for every array of a draw."""
    snapshot, number = draws.place(iteration)
    hashes = snapshot.hashes_of(number)
    return sorted(f"{chain} draws {iteration} {key.path} {sha256}" for key, sha256 in hashes.items())
