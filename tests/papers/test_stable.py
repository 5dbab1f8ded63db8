"""Alpha-stable factors: the scale mixture against its laws, gradients by differences, latent
variables as state.
"""

from math import cos, pi
from typing import Any

import numpy as np
import pytest
from common import prepare
from densities import differences
from latent import given_latent
from stable_factors import Source, StableFactors, positive_stable, stable_nodes

from dsgmcmc.densities.density import ALL
from dsgmcmc.densities.sample import sample

DRAWS = 40_000


def made(**settings: Any) -> StableFactors:
    """Twenty data of two sources, W of the first one known."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4, 5)) + 1j * rng.normal(size=(4, 5))
    return StableFactors(x, [Source(1.2, rng.uniform(0.5, 1, (4, 3))), Source(1.89, 2)], **settings)


@pytest.mark.parametrize("a", [0.3, 0.6, 0.945])
def test_positive_stable_variables_have_their_laplace_transform(a: float) -> None:
    """E exp(-s P) = exp(-s^a): draws to five standard errors, nodes to .002."""
    drawn = positive_stable(a, (DRAWS,), np.random.default_rng(0))
    nodes, weights = stable_nodes(a, 24)
    assert weights.sum() == pytest.approx(1)
    for s in (0.01, 0.1, 1.0, 5.0):
        values = np.exp(-s * drawn)
        exact = np.exp(-(s**a))
        assert abs(values.mean() - exact) < 5 * values.std() / DRAWS**0.5
        assert weights @ np.exp(-s * nodes) == pytest.approx(exact, abs=0.002)


@pytest.mark.parametrize("alpha", [1.2, 1.89])
def test_the_scale_of_phi_is_not_the_printed_one(alpha: float) -> None:
    """S(a, 1, sigma, 0) has E exp(i t Phi) = exp(-(sigma t)^a (1 - i tan(pi a / 2))): the derived
    sigma fits.

    With it the scale mixture is the isotropic stable law, as the file of the factors derives.
    """
    a = alpha / 2
    t = 0.3
    phi = (
        StableFactors(np.ones((1, 1)), [Source(alpha, 1)])
        .draw_latent((DRAWS, 1), np.random.default_rng(1))
        .ravel()
    )
    found = np.exp(1j * t * phi).mean()

    def law(sigma: complex) -> complex:
        return complex(np.exp(-((sigma * t) ** a) * (1 - 1j * np.tan(pi * a / 2))))

    assert abs(found - law(2 * cos(pi * alpha / 4) ** (2 / alpha))) < 5 / DRAWS**0.5
    assert abs(found - law(2 * complex(cos(pi * alpha) / 4) ** (2 / alpha))) > 0.1


@pytest.mark.parametrize("data", [ALL, slice(1, None, 3)])
@pytest.mark.parametrize("with_latent", [False, True])
def test_gradients_are_those_of_the_energies(with_latent: bool, data: slice) -> None:
    """By differences, given Phi and without; of entries of both signs, one below b / 10: to
    1e-6.
    """
    density = made()
    rng = np.random.default_rng(3)
    theta = (
        density.start
        * rng.uniform(0.5, 2, density.dimension)
        * rng.choice([-1, 1], density.dimension)
    )[None]
    theta[0, 3] = 0.05 * density.unit[3]
    latent = density.draw_latent((1, density.n_data), rng)[:, data]

    def energy(at: np.ndarray) -> float:
        if not with_latent:
            return float(density.energy(at, data)[0])
        share = len(density.order[data]) / density.n_data
        return float(density.given(at, data)(latent).sum() + share * density._prior(np.abs(at))[0])

    if with_latent:
        found = density.gradient_given(theta, latent, data)
    else:
        found = density.gradient(theta, data)
    assert found[0] == pytest.approx(differences(energy, theta, 1e-6 * np.abs(theta[0])), rel=1e-6)
    assert np.isfinite(density.gradient(np.zeros_like(theta))).all()


def test_what_raises_and_what_lowers_an_entry_make_the_gradient() -> None:
    """So a fixed point of the multiplicative updates is a mode; and an update lowers the energy."""
    density = made()
    theta = density.start[None]
    up, down = density.pulls(theta)
    assert (up > 0).all()
    assert (down > 0).all()
    np.testing.assert_allclose(down - up, density.gradient(theta), rtol=1e-10)
    assert density.energy(theta * np.sqrt(up / down))[0] < density.energy(theta)[0]


# ---------------------------------------------------------------------- latent variables


def started(name: str, **settings: Any) -> tuple[Any, Any]:
    sampler, target = prepare(name, made(), schedule="shuffled", grid=3, step_size=1e-4, **settings)
    given_latent(sampler).start(target, 0.01)
    return target, sampler


def test_the_chains_of_hamcmc_have_latent_variables_of_their_own() -> None:
    """Each is a chain of (theta, Phi): what one draws, the others do not see."""
    target, sampler = started("hamcmc", memory=3)
    sampler.advance(target, 0, 3)
    before = [latent.copy() for latent in sampler.gradient.latents]
    sampler.advance(target, 3, 1)
    same = [(now == then).all() for now, then in zip(sampler.gradient.latents, before, strict=True)]
    assert same == [False, True, True]


def test_only_the_latent_variables_of_a_part_move() -> None:
    """An iteration costs what its part costs."""
    target, sampler = started("sgld")
    sampler.advance(target, 0, 1)
    before = sampler.gradient.latents[0][0].copy()
    sampler.advance(target, 1, 1)
    moved = np.flatnonzero((sampler.gradient.latents[0][0] != before).any(axis=1))
    assert set(moved % 3) == {target.schedule.part(1)}
    assert 0.3 < sampler.metrics()["latent_acceptance"] < 1


SPECTROGRAM = (
    np.random.default_rng(0).standard_cauchy((12, 1)) * np.exp(0.5j * np.arange(12))[:, None]
)


def test_the_posterior_of_a_scale() -> None:
    """One entry of H from 12 data with W = 1, alpha = 1.2, by parts of 4: E log h and its standard
    deviation.

    To .06, of which .03 is the bias of this step with these parts, .02 four standard errors of 200
    chains. With twice the scale of Phi it would be off by .42.
    """
    density = StableFactors(SPECTROGRAM, [Source(1.2, np.ones((12, 1)))], scale=0.3, nodes=40)
    h = np.exp(np.linspace(-5, 5, 1000))  # in which the law of log h is summed
    energy = density.energy(h[:, None]) - np.log(h)
    weights = np.exp(energy.min() - energy)
    weights /= weights.sum()
    mean = weights @ np.log(h)
    sd = np.sqrt(weights @ (np.log(h) - mean) ** 2)

    density.start = np.full(1, np.exp(mean))
    sampler, target = prepare(
        "sgld", density, schedule="shuffled", rows=200, grid=3, step_size=0.01
    )
    states = sample(target, given_latent(sampler), iterations=1200, sd=0.2)
    draws = np.log(np.abs([theta.copy() for theta in states][200::10]))
    assert draws.mean() == pytest.approx(mean, abs=0.06)
    assert draws.std() == pytest.approx(sd, abs=0.06)
