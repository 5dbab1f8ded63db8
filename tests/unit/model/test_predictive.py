"""Predictive distributions against SciPy's, and against each other where two say the same."""

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import nbinom, norm, t

from dsgmcmc.model.likelihoods import LIKELIHOODS
from dsgmcmc.model.likelihoods.counts import moments_above_zero, rate_above_zero
from dsgmcmc.model.likelihoods.gaussian import GaussianRatings
from dsgmcmc.model.likelihoods.negative_binomial import NegativeBinomial
from dsgmcmc.model.likelihoods.ordinal.ordinal import Ordinal
from dsgmcmc.model.likelihoods.student_t import StudentT
from dsgmcmc.model.log_scale import on_scale
from dsgmcmc.model.predictive.base import Moments, Predictive, PredictorDraws
from dsgmcmc.model.predictive.mixture import NormalMixture
from dsgmcmc.model.transform import Scale

WEIGHTS = np.array([0.5, 0.3, 0.15, 0.05])
LEVELS = np.arange(1.0, 6.0)


@pytest.fixture
def normals() -> NormalMixture:
    """Mixtures with sds from a hundredth to ten, some with two humps far from each other."""
    rng = np.random.default_rng(0)
    mean = rng.normal(0, 3, (200, 4)).astype(np.float32)
    mean[::10, 0] += 1000
    return NormalMixture(
        GaussianRatings,
        mean,
        (10 ** rng.uniform(-4, 2, (200, 4))).astype(np.float32),
        WEIGHTS,
        3.5,
        LEVELS,
    )


@pytest.mark.parametrize("p", [1e-8, 0.05, 0.5, 0.95, 1 - 1e-8])
def test_the_solver_finds_every_quantile(normals: NormalMixture, p: float) -> None:
    """Quantiles are exact in far tails, and between humps, where the distribution is flat."""
    x = normals.quantile(p)
    assert np.abs(normals.cdf(x) - p).max() < 1e-9
    many = np.linspace(0.001, 0.999, 200)
    np.testing.assert_allclose(normals.cdf(normals.quantile(many)), many, atol=1e-9)


def test_the_compiled_summary_is_that_of_the_solver(normals: NormalMixture) -> None:
    """Mean and sd to float32, quantiles to 2e-6 in probability."""
    summary = normals.summary(0.05, 0.95)
    np.testing.assert_allclose(summary.mean, normals.mean, rtol=1e-5)
    np.testing.assert_allclose(summary.sd, normals.sd, rtol=1e-4)
    humps = np.abs(normals.mean) < 100  # a thousand away float32 is coarser than that
    for values, p in ((summary.low, 0.05), (summary.high, 0.95)):
        assert np.abs(normals.cdf(values.astype(float)) - p)[humps].max() < 5e-5


class PlainT(StudentT):
    """A law with a further parameter whose predictive distributions are those of the base class."""

    @classmethod
    def predictive_of_moments(cls, moments: Moments) -> Predictive:
        """That of `Likelihood`."""
        return super(StudentT, cls).predictive_of_moments(moments)


def test_moments_give_a_law_its_further_parameters() -> None:
    """Each rating has its own: here the inflation nu / (nu - 2) of its variance."""
    nu = np.array([[3.0], [8.0], [40.0]])
    moments = Moments(np.zeros(3), np.full(3, 2.0), noise=np.ones(3), shape=nu / (nu - 2))
    scale = np.sqrt(2.0 * (nu - 2) / nu)[:, 0]
    found = PlainT.predictive_of_moments(moments)
    np.testing.assert_allclose(found.cdf(1.5), t.cdf(1.5 / scale, nu[:, 0]), rtol=1e-12)


class Logistic(GaussianRatings):
    """A law of a user's own: logistic noise with the variance that is given."""

    @staticmethod
    def cdf(x: np.ndarray, mean: np.ndarray, variance: np.ndarray, *shape: object) -> np.ndarray:
        return expit((x - mean) / np.sqrt(3 * variance / np.pi**2))


@pytest.mark.parametrize("components", [1, 2])
def test_a_distribution_function_of_ones_own_has_its_quantiles(components: int) -> None:
    """Quantiles, also those of summaries, are those of the function, not of a normal one."""
    means = np.full((1, components), 2.0)
    mixture = NormalMixture(
        Logistic, means, np.full_like(means, np.pi**2 / 3), np.full(components, 1 / components)
    )
    want = 2 + np.log(0.95 / 0.05)
    np.testing.assert_allclose(mixture.quantile(0.95), want, rtol=1e-6)
    np.testing.assert_allclose(mixture.summary(0.05, 0.95).high, want, rtol=1e-6)


