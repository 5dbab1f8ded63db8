"""Every entry of the registry keeps what a likelihood promises."""

import numpy as np
import pytest

from dsgmcmc.model.likelihoods import LIKELIHOODS, Likelihood
from dsgmcmc.model.predictive.base import PredictorDraws
from dsgmcmc.testing import check_likelihood, predicted


@pytest.mark.parametrize(
    "name", [name for name, law in LIKELIHOODS.items() if issubclass(law, Likelihood)]
)
def test_it_keeps_what_a_likelihood_promises(name: str) -> None:
    """Those of the package that mean and variance tell; for those of levels see `test_ordinal`."""
    check_likelihood(LIKELIHOODS[name])


@pytest.mark.parametrize(
    "name", [name for name, law in LIKELIHOODS.items() if issubclass(law, Likelihood)]
)
def test_quantiles_are_where_the_probability_is_reached(name: str) -> None:
    """The inverse of the distribution function, of one draw and of mixtures; of counts, the
    smallest that does.
    """
    law = LIKELIHOODS[name]
    rng = np.random.default_rng(4)
    weights = np.array([0.5, 0.2, 0.2, 0.1])
    eta = rng.normal(0, 1.5, (50, 4)).astype(np.float32)
    draws = PredictorDraws(eta, np.full_like(eta, 0.5), np.zeros_like(eta), weights)
    distributions = [predicted(law, np.linspace(-1.5, 1.5, 7), 2.0)[2]]
    if law.can_be_evaluated:
        centre = 0.0 if law.replaces_mean else 0.7
        distributions.append(law.predictive(draws, centre))
    for predictive in distributions:
        for p in (1e-4, 0.025, 0.1, 0.5, 0.9, 0.975, 0.9999):
            x = predictive.quantile(p)
            assert x.shape == predictive.mean.shape
            assert (predictive.cdf(x) >= p - 1e-9).all()
            assert (predictive.cdf(x - 1e-4 * predictive.sd) < p).all()
