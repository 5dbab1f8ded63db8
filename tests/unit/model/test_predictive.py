"""Predictive distributions against SciPy's, and against each other where two say the same."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import expon, norm, poisson

from dsgmcmc.errors import InputError
from dsgmcmc.model.likelihoods.gaussian import Gaussian
from dsgmcmc.model.likelihoods.ordinal import OrdinalLogit
from dsgmcmc.model.likelihoods.poisson import Poisson
from dsgmcmc.model.predictive.base import PredictorDraws
from dsgmcmc.model.predictive.levels import LevelDistribution
from dsgmcmc.model.predictive.mixture import Mixture
from dsgmcmc.model.predictive.normal_mixture import NormalMixture
from dsgmcmc.model.predictive.scores import Scores

WEIGHTS = np.array([0.5, 0.3, 0.15, 0.05])
LEVELS = np.arange(1.0, 6.0)


class Exponential:
    """A law with nothing of its own but what `Mixture` needs."""

    @staticmethod
    def cdf(x, mean, variance):
        return expon.cdf(x, scale=mean)

    @staticmethod
    def log_density(x, mean, variance):
        return expon.logpdf(x, scale=mean)


@pytest.fixture
def normals() -> NormalMixture:
    """Of sds from a hundredth to ten, some with two humps far from each other."""
    rng = np.random.default_rng(0)
    mean = rng.normal(0, 3, (200, 4)).astype(np.float32)
    mean[::10, 0] += 1000
    return NormalMixture(
        Gaussian, mean, (10.0 ** rng.uniform(-4, 2, (200, 4))).astype(np.float32), WEIGHTS, 3.5, LEVELS
    )


@pytest.mark.parametrize("p", [1e-8, 0.05, 0.5, 0.95, 1 - 1e-8])
def test_the_solver_finds_every_quantile(normals: NormalMixture, p: float) -> None:
    """Of humps far apart, between which the distribution function is flat, and far in the tails."""
    x = normals.quantile(p)
    assert np.abs(normals.cdf(x) - p).max() < 1e-9
    many = np.linspace(0.001, 0.999, 200)
    np.testing.assert_allclose(normals.cdf(normals.quantile(many)), many, atol=1e-9)


class Short(Exponential):
    """A law whose distribution function ends at 0.9, and is not a number for every other rating."""

    @staticmethod
    def cdf(x, mean, variance):
        found = 0.9 * expon.cdf(x, scale=mean)
        found[1::2] = np.nan
        return found


def test_the_solver_ends_where_there_is_no_quantile() -> None:
    """Of a law of one's own that is wrong, too: infinite where F ends too early, and no endless loop."""
    wrong = Mixture(Short, np.ones((4, 4), np.float32), np.ones((4, 4), np.float32), WEIGHTS)
    assert np.isinf(wrong.quantile(0.95)[::2]).all()
    np.testing.assert_allclose(wrong.quantile(0.5)[::2], expon.ppf(0.5 / 0.9), rtol=1e-8)


def test_the_compiled_summary_is_that_of_the_solver(normals: NormalMixture) -> None:
    """Mean and sd to float32, quantiles to 2e-6 in probability."""
    found = normals.summary(0.05, 0.95)
    np.testing.assert_allclose(found.mean, normals.mean, rtol=1e-5)
    np.testing.assert_allclose(found.sd, normals.sd, rtol=1e-4)
    humps = np.abs(normals.mean) < 100  # a thousand away float32 is coarser than that
    for values, p in ((found.low, 0.05), (found.high, 0.95)):
        assert np.abs(normals.cdf(values.astype(float)) - p)[humps].max() < 5e-5


def test_scores_of_mixtures_are_their_integrals(normals: NormalMixture) -> None:
    """CRPS is the integral of (F(y) - 1{x <= y})^2: of normals in closed form, of others by quadrature."""
    rng = np.random.default_rng(1)
    mean = rng.uniform(0.5, 2.0, (3, 4))
    others = Mixture(Exponential, mean, mean**2, WEIGHTS)
    calm = NormalMixture(Gaussian, mean, mean, WEIGHTS)
    for found, low, high in ((others, 0.0, 60.0), (calm, -20.0, 25.0)):
        x = np.array([0.1, 1.0, 4.0])
        for row, value in enumerate(found.crps(x)):
            below = quad(lambda y, row=row, found=found: found.cdf(y)[row] ** 2, low, x[row])[0]
            above = quad(lambda y, row=row, found=found: (1 - found.cdf(y)[row]) ** 2, x[row], high)[0]
            assert value == pytest.approx(below + above, rel=1e-5)


