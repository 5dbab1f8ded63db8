"""New ratings and features of users or items, read in the forms in which `BPMF` reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dsgmcmc.errors import InputError, refusing
from dsgmcmc.model.likelihoods.ordinal.ordinal import MAX_THRESHOLDS
from dsgmcmc.posterior.draws import OTHER
from dsgmcmc.posterior.index import Vocabulary
from dsgmcmc.posterior.rows.name_features import name_features_of
from dsgmcmc.posterior.run import Run
from dsgmcmc.ratings.float32 import find_bad_scale
from dsgmcmc.ratings.names import array_of, names_of
from dsgmcmc.ratings.pairs import join
from dsgmcmc.ratings.reading import Reading
from dsgmcmc.settings import named
from dsgmcmc.terminal import warn
from dsgmcmc.types import Array, Float64

if TYPE_CHECKING:  # slow to import
    from scipy.sparse import csr_matrix

    from dsgmcmc.tables.usual import Columns


class NewRatings(NamedTuple):
    """New ratings and features of users or items.

    Attributes
    ----------
    entity : {"user", "item"}
        What the rows that are computed stand for.
    names, others, values : (n,) array
        Original names of the user (or item) and of the item (or user) of each rating, and the
        ratings. If a pair has several ratings, the last one counts, unless the run has replicates.
    weights : (n,) float64
        Weights of the ratings, 1 without a column of weights, where the mean of the training
        ratings is 1.
    described : dict of name to (1, F) sparse matrix
        Features of users (or items) by original name, with or without ratings, from `describe_new`.
    bounds : (n, 2) float64 or None
        Lower and upper bounds of the ratings, equal if they are exact; None if all are. `values` of
        others are between them.
    """

    entity: str
    names: Array
    others: Array
    values: Array
    weights: Array
    described: dict[Any, csr_matrix]
    bounds: Float64 | None = None

    @classmethod
    def of(
        cls,
        run: Run,
        entity: str,
        read: Mapping[str, Array] | None,
        described: dict[Any, csr_matrix],
    ) -> NewRatings:
        """Return new ratings that were read, if there are some, and described rows.

        Raises InputError if the run cannot use them.
        """
        if read is None:
            no_names = np.zeros(0, object)
            return cls(entity, no_names, no_names, np.zeros(0), np.zeros(0), described)
        values = read["rating"]
        bad_scale = find_bad_scale(values.min(), values.max())
        if bad_scale:
            raise InputError(bad_scale)
        bounds = bounds_of(run, read)
        return cls(
            entity=entity,
            names=names_of(read, entity),
            others=names_of(read, OTHER[entity]),
            values=values,
            weights=weights_of(run, read),
            described=described,
            bounds=None if bounds is None else np.column_stack(bounds),
        )

    def doubts(self, run: Run) -> list[str]:
        """Return notes on pairs that come twice, and on ratings outside the training ratings.

        Values that are not levels may be outside by the width of the training ratings' range.
        """
        notes = []
        pairs = set(zip(self.names.tolist(), self.others.tolist(), strict=True))
        repeated = len(self.values) - len(pairs)
        if repeated and not run.facts.get("replicates"):
            notes.append(
                f"{repeated} rating(s) left out: later ratings of the same pairs replace them"
            )
        low = float(run.facts["minimum"])
        high = float(run.facts["maximum"])
        margin = high - low
        if run.levels is not None and len(run.levels) <= MAX_THRESHOLDS:
            margin = 0.0
        outside = np.count_nonzero((self.values < low - margin) | (self.values > high + margin))
        if outside:
            notes.append(
                f"{outside} new rating(s) are outside the training ratings, which are {low:g} to"
                f" {high:g}"
            )
        return notes

    def updated(self, later: NewRatings) -> NewRatings:
        """Return these ratings and features with later ones.

        Raises InputError if one has users and the other has items.
        """
        if self.entity != later.entity:
            raise InputError(
                f"this model has folded-in {self.entity}s: fold in {later.entity}s from the run"
                " itself"
            )
        return join([self, later])._replace(described=self.described | later.described)


def read_new(run: Run, X: Any, y: Any, form: Reading) -> dict[str, Array]:
    """Read new ratings for a run, as `dsgmcmc.input.arrays.read_ratings` does; clicks are 1.

    Raises InputError if the run has other ratings than clicks, and these are pairs alone.
    """
    from dsgmcmc.input.arrays import read_ratings

    return with_clicks(run, read_ratings(X, y, form))


def with_clicks(run: Run, read: dict[str, Array]) -> dict[str, Array]:
    """Return new ratings for a run; pairs alone are clicks.

    Raises InputError as `read_new` does.
    """
    if "rating" in read:
        return read
    if not float(run.facts["minimum"]) == float(run.facts["maximum"]) == 1:
        raise InputError(
            "these are pairs without ratings, unlike those of the run: name the column of ratings,"
            f" {named('columns')} rating=NAME, or in Python give y"
        )
    clicks = np.ones(len(read["user"]))
    return read | {"rating": clicks}


def weights_of(run: Run, ratings: Mapping[str, Array]) -> Float64:
    """Return the weights of new ratings, with the mean of the training ratings as 1.

    Warns if the run has weights, and these ratings have none; they count as 1. Raises InputError if
    there are weights, and the run has none.
    """
    weights = ratings.get("weight")
    if weights is None:
        warn_without_weights(run)
        return np.ones(len(ratings["user"]))
    if run.facts.get("mean_weight") is None:
        raise InputError(f"{run.path} was sampled without weights: leave out the column of weights")
    return np.asarray(weights / run.facts["mean_weight"])


def warn_without_weights(run: Run) -> None:
    """Warn of ratings that have no weights, if the run has some."""
    if run.facts.get("mean_weight") is None:
        return
    column = run.columns.get("weight", "W")
    warn(
        "these ratings have no weights, unlike those of the run: they count as measurements of"
        f" average weight; give them in a column {column}, and {named('columns')}"
        " weight=NAME if it has another name"
    )


def bounds_of(run: Run, ratings: Mapping[str, Array]) -> tuple[Float64, Float64] | None:
    """Return the bounds of ratings by role, equal if they are exact; None if all are.

    Raises InputError if the run is of a likelihood that is not for measurements.
    """
    if "lower" not in ratings:
        return None
    if not run.config.law.takes_bounds:
        raise InputError(
            f"{run.path}: {run.config.likelihood} is not for measurements, and some ratings are"
            " known only by bounds: leave them out"
        )
    values = ratings["rating"]
    is_exact = np.isnan(ratings["lower"])
    return (
        np.where(is_exact, values, ratings["lower"]),
        np.where(is_exact, values, ratings["upper"]),
    )


def _refuse_known_rows(vocabulary: Vocabulary, names: Array) -> None:
    """Raise InputError if rows of a matrix without names would describe known users (or items).

    Their numbers are no names that anybody gave: the rows of a new matrix begin at 0, as those of
    the matrix of the run do.
    """
    known = names[vocabulary.index_of(names) >= 0]
    if len(known):
        entity = vocabulary.entity
        raise InputError(
            f"the rows of the matrix of features have no names, and by their numbers"
            f" {len(known):,} of them are {entity}s that the model knows, such as {known[0]}: give"
            " the names, features=(names, matrix)"
        )


def describe_new(
    run: Run, entity: str, features: Any, columns: str | Columns | None = None
) -> dict[Any, csr_matrix]:
    """Encode new features with the run's encoding; return a (1, F) sparse matrix for each name.

    `features` is a Description, or any argument of `dsgmcmc.features.arrays.read_features`.
    Kinds and separator of a Description are ignored, because columns keep their kinds in the run.
    Raises InputError if the run has no features of this entity or no encoding of them, or if the
    file is invalid.
    """
    from dsgmcmc.features.arrays import read_features, sparse_matrix
    from dsgmcmc.features.described import Description
    from dsgmcmc.features.encoders import encode_new
    from dsgmcmc.features.encoding import Encoding

    if not run.feature_names(entity):
        raise InputError(
            f"features of {entity}s are given, but {run.path} was sampled without them: leave them"
            f" out, or sample again, on ratings with {named(f'{entity}_features')}"
        )
    with refusing(f"{run.path} cannot be used for new features of {entity}s", ValueError):
        encoding = Encoding.parse(run.index.encoding(entity)[0])
    vocabulary = run.vocabulary(entity)
    of_names = name_features_of(run, entity)
    if of_names is not None:
        encoding = of_names.without_names(encoding)
    if encoding.width and type(features) is tuple and len(features) == 2:
        features = (features[0], sparse_matrix(features[1]))
    description = features
    if not isinstance(features, Description):
        description = read_features(
            features, entity, encoding.separator, columns=columns, parts=vocabulary.parts
        )
    if vocabulary.parts:
        description = description._replace(parts=vocabulary.parts)
    names, encoded = encode_new(entity, description, encoding, integers=vocabulary.integers)
    if vocabulary.integers:
        names = names.astype(np.int64)
    if vocabulary.parts:
        names = vocabulary.typed(array_of(tuple(name.split("\0")) for name in names.tolist()))
    if encoding.width and description.names is None:
        _refuse_known_rows(vocabulary, names)
    matrix = encoded.matrix()
    if of_names is not None:
        matrix = of_names.with_names(matrix, names.tolist())
    return dict(zip(names.tolist(), matrix, strict=True))
