"""Fold in new ratings and features as far as possible; notes say what is left out.

New ratings of users that the run knows are added to those that it was sampled from, and replace old ratings of the same
pair: this needs the ratings file. New users with features need no ratings.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.data.arrays import read_triples
from dsgmcmc.errors import InputError
from dsgmcmc.posterior.described import Described, describe_new, shifts_of
from dsgmcmc.posterior.draws import OTHER
from dsgmcmc.posterior.foldin import FoldIn
from dsgmcmc.posterior.names import Vocabulary, is_integer, some, unknown_names
from dsgmcmc.posterior.rated import own_ratings
from dsgmcmc.posterior.saved import SavedRun
from dsgmcmc.types import Array


class PendingRatings(NamedTuple):
    """New ratings and features, from Python.

    Attributes
    ----------
    kind : {"user", "item"}
        Whose they are.
    names, others, values : (n,) array
        The ratings, as for `fold_in`.
    described : Described or None
        Features.
    """

    kind: str
    names: Array
    others: Array
    values: Array
    described: Described | None = None

    def updated(self, later: PendingRatings) -> PendingRatings:
        """Append later ratings and features; raises InputError if they are of the other kind."""
        if self.kind != later.kind:
            raise InputError(
                f"this model already has folded-in {self.kind}s: fold in {later.kind}s from the run itself"
            )
        names, others, values = (np.concatenate([a, b]) for a, b in zip(self[1:4], later[1:4], strict=True))
        described = self.described or later.described
        if self.described is not None and later.described is not None:
            described = self.described.updated(later.described)
        return PendingRatings(self.kind, names, others, values, described)


def tell(
    run: SavedRun, X: Any, y: Any, kind: str, features: Any, columns: str | None = None
) -> tuple[PendingRatings, list[str]]:
    """Read new ratings and features in the form of `dsgmcmc.posterior.fitted.FittedModel.fold_in`.

    Also returns notes about features that look wrong. Raises InputError if nothing is given, or it is wrong.
    """
    nothing = np.zeros(0, object)
    told, notes = PendingRatings(kind, nothing, nothing, np.zeros(0)), list[str]()
    if X is not None:
        given = read_triples(X, y, columns=columns)
        sides = (given.users, given.items) if kind == "user" else (given.items, given.users)
        told = PendingRatings(kind, *sides, given.ratings)
    elif features is None:
        raise InputError("nothing to fold in: give ratings, features, or both")
    if features is not None:
        described, notes = describe_new(run, kind, features)
        told = told._replace(described=described)
    return told, notes


def fold_in(
    run: SavedRun,
    kind: str,
    names: Array,
    others: Array,
    values: Array,
    *,
    described: Described | None = None,
    data: Path | None = None,
    seed: int = 0,
) -> tuple[FoldIn, list[str]]:
    """Fold in new ratings and new features, as far as possible.

    Parameters
    ----------
    run : Run
    kind : {"user", "item"}
        Whose rows are computed.
    names, others : (n,) array
        Original names: user (or item) of each rating, and item (or user) that it rates. The last rating of a pair
        counts.
    values : (n,) array
        The ratings.
    described : Described, optional
        New features of users (or items), with or without ratings.
    data : Path, optional
        Where the run's ratings file is, if it was moved.
    seed : int
        For drawing the noise scales, if the model has them.

    Returns
    -------
    FoldIn
    notes : list of str
        What was left out, and what looks wrong.

    Raises
    ------
    InputError
        If a name has the wrong type, or nothing is left to fold in.
    """
    vocabulary, other = run.vocabulary(kind), OTHER[kind]
    names = _usual(vocabulary, names)
    columns, known = run.vocabulary(other).index_of(others), vocabulary.index_of(names)
    taken, notes = columns >= 0, []
    if not taken.all():
        unknown = list(dict.fromkeys(others[~taken].tolist()))
        notes.append(f"{int((~taken).sum())} rating(s) left out: {unknown_names(other, unknown)}")
    of_known = known >= 0
    why = _cannot_update(run, data) if of_known.any() else ""
    if why:
        left = list(dict.fromkeys(names[of_known].tolist()))
        notes.append(f"ratings of {len(left)} known {kind}(s) left out ({some(left)}): {why}")
        taken &= ~of_known
    names, columns, values = names[taken], columns[taken], np.asarray(values)[taken]
    alone, more = _without_ratings(vocabulary, described, names)
    notes += more
    if not taken.any() and not len(alone):
        raise InputError("; ".join([*notes, "nothing is left to fold in"]))
    low, high = float(run.facts["minimum"]), float(run.facts["maximum"])
    beyond = values[(values < low) | (values > high)]
    if len(beyond):
        notes.append(f"{len(beyond)} rating(s) outside the training range {low:g} to {high:g}: {beyond[0]:g}")
    rows = np.unique(vocabulary.index_of(names))
    if (rows >= 0).any():
        with run.open_ratings(data) as ratings:
            before = own_ratings(ratings, kind, rows[rows >= 0])
        names = np.concatenate([vocabulary.ids[rows[rows >= 0][before.which]], names])
        columns, values = np.concatenate([before.others, columns]), np.concatenate([before.values, values])
    everybody = np.concatenate([names, alone])
    ids, which = np.unique(everybody.astype(str) if everybody.dtype == object else everybody, return_inverse=True)
    ids, which = ids if ids.dtype == np.int64 else ids.astype(object), which[: len(names)]
    known = vocabulary.index_of(ids)
    shifts = shifts_of(run, kind, ids, described, known, data)
    if shifts is not None:
        told = set() if described is None else set(described.names.tolist())
        average = [name for name, row in zip(ids.tolist(), known.tolist(), strict=True) if row < 0 and name not in told]
        if average:
            notes.append(
                f"{len(average)} new {kind}(s) without features are taken to have average features: {some(average)}"
            )
    pairs = which.astype(np.int64) * len(run.vocabulary(other)) + columns
    last = len(pairs) - 1 - np.unique(pairs[::-1], return_index=True)[1]
    new = FoldIn(run, kind, Vocabulary(kind, ids), which[last], columns[last], values[last], seed, shifts)
    return new, notes


def _usual(vocabulary: Vocabulary, names: Array) -> Array:
    """Names with the type of the run's names."""
    if not vocabulary.integers:
        return np.array([str(name) for name in names], object)
    bad = next((name for name in names if not is_integer(name)), None)
    if bad is not None:
        kind = vocabulary.kind
        raise InputError(
            f"{kind} {str(bad)[:80]!r} is no integer, as all {kind}s of the run are: give new {kind}s numbers that "
            "the run does not have"
        )
    return np.array([int(name) for name in names], np.int64)


def _without_ratings(vocabulary: Vocabulary, described: Described | None, rated: Array) -> tuple[Array, list[str]]:
    """Names of new rows that have features but no ratings, and notes about known ones without new ratings."""
    if described is None:
        return rated[:0], []
    left = described.names[~np.isin(described.names, rated)]
    known = vocabulary.index_of(left) >= 0
    notes = []
    if known.any():
        notes.append(
            f"features of {int(known.sum())} known {vocabulary.kind}(s) left out, because they have no new ratings and "
            f"the run was sampled with their old features: {some(left[known].tolist())}"
        )
    return left[~known], notes


def _cannot_update(run: SavedRun, data: Path | None) -> str:
    """Why new ratings of known rows cannot be used; empty if they can."""
    try:
        run.open_ratings(data).close()
    except InputError as error:
        return f"their earlier ratings are not known ({error})"
    return ""