def test_ratings_that_are_rounded_have_the_probabilities_of_levels(normals: NormalMixture) -> None:
    """All that is nearer to a level than to its neighbours; a bound between levels is the one above
    it.
    """
    p = normals.probabilities()
    np.testing.assert_allclose(normals.at_least(3.2), normals.at_least(4.0))
    assert (normals.at_least(1.0) == 1).all()
    assert (normals.at_least(5.5) == 0).all()
    x = np.resize([0.2, 2.4, 3.0, 9.0], 200)
    nearest = p[np.arange(200), np.resize([0, 1, 2, 4], 200)]
    np.testing.assert_allclose(
        np.exp(normals.log_probability(x)), np.maximum(nearest, 1e-30), rtol=1e-6, atol=1e-12
    )


@pytest.mark.parametrize("name", ["gaussian", "student-t"])
@pytest.mark.parametrize("scale", ["identity", "log"])
def test_values_recorded_to_a_step_have_the_probability_between_half_way_points(
    name: str, scale: Scale
) -> None:
    """All multiples of the step together have probability 1; other values count as the nearest."""
    predictive = on_scale(LIKELIHOODS[name], scale).predictive_of_moments(
        Moments(
            mean=np.full(4001, 1.5),
            variance=np.full(4001, 0.3),
            noise=np.full(4001, 0.2),
            shape=np.full((4001, 1), 1.2),
        )
    )
    predictive.resolution = 0.1
    steps = np.arange(-2000, 2001) / 10
    logs = predictive.log_probability(steps)
    expected = predictive.cdf(steps + 0.05) - predictive.cdf(steps - 0.05)
    np.testing.assert_allclose(np.exp(logs), expected, atol=1e-9)
    assert np.exp(logs).sum() == pytest.approx(1.0, abs=1e-3)
    np.testing.assert_array_equal(predictive.log_probability(steps + 0.049), logs)
    np.testing.assert_array_equal(predictive.log_scores(steps).recorded(), logs)


def test_probabilities_of_steps_are_known_where_float64_cannot_hold_them() -> None:
    """They then are the density times the step; nothing has a limit from below."""
    predictive = GaussianRatings.predictive_of_moments(Moments(np.zeros(2), np.ones(2)))
    predictive.resolution = 0.001
    found = predictive.log_probability(np.array([30.0, 60.0]))
    density = norm.logpdf([30.0, 60.0]) + np.log(0.001)
    np.testing.assert_allclose(found, density, rtol=1e-6)


def test_uncertain_predictors_are_integrated_over() -> None:
    """The probability of a level is that of a fine quadrature, also for a predictor much wider than
    the noise.
    """
    eta = np.linspace(-30, 30, 61)[:, None]
    draws = PredictorDraws(
        eta=eta.astype(np.float32),
        noise=np.full((61, 1), 1.0, np.float32),
        spread=np.full((61, 1), 100.0, np.float32),
        weights=np.ones(1),
        parameters=np.zeros((1, 1, 1)),
    )
    p = Ordinal.predictive(draws, 0.0, LEVELS[:2]).probabilities()[:, 1]
    nodes = np.linspace(-8, 8, 4001)
    expected = expit(eta + 10 * nodes) @ norm.pdf(nodes) / norm.pdf(nodes).sum()
    np.testing.assert_allclose(p, expected, atol=5e-4)


def one_draw(eta: float, parameters: np.ndarray | None) -> PredictorDraws:
    """One draw of one predictor, with noise variance 1."""
    return PredictorDraws(
        eta=np.full((1, 1), eta, np.float32),
        noise=np.ones((1, 1), np.float32),
        spread=np.zeros((1, 1), np.float32),
        weights=np.ones(1),
        parameters=parameters,
    )


#: Parameters of counts at one draw: dispersion 4, a ceiling far away, and counts from 0 on.
COUNTS = np.array([[[4.0, 1e12, 0.0]]])


def test_student_t_is_that_of_scipy() -> None:
    """Log densities of mixtures over draws with their own nu and scale; probabilities in a far
    tail.
    """
    rng = np.random.default_rng(0)
    nu = np.array([3.0, 30.0])
    weights = np.array([0.3, 0.7])
    eta = rng.normal(0, 1, (5, 2)).astype(np.float32)
    noise = rng.gamma(2, 1, (5, 2)).astype(np.float32)
    parameters = (nu / (nu - 2))[:, None, None]
    draws = PredictorDraws(eta, noise, np.zeros_like(eta), weights, parameters=parameters)
    predictive = StudentT.predictive(draws, 2.0, LEVELS)
    theirs = t(nu, eta + 2.0, np.sqrt(noise))
    for x in (-4.0, 2.3, 9.0):
        np.testing.assert_allclose(
            predictive.log_density(x), np.log(theirs.pdf(x) @ weights), rtol=1e-6
        )
    far = t(nu[1], 0.0, 1.0)
    between = StudentT.predictive(one_draw(eta=0.0, parameters=parameters[1:])).between(40.0, 41.0)
    np.testing.assert_allclose(between, far.sf(40) - far.sf(41), rtol=1e-5)


