r"""Parameters of items and users of ordered levels, as item response theory has them.

With the cumulative probabilities of `dsgmcmc.model.likelihoods.ordinal.ordinal`, the probability
that user i reaches level k of item j, of R levels, is

    P(x_ij >= v_k) = F(alpha_j delta_i (theta_i + ... - beta_jk)),    k = 1 ... R - 1

F is the logistic function, theta_i is the ability of user i, beta_jk the thresholds of item j,
whose mean is its difficulty, and alpha_j, delta_i are the discriminations of item and user, 1 if
the model has no such scales. The dots are the interactions of factors, which are 0 on average over
users and over items. At every draw,

- abilities are the mean predictors of users over items; their mean over users is 0, and thresholds
  are relative to it;
- in the unit "logit" the geometric means of alpha and of delta are 1, so that abilities and
  thresholds are in logits of an average item; in the unit "sd" the sampled abilities have the sd 1.

Gaps between thresholds are equal for all items, unless items have thresholds of their own; an item
that lacks a level has no threshold below it (NaN). If users have thresholds of their own, beta_jk
belongs to the shared ones.

**Fit of items.** z_ij is a rating's residual in units of its sd. *Outfit* is the mean of z^2 over
the ratings of an item, and *infit* the mean weighted by the variances; 1 is expected. ``p`` is the
posterior predictive probability that the outfit of replicated ratings is at least that of the
ratings. The ratings are those of the test, if there are any: their means and variances are those of
the predictive distribution, which the error of the ability at a draw belongs to. Draws of the
abilities follow training ratings, so that these have the mean and variance at every draw, and
infit and outfit are averaged over draws.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.model.predictive.base import nearest_level
from dsgmcmc.posterior.cells.predict import Predictor
from dsgmcmc.posterior.draws import ENTITIES, Draw
from dsgmcmc.posterior.heldout import predict_test
from dsgmcmc.posterior.loadings import FactorsAtDraw, Loadings, loadings
from dsgmcmc.posterior.moments import Estimates, over_draws, spread_positions
from dsgmcmc.posterior.rows.added import FoldIn
from dsgmcmc.posterior.rows.rows import Rows
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.settings import PredictOptions
from dsgmcmc.ratings.pairs import RatedPairs, rated_pairs
from dsgmcmc.settings import named
from dsgmcmc.tables.draws import Draws
from dsgmcmc.tables.result import Table
from dsgmcmc.targets.state import RandomStream
from dsgmcmc.types import Array, Float64, Purpose

#: Unit of abilities: logits of an average item, or sds of the abilities at every draw.
Unit = Literal["logit", "sd"]

#: Largest number of draws from which the fit of items is computed.
DRAWS_OF_FIT = 100


class Parameters(NamedTuple):
    """Parameters at a draw, or their estimates' parts.

    Attributes
    ----------
    ability : (users,) float64
    thresholds : (items, R - 1) float64
    discrimination : dict of entity to (n,) float64
    """

    ability: Float64
    thresholds: Float64
    discrimination: dict[str, Float64]


class ItemFit(NamedTuple):
    """Fit of items, (items,) float64 each; NaN for items without ratings."""

    infit: Float64
    outfit: Float64
    p: Float64


def _need_levels(run: Run) -> None:
    """Raise InputError if the run has no draws, or its ratings no thresholds between levels."""
    run.need_draws()
    if run.config.law.thresholds_of_items(run.draw(0)) is None:
        raise InputError(
            f"{run.path} has the likelihood {run.config.likelihood}, and only ordered levels have"
            f" parameters of items: sample with {named('likelihood')} ordinal-logit"
        )


class _Abilities(NamedTuple):
    """How abilities follow from users' rows at a draw: ``factor * (rows @ direction - centre)``.

    Attributes
    ----------
    direction : (D,) float64
        Mean row of the items.
    centre : float
        Mean of the abilities of sampled users, before they are centred.
    factor : float
        Abilities in the unit that was asked for, relative to predictors.
    logit : float
        The same for the unit "logit".
    """

    direction: Float64
    centre: float
    factor: float
    logit: float

    def of(self, rows: Float64) -> Float64:
        """Return the abilities of rows, (n, D)."""
        return np.asarray(self.factor * (rows @ self.direction - self.centre))

    def variance(self, covariance: Float64) -> Float64:
        """Return the variances of the abilities of rows with covariances (m, D, D)."""
        forms = np.einsum("i,nij,j->n", self.direction, covariance, self.direction)
        return np.asarray(self.factor**2 * forms)


def _abilities(run: Run, draw: Draw, unit: Unit) -> _Abilities:
    """Return how abilities follow from users' rows at a draw."""
    rank = run.config.rank
    items = draw.theta["item"].astype(np.float64)
    direction = items.mean(axis=0)
    if run.config.biases:
        direction[rank] = 1.0
    raw = draw.theta["user"].astype(np.float64) @ direction
    logit = float(np.exp(sum(map(draw.mean_log_scale, ENTITIES))))
    factor = logit
    if unit == "sd":
        factor = 1 / float(raw.std())
    return _Abilities(direction, float(raw.mean()), factor, logit)


