"""Checks all snapshots of a run, and computes the digest of its content."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import suppress

from dsgmcmc.errors import GoneError, InputError
from dsgmcmc.storage import store
from dsgmcmc.storage.rundir import Facts, RunDirectory, SavedDraws


def snapshot_lines(snapshot: store.Snapshot, label: str) -> list[str]:
    """Return a line with chain, `label`, name and hash of every array in a snapshot, sorted."""
    manifest = snapshot.manifest
    hashes = [(" ".join(map(str, entry.key)), entry.sha256) for entry in manifest.blocks]
    hashes += [
        (f"replicated {name}", store.block_hash(array.array()))
        for name, array in manifest.state.items()
    ]
    return sorted(f"{manifest.chain} {label} {name} {sha256}" for name, sha256 in hashes)


def verify_run(run: RunDirectory) -> str:
    """Check all snapshots of a run, and return the digest of its content.

    The digest is the SHA-256 of lines with the hashes of all arrays, chain by chain: the newest
    checkpoint, its saved draws in the order of their iterations, and the posterior, each sorted as
    text. It does not depend on times, versions, the number of processes, or the division of draws
    into snapshots.

    Raises InputError that names the first bad file. Raises GoneError if the run is being sampled
    and has removed a snapshot in the meantime; a second call may succeed.
    """
    _, facts = run.read_settings()
    run.open_index(facts).verify()
    for path in run.starts():
        store.Snapshot(path).verify()
    lines = [line for chain in run.chains() for line in _chain_lines(run, chain, facts)]
    if not lines:
        raise InputError(f"{run.path} has no snapshot yet")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _chain_lines(run: RunDirectory, chain: int, facts: Facts) -> Iterator[str]:
    """Check a chain's snapshots; yield lines of its newest checkpoint, draws and posterior."""
    draws = SavedDraws(run, chain, facts)
    for step in draws.steps:
        draws.open(step).verify()
    for series in ("checkpoints", "posterior"):
        steps = store.steps(run.series(series, chain))
        for step in steps[:-1]:
            with suppress(GoneError):  # a run that is being sampled removes its older checkpoints
                run.open_snapshot(series, chain, step, facts).verify()
        if not steps:
            continue
        newest = run.open_snapshot(series, chain, steps[-1], facts)
        newest.verify()
        yield from snapshot_lines(newest, f"{series} {newest.manifest.iteration}")
        if series == "checkpoints":
            for iteration in newest.manifest.saved_draws:
                yield from _draw_lines(draws, chain, iteration)


def _draw_lines(draws: SavedDraws, chain: int, iteration: int) -> list[str]:
    """Return a line for every array of a saved draw, sorted."""
    snapshot, number = draws.find(iteration)
    keys = snapshot.block_keys()
    arrays = snapshot.read_all(keys, number)
    return sorted(
        f"{chain} draws {iteration} {key.path} {store.block_hash(array)}"
        for key, array in zip(keys, arrays, strict=True)
    )
