"""Exposure kept beside the run: a snapshot of kind ``exposure`` in ``RUN/exposure``.

=================================  ====================================================================
``exposure/items/000000/vectors``  (items, r) float32: right singular vectors of the pattern of ratings, shrunk
``exposure/items/000000/own``      (items,) float32: what an item explains of itself
``exposure/items/000000/shares``   (items,) float64: of the users who rated each item
=================================  ====================================================================

The penalty and the number of the `RECIPE` are in the manifest's state, and so are the hashes of the ratings and of the
run. One that is damaged, or of other ratings or another run, is not used: it is worked out again, and replaced. Where
the run cannot be written, nothing is kept.
"""

from __future__ import annotations

import logging
from contextlib import suppress

from dsgmcmc.errors import InputError, WriteError
from dsgmcmc.parallel.alone import Alone
from dsgmcmc.posterior.exposure import Exposure
from dsgmcmc.storage.facts import MADE_WITH, Facts, made_with
from dsgmcmc.storage.manifest import Key, SmallArray
from dsgmcmc.storage.rundir import EXPOSURE, RunDirectory
from dsgmcmc.storage.series import remove
from dsgmcmc.storage.writer import write_snapshot

log = logging.getLogger(__name__)

RECIPE = 1.0  # another number where the same ratings give another exposure
_KEYS = {name: Key(EXPOSURE, "items", 0, name) for name in ("vectors", "own", "shares")}


def read_exposure(run: RunDirectory, facts: Facts, items: int) -> Exposure | None:
    """Read what is kept of the exposure to so many items; None if nothing is, or it cannot be used."""
    path = run.path / EXPOSURE
    if not path.is_dir():
        return None
    try:
        snapshot = run.open_exposure(facts)
        state = {name: small.values for name, small in snapshot.manifest.state.items()}
        if state.get("recipe") != [RECIPE]:
            return None  # of another version
        vectors, own, shares = snapshot.read_all(_KEYS.values())
        found = Exposure(vectors, own, shares, *state.get("penalty", []))
        if not _fits(found, items):
            raise InputError(f"{path} is inconsistent")
    except (InputError, TypeError) as error:
        log.warning("%s: it is worked out again", error)
        return None
    return found


def _fits(found: Exposure, items: int) -> bool:
    shapes = (
        found.vectors.ndim == 2 and len(found.vectors) == items and found.own.shape == found.shares.shape == (items,)
    )
    return shapes and found.penalty > 0 and bool((found.own < 1).all())


def keep_exposure(run: RunDirectory, facts: Facts, exposure: Exposure) -> None:
    """Keep an exposure in the place of what is kept, if the run can be written."""

    def header() -> Facts:
        state = {"recipe": SmallArray.of([RECIPE]), "penalty": SmallArray.of([exposure.penalty])}
        hashes = {name: facts[name] for name in ("config_hash", "data_hash")}
        about = {MADE_WITH: made_with(facts)}
        return {"kind": EXPOSURE, "chain": 0, "iteration": 0, "grid": 1, "state": state, "about": about, **hashes}

    blocks = {key: getattr(exposure, name) for name, key in _KEYS.items()}
    with suppress(OSError, WriteError):
        if (run.path / EXPOSURE).exists():
            remove(run.path / EXPOSURE)
        write_snapshot(run.path, EXPOSURE, blocks, header, Alone())
