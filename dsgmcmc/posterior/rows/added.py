r"""Folds in users or items with new ratings: computes their exact posterior given each saved draw.

Given a draw, the ratings x of a row depend on the other side only through phi_j = (H_j, 1), so
theta of the row, with prior N(m, Lambda^-1), is normal [Salakhutdinov 2008, eq. 11]:

    precision  Lambda* = Lambda + tau sum_j g'_j phi_j phi_j^T
    mean       Lambda*^-1 (Lambda m + tau sum_j g'_j (x_j - mu - b_j) phi_j)

where g'_j is the noise scale of H_j, and m includes the terms of implicit features and of features.
The mixture over all saved draws is the posterior of the row given its ratings and all others. The
only approximation is that the new ratings do not change other parameters.

If rows have individual noise scales, theta | g and g | theta ~ Gamma((nu + n) / 2, (nu + tau SSE) /
2) are drawn in turns. If g multiplies the prior precision, the mean does not depend on g, and
g is drawn with theta integrated out (docs/model.md): SSE is that at the mean, and the squared
deviation of the mean from m, in units of Lambda^-1, is added to tau SSE. Values that are known
only by bounds are also drawn in turns. Unknown effects of time are independent between ratings.
Under likelihoods that are not conditionally normal, rows are drawn
(`dsgmcmc.posterior.rows.drawn_rows`). docs/serving.md says what happens
to rows that the run knows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from zlib import crc32

import numpy as np
from numpy.random import Generator

from dsgmcmc.errors import InputError, refusing
from dsgmcmc.model.blocks import ROUNDING_VARIANCE
from dsgmcmc.model.likelihoods import Law
from dsgmcmc.model.likelihoods.limits import resolution_from
from dsgmcmc.model.parts import PARTS
from dsgmcmc.model.predictive.base import reaches
from dsgmcmc.model.rounding import truncated_gamma
from dsgmcmc.posterior.draws import OTHER, Draw, RowsAtDraw
from dsgmcmc.posterior.index import SIDE_OF, Names, Vocabulary, unknown_names
from dsgmcmc.posterior.levels import refuse_absent_levels, refuse_items_with_absent_levels
from dsgmcmc.posterior.rows.drawn_rows import RatedRow, RatedRows, draw_rows
from dsgmcmc.posterior.rows.name_features import name_features_of
from dsgmcmc.posterior.rows.new_ratings import NewRatings
from dsgmcmc.posterior.run import Run, once
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.ratings.names import array_of
from dsgmcmc.ratings.pairs import join, pairs_in_slabs, select
from dsgmcmc.types import Array, Float64, Int32

if TYPE_CHECKING:  # slow to import
    from scipy.sparse import csr_matrix

P = TypeVar("P")
T = TypeVar("T")

#: Draws of theta given g and the values of ratings within bounds, and of these given theta.
GIBBS_SWEEPS = 10
#: Largest number of bytes of normal rows that are kept; others are solved again when needed.
KEPT_BYTES = 1 << 27
#: Largest number of drawn rows, with all their draws, that are kept.
MOST_DRAWN = 20_000


class RatingsOfRows(NamedTuple):
    """Ratings of some rows, (n,) each.

    Attributes
    ----------
    rows : int
        Positions of the users (or items) among the rows.
    others : int32
        Items (or users), by their rows in the run.
    values : float
        The ratings.
    weights : float
        Relative precisions of the ratings.
    bounds : (n, 2) float or None
        Lower and upper bounds of the ratings, equal if they are exact; None if all are.
    """

    rows: Array
    others: Int32
    values: Array
    weights: Array
    bounds: Array | None = None

    def last_of_pairs(self, others: int) -> RatingsOfRows:
        """Return the last rating of every pair, given the number of the run's items (or users)."""
        pairs = self.rows.astype(np.int64) * others + self.others
        last = len(pairs) - 1 - np.unique(pairs[::-1], return_index=True)[1]
        return select(self, last)


# ---------------------------------------------------------- new ratings with the ratings of the run


