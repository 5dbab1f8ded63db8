"""Predictions of a file of pairs, in bounded memory."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.input.roles import parse_columns
from dsgmcmc.posterior.cells.predict import Predictor
from dsgmcmc.posterior.draws import ENTITIES
from dsgmcmc.posterior.index import refuse_unknown_in, shown
from dsgmcmc.posterior.run import integer_parts
from dsgmcmc.posterior.settings import PredictSettings, Unknown
from dsgmcmc.settings import named
from dsgmcmc.types import Array

if TYPE_CHECKING:  # loads DuckDB
    from dsgmcmc.input.pairs import PairsTable
    from dsgmcmc.tables.session import Session
    from dsgmcmc.tables.usual import Columns


def predict_table(
    predictor: Predictor, pairs: Path, out: Path | None, settings: PredictSettings
) -> dict[str, int]:
    """Predict a file of pairs in bounded memory, and write the predictions to a file atomically.

    Parameters
    ----------
    predictor : Predictor
        Its columns are added to those of the file.
    out : Path or None
        CSV or Parquet, by the suffix; None writes CSV to standard output.
    settings : PredictSettings
        If `unknown` is "refuse", an error names the first five unknown users and items. Columns of
        users and items may be those of the parts of their names.

    Returns
    -------
    dict
        ``pairs``, the number of pairs, and ``unknown``, the number of pairs with an unknown user or
        item.

    Raises
    ------
    InputError
        If an argument is invalid; then no file is written.
    """
    from dsgmcmc.input.roles import NAMED_ROLES
    from dsgmcmc.tables.session import interruptible, open_session
    from dsgmcmc.tables.written import output_format

    columns = parse_columns(settings.columns, NAMED_ROLES)
    output_format(out)
    if out is not None and out.resolve() == pairs.resolve():
        raise InputError(f"{out} is the input; give another name for the output")
    scratch = Path(tempfile.gettempdir())
    if out is not None:
        scratch = out.parent
    with open_session(scratch) as db:
        file = _PairsFile(db, predictor, pairs, columns)
        return interruptible(db, lambda: file.predict(out, settings.unknown))


@dataclass(frozen=True)
class _PairsFile:
    """A file of pairs that is read into a session of DuckDB, and predicted there.

    Attributes
    ----------
    db : Session
    predictor : Predictor
    path : Path
    columns : dict of str to str
        Columns of users and items that were given.
    """

    db: Session
    predictor: Predictor
    path: Path
    columns: Columns

    def predict(self, out: Path | None, unknown: Unknown) -> dict[str, int]:
        """Write the predictions to a file; return the counts of `predict_table`."""
        from dsgmcmc.input.pairs import load_pairs
        from dsgmcmc.tables.session import identifier
        from dsgmcmc.tables.written import append_results, write_query

        run = self.predictor.run
        table = load_pairs(
            self.db,
            self.path,
            self.columns,
            run.labels,
            directions=run.directions,
            said=run.reading.columns,
        )
        self._refuse_column_names(table)
        if unknown == "refuse":
            self._refuse_unknown(table)
        counts = {"pairs": 0, "unknown": 0}
        for user_ids, item_ids in self._chunks(table):
            users = self.predictor.index_of("user", user_ids)
            items = self.predictor.index_of("item", item_ids)
            if not counts["pairs"] and not self.columns and not table.file.header:
                known_names = np.any((users >= 0) | (items >= 0))
                if known_names and users[0] < 0 and items[0] < 0:
                    self._refuse_header(table, f"{shown(user_ids[0])}, {shown(item_ids[0])}")
            append_results(self.db, self.predictor.columns(users, items))
            counts["pairs"] += len(users)
            counts["unknown"] += int(np.count_nonzero((users < 0) | (items < 0)))
        named = ", ".join(f"c{k} AS {identifier(name)}" for k, name in enumerate(table.columns))
        write_query(self.db, f"SELECT {named}, results.* FROM pairs POSITIONAL JOIN results", out)
        return counts

    def _chunks(self, table: PairsTable) -> Iterator[list[Array]]:
        """Yield names of users and of items, some pairs at a time."""
        from dsgmcmc.input.pairs import chunks

        return chunks(self.db, table, integer_parts(self.predictor.run))

    def _refuse_column_names(self, table: PairsTable) -> None:
        """Raise InputError if a column has the name of a predicted column."""
        clashing = {name.lower() for name in table.columns} & set(self.predictor.names)
        if clashing:
            raise InputError(
                f"{table.file.path} has a column {min(clashing)!r}, the name of a predicted column:"
                " rename it"
            )

    def _refuse_unknown(self, table: PairsTable) -> None:
        """Raise InputError with the first users and items that are unknown to the run, if any."""
        unknown: dict[str, Counter[Any]] = {entity: Counter() for entity in ENTITIES}
        for names_of_pairs in self._chunks(table):
            for entity, names in zip(ENTITIES, names_of_pairs, strict=True):
                unknown[entity].update(names[self.predictor.index_of(entity, names) < 0].tolist())
        refuse_unknown_in(table.file.path, unknown, table.hint)

    @staticmethod
    def _refuse_header(table: PairsTable, names: str) -> None:
        """Raise InputError for a first line whose names are probably those of columns."""
        raise InputError(
            f"{table.file.path}: the run knows neither name in line 1 ({names}), but names in other"
            f" lines. {table.hint.strip()}; if it is a pair, give"
            f" {named('columns')} user=1,item=2"
        )