def parameters_at(run: Run, draw: Draw, unit: Unit = "logit") -> Parameters:
    """Return the parameters at a draw."""
    thresholds = run.config.law.thresholds_of_items(draw)
    assert thresholds is not None
    rank = run.config.rank
    theta = {entity: draw.theta[entity].astype(np.float64) for entity in ENTITIES}
    ease = theta["item"][:, :rank] @ theta["user"][:, :rank].mean(axis=0)
    if run.config.biases:
        ease += theta["item"][:, rank] + theta["user"][:, rank].mean()
    abilities = _abilities(run, draw, unit)
    discrimination = {}
    for entity in ENTITIES:
        logarithms = np.log(draw.noise_scale[entity].astype(np.float64))
        discrimination[entity] = np.exp(logarithms - draw.mean_log_scale(entity))
    discrimination["item"] *= abilities.logit / abilities.factor
    return Parameters(
        ability=abilities.of(theta["user"]),
        thresholds=abilities.factor * (thresholds - ease[:, np.newaxis]),
        discrimination=discrimination,
    )


def _difficulties(thresholds: Float64) -> Float64:
    """Return the means of the thresholds of items, (items,); NaN without any."""
    number = np.count_nonzero(~np.isnan(thresholds), axis=1)
    total = np.nansum(thresholds, axis=1)
    means: Float64 = np.divide(total, number, out=np.full(len(total), np.nan), where=number > 0)
    return means


class UserRows:
    """Users by name, sampled or not, and their abilities at saved draws.

    Parameters
    ----------
    run : Run
    added : FoldIn, optional
        Users that were folded in.
    names : (n,) array, optional
        Names that come first; the others of the run, and those that were folded in, follow, sorted.
        Users of whom nothing is known have the prior.
    """

    def __init__(self, run: Run, added: FoldIn | None = None, names: Array | None = None) -> None:
        _need_levels(run)
        if added is not None and added.entity != "user":
            added = None
        self._run = run
        self._rows = Rows(run, "user", added)
        self.names = run.users.ids
        if added is not None:
            is_new = run.users.index_of(added.vocabulary.ids) < 0
            self.names = np.concatenate([self.names, added.vocabulary.ids[is_new]])
        self.names = self.names[np.argsort(self.names, kind="stable")]
        if names is not None:
            names = run.users.typed(names)
            self.names = np.concatenate([names, self.names[~np.isin(self.names, names)]])
        self.index = self._rows.index_of(self.names)
        self.ratings = np.zeros(len(self.names), np.int64)
        sampled = self._rows.are_sampled(self.index)
        self.ratings[sampled] = run.counts("user")[self.index[sampled]]
        if added is not None:
            for row in np.flatnonzero(self.index >= len(run.users)).tolist():
                self.ratings[row] = len(added.rated(int(self.index[row]) - len(run.users)))

    def at(self, position: int, unit: Unit) -> dict[str, Float64]:
        """Return means and variances of abilities at a draw, and discriminations, (n,) each."""
        draw = self._run.draw(position)
        rows = self._rows.at(position, self.index)
        abilities = _abilities(self._run, draw, unit)
        variance = np.zeros(len(self.index))
        new = rows.uncertain
        variance[new] = abilities.variance(rows.covariance)[rows.spread_of[new]]
        mean = draw.mean_log_scale("user")
        discrimination = np.exp(-np.log(rows.noise.astype(np.float64)) - mean)
        return {
            "ability": abilities.of(rows.mean.astype(np.float64)),
            "variance": variance,
            "discrimination": discrimination,
        }


