"""Gradient estimators on data: unbiased by enumeration, drawn as they say."""

from copy import deepcopy
from itertools import product
from typing import Any

import numpy as np
import pytest
from densities import Plain

from dsgmcmc.config.run import build
from dsgmcmc.densities import sample_density
from dsgmcmc.densities.adjusted_sgld import AdjustedSGLD
from dsgmcmc.densities.density import DoubleWell
from dsgmcmc.densities.models.regression import Regression
from dsgmcmc.densities.models.sums import SumDensity
from dsgmcmc.densities.registry import SAMPLERS
from dsgmcmc.densities.sample import vector_target
from dsgmcmc.densities.subsampling import DATUM_GRADIENTS, Saga, Subsample, draw
from dsgmcmc.densities.vector import VectorTarget
from dsgmcmc.errors import InputError
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.samplers.gradients import GRADIENTS
from dsgmcmc.samplers.sgld import SGLD, SGLDConfig

FEATURES = np.random.default_rng(0).normal(size=(5, 2)) * np.array([1.0, 3.0])
FIVE = Regression(FEATURES, [0, 1, 1, 0, 1], prior_mean=0.5, prior_precision=[1.0, 2.0])


def prepare(
    name: str, density: Any = FIVE, grid: int = 2, rows: int = 1, step: float = 0.3
) -> tuple[VectorTarget, SGLD]:
    """Target and sampler at a random state."""
    sampler = SGLD(SGLDConfig(step_size=step, gradient=name), 0)
    target = vector_target(density, sampler, rows=rows, grid=grid, schedule="random")
    sampler.start(target, 1.0)
    return target, sampler


def mean_over_draws(target: VectorTarget, estimator: Subsample) -> np.ndarray:
    """Return the mean of the likelihood's gradient over all draws of two data, at this state."""
    density = target.density
    theta = target.block["theta"]
    total = np.zeros(density.dimension)
    p = estimator.probabilities(target, 0, theta[0])
    assert p.sum() == pytest.approx(1, abs=1e-14)
    kept = deepcopy(vars(estimator))
    for pair in product(range(5), repeat=2):
        index = np.array(pair)
        slopes = density.slopes(theta, index)
        gradient = estimator._estimate(density, 0, slopes, index=index, p=p[index])
        total += p[index].prod() * gradient
        vars(estimator).update(deepcopy(kept))
    return total


@pytest.mark.parametrize("density", [FIVE, Plain(FIVE)], ids=["regression", "any sum"])
@pytest.mark.parametrize("name", DATUM_GRADIENTS)
def test_every_estimator_is_unbiased(name: str, density: SumDensity) -> None:
    """All 25 draws of two of five data, after 0 to 6 iterations, which leave tables of mixed ages:
    to 1e-12.
    """
    target, sampler = prepare(name, density)
    for iteration in range(7):
        sampler.advance(target, iteration, 1)
        target.begin(iteration + 1)
        expected = density.gradient(target.block["theta"])[0]
        np.testing.assert_allclose(
            mean_over_draws(target, sampler.gradient), expected, rtol=0, atol=1e-12
        )


@pytest.mark.parametrize("name", ["saga", "importance", "importance-saga", "adaptive"])
def test_data_are_drawn_with_the_probabilities_that_weigh_them(name: str) -> None:
    """Chi-square of 4,000 draws over five data, 4 degrees of freedom: below its 1e-4 quantile."""
    target, sampler = prepare(name, grid=5)
    sampler.advance(target, 0, 4)
    estimator = sampler.gradient
    block = target.block
    p = estimator.probabilities(target, 0, block["theta"][0])
    index = draw(p, 4000, np.random.default_rng(1))
    counts = np.bincount(index, minlength=5)
    assert ((counts - 4000 * p) ** 2 / (4000 * p)).sum() < 23.5


