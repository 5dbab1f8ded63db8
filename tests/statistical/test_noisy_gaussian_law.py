"""Samplers whose law is known in closed form: N(0, 1) in the metric, gradients with noise of
variance V.

One update of SGRLD and SGHMC is linear, so that Var theta follows from the splitting alone, at any
step and friction; the thermostats of SGNHT find the noise, each its own row's.
"""

from math import exp
from typing import Any

import numpy as np
import pytest
from chain_states import make_sampler, states
from densities import NoisyGaussian, Normal
from scipy.linalg import solve_discrete_lyapunov

from dsgmcmc.densities.sample import sample, vector_target

pytestmark = pytest.mark.statistical
PARTS = 4


# ---------------------------------------------------------------------- without thermostats


def variances(
    name: str,
    noise: float,
    precision: float = 2.5,
    burn_in: int = 100,
    draws: int = 40,
    phase: int = 0,
    **section: Any,
) -> np.ndarray:
    """Variances of theta, in units of the target's, and of momenta: 800 rows, `draws` nearly
    independent times.
    """
    density = NoisyGaussian(precision, noise)
    sampler = make_sampler(name, warm_up=0, **section)
    target = vector_target(density, sampler, rows=800, grid=PARTS, schedule="random")
    total = np.zeros(2)
    apart = 25 if name == "sghmc" else 15
    for k, theta in enumerate(sample(target, sampler, burn_in + apart * draws, sd=0.7)):
        if k >= burn_in and k % apart == phase:
            momenta = (target.block["r"] ** 2).mean() if name == "sghmc" else 0.0
            total += np.array([(theta**2).mean() * density.precision, momenta]) / draws
    return total


@pytest.mark.parametrize(("noise", "corrected"), [(0.0, False), (3.0, False), (3.0, True)])
def test_sgrld(noise: float, corrected: bool) -> None:
    """(1 + eps (V - B^) / 2) / (1 - eps / 2), of four independent parts B^ = 3; 16,000 elements, to
    1 %.
    """
    eps = 0.4
    left = 0.0 if corrected else noise
    moments = variances(
        "sgrld", noise, burn_in=15, draws=25, step_size=eps, noise_correction=corrected
    )
    assert moments[0] == pytest.approx((1 + eps * left / 2) / (1 - eps / 2), rel=0.01)


@pytest.mark.parametrize(("metric", "noise"), [("fisher", 0.0), ("identity", 3.0)])
def test_sghmc(metric: str, noise: float) -> None:
    """1 + h^2 V (1 + c) / ((1 - c) (4 - h^2)): without noise there is no error at all; to 1 %."""
    h = 0.6
    gamma = 1.5
    c = exp(-gamma * h)
    moments = variances("sghmc", noise, step_size=h * h / 2, gamma=gamma, metric=metric)
    assert moments[0] == pytest.approx(
        1 + h * h * noise * (1 + c) / ((1 - c) * (4 - h * h)), rel=0.01
    )


def test_sghmc_as_published() -> None:
    """(2 a + h^2 V) (2 - a) / (a (4 - 2 a - h^2)), and of r with 2 in the place of 2 - a; to 1
    %.
    """
    h = 0.4
    gamma = 1.0
    noise = 3.0
    a = gamma * h
    moments = variances("sghmc", noise, step_size=h * h / 2, gamma=gamma, splitting="published")
    common = (2 * a + h * h * noise) / (a * (4 - 2 * a - h * h))
    np.testing.assert_allclose(moments, [common * (2 - a), common * 2], rtol=0.01)


@pytest.mark.parametrize("splitting", ["baoa", "published"])
def test_sghmc_corrected_for_the_noise_of_independent_parts(splitting: str) -> None:
    """Of four parts V is 3 where the data have the whole precision.

    What is left is O(h^2), not O(h); to 1 %.
    """
    h = 0.4
    gamma = 2.0
    noise = PARTS - 1
    a = gamma * h
    c = exp(-gamma * h)
    settings = {
        "step_size": h * h / 2,
        "gamma": gamma,
        "splitting": splitting,
        "noise_correction": True,
    }
    left = {
        "baoa": 1 + h * h * noise * (1 + c) / (1 - c) * (1 / (4 - h * h) - 1 / 4),
        "published": 2 * (2 - a) / (4 - 2 * a - h * h),
    }
    assert variances("sghmc", noise, **settings)[0] == pytest.approx(left[splitting], rel=0.01)