def user_parameters(
    run: Run, users: UserRows | None = None, *, draws: int = 0, unit: Unit = "logit"
) -> Table:
    """Return the abilities of users.

    Parameters
    ----------
    run : Run
    users : UserRows, optional
        By default, those of the run.
    draws : int
        Number of plausible values of every user, at draws that are spread over all saved ones.
    unit : {"logit", "sd"}

    Returns
    -------
    Table
        ``user_id``, ``ratings`` (training ratings), ``ability``, ``ability_sd`` and, if users have
        noise scales, ``discrimination`` and its sd; or, with `draws`, a `Draws` with ``user_id``
        and ``ability_1`` and so on.

    Raises
    ------
    InputError
        If the run has no saved draws, or fewer than `draws`, or ratings are not ordered levels.
    """
    if users is None:
        users = UserRows(run)
    if draws:
        return _plausible_values(run, users, draws, unit)
    estimates = over_draws(run, lambda position: users.at(position, unit))
    ability = estimates["ability"]
    total = np.sqrt(np.square(ability.sd) + estimates["variance"].mean)
    table = Table({"user_id": users.names, "ratings": users.ratings})
    _set(table, "ability", Estimates(ability.mean, total))
    if run.config.noise in ("by-user", "both"):
        _set(table, "discrimination", estimates["discrimination"])
    return table


def _plausible_values(run: Run, users: UserRows, draws: int, unit: Unit) -> Draws:
    """Return draws of the abilities of users."""
    run.need_draws(draws)
    abilities = np.empty((draws, len(users.names)))
    positions = np.linspace(0, len(run.draws) - 1, draws).round().astype(int).tolist()
    for number, position in enumerate(positions):
        at_draw = users.at(position, unit)
        stream = RandomStream(run.config.seed, chain=0, iteration=position)
        normals = stream.generator(Purpose.PLAUSIBLE).standard_normal(len(users.names))
        abilities[number] = at_draw["ability"] + np.sqrt(at_draw["variance"]) * normals
    return Draws({"user_id": users.names}, "ability", abilities, unit)


def item_parameters(
    run: Run,
    ratings: RatedPairs | None = None,
    *,
    names: Array | None = None,
    unit: Unit = "logit",
) -> Table:
    """Return the parameters of items, and their fit.

    Parameters
    ----------
    run : Run
    ratings : RatedPairs, optional
        Ratings from which the fit is computed.
    names : (n,) array, optional
        Order of the items; those that the run does not know are left out. By default they are
        sorted.
    unit : {"logit", "sd"}

    Returns
    -------
    Table
        ``item_id``, ``ratings`` (training ratings), ``difficulty``, with more than two levels
        ``threshold_1`` and so on, ``discrimination`` if items have noise scales, each with its sd
        in a column ``..._sd``; and, with `ratings`, ``infit``, ``outfit`` and ``p``.

    Raises
    ------
    InputError
        If the run has no saved draws, or ratings are not ordered levels.
    """
    _need_levels(run)

    def arrays_at(position: int) -> dict[str, Float64]:
        parameters = parameters_at(run, run.draw(position), unit)
        return {
            "difficulty": _difficulties(parameters.thresholds),
            "thresholds": parameters.thresholds,
            "discrimination": parameters.discrimination["item"],
        }

    estimates = over_draws(run, arrays_at)
    table = Table({"item_id": run.items.ids, "ratings": run.counts("item")})
    _set(table, "difficulty", estimates["difficulty"])
    of_levels = estimates["thresholds"]
    if of_levels.mean.shape[1] > 1:
        for k in range(of_levels.mean.shape[1]):
            of_level = Estimates(of_levels.mean[:, k].copy(), of_levels.sd[:, k].copy())
            _set(table, f"threshold_{k + 1}", of_level)
    if run.config.noise in ("by-item", "both"):
        _set(table, "discrimination", estimates["discrimination"])
    if ratings is not None:
        table.update(item_fit(run, ratings)._asdict())
    order = run.items.rows_in_order(names)
    return Table({name: column[order] for name, column in table.items()})


def item_dimensions(
    run: Run, *, items: Array | None = None, users: Array | None = None, target: object = None
) -> Loadings:
    """Return slopes and intercepts of items in several dimensions, the ability among them.

    With ordered levels the probability of reaching level k is F(a_j . f_i + d_jk). Users' biases
    and factors together are rotated as `dsgmcmc.posterior.loadings.loadings` says, and the scores
    f_i have mean 0 and variance 1.

    Parameters
    ----------
    items, users, target
        As for `dsgmcmc.posterior.loadings.loadings`.

    Returns
    -------
    Loadings
        ``items`` has ``a_1`` and so on, and ``d_1`` and so on, with their sds.

    Raises
    ------
    InputError
        If ratings are not ordered levels, or users have noise scales, or the target does not fit.
    """
    _need_levels(run)
    if run.config.noise in ("by-user", "both"):
        raise InputError(
            f"{run.path} has discriminations of users, by which slopes of items do not say the"
            f" probabilities: sample with {named('noise')} by-item or shared"
        )
    rank = run.config.rank

    def of_draw(position: int) -> FactorsAtDraw:
        draw = run.draw(position)
        rows = draw.theta["item"].astype(np.float64)
        if run.config.biases:
            rows[:, rank] = 1.0
        slopes = draw.noise_scale["item"].astype(np.float64)
        factors = FactorsAtDraw(draw.theta["user"].astype(np.float64), rows * slopes[:, np.newaxis])
        return factors.of_unit_variance()

    def intercepts_at(position: int) -> dict[str, Float64]:
        parameters = parameters_at(run, run.draw(position))
        slopes = parameters.discrimination["item"]
        return {"d": -slopes[:, np.newaxis] * parameters.thresholds}

    found = loadings(run, items=items, users=users, target=target, of_draw=of_draw, name="a")
    order = run.items.rows_in_order(items)
    mean, sd = over_draws(run, intercepts_at)["d"]
    for k in range(mean.shape[1]):
        _set(found.items, f"d_{k + 1}", Estimates(mean[order, k], sd[order, k]))
    return found


