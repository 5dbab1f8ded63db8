r"""Folds in users or items with new ratings: computes their exact posterior given each saved draw.

The chain is not continued. Given a draw, the ratings x of a row depend on the other side only
through phi_j = (H_j, 1), so theta of the row, with prior N(m, Lambda^-1), has the normal
distribution [Salakhutdinov 2008, eq. 11]

    precision  Lambda* = Lambda + tau sum_j g'_j phi_j phi_j^T
    mean       Lambda*^-1 (Lambda m + tau sum_j g'_j (x_j - mu - b_j) phi_j)

where g'_j is the noise scale of H_j. The mean m includes the implicit features from the items that
the row rated, if the model has them, and the term B^T f from the features f of the row. A row
without ratings has its prior distribution, which depends only on its features.

The mixture over all saved draws is the posterior of the row given its ratings and the old ratings
of all other rows. The only approximation is that the new ratings do not change other parameters.
For a row that the run knows, x has both the old ratings and the new ratings. If rows have
individual noise scales, theta | g and g | theta ~ Gamma((nu + n) / 2, (nu + tau SSE) / 2) are drawn
in turns, `GIBBS_TURNS` times from g = 1, with n the number of ratings of the row and SSE the sum of
its squared residuals times g'_j; the distribution of theta given the last g is used.

If the model has levels of time, it is unknown which new ratings were given together. Their effects
of time are taken to be independent, so that the noise variance is 1 / (tau g') + sum_l 1 / lambda_l
in place of 1 / (tau g'), with lambda_l the precision of the effects of level l. Under likelihoods
that are not conditionally normal, the likelihood of a rating is integrated over the effects.

New ratings of rows that the run knows are added to the old ratings, and replace old ratings of
equal pairs; this needs the ratings file. New features are encoded by the encoding of the run's
features, and centred by their means. A row that the run knows keeps its features from the ratings
file, unless new features are given.

**Ordinal ratings and counts.** The distribution of a row is not normal. Therefore the row is drawn
once at each saved draw (`dsgmcmc.posterior.drawn_rows`), with individual scale and thresholds if
the model has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.random import Generator

from dsgmcmc.data.precision import find_bad_scale
from dsgmcmc.data.ratings import Ratings
from dsgmcmc.data.ratings_format import SIDES, SLAB, Features, row_slabs
from dsgmcmc.errors import InputError, refusing
from dsgmcmc.model.likelihoods import Law
from dsgmcmc.model.likelihoods.ordinal import MAX_THRESHOLDS
from dsgmcmc.model.parts import PARTS
from dsgmcmc.posterior.drawn_rows import RatedRow, Spread, draw_rows
from dsgmcmc.posterior.draws import OTHER, Draw, RowDistributions
from dsgmcmc.posterior.names import Vocabulary, unknown_names
from dsgmcmc.posterior.run import Run
from dsgmcmc.types import Array, Float32, Float64, Int32

if TYPE_CHECKING:  # slow to import
    from scipy.sparse import csr_matrix

GIBBS_TURNS = 10  # draws of g and theta in turns
TOGETHER = 256  # rows whose ratings are in memory at a time


class NewRatings(NamedTuple):
    """New ratings and features of users or items.

    Attributes
    ----------
    entity : {"user", "item"}
        Kind of the rows that are computed.
    names, others, values : (n,) array
        Original names of the user (or item) and of the item (or user) of each rating, and the
        ratings. If a pair has several ratings, the last one counts.
    described : dict of name to (1, F) sparse matrix
        Features of users (or items) by original name, with or without ratings, from `describe_new`.
    """

    entity: str
    names: Array
    others: Array
    values: Array
    described: dict[Any, csr_matrix]

    @classmethod
    def read(cls, run: Run, X: Any, y: Any, entity: str, features: Any, *form: Any) -> NewRatings:
        """Read ratings and features in the form of `dsgmcmc.posterior.fitted.FittedModel.fold_in`.

        `form` are the arguments `columns`, `matrix` and `missing` of `BPMF`. Raises InputError if
        both are missing, or if one is invalid.
        """
        from dsgmcmc.data.arrays import InputForm, read_ratings

        if X is None and features is None:
            raise InputError("nothing to fold in: give ratings, features, or both")
        described = {} if features is None else describe_new(run, entity, features, *form[:1])
        if X is None:
            no_names = np.zeros(0, object)
            return cls(entity, no_names, no_names, np.zeros(0), described)
        given = read_ratings(X, y, InputForm(*form)).columns
        run.vocabulary(entity)  # checks the entity
        values = given.get("rating", np.ones(len(given[entity])))
        if bad := find_bad_scale(values.min(), values.max()):
            raise InputError(bad)
        return cls(entity, given[entity], given[OTHER[entity]], values, described)

    def doubts(self, run: Run) -> list[str]:
        """Return notes on pairs that come twice, and on ratings outside the training ratings.

        Values that are not levels may be outside by the width of the training ratings' range.
        """
        low, high = float(run.facts["minimum"]), float(run.facts["maximum"])
        margin = 0.0 if run.levels is not None and len(run.levels) <= MAX_THRESHOLDS else high - low
        notes, n = list[str](), len(self.values)
        if repeated := n - len(set(zip(self.names.tolist(), self.others.tolist(), strict=True))):
            notes.append(
                f"{repeated} rating(s) left out: later ratings of the same pairs replace them"
            )
        if outside := np.count_nonzero(
            (self.values < low - margin) | (self.values > high + margin)
        ):
            notes.append(
                f"{outside} new rating(s) are outside the training ratings, which are {low:g} to"
                f" {high:g}"
            )
        return notes

    def updated(self, later: NewRatings) -> NewRatings:
        """Return these ratings and features with later ones; raise InputError if the entities differ."""
        if self.entity != later.entity:
            raise InputError(
                f"this model has folded-in {self.entity}s: fold in {later.entity}s from the run itself"
            )
        names, others, values = (
            np.concatenate([a, b]) for a, b in zip(self[1:4], later[1:4], strict=True)
        )
        return NewRatings(self.entity, names, others, values, self.described | later.described)


def describe_new(
    run: Run, entity: str, given: Any, columns: str | None = None
) -> dict[Any, csr_matrix]:
    """Encode new features with the run's encoding; return a (1, F) sparse matrix for each name.

    `given` is a Description, or any argument of `dsgmcmc.data.arrays.read_features`. Kinds and
    separator of a Description are ignored, because columns keep their kinds in the run. Raises
    InputError if the run has no features of this entity or no encoding of them, or if the file is
    invalid.
    """
    from dsgmcmc.data.arrays import read_features
    from dsgmcmc.data.descriptions import Description
    from dsgmcmc.data.encoding import Encoding
    from dsgmcmc.data.features import encode_new

    if not run.feature_names(entity):
        advice = f"leave them out, or prepare the ratings with --{entity}-features and sample again"
        raise InputError(
            f"features of {entity}s are given, but {run.path} was sampled without them: {advice}"
        )
    with refusing(f"{run.path} cannot be used for new features of {entity}s", ValueError):
        encoding = Encoding.parse(run.index.encoding(entity)[0])
    integers = run.vocabulary(entity).integers
    if not isinstance(given, Description):
        given = read_features(given, entity, encoding.separator, columns)
    names, features = encode_new(entity, given, encoding, integers=integers)
    keys = (names.astype(np.int64) if integers else names).tolist()
    return dict(zip(keys, features.matrix(), strict=True))


# ---------------------------------------------------------- new ratings with the ratings of the run


def fold_in(run: Run, new: NewRatings, data: Path | None = None) -> tuple[FoldIn, list[str]]:
    """Fold in new ratings and new features.

    Parameters
    ----------
    run : Run
    new : NewRatings
    data : Path, optional
        Path of the run's ratings file, if it was moved; it is needed for rows that the run knows.

    Returns
    -------
    FoldIn
    notes : list of str
        Notes on ratings that are left out, because the run does not know the item (or user).

    Raises
    ------
    InputError
        If a name has the wrong type, nothing is left to fold in, or a known row needs the missing
        ratings file.
    """
    vocabulary, other = run.vocabulary(new.entity), run.vocabulary(OTHER[new.entity])
    others, notes = other.index_of(new.others), list[str]()
    used = others >= 0
    if not used.all():
        unknown = list(dict.fromkeys(new.others[~used].tolist()))
        notes.append(
            f"{int((~used).sum())} rating(s) left out: {unknown_names(other.entity, unknown)}"
        )
    names, values = vocabulary.typed(new.names)[used], np.asarray(new.values)[used]
    others = others[used]
    ids = np.array(sorted({*names.tolist(), *new.described}), vocabulary.ids.dtype)
    if not len(ids):
        raise InputError("; ".join([*notes, "nothing is left to fold in"]))
    folded, known = Vocabulary(new.entity, ids), vocabulary.index_of(ids)
    rows, old, described = folded.index_of(names), np.flatnonzero(known >= 0), new.described
    if len(old):
        with run.open_ratings(data) as ratings:
            places, old_others, old_values = training_ratings(ratings, new.entity, known[old])
            if run.feature_names(new.entity):
                described = (
                    _stored_features(run, ratings, new.entity, ids[old], known[old]) | described
                )
        rows = np.concatenate([old[places], rows])
        others, values = np.concatenate([old_others, others]), np.concatenate([old_values, values])
    pairs = rows.astype(np.int64) * len(other) + others
    last = len(pairs) - 1 - np.unique(pairs[::-1], return_index=True)[1]
    features = _stacked(described, ids, len(run.feature_names(new.entity)))
    return FoldIn(run, folded, rows[last], others[last], values[last], features), notes


def training_ratings(ratings: Ratings, entity: str, rows: Int32) -> tuple[Array, Int32, Float32]:
    """Read the training ratings of users (or items), given by distinct rows (q,) int32.

    Returns
    -------
    positions : (n,) int
        Positions among `rows`.
    others : (n,) int32
        Rows of the items (or users).
    values : (n,) float32
    """
    place = np.full(max(ratings.n_rows, ratings.n_cols), -1)
    place[rows] = np.arange(len(rows))
    parts = []
    for start, stop in row_slabs(ratings.row_indptr, SLAB):
        ends, columns, values = ratings.slab("train", start, stop)
        sides = np.repeat(np.arange(start, stop, dtype=np.int32), np.diff(ends)), columns
        raters, rated = sides if (entity == "user") != ratings.transposed else sides[::-1]
        chosen = place[raters] >= 0
        parts.append((place[raters[chosen]], rated[chosen], values[chosen]))
    positions, others, values = (np.concatenate(column) for column in zip(*parts, strict=True))
    return positions, others, values


def _stored_features(
    run: Run, ratings: Ratings, entity: str, names: Array, rows: Int32
) -> dict[Any, csr_matrix]:
    """Read the features of users (or items) in the run, a (1, F) sparse matrix by name."""
    side = SIDES["WH".index(run.index.factors[entity])]
    slabs = (ratings.feature_slab(side, row, row + 1) for row in rows.tolist())
    return dict(zip(names.tolist(), map(Features.matrix, slabs), strict=True))


def _stacked(described: Mapping[Any, csr_matrix], names: Array, width: int) -> csr_matrix | None:
    """Return features in the order of names, (n, width); rows without features are empty.

    None without features.
    """
    from scipy.sparse import csr_matrix, vstack  # slow to import

    if not width:
        return None
    return vstack([described.get(name, csr_matrix((1, width))) for name in names.tolist()], "csr")


# ------------------------------------------------------------- distributions of rows at saved draws


class FoldIn:
    """Users (or items) of a run with new ratings.

    Parameters
    ----------
    run : Run
        A run with saved draws.
    names : Vocabulary
        Names of the rows, which are users or items.
    rows : (n,) int
        User (or item) of each rating, by position among the names. For a user that the run knows,
        the ratings must include those from which the run was sampled.
    others : (n,) int32
        Item (or user) of each rating, by its row in the run.
    values : (n,) float
        The ratings.
    features : (names, F) sparse matrix, optional
        Features of the rows, if the run has features of them; a row without features is taken to be
        average.

    Raises
    ------
    InputError
        If the run has no draws, or its likelihood excludes a rating.
    """

    def __init__(
        self,
        run: Run,
        names: Vocabulary,
        rows: Array,
        others: Int32,
        values: Array,
        features: csr_matrix | None = None,
    ) -> None:
        run.need_draws()
        self.run, self.entity = run, names.entity
        self.vocabulary, self._features = names, features
        self._has_cuts = names.entity == "user" and run.config.thresholds != "shared"
        order = np.argsort(rows, kind="stable")
        self._others = others[order]
        run.config.law.check_new(values, float(run.facts["minimum"]))
        values = run.config.law.scaled(values[order].astype(np.float64))
        self._values = run.config.law.codes(values, run.levels)
        self._ends = np.searchsorted(rows[order], np.arange(len(names) + 1))
        self._rows: dict[int, RowDistributions] = {}

    def rated(self, row: int) -> Int32:
        """Return the rows of the items (or users) that the new row at position `row` in the
        vocabulary rated.
        """
        return self._others[self._ends[row] : self._ends[row + 1]]

    def rows(self, position: int, chosen: Array) -> RowDistributions:
        """Return the distributions of new rows at a saved draw.

        Parameters
        ----------
        position : int
            Position of the draw in the run's `draws`.
        chosen : (q,) int
            Positions of the new rows in the vocabulary.

        Returns
        -------
        RowDistributions
            Means, covariances, 1 / g (or 1 / s for ordinal ratings), and thresholds if users have
            individual ones.
        """
        if position not in self._rows:
            self._rows[position] = self._solve(position)
        rows = self._rows[position]
        cuts = None if rows.cuts is None else rows.cuts[chosen]
        return RowDistributions(
            rows.mean[chosen], rows.covariance[chosen], rows.noise[chosen], cuts
        )

    def drawn(self, position: int, rng: Generator) -> FoldIn:
        """Return a copy in which every row at the saved draw `position` is one draw from its
        distribution.
        """
        rows, result = self.rows(position, np.arange(len(self.vocabulary))), copy(self)
        normals = zip(rows.mean, rows.covariance, strict=True)
        mean = np.array([rng.multivariate_normal(*normal) for normal in normals])
        result._rows = {
            position: rows._replace(mean=mean, covariance=np.zeros_like(rows.covariance))
        }
        return result

    def _solve(self, position: int) -> RowDistributions:
        """Compute the distributions of all rows at a saved draw."""
        draw, law, n = self.run.draw(position), self.run.config.law, len(self.vocabulary)
        prior, unseen = draw.prior[self.entity], draw.unseen[self.entity]
        shifts = self._of_features(draw)
        precision = np.linalg.inv(prior.covariance).astype(np.float64)
        other_theta = draw.theta[OTHER[self.entity]].astype(np.float64)
        of_all_pairs = draw.tau * (self.run.config.zero_weight or 0.0) * other_theta.T @ other_theta
        nu, scales = (draw.shared.get(f"{self.entity}.{name}") for name in ("nu", "scales"))
        spread = Spread.of(
            law, scales, draw.shared["thresholds.precision"] if self._has_cuts else None
        )
        rng = np.random.default_rng(
            [0, position]
        )  # for noise scales, and for rows whose distribution is not normal
        cuts = (
            np.tile(draw.thresholds, (n, 1))
            if self._has_cuts and draw.thresholds is not None
            else None
        )
        covariance = np.tile(unseen.covariance.astype(np.float64), (n, 1, 1))
        rows = RowDistributions(unseen.mean + shifts, covariance, np.ones(n), cuts)
        rated = np.flatnonzero(np.diff(self._ends))
        for part in np.split(rated, range(TOGETHER, len(rated), TOGETHER)):
            given = [
                self._given_ratings(draw, self.rated(k), k, prior.mean + shifts[k], precision)
                for k in part
            ]
            if law.is_conditionally_gaussian():
                for k, row in zip(part, given, strict=True):
                    rows.mean[k], rows.covariance[k], rows.noise[k] = normal_row(
                        law, row, of_all_pairs, nu, rng
                    )
            elif given:
                rows.mean[part], scale, row_cuts = draw_rows(
                    law, given, draw.thresholds, spread, rng
                )
                rows.covariance[part], rows.noise[part] = 0.0, 1 / scale
                if cuts is not None:
                    cuts[part] = row_cuts
        return rows

    def _of_features(self, draw: Draw) -> Float64:
        """Return the terms of the rows' features in their prior means, (n, D)."""
        if self._features is None:
            return np.zeros((len(self.vocabulary), draw.theta[self.entity].shape[1]))
        effects, centre = (
            draw.shared[f"{self.entity}.features.effects"],
            self.run.index.encoding(self.entity)[1],
        )
        shifts: Float64 = self._features @ effects - np.outer(
            np.diff(self._features.indptr) > 0, centre @ effects
        )
        return shifts

    def _given_ratings(
        self, draw: Draw, rated: Int32, k: int, centre: Float64, precision: Float64
    ) -> RatedRow:
        """Return the ratings of row `k` at a draw, and its prior, with the terms of the parts of
        the model.
        """
        config = self.run.config
        phi = draw.theta[OTHER[self.entity]][rated].astype(np.float64)
        of_rated = (model_part.of_rated(draw, self.entity, rated) for model_part in PARTS.values())
        centre = sum((term for term in of_rated if term is not None), centre)
        unknown = np.full(len(rated), -1, np.int32)
        added, variance = draw.of_ratings(
            *((unknown, rated) if self.entity == "user" else (rated, unknown))
        )
        offset = np.full(len(phi), self.run.mean) + added
        if config.biases:
            offset = offset + phi[:, config.rank]
            phi[:, config.rank] = 1.0
        scales = draw.tau * draw.noise_scale[OTHER[self.entity]][rated].astype(np.float64)
        values = self._values[self._ends[k] : self._ends[k + 1]]
        effects = np.broadcast_to(np.asarray(variance, np.float64), len(phi))
        return RatedRow(
            phi, offset, values, scales, effects, centre, precision, self._thresholds(draw, rated)
        )

    def _thresholds(self, draw: Draw, rated: Int32) -> Array | None:
        """Return the thresholds, or other parameters of the likelihood, that all rows share, or of
        each rating.
        """
        if draw.thresholds is None:
            return self.run.config.law.shape_of(draw.shared)
        return (
            draw.thresholds
            if draw.user_thresholds is None or self._has_cuts
            else draw.user_thresholds[rated]
        )


