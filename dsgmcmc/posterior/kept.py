"""Exposure kept beside the run: a snapshot of kind ``exposure`` in ``RUN/exposure``.

================================  =====================================================================
``exposure/items/000000/rows``    (items, items) or (items, r) float32: S, or the singular vectors, shrunk
``exposure/items/000000/seals``   (items, 32) uint8: SHA-256 of each row of S
``exposure/items/000000/own``     (items,) float32: what an item explains of itself
``exposure/items/000000/shares``  (items,) float64: of the users who rated each item
================================  =====================================================================

Of S the rows of what a user rated are read, and checked against their seals, when he is ranked for. The penalty and the
number of the `RECIPE` are in the manifest's state, and so are the hashes of the ratings and of the run. One that is
damaged, or of other ratings or another run, is not used: it is worked out again, and replaced. Where the run cannot be
written, nothing is kept.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

import numpy as np

from dsgmcmc.errors import InputError, WriteError
from dsgmcmc.parallel.comm import Alone
from dsgmcmc.posterior.exposure import Exposure
from dsgmcmc.storage.facts import MADE_WITH, Facts, made_with
from dsgmcmc.storage.manifest import Key, SmallArray
from dsgmcmc.storage.rundir import EXPOSURE, RunDirectory
from dsgmcmc.storage.series import remove
from dsgmcmc.storage.snapshot import SealedRows, row_hashes
from dsgmcmc.storage.writer import write_snapshot
from dsgmcmc.types import Float32, Int32

log = logging.getLogger(__name__)

RECIPE = 2.0  # another number where the same ratings give another exposure, or it is kept in another way
_ROWS, _SEALS, _OWN, _SHARES = (Key(EXPOSURE, "items", 0, name) for name in ("rows", "seals", "own", "shares"))


class KeptRows:
    """Rows of S, each read from the disk when it is first asked for.

    Parameters
    ----------
    sealed : SealedRows
    anew : callable
        Works all of them out again, if one is damaged.
    """

    def __init__(self, sealed: SealedRows, anew: Callable[[], Float32]) -> None:
        self._sealed, self._anew, self.shape = sealed, anew, sealed.shape
        self._rows: Float32 = np.empty(self.shape, np.float32)
        self._read = np.zeros(len(self._rows), bool)

    def __getitem__(self, items: Int32) -> Float32:
        missing = items[~self._read[items]]
        if len(missing):
            try:
                self._rows[missing] = self._sealed.read(missing)
                self._read[missing] = True
            except InputError as error:
                warn(error)
                self._rows, self._read = self._anew(), np.ones_like(self._read)
        return self._rows[items]


def warn(error: Exception) -> None:
    """Say that what is kept is not used, and why."""
    log.warning("%s: it is worked out again", error)


def read_exposure(run: RunDirectory, facts: Facts, items: int, anew: Callable[[], Exposure]) -> Exposure | None:
    """Read what is kept of the exposure to so many items; None if nothing is, or it cannot be used.

    Rows that turn out to be damaged later are taken from that which `anew` works out.
    """
    path = run.path / EXPOSURE
    if not path.is_dir():
        return None
    try:
        snapshot = run.open_exposure(facts)
        state = {name: small.values for name, small in snapshot.manifest.state.items()}
        if state.get("recipe") != [RECIPE]:
            return None  # of another version
        own, shares = snapshot.read_all([_OWN, _SHARES])
        penalty = state.get("penalty", [])
        if _SEALS in snapshot.names():
            rows = KeptRows(snapshot.sealed(_ROWS, _SEALS), lambda: anew().rows)
            found = Exposure(rows, None, own, shares, *penalty)
        else:
            vectors = snapshot.read(_ROWS)
            found = Exposure(vectors, vectors.T, own, shares, *penalty)
        if not _fits(found, items):
            raise InputError(f"{path} is inconsistent")
    except (InputError, TypeError) as error:
        warn(error)
        return None
    return found


def _fits(found: Exposure, items: int) -> bool:
    shape = found.rows.shape
    shapes = len(shape) == 2 and shape[0] == items and found.own.shape == found.shares.shape == (items,)
    turned = found.turn is not None or shape[1] == items
    return shapes and turned and found.penalty > 0 and bool((found.own < 1).all())


def keep_exposure(run: RunDirectory, facts: Facts, exposure: Exposure) -> None:
    """Keep an exposure in the place of what is kept, if the run can be written."""

    def header() -> Facts:
        state = {"recipe": SmallArray.of([RECIPE]), "penalty": SmallArray.of([exposure.penalty])}
        hashes = {name: facts[name] for name in ("config_hash", "data_hash")}
        about = {MADE_WITH: made_with(facts)}
        return {"kind": EXPOSURE, "chain": 0, "iteration": 0, "grid": 1, "state": state, "about": about, **hashes}

    blocks = {_ROWS: exposure.rows, _OWN: exposure.own, _SHARES: exposure.shares}
    if exposure.turn is None:
        blocks[_SEALS] = row_hashes(exposure.rows)
    with suppress(OSError, WriteError):
        if (run.path / EXPOSURE).exists():
            remove(run.path / EXPOSURE)
        write_snapshot(run.path, EXPOSURE, blocks, header, Alone())