def parameter_tables(run: Run, users: UserRows, items: Array | None) -> Iterator[Table]:
    """Yield the parameters of items, then of users, in tables of equal columns for a file.

    `users` come in their order, and `items` are the names of items in theirs; sorted if None.
    The first columns are ``side`` and ``id``; what one side does not have is NaN there.
    """
    tables = {
        "item": item_parameters(run, ratings_of_fit(run), names=items),
        "user": user_parameters(run, users),
    }
    names = [name for table in tables.values() for name in table if not name.endswith("_id")]
    for entity, table in tables.items():
        ids = table[f"{entity}_id"]
        absent = np.full(len(ids), np.nan)
        if not (run.users.integers and run.items.integers):  # one column has one type
            ids = ids.astype(str).astype(object)
        columns = Table({"side": np.full(len(ids), entity, dtype=object), "id": ids})
        for name in dict.fromkeys(names):
            columns[name] = table.get(name, absent)
        yield columns


def _set(table: Table, name: str, estimates: Estimates) -> None:
    table[name] = estimates.mean
    table[f"{name}_sd"] = estimates.sd


def ratings_of_fit(run: Run) -> RatedPairs:
    """Return the test ratings of a run or, if there are none, its training ratings.

    Raises InputError if the ratings file is needed and missing.
    """
    users, items = run.test_pairs()
    if len(users) and not run.unfinished:
        return RatedPairs(users, items, predict_test(run).rating, held_out=True)
    return training_pairs(run)


def training_pairs(run: Run) -> RatedPairs:
    """Return the training ratings of a run; raises InputError if the ratings file is missing."""
    with run.open_ratings() as ratings:
        return rated_pairs(ratings, "train")


def item_fit(run: Run, ratings: RatedPairs) -> ItemFit:
    """Compute the fit of items from ratings, at no more than `DRAWS_OF_FIT` draws."""
    assert run.levels is not None
    positions = spread_positions(run, DRAWS_OF_FIT)
    weights = run.draw_weights[positions] / run.draw_weights[positions].sum()
    predictor = Predictor(run, PredictOptions())
    n = len(run.items)
    values = run.levels[nearest_level(ratings.values, run.levels)]
    infit = np.zeros(n)
    outfit = np.zeros(n)
    p = np.zeros(n)
    counts = np.bincount(ratings.items, minlength=n)
    expected = predictor.moments(ratings.users, ratings.items)
    for position, weight in zip(positions, weights.tolist(), strict=True):
        stream = RandomStream(run.config.seed, chain=0, iteration=position)
        uniforms = stream.generator(Purpose.REPLICATE).random(len(values))
        replicated = np.empty(len(values))
        batches = predictor.distributions(ratings.users, ratings.items, [position])
        for rows, predictive in batches:
            replicated[rows] = predictive.quantile(uniforms[rows])
            if not ratings.held_out:
                expected.mean[rows] = predictive.mean
                expected.sd[rows] = predictive.sd
        variance = np.square(expected.sd)
        squares = np.square(values - expected.mean)
        of_ratings = np.bincount(ratings.items, squares / variance, n)
        of_replicates = np.square(replicated - expected.mean) / variance
        with np.errstate(invalid="ignore", divide="ignore"):
            spread = np.bincount(ratings.items, variance, n)
            infit += weight * np.bincount(ratings.items, squares, n) / spread
            outfit += weight * of_ratings / counts
        p += weight * (np.bincount(ratings.items, of_replicates, n) >= of_ratings)
    p[counts == 0] = np.nan
    return ItemFit(infit, outfit, p)
