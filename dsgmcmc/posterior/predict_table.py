"""Predicts a file of pairs in bounded memory; the output file is written atomically."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import duckdb
import numpy as np

from dsgmcmc.data.pairs import PairsTable, chunks, load_pairs
from dsgmcmc.data.session import interruptible, open_session
from dsgmcmc.data.tables import append_results, output_format, write_query
from dsgmcmc.errors import InputError
from dsgmcmc.posterior.draws import KINDS
from dsgmcmc.posterior.names import unknown_names
from dsgmcmc.posterior.predict import PredictOptions, Predictor
from dsgmcmc.posterior.run import Run

Unknown = Literal["refuse", "prior"]
_QUERY = "SELECT pairs.*, results.* FROM pairs POSITIONAL JOIN results"


def predict_table(
    run: Run,
    pairs: Path,
    out: Path | None,
    options: PredictOptions,
    *,
    unknown: Unknown = "refuse",
    columns: Mapping[str, str] | None = None,
) -> dict[str, int]:
    """Predict a file of pairs. Raises InputError if an argument is invalid; then no file is written.

    Parameters
    ----------
    out : Path or None
        CSV or Parquet, by the suffix; None writes CSV to standard output.
    unknown : {"refuse", "prior"}
        Treatment of unknown users and items: raise an error that names the first five, or predict from the prior.
    columns : dict of "user" and "item" to str, optional
        Columns of users and items, by name or position from 1; detected by default.

    Returns
    -------
    dict
        ``pairs``, the number of pairs, and ``unknown``, the number of pairs with an unknown side.
    """
    output_format(out)
    predictor = Predictor(run, options)
    folder = out.parent if out else Path(tempfile.gettempdir())

    def work(db: duckdb.DuckDBPyConnection) -> dict[str, int]:
        table = load_pairs(db, pairs, columns or {})
        taken = {name.lower() for name in table.columns} & set(predictor.names)
        if taken:
            raise InputError(f"{table.path} has a column {min(taken)!r}, which the predictions need: rename it")
        if unknown == "refuse":
            _refuse_unknown(db, table, predictor)
        number = unseen = 0
        for names in chunks(db, table, (run.users.integers, run.items.integers)):
            users, items = (predictor.index_of(kind, ids) for kind, ids in zip(KINDS, names, strict=True))
            append_results(db, predictor.columns(users, items))
            number += len(users)
            unseen += int(np.count_nonzero((users < 0) | (items < 0)))
        write_query(db, _QUERY, out)
        return {"pairs": number, "unknown": unseen}

    with open_session(folder) as db:
        return interruptible(db, lambda: work(db))


def _refuse_unknown(db: duckdb.DuckDBPyConnection, table: PairsTable, predictor: Predictor) -> None:
    """Raise InputError if users or items are unknown, before predictions begin."""
    missing: dict[str, Counter[Any]] = {kind: Counter() for kind in KINDS}
    for names in chunks(db, table, (predictor.run.users.integers, predictor.run.items.integers)):
        for kind, ids in zip(KINDS, names, strict=True):
            missing[kind].update(ids[predictor.index_of(kind, ids) < 0].tolist())
    messages = [str(unknown_names(kind, list(names))) for kind, names in missing.items() if names]
    if messages:
        raise InputError(
            f"{table.path}: {'; '.join(messages)}. Take them out, or predict them with --unknown prior{table.hint}"
        )
