"""Finds how missing cells lie in a table of three directions or more, as station x day x hour.

They miss one by one, or with their whole station and day. A test set of single cells measures how
single cells are predicted, and not whole days.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from math import prod
from typing import NamedTuple

from dsgmcmc.input.sources.tables import scalar
from dsgmcmc.prepare.arrange import Entities
from dsgmcmc.ratings.names import part_sql
from dsgmcmc.settings import named
from dsgmcmc.tables.session import Session

#: Share of the missing cells from which whole groups are said to be missing.
_MOST = 0.5
#: Largest share of it that may be expected if cells were missing one by one.
_BY_CHANCE = 0.5
_MOST_DIRECTIONS = 5
#: Share of missing cells above which a table has no holes: most of its cells never were.
_SPARSEST = 0.95


class Direction(NamedTuple):
    """A direction of a table: a part of the names of users or items.

    Attributes
    ----------
    label : str
        Column of the direction.
    entity : {"user", "item"}
    part : int
        Number of the part, from 0.
    size : int
        Number of its different values.
    """

    label: str
    entity: str
    part: int
    size: int

    @property
    def code(self) -> str:
        """SQL of the number of a value, in a join of ``cells`` with the tables of `_coded`."""
        return f"{self.entity}s_coded.d{self.part}"


class Holes(NamedTuple):
    """How most of the missing cells of a table miss.

    Attributes
    ----------
    group : tuple of Direction
        Directions of the groups of cells that miss as a whole.
    share : float
        Share of the missing cells that miss with their whole group.
    """

    group: tuple[Direction, ...]
    share: float

    @property
    def columns(self) -> list[str]:
        """Columns of the groups."""
        return [direction.label for direction in self.group]

    def __str__(self) -> str:
        """Say how cells are missing."""
        return (
            f"of the cells that are missing, {100 * self.share:.0f} % miss with their whole"
            f" ({', '.join(self.columns)})"
        )

    def advice(self) -> str:
        """Return what to write so that test ratings are held out in the same way."""
        return f"{self}: use {named('hold_out_by')} {'+'.join(self.columns)}"

    def note(self) -> str:
        """Say that ratings are held out in the same way."""
        return f"{self}: so models are compared by whole ({', '.join(self.columns)})"


def find_holes(
    db: Session, entities: Entities, *, replicates: int = 0, has_tests: bool = False
) -> Holes | None:
    """Find the groups with which most cells that are missing from ``cells`` miss as a whole.

    If ``cells`` `has_tests`, test ratings count as missing. `replicates` is the number of ratings
    beyond the first of their pair. Returns None if cells do not miss so, or if the table has two
    directions.
    """
    labels = entities.labels
    if not 2 < sum(map(len, labels.values())) <= _MOST_DIRECTIONS:
        return None
    directions = list(_directions(db, labels))
    n_cells = prod(direction.size for direction in directions)
    known = "cells"
    if has_tests:
        known = "(FROM cells WHERE NOT test)"
    n_known = int(scalar(db, f"SELECT count(*) FROM {known}"))
    n_missing = n_cells - n_known + replicates
    share_missing = n_missing / n_cells
    if not 0 < share_missing <= _SPARSEST:
        return None
    for group in _groups(directions):
        n_groups = prod(direction.size for direction in group)
        cells_of_group = n_cells // n_groups
        by_chance = share_missing ** (cells_of_group - 1)
        if by_chance >= _BY_CHANCE * _MOST:
            continue
        n_empty = n_groups - _count_groups(db, entities, group, known)
        share = n_empty * cells_of_group / n_missing
        if share >= _MOST and by_chance < _BY_CHANCE * share:
            return Holes(group, share)
    return None


def _directions(db: Session, labels: Mapping[str, tuple[str, ...]]) -> Iterator[Direction]:
    """Yield the directions of the table, those of users first."""
    for entity, labels_of_entity in labels.items():
        n_parts = len(labels_of_entity)
        for part, label in enumerate(labels_of_entity):
            value = part_sql("id", part, n_parts)
            size = int(scalar(db, f"SELECT count(DISTINCT {value}) FROM {entity}s"))
            yield Direction(label, entity, part, size)


def _groups(directions: Sequence[Direction]) -> Iterator[tuple[Direction, ...]]:
    """Yield the sets of two directions and more, without that of all."""
    for number in range(2, len(directions)):
        yield from combinations(directions, number)


def _count_groups(db: Session, entities: Entities, group: Sequence[Direction], known: str) -> int:
    """Count the groups of cells that have a known cell, given SQL of these."""
    codes = ", ".join(direction.code for direction in group)
    joins = []
    for side, entity in zip(("row", "col"), entities.sides.values(), strict=True):
        if any(direction.entity == entity for direction in group):
            coded = _coded(entity, entities.n_parts(entity))
            joins.append(f"JOIN ({coded}) {entity}s_coded ON {entity}s_coded.k = {side}")
    query = f"SELECT DISTINCT {codes} FROM {known} {' '.join(joins)}"
    return int(scalar(db, f"SELECT count(*) FROM ({query})"))


def _coded(entity: str, n_parts: int) -> str:
    """Return SQL of a table of users or items with a number for each part of a name."""
    codes = [
        f"dense_rank() OVER (ORDER BY {part_sql('id', part, n_parts)}) AS d{part}"
        for part in range(n_parts)
    ]
    return f"SELECT k, {', '.join(codes)} FROM {entity}s"
