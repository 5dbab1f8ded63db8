"""New ratings, of a file or from Python, folded in as far as they can be; what is left out is said.

Ratings of users that the run knows are added to those that it was sampled from, a new one in the place of an old one of
the same pair: for these the ratings file is needed.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np

from dsgmcmc.data.ingest.columns import parse_columns
from dsgmcmc.data.ingest.load import create_raw, load
from dsgmcmc.data.ingest.sources import inspect
from dsgmcmc.errors import InputError
from dsgmcmc.posterior.features import feature_names
from dsgmcmc.posterior.foldin import FoldIn
from dsgmcmc.posterior.names import Vocabulary, unknown_names
from dsgmcmc.posterior.rated import own_ratings
from dsgmcmc.posterior.run import Run
from dsgmcmc.types import Array

_OTHER = {"user": "item", "item": "user"}


def fold_in(
    run: Run,
    kind: str,
    names: Array,
    others: Array,
    values: Array,
    *,
    data: Path | None = None,
    seed: int = 0,
) -> tuple[FoldIn, list[str]]:
    """Fold in what can be of new ratings.

    Parameters
    ----------
    run : Run
    kind : {"user", "item"}
        Whose rows are worked out.
    names, others : (n,) array
        Whose rating it is (user, or item), and of what (item, or user), by original names. Of several ratings of a pair
        the last counts.
    values : (n,) array
        The ratings.
    data : Path, optional
        Where the run's ratings file is, if it was moved.
    seed : int
        Of noise scales, where the model has them.

    Returns
    -------
    FoldIn
    notes : list of str
        What was left out, and what is doubtful.

    Raises
    ------
    InputError
        If a name cannot be one, or nothing is left to fold in.
    """
    vocabulary, other = run.vocabulary(kind), _OTHER[kind]
    if vocabulary.integers:
        try:
            names = np.array([int(name) for name in names], np.int64)
        except (ValueError, OverflowError):
            raise InputError(f"not all {kind}s are integers, as those of the run are") from None
    else:
        names = np.array([str(name) for name in names], object)
    columns, known = run.vocabulary(other).index_of(others), vocabulary.index_of(names)
    taken, notes = columns >= 0, []
    if not taken.all():
        unknown = list(dict.fromkeys(others[~taken].tolist()))
        notes.append(f"{int((~taken).sum())} rating(s) left out: {unknown_names(other, unknown)}")
    why, of_known = "", known >= 0
    if of_known.any():
        why = _cannot_update(run, kind, data)
    if why:
        left = list(dict.fromkeys(names[of_known].tolist()))
        notes.append(f"ratings of {len(left)} known {kind}(s) left out ({', '.join(map(str, left[:5]))}): {why}")
        taken &= ~of_known
    if not taken.any():
        raise InputError("; ".join(notes) + "; nothing is left to fold in")
    names, columns, values, known = names[taken], columns[taken], np.asarray(values)[taken], known[taken]
    low, high = float(run.facts["minimum"]), float(run.facts["maximum"])
    beyond = values[(values < low) | (values > high)]
    if len(beyond):
        notes.append(f"{len(beyond)} rating(s) outside {low:g} to {high:g}, the range so far: {beyond[0]:g}")
    if feature_names(run, kind)[0]:
        notes.append(f"new {kind}s are taken to be average in their features, which are not used here")
    if (known >= 0).any():
        rows = np.unique(known[known >= 0]).astype(np.int32)
        with run.open_ratings(data) as ratings:
            before = own_ratings(ratings, kind, rows)
        names = np.concatenate([vocabulary.ids[rows[before.which]], names])
        columns, values = np.concatenate([before.others, columns]), np.concatenate([before.values, values])
    ids, which = np.unique(names.astype(str) if names.dtype == object else names, return_inverse=True)
    pairs = which.astype(np.int64) * len(run.vocabulary(other)) + columns
    last = len(pairs) - 1 - np.unique(pairs[::-1], return_index=True)[1]
    found = Vocabulary(kind, ids if ids.dtype == np.int64 else ids.astype(object))
    return FoldIn(run, kind, found, which[last], columns[last], values[last], seed), notes


def _cannot_update(run: Run, kind: str, data: Path | None) -> str:
    """Why new ratings of known rows cannot be used; empty if they can."""
    if feature_names(run, kind)[0]:
        return f"with features of {kind}s these need a new run"
    try:
        run.open_ratings(data).close()
    except InputError as error:
        return f"what they had rated before is not known ({error})"
    return ""


def fold_in_file(
    run: Run, path: Path, kind: str, columns: str | None = None, *, data: Path | None = None, seed: int = 0
) -> tuple[FoldIn, list[str]]:
    """Fold in a file of ratings; see `fold_in`.

    Parameters
    ----------
    run : Run
    path : Path
        Ratings in any of the formats that ``prepare`` reads, by original names.
    kind : {"user", "item"}
    columns : str, optional
        ``user=U,item=I,rating=R``, as of ``prepare``; detected by default.
    data : Path, optional
        Where the run's ratings file is, if it was moved.
    seed : int

    Raises
    ------
    InputError
        If the file is wrong, a pair is there twice, or nothing is left to fold in.
    """
    if not path.exists():
        raise InputError(f"{path} does not exist")
    source = inspect(path, None, parse_columns(columns), False)
    if "rating" not in source.columns and not run.config.law.all_cells:
        given = f"--columns {columns}" if columns else f"{path} has no rating column"
        raise InputError(f"{given}: expected user=NAME,item=NAME,rating=NAME, as the run is of ratings")
    with duckdb.connect() as db:
        create_raw(db)
        load(db, source, False)
        twice = db.execute(
            "SELECT user_id, item_id FROM raw GROUP BY ALL HAVING count(*) > 1 ORDER BY ALL LIMIT 5"
        ).fetchall()
        if twice:
            shown = ", ".join(f"({user}, {item})" for user, item in twice)
            raise InputError(f"{path} has several ratings of one pair of user and item: {shown}")
        found = db.execute(f"SELECT {kind}_id AS new, {_OTHER[kind]}_id AS old, rating FROM raw").fetchnumpy()
    names, others, values = (np.ma.getdata(found[name]) for name in ("new", "old", "rating"))
    try:
        folded, notes = fold_in(run, kind, names, others, values, data=data, seed=seed)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    return folded, [f"{path}: {note}" for note in notes]
