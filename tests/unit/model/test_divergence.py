"""Detection of divergence: single rows, and shared parameters; and what is none, though it is huge."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from support import Model, factor_target, write_planted

from dsgmcmc.model.target import FactorTarget
from dsgmcmc.types import Factor


@pytest.fixture
def target(tmp_path: Path) -> FactorTarget:
    return factor_target(MPI.COMM_SELF, write_planted(tmp_path / "r.h5"), model=Model(2), seed=0)


def test_a_single_row_is_found(target: FactorTarget) -> None:
    """Where the mean over its block would not show it; and a number that is not finite."""
    assert target.find_divergence("theta") == ""
    block = next(block for block in target.blocks() if block.factor == Factor.H)
    for value in (3e3, np.inf, np.nan):
        block["theta"][0] = value
        assert f"block {block.index} of H has a row of" in target.find_divergence("theta")
    block["theta"][0] = 0
    assert target.find_divergence("theta") == ""


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0, -1.0])
def test_a_precision_is_positive_and_finite(target: FactorTarget, value: float) -> None:
    """Of the noise, and of a factor's prior."""
    rows, noise = target.row_priors.parameters, target.noise.parameters
    for array, name in ((noise.tau, "tau"), (rows.precision[Factor.W][0], "W.precision")):
        before = array.copy()
        array[-1] = value
        assert target.find_divergence("theta") == f"{name} is {value:.3g}"
        array[:] = before
    assert target.find_divergence("theta") == ""


@pytest.mark.parametrize(("model", "size"), [(Model(2), 1e6), (Model(1, False, "fixed", 1e-6), 3e3)])
def test_rows_that_their_data_or_their_prior_call_for_have_not_diverged(
    tmp_path: Path, model: Model, size: float
) -> None:
    """Where a rating is 1e6 from the centre a bias may be so, too; and so may rows of a prior of that width."""
    target = factor_target(MPI.COMM_SELF, write_planted(tmp_path / "r.h5"), model=model)
    if model.prior != "fixed":
        target.ratings.extreme = 1e6
    for block in target.blocks():
        block["theta"][0, -1] = size
    assert target.find_divergence("theta") == ""
