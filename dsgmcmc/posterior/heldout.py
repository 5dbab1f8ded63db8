"""What a run found, read from its directory: no MPI, no ratings file."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dsgmcmc.storage.manifest import Key
from dsgmcmc.storage.rundir import RunDirectory
from dsgmcmc.storage.series import step_name, steps
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
    """Newest posterior of every chain that has made draws."""
    found = []
    for chain in run.chains():
        parent = run.series("posterior", chain)
        found += [Snapshot(parent / step_name(iteration)) for iteration in steps(parent)[-1:]]
    return found


def test_predictions(run: RunDirectory) -> TestPredictions | None:
    """Predictions of the test ratings, pooled over chains; None if the run had no test ratings."""
    pooled = []
    for snapshot in posteriors(run):
        blocks = sorted({key.block for key in snapshot.names() if key.object == "test"})
        columns = {
            name: np.concatenate([snapshot.read(Key("test", "W", b, name)) for b in blocks]).astype(np.float64)
            for name in ("rating", "mean", "variance", "noise_variance", "probability")
            if Key("test", "W", blocks[0], name) in snapshot.names()
        }
        pooled.append(columns)
    if not pooled or not len(pooled[0]["rating"]):
        return None
    mean, within, noise = (
        np.mean([columns[name] for columns in pooled], axis=0) for name in ("mean", "variance", "noise_variance")
    )
    between = np.var([columns["mean"] for columns in pooled], axis=0)
    probability = None
    if "probability" in pooled[0]:
        probability = np.mean([columns["probability"] for columns in pooled], axis=0)
    return TestPredictions(pooled[0]["rating"], mean, within + between, noise, probability)
