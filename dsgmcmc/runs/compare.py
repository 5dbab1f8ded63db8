r"""Compares candidate models on held-out training ratings, and recommends one of them by its
scores.

The recommendation depends on the data, the settings and the seed, but not on time.

1. *The likelihood*, that is, the distribution of a rating. The candidates are a model with biases
   only, and models with factors and each of the likelihoods that suit the ratings; all are without
   additions. The rule of step 3 chooses one of the likelihoods with factors.
2. *The additions.* Each addition is tried alone, with the chosen likelihood. If there are several,
   Gaussian noise by user and item takes the place of the ordinal likelihood: its sweeps are
   shorter, and it draws time effects exactly. All additions that improve the score are then
   combined with the chosen likelihood. Additions are not tested for significance one by one,
   because small gains add up, and may be significant only together.
3. *The recommended model* is the simplest sampled candidate whose score is within one standard
   error of the best score. The standard error is that of the paired difference, and includes the
   Monte Carlo errors of both chains. The gap must not be clear without the outliers among the
   differences.

All chains have the same length: fewer sweeps for many ratings, because errors are then small and
sweeps take long. In each of these steps, the chain of a candidate whose score is clearly behind the
best one ends after half of its draws, as do all chains if only the best candidate is left. Of very
many ratings, those of random rows are used. A candidate whose chain diverges is excluded. Only the
chain of the simplest candidate falls back to safer samplers, as in any run, so that there is always
a model to recommend.

Every candidate's chain is a separate run, in a folder that is deleted at the end. The name of the
run is a hash of its ratings and settings, so a comparison that was stopped resumes without sampling
finished chains again.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from pathlib import Path
from time import sleep
from typing import Any, Literal, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from dsgmcmc.config.job import Policy
from dsgmcmc.config.run import ResolvedConfig, merged
from dsgmcmc.data.codes import find_codes
from dsgmcmc.data.inner import InnerSplit
from dsgmcmc.data.ratings import Ratings
from dsgmcmc.diagnostics import ranking
from dsgmcmc.diagnostics.comparison import Comparison, Model
from dsgmcmc.diagnostics.scores import Difference, difference, mae, rmse
from dsgmcmc.errors import DivergenceError, InputError, StoppedError
from dsgmcmc.model.likelihoods import Levels
from dsgmcmc.model.likelihoods.ordinal import LEAST_LEVELS, MAX_THRESHOLDS, scale_of
from dsgmcmc.model.predictive.base import SMALLEST
from dsgmcmc.parallel.alone import Comm
from dsgmcmc.parallel.comm import on_root
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.parallel.signals import Signals
from dsgmcmc.posterior.exposure import Exposure, Rated
from dsgmcmc.posterior.heldout import predict_test
from dsgmcmc.posterior.rank import Ranking, liked_from
from dsgmcmc.posterior.run import Run
from dsgmcmc.runs.job import Job, refuse_taken
from dsgmcmc.runs.progress import logs
from dsgmcmc.runs.source import RatingsSource
from dsgmcmc.settings import named
from dsgmcmc.storage.lock import ATTEMPT_SECONDS, Lock
from dsgmcmc.storage.store import open_array, write_array
from dsgmcmc.terminal import say
from dsgmcmc.types import Float64, Int32, Int64

Metric = Literal["log-probability", "log-density", "rmse", "ndcg"]

#: Sweeps of a chain's burn-in, and the largest number of sweeps of a chain.
BURN_IN_SWEEPS, MAX_SWEEPS = 50, 300
#: Sweeps of all chains together, for fewer than `MANY_RATINGS` training ratings and from this
#: number on.
ALL_SWEEPS, ALL_SWEEPS_MANY = 1400, 840
MANY_RATINGS = 200_000
#: Of more training ratings than this number, those of some rows are left out, but at most of three
#: rows in four, whose values would slow down the draws of the priors of rows.
ENOUGH_RATINGS, LEAST_ROWS = 250_000, 0.25
#: Likelihoods that are replaced while additions are tried, and their replacements.
TRIAL_LIKELIHOODS = {"ordinal": "noise"}
#: Smallest number of saved draws of a candidate, if rankings are the criterion.
RANKING_DRAWS = 20
#: Share of the training ratings that is held out, at least `HELD_OUT_MIN` ratings, but at most a
#: quarter of them.
HELD_OUT_SHARE, HELD_OUT_MIN = 0.1, 1000
#: Number of ranked items per user for the NDCG.
LIST_LENGTH = 10
#: A gap of so many standard errors is clear: without outliers; and after half of the draws.
CLEAR, CLEAR_EARLY = 3.0, 2.0
#: Name of the model without factors, which has no additions.
BIASES_ONLY = "biases only"

#: Settings of each likelihood for ratings, the simplest first.
LIKELIHOODS: dict[str, dict[str, Any]] = {
    BIASES_ONLY: {"likelihood": "gaussian", "noise": "shared", "thresholds": "shared", "rank": 0},
    "plain": {"likelihood": "gaussian", "noise": "shared", "thresholds": "shared"},
    "log": {"likelihood": "gaussian", "noise": "shared", "thresholds": "shared", "scale": "log"},
    "log1p": {
        "likelihood": "gaussian",
        "noise": "shared",
        "thresholds": "shared",
        "scale": "log1p",
    },
    "noise": {"likelihood": "gaussian", "noise": "both", "thresholds": "shared"},
    "log noise": {
        "likelihood": "gaussian",
        "noise": "both",
        "thresholds": "shared",
        "scale": "log",
    },
    "log1p noise": {
        "likelihood": "gaussian",
        "noise": "both",
        "thresholds": "shared",
        "scale": "log1p",
    },
    "tails": {"likelihood": "student-t", "noise": "both", "thresholds": "shared"},
    "log tails": {
        "likelihood": "student-t",
        "noise": "both",
        "thresholds": "shared",
        "scale": "log",
    },
    "log1p tails": {
        "likelihood": "student-t",
        "noise": "both",
        "thresholds": "shared",
        "scale": "log1p",
    },
    "counts": {"likelihood": "negative-binomial", "noise": "shared", "thresholds": "shared"},
    "ordinal": {"likelihood": "ordinal-logit", "noise": "by-item", "thresholds": "user"},
}

#: Logarithms are tried if the largest rating is at least this number of medians.
MANY_MEDIANS = 20

#: Integer ratings are tried as counts if their maximum exceeds this number.
SMALL_COUNTS = 10

#: Settings of the likelihood for clicks, that is, for training ratings that are all 1.
CLICKS: dict[str, dict[str, Any]] = {
    "clicks": {"likelihood": "all-cells", "noise": "shared", "thresholds": "shared"}
}

#: Additions to a likelihood: the setting of each addition, and its value.
ADDED: dict[str, tuple[str, str]] = {
    "features": ("features", "yes"),
    "implicit": ("implicit_features", "both"),
    "time": ("time_levels", "user"),
}


# ---------------------------------------------------------------------- candidates


class Candidate(NamedTuple):
    """A candidate model.

    Attributes
    ----------
    likelihood : str
        A key of `LIKELIHOODS` or `CLICKS`.
    added : tuple of str
        Keys of `ADDED`.
    binary : bool
        Whether the ratings have two values: logistic regression then takes the place of Gaussian
        likelihoods, whose predictive intervals would be wrong.
    """

    likelihood: str
    added: tuple[str, ...]
    binary: bool = False

    @property
    def name(self) -> str:
        """The likelihood and its additions, joined by plus signs."""
        return " + ".join((self.likelihood, *self.added))

    @property
    def settings(self) -> Mapping[str, Any]:
        """Settings of the model, by their names in ``dsgmcmc sample``."""
        parts = {
            setting: value if part in self.added else "no"
            for part, (setting, value) in ADDED.items()
        }
        logistic = {"likelihood": "ordinal-logit"} if self.binary else {}
        return {**(LIKELIHOODS | CLICKS)[self.likelihood], **parts, **logistic}


def likelihoods_for(ratings: Levels) -> list[str]:
    """List the likelihoods that suit training ratings, given as distinct values and their counts;
    the simplest first.

    Biases only, ``plain`` and ``noise`` suit all ratings. Student-t suits ratings with more than 25
    distinct values, and logarithms (``log``, ``log noise``, ``log tails``) suit those of them that
    are positive and `skewed`. The negative binomial suits nonnegative integers with a maximum above
    10 and a variance above their mean. Logarithms of counts plus 1 suit those of them that have
    zeros and more than 25 distinct values, and are `skewed` with 1 added. The ordinal likelihood
    suits 3 to 25 distinct values.
    """
    values, counts = ratings
    mean = np.average(values, weights=counts)
    overdispersed = np.average(np.square(values - mean), weights=counts) > mean
    are_counts = values[0] >= 0 and not np.any(values % 1)
    suits = {
        "tails": len(values) > MAX_THRESHOLDS,
        "ordinal": LEAST_LEVELS <= len(values) <= MAX_THRESHOLDS,
    }
    suits["counts"] = bool(are_counts and values[-1] > SMALL_COUNTS and overdispersed)
    positive = {"log": values[0] > 0, "log1p": values[0] == 0 and suits["counts"]}
    for name, settings in LIKELIHOODS.items():
        if scale := settings.get("scale"):
            suits[name] = (
                suits["tails"] and positive[scale] and skewed(values + (scale == "log1p"), counts)
            )
    return [name for name in LIKELIHOODS if suits.get(name, True)]


def skewed(values: Float64, counts: Int64) -> bool:
    """Whether positive ratings reach `MANY_MEDIANS` medians, or have logarithms less than half as
    skewed.
    """
    apart = [x - np.average(x, weights=counts) for x in (values, np.log(values))]
    skewness, of_logarithms = (
        abs(counts @ x**3) / (counts @ x**2) ** 1.5 for x in apart
    )  # times a common factor
    median = values[np.searchsorted(np.cumsum(counts), counts.sum() / 2)]
    return bool(values[-1] >= MANY_MEDIANS * median or of_logarithms < skewness / 2)


def candidates(
    *, clicks: bool, features: bool, times: bool, suited: Collection[str] = LIKELIHOODS
) -> list[Candidate]:
    """List the candidate models, the simplest first; settings or ratings may exclude some of them.

    Parameters
    ----------
    clicks : bool
        Whether all ratings are 1.
    features : bool
        Whether users or items have features.
    times : bool
        Whether the ratings have times.
    suited : collection of str
        Keys of `LIKELIHOODS` that suit the ratings; unused for clicks.
    """
    available = {"features": features, "implicit": True, "time": times and not clicks}
    additions = [name for name in ADDED if available[name]]
    subsets = [
        subset for size in range(len(additions) + 1) for subset in combinations(additions, size)
    ]
    models = [
        Candidate(name, subset) for name in (CLICKS if clicks else suited) for subset in subsets
    ]
    return [model for model in models if model.likelihood != BIASES_ONLY or not model.added]


# ---------------------------------------------------------------------- scores


class Scores(NamedTuple):
    """Scores of a candidate.

    Attributes
    ----------
    values : (n,) float64
        Score of every held-out rating, or for the metric ``ndcg`` of every ranked user: larger
        scores are better. For the metric ``rmse``, negative squared errors.
    owners : (n,) int32
        User of every score.
    error : float
        Monte Carlo error of the mean score; 0 before it is computed.
    usual_error : float or None
        The same without outliers (`without_outliers`); None if it is the same.
    """

    values: Float64
    owners: Int32
    error: float = 0.0
    usual_error: float | None = None

    def compared_with(self, first: Float64) -> Scores:
        """Return these scores with their Monte Carlo error, given `first`, the scores from the
        first half of the draws.

        If scores are nearly linear in the predictions, the scores from all draws lie halfway
        between the scores from the two halves. They differ from either half by the Monte Carlo
        error and, until the chain has converged, by a trend. A trend that is equal for all users
        does not enter the error.
        """
        usual = without_outliers(first - self.values)
        usual_error = difference(usual, np.zeros_like(usual), self.owners).error
        return self._replace(
            error=difference(first, self.values, self.owners).error, usual_error=usual_error
        )

    def behind(self, best: Scores, limited: bool = False) -> Difference:
        """Return the mean score of the candidate `best` minus the mean of these scores, with its
        standard error.

        If `limited`, both are `without_outliers`.
        """
        apart, errors = best.values - self.values, [self.error, best.error]
        if limited:
            apart = without_outliers(apart)
            errors = [s.error if s.usual_error is None else s.usual_error for s in (self, best)]
        gap = difference(apart, np.zeros_like(apart), self.owners)
        return Difference(
            gap.mean, float(np.sqrt(gap.error**2 + sum(error**2 for error in errors)))
        )


def without_outliers(differences: Float64) -> Float64:
    """Reduce the largest and the smallest hundredth of the differences to the others."""
    with np.errstate(invalid="ignore"):  # of infinite differences
        return np.clip(differences, *np.quantile(differences, (0.01, 0.99)))


def recorded_values(ratings: Ratings) -> Float64 | None:
    """Return the ascending values of the training ratings if they are levels of a scale or
    integers; else None.

    All likelihoods can be compared by the probabilities of these values. The probability of a value
    is the integral of the density, or the sum over counts or levels, between the midpoints to the
    neighbouring values; the first and last values include the tails.
    """
    scale = scale_of(ratings)
    if scale is not None:
        return scale
    values = Levels.of(ratings).values
    return None if np.any(values % 1) else values


def scores_of(run: Run, metric: Metric, values: Float64 | None) -> Scores:
    """Score every test rating of a run by a metric other than ``ndcg``.

    The log probability needs `values`, the `recorded_values` of the training ratings.
    """
    owners, test = run.test_pairs()[0], predict_test(run)
    if metric == "rmse":
        return Scores(-np.square(test.rating - test.point(run.config.law)), owners)
    predictive = test.predictive(run.config.law, values if run.levels is None else run.levels)
    score = predictive.log_probability if metric == "log-probability" else predictive.log_density
    return Scores(np.nan_to_num(score(test.rating), nan=np.nan, neginf=np.log(SMALLEST)), owners)


def ranking_scores(run: Run, rated: Rated, max_users: int = ranking.MAX_USERS) -> Scores:
    """Return the NDCG@10 of at most `max_users` users, evenly spaced among the users who like a
    held-out item.

    Items are ranked by the default rule, ``likely``, with the exposure estimated from `rated`.
    """
    run.exposure = Exposure.of_ratings(rated, run.counts("item") / len(run.users))
    liked = predict_test(run).rating >= liked_from(run)
    liked_users, liked_items = (side[liked] for side in run.test_pairs())
    if not len(liked_users):
        raise InputError(
            "no user likes a held-out item, so rankings cannot be compared: choose another metric"
        )
    users = ranking.evenly_spaced(np.unique(liked_users), max_users)
    lists = ranking.recommended(run, users, Ranking(LIST_LENGTH), rated)
    return Scores(ranking.measures(users, lists, liked_users, liked_items)["ndcg"], users)


# ---------------------------------------------------------------------- choosing a candidate


def length_of(ratings: int, models: Sequence[Candidate]) -> int:
    """Return the number of sweeps of every candidate's chain, burn-in included, given a number of
    training ratings.
    """
    bare = sum(
        not model.added and model.likelihood != BIASES_ONLY for model in models
    )  # the others take little time
    additions = len({model.added for model in models if len(model.added) == 1})
    return min(
        MAX_SWEEPS,
        (ALL_SWEEPS_MANY if ratings >= MANY_RATINGS else ALL_SWEEPS) // (bare + additions + 1),
    )


def best_of(scores: Mapping[int, Scores]) -> int:
    """Return the number of the candidate with the largest mean score; in a tie, of the simplest."""
    return max(scores, key=lambda number: (scores[number].values.mean(), -number))


def recommended(scores: Mapping[int, Scores]) -> int:
    """Return the number of the simplest candidate whose score is within one standard error of the
    best score.

    One outlier can make the standard error as large as the gap: the gap of the other ratings must
    not be clear.
    """
    best = scores[best_of(scores)]

    def is_near(candidate: Scores) -> bool:
        gap, usual = (candidate.behind(best, limited) for limited in (False, True))
        return gap.mean <= gap.error and usual.mean <= CLEAR * usual.error

    return next(number for number in sorted(scores) if is_near(scores[number]))


def leading(scores: Mapping[int, Scores]) -> list[int]:
    """List the candidates whose score is not clearly worse than the best score, with outliers or
    without.
    """
    best = scores[best_of(scores)]
    gaps = {
        number: (own.behind(best), own.behind(best, limited=True)) for number, own in scores.items()
    }
    return [
        number
        for number, both in gaps.items()
        if not all(gap.mean > CLEAR_EARLY * gap.error for gap in both)
    ]


# ---------------------------------------------------------------------- comparing the candidates


def inner_split_of(ratings: Ratings, seed: int) -> InnerSplit:
    """Divide the training ratings of an open file into training and held-out ratings for the
    comparison.
    """
    share = min(0.25, max(HELD_OUT_SHARE, HELD_OUT_MIN / ratings.nnz))
    return InnerSplit(
        ratings, share, seed, rows=min(1.0, max(LEAST_ROWS, ENOUGH_RATINGS / ratings.nnz))
    )


class Plan(NamedTuple):
    """Candidates and settings of a comparison, equal on all processes.

    Attributes
    ----------
    seed : int
        Seed of the chains and of the choice of held-out ratings.
    metric : Metric
        Criterion of the comparison.
    models : list of Candidate
        Candidates that ratings and settings admit, the simplest first.
    runs : list of str
        Name of each candidate's run.
    fixed : dict
        Settings of all chains.
    sweeps : int
        Length of each chain, burn-in included.
    """

    seed: int
    metric: Metric
    models: list[Candidate]
    runs: list[str]
    fixed: dict[str, Any]
    sweeps: int

    @property
    def half(self) -> int:
        """Sweeps after which a chain has made half of its draws."""
        return (BURN_IN_SWEEPS + self.sweeps) // 2


class CandidateJob(Job):
    """A job that samples a candidate, and writes no summary."""

    def _write_summary(self, ring: Ring, sampling: float) -> list[str]:
        return []


@dataclass(eq=False)
class Comparing:
    """A comparison of candidates on all processes.

    Parameters
    ----------
    comm : Comm
        All processes.
    source : RatingsSource
        The ratings to which the candidates are fitted.
    folder : Path
        Temporary folder for the candidates' runs.
    given : dict
        Settings for all candidates; model settings restrict the candidates.
    metric : Metric, optional
        Criterion. Default: NDCG for clicks; the log probability if ratings are levels or integers;
        else the log density.
    policy : Policy, optional
        Actions when time runs out or an error occurs.
    signals : Signals, optional
        Handlers that the program has installed; if None, jobs run inside another program
        (`Job.run`).
    quiet : bool
        Whether to show no progress.
    """

    comm: Comm
    source: RatingsSource
    folder: Path
    given: Mapping[str, Any]
    metric: Metric | None = None
    policy: Policy = field(default_factory=Policy)
    signals: Signals | None = None
    quiet: bool = False

    def __post_init__(self) -> None:
        self._halves, self._wholes = (
            dict[int, Scores](),
            dict[int, Scores](),
        )  # from half of the draws, and from all
        self._diverged = set[int]()

    def run(self) -> Comparison:
        """Compare the candidates. Collective.

        Raises
        ------
        InputError
            If settings or ratings are wrong, there are too few ratings to hold some out, or another
            job uses the folder.
        StoppedError
            If the comparison was stopped; an identical call resumes it.
        DivergenceError
            If the chains of all candidates without additions diverge.
        """
        lock = Lock(self.folder / "lock")
        with (
            logs(self.comm.rank, quiet=True),
            threadpool_limits(1, user_api="blas"),
        ):  # threads affect the last bits
            self._plan = on_root(self.comm, self._make_plan)
            try:
                while not on_root(self.comm, lock.attempt):
                    sleep(ATTEMPT_SECONDS)
                self._inner = self._inner_source(self._plan.seed)
                self._recorded = recorded_values(self._inner.ratings)
                chosen, best = self._choose()
                result = on_root(self.comm, partial(self._result, chosen, best))
                on_root(self.comm, partial(remove_candidates, self.folder))
            finally:
                lock.release()
        return result

    def _inner_source(self, seed: int) -> RatingsSource:
        return RatingsSource(self.source.path, view=partial(inner_split_of, seed=seed))

    def _make_plan(self) -> Plan:
        """Choose the seed, candidates, metric and number of sweeps; on process 0."""
        requested = self.source.build({}, self.given)
        whole, inner_source = self.source.ratings, self._inner_source(requested.seed)
        ratings = inner_source.ratings
        fixed = {
            "rank": requested.rank,
            "chains": 1,
            "until": "none",
            "burn_in": f"{BURN_IN_SWEEPS}sweeps",
        }
        fixed |= {"evaluate_every": "10sweeps", "save_draws": 0, "checkpoint_every": "10min"}
        rank_is_given = self.given.get("rank", "auto") != "auto"
        levels = Levels.of(ratings)
        self._note = str(find_codes(*levels))
        models = candidates(
            clicks=ratings.minimum == ratings.maximum,
            features=bool(whole.features),
            times=whole.times is not None,
            suited=[
                name for name in likelihoods_for(levels) if not rank_is_given or name != BIASES_ONLY
            ],
        )
        binary = len(levels.values) == 2
        admitted = self._admitted(
            inner_source, [model._replace(binary=binary) for model in models], fixed
        )
        metric = self._criterion(ratings, list(admitted))
        if metric == "ndcg":
            fixed["save_draws"] = RANKING_DRAWS
        sweeps = length_of(ratings.nnz, list(admitted.values()))
        identities = [f"{ratings.digest} {config.hash()} {metric} {sweeps}" for config in admitted]
        runs = [hashlib.sha256(identity.encode()).hexdigest() for identity in identities]
        return Plan(requested.seed, metric, list(admitted.values()), runs, fixed, sweeps)

    def _admitted(
        self, source: RatingsSource, models: Sequence[Candidate], fixed: Mapping[str, Any]
    ) -> dict[ResolvedConfig, Candidate]:
        """Return the candidates that ratings and settings admit, each by its configuration; raise
        if there are none.
        """
        admitted, refused = dict[ResolvedConfig, Candidate](), list[InputError]()
        for model in models:
            try:
                config = source.resolve(
                    self.comm.size, {}, model.settings, self._given_to(model, fixed)
                )
            except InputError as error:
                refused.append(error)
            else:
                admitted.setdefault(config, model)
        if not admitted:
            raise refused[0]
        return admitted

    def _criterion(self, ratings: Ratings, configs: Sequence[ResolvedConfig]) -> Metric:
        """Return the requested metric, or the default for the ratings."""
        if not all(config.law.can_be_evaluated for config in configs):
            if self.metric not in (None, "ndcg"):
                raise InputError(
                    f"{named('metric')} {self.metric}: clicks have no values; leave it out or use"
                    " ndcg"
                )
            return "ndcg"
        recorded = recorded_values(ratings) is not None
        if self.metric == "log-probability" and not recorded:
            raise InputError(
                f"{named('metric')} log-probability needs ratings with levels: use log-density or"
                " rmse"
            )
        return self.metric or ("log-probability" if recorded else "log-density")

    def _given_to(self, candidate: Candidate, last: Mapping[str, Any]) -> dict[str, Any]:
        """Merge the settings that override a candidate's: the user's, then `last`, then rank 0 for
        biases only.
        """
        return merged(self.given, last, {"rank": 0} if candidate.likelihood == BIASES_ONLY else {})

    def _choose(self) -> tuple[int, int]:
        """Sample candidates; return the numbers of the recommended and the best candidate.

        Collective.
        """
        models = self._plan.models
        number_of = {model: number for number, model in enumerate(models)}
        tried = {number for model, number in number_of.items() if not model.added}
        with_factors = self._race(
            {number for number in tried if models[number].likelihood != BIASES_ONLY}
        )
        if with_factors:
            chosen = models[recommended(with_factors)]
            additions = [name for name in ADDED if chosen._replace(added=(name,)) in number_of]
            trial = chosen._replace(
                likelihood=TRIAL_LIKELIHOODS.get(chosen.likelihood, chosen.likelihood)
            )
            trial = trial if trial in number_of and len(additions) > 1 else chosen
            alone = {
                name: number_of[one]
                for name in additions
                if (one := trial._replace(added=(name,))) in number_of
            }
            gains = tuple(
                name for name, number in alone.items() if self._is_better(number, number_of[trial])
            )
            tried |= {
                *alone.values(),
                number_of.get(chosen._replace(added=gains), number_of[chosen]),
            }
        scores = self._race(tried)
        if not scores:
            raise DivergenceError(
                f"all compared models diverged: use a smaller {named('step_size')}"
            )
        return recommended(scores), best_of(scores)

    # ------------------------------------------------------------------ scores of candidates

    def _is_better(self, number: int, than: int) -> bool:
        """Whether a candidate's score is larger than that of another, or only the other one
        diverges. Collective.
        """
        scores = self._race({than, number})
        return bool(scores) and best_of(scores) == number

    def _race(self, numbers: set[int]) -> dict[int, Scores]:
        """Return the scores of the candidates that may be the best. Collective.

        Candidates that diverge, or that are clearly behind after the first half of their draws, are
        left out; if several are left, their chains go on.
        """
        for number in sorted(numbers):
            self._begin(number)
        halves = {number: self._halves[number] for number in sorted(numbers - self._diverged)}
        left = leading(halves) if halves else []
        if len(left) < 2:
            return {number: halves[number] for number in left}
        for number in left:
            self._go_on(number)
        if self._diverged.intersection(left):
            return self._race(numbers)
        return {number: self._wholes[number] for number in left}

    def _begin(self, number: int) -> None:
        """Sample and score the first half of a candidate's draws. Collective.

        A file next to the run keeps the scores for a job that resumes later.
        """
        if number not in self._halves.keys() | self._diverged:
            known = on_root(self.comm, self._path(number, ".npy").is_file)
            if known or self._sample(number, self._plan.half):
                self._halves[number] = on_root(
                    self.comm, partial(self._first, number), "comparing models"
                )

    def _go_on(self, number: int) -> None:
        """Sample and score the rest of a candidate's draws. Collective."""
        if number not in self._wholes and self._sample(number, self._plan.sweeps):
            whole = on_root(self.comm, partial(self._score, number), "comparing models")
            self._wholes[number] = whole.compared_with(self._halves[number].values)

    def _path(self, number: int, suffix: str = "") -> Path:
        return self.folder / f"{self._plan.runs[number]}{suffix}"

    def _sample(self, number: int, sweeps: int) -> bool:
        """Sample a candidate's chain up to a number of sweeps; return whether it does not diverge.

        Collective.
        """
        comm, plan, model = self.comm, self._plan, self._plan.models[number]
        if comm.rank == 0 and not self.quiet:
            say(f"{sweeps} sweeps of {model.name}", file=sys.stderr)
        given = self._given_to(model, {**plan.fixed, "iterations": f"{sweeps}sweeps"})
        policy = self.policy.model_copy(update={"on_divergence": "stop"}) if number else self.policy
        path, usual = self._path(number), model.settings
        job = CandidateJob(comm, self._inner, path, given, True, policy, quiet=True, usual=usual)
        try:
            if status := job.run(self.signals):
                raise StoppedError("the comparison was stopped", status)
        except DivergenceError:
            self._diverged.add(number)
        return number not in self._diverged

    def _first(self, number: int) -> Scores:
        """Return the scores from the first half of the draws, from their file if there is one; else
        write it.
        """
        file = self._path(number, ".npy")
        if not file.is_file():
            scores = self._score(number)
            write_array(file, np.stack([scores.values, scores.owners]))
        values, owners = np.array(open_array(file))
        return Scores(values, owners.astype(np.int32))

    def _score(self, number: int) -> Scores:
        """Return the scores from all draws so far."""
        run = Run(self._path(number))
        if self._plan.metric == "ndcg":
            return ranking_scores(run, Rated(self._inner.ratings))
        return scores_of(run, self._plan.metric, self._recorded)

    # ------------------------------------------------------------------ the table, on process 0

    def _result(self, chosen: int, best: int) -> Comparison:
        models, inner = self._plan.models, self._inner.ratings
        sampled = sorted(self._halves.keys() | self._diverged)
        return Comparison(
            data_hash=self.source.ratings.digest,
            metric=self._plan.metric,
            training=inner.nnz,
            held_out=inner.nnz_test,
            models=[self._row(number, best) for number in sampled],
            left_out=[model.name for number, model in enumerate(models) if number not in sampled],
            best=models[best].name,
            recommended=models[chosen].name,
            note=self._note,
        )

    def _row(self, number: int, best: int) -> Model:
        """Describe a candidate; its gap to the best candidate is that of the whole chains if both
        have been sampled.
        """
        candidate = self._plan.models[number]
        row = Model(
            name=candidate.name, settings=dict(candidate.settings), sweeps=self._plan.sweeps
        )
        if number in self._diverged:
            return row
        run, halves, wholes = Run(self._path(number)), self._halves, self._wholes
        sweeps, own = (self._plan.sweeps, wholes) if number in wholes else (self._plan.half, halves)
        scores = own if best in own else halves
        gap = scores[number].behind(scores[best])
        test = predict_test(run)
        given = test.rating, test.point(run.config.law)
        numbers = (
            {"rmse": rmse(*given), "mae": mae(*given)} if run.config.law.can_be_evaluated else {}
        )
        criterion, unit = float(own[number].values.mean()), 1.0
        if self._plan.metric == "rmse" and numbers:
            criterion, unit = (
                numbers["rmse"],
                2 * numbers["rmse"],
            )  # the gap is a difference of mean squared errors
        *_, last = run.directory.metrics()
        numbers |= {"sweeps": sweeps, "seconds": last["time_s"] * sweeps / last["sweep"]}
        numbers |= {"criterion": criterion, "behind": gap.mean / unit, "error": gap.error / unit}
        return row.model_copy(update=numbers)


