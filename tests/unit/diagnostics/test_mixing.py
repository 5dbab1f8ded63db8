"""R-hat and effective sample sizes: against ArviZ's, and against what is known of an autoregression."""

from __future__ import annotations

import numpy as np
import pytest
from arviz_stats.base import array_stats

from dsgmcmc.diagnostics.mixing import ess_bulk, ess_tail, rhat

AXES = {"chain_axis": 0, "draw_axis": 1}


def autoregression(chains: int, draws: int, m: int, phi: float) -> np.ndarray:
    """A stationary autoregression of variance 1, in which every tenth value equals the one before."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(chains, draws, m))
    for t in range(1, draws):
        x[:, t] = x[:, t - 1] if t % 10 == 0 else phi * x[:, t - 1] + np.sqrt(1 - phi**2) * x[:, t]
    return x


@pytest.mark.parametrize(
    ("chains", "draws", "phi"),
    [(4, 200, 0.5), (1, 101, 0.9), (2, 40, -0.5), (3, 9, 0.5), (2, 10, 0.99), (2, 300, 0.999), (1, 8, 0.0)],
)
def test_measures_are_those_of_arviz(chains: int, draws: int, phi: float) -> None:
    """The measures are those of ArviZ for few, many and tied draws, and for chains that mix badly or very well."""
    x = autoregression(chains, draws, 16, phi)
    np.testing.assert_allclose(ess_bulk(x), array_stats.ess(x, **AXES, method="bulk"), rtol=1e-9)
    tail = array_stats.ess(x, **AXES, method="tail", prob=(0.05, 0.95))
    np.testing.assert_allclose(ess_tail(x), tail, rtol=1e-9)
    if chains > 1:  # ArviZ tells none of one chain
        np.testing.assert_allclose(rhat(x), array_stats.rhat(x, **AXES), rtol=1e-9)


def test_what_is_constant_has_every_draw() -> None:
    """The ESS of a constant is the number of draws, and it has no R-hat."""
    x = np.ones((2, 20, 3))
    assert np.isnan(rhat(x)).all()
    assert ess_bulk(x).tolist() == ess_tail(x).tolist() == [40.0] * 3