@pytest.mark.parametrize(
    ("law", "theirs", "shape"),
    [
        (GaussianRatings, norm(0.5, 1.0), None),
        (StudentT, t(1000.0, 0.5, 1.0), 1000 / 998),
        (NegativeBinomial, nbinom(4.0, 4 / (4 + np.exp(0.5))), (4.0, 1e12, 0.0)),
    ],
)
def test_upper_tails_lose_no_digits(law, theirs, shape) -> None:
    """Probabilities of at least a bound are SciPy's where 1 - F would be 0, and so are logarithms
    where they are 0.
    """
    if shape is not None:
        shape = np.reshape(shape, (1, 1, -1)).astype(float)
    predictive = law.predictive(one_draw(eta=0.5, parameters=shape))
    below = 1 if predictive.has_counts else 0
    for bound in (3.0, 30.0, 60.0, 9000.0):
        expected = theirs.logsf(bound - below)
        if np.isfinite(expected):
            np.testing.assert_allclose(
                predictive.log_at_least(bound), expected, rtol=1e-5, atol=2e-3
            )
            np.testing.assert_allclose(predictive.at_least(bound), np.exp(expected), rtol=2e-5)


def test_student_t_noise_about_a_normal_predictor_has_its_density() -> None:
    """The density of test ratings, of which moments are kept, agrees with quadrature."""
    nu = 4.0
    s = 0.5
    sd = 0.4
    inflation = np.full((3, 1), nu / (nu - 2))
    noise = np.full(3, s**2 * inflation[0, 0])
    predictive = StudentT.predictive_of_moments(
        Moments(np.zeros(3), noise + sd**2, None, None, noise, inflation)
    )
    at = np.linspace(-8 * sd, 8 * sd, 4001)
    weight = norm.pdf(at, 0, sd)
    x = np.array([0.0, 1.0, 4.0])
    expected = (t.pdf(x[:, None], nu, at, s) * weight).sum(axis=1) / weight.sum()
    np.testing.assert_allclose(np.exp(predictive.log_density(x)), expected, rtol=1e-3)
    np.testing.assert_allclose(predictive.sd, np.sqrt(noise + sd**2), rtol=1e-6)


@pytest.mark.parametrize(("rate", "r"), [(0.05, 0.2), (0.8, 0.5), (3.0, 1000.0), (40.0, 2.0)])
def test_counts_above_zero_are_those_of_scipy(rate: float, r: float) -> None:
    """Probabilities, moments and what is found again from these, of a negative binomial law given a
    count above 0.
    """
    law = nbinom(r, r / (r + rate))
    k = np.arange(1, 4000)
    p = law.pmf(k) / law.sf(0)
    mean = p @ k
    variance = p @ k**2 - mean**2
    np.testing.assert_allclose(
        moments_above_zero(np.array(rate), np.array(r)), (mean, variance), rtol=1e-6
    )
    np.testing.assert_allclose(rate_above_zero(np.array(mean), np.array(r)), rate, rtol=1e-5)
    predictive = NegativeBinomial.predictive_of_moments(
        Moments(np.full(3, mean), np.full(3, variance), shape=np.tile([0.0, 1e4, 1.0], (3, 1)))
    )
    np.testing.assert_allclose(
        np.exp(predictive.log_density(np.array([1.0, 2.0, 5.0]))), p[[0, 1, 4]], rtol=2e-4
    )
    np.testing.assert_allclose(
        predictive.cdf(np.array([0.0, 1.0, 2.0])), [0, p[0], p[0] + p[1]], rtol=2e-4
    )


def test_effects_of_unknown_groups_are_integrated_over() -> None:
    """Each rating of another group: in its distribution with all laws, and in no spread of what is
    expected of it.
    """
    eta = np.float32([[0.3, 0.1]])
    effects = np.float32([[0.1, 0.2]])
    draws = PredictorDraws(
        eta=eta,
        noise=np.ones_like(eta),
        spread=np.zeros_like(eta),
        weights=np.array([0.5, 0.5]),
        effects=effects,
        parameters=np.repeat(COUNTS, 2, axis=0),
    )
    d, share = np.polynomial.hermite_e.hermegauss(40)
    at = (eta[0] + d[:, None] * np.sqrt(effects[0])).astype(float)
    over = share / share.sum()
    expected = (over @ nbinom.cdf(2, 4, 4 / (4 + np.exp(at)))).mean()
    # the tolerance is the error of three nodes
    np.testing.assert_allclose(NegativeBinomial.predictive(draws).cdf(2.0), expected, atol=4e-4)
    np.testing.assert_allclose(
        NegativeBinomial.expectation(draws).mean, np.exp(eta + effects / 2).mean(), rtol=1e-4
    )
    means = np.exp(eta + effects / 2)[0]
    np.testing.assert_allclose(NegativeBinomial.expectation(draws).sd, means.std(), rtol=1e-3)
    cuts = np.array([[[-1.0, 0.5]]] * 2)
    levels = draws._replace(parameters=cuts, owner=np.zeros(1, np.int32))
    expected = (over @ expit(0.5 - at)).mean()
    np.testing.assert_allclose(
        Ordinal.predictive(levels, levels=LEVELS[:3]).cdf(2.0), expected, atol=1e-4
    )