def remove_candidates(folder: Path) -> None:
    """Remove runs and scores of candidates, and the lock, from a folder; and the folder unless it
    has other files.
    """
    for path in folder.iterdir() if folder.is_dir() else ():
        if re.fullmatch(r"[0-9a-f]{64}(\.npy)?|lock", path.name):
            with suppress(OSError):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    with suppress(OSError):
        folder.rmdir()


# -------------------------------------------------------------------- runs of the recommended model


def sample_recommended(job: Job, signals: Signals | None = None, dry_run: bool = False) -> int:
    """Compare models unless the run has a comparison; sample the recommended model or, if it
    diverges, the next best.

    If a job is killed between two models, the comparison is unchanged and the run of the first
    model is gone; the next job samples the first model again. Collective.

    Parameters
    ----------
    job : Job
        Makes or continues the run; its settings leave the choice of the model open.
    signals : Signals, optional
        As for `Job.run`.
    dry_run : bool
        Whether the job may only describe the run.

    Returns
    -------
    int
        Exit status. After a stop, an identical job with `resume` continues the comparison or the
        run.

    Raises
    ------
    InputError
        If settings, ratings or run directory are wrong.
    DivergenceError
        If all compared models diverge, or if the recommended model diverges and ``on_divergence``
        is ``stop``.
    """
    comm, run = job.comm, job.run_directory
    comparison = on_root(comm, partial(known_comparison, job, dry_run))
    if comparison is None:
        try:
            comparing = Comparing(
                comm, job.source, run.candidates, job.given, None, job.policy, signals, job.quiet
            )
            comparison = comparing.run()
        except StoppedError as stopped:
            return stopped.status
        on_root(comm, partial(comparison.save, run.comparison_file), "comparing models")
        if comm.rank == 0 and not job.quiet:
            say(comparison.sentence(), file=sys.stderr)
    if comm.rank == 0 and not dry_run:
        remove_candidates(run.candidates)  # an earlier job may have left them
    while True:
        chosen = job.with_model(comparison.settings)
        try:
            status = chosen.describe() if dry_run else chosen.run(signals)
            if comparison.note and comm.rank == 0 and not job.quiet:
                say(comparison.note, file=sys.stderr)
            return status
        except DivergenceError:
            work = partial(next_model, job, comparison)
            following = (
                None
                if job.policy.on_divergence == "stop"
                else on_root(comm, work, "choosing a model")
            )
            if following is None:
                raise
            comparison = following


