"""Pairs of users and items that must not be recommended, such as what somebody bought elsewhere."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dsgmcmc.input.arrays import list_names, read_pairs
from dsgmcmc.input.roles import names_pairs
from dsgmcmc.input.titles import read_names
from dsgmcmc.posterior.cells.fitted_rows import FittedRows
from dsgmcmc.posterior.rows.added import index_with
from dsgmcmc.posterior.run import Run, integer_parts
from dsgmcmc.tables.frames import as_frame
from dsgmcmc.types import Array, Int32

#: Names of items, or users and items of pairs, (n,) each.
Exclusions = list[Any] | tuple[Array, Array]


def excluded_in_file(run: Run, file: Path) -> Exclusions:
    """Return the items in a file; or its pairs, if the first line names columns of both."""
    from dsgmcmc.input.pairs import chunks, load_pairs  # DuckDB is slow to import
    from dsgmcmc.tables.session import open_small_session

    names = read_names(file)
    if not names_pairs(re.split(r"[,;\t|]", names[0])):
        return names
    with open_small_session() as db:
        table = load_pairs(db, file, {}, run.labels, directions=run.directions)
        parts = list(chunks(db, table, integer_parts(run)))
    users, items = map(np.concatenate, zip(*parts, strict=True))
    return users, items


def excluded_in_memory(run: Run, names: object) -> Exclusions:
    """Return items, or the pairs of a data frame with columns of users and items."""
    frame = as_frame(names)
    if names_pairs(getattr(frame, "columns", ())):
        users, items = read_pairs(frame, labels=run.labels, directions=run.directions)
        return users, items
    return list_names(names, "item", run.items.parts)


def by_user(
    model: FittedRows, pairs: tuple[Array, Array], tell: Callable[[str], None]
) -> dict[int, Int32]:
    """Return the rows of the items of every user, by row; `tell` gets a note on unknown names."""
    users = index_with(model.run.users, pairs[0], model.newcomers)
    items = model.run.items.index_of(pairs[1])
    is_known = (users >= 0) & (items >= 0)
    n_unknown = int((~is_known).sum())
    if n_unknown:
        tell(f"exclude: {n_unknown} pair(s) left out: the run does not know their user or item")
    users = users[is_known]
    order = np.argsort(users, kind="stable")
    distinct, first = np.unique(users[order], return_index=True)
    of_users = np.split(items[is_known][order], first[1:])
    return dict(zip(distinct.tolist(), of_users, strict=True))