def fold_in(run: Run, new: NewRatings) -> tuple[FoldIn, list[str]]:
    """Fold in new ratings and new features.

    Parameters
    ----------
    run : Run
        Its ratings file is needed for rows that the run knows.
    new : NewRatings

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
    vocabulary = run.vocabulary(new.entity)
    other_vocabulary = run.vocabulary(OTHER[new.entity])
    others = other_vocabulary.index_of(new.others)
    used = others >= 0
    notes = []
    if not used.all():
        unknown = list(dict.fromkeys(new.others[~used].tolist()))
        notes.append(
            f"{int((~used).sum())} rating(s) left out:"
            f" {unknown_names(other_vocabulary.entity, unknown)}"
        )
    names = vocabulary.typed(new.names)
    ids = array_of(sorted({*names[used].tolist(), *new.described})).astype(vocabulary.ids.dtype)
    if not len(ids):
        raise InputError("; ".join([*notes, "nothing is left to fold in"]))
    folded = Vocabulary(new.entity, ids, vocabulary.labels)
    ratings = RatingsOfRows(
        rows=folded.index_of(names),
        others=others,
        values=np.asarray(new.values),
        weights=new.weights,
        bounds=new.bounds,
    )
    ratings = select(ratings, used)
    rows_in_run = vocabulary.index_of(ids)
    described = new.described
    of_names = name_features_of(run, new.entity)
    if of_names is not None:
        of_names.check_new(ids[rows_in_run < 0].tolist())
        described = of_names.by_name(ids.tolist()) | described
    known = np.flatnonzero(rows_in_run >= 0)
    if len(known):
        with run.open_ratings() as stored:
            old = training_ratings(stored, new.entity, rows_in_run[known])
            if run.feature_names(new.entity):
                side = SIDE_OF[run.index.factors[new.entity]]
                stored_features = {}
                for name, row in zip(ids[known].tolist(), rows_in_run[known].tolist(), strict=True):
                    stored_features[name] = stored.feature_slab(side, row, row + 1).matrix()
                described = described | stored_features | new.described
        ratings = join([old._replace(rows=known[old.rows]), ratings])
    features = _stacked(described, ids, len(run.feature_names(new.entity)))
    if not run.facts.get("replicates"):
        ratings = ratings.last_of_pairs(len(other_vocabulary))
    return FoldIn(run, folded, ratings, features), notes


def fold_in_parts(run: Run, users: list[Any], new: NewRatings | None = None) -> FoldIn | None:
    """Fold in users whom the run has not seen, but of whose names it knows all parts.

    They are folded in with the ratings and features in `new`. Returns None if there are no such
    users.
    """
    of_names = name_features_of(run, "user")
    if of_names is None:
        return None
    names = array_of(users)
    unseen = names[run.users.index_of(names) < 0]
    known = unseen[of_names.are_known(unseen)].tolist()
    if not known:
        return None
    no_names = np.zeros(0, object)
    described = NewRatings(
        entity="user",
        names=no_names,
        others=no_names,
        values=np.zeros(0),
        weights=np.zeros(0),
        described=of_names.by_name(known),
    )
    if new is not None:
        described = described.updated(new)
    return fold_in(run, described)[0]


def index_with(vocabulary: Vocabulary, names: Names, newcomers: FoldIn | None) -> Int32:
    """Return the rows of users or items by name, (n,); -1 for names that nothing knows.

    Rows that were folded in follow those of the run, and come before them for names of both.
    """
    index = vocabulary.index_of(names)
    if newcomers is not None and newcomers.entity == vocabulary.entity:
        new = newcomers.vocabulary.index_of(names)
        index = np.where(new >= 0, new + np.int32(len(vocabulary)), index)
    return index


def number_of_users(run: Run, newcomers: FoldIn | None) -> int:
    """Return the number of users that the run knows or that were folded in."""
    number = len(run.users)
    if newcomers is not None and newcomers.entity == "user":
        number += len(newcomers.vocabulary)
    return number


def training_ratings(ratings: Ratings, entity: str, rows: Int32) -> RatingsOfRows:
    """Read the training ratings of users (or items), given by distinct rows (q,) int32."""
    position_of = np.full(max(ratings.n_rows, ratings.n_cols), -1)
    position_of[rows] = np.arange(len(rows))
    parts = []
    for pairs in pairs_in_slabs(ratings, "train"):
        by_entity = {"user": pairs.users, "item": pairs.items}
        assert pairs.weights is not None
        of_slab = RatingsOfRows(
            rows=position_of[by_entity[entity]],
            others=by_entity[OTHER[entity]],
            values=pairs.values,
            weights=pairs.weights,
            bounds=pairs.bounds,
        )
        parts.append(select(of_slab, of_slab.rows >= 0))
    return join(parts)


def _stacked(described: Mapping[Any, csr_matrix], names: Array, width: int) -> csr_matrix | None:
    """Return features in the order of names, (n, width); rows without features are empty.

    None without features.
    """
    from scipy.sparse import csr_matrix, vstack  # slow to import

    if not width:
        return None
    return vstack([described.get(name, csr_matrix((1, width))) for name in names.tolist()], "csr")


# ------------------------------------------------------------- distributions of rows at saved draws


def feature_terms(run: Run, draw: Draw, entity: str, features: csr_matrix) -> Float64:
    """Return the terms of features (n, F) of users (or items) in their prior means, (n, D)."""
    effects = draw.shared[f"{entity}.features.effects"]
    centre = run.index.encoding(entity)[1]
    terms: Float64 = features @ effects - centre @ effects
    return terms


def rows_without_ratings(run: Run, entity: str, position: int, terms: Float64) -> RowsAtDraw:
    """Return the distributions of users (or items) without ratings at a saved draw.

    They share one covariance. `terms`, (n, D), are those of their features in their prior means.
    """
    draw = run.draw(position)
    unseen = draw.unseen[entity]
    parameters = None
    if entity == run.parameter_owner:
        shared = run.config.law.parameters_of(draw.shared)
        assert shared is not None
        parameters = np.tile(np.asarray(shared, np.float64), (len(terms), 1))
    return RowsAtDraw(
        mean=unseen.mean + terms,
        noise=np.full(len(terms), draw.new_inverse_scale[entity]),
        spread_of=np.zeros(len(terms), np.int64),
        covariance=unseen.covariance[np.newaxis].astype(np.float64),
        parameters=parameters,
    )


class NewRowPrior(NamedTuple):
    """Prior of all rows at a draw.

    Attributes
    ----------
    mean : (D,) float64
        Without the terms of features.
    precision : (D, D) float64
    of_all_pairs : (D, D) float64
        Precision from the likelihood term of all pairs, rated or not.
    """

    mean: Float64
    precision: Float64
    of_all_pairs: Float64


def _prior_at(run: Run, entity: str, position: int) -> NewRowPrior:
    """Return the prior of new users (or items) at a saved draw."""
    draw = run.draw(position)
    mean, covariance = draw.prior[entity]
    of_all_pairs = np.zeros(covariance.shape)
    zero_weight = run.config.zero_weight
    if zero_weight:
        theta = draw.theta[OTHER[entity]].astype(np.float64)
        of_all_pairs = draw.tau * zero_weight * theta.T @ theta
    return NewRowPrior(mean, np.linalg.inv(covariance).astype(np.float64), of_all_pairs)


class NewRow(NamedTuple):
    """A row with ratings at a saved draw; without `covariance`, (D, D), it is drawn.

    Others are as in `RowsAtDraw`.
    """

    mean: Float64
    noise: float
    parameters: Float64 | None = None
    covariance: Float64 | None = None


class FoldIn:
    """Users (or items) of a run with new ratings.

    Parameters
    ----------
    run : Run
        A run with saved draws.
    names : Vocabulary
        Names of the rows, which are users or items.
    ratings : RatingsOfRows
        Ratings of the rows. For a user that the run knows, they must include those from which the
        run was sampled.
    features : (names, F) sparse matrix, optional
        Features of the rows, if the run has features of them; a row without features is taken to be
        average.

    Raises
    ------
    InputError
        If the run has no draws, or its likelihood, or the levels of an item, exclude a rating.
    """

    def __init__(
        self,
        run: Run,
        names: Vocabulary,
        ratings: RatingsOfRows,
        features: csr_matrix | None = None,
    ) -> None:
        run.need_draws()
        self.run = run
        self.entity = names.entity
        self.vocabulary = names
        self._features = features
        law = run.config.law
        law.check_new(ratings.values, float(run.facts["minimum"]))
        if names.entity == "user":
            refuse_absent_levels(run, ratings.others, ratings.values)
        else:
            refuse_items_with_absent_levels(run, run.items.index_of(names.ids))
        ratings = select(ratings, np.argsort(ratings.rows, kind="stable"))
        values = law.transform.scaled(ratings.values.astype(np.float64))
        bounds = None
        if ratings.bounds is not None:
            bounds = law.transform.scaled_bounds(ratings.bounds.astype(np.float64))
        self._ratings = ratings
        #: The same on the scale of the likelihood, levels by their numbers.
        self._scaled = ratings._replace(values=law.codes(values, run.levels), bounds=bounds)
        self._ends = np.searchsorted(ratings.rows, np.arange(len(names) + 1))
        self._seed: Sequence[int] | None = None  # of draws of normal rows
        self._contents: dict[int, bytes] = {}  # hashes of rows
        #: What other objects of the run have solved, too (`_kept_of`), the latest last.
        self._kept: dict[Any, Any] = run.kept.setdefault((FoldIn, names.entity), {})

    def rated(self, row: int, bound: float | None = None) -> Int32:
        """Return the rows of the items (or users) that a new row, by its position, rated.

        With a bound, only those that it rated at least that high.
        """
        of_row = select(self._ratings, self._of(row))
        if bound is None:
            return of_row.others
        return of_row.others[reaches(of_row.values, bound)]

    def _of(self, k: int) -> slice:
        """Return where the ratings of row `k` are."""
        return slice(self._ends[k], self._ends[k + 1])

    def rows(self, position: int, chosen: Array) -> RowsAtDraw:
        """Return the distributions of new rows at a saved draw; rows that are drawn are numbers.

        A row is solved when it is first named, and kept. It depends neither on other rows nor on
        what was asked before, because its random numbers are its own.

        Parameters
        ----------
        position : int
            Position of the draw in the run's `draws`.
        chosen : (q,) int
            Positions of the new rows in the vocabulary.
        """
        terms = self._of_features(self.run.draw(position), chosen)
        rows = rows_without_ratings(self.run, self.entity, position, terms)
        rows = rows._replace(
            spread_of=np.arange(len(chosen)),
            covariance=np.tile(rows.covariance, (len(chosen), 1, 1)),
        )
        for index, k in enumerate(chosen.tolist()):
            if self._ends[k] == self._ends[k + 1]:
                continue
            if self.run.config.law.is_conditionally_gaussian():
                of_row = self._kept_of(k, position, self._normal)
            else:
                of_row = self._kept_of(k, None, self._drawn)[position]
            rows.mean[index] = of_row.mean
            rows.noise[index] = of_row.noise
            if of_row.covariance is None:
                rows.spread_of[index] = -1
            else:
                rows.covariance[index] = of_row.covariance
            if rows.parameters is not None:
                rows.parameters[index] = of_row.parameters
        if self._seed is None:
            return rows
        for index in rows.uncertain.tolist():
            rng = np.random.default_rng([*self._seed, self._number(int(chosen[index]))])
            covariance = rows.covariance[rows.spread_of[index]]
            rows.mean[index] = rng.multivariate_normal(rows.mean[index], covariance)
        return rows._replace(spread_of=np.full(len(chosen), -1))

    def drawn(self, seed: Sequence[int]) -> FoldIn:
        """Return a copy in which every row is drawn from its distribution by its own numbers."""
        result = copy(self)
        result._seed = seed
        return result

    def _number(self, k: int) -> int:
        """Return a number for the name of a row, by which its random numbers are chosen."""
        return crc32(repr([self._name(k)]).encode())

    def _content(self, k: int) -> bytes:
        """Return a hash of the ratings and the features of a row; it is asked for at every draw."""
        if k not in self._contents:
            self._contents[k] = self._hashed(k)
        return self._contents[k]

    def _hashed(self, k: int) -> bytes:
        """Hash the ratings and the features of a row."""
        content = hashlib.sha256()
        _, *arrays = select(self._scaled, self._of(k))
        for array in arrays:
            if array is not None:
                content.update(np.ascontiguousarray(array).tobytes())
        if self._features is not None:
            features = self._features[k]
            content.update(features.indices.tobytes() + features.data.tobytes())
        return content.digest()

    def _name(self, k: int) -> object:
        """Return the name of a row."""
        (name,) = self.vocabulary.ids[k : k + 1].tolist()
        return name

    def _kept_of(self, k: int, position: P, solve: Callable[[int, P], T]) -> T:
        """Return a row at a draw, or at all: solved once for its name, ratings and features.

        If the rows that are kept are too many, the first is forgotten.
        """
        place = (self._name(k), position)
        content, solved = self._kept.get(place, (None, None))
        if content == self._content(k):
            kept: T = solved
            return kept
        solved = solve(k, position)
        width = self.run.config.rank + self.run.config.biases
        most = KEPT_BYTES // (8 * width * (width + 1))
        if not self.run.config.law.is_conditionally_gaussian():
            most = MOST_DRAWN
        self._kept.pop(place, None)
        self._kept[place] = (self._content(k), solved)
        while len(self._kept) > most:
            first, *_ = list(self._kept)  # a copy, because other threads may change it
            self._kept.pop(first, None)
        return solved

    def _normal(self, k: int, position: int) -> NewRow:
        """Return a row with ratings, which is normal given its noise scale, at a saved draw."""
        draw = self.run.draw(position)
        mean, covariance, noise = normal_row(
            self.run.config.law,
            self._rated_row(position, k),
            of_all_pairs=self._prior(position).of_all_pairs,
            noise=NoiseOfRow(
                draw.shared.get(f"{self.entity}.nu"), draw.coupled, self._largest_scale(draw, k)
            ),
            rng=np.random.default_rng([0, position, self._number(k)]),
        )
        return NewRow(mean, noise, covariance=covariance)

    def _drawn(self, k: int, _: None) -> list[NewRow]:
        """Return a row with ratings, drawn at every saved draw."""
        law = self.run.config.law
        positions = range(len(self.run.draws))
        priors = []
        for position in positions:
            draw = self.run.draw(position)
            priors.append(law.own_prior(draw, self.entity, self._largest_scale(draw, k)))
        rated = RatedRows(law, [self._rated_row(position, k) for position in positions], priors)
        theta, own = draw_rows(rated, np.random.default_rng([0, self._number(k)]))
        solved = []
        for position in positions:
            parameters = None
            if own.parameters is not None:
                parameters = own.parameters[position]
            solved.append(NewRow(theta[position], 1 / own.scale[position], parameters))
        return solved

    def _prior(self, position: int) -> NewRowPrior:
        """Return the prior of new rows at a saved draw; the run keeps it."""
        key = (NewRowPrior, self.entity, position)
        return once(self.run, key, partial(_prior_at, self.run, self.entity, position))

    def _largest_scale(self, draw: Draw, k: int) -> float:
        """Return the largest noise scale of a row at a draw, given those of the other side.

        Noise has at least the variance of rounding (`dsgmcmc.model.rounding`).
        """
        step = resolution_from(self.run.facts)
        if step is None or not self.run.config.rounding_bounds_noise:
            return inf
        others = float(draw.noise_scale[OTHER[self.entity]].max(initial=1.0))
        weight = float(self._scaled.weights[self._of(k)].max(initial=1.0))
        return 1 / (step**2 * ROUNDING_VARIANCE * draw.tau * others * weight)

    def _of_features(self, draw: Draw, chosen: Array) -> Float64:
        """Return the terms of some rows' features in their prior means, (q, D)."""
        if self._features is None:
            return np.zeros((len(chosen), draw.theta[self.entity].shape[1]))
        features = self._features[chosen]
        terms = feature_terms(self.run, draw, self.entity, features)
        terms[np.diff(features.indptr) == 0] = 0.0  # without features: taken to be average
        return terms

    def _rated_row(self, position: int, k: int) -> RatedRow:
        """Return the ratings of row `k` at a saved draw, and its prior.

        The parts of the model add their terms to both.
        """
        config = self.run.config
        draw = self.run.draw(position)
        prior = self._prior(position)
        centre = prior.mean + self._of_features(draw, np.array([k]))[0]
        of_row = select(self._scaled, self._of(k))
        rated = of_row.others
        bounds = of_row.bounds
        if bounds is not None and np.array_equal(bounds[:, 0], bounds[:, 1]):
            bounds = None
        for part in PARTS.values():
            term = part.of_rated(draw, self.entity, rated)
            if term is not None:
                centre = centre + term
        unknown = np.full(len(rated), -1, np.int32)
        if self.entity == "user":
            added, variance = draw.of_ratings(unknown, rated)
        else:
            added, variance = draw.of_ratings(rated, unknown)
        phi = draw.theta[OTHER[self.entity]][rated].astype(np.float64)
        offset = np.full(len(phi), self.run.mean) + added
        scales = draw.tau * draw.noise_scale[OTHER[self.entity]][rated].astype(np.float64)
        if config.biases:
            offset = offset + phi[:, config.rank]
            phi[:, config.rank] = 1.0
        return RatedRow(
            features=phi,
            offset=offset,
            x=of_row.values,
            scales=scales * of_row.weights,
            effects=np.broadcast_to(np.asarray(variance, np.float64), len(phi)),
            centre=centre,
            precision=prior.precision,
            parameters=self._parameters(draw, rated),
            bounds=bounds,
        )

    def _parameters(self, draw: Draw, rated: Int32) -> Array | None:
        """Return the likelihood's parameters for the ratings of a row: for all, or for each."""
        law = self.run.config.law
        of_others = draw.own_parameters(law, OTHER[self.entity])
        if of_others is None:
            return law.parameters_of(draw.shared)
        return of_others[rated]


