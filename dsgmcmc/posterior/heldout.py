"""Predictions of the test ratings, read from the posteriors of a run that has ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.model.likelihoods import Law
from dsgmcmc.model.predictive.base import Moments, Predictive
from dsgmcmc.posterior.run import Run, newest_states
from dsgmcmc.storage.rundir import RunDirectory
from dsgmcmc.storage.store import Key, Snapshot
from dsgmcmc.types import Array, Float64

#: Number of test ratings in a part of `test_parts`.
PART = 20_000


class TestPredictions(NamedTuple):
    """Posterior predictions of the test ratings, all (q,) float64, in the order of the ratings file.

    Attributes
    ----------
    rating : float64
        Observed ratings.
    mean, variance : float64
        Mean and variance of the predictor over the draws of all chains, on the scale of the likelihood
        (`dsgmcmc.model.scale`), as are the noise variance and `shape`.
    noise_variance : float64
        Posterior mean of the noise variance of every rating.
    probability : (q, R) float64 or None
        Probabilities of the levels, over the draws of all chains, if ratings are ordinal.
    shape : (q, m) float64 or None
        Means of the likelihood's further parameters (`Law.shape_of`), if any, over the draws of all chains.
    """

    rating: Float64
    mean: Float64
    variance: Float64
    noise_variance: Float64
    probability: Float64 | None = None
    shape: Float64 | None = None

    def point(self, law: type[Law]) -> Float64:
        """Return the predictions of the ratings under a likelihood, in units of the ratings (`Law.point_name`)."""
        return law.point(self.mean, self.variance + self.noise_variance)

    def predictive(self, law: type[Law], levels: Float64 | None) -> Predictive:
        """Return predictive distributions under a likelihood; `levels` are the levels of the ratings, if any."""
        variance, parameters = self.variance + self.noise_variance, (self.noise_variance, self.shape)
        return law.predictive_of_moments(Moments(self.mean, variance, self.probability, levels, *parameters))


def test_parts(run: RunDirectory) -> Iterator[TestPredictions]:
    """Yield predictions of the test ratings of a run that has ended, at most `PART` at a time to limit memory.

    Predictions are pooled over chains. Raises InputError if a posterior is damaged or contradicts ``run.toml``.
    """
    snapshots = newest_states(run, run.read_settings()[1])
    for block in sorted({key.block for snapshot in snapshots for key in snapshot.block_keys() if key.object == "test"}):
        fields = _fields(snapshots)
        chains = [snapshot.read_all(Key("test", "W", block, field) for field in fields) for snapshot in snapshots]
        for start in range(0, len(chains[0][0]), PART):
            part = [[array[start : start + PART] for array in chain] for chain in chains]
            yield _pool(dict(zip(fields, zip(*part, strict=True), strict=True)))


_PREDICTED: WeakKeyDictionary[Run, TestPredictions] = WeakKeyDictionary()
"""Predictions of open runs; a report or a comparison uses the predictions of a run several times."""


def predict_test(run: Run) -> TestPredictions:
    """Return posterior predictions of the test ratings, in the order of `Run.test_pairs`, pooled over chains.

    Raises
    ------
    InputError
        If the run had no test ratings, or has not ended.
    """
    if run in _PREDICTED:
        return _PREDICTED[run]
    if not len(run.test_pairs()[0]):
        raise InputError(f"{run.path} was sampled without test ratings: prepare the data with --test-fraction 0.1")
    if run.unfinished:
        raise InputError(f"{run.path} has not ended: its test ratings are predicted when its job ends, or is stopped")
    fields = _fields(run.states)
    stored = {field: [posterior.read_field("test", "W", field) for posterior in run.states] for field in fields}
    _PREDICTED[run] = _pool(stored)
    return _PREDICTED[run]


def _fields(posteriors: list[Snapshot]) -> list[str]:
    """Return the fields that are stored for test ratings."""
    stored = {key.field for key in posteriors[0].block_keys() if key.object == "test"}
    return [field for field in TestPredictions._fields if field in stored]


def _pool(chains: Mapping[str, Sequence[Array]]) -> TestPredictions:
    """Pool each field over chains."""
    stacked = {field: np.array(arrays, np.float64) for field, arrays in chains.items()}
    pooled = {field: values.mean(axis=0) for field, values in stacked.items()}
    pooled["rating"] = stacked["rating"][0]
    pooled["variance"] += stacked["mean"].var(axis=0)
    return TestPredictions(**pooled)
