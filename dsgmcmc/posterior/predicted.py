"""Predictions of the test ratings from saved draws, of a run that has not ended."""

from __future__ import annotations

import numpy as np

from dsgmcmc.posterior.heldout import TestPredictions
from dsgmcmc.posterior.predict import Options, Predictor
from dsgmcmc.posterior.probabilities import probabilities
from dsgmcmc.posterior.run import Run


def from_draws(run: Run) -> TestPredictions:
    """Predict the test ratings, which are read from the ratings file, over the saved draws.

    Levels of time, which saved draws do not have, count as unknown.

    Raises
    ------
    InputError
        If the ratings file is not there.
    """
    pairs, law = run.test_pairs(), run.config.law
    with run.open_ratings() as ratings:
        rating = ratings.slab("test", 0, ratings.n_rows)[2].astype(np.float64)
    mean, total = (Predictor(run, Options("draws", of_mean=of_mean))(*pairs) for of_mean in (True, False))
    variance = np.square(mean.sd, dtype=np.float64)
    return TestPredictions(
        rating=np.ones_like(rating) if law.all_cells else rating,
        mean=mean.mean.astype(np.float64),
        variance=variance,
        noise_variance=np.maximum(np.square(total.sd, dtype=np.float64) - variance, 0.0),
        probability=probabilities(Predictor(run, Options("draws", probabilities=True)), *pairs).astype(np.float64)
        if law.has_levels
        else None,
    )
