"""New users or items from a file of their ratings: predictions and recommendations for them."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np

from dsgmcmc.data.ingest.load import create_raw, load
from dsgmcmc.data.ingest.sources import inspect, parse_columns
from dsgmcmc.errors import InputError
from dsgmcmc.posterior.foldin import FoldIn
from dsgmcmc.posterior.names import Names
from dsgmcmc.posterior.predict import unknown_names
from dsgmcmc.posterior.run import Run

_OTHER = {"user": "item", "item": "user"}


def fold_in_file(run: Run, path: Path, kind: str, columns: str | None = None, seed: int = 0) -> FoldIn:
    """Fold in what a file of ratings has.

    Parameters
    ----------
    run : Run
    path : Path
        Ratings in any of the formats that ``prepare`` reads, by original names.
    kind : {"user", "item"}
        What is new.
    columns : str, optional
        ``user=U,item=I,rating=R``; detected by default.
    seed : int

    Raises
    ------
    InputError
        If the file is wrong, a new name is known already, another is unknown, or a pair is there twice.
    """
    if not path.exists():
        raise InputError(f"{path} does not exist")
    other = _OTHER[kind]
    with duckdb.connect() as db:
        create_raw(db)
        load(db, inspect(path, None, parse_columns(columns), False), False)
        twice = db.execute(
            "SELECT user_id, item_id FROM raw GROUP BY ALL HAVING count(*) > 1 ORDER BY ALL LIMIT 5"
        ).fetchall()
        if twice:
            shown = ", ".join(f"({user}, {item})" for user, item in twice)
            raise InputError(f"{path} has several ratings of one pair of user and item: {shown}")
        found = db.execute(f"SELECT {kind}_id AS new, {other}_id AS old, rating FROM raw").fetchnumpy()
    new, old = (np.ma.getdata(found[name]) for name in ("new", "old"))
    if run.names(kind).integers:
        try:
            new = np.array([int(name) for name in new], np.int64)
        except (ValueError, OverflowError):
            raise InputError(f"{path}: not all {kind}s are integers, as those of the run are") from None
    places = run.names(other).places(old)
    if (places < 0).any():
        raise InputError(f"{path}: {unknown_names(other, list(dict.fromkeys(old[places < 0].tolist())))}")
    ids, rows = np.unique(new.astype(str) if new.dtype == object else new, return_inverse=True)
    names = Names(kind, ids if ids.dtype == np.int64 else ids.astype(object))
    return FoldIn(run, kind, names, rows, places, np.ma.getdata(found["rating"]), seed)
