"""What a run found, read from its directory: no MPI, no ratings file."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dsgmcmc.storage.rundir import RunDirectory
from dsgmcmc.storage.series import steps
from dsgmcmc.storage.snapshot import Snapshot
from dsgmcmc.types import Float64


@dataclass(frozen=True)
class TestPredictions:
    """Posterior predictions of the test ratings, all (q,) float64, in the order of the ratings file.

    Attributes
    ----------
    rating : float64
        What was observed.
    mean, variance : float64
        Of the predictor over the draws of all chains.
    noise_variance : float64
        Posterior mean of the noise variance of each rating.
    probability : (q, R) float64 or None
        Of the levels, over the draws of all chains, where ratings are of levels.
    """

    rating: Float64
    mean: Float64
    variance: Float64
    noise_variance: Float64
    probability: Float64 | None = None


def posteriors(run: RunDirectory) -> list[Snapshot]:
    """Newest posterior of every chain that has made draws.

    Raises
    ------
    InputError
        If one is damaged, or was not made with what ``run.toml`` says.
    """
    _, facts = run.read_settings()
    return [
        run.open_snapshot("posterior", chain, iteration, facts)
        for chain in run.chains()
        for iteration in steps(run.series("posterior", chain))[-1:]
    ]


def test_predictions(run: RunDirectory) -> TestPredictions | None:
    """Predictions of the test ratings, pooled over chains; None if the run had no test ratings, or has no draws."""
    found = posteriors(run)
    if not found or not len(found[0].whole("test", "W", "rating")):
        return None
    return pooled(found)


def pooled(posteriors: list[Snapshot]) -> TestPredictions:
    """Predictions of the test ratings, pooled over the posteriors of chains."""

    def columns(name: str) -> Float64:
        return np.array([snapshot.whole("test", "W", name) for snapshot in posteriors], np.float64)

    means = columns("mean")
    has_levels = any(key.object == "test" and key.field == "probability" for key in posteriors[0].names())
    return TestPredictions(
        rating=posteriors[0].whole("test", "W", "rating").astype(np.float64),
        mean=means.mean(axis=0),
        variance=columns("variance").mean(axis=0) + means.var(axis=0),
        noise_variance=columns("noise_variance").mean(axis=0),
        probability=columns("probability").mean(axis=0) if has_levels else None,
    )
