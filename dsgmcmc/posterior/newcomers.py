r"""Folds in users or items with new ratings: their exact posterior given each saved draw, without sampling again.

Given a draw, the ratings x of a row depend on the other side only through phi_j = (H_j, 1), so theta of the row has the
normal distribution [Salakhutdinov 2008, eq. 11]

    precision  Lambda* = Lambda + tau sum_j g'_j phi_j phi_j^T
    mean       Lambda*^-1 (Lambda m + tau sum_j g'_j (x_j - mu - b_j) phi_j)

where m includes the implicit features from the items that the row rated, if the model has them, and the term B^T x from
the features of the row. A row without ratings has its prior distribution, which depends only on its features.

The mixture over all saved draws is the posterior of the row given its ratings and the old ratings of all other rows.
The only approximation is that the new ratings do not change other parameters. For a row that the run knows, x has both
the old ratings and the new ratings. If rows have individual noise scales, theta | g and g | theta ~ Gamma((nu + n) / 2,
(nu + tau SSE) / 2) are drawn in turns, `GIBBS` times from g = 1; the distribution of theta given the last g is used.

If the model has levels of time, it is unknown which of the new ratings were given together. The effects of time are
taken to be independent, which adds noise: 1 / (tau g') + sum_l 1 / lambda_l in place of 1 / (tau g'). With likelihoods
that are not conditionally normal, the likelihood of a rating is integrated over the effects.

With ordinal ratings or counts, the distribution of a row is not normal. Then one row is drawn at each saved draw
(`dsgmcmc.posterior.elliptical`), with individual scale and thresholds if the model has them.

New ratings of rows that the run knows are added to the old ratings, and replace old ratings of the same pair; this
needs the ratings file. New features are encoded by the encoding of the run's features, and centred by their means. A
row that the run knows keeps its features from the ratings file, unless new features are given.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dsgmcmc.data.ratings import SIDES, Features, Ratings, row_slabs
from dsgmcmc.errors import InputError
from dsgmcmc.model.likelihoods import Law
from dsgmcmc.model.parts import PARTS
from dsgmcmc.posterior.draws import OTHER, Draw, Rows
from dsgmcmc.posterior.elliptical import RatedRow, Spread, draw_row
from dsgmcmc.posterior.names import Vocabulary, unknown_names
from dsgmcmc.posterior.run import Run
from dsgmcmc.types import Array, Float32, Float64, Int32

if TYPE_CHECKING:  # slow to import
    from scipy.sparse import csr_matrix

GIBBS = 10
SLAB = 4_000_000  # ratings that are read from the file at a time


class FoldIn:
    """Users (or items) of a run with new ratings.

    Parameters
    ----------
    run : Run
        A run with saved draws.
    kind : {"user", "item"}
        Whether rows are users or items.
    vocabulary : Vocabulary
        Names of the rows.
    rows : (n,) int
        User (or item) of each rating, by position in the vocabulary. A user that the run knows needs all ratings,
        including the ratings that the run was sampled from.
    others : (n,) int32
        Item (or user) of each rating, by its row in the run.
    values : (n,) float
        The ratings.
    seed : int
        Seed of random draws: of noise scales, or of rows whose distribution is not normal.
    features : (n, F) sparse matrix, optional
        Features of the rows, if the run has features of them; a row without features is taken to be average.

    Raises
    ------
    InputError
        If the run has no draws, or its likelihood excludes a rating.
    """

    def __init__(
        self,
        run: Run,
        kind: str,
        vocabulary: Vocabulary,
        rows: npt.NDArray[np.integer],
        others: Int32,
        values: npt.NDArray[np.floating],
        seed: int = 0,
        features: csr_matrix | None = None,
    ) -> None:
        run.need_draws()
        self.run, self.kind, self.vocabulary, self.seed = run, kind, vocabulary, seed
        self._features = features
        self._has_cuts = kind == "user" and run.config.thresholds != "shared"
        order = np.argsort(rows, kind="stable")
        self._others = others[order]
        run.config.law.check_new(values)
        self._values = run.config.law.codes(values[order].astype(np.float64), run.levels)
        self._ends = np.searchsorted(rows[order], np.arange(len(vocabulary) + 1))
        self._rows: dict[int, Rows] = {}

    def rated(self, which: int) -> Int32:
        """Rows of the items (or users) that new row `which` rated."""
        rows: Int32 = self._others[self._ends[which] : self._ends[which + 1]]
        return rows

    def rows(self, number: int, which: npt.NDArray[np.intp]) -> Rows:
        """Distributions of new rows at a saved draw.

        Parameters
        ----------
        number : int
            Position of the draw in the run's `draws`.
        which : (q,) int
            Positions of new rows in the vocabulary.

        Returns
        -------
        Rows
            Means, covariances, 1 / g, and thresholds if users have individual ones.
        """
        if number not in self._rows:
            self._rows[number] = self._solve(number)
        rows = self._rows[number]
        cuts = None if rows.cuts is None else rows.cuts[which]
        return Rows(rows.mean[which], rows.covariance[which], rows.noise[which], cuts)

    def drawn(self, number: int, rng: np.random.Generator) -> FoldIn:
        """Return a copy in which every row at a saved draw is one draw from its distribution."""
        rows, result = self.rows(number, np.arange(len(self.vocabulary))), copy(self)
        normals = zip(rows.mean, rows.covariance, strict=True)
        mean = np.array([rng.multivariate_normal(*normal) for normal in normals])
        result._rows = {number: replace(rows, mean=mean, covariance=np.zeros_like(rows.covariance))}
        return result

    def _solve(self, number: int) -> Rows:
        draw, n = self.run.draw(number), len(self.vocabulary)
        unseen = draw.unseen[self.kind]
        items = draw.theta[OTHER[self.kind]].astype(np.float64)
        background = draw.tau * (self.run.config.zero_weight or 0.0) * items.T @ items
        d = items.shape[1]
        shifts = np.zeros((n, d))
        if self._features is not None:
            effects, centre = draw.shared[f"{self.kind}.features.effects"], self.run.index.encoding(self.kind)[1]
            shifts = self._features @ effects - np.outer(np.diff(self._features.indptr) > 0, centre @ effects)
        precision = np.linalg.inv(draw.prior[self.kind].covariance).astype(np.float64)
        rng = np.random.default_rng([self.seed, number])
        cuts = np.tile(draw.thresholds, (n, 1)) if self._has_cuts and draw.thresholds is not None else None
        result = Rows(np.empty((n, d)), np.empty((n, d, d)), np.ones(n), cuts)
        for row in range(n):
            part = slice(self._ends[row], self._ends[row + 1])
            if part.start == part.stop:
                result.mean[row], result.covariance[row] = unseen.mean + shifts[row], unseen.covariance
                continue
            mean, covariance, noise, cuts_of_row = self._given_ratings(
                draw, part, shifts[row], precision, background, rng
            )
            result.mean[row], result.covariance[row], result.noise[row] = mean, covariance, noise
            if cuts is not None:
                cuts[row] = cuts_of_row
        return result

    def _shared(self, draw: Draw, name: str) -> float | None:
        """A scalar that all rows share; None if the model does not have it."""
        value = draw.shared.get(f"{self.kind}.{name}")
        return None if value is None else value.item()

    def _given_ratings(
        self,
        draw: Draw,
        part: slice,
        shift: Float64,
        precision: Float64,
        background: Float64,
        rng: np.random.Generator,
    ) -> tuple[Float64, Float64, float, Array | None]:
        """Mean, covariance and 1 / g (ordinal: 1 / s, and thresholds) at a draw, for the row with ratings `part`."""
        other, config = OTHER[self.kind], self.run.config
        prior = draw.prior[self.kind]
        rated = self._others[part]
        theta = draw.theta[other][rated].astype(np.float64)
        of_rated = (model_part.of_rated(draw, self.kind, rated) for model_part in PARTS)
        centre = sum((term for term in of_rated if term is not None), prior.mean + shift)
        nobody = np.full(len(rated), -1, np.int32)
        users, items = (nobody, rated) if self.kind == "user" else (rated, nobody)
        added, variance = draw.of_ratings(users, items)
        offset = np.full(len(theta), self.run.mean) + added
        if config.biases:
            offset = offset + theta[:, config.rank]
            theta[:, config.rank] = 1.0
        x = self._values[part]
        scales = draw.noise_scale[other][rated].astype(np.float64)
        row = RatedRow(theta, offset, x, centre, precision, variance)
        if config.law.is_conditionally_gaussian():
            noise_precision = draw.tau * scales
            if np.any(variance):
                noise_precision = 1 / (1 / noise_precision + variance)
            return *_normal(config.law, row, noise_precision, background, self._shared(draw, "nu"), rng), None
        cuts: Array | None = config.law.shape_of(draw.shared) if draw.thresholds is None else draw.thresholds
        if draw.own_thresholds is not None and not self._has_cuts:
            cuts = draw.own_thresholds[rated]
        gaps = draw.shared["thresholds.precision"] if self._has_cuts else None
        sd = Spread.of(config.law, self._shared(draw, "scales"), gaps)
        theta, scale, cuts = draw_row(config.law, row, scales * draw.tau, cuts, sd, rng)
        return theta, np.zeros((len(theta), len(theta))), 1 / scale, cuts


def _normal(
    law: type[Law],
    row: RatedRow,
    noise_precision: Float64,
    background: Float64,
    nu: float | None,
    rng: np.random.Generator,
) -> tuple[Float64, Float64, float]:
    """Mean, covariance and 1 / g of a row whose distribution is normal given g."""
    target = row.x - row.offset
    statistics = law.statistics(row.features, target, noise_precision)
    assert statistics is not None
    gram, moment = statistics
    gram = gram + background
    g = 1.0
    for turn in range(GIBBS + 1):
        try:
            lower = np.linalg.cholesky(row.precision + g * gram)
        except np.linalg.LinAlgError as error:
            raise InputError(
                f"new rows have no distribution at a saved draw: its precisions are out of range ({error})"
            ) from error
        inverse = np.linalg.inv(lower)
        mean = inverse.T @ (inverse @ (row.precision @ row.centre + g * moment))
        if nu is None or turn == GIBBS:
            break
        drawn = mean + inverse.T @ rng.standard_normal(len(mean))
        squares = float(noise_precision @ (target - row.features @ drawn) ** 2)
        g = rng.gamma((nu + len(target)) / 2) / ((nu + squares) / 2)
    return mean, inverse.T @ inverse, 1 / g


class NewRatings(NamedTuple):
    """New ratings and features of users or items.

    Attributes
    ----------
    kind : {"user", "item"}
        Side whose rows are computed.
    names, others, values : (n,) array
        Original names of the user (or item) and of the item (or user) of each rating, and the ratings. The last rating
        of a pair counts.
    described : dict of name to (1, F) sparse matrix
        Features of users (or items) by original name, with or without ratings, from `describe_new`.
    """

    kind: str
    names: Array
    others: Array
    values: Array
    described: dict[Any, csr_matrix]

    @classmethod
    def read(cls, run: Run, X: Any, y: Any, kind: str, features: Any, columns: str | None = None) -> NewRatings:
        """Read ratings and features in the form of `dsgmcmc.posterior.fitted.FittedModel.fold_in`.

        Raises InputError if both are missing, or if one is invalid.
        """
        from dsgmcmc.data.arrays import read_triples

        if X is None and features is None:
            raise InputError("nothing to fold in: give ratings, features, or both")
        described = {} if features is None else describe_new(run, kind, features)
        if X is None:
            nothing = np.zeros(0, object)
            return cls(kind, nothing, nothing, np.zeros(0), described)
        given = read_triples(X, y, columns=columns)
        names, others = (given.users, given.items) if kind == "user" else (given.items, given.users)
        return cls(kind, names, others, given.ratings, described)

    def updated(self, later: NewRatings) -> NewRatings:
        """Append later ratings and features; raises InputError if `later` is of the other kind."""
        if self.kind != later.kind:
            raise InputError(
                f"this model already has folded-in {self.kind}s: fold in {later.kind}s from the run itself"
            )
        names, others, values = (np.concatenate([a, b]) for a, b in zip(self[1:4], later[1:4], strict=True))
        return NewRatings(self.kind, names, others, values, self.described | later.described)


def describe_new(run: Run, kind: str, given: Any) -> dict[Any, csr_matrix]:
    """Encode new features by name, with the run's encoding.

    `given` is a Description, or any argument of `dsgmcmc.data.arrays.read_features`. Kinds and separator of a
    Description are ignored, because columns keep their kinds in the run. Raises InputError if the run has no features
    of this kind or no encoding of them, or if the file is invalid.
    """
    from dsgmcmc.data.arrays import read_features
    from dsgmcmc.data.features import Description, Encoding, encode_new

    if not run.feature_names(kind):
        raise InputError(
            f"features of {kind}s are given, but {run.path} was sampled without them: leave them out, or prepare the "
            f"ratings with --{kind}-features and sample again"
        )
    try:
        encoding = Encoding.parse(run.index.encoding(kind)[0])
    except ValueError as error:
        raise InputError(f"{run.path} cannot be used for new features of {kind}s: {error}") from error
    integers = run.vocabulary(kind).integers
    if not isinstance(given, Description):
        given = read_features(given, kind, encoding.separator)
    names, features = encode_new(kind, given, encoding, integers)
    keys = (names.astype(np.int64) if integers else names).tolist()
    return dict(zip(keys, _matrix(features), strict=True))


def _matrix(features: Features) -> csr_matrix:
    """Features as a sparse matrix (n, F)."""
    from scipy.sparse import csr_matrix  # slow to import

    cells = features.values.astype(np.float64), features.indices, features.indptr
    return csr_matrix(cells, (len(features.indptr) - 1, len(features.names)))


def _features_of(run: Run, new: NewRatings, names: Array, known: Int32, data: Path | None) -> csr_matrix | None:
    """Features of the rows with names (n,), whose rows in the run are `known` (n,), -1 for new rows.

    Known rows without new features need the ratings file (`data`, if it was moved). None if the run has no features.
    """
    if not (width := len(run.feature_names(new.kind))):
        return None
    from scipy.sparse import csr_matrix, vstack

    rows = [new.described.get(name, csr_matrix((1, width))) for name in names.tolist()]
    old = [k for k, name in enumerate(names.tolist()) if known[k] >= 0 and name not in new.described]
    if old:
        side = SIDES["WH".index(run.index.factors[new.kind])]
        with run.open_ratings(data) as ratings:
            for k in old:
                rows[k] = _matrix(ratings.feature_slab(side, int(known[k]), int(known[k]) + 1))
    return vstack(rows, "csr")


def training_ratings(ratings: Ratings, kind: str, rows: Int32) -> tuple[npt.NDArray[np.intp], Int32, Float32]:
    """Read the training ratings of users (or items), given by distinct rows (q,) int32.

    Returns
    -------
    which : (n,) int
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
        raters, rated = sides if (kind == "user") != ratings.transposed else sides[::-1]
        chosen = place[raters] >= 0
        parts.append((place[raters[chosen]], rated[chosen], values[chosen]))
    which, others, values = (np.concatenate(column) for column in zip(*parts, strict=True))
    return which, others, values


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
        Notes on ratings that were left out, because the run does not know the other side.

    Raises
    ------
    InputError
        If a name has the wrong type, nothing is left to fold in, or a known row needs the missing ratings file.
    """
    vocabulary, other = run.vocabulary(new.kind), run.vocabulary(OTHER[new.kind])
    columns, notes = other.index_of(new.others), list[str]()
    used = columns >= 0
    if not used.all():
        unknown = list(dict.fromkeys(new.others[~used].tolist()))
        notes.append(f"{int((~used).sum())} rating(s) left out: {unknown_names(other.kind, unknown)}")
    names, columns, values = vocabulary.typed(new.names)[used], columns[used], np.asarray(new.values)[used]
    ids = np.array(sorted({*names.tolist(), *new.described}), vocabulary.ids.dtype)
    if not len(ids):
        raise InputError("; ".join([*notes, "nothing is left to fold in"]))
    folded, known = Vocabulary(new.kind, ids), vocabulary.index_of(ids)
    which, old = folded.index_of(names), np.flatnonzero(known >= 0)
    if len(old):
        with run.open_ratings(data) as ratings:
            places, others, before = training_ratings(ratings, new.kind, known[old])
        which = np.concatenate([old[places], which])
        columns, values = np.concatenate([others, columns]), np.concatenate([before, values])
    pairs = which.astype(np.int64) * len(other) + columns
    last = len(pairs) - 1 - np.unique(pairs[::-1], return_index=True)[1]
    features = _features_of(run, new, ids, known, data)
    return FoldIn(run, new.kind, folded, which[last], columns[last], values[last], features=features), notes
