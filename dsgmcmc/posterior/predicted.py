"""Predictions of the test ratings from saved draws, of a run that has not ended."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from dsgmcmc.data.ratings import Ratings
from dsgmcmc.posterior.heldout import TestPredictions
from dsgmcmc.posterior.newcomers import Drawn
from dsgmcmc.posterior.predict import Options, Predictor
from dsgmcmc.types import Int32


class Tested(Drawn, Protocol):
    """Draws of a run that has test ratings."""

    def test_pairs(self) -> tuple[Int32, Int32]:
        """Rows of the users and the items of the test ratings."""

    def open_ratings(self) -> Ratings:
        """Open the ratings file."""


def from_draws(run: Tested) -> TestPredictions:
    """Predict the test ratings, which are read from the ratings file, over the saved draws.

    Levels of time, which saved draws do not have, count as unknown.

    Raises
    ------
    InputError
        If the ratings file is not there.
    """
    pairs = run.test_pairs()
    with run.open_ratings() as ratings:
        rating = ratings.slab("test", 0, ratings.n_rows)[2].astype(np.float64)
    mean, total = (Predictor(run, Options(of_mean=of_mean))(*pairs) for of_mean in (True, False))
    variance = np.square(mean.sd, dtype=np.float64)
    probability = None
    if run.draw(0).thresholds is not None:
        probability = Predictor(run, Options(probabilities=True)).probabilities(*pairs).astype(np.float64)
    return TestPredictions(
        rating=rating,
        mean=mean.mean.astype(np.float64),
        variance=variance,
        noise_variance=np.maximum(np.square(total.sd, dtype=np.float64) - variance, 0.0),
        probability=probability,
    )
