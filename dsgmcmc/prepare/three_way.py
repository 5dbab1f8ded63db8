"""Arranges a table of three directions as a matrix, in one of three ways.

`dsgmcmc.ratings.directions` lists them; `prepare` stores the first one as open. `arrange_ratings`
makes the ratings file of any from it: training and test ratings stay what they are, and the names
of pairs keep their parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from dsgmcmc.features.of_parts import encode_parts
from dsgmcmc.input.load import declare_raw
from dsgmcmc.input.roles import NAMED_ROLES
from dsgmcmc.input.sources.tables import add_columns
from dsgmcmc.prepare import arrange
from dsgmcmc.prepare.arrange import Entities
from dsgmcmc.prepare.merging import Merging, merge_ratings
from dsgmcmc.ratings.directions import Arrangement
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.ratings.format import (
    SIDES,
    SLAB,
    SPLITS,
    Features,
    Side,
    Split,
    row_slabs,
)
from dsgmcmc.ratings.names import join_sql
from dsgmcmc.ratings.writer import Origin, write_slabs
from dsgmcmc.tables.session import Session, interruptible, open_session
from dsgmcmc.types import Array, Int32


def arrange_ratings(ratings: Ratings, arrangement: Arrangement, out: Path) -> None:
    """Write the ratings of an open file, or of a view of it, in an arrangement.

    Pairs have features of their parts if the open file has such features.
    """
    with open_session(out.parent) as db:
        interruptible(db, lambda: _Arranging(db, ratings, arrangement, out).run())


class _Arranging:
    """Writes ratings in an arrangement, by the steps of `dsgmcmc.prepare.prepare`."""

    def __init__(self, db: Session, ratings: Ratings, arrangement: Arrangement, out: Path) -> None:
        self._db = db
        self._ratings = ratings
        self._labels = arrangement._asdict()
        self._out = out
        self._measures = _measures_of(ratings)

    def run(self) -> None:
        """Write the file."""
        ratings = self._ratings
        seed = ratings.seed
        self._load()
        entities = arrange.number_entities(self._db, seed, {}, self._labels)
        features = self._features(entities)
        merging = Merging(
            seed,
            "keep",
            measures=self._measures,
            grouped=ratings.grouped,
            keyed=False,
            tested=True,
        )
        repeated = merge_ratings(self._db, entities, merging)
        replicated = repeated.kept > 0
        ordered = arrange.sort_ratings(
            self._db,
            "test",
            n_rows=entities.n_rows,
            timestamps=False,
            temporal=False,
            replicated=replicated,
            measures=self._measures,
            grouped=ratings.grouped,
        )
        assert ratings.directions is not None
        directions = ratings.directions._replace(is_open=False)
        origin = Origin(
            seed=seed,
            transposed=entities.transposed,
            source=ratings.source,
            replicates=repeated.kept,
            columns=ratings.named_columns,
            grouped_by=ratings.grouped_by,
        )
        write_slabs(
            self._out,
            ordered.sizes(entities),
            {},
            arrange.slabs(self._db, ordered.indptr, replicated=replicated),
            parts=arrange.all_name_parts(self._db, entities, directions),
            features=features,
            origin=origin,
            force=True,
        )

    # ------------------------------------------------------------------ reading

    def _load(self) -> None:
        """Make the table ``raw`` of all ratings, with their names in the arrangement."""
        grouped = self._ratings.grouped
        declare_raw(self._db, dict.fromkeys(NAMED_ROLES, "TEXT"), grouped=grouped)
        add_columns(self._db, dict.fromkeys(self._measures, "DOUBLE"))
        others = list(self._measures)
        if grouped:
            others.append("group_id")
        sql_of_part = {}
        for side in SIDES:
            for number, label in enumerate(self._ratings.labels[side]):
                sql_of_part[label] = f"names_of_{side}.p{number}"
            self._db.execute(f"CREATE TABLE names_of_{side} AS {self._names(side)}")
        names = [
            join_sql([sql_of_part[label] for label in self._labels[entity]])
            for entity in NAMED_ROLES
        ]
        filled = ", ".join(["user_id", "item_id", "rating", "test", *others])
        found = ", ".join([*names, "rating", "test", *others])
        query = (
            f"INSERT INTO raw ({filled}) SELECT {found}"
            " FROM slab JOIN names_of_rows ON names_of_rows.k = slab.row"
            " JOIN names_of_cols ON names_of_cols.k = slab.col"
        )
        for slab in self._slabs():
            self._db.register("slab", slab)
            self._db.execute(query)
            self._db.unregister("slab")

    def _names(self, side: Side) -> str:
        """Return SQL of the names of a side: their numbers k, and their parts as text."""
        ratings = self._ratings
        parts = [ratings.ids(side)]
        if side in ratings.parts:
            parts = ratings.name_parts(side)
        columns: dict[str, Array] = {"k": np.arange(len(parts[0]))}
        columns |= {f"p{number}": part for number, part in enumerate(parts)}
        self._db.register("stored_names", columns)
        texts = [f"p{number}::VARCHAR AS p{number}" for number in range(len(parts))]
        return f"SELECT k, {', '.join(texts)} FROM stored_names"

    def _slabs(self) -> Iterator[dict[str, Array]]:
        """Yield the columns of some ratings at a time."""
        ratings = self._ratings
        indptrs = {"train": ratings.row_indptr, "test": ratings.test_indptr}
        for part in SPLITS:
            for start, stop in row_slabs(indptrs[part], SLAB):
                slab = ratings.slab(part, start, stop)
                columns: dict[str, Array] = {
                    "row": slab.rows + start,
                    "col": slab.indices,
                    "rating": slab.values.astype(np.float64),
                    "test": np.full(len(slab.values), part == "test"),
                }
                if ratings.mean_weight is not None:
                    columns["weight"] = ratings.stored_weights(part, start, stop)
                if ratings.has_bounds:
                    columns["lower"] = slab.values
                    columns["upper"] = slab.values
                    if slab.bounds is not None:
                        columns["lower"] = slab.bounds.lower
                        columns["upper"] = slab.bounds.upper
                if ratings.grouped:
                    columns["group_id"] = _groups(ratings, part, start, stop)
                yield columns

    def _features(self, entities: Entities) -> dict[Side, Features]:
        """Make the features of pairs from their parts."""
        features: dict[Side, Features] = {}
        if not self._ratings.features:
            return features
        for side, entity in entities.sides.items():
            if entity in entities.parts:
                labels: Sequence[str] = entities.labels[entity]
                found, _ = encode_parts(self._db, entity, labels, entities.sizes[entity])
                if found is not None:
                    features[side] = found
        return features


def _groups(ratings: Ratings, part: Split, start: int, stop: int) -> Int32:
    """Return the groups of a part's ratings in some rows; 0 if earlier files do not have them."""
    if part == "test" and not ratings.grouped_by:
        return np.zeros(np.diff(ratings.test_indptr[start : stop + 1]).sum(), np.int32)
    return ratings.groups(part, start, stop)


def _measures_of(ratings: Ratings) -> list[str]:
    """Return the columns that say more of a rating: its weight, and its bounds."""
    measures = []
    if ratings.mean_weight is not None:
        measures.append("weight")
    if ratings.has_bounds:
        measures += ["lower", "upper"]
    return measures
