r"""Predictive distributions of single ratings.

From **draws**: the mixture over the saved draws d of N(mu + a_i + b_j + W_i . H_j, 1 / (tau g_i g'_j)), all of draw d,
weighted as the draws are. Its mean and variance are exact for the mixture, its quantiles are those of the mixture
itself, not of a normal with its moments. Of the predictor alone (``of_mean``) the components are points, and the
quantiles those of the sample.

From **moments**, where there are no draws: the elements of the factors are taken to be independent of each other,

    E = mu + E a_i + E b_j + sum_k E W_ik E H_jk
    Var = Var a_i + Var b_j + sum_k (E W_ik)^2 Var H_jk + Var W_ik (E H_jk)^2 + Var W_ik Var H_jk

for every chain, pooled over chains, plus the posterior mean of the noise variance; quantiles as of a normal. This
leaves out that factors covary, which makes the predictor's sd too large: on MovieLens 1M, intervals of 90 % held 92 %.

A user or item that was never seen has its prior given each draw: exact for one of the pair, and for both the sum of the
elements' variances as above. Its own noise scale g is taken to be 1.

Of ratings of levels the mixture is over the probabilities of the levels, mean, sd and quantiles are those of the
mixture, and ``of_mean`` is of the expected rating. A predictor that is itself uncertain is integrated over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dsgmcmc.errors import InputError
from dsgmcmc.kernels.prediction import cells_kernel, moments_kernel
from dsgmcmc.model.likelihoods import Likelihood
from dsgmcmc.model.likelihoods.base import Prediction
from dsgmcmc.posterior.draws import KINDS, Draw, Moments, Source
from dsgmcmc.posterior.mixture import Mixture, level_summary
from dsgmcmc.posterior.names import Vocabulary
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.thresholds import of_owners, owners
from dsgmcmc.types import Float32, Float64, Int32

BLOCK = 8192  # pairs whose components are in memory together: they stay in the cache
_RARE = 1024  # as many pairs with dense covariances


@dataclass(frozen=True)
class Rows:
    """Rows of one side at one draw: known up to a covariance.

    Attributes
    ----------
    mean : (q, D) float64
    covariance : (q, D, D) float64
    noise : (q,) float64
        1 / g of each; where ratings are of levels, its scale.
    cuts : (q, R - 1) float64 or None
        Thresholds of each, where users have their own.
    """

    mean: Float64
    covariance: Float64
    noise: Float64
    cuts: Float64 | None = None


class Newcomers(Protocol):
    """Users or items that the run did not see, with a law given each draw (`dsgmcmc.posterior.foldin`)."""

    kind: str
    vocabulary: Vocabulary

    def rows(self, number: int, which: npt.NDArray[np.intp]) -> Rows:
        """Rows of the newcomers `which` at the draw of that number."""

    def rated(self, which: int) -> Int32:
        """Rows of the items (or users) that a newcomer rated."""


@dataclass(frozen=True)
class Options:
    """What is predicted.

    Attributes
    ----------
    source : {"auto", "draws", "moments"}
    of_mean : bool
        The predictor alone, without the noise of a rating.
    interval : float
        Probability between the two quantiles.
    clip : bool
        Move means and quantiles into the range of the training ratings; sds stay as they are.
    at_least : float or None
        Also the probability of a rating of at least so much.
    probabilities : bool
        Also the probability of every level.
    """

    source: Source = "auto"
    of_mean: bool = False
    interval: float = 0.9
    clip: bool = False
    at_least: float | None = None
    probabilities: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.interval < 1:
            raise InputError(f"interval {self.interval}: expected a probability between 0 and 1")
        if self.of_mean and (self.at_least is not None or self.probabilities):
            raise InputError("probabilities are of a rating, and --of-mean asks for its expectation: leave one out")

    @property
    def levels(self) -> tuple[float, float]:
        """Probabilities of the two quantiles."""
        tail = round((1 - self.interval) / 2, 12)
        return tail, 1 - tail

    @property
    def columns(self) -> tuple[str, str, str, str]:
        """Names of what is predicted, such as ``mean, sd, q05, q95``."""
        low, high = (f"q{np.format_float_positional(round(level, 10))[2:].ljust(2, '0')}" for level in self.levels)
        return "mean", "sd", low, high


class Predictor:
    """Predicts ratings, of users and items by their index.

    Parameters
    ----------
    run : Run
    options : Options
    newcomers : Newcomers, optional
        An index from the number of known ones on is theirs.

    Raises
    ------
    InputError
        If the run cannot give what is asked for.
    """

    def __init__(self, run: Run, options: Options, newcomers: Newcomers | None = None) -> None:
        self.run, self.options, self.newcomers = run, options, newcomers
        self.source = run.source(options.source)
        if newcomers and self.source != "draws":
            raise InputError(f"{run.path}: new rows are folded in given each draw, and only moments are asked for")
        self._of_levels = run.config.law.has_levels
        self._has_noise = run.config.law.has_noise and not options.of_mean
        rank, biases = run.config.rank, run.config.biases
        self._biases, self._rank = biases, rank
        if self.source == "draws":
            self._cells = cells_kernel(rank, biases)
        else:
            self._moments = moments_kernel(rank, biases)
            self._both = [
                {kind: np.concatenate([m.mean[kind], m.variance[kind]], axis=1) for kind in KINDS} for m in run.moments
            ]
        self._clip = options.clip and not run.config.law.all_cells  # scores have no range
        self._range = run.facts["minimum"], run.facts["maximum"]

    def __call__(self, users: Int32, items: Int32) -> Prediction:
        """Predict pairs.

        Parameters
        ----------
        users, items : (q,) int32
            As `index_of` gives them; -1 for an unknown one, which has its prior.

        Returns
        -------
        Prediction
            In units of the ratings.
        """
        users, items = np.ascontiguousarray(users, np.int32), np.ascontiguousarray(items, np.int32)
        found = Prediction(*(np.empty(len(users), np.float32) for _ in Prediction._fields))
        for start in range(0, len(users), BLOCK):
            part = slice(start, start + BLOCK)
            for whole, values in zip(found, self._summary(self.mixture(users[part], items[part])), strict=True):
                whole[part] = values
        for values in (found.mean, found.low, found.high):
            values += np.float32(self.run.mean)
            if self._clip:
                np.clip(values, *self._range, out=values)
        return found

    def index_of(self, kind: str, names: Any) -> Int32:
        """Index of users or items by their names; -1 for those that neither the run nor the newcomers have."""
        vocabulary = self.run.vocabulary(kind)
        index = vocabulary.index_of(names)
        if self.newcomers and self.newcomers.kind == kind:
            new = self.newcomers.vocabulary.index_of(names)
            index = np.where(new >= 0, new + np.int32(len(vocabulary)), index)
        return index

    def _unseen(self, users: Int32, items: Int32) -> tuple[npt.NDArray[np.intp], Int32, Int32]:
        """Pairs with a side that was not seen in training, and both sides with index 0 in the stead of such."""
        new_user = (users < 0) | (users >= len(self.run.users))
        new_item = (items < 0) | (items >= len(self.run.items))
        which = np.flatnonzero(new_user | new_item)
        zero = np.int32(0)
        return which, np.where(new_user, zero, users), np.where(new_item, zero, items)

    def mixture(self, users: Int32, items: Int32) -> Mixture:
        """What the predictive distributions of pairs are mixed of."""
        return self._from_draws(users, items) if self.source == "draws" else self._from_moments(users, items)

    def _summary(self, found: Mixture) -> Prediction:
        options, law = self.options, self.run.config.law
        if issubclass(law, Likelihood):
            return law.predictive(found.centre, found.variance, found.weights, options.levels, options.of_mean)
        return level_summary(self.run, found, options.levels, options.of_mean)

    # ------------------------------------------------------------------ from draws

    def components(self, users: Int32, items: Int32) -> tuple[Float32, Float32]:
        """Means, less the training mean, and variances of the mixture's components, (q, draws) float32 each."""
        found = self._from_draws(users, items)
        return found.centre, found.variance

    def _from_draws(self, users: Int32, items: Int32) -> Mixture:
        run = self.run
        which, known_users, known_items = self._unseen(users, items)
        centre = np.empty((len(users), len(run.draws)), np.float32)
        variance, spread = np.empty_like(centre), np.zeros_like(centre)
        (whose, owner), thresholds = owners(run.config, users), []
        for number in range(len(run.draws)):
            draw = run.draw(number)
            noise = draw.noise_scale if self._of_levels else draw.inverse_scale
            scale = self._scale(1 / draw.tau)
            theta = draw.theta
            self._cells(
                *(known_users, known_items, theta["user"], theta["item"], noise["user"], noise["item"]),
                *(scale, number, centre, variance),
            )
            for start in range(0, len(which), _RARE):
                some = which[start : start + _RARE]
                rows = [
                    self._draw_rows(number, draw, noise[kind], kind, index[some])
                    for kind, index in (("user", users), ("item", items))
                ]
                centre[some, number], own = self._join(*rows)
                spread[some, number] = own
                variance[some, number] = scale * rows[0].noise * rows[1].noise + (0.0 if self._of_levels else own)
            variance[:, number] += np.float32(draw.time_variance if self._has_noise else 0.0)
            thresholds.append(of_owners(draw, whose, self.newcomers, number))
        cuts = (np.array(thresholds), owner) if self._of_levels else (None, None)
        return Mixture(centre, variance, spread, run.draw_weights, *cuts)

    def _scale(self, noise_variance: float) -> float:
        """What the product of the rows' own is taken times."""
        if self._of_levels:
            return 1.0
        return noise_variance if self._has_noise else 0.0

    def _own(self, noise_scale: Float32) -> Float32:
        """What a row has of its own: 1 / g, or the scale s of levels."""
        return noise_scale if self._of_levels else np.reciprocal(noise_scale)

    def _draw_rows(self, number: int, draw: Draw, own: Float32, kind: str, index: Int32) -> Rows:
        prior, n = draw.unseen[kind], len(draw.theta[kind])
        mean = np.tile(prior.mean, (len(index), 1))
        covariance = np.tile(prior.covariance, (len(index), 1, 1))
        noise = np.ones(len(index))
        known = (index >= 0) & (index < n)
        mean[known], covariance[known] = draw.theta[kind][index[known]], 0.0
        noise[known] = own[index[known]]
        new = index >= n
        if new.any():
            assert self.newcomers is not None
            assert self.newcomers.kind == kind
            rows = self.newcomers.rows(number, index[new].astype(np.intp) - n)
            mean[new], covariance[new], noise[new] = rows.mean, rows.covariance, rows.noise
        return Rows(mean, covariance, noise)

    # ------------------------------------------------------------------ from moments

    def _from_moments(self, users: Int32, items: Int32) -> Mixture:
        which, known_users, known_items = self._unseen(users, items)
        means, variances, spreads = [], [], []
        for m, both in zip(self.run.moments, self._both, strict=True):
            mean, spread = np.empty(len(users), np.float32), np.empty(len(users), np.float32)
            self._moments(known_users, known_items, both["user"], both["item"], mean, spread)
            scale = self._scale(m.noise_variance)
            own = self._own(m.noise_scale["user"])[known_users] * self._own(m.noise_scale["item"])[known_items]
            variance = np.float32(scale) * own
            if len(which):
                rows = [self._moment_rows(m, kind, index[which]) for kind, index in (("user", users), ("item", items))]
                mean[which], spread[which] = self._join(*rows)
                variance[which] = scale * rows[0].noise * rows[1].noise
            variance += np.float32(m.time_variance if self._has_noise else 0.0)
            means.append(mean)
            variances.append(variance)
            spreads.append(spread)
        if self._of_levels:  # thresholds are a chain's own
            centre, scales, spread = (np.stack(each, axis=1) for each in (means, variances, spreads))
            whose, owner = owners(self.run.config, users)
            thresholds = np.array([of_owners(m, whose) for m in self.run.moments])
            return Mixture(centre, scales, spread, np.full(len(thresholds), 1 / len(thresholds)), thresholds, owner)
        own = (np.mean(spreads, axis=0) + np.var(means, axis=0)).astype(np.float32)
        whole = (own + np.mean(variances, axis=0)).astype(np.float32)
        return Mixture(np.mean(means, axis=0)[:, None], whole[:, None], own[:, None], np.ones(1))

    def _moment_rows(self, moments: Moments, kind: str, index: Int32) -> Rows:
        prior = moments.prior[kind]
        mean = np.tile(prior.mean, (len(index), 1))
        variance = np.tile(np.diag(prior.covariance), (len(index), 1))
        noise = np.ones(len(index))
        known = index >= 0
        mean[known], variance[known] = moments.mean[kind][index[known]], moments.variance[kind][index[known]]
        noise[known] = self._own(moments.noise_scale[kind])[index[known]]
        covariance = np.zeros((*variance.shape, variance.shape[1]))
        diagonal = np.arange(variance.shape[1])
        covariance[:, diagonal, diagonal] = variance
        return Rows(mean, covariance, noise)

    # ------------------------------------------------------------------ two sides

    def _join(self, user: Rows, item: Rows) -> tuple[Float64, Float64]:
        """Mean and variance of the predictor of pairs whose rows are independent."""
        k = self._rank
        centre = (user.mean[:, :k] * item.mean[:, :k]).sum(axis=1)
        across = [rows.mean.copy() for rows in (user, item)]  # what multiplies the other side
        if self._biases:
            centre += user.mean[:, k] + item.mean[:, k]
            for side in across:
                side[:, k] = 1.0
        spread = np.einsum("qk,qkl,ql->q", across[1], user.covariance, across[1])
        spread += np.einsum("qk,qkl,ql->q", across[0], item.covariance, across[0])
        spread += np.einsum("qkl,qkl->q", user.covariance[:, :k, :k], item.covariance[:, :k, :k])
        return centre, spread
