"""Samplers in the Fisher metric where the law is known: a Gaussian, and a product whose metric depends on the state."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from densities import NoisyGaussian

from dsgmcmc.densities.sample import sample, vector_target
from dsgmcmc.kernels.formula import RowPrior
from dsgmcmc.parallel.timers import Phases
from dsgmcmc.samplers import SAMPLERS
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.samplers.sgmcmc.sgrld import SGRLD, SGRLDConfig
from dsgmcmc.targets.base import NOTHING, Information
from dsgmcmc.targets.state import BlockLayout, ParameterBlock, RandomStream, StateField
from dsgmcmc.types import Factor

pytestmark = pytest.mark.statistical
PARTS = 4


@pytest.mark.parametrize(("noise", "corrected"), [(0.0, False), (3.0, False), (3.0, True)])
def test_gaussian(noise: float, corrected: bool) -> None:
    """(1 + eps (V - B^) / 2) / (1 - eps / 2), of four independent parts B^ = 3; 40,000 elements, to 1 %."""
    eps, draws, total = 0.4, 25, 0.0
    density = NoisyGaussian(2.5, noise)
    sampler = SGRLD(SGRLDConfig(warm_up=0, step_size=eps, noise_correction=corrected), 0)
    target = vector_target(density, sampler, rows=2000, grid=PARTS, schedule="random")
    for k, theta in enumerate(sample(target, sampler, 15 * (draws + 1), sd=0.7)):
        if k >= 15 and k % 15 == 0:
            total += float((theta**2).mean()) * density.precision / draws
    left = 0.0 if corrected else noise
    assert total == pytest.approx((1 + eps * left / 2) / (1 - eps / 2), rel=0.01)


class Products:
    """Many independent pairs w, h ~ N(0, 1) with one datum x ~ N(w h, 1 / 4); a `dsgmcmc.targets.base.Target`.

    Each is a factorisation of one row and one column, whose Fisher information 4 h^2 + 1 and 4 w^2 + 1 is all that a
    row and a column know of each other: the strongest dependence of a metric on the state that there can be.
    """

    x, noise_precision = 1.0, 4.0
    subchain, sweep_length, n_data, curvature_bound = 0, 1, 1, 1.0
    renews_data = renews_prior = metric_uses_current_hyperparameters = False

    def __init__(self, sampler: Sampler[Any, Any], pairs: int) -> None:
        self.stream = RandomStream(1, 0)
        layout = BlockLayout((*sampler.kept, *map(StateField, sampler.working)), 1)
        self.w, self.h = (self._block(layout, factor, pairs) for factor in Factor)

    def _block(self, layout: BlockLayout, factor: Factor, n: int) -> ParameterBlock:
        buffer = np.zeros(n * layout.width)
        place = {"index": 0, "start": 0, "dimension": 1, "counts": np.ones(n, np.int64)}
        prior = RowPrior(np.zeros(1), np.ones(1))
        arrays = layout.views(buffer, n)
        return ParameterBlock(self.stream, Phases(), lambda block: prior, factor, arrays=arrays, buffer=buffer, **place)

    def blocks(self) -> Iterator[ParameterBlock]:
        yield from (self.w, self.h)

    def together(self) -> Iterator[ParameterBlock]:
        yield from self.blocks()

    def full_gradient(self, position: str, out: str) -> None:
        w, h = self.w[position], self.h[position]
        self.w[out][:], self.h[out][:] = -(self.x - w * h) * h, -(self.x - w * h) * w

    def all_data_seen(self) -> None: ...

    def information(self, position: str, bound: bool = True, earlier: Mapping[Factor, Any] = NOTHING) -> Information:
        n = {self.w: self.h[position][:, 0] ** 2, self.h: self.w[position][:, 0] ** 2}
        one = {factor: np.ones(1) for factor in Factor}
        bound = {block: np.ones(len(n[block])) for block in n}
        return Information(one, one, self.noise_precision, n, n, bound, one, bound)

    def own_sums(self, position: str, out: str) -> None:
        self.w[out][:], self.h[out][:] = self.h[position], self.w[position]

    def own_products(self, position: str, field: str) -> None:
        self.w[field][:] *= self.h[position] ** 2
        self.h[field][:] *= self.w[position] ** 2

    def momenta(self, field: str, turned: bool) -> dict[str, Any]:
        return {}  # nobody asks for temperatures

    def sum(self, partials: Any, finish: Any, result: Any) -> dict[str, Any]:
        return {}


def moments(tau: float, x: float) -> np.ndarray:
    """E w^2, E w h and E w^2 h^2, by quadrature."""
    w, h = np.meshgrid(*[np.linspace(-7, 7, 1401)] * 2)
    density = np.exp(-(w**2 + h**2 + tau * (x - w * h) ** 2) / 2)
    return np.array([(density * f).sum() for f in (w**2, w * h, (w * h) ** 2)]) / density.sum()


@pytest.mark.parametrize(
    ("name", "section"),
    [
        ("sgrld", {"gradient": "full", "step_size": 0.01}),
        ("baoab", {"step_size": 0.02}),
        ("sghmc", {"gradient": "full", "step_size": 0.02, "gamma": 2.0}),
    ],
)
def test_a_metric_from_the_other_factor_needs_no_correction(
    name: str, section: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gamma is zero [Ma 2015, eq. 3]: moments of w and h by quadrature, to 1 % and the error of 4,000 chains.

    A metric of the block's own state, without Gamma, would be half as much again off: E w^2 1.54 for 1.02.
    """
    monkeypatch.setattr(sys.modules[SAMPLERS[name].__module__], "REFRESH_EVERY", 1)
    sampler = SAMPLERS[name](SAMPLERS[name].Config(warm_up=0, **section), 0)
    target = Products(sampler, 4000)
    sampler.start(target, 1.0)
    found, draws = np.zeros(3), 0
    for iteration in range(4000):
        target.stream.iteration = iteration
        sampler.step(target, iteration)
        if iteration >= 1000 and iteration % 20 == 0:
            w, h = target.w["theta"], target.h["theta"]
            found += [np.mean(w**2 + h**2) / 2, np.mean(w * h), np.mean((w * h) ** 2)]
            draws += 1
    np.testing.assert_allclose(found / draws, moments(target.noise_precision, target.x), rtol=0.01)