def test_ratings_that_are_rounded_have_the_probabilities_of_levels(normals: NormalMixture) -> None:
    """All that is nearer to a level than to its neighbours; a bound between levels is the one above it."""
    p = normals.probabilities()
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    np.testing.assert_allclose(p[:, 3:].sum(axis=1), normals.at_least(4.0), atol=1e-12)
    np.testing.assert_allclose(normals.at_least(3.2), normals.at_least(4.0))
    assert (normals.at_least(1.0) == 1).all()
    assert (normals.at_least(5.5) == 0).all()
    x = np.resize([0.2, 2.4, 3.0, 9.0], 200)
    own = p[np.arange(200), np.resize([0, 1, 2, 4], 200)]
    np.testing.assert_allclose(np.exp(normals.log_probability(x)), np.maximum(own, 1e-30), rtol=1e-6, atol=1e-12)
    table = LevelDistribution(p, LEVELS)
    np.testing.assert_allclose(table.log_probability(x), normals.log_probability(x), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(table.cdf(3.0), p[:, :3].sum(axis=1), atol=1e-12)
    np.testing.assert_allclose(table.below(3.0), p[:, :2].sum(axis=1), atol=1e-12)


def test_a_predictor_that_is_not_known_is_integrated_over() -> None:
    """Of counts: mean and variance of a Poisson law of a log-normal rate; the known pairs beside it keep theirs."""
    eta, spread = np.full((2, 1), 0.3, np.float32), np.float32([[0.0], [0.25]])
    draws = PredictorDraws(eta, np.ones_like(eta), spread, np.ones(1))
    found = {int(rows[0]): Poisson.predictive(some) for rows, some in draws.by_certainty()}
    np.testing.assert_allclose(found[0].cdf(2.0), poisson.cdf(2, np.exp(0.3)), rtol=1e-6)
    mean = np.exp(0.3 + 0.125)
    np.testing.assert_allclose(found[1].mean, mean, rtol=1e-6)
    np.testing.assert_allclose(found[1].sd ** 2, mean + mean**2 * np.expm1(0.25), rtol=1e-5)
    np.testing.assert_allclose(Gaussian.predictive(draws).sd, np.sqrt([1.0, 1.25]), rtol=1e-6)


def test_effects_of_unknown_groups_are_integrated_over() -> None:
    """Each rating of another group: in its distribution with all laws, and in no spread of what is expected of it."""
    eta, effects = np.float32([[0.3, 0.1]]), np.float32([[0.1, 0.2]])
    draws = PredictorDraws(eta, np.ones_like(eta), np.zeros_like(eta), np.array([0.5, 0.5]), effects=effects)
    d, share = np.polynomial.hermite_e.hermegauss(40)
    at = (eta[0] + d[:, None] * np.sqrt(effects[0])).astype(float)
    over = share / share.sum()
    expected = (over @ poisson.cdf(2, np.exp(at))).mean()
    np.testing.assert_allclose(Poisson.predictive(draws).cdf(2.0), expected, atol=4e-4)  # of three nodes
    np.testing.assert_allclose(Poisson.expectation(draws).mean, np.exp(eta + effects / 2).mean(), rtol=1e-4)
    means = np.exp(eta + effects / 2)[0]
    np.testing.assert_allclose(Poisson.expectation(draws).sd, means.std(), rtol=1e-3)
    cuts = np.array([[[-1.0, 0.5]]] * 2)
    levels = draws._replace(thresholds=cuts, owner=np.zeros(1, np.int32))
    expected = (over @ expit(0.5 - at)).mean()
    np.testing.assert_allclose(OrdinalLogit.predictive(levels, levels=LEVELS[:3]).cdf(2.0), expected, atol=1e-4)
    np.testing.assert_allclose(Gaussian.predictive(draws).sd, np.sqrt(1.15 + 0.01), rtol=1e-5)
    np.testing.assert_allclose(Gaussian.expectation(draws).sd, 0.1, rtol=1e-5)


def test_scores_have_quantiles_and_no_probabilities() -> None:
    """Quantiles of the sample, or of normals where a row is not known; no rating is to be drawn from them."""
    eta = np.float32([[0.0, 1.0, 2.0, 3.0], [0.0, 0.0, 0.0, 0.0]])
    spread = np.float32([[0.0] * 4, [4.0] * 4])
    found = Scores(eta, spread, np.full(4, 0.25), 1.0)
    assert found.quantile(0.5).tolist() == pytest.approx([2.5, 1.0])
    assert found.cdf(2.0).tolist() == pytest.approx([0.5, norm.cdf(0.5)])
    for ask in (found.log_density, found.at_least, lambda _: found.probabilities()):
        with pytest.raises(InputError, match=r"no (density|probabilities|levels)"):
            ask(1.0)
