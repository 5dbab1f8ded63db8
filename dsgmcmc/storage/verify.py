"""Checks of the files of a run or a snapshot, and the digest of their content.

The digest is the SHA-256 of the block hashes of the newest checkpoint, the saved draws that belong to it, and the
posterior, ordered by (chain, object, factor, block, field). It does not depend on times, versions, the number of
processes, or the division of draws into snapshots.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path

from dsgmcmc.errors import GoneError, InputError
from dsgmcmc.storage.draws import SavedDraws
from dsgmcmc.storage.facts import Facts
from dsgmcmc.storage.manifest import SmallArray, lost
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
    small: dict[str, SmallArray] = snapshot.manifest.state
    lines += [f"{chain} {label} replicated {name} {block_hash(small[name].array())}" for name in small]
    return sorted(lines)


def verify_run(run: RunDirectory) -> str:
    """Check all snapshots of a run, and return its content digest.

    While the run is being sampled, the digest is that of the newest checkpoint when the check began and of the draws
    that belong to it; other snapshots that the run removes meanwhile are skipped. Raises InputError naming the first
    bad file or block, or GoneError if the run has removed a snapshot that the digest needs: then verify again.
    """
    _, facts = run.read_settings()
    run.open_index(facts).verify()
    for path in run.starts() if "start" in facts else ():
        Snapshot(path).verify()
    lines = [line for chain in run.chains() for line in _chain_lines(run, chain, facts)]
    if not lines:
        raise InputError(f"{run.path} has no snapshot yet")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _chain_lines(run: RunDirectory, chain: int, facts: Facts) -> list[str]:
    """Check all snapshots of a chain; return lines for its newest checkpoint, the draws of this, and its posterior."""
    checkpoint = _verify_newest(run, "checkpoints", chain, facts)
    draws = SavedDraws(run, chain, facts)
    for step in reversed(draws.steps):  # in reverse, as the oldest are removed first
        with suppress(GoneError):
            draws.open(step).verify()
    lines = []
    if checkpoint is not None:
        iteration, manifest = checkpoint.manifest.iteration, checkpoint.manifest
        lines += snapshot_lines(checkpoint, f"checkpoints {iteration}")
        for saved in manifest.saved_draws:
            try:
                lines += _draw_lines(draws, chain, saved)
            except GoneError as error:
                needed = f"{draws.path} has no draw of iteration {saved}: the newest checkpoint needs it"
                raise lost(checkpoint.path, needed) from error
    posterior = _verify_newest(run, "posterior", chain, facts)
    if posterior is not None:
        lines += snapshot_lines(posterior, f"posterior {posterior.manifest.iteration}")
    return lines


def _verify_newest(run: RunDirectory, kind: str, chain: int, facts: Facts) -> Snapshot | None:
    """Check all snapshots of a kind and return the newest; older snapshots may be removed meanwhile."""
    newest = None
    for iteration in reversed(steps(run.series(kind, chain))):
        try:
            snapshot = run.open_snapshot(kind, chain, iteration, facts)
            snapshot.verify()
        except GoneError:
            if newest is None:
                raise
        else:
            newest = newest or snapshot
    return newest


def _draw_lines(draws: SavedDraws, chain: int, iteration: int) -> list[str]:
    """Return one line, with name and hash, for every array of a draw."""
    snapshot, number = draws.place(iteration)
    hashes = snapshot.hashes_of(number)
    return sorted(f"{chain} draws {iteration} {key.path} {sha256}" for key, sha256 in hashes.items())


def verify_snapshot(path: Path) -> str:
    """Check one snapshot, and return the digest of its content."""
    snapshot = Snapshot(path)
    snapshot.verify()
    return hashlib.sha256("\n".join(snapshot_lines(snapshot, "")).encode()).hexdigest()
