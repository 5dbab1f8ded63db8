"""A density on a vector: what is asked of it, its parts, its rows."""

from typing import Any

import numpy as np
import pytest
from densities import D, Logistic, Slip, differences

from dsgmcmc.densities.density import ALL, Gaussian, prior_energy
from dsgmcmc.densities.sample import sample, vector_target
from dsgmcmc.densities.vector import VectorTarget
from dsgmcmc.errors import InputError
from dsgmcmc.samplers.baoab import BAOAB, BAOABConfig
from dsgmcmc.samplers.sgld import SGLD, SGLDConfig
from dsgmcmc.types import ScheduleName

PARTS = 7


def target_of(
    density: Any = None, gradient: str = "part", rows: int = 4, **more: Any
) -> VectorTarget:
    """Target at a random state."""
    sampler = SGLD(SGLDConfig(gradient=gradient), 0)
    target = vector_target(density or Logistic(), sampler, rows=rows, **more)
    sampler.start(target, 1.0)
    return target


# ---------------------------------------------------------------------- what a density says


@pytest.mark.parametrize("dense", [False, True])
def test_the_energy_of_the_prior_has_the_gradient_that_samplers_see(dense: bool) -> None:
    """One is written for what is reported, the other into formulas."""
    target = target_of(Logistic(dense), "full")
    theta = target.block["theta"].copy()
    target.block.begin_gradient("theta", "g", prior=True)
    found = differences(lambda x: prior_energy(target.density, x), theta)
    np.testing.assert_allclose(target.block["g"], found, rtol=1e-6, atol=1e-7)


# ---------------------------------------------------------------------- parts


@pytest.mark.parametrize("schedule", ["shuffled", "cyclic", "random"])
@pytest.mark.parametrize("dense", [False, True])
def test_the_mean_over_parts_is_the_full_gradient(schedule: ScheduleName, dense: bool) -> None:
    """Weighted by how often each is visited; the prior is whole in every one of them."""
    target = target_of(Logistic(dense), grid=PARTS, schedule=schedule)
    density = target.density
    theta = target.block["theta"]
    mean = np.zeros_like(theta)
    seen = [set() for _ in theta]
    for iteration in range(200):
        target.begin(iteration)
        parts = target.schedule.parts(iteration, len(theta))
        new = [part not in seen[row] for row, part in enumerate(parts)]
        for row, part in enumerate(parts):
            seen[row].add(part)
        for prior in (True, False):
            (cell,) = target.visit()
            cell.gradient("theta", "g", prior)
            mean[new] += (target.schedule.probability[parts][:, None] * target.block["g"])[new]
    offset = theta - density.prior_mean
    prior_gradient = offset @ density.prior_precision if dense else offset * density.prior_precision
    assert seen == [set(range(PARTS))] * len(theta)
    np.testing.assert_allclose(
        mean, 2 * density.gradient(theta) + prior_gradient, rtol=1e-10, atol=1e-10
    )


@pytest.mark.parametrize("metric", ["fisher", "kronecker"])
def test_a_step_is_the_step_that_was_asked_for(metric: str) -> None:
    """One update of BAOAB from rest moves by h^2 / 2 along P^-1 grad U, of few data as of many: l_i
    is 1.
    """
    density = Gaussian(np.zeros(2), np.diag([1.0, 0.25]))
    density.prior_precision = np.full(2, 0.5)
    sampler = BAOAB(BAOABConfig(step_size=0.2, warm_up=0, metric=metric, friction=0.999999), 0)
    target = vector_target(density, sampler, rows=2)
    sampler.start(target, 1.0)
    target.block["r"][:] = 0.0
    before = target.block["theta"].copy()
    sampler.step(target, 0)
    np.testing.assert_allclose(target.block["theta"] - before, -0.4 * before, atol=0.01)


# ---------------------------------------------------------------------- rows and chains


@pytest.mark.parametrize("gradient", ["part", "full"])
def test_the_gradient_of_one_row_is_not_that_of_several(gradient: str) -> None:
    """A shape that NumPy would broadcast samples another law without a word."""
    target = target_of(Slip(gradient=lambda theta, data=ALL: theta[0]), gradient)
    with pytest.raises(InputError, match=r"Slip.gradient must have the .* \(4, 3\): .* \(3,\)"):
        next(sample(target, SGLD(SGLDConfig(gradient=gradient), 0), 1))


def test_arrays_of_any_numbers_will_do() -> None:
    """Float32 curvature and integer priors are converted: kernels know float64 alone."""
    plain = Logistic()
    other = Slip(prior_precision=np.arange(1, D + 1), prior_mean=np.full(D, 0.5, np.float32))
    states = [
        next(sample(target_of(density), SGLD(SGLDConfig(), 0), 1)).copy()
        for density in (plain, other)
    ]
    np.testing.assert_array_equal(*states)
