"""Predict a file of pairs, in bounded memory, to a file that is written atomically."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import duckdb
import numpy as np
import numpy.typing as npt

from dsgmcmc.data.pairs import PairColumns, PairsTable, chunk_count, chunks, load_pairs
from dsgmcmc.data.session import MINIMUM, default_memory, open_session
from dsgmcmc.data.tables import append_results, output_format, write_query
from dsgmcmc.errors import InputError
from dsgmcmc.parallel.comm import agree
from dsgmcmc.posterior.draws import KINDS
from dsgmcmc.posterior.names import unknown_names
from dsgmcmc.posterior.predict import PredictOptions, Predictor
from dsgmcmc.posterior.saved import SavedRun
from dsgmcmc.types import Comm, Float32, Int32

Unknown = Literal["refuse", "prior", "nan"]
_PREFIX = ".dsgmcmc-predict-"
_QUERY = "SELECT pairs.*, results.* FROM pairs POSITIONAL JOIN results"


def predict_table(
    run: SavedRun,
    pairs: Path,
    out: Path | None,
    options: PredictOptions,
    *,
    unknown: Unknown = "refuse",
    columns: PairColumns | None = None,
    comm: Comm | None = None,
) -> dict[str, Any]:
    """Predict a file of pairs. Collective if `comm` is given: its processes, which see the same files, share the work.

    Raises InputError if an argument is wrong; then nothing is written.

    Parameters
    ----------
    out : Path or None
        CSV or Parquet, by the suffix; None writes CSV to standard output.
    unknown : {"refuse", "prior", "nan"}
        Users and items that the run does not know: raise an error that names five, predict from the prior, or leave
        empty.
    columns : PairColumns, optional
        Columns of the users and the items; detected by default.

    Returns
    -------
    dict
        ``pairs``, and ``unknown``: pairs with an unknown side.
    """
    columns = columns or PairColumns()
    if comm is not None and comm.size > 1:
        return _predict_together(comm, run, pairs, out, options, unknown, columns)
    output_format(out)
    predictor = Predictor(run, options)
    folder = out.parent if out else Path(tempfile.gettempdir())
    with (
        open_session(folder, default_memory()) as (db, _),
        tempfile.TemporaryDirectory(prefix=_PREFIX, dir=folder) as scratch,
    ):
        table = load_pairs(db, pairs, columns)
        number = unseen = 0
        for _, values, missing in _predictions(db, table, predictor, unknown, (0, 1)):
            append_results(db, values)
            number, unseen = number + len(values["mean"]), unseen + missing
        write_query(db, _QUERY, out, Path(scratch))
    return {"pairs": number, "unknown": unseen}


def _predict_together(
    comm: Comm,
    run: SavedRun,
    pairs: Path,
    out: Path | None,
    options: PredictOptions,
    unknown: Unknown,
    columns: PairColumns,
) -> dict[str, Any]:
    """Predict with several processes, chunk by chunk in turns; process 0 writes. Collective."""
    at_root = comm.rank == 0
    folder = out.parent if out else Path.cwd()  # all processes see it

    def begin() -> str:
        output_format(out)
        return tempfile.mkdtemp(prefix=_PREFIX, dir=folder) if at_root else ""

    scratch = Path(comm.bcast(agree(comm, begin, "predict"), root=0))
    with ExitStack() as stack:
        if at_root:
            stack.callback(shutil.rmtree, scratch, ignore_errors=True)

        def share() -> tuple[duckdb.DuckDBPyConnection, Predictor, int, int]:
            predictor = Predictor(run, options)
            memory = max(default_memory() // comm.size, MINIMUM)
            db, _ = stack.enter_context(open_session(folder, memory, 1))
            table = load_pairs(db, pairs, columns)
            number = unseen = 0
            for k, values, missing in _predictions(db, table, predictor, unknown, (comm.rank, comm.size)):
                np.save(scratch / f"{k}.npy", np.stack(list(values.values())), allow_pickle=False)
                number, unseen = number + len(values["mean"]), unseen + missing
            return db, predictor, number, unseen

        db, predictor, number, unseen = agree(comm, share, "predict")
        number, unseen = comm.allreduce(number), comm.allreduce(unseen)

        def write() -> None:
            for k in range(chunk_count(number)):
                values = np.load(scratch / f"{k}.npy", allow_pickle=False)
                append_results(db, dict(zip(predictor.names, values, strict=True)))
            write_query(db, _QUERY, out, scratch)

        agree(comm, write if at_root else lambda: None, "predict")
    return {"pairs": number, "unknown": unseen}


def _predictions(
    db: duckdb.DuckDBPyConnection, table: PairsTable, predictor: Predictor, unknown: Unknown, share: tuple[int, int]
) -> Iterator[tuple[int, dict[str, Float32], int]]:
    """Predict the chunks of a table whose number is `share[0]` modulo `share[1]`.

    Yields
    ------
    number : int
        Of the chunk.
    values : dict of str to (q,) float32
        As of `Predictor.columns`.
    unknown : int
        Pairs with a side that the run does not know.
    """
    run, names = predictor.run, predictor.names
    taken = {name.lower() for name in table.columns} & set(names)
    if taken:
        raise InputError(f"{table.path} has a column {min(taken)!r}, which the predictions need: rename it")
    if unknown == "refuse":
        _refuse_unknown(db, table, predictor)
    for k, sides in enumerate(chunks(db, table, (run.users.integers, run.items.integers))):
        if k % share[1] != share[0]:
            continue
        users, items = _rows(predictor, sides)
        missing = (users < 0) | (items < 0)
        values = predictor.columns(users, items)
        if unknown == "nan":
            for column in values.values():
                column[missing] = np.nan
        yield k, values, int(missing.sum())


def _rows(predictor: Predictor, sides: list[npt.NDArray[Any]]) -> tuple[Int32, Int32]:
    users, items = (predictor.index_of(kind, ids) for kind, ids in zip(KINDS, sides, strict=True))
    return users, items


def _refuse_unknown(db: duckdb.DuckDBPyConnection, table: PairsTable, predictor: Predictor) -> None:
    """Raise for users or items that are unknown, before anything is predicted."""
    missing: dict[str, Counter[Any]] = {kind: Counter() for kind in KINDS}
    for sides in chunks(db, table, (predictor.run.users.integers, predictor.run.items.integers)):
        for kind, ids, index in zip(KINDS, sides, _rows(predictor, sides), strict=True):
            missing[kind].update(ids[index < 0].tolist())
    messages = [str(unknown_names(kind, list(names))) for kind, names in missing.items() if names]
    if messages:
        raise InputError(
            f"{table.path}: {'; '.join(messages)}. Take them out, or predict them with --unknown prior, or leave them "
            f"empty with --unknown nan{table.hint}"
        )
