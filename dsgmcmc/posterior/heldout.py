"""Predictions of the test ratings, read from the posteriors of a run that has ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.model.likelihoods import Law
from dsgmcmc.model.likelihoods.limits import limits_from, resolution_from
from dsgmcmc.model.limits import UNLIMITED, Limits
from dsgmcmc.model.predictive.base import Moments, Predictive
from dsgmcmc.posterior.index import Index
from dsgmcmc.posterior.progress import newest_states
from dsgmcmc.posterior.run import Run, once
from dsgmcmc.posterior.scores import Scored
from dsgmcmc.ratings.format import known_by_bounds
from dsgmcmc.ratings.pairs import join, select
from dsgmcmc.settings import named
from dsgmcmc.storage.rundir import Facts, RunDirectory
from dsgmcmc.storage.store import Key, Snapshot
from dsgmcmc.types import Float64, Int32, Mask

#: Number of test ratings in a part of `test_parts`.
PART = 20_000
#: Fields that are the same in all chains.
FIXED = frozenset({"rating", "lower", "upper"})


class TestPredictions(NamedTuple):
    """Posterior predictions of the test ratings, (q,) float64, in the order of the ratings file.

    Attributes
    ----------
    rating : float64
        Observed ratings; of those that are known only by bounds, a value between the bounds.
    mean, variance : float64
        Mean and variance of the predictor over the draws of all chains, on the scale of the
        likelihood (`dsgmcmc.model.log_scale`), as are the noise variance and `shape`.
    noise_variance : float64
        Posterior mean of the noise variance of every rating.
    probability : (q, R) float64 or None
        Probabilities of the levels, over the draws of all chains, if ratings are ordinal.
    shape : (q, m) float64 or None
        Means of the likelihood's further parameters (`Law.shape_of`), if any, over the draws of all
        chains.
    limits : Limits
        Range to which predictions are clipped.
    resolution : float or None
        Step to which ratings without levels were recorded.
    lower, upper : float64 or None
        Bounds of the ratings, equal if they are exact; None if all are.
    group : (q,) int32 or None
        Numbers of their groups, if groups were held out.
    """

    rating: Float64
    mean: Float64
    variance: Float64
    noise_variance: Float64
    probability: Float64 | None = None
    shape: Float64 | None = None
    limits: Limits = UNLIMITED
    resolution: float | None = None
    lower: Float64 | None = None
    upper: Float64 | None = None
    group: Int32 | None = None

    @property
    def bounds(self) -> tuple[Float64, Float64] | None:
        """Bounds of the ratings; None if all are exact."""
        if self.lower is None or self.upper is None:
            return None
        return self.lower, self.upper

    @property
    def bounded(self) -> Mask:
        """Which ratings are known only by bounds, (q,)."""
        if self.bounds is None:
            return np.zeros(len(self.rating), bool)
        return known_by_bounds(self.bounds)

    @property
    def least(self) -> Float64:
        """The ratings, or the lower bounds of those that are known only by bounds."""
        if self.lower is None:
            return self.rating
        return self.lower

    def exact(self) -> TestPredictions:
        """Return the predictions of the ratings that are not known only by bounds."""
        return select(self, ~self.bounded)

    def point(self, law: type[Law]) -> Float64:
        """Return the predictions of the ratings, in their units, as `predict` returns them.

        `Transform.point_name` says of what they are.
        """
        return self.limits.clip(law.transform.point(self.mean, self.variance + self.noise_variance))

    def predictive(self, law: type[Law], levels: Float64 | None) -> Predictive:
        """Return predictive distributions of the ratings; `levels` are their levels, if any."""
        predictive = law.predictive_of_moments(
            Moments(
                mean=self.mean,
                variance=self.variance + self.noise_variance,
                probability=self.probability,
                levels=levels,
                noise=self.noise_variance,
                shape=self.shape,
            )
        )
        predictive.resolution = self.resolution
        return predictive

    def scored(self, law: type[Law], levels: Float64 | None) -> Scored:
        """Return the ratings with their predictions, as they are scored."""
        return Scored(
            rating=self.rating,
            bounds=self.bounds,
            point=self.point(law),
            predictive=self.predictive(law, levels),
            limits=self.limits,
        )


def test_parts(run: RunDirectory) -> Iterator[TestPredictions]:
    """Yield predictions of the test ratings of a run that has ended, pooled over chains.

    At most `PART` at a time, to limit memory. Raises InputError if a posterior is damaged or
    contradicts ``run.toml``.
    """
    _, facts = run.read_settings()
    return _pooled(newest_states(run, facts), facts, Index(run, facts).test_groups())


def _pooled(
    posteriors: Sequence[Snapshot], facts: Facts, groups: Int32 | None
) -> Iterator[TestPredictions]:
    """Yield predictions that are pooled over the posteriors of all chains.

    `facts` are those of the run, and `groups`, (q,), those of all test ratings.
    """
    done = 0
    limits = limits_from(facts)
    resolution = resolution_from(facts)
    keys = {
        key for posterior in posteriors for key in posterior.block_keys() if key.object == "test"
    }
    fields = [field for field in TestPredictions._fields if field in {key.field for key in keys}]
    for block in sorted({key.block for key in keys}):
        chains = [
            posterior.read_all(Key("test", "W", block, field) for field in fields)
            for posterior in posteriors
        ]
        by_field = dict(zip(fields, zip(*chains, strict=True), strict=True))
        for start in range(0, len(by_field["rating"][0]), PART):
            part = slice(start, start + PART)
            stacked = {
                field: np.array([array[part] for array in arrays], np.float64)
                for field, arrays in by_field.items()
            }
            pooled = {field: values.mean(axis=0) for field, values in stacked.items()}
            for field in FIXED & stacked.keys():
                pooled[field] = stacked[field][0]
            pooled["variance"] += stacked["mean"].var(axis=0)
            group = None
            if groups is not None:
                group = groups[done : done + len(pooled["rating"])]
            done += len(pooled["rating"])
            yield TestPredictions(**pooled, limits=limits, resolution=resolution, group=group)


def predict_test(run: Run) -> TestPredictions:
    """Return predictions of the test ratings, in the order of `Run.test_pairs`.

    They are pooled over chains, and the run keeps them.

    Raises
    ------
    InputError
        If the run had no test ratings, or has not ended.
    """
    return once(run, TestPredictions, partial(_predict_test, run))


def score_test(run: Run) -> Scored | None:
    """Return the test ratings as they are scored; None without any, for clicks, and before the end.

    They are in the order of `Run.test_pairs`.
    """
    if run.unfinished or not run.config.law.can_be_evaluated:
        return None
    if not len(run.test_pairs()[0]):
        return None
    return predict_test(run).scored(run.config.law, run.levels)


def _predict_test(run: Run) -> TestPredictions:
    """Return what `predict_test` does, read from the posteriors."""
    if not len(run.test_pairs()[0]):
        raise InputError(
            f"{run.path} was sampled without test ratings: prepare the data with"
            f" {named('test_fraction')} 0.1"
        )
    if run.unfinished:
        raise InputError(
            f"{run.path} has not ended: its test ratings are predicted when its job ends, or is"
            " stopped"
        )
    return join([*_pooled(run.states, run.facts, run.index.test_groups())])