def known_comparison(job: Job, dry_run: bool) -> Comparison | None:
    """Return the comparison that chose a run's model; None for a new run without a comparison.

    Raises
    ------
    InputError
        If the directory is taken, if the run starts from another run or has a model but no
        comparison, if the comparison is of other ratings, or if `dry_run` excludes a new
        comparison.
    """
    run, source = job.run_directory, job.source
    refuse_taken(run, job.resume)
    if source.start is not None:
        raise InputError(
            f"{named('from')} uses the model of the earlier run: leave out {named('model')}"
        )
    try:
        comparison = Comparison.read(run.comparison_file)
    except FileNotFoundError:
        if run.settings_file.exists():
            raise InputError(
                f"{run.path} was started without {named('model')}: leave it out"
            ) from None
        if dry_run:
            raise InputError(
                "--dry-run and --model auto exclude each other: choose by `dsgmcmc compare`"
            ) from None
        return None
    if comparison.data_hash != source.ratings.digest:
        raise InputError(
            f"{run.comparison_file} is for other ratings than {source.path}: start another run"
        )
    return comparison


def next_model(job: Job, comparison: Comparison) -> Comparison | None:
    """Recommend the next best model, and forget the run of the recommended one; None without
    another model.
    """
    following = comparison.without_recommended()
    if following is not None:
        job.run_directory.forget()
        following.save(job.run_directory.comparison_file)
        say(following.sentence(), file=sys.stderr)
    return following
