"""The draws of noise scales and of their law against the conditionals that they are to have."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from mpi4py import MPI
from scipy import stats
from scipy.special import logsumexp
from support import Model, factor_target, write_planted

from dsgmcmc.model.parts.noise import NU_GRID
from dsgmcmc.samplers.gradients import FullGradient
from dsgmcmc.samplers.sgmcmc.baoab import BAOAB, BAOABConfig
from dsgmcmc.types import Factor

ROWS, COLUMNS, TAU, DRAWS = 12, 9, 2.0, 1500
P_VALUE = 1e-5  # of a few tests of exact laws at fixed seeds


def log_marginal(nu: float, n: np.ndarray, sse: np.ndarray) -> float:
    """Log density of the rows' squared errors, up to a constant: g is integrated out by the trapezoidal rule."""
    g = np.exp(np.linspace(-12, 5, 2000))[:, None]
    log_density = stats.gamma.logpdf(g, nu / 2, scale=2 / nu) + n / 2 * np.log(g) - g * TAU * sse / 2 + np.log(g)
    return float(logsumexp(log_density, axis=0).sum())


def test_nu_and_then_the_scales_have_their_conditional_laws(tmp_path: Path) -> None:
    """Nu with the scales integrated out, then the scales given nu.

    Nu by chi^2 over the quarters of its law; the scales by their distribution function, which is uniform.
    """
    model = Model(2, True, "fixed", 1.0, TAU, heteroscedastic=(Factor.W,))
    target = factor_target(MPI.COMM_SELF, write_planted(tmp_path / "r.h5", ROWS, COLUMNS), model=model)
    blocks = [block for block in target.blocks() if block.factor == Factor.W]
    n = np.concatenate([block.counts for block in blocks])
    rng = np.random.default_rng(4)
    sse = (n / TAU / rng.gamma(2.0, 0.5, ROWS)).astype(np.float32)  # as unequal as of a nu of about 4
    before = rng.gamma(5.0, 0.2, ROWS).astype(np.float32)
    found, uniform = [], []
    for iteration in range(DRAWS):
        target.stream.iteration = iteration
        for block in blocks:
            rows = slice(block.start, block.start + len(block.counts))
            block.row("row_error")[:], block.row("weight")[:] = sse[rows], before[rows]
        target.model.draw(replace(target.context(), turn=1))
        nu = float(target.model.noise.parameters.nu[Factor.W][0])
        g = np.concatenate([block.row("weight") for block in blocks])
        found.append(nu)
        uniform.append(stats.gamma.cdf(g, (nu + n) / 2, scale=2 / (nu + TAU * sse)))
    log_density = [log_marginal(nu, n, sse) for nu in NU_GRID]
    density = np.exp(np.array(log_density) - max(log_density))
    quarter = np.minimum(4 * np.cumsum(density) / density.sum(), 3.999).astype(int)
    expected = np.bincount(quarter, density / density.sum()) * DRAWS
    counts = np.bincount(quarter[np.searchsorted(NU_GRID, found)], minlength=len(expected))
    kept = expected > 0
    assert stats.chisquare(counts[kept], expected[kept]).pvalue > P_VALUE
    assert stats.kstest(np.ravel(uniform), "uniform").pvalue > P_VALUE


def test_an_update_has_the_gradient_at_the_scales_that_were_drawn(tmp_path: Path) -> None:
    """One that followed scales drawn a state before made predictive sds and tau too small by 7 %, at any step."""
    model = Model(2, True, "fixed", 1.0, TAU, heteroscedastic=tuple(Factor), noise_every=5)
    sampler = BAOAB(BAOABConfig(), 0)
    target = factor_target(MPI.COMM_SELF, write_planted(tmp_path / "r.h5", ROWS, COLUMNS), model=model, sampler=sampler)
    target.reset()
    for iteration in range(12):
        target.begin(iteration)
        before = [block.row("weight").copy() for block in target.blocks()]
        gradient = [block["g"].copy() for block in FullGradient().by_block(target, "theta")]
        changed = [not np.array_equal(block.row("weight"), g) for block, g in zip(target.blocks(), before, strict=True)]
        assert any(changed) == (iteration in (0, 5, 10))
        target.full_gradient("theta", "g", errors=False)
        for block, used in zip(target.blocks(), gradient, strict=True):
            np.testing.assert_array_equal(block["g"], used)