class NoiseOfRow(NamedTuple):
    """Prior of the noise scale g of a row.

    Attributes
    ----------
    nu : (1,) float64 or None
        Degrees of freedom; None if noise is shared.
    coupled : bool
        Whether g multiplies the precision of the row's prior, too.
    most : float
        Largest g.
    """

    nu: Array | None
    coupled: bool = False
    most: float = inf


def normal_row(
    law: type[Law], row: RatedRow, *, of_all_pairs: Float64, noise: NoiseOfRow, rng: Generator
) -> tuple[Float64, Float64, float]:
    """Return mean, covariance and 1 / g of a row that is normal given g and its ratings.

    Ratings that are known only by bounds have drawn values [Tanner & Wong 1987].
    `of_all_pairs` is the precision from the likelihood term of all pairs, rated or not.
    """
    noise_precision = _noise_precision(row)
    gram, moment = _statistics(law, row, of_all_pairs)
    g = 1.0
    for sweep in range(GIBBS_SWEEPS + 1):
        if noise.coupled:
            inverse = _inverse_root(row.precision + gram)
            mean = inverse.T @ (inverse @ (row.precision @ row.centre + moment))
            g = _draw_scale(row, mean, noise, rng)
            inverse /= np.sqrt(g)
        else:
            inverse = _inverse_root(row.precision + g * gram)
            mean = inverse.T @ (inverse @ (row.precision @ row.centre + g * moment))
        is_exact = noise.nu is None or noise.coupled
        if (is_exact and row.bounds is None) or sweep == GIBBS_SWEEPS:
            break
        drawn = mean + inverse.T @ rng.standard_normal(len(mean))
        if row.bounds is not None:
            row = row.with_drawn_values(law, drawn, g * noise_precision, rng)
            _, moment = _statistics(law, row, of_all_pairs)
        if not noise.coupled:
            g = _draw_scale(row, drawn, noise, rng)
    return mean, inverse.T @ inverse, 1 / g