@pytest.mark.parametrize("name", DATUM_GRADIENTS)
def test_gradients_are_counted_and_rows_do_not_share_draws(name: str) -> None:
    """A table takes the gradients of all data once, and an iteration those of its own."""
    target, sampler = prepare(name, rows=2)
    sampler.advance(target, 0, 18)
    assert sampler.metrics()["gradient_calls"] == 18 * 2 + (5 if name != "importance" else 0)
    assert any((a != b).any() for a, b in [sampler.gradient.drawn])


@pytest.mark.parametrize("name", ["sgld", "psgld", "sgrld", "sghmc", "sgnht"])
def test_any_sampler_takes_any_of_them(name: str) -> None:
    """Twenty iterations with each of the six: finite, and other than along parts."""
    ends = set()
    for gradient in (*DATUM_GRADIENTS, "part"):
        sampler = SAMPLERS[name](SAMPLERS[name].Config(gradient=gradient, step_size=0.01), 5)
        target = vector_target(FIVE, sampler, grid=2, schedule="random")
        sampler.start(target, 1.0)
        sampler.advance(target, 0, 20)
        assert np.isfinite(target.block["theta"]).all()
        ends.add(target.block["theta"].tobytes())
    assert len(ends) == 7


def test_they_are_refused_where_there_are_no_data_to_draw(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For a factorisation, for a density that is no sum over data, and by a sampler that visits one
    part twice.
    """
    with pytest.raises(InputError, match="only for densities"):
        build({"sampler": {"name": "sgld", "gradient": "saga"}})
    monkeypatch.setitem(GRADIENTS, "own", Saga)
    with pytest.raises(InputError, match="'own' is only for densities"):
        build({"sampler": {"name": "sgld", "gradient": "own"}})
    with pytest.raises(InputError, match="'saga' needs a SumDensity, which this DoubleWell is not"):
        sample_density(DoubleWell(), sampler={"name": "sgld", "gradient": "saga"})
    with pytest.raises(InputError, match="HAMCMC cannot use 'saga'"):
        sampler_with(SAMPLERS["hamcmc"], "saga")
    with pytest.raises(InputError, match="noise of plain parts"):
        SAMPLERS["sghmc"].check(
            SAMPLERS["sghmc"].Config(gradient="saga", noise_correction=True), "random", 2, 1
        )


def test_weights_that_are_all_zero_are_uniform() -> None:
    """A model that is sure of all data has no gradients to weigh: they are drawn evenly, and the
    sum stays unbiased.
    """
    separate = Regression(np.array([[1.0], [2.0], [-3.0]]), np.array([1, 1, 0]))
    sampler = sampler_with(SAMPLERS["sgld"], "adaptive-stored")
    target = vector_target(separate, sampler, grid=1)
    sampler.start(target, 1.0)
    target.block["theta"][:] = 1e4
    sampler.advance(target, 0, 1)
    target.begin(1)
    assert not sampler.gradient.table.any()
    found = sampler.gradient.probabilities(target, 0, target.block["theta"][0])
    np.testing.assert_array_equal(found, np.full(3, 1 / 3))


def test_a_chain_that_is_lost_is_said_to_have_diverged() -> None:
    """Not by an error of the eigenvalues: the state shows it, to whoever looks."""
    sampler = sampler_with(AdjustedSGLD, "saga")
    rng = np.random.default_rng(0)
    target = vector_target(
        Regression(rng.normal(size=(50, 20)), np.ones(50)), sampler, grid=1, rows=2
    )
    sampler.start(target, 1.0)
    sampler.advance(target, 0, 1)
    target.block["theta"][1] = np.inf
    with np.errstate(all="ignore"):
        sampler.advance(target, 1, 2)
    assert target.find_divergence("theta") == "element [1, 0] of theta is nan"


def sampler_with(sampler_type: type[Sampler[Any, Any]], gradient: str) -> Sampler[Any, Any]:
    return sampler_type(sampler_type.Config(gradient=gradient), 0)
