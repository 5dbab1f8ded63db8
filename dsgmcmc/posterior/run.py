"""A run of ratings: what it saved, and its predictions of the test ratings."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.posterior.heldout import TestPredictions, pooled
from dsgmcmc.posterior.predict import PredictOptions, Predictor
from dsgmcmc.posterior.saved import SavedRun


class Run(SavedRun):
    """A run directory, opened for reading: a `SavedRun` with predictions of its test ratings.

    `dsgmcmc.open_run` returns one that predicts any ratings.
    """

    @cached_property
    def test(self) -> TestPredictions:
        """Posterior predictions of the test ratings, in the order of `test_pairs`, pooled over chains.

        Raises
        ------
        InputError
            If the run had no test ratings.
        """
        if not self._expected.test:
            raise InputError(f"{self.path} was sampled without test ratings (prepare --test-fraction 0?)")
        return self._from_draws() if self.unfinished else pooled(self._states)

    def _from_draws(self) -> TestPredictions:
        """Predict the test ratings from the draws saved so far, which have no effects of time: these stay unknown."""
        pairs = self.test_pairs()
        with self.open_ratings() as ratings:
            rating = ratings.slab("test", 0, ratings.n_rows)[2].astype(np.float64)
        mean, total = (Predictor(self, PredictOptions(of_mean=of_mean))(*pairs) for of_mean in (True, False))
        variance = np.square(mean.sd, dtype=np.float64)
        probability = None
        if self.draw(0).thresholds is not None:
            probability = Predictor(self, PredictOptions(probabilities=True)).probabilities(*pairs).astype(np.float64)
        shapes = [self.config.law.shape_of(self.draw(d).shared) for d in range(len(self.draws))]
        shape = None
        if shapes[0] is not None:
            shape = np.tile(np.average(np.array(shapes), axis=0, weights=self.draw_weights), (len(rating), 1))
        return TestPredictions(
            rating=rating,
            mean=mean.mean.astype(np.float64),
            variance=variance,
            noise_variance=np.maximum(np.square(total.sd, dtype=np.float64) - variance, 0.0),
            probability=probability,
            shape=shape,
        )
