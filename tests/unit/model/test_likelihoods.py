"""Every entry of the registry keeps what a likelihood promises, and so does one that an outsider writes."""

from __future__ import annotations

import inspect
import pkgutil
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from support import MODEL, cells_of, factor_target, predictors, rows_of

from dsgmcmc.model import likelihoods
from dsgmcmc.model.likelihoods import LIKELIHOODS, Law, Likelihood
from dsgmcmc.model.predictive.base import Moments, Predictive, PredictorDraws
from dsgmcmc.model.target import FactorTarget
from dsgmcmc.samplers.sgld import SGLD, SGLDConfig
from dsgmcmc.types import Factor

ETAS = np.linspace(-1.5, 1.5, 7)
SAMPLES = 40_000
PAGE = Path(__file__).resolve().parents[3] / "docs" / "own-likelihood.md"


def target_of(data: Path, name: str, rank: int = 2, biases: bool = True) -> FactorTarget:
    """Factorisation with this law of a rating, at a random state."""
    sampler = SGLD(SGLDConfig(gradient="full"), 0)
    model = replace(MODEL, rank=rank, biases=biases)
    target = factor_target(MPI.COMM_SELF, data, 3, model=model, sampler=sampler, likelihood=LIKELIHOODS[name])
    sampler.start(target, 0.7 / rank**0.25)
    return target


