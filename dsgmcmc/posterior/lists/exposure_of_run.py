"""The exposure of a run: which one it is, and its files.

``RUN/exposure-HASH.npy`` has the exposure to rated items, ``RUN/exposure-HASH-liked.npy`` that to
liked items, and ``RUN/exposure-HASH.txt`` which of them is better, for the ratings with this hash.
Whoever needs one first writes it, if the directory can be written. They may be deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.posterior.lists.exposure import Exposure, recent_changes
from dsgmcmc.posterior.lists.exposure_choice import prefers_liked
from dsgmcmc.posterior.lists.liked import liked_from
from dsgmcmc.posterior.rated import Rated, read_rated
from dsgmcmc.posterior.run import Run, once
from dsgmcmc.posterior.settings import ExposureKind
from dsgmcmc.storage.files import write_file
from dsgmcmc.types import Float32, Float64, Int32


def exposure_file(run: Run, kind: ExposureKind) -> Path:
    """Return the file of a run's exposure of a kind; for ``auto``, of the choice."""
    endings = {"rated": ".npy", "liked": "-liked.npy", "auto": ".txt"}
    return run.directory.exposure_file(str(run.facts["data_hash"]), endings[kind])


def exposure_of(run: Run, kind: ExposureKind = "auto") -> Exposure:
    """Return the exposure of users to items; a run keeps it.

    If it is in no file, it is estimated from the ratings and written.

    Raises
    ------
    InputError
        As for `Run.open_ratings`, if the file is missing.
    """
    return once(run, (Exposure, kind), partial(_read_or_estimate, run, kind))


def _read_or_estimate(run: Run, kind: ExposureKind) -> Exposure:
    """Return the exposure of a run from its file, or from its ratings."""
    if kind == "auto":
        return exposure_of(run, chosen_kind(run))
    found = Exposure.read(exposure_file(run, kind), _shares(run), _liked(run, kind))
    return found or _estimate(run, kind)


def keep_exposure(run: Run, exposure: Exposure, kind: ExposureKind = "auto") -> None:
    """Let a run rank by this exposure, whatever its file has."""
    run.kept[Exposure, kind] = exposure


def exposures(run: Run, kind: ExposureKind, rated: Sequence[Int32]) -> Float32:
    """Return exposures, (users, items); `rated` is as for `Exposure.scores`.

    A damaged file is replaced. Raises InputError as `exposure_of`.
    """
    exposure = exposure_of(run, kind)
    try:
        return exposure.scores(rated)
    except InputError:
        if exposure.file is None:
            raise
        of_kind: ExposureKind = "rated"
        if exposure.liked is not None:
            of_kind = "liked"
        keep_exposure(run, _estimate(run, of_kind), kind)
        return exposure_of(run, kind).scores(rated)


def chosen_kind(run: Run) -> ExposureKind:
    """Return the kind that makes the better lists of held-out training ratings.

    If all ratings are liked, the kinds do not differ: it is ``rated``.
    """
    liked = liked_from(run)
    if not run.config.law.can_be_evaluated or liked <= float(run.facts["minimum"]):
        return "rated"
    file = exposure_file(run, "auto")
    with suppress(OSError, UnicodeDecodeError):
        text = file.read_text(encoding="ascii")
        if text == "liked":
            return "liked"
        if text == "rated":
            return "rated"
    return _choose(run, liked)


def _choose(run: Run, liked: float) -> ExposureKind:
    """Compare the kinds, and write which is better.

    A run of an earlier version, whose ratings file is away, keeps the exposure that it has.
    """
    try:
        with run.open_ratings() as ratings:
            is_liked = prefers_liked(ratings, liked)
    except InputError:
        if exposure_file(run, "rated").exists():
            return "rated"
        raise
    kind: ExposureKind = "rated"
    if is_liked:
        kind = "liked"
    with suppress(OSError):
        write_file(exposure_file(run, "auto"), kind)
    return kind


def _liked(run: Run, kind: ExposureKind) -> float | None:
    """Return the lowest rating that is liked; None for the exposure to rated items."""
    if kind == "rated":
        return None
    return liked_from(run)


def _estimate(run: Run, kind: ExposureKind) -> Exposure:
    """Estimate the exposure from the ratings, and write it to its file."""
    liked = _liked(run, kind)
    with run.open_ratings() as ratings:
        rated = Rated(ratings)
        changes = recent_changes(ratings)
    exposure = Exposure.of_ratings(rated, _shares(run), liked, changes=changes)
    exposure.write(exposure_file(run, kind))
    return exposure


def _shares(run: Run) -> Float64:
    """Share of the users who rated each item in training, (items,)."""
    if run.facts.get("replicates"):
        return np.asarray(read_rated(run).pattern.getnnz(axis=0) / len(run.users))
    return run.counts("item") / len(run.users)
