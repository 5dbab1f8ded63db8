"""SGNHT on N(0, 1) with gradient noise: its thermostats find the noise, each its own row's."""

from __future__ import annotations

import numpy as np
import pytest
from densities import NoisyGaussian

from dsgmcmc.densities.sample import sample, vector_target
from dsgmcmc.samplers.sgmcmc.sgnht import SGNHT, SGNHTConfig

pytestmark = pytest.mark.statistical
A, PARTS = 1.0, 4


def run(
    noise: float | np.ndarray, rows: int, thermostat: str, h: float, draws: int = 40, metric: str = "fisher"
) -> tuple[np.ndarray, np.ndarray]:
    """Var theta of every row in units of the target's, and draws of the thermostats."""
    density, draws = NoisyGaussian(2.0, noise, prior=0.0 if metric == "fisher" else 0.5), 40
    section = {"thermostat": thermostat, "metric": metric, "diffusion": A, "step_size": h * h / 2, "warm_up": 0}
    sampler = SGNHT(SGNHTConfig(**section), 0)
    target = vector_target(density, sampler, rows=rows, grid=PARTS, schedule="cyclic")
    variance, found = np.zeros(rows), []
    for k, theta in enumerate(sample(target, sampler, 300 + 40 * draws, sd=0.7)):
        if k >= 300 and k % 40 == 0:
            variance += (theta**2).mean(axis=1) * density.precision / draws
            found.append((sampler.shared.xi if thermostat == "scalar" else target.block["xi"]).copy())
    return variance, np.array(found)


@pytest.mark.long
def test_rows_in_the_kronecker_metric() -> None:
    """Both updates of an iteration, in coordinates that are not those of theta; to 1 %."""
    variance, xi = run(8.0, 400, "row", 0.1, metric="kronecker")
    assert variance.mean() == pytest.approx(1.0, rel=0.01)
    assert xi.mean() == pytest.approx(A + 0.1 * 8.0 / 2, rel=0.03)


@pytest.mark.parametrize(("thermostat", "d"), [("row", 20), ("element", 1)])
def test_the_thermostat_finds_the_noise(thermostat: str, d: int) -> None:
    """Mean of xi A + h V / 2 and variance 1 / d, to 3 %, with theta's variance that of the target, to 1 %.

    From the law exp(-(d / 2) (xi - A)^2); what [Ma 2015] prints would have the variance d.
    """
    noise, h = 8.0, 0.1
    variance, xi = run(noise, 1000, thermostat, h)
    assert variance.mean() == pytest.approx(1.0, rel=0.01)
    assert xi.mean() == pytest.approx(A + h * noise / 2, rel=0.03)
    assert xi.var() == pytest.approx(1 / d, rel=0.03)


def test_only_thermostats_of_their_own_serve_rows_of_unequal_noise() -> None:
    """Var theta of rows with V from 0 to 40: 1 to 1 % with one each; 0.7 to 1.3 with one for all."""
    groups, rows, h = 8, 1600, 0.05
    noise = np.repeat(np.linspace(0, 40, groups), rows // groups)[:, None]
    own, _ = run(noise, rows, "row", h)
    of_group = own.reshape(groups, -1).mean(axis=1)
    np.testing.assert_allclose(of_group, 1.0, atol=0.015)
    one, xi = run(noise, rows, "scalar", h)
    of_group = one.reshape(groups, -1).mean(axis=1)
    assert of_group[0] < 0.75
    assert of_group[-1] > 1.2
    assert np.all(np.diff(of_group) > 0)
    assert one.mean() == pytest.approx(1.0, abs=0.02)
    assert xi.mean() == pytest.approx(A + h * noise.mean() / 2, rel=0.03)
