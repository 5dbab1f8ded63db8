"""Classes with a defect do not pass the checks that users have for their own; those without one do,
elsewhere.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import own_part, write_planted

from dsgmcmc.densities import SAMPLERS, sample_density
from dsgmcmc.densities.base import DensitySampler
from dsgmcmc.densities.density import Density, Gaussian, posterior_gradient
from dsgmcmc.densities.vector import VectorTarget
from dsgmcmc.kernels.formulas.formula import Formula
from dsgmcmc.model.likelihoods import LIKELIHOODS, Likelihood
from dsgmcmc.model.likelihoods.gaussian import GaussianRatings
from dsgmcmc.model.predictive.mixture import SymmetricMixture
from dsgmcmc.samplers.sgld import SGLD, SGLDConfig
from dsgmcmc.testing import check_likelihood, check_part, check_sampler
from dsgmcmc.types import Purpose


class TooHot(SGLD):
    """Its noise has the variance 4 eps."""

    def step(self, target: Any, iteration: int) -> None:
        """Add the noise of a second step."""
        super().step(target, iteration)
        sd = (2 * self.step_size(target, iteration) / target.curvature_bound) ** 0.5
        for rows in target.rows_by_factor():
            rows.update(Formula("theta = theta + sd * z2"), sd=sd)


class Global(SGLD):
    """It takes NumPy's global random numbers."""

    def step(self, target: Any, iteration: int) -> None:
        """Add numbers that no seed of the run determines."""
        super().step(target, iteration)
        for block in target.blocks():
            block["theta"][:] += 1e-3 * np.random.standard_normal(block["theta"].shape)


class Lazy(SGLD):
    """It forgets the hyperparameters: nothing is drawn at the end of a sweep."""

    def step(self, target: Any, iteration: int) -> None:
        """Keep the target from seeing all data."""
        vars(target)["all_data_seen"] = lambda: None
        super().step(target, iteration)


@pytest.mark.parametrize(
    ("defective", "message"),
    [
        (
            TooHot,
            (
                r"^TooHot on a normal distribution: the standard deviation of the draws is 2\.\d+,"
                r" but should be 1\.41"
            ),
        ),
        (
            Global,
            r"^a run on 1 process\(es\), stopped after 7 iterations and resumed, has other bits",
        ),
        (
            Lazy,
            (
                r"^Lazy has hyperparameters drawn in iterations \[\], not at the ends of sweeps,"
                r" \[3, 7\]"
            ),
        ),
    ],
)
def test_a_defective_sampler_is_found(defective: type[SGLD], message: str) -> None:
    """In one sentence that says what is wrong; nothing stays registered."""
    with pytest.raises(AssertionError, match=message):
        check_sampler(defective)
    assert defective not in SAMPLERS.values()


class Direct(DensitySampler[SGLDConfig, Density]):
    """Langevin dynamics along the gradient of a density, which ratings do not have."""

    Config = SGLDConfig
    gradients = ("none",)
    scratch = ()

    def step(self, target: VectorTarget[Density], iteration: int) -> None:
        """Move along the gradient of all data."""
        theta = target.block["theta"]
        eps = self.step_size(target, iteration) / target.precision
        normal = target.stream.generator(Purpose.PROPOSAL).standard_normal(theta.shape)
        theta += np.sqrt(2 * eps) * normal - eps * posterior_gradient(target.density, theta)


def test_a_sampler_of_densities_alone_is_checked_on_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """It samples no ratings; with a name it samples densities like the others."""
    check_sampler(Direct, step_size=0.05)
    monkeypatch.setitem(SAMPLERS, "direct", Direct)
    density = Gaussian(np.ones(2), np.eye(2))
    section = {"name": "direct", "step_size": 0.1}
    draws = sample_density(density, sampler=section, iterations=8000, burn_in=200, thin=10)
    np.testing.assert_allclose(draws.theta.mean(axis=(0, 1)), 1.0, rtol=0, atol=0.2)


class Steep(GaussianRatings):
    """Its score is not the derivative of its density."""

    score = "1.1 * (x - eta)"


class Wide(GaussianRatings):
    """Its variance is not that of its distribution function."""

    mixture = SymmetricMixture  # whose quantiles are those of `cdf`

    @staticmethod
    def variance(eta: Any, noise: Any, *shape: Any) -> Any:
        """Twice the noise."""
        return 2 * noise

    @staticmethod
    def cdf(x: Any, mean: Any, variance: Any, *shape: Any) -> Any:
        """Of a narrower distribution."""
        return GaussianRatings.cdf(x, mean, variance / 2)


class Tailed(Likelihood):
    """Logistic noise of scale 1 / sqrt(tau), and tau is drawn as that of normal noise."""

    score = "1.0 - 2.0 / (1.0 + exp(x - eta))"

    @staticmethod
    def variance(eta: Any, noise: Any, *shape: Any) -> Any:
        """Of the logistic distribution."""
        return noise * np.pi**2 / 3

    @staticmethod
    def log_density(x: Any, mean: Any, variance: Any, *shape: Any) -> Any:
        """Of the logistic distribution."""
        scale = np.sqrt(3 * np.asarray(variance, np.float64)) / np.pi
        z = (x - mean) / scale
        return -np.logaddexp(0, z) - np.logaddexp(0, -z) - np.log(scale)

    @staticmethod
    def cdf(x: Any, mean: Any, variance: Any, *shape: Any) -> Any:
        """Of the logistic distribution."""
        scale = np.sqrt(3 * np.asarray(variance, np.float64)) / np.pi
        return np.asarray(1 / (1 + np.exp((mean - x) / scale)))


@pytest.mark.parametrize(
    ("defective", "message"),
    [
        (
            Steep,
            r"^Steep: an element of the energy's gradient, from differences of log_density, is ",
        ),
        (
            Wide,
            r"^Wide at eta = .*: the variance of 40,000 random quantiles is .*, but should be 2 ",
        ),
        (
            Tailed,
            r"^Tailed at tau = 3: the log density, if tau is drawn .* set draws_precision and draw",
        ),
    ],
)
def test_a_defective_likelihood_is_found(defective: type[Likelihood], message: str) -> None:
    """A wrong gradient, or a wrong draw of tau, samples another posterior, and nothing else would
    say so.
    """
    with pytest.raises(AssertionError, match=message):
        check_likelihood(defective)


def test_ratings_may_be_named_by_a_text(tmp_path: Path) -> None:
    """The docstring says path, and a path is often a text."""
    data = write_planted(tmp_path / "data.h5")
    check_likelihood(LIKELIHOODS["gaussian"], ratings=str(data))


class Still(own_part("Tastes")):
    """It never draws its parameters."""

    def draw(self, context: Any) -> None:
        """Draw nothing."""


def test_a_defective_part_is_found() -> None:
    """Parameters that stay where they start; for draws that differ between processes see
    `tests/mpi/test_checks.py`.
    """
    with pytest.raises(AssertionError, match=r"^taste was not drawn in 12 iterations"):
        check_part(Still, tastes="yes", fixed=["traits"])
