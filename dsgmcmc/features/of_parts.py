"""Features of users or items from the parts of their names: the value of each part is a category.

A pair of a station and a day that has no ratings is then predicted from what the model knows of the
station and of the day.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.features.described import Description, DescriptionTable
from dsgmcmc.features.encoders import FeaturesReport, apply, describe_encoded, learn
from dsgmcmc.features.encoding import Encoding
from dsgmcmc.ratings.format import Features
from dsgmcmc.ratings.names import part_sql
from dsgmcmc.settings import named
from dsgmcmc.tables.session import Session


def encode_parts(
    db: Session, entity: str, labels: Sequence[str], n: int
) -> tuple[Features | None, FeaturesReport]:
    """Make features of n users or items from the parts of their names.

    `db` has the table ``{entity}s`` (id, k). The features are None if no part can be a category:
    one with a single value, or with more values than half of the names.
    """
    described = DescriptionTable(
        Path(f"{entity} names"),
        entity,
        columns={label: f"c{k}" for k, label in enumerate(labels)},
        kinds=dict.fromkeys(labels, "category"),
        words={label: [] for label in labels},
        has_parts=True,
    )
    parts = [f"{part_sql('id', k, len(labels))} AS c{k}" for k in range(len(labels))]
    db.execute(f"CREATE TABLE {described.name} AS SELECT id, {', '.join(parts)} FROM {entity}s")
    encoding, left_out = learn(db, described, Description(None))
    if not encoding.names:
        return None, describe_encoded(None, encoding, notes=left_out)
    features = apply(db, described, encoding, n)
    report = describe_encoded(features, encoding, notes=left_out)
    report["parts"] = list(report["kinds"])
    return features, report


def joined_features(entity: str, described: Features, of_parts: Features) -> Features:
    """Return the features of users or items, followed by those of the parts of their names.

    Raises InputError if the former are a matrix.
    """
    from scipy.sparse import hstack  # slow to import

    first = Encoding.parse(described.encoding)
    if first.width:
        raise InputError(
            f"{entity}_features are a matrix, which does not go with features of the parts of"
            f" {entity} names: leave these out ({named('no_part_features')})"
        )
    second = Encoding.parse(of_parts.encoding)
    encoding = Encoding((*first.columns, *second.columns), first.separator)
    matrix = hstack([described.matrix(), of_parts.matrix()], "csr")
    matrix.sort_indices()
    return Features(
        indptr=matrix.indptr.astype(np.int64),
        indices=matrix.indices.astype(np.int32),
        values=matrix.data.astype(np.float32),
        names=tuple(encoding.names),
        groups=tuple(encoding.groups),
        encoding=encoding.dump(),
    )


def joined_reports(described: FeaturesReport, of_parts: FeaturesReport) -> FeaturesReport:
    """Return what the summary says about features, and about those of the parts of names."""
    return FeaturesReport(
        groups=described["groups"] | of_parts["groups"],
        kinds=described["kinds"] | of_parts["kinds"],
        unknown=0 if of_parts["parts"] else described["unknown"],
        unrated=described["unrated"],
        times=described["times"],
        groups_of_times=described["groups_of_times"],
        parts=of_parts["parts"],
        notes=described["notes"] + of_parts["notes"],
        doubts=described["doubts"] + of_parts["doubts"],
    )
