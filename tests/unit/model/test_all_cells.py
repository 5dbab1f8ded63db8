"""Clicks: the energy over all cells, and what it says of a row."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from support import MODEL, cells_of, factor_target, rows_of

from dsgmcmc.config.run import build
from dsgmcmc.model.likelihoods.all_cells import AllCells
from dsgmcmc.model.target import FactorTarget
from dsgmcmc.samplers.sgld import SGLD, SGLDConfig
from dsgmcmc.types import Factor

ROWS = 29
COLUMNS = 17
RANK = 3
TAU = 5.0
A0 = 0.2
CLICKS = {"likelihood": "all-cells"}


@pytest.fixture
def target(data: Path) -> FactorTarget:
    """A target at a random state; ratings of all values are clicks."""
    sampler = SGLD(SGLDConfig(gradient="full"), 0)
    model = replace(MODEL, rank=RANK, biases=False, noise_precision=TAU)
    target = factor_target(
        MPI.COMM_SELF, data, 3, model=model, sampler=sampler, likelihood=AllCells, background=A0
    )
    sampler.start(target, 0.7)
    return target


@pytest.fixture(scope="module")
def clicked(data: Path) -> np.ndarray:
    """1 where a training rating is, else 0."""
    matrix = np.zeros((ROWS, COLUMNS))
    i, j, _ = cells_of(data)
    matrix[i, j] = 1.0
    return matrix


def test_the_gradient_is_that_of_the_energy_over_all_cells(
    target: FactorTarget, clicked: np.ndarray
) -> None:
    """At tau 1 it is (sum of (1 - s)^2 over clicks + A0 sum of s^2 over all cells) / 2; sums are
    float32.
    """
    target.full_gradient("theta", "g")
    w, h = (rows_of(target, factor) for factor in Factor)
    slope = clicked * (w @ h.T - 1) + A0 * w @ h.T
    for factor, expected in ((Factor.W, slope @ h), (Factor.H, slope.T @ w)):
        np.testing.assert_allclose(rows_of(target, factor, "g"), expected, rtol=1e-4, atol=1e-4)


def test_bounds_hold_for_the_curvature_of_rows_in_the_diagonal_metric(
    target: FactorTarget, clicked: np.ndarray
) -> None:
    """Every row's Hessian, scaled by P, where few have clicks: the columns of the other factor are
    correlated.
    """
    for block in target.blocks():
        block["theta"][:] += 1.0  # a common mean, which zeros everywhere hold against
    information = target.information("theta", True, {})
    theta = {factor: rows_of(target, factor) for factor in Factor}
    for factor in Factor:
        other = theta[Factor(1 - factor)]
        prior = np.diag(target.row_priors.parameters.precision[factor])
        common = prior + TAU * A0 * other.T @ other
        np.testing.assert_allclose(information.common[factor], common, rtol=1e-5)
        blocks = [block for block in target.blocks() if block.factor == factor]
        bound = np.concatenate([information.bound[block] for block in blocks])
        n = np.concatenate([block.counts for block in blocks])
        few = np.flatnonzero(n < 2)
        assert len(few)
        for row in few:
            seen = clicked[row] if factor == Factor.W else clicked[:, row]
            p = TAU * n[row] * information.c[factor] + information.lambda_[factor]
            scaled = (common + TAU * (other.T * seen) @ other) / np.sqrt(np.outer(p, p))
            assert 1.5 < np.linalg.eigvalsh(scaled)[-1] < bound[row] + 1e-4


def test_the_defaults_suit_clicks() -> None:
    """No option has to be given, and those that are win."""
    config = build(CLICKS).resolved()
    assert not config.biases
    assert not config.center
    assert not config.standardise
    assert config.noise_precision == 30.0
    assert config.zero_weight == 0.1
    assert config.sampler.name == "baoab"
    assert config.sampler.config.metric == "kronecker"
    options = {"sampler": {"metric": "fisher"}, "zero_weight": 0.3, "prior": "fixed"}
    other = build({**CLICKS, **options}).resolved()
    assert other.sampler.config.metric == "fisher"
    assert other.zero_weight == 0.3
    assert other.noise_precision == 30.0