def normal_row(
    law: type[Law], row: RatedRow, of_all_pairs: Float64, nu: Array | None, rng: Generator
) -> tuple[Float64, Float64, float]:
    """Return mean, covariance and 1 / g of a row that is normal given g.

    `of_all_pairs` is the precision from the likelihood term of all pairs, rated or not; `nu` is
    None if noise is shared.
    """
    noise_precision = 1 / (1 / row.scales + row.effects) if np.any(row.effects) else row.scales
    target = row.x - row.offset
    statistics = law.statistics(row.features, target, noise_precision)
    assert statistics is not None
    gram, moment = statistics
    gram = gram + of_all_pairs
    g = 1.0
    for turn in range(GIBBS_TURNS + 1):
        with refusing(
            "nothing can be folded in, as a saved draw has invalid precisions",
            np.linalg.LinAlgError,
        ):
            lower = np.linalg.cholesky(row.precision + g * gram)
        inverse = np.linalg.inv(lower)
        mean = inverse.T @ (inverse @ (row.precision @ row.centre + g * moment))
        if nu is None or turn == GIBBS_TURNS:
            break
        drawn = mean + inverse.T @ rng.standard_normal(len(mean))
        squares = float(noise_precision @ (target - row.features @ drawn) ** 2)
        g = rng.gamma((nu.item() + len(target)) / 2) / ((nu.item() + squares) / 2)
    return mean, inverse.T @ inverse, 1 / g