def test_fresh_momenta_with_half_kicks() -> None:
    """Var theta at the end of a trajectory, from the recursion; 1 + O(h^2), not L / (L + 1) = 0.83;
    to 1 %.
    """
    h = 0.4
    gamma = 0.2
    length = 5
    c = exp(-gamma * h)
    drift = np.array([[1, h / 2], [0, 1]])
    kick = np.array([[1, 0], [-h, 1]])
    after = drift @ np.diag([1, c]) @ drift
    added = (1 - c * c) * np.outer(drift[:, 1], drift[:, 1])
    # from (theta, r): a momentum of its own after half a kick
    fresh = np.array([[1, 0], [-h / 2, 0]])
    one = np.eye(2)
    noise = np.zeros((2, 2))
    for update in range(length):
        step = after @ (kick if update else fresh)
        of_momentum = np.zeros((2, 2)) if update else np.outer(after[:, 1], after[:, 1])
        one = step @ one
        noise = step @ noise @ step.T + added + of_momentum
    expected = solve_discrete_lyapunov(one, noise)[0, 0]
    assert abs(expected - 1) < h * h / 2
    moments = variances(
        "sghmc", 0.0, 1.0, phase=length - 1, step_size=h * h / 2, gamma=gamma, refresh=length
    )
    assert moments[0] == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("friction", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("eps", [0.1, 0.35, 1.0])
def test_harmonic_oscillator_has_the_exact_variance(friction, eps):
    """BAOAB's configurational variance of a harmonic oscillator is exact for every stable step and
    friction.

    OBABO and ABOBA, whose drift and noise are the same as the step goes to 0, are not exact
    [Leimkuhler & Matthews 2013]. The last states of 4,000 independent chains: their variance has
    the standard error sqrt(2 / 4000) = 0.022.
    """
    sampler = make_sampler("baoab", step_size=eps, warm_up=0, friction=friction)
    # so many data that l, which bounds the coupling, is 1
    density = Normal([0.0], [[2.0]], [2.0], 10**9)
    x = states(density, sampler, 151 if friction == 0.9 else 101, rows=4000)[-1, :, 0]
    assert abs(np.var(x) * 2.0 - 1.0) < 4.5 * np.sqrt(2 / 4000)


# ---------------------------------------------------------------------- thermostats


def thermostats(
    noise: float | np.ndarray, rows: int, thermostat: str, h: float, metric: str = "fisher"
) -> tuple[np.ndarray, np.ndarray]:
    """Var theta of every row in units of the target's, and draws of the thermostats, at A = 1."""
    density = NoisyGaussian(2.0, noise, prior=0.0 if metric == "fisher" else 0.5)
    draws = 40
    section = {
        "thermostat": thermostat,
        "metric": metric,
        "diffusion": 1.0,
        "step_size": h * h / 2,
        "warm_up": 0,
    }
    sampler: Any = make_sampler("sgnht", **section)
    target = vector_target(density, sampler, rows=rows, grid=PARTS, schedule="cyclic")
    variance = np.zeros(rows)
    draws_of_xi = []
    for k, theta in enumerate(sample(target, sampler, 300 + 40 * draws, sd=0.7)):
        if k >= 300 and k % 40 == 0:
            variance += (theta**2).mean(axis=1) * density.precision / draws
            draws_of_xi.append(
                (sampler.shared.xi if thermostat == "scalar" else target.block["xi"]).copy()
            )
    return variance, np.array(draws_of_xi)


@pytest.mark.parametrize(
    ("thermostat", "metric", "rows", "d"),
    [
        ("row", "fisher", 1000, 20),
        ("element", "fisher", 1000, 1),
        pytest.param("row", "kronecker", 400, 20, marks=pytest.mark.long),
    ],
)
def test_the_thermostat_finds_the_noise(thermostat: str, metric: str, rows: int, d: int) -> None:
    """Mean of xi A + h V / 2 and variance 1 / d, to 3 %, with theta's variance that of the target,
    to 1 %.

    From the law exp(-(d / 2) (xi - A)^2); what [Ma 2015] prints would have the variance d.
    """
    noise = 8.0
    h = 0.1
    variance, xi = thermostats(noise, rows, thermostat, h, metric)
    assert variance.mean() == pytest.approx(1.0, rel=0.01)
    assert xi.mean() == pytest.approx(1 + h * noise / 2, rel=0.03)
    if metric == "fisher":
        assert xi.var() == pytest.approx(1 / d, rel=0.03)


def test_only_thermostats_of_their_own_serve_rows_of_unequal_noise() -> None:
    """Var theta of rows with V from 0 to 40: 1 to 1.5 % with one each; 0.7 to 1.3 with one for
    all.
    """
    groups = 8
    rows = 1600
    h = 0.05
    noise = np.repeat(np.linspace(0, 40, groups), rows // groups)[:, None]
    by_row, _ = thermostats(noise, rows, "row", h)
    np.testing.assert_allclose(by_row.reshape(groups, -1).mean(axis=1), 1.0, atol=0.015)
    shared, xi = thermostats(noise, rows, "scalar", h)
    of_group = shared.reshape(groups, -1).mean(axis=1)
    assert of_group[0] < 0.75
    assert of_group[-1] > 1.2
    assert shared.mean() == pytest.approx(1.0, abs=0.02)
    assert xi.mean() == pytest.approx(1 + h * noise.mean() / 2, rel=0.03)