def _draw_scale(row: RatedRow, theta: Float64, noise: NoiseOfRow, rng: Generator) -> float:
    """Draw g of a row given theta; 1 if noise is shared.

    If g multiplies the precision of the prior, theta is integrated out, given its mean.
    """
    if noise.nu is None:
        return 1.0
    nu = noise.nu.item()
    errors = row.x - row.offset - row.features @ theta
    squares = float(_noise_precision(row) @ errors**2)
    if noise.coupled:
        deviation = theta - row.centre
        squares += float(deviation @ row.precision @ deviation)
    return truncated_gamma((nu + len(errors)) / 2, (nu + squares) / 2, noise.most, rng)


def _noise_precision(row: RatedRow) -> Float64:
    """Return the precisions of the noise of a row's ratings and of unknown effects, at g = 1."""
    if np.any(row.effects):
        return 1 / (1 / row.scales + row.effects)
    return row.scales


def _statistics(law: type[Law], row: RatedRow, of_all_pairs: Float64) -> tuple[Float64, Float64]:
    """Return what the ratings add to a row's precision, and to precision times mean, at g = 1."""
    statistics = law.statistics(row.features, row.x - row.offset, _noise_precision(row))
    assert statistics is not None
    gram, moment = statistics
    return gram + of_all_pairs, moment


def _inverse_root(precision: Float64) -> Float64:
    """Return L^-1 of a precision L L^T."""
    problem = "nothing can be folded in, as a saved draw has invalid precisions"
    with refusing(problem, np.linalg.LinAlgError):
        lower = np.linalg.cholesky(precision)
    return np.asarray(np.linalg.inv(lower))