def moments_at(likelihood: type[Likelihood], eta: np.ndarray, tau: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of a rating at predictors, with noise of precision tau."""
    shape = shape_of(likelihood)
    mean, variance = likelihood.mean(eta, *shape), likelihood.variance(eta, 1 / tau, *shape)
    return np.asarray(mean, np.float64), np.full(eta.shape, variance, np.float64)


def shape_of(likelihood: type[Likelihood]) -> list[float]:
    """Its other parameters, as they are before they are drawn."""
    return list(likelihood.starts.values())


def known(eta: np.ndarray, tau: float = 1.0, weights: np.ndarray | None = None) -> PredictorDraws:
    """Draws (q, n) of predictors without uncertainty of their own; (q,) of one draw."""
    eta = np.atleast_2d(eta.T).T.astype(np.float32)
    weights = np.ones(1) if weights is None else weights
    return PredictorDraws(eta, np.full_like(eta, 1 / tau), np.zeros_like(eta), weights)


def predicted(likelihood: type[Likelihood], eta: np.ndarray, tau: float = 1.0) -> Predictive:
    """What is predicted at predictors, with the variance that a rating has given them."""
    mean, variance = moments_at(likelihood, eta, tau)
    shape = np.tile(shape_of(likelihood), (len(eta), 1))
    return likelihood.predictive_of_moments(Moments(mean, variance, noise=variance, shape=shape))


class Conformance:
    """Run for every likelihood; `name` is its name in the registry."""

    def test_its_fields_have_names_that_can_be_saved(self, name: str) -> None:
        """What belongs to a draw is among them; neither is taken for what a sampler keeps."""
        for heteroscedastic in (False, True):
            likelihood = LIKELIHOODS[name](3, True, tuple(Factor) if heteroscedastic else ())
            names = likelihood.fields
            assert len(set(names)) == len(names)
            assert set(likelihood.drawn) <= set(names)
            assert not {"theta", "g", "g2", "v", "r", "n", "h"} & set(names)
            assert all(name.isidentifier() for name in names)

    @pytest.mark.parametrize(("rank", "biases"), [(3, True), (3, False), (130, True)])
    def test_the_gradient_is_that_of_the_log_density(self, name: str, data: Path, rank: int, biases: bool) -> None:
        """Over all ratings, unrolled and by blocks of columns, and the sum of squared scores: by finite differences."""
        target = target_of(data, name, rank, biases)
        target.full_gradient("theta", "g")
        i, j, x = cells_of(data)
        x = target.likelihood.codes(x.astype(np.float64), None) - target.ratings.centre
        w, h, eta = rows_of(target, Factor.W)[i], rows_of(target, Factor.H)[j], predictors(target, i, j)
        law, step, shape = LIKELIHOODS[name], 1e-5, shape_of(LIKELIHOODS[name])
        up, down = (law.log_density(x, *moments_at(law, eta + sign * step), *shape) for sign in (1, -1))
        e = (up - down) / (2 * step)
        w[:, rank:] = h[:, rank:] = 1.0
        for factor, index, feature in ((Factor.W, i, h), (Factor.H, j, w)):
            gradient = rows_of(target, factor, "g")
            expected = np.zeros_like(gradient)
            np.add.at(expected, index, -e[:, None] * feature)
            np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-4)
        if not target.likelihood.has_parameters():  # these draw from sums of their own
            assert target.noise.squared_error.sum() == pytest.approx(e @ e, rel=1e-5)

    def test_random_quantiles_have_the_mean_and_the_variance_that_were_said(self, name: str) -> None:
        """Within 5 standard errors of 40,000 samples, for several predictors and precisions of the noise."""
        rng = np.random.default_rng(1)
        for tau, eta in ((1.0, -1.0), (4.0, 1.2)):
            at = np.full(SAMPLES, eta)
            mean, variance = (value[0] for value in moments_at(LIKELIHOODS[name], at, tau))
            x = predicted(LIKELIHOODS[name], at, tau).quantile(rng.random(SAMPLES))
            assert x.shape == (SAMPLES,)
            offset = x - mean
            assert abs(offset.mean()) < 5 * np.sqrt(variance / SAMPLES)
            assert abs((offset**2).mean() - variance) < 5 * (offset**2).std() / np.sqrt(SAMPLES)

    def test_the_density_is_that_of_the_distribution_function(self, name: str) -> None:
        """Its derivative, or of whole numbers its steps; and what is reached below a rating is what is not above it."""
        predictive = predicted(LIKELIHOODS[name], np.repeat(ETAS, 5), 2.0)
        x = predictive.quantile(np.random.default_rng(2).random(35))
        assert (predictive.cdf(x) >= predictive.below(x)).all()
        if predictive.whole:
            np.testing.assert_allclose(
                np.exp(predictive.log_density(x)), predictive.cdf(x) - predictive.below(x), rtol=1e-6
            )
        else:
            slope = (predictive.cdf(x + 1e-5) - predictive.cdf(x - 1e-5)) / 2e-5
            np.testing.assert_allclose(np.exp(predictive.log_density(x)), slope, rtol=1e-5, atol=1e-9)

    def test_quantiles_are_where_the_probability_is_reached(self, name: str) -> None:
        """The inverse of the distribution function, of one draw and of mixtures; of counts, the smallest that does."""
        law, rng, weights = LIKELIHOODS[name], np.random.default_rng(4), np.array([0.5, 0.2, 0.2, 0.1])
        mixed = law.predictive(known(rng.normal(0, 1.5, (50, 4)), 2.0, weights), 0.0 if law.replaces_mean else 0.7)
        for predictive in (predicted(law, ETAS, 2.0), *([mixed] if law.can_be_evaluated else [])):
            for p in (1e-4, 0.025, 0.1, 0.5, 0.9, 0.975, 0.9999):
                x = predictive.quantile(p)
                assert x.shape == predictive.mean.shape
                assert (predictive.cdf(x) >= p - 1e-9).all()
                assert (predictive.cdf(x - 1e-4 * predictive.sd) < p).all()


@pytest.mark.parametrize("name", [name for name, law in LIKELIHOODS.items() if issubclass(law, Likelihood)])
class TestRegistered(Conformance):
    """Those of the package that mean and variance tell; for those of levels see `test_ordinal`."""


class TestOutsider(Conformance):
    """The one that the documentation writes, with the base class alone: readers can do as it does."""

    @pytest.fixture
    def name(self, monkeypatch: pytest.MonkeyPatch) -> str:
        monkeypatch.setitem(LIKELIHOODS, "exponential", Likelihood)  # taken back at the end; the page has its own
        _, code = PAGE.read_text(encoding="utf-8").split("```python\n", 1)
        exec(code.partition("```")[0], {})
        assert LIKELIHOODS["exponential"] is not Likelihood
        return "exponential"


def test_every_likelihood_of_the_package_is_registered() -> None:
    """A file that nobody can select is dead."""
    laws = set()
    for module in pkgutil.walk_packages(likelihoods.__path__, f"{likelihoods.__name__}."):
        content = vars(import_module(module.name)).values()
        laws |= {c for c in content if inspect.isclass(c) and issubclass(c, Law) and not inspect.isabstract(c)}
    registered = set(LIKELIHOODS.values())
    assert {law for law in laws if not law.__subclasses__()} <= registered <= laws
