"""The target of a chain: where biases start, gradients, and when a chain has diverged."""

from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from support import Model, factor_target, write_planted

from dsgmcmc.model.target import FactorTarget
from dsgmcmc.samplers import SAMPLERS
from dsgmcmc.samplers.baoab import BAOAB, BAOABConfig
from dsgmcmc.samplers.gradients import FullGradient
from dsgmcmc.types import Factor


@pytest.fixture
def target(data: Path) -> FactorTarget:
    return factor_target(MPI.COMM_SELF, data, model=Model(2), seed=0)


def test_a_single_row_is_found(target: FactorTarget) -> None:
    """One row diverges where the mean over its block would not show it, and a number that is not
    finite is named.
    """
    assert target.find_divergence("theta") == ""
    block = next(block for block in target.blocks() if block.factor == Factor.H)
    for value in (3e3, np.inf, np.nan):
        block["theta"][0] = value
        assert f"block {block.index} of H has a row of" in target.find_divergence("theta")
    block["theta"][0] = 0
    assert target.find_divergence("theta") == ""


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0, -1.0])
def test_a_precision_is_positive_and_finite(target: FactorTarget, value: float) -> None:
    """A precision of the noise or of a factor's prior that is not is named as a divergence."""
    rows = target.row_priors.parameters
    noise = target.noise.parameters
    for array, name in ((noise.tau, "tau"), (rows.precision[Factor.W], "W.precision")):
        before = array.copy()
        array[...] = value
        assert target.find_divergence("theta") == f"{name} is {value:.3g}"
        array[...] = before
    assert target.find_divergence("theta") == ""


@pytest.mark.parametrize(
    ("model", "size"), [(Model(2), 1e6), (Model(1, False, "fixed", 1e-6), 3e3)]
)
def test_rows_that_their_data_or_their_prior_call_for_have_not_diverged(
    data: Path, model: Model, size: float
) -> None:
    """Where a rating is 1e6 from the centre a bias may be so, too; and so may rows of a prior of
    that width.
    """
    target = factor_target(MPI.COMM_SELF, data, model=model)
    if model.prior != "fixed":
        target.ratings.extreme = 1e6
    for block in target.blocks():
        block["theta"][0, -1] = size
    assert target.find_divergence("theta") == ""


@pytest.mark.parametrize(("sampler", "fits"), [("baoab", True), ("gibbs", False), ("psgld", False)])
def test_biases_start_at_their_conditional_means(data: Path, sampler: str, fits: bool) -> None:
    """With full gradients the biases of H start where the energy's gradient is 0; factors stay."""
    sampler_type = SAMPLERS[sampler]
    target = factor_target(
        MPI.COMM_SELF, data, model=Model(2), sampler=sampler_type(sampler_type.Config(), 0)
    )
    target.reset()
    for number, block in enumerate(target.blocks()):
        block["theta"][:] = np.random.default_rng(number).normal(0, 0.5, block["theta"].shape)
    before = {block: block["theta"].copy() for block in target.blocks()}
    target.fit_biases()
    for block, theta in before.items():
        np.testing.assert_array_equal(block["theta"][:, :-1], theta[:, :-1])
        assert (block["theta"][:, -1] != theta[:, -1]).any() == fits
    if not fits:
        return
    target.full_gradient("theta", "g")
    for block in (block for block in target.blocks() if block.factor == Factor.H):
        strength = block.prior(block).precision[-1]
        slope = target.noise_precision * block["g"][:, -1] + strength * block["theta"][:, -1]
        np.testing.assert_allclose(
            slope, 0, atol=1e-4 * target.noise_precision * block.counts.max()
        )


def test_an_update_has_the_gradient_at_the_scales_that_were_drawn(tmp_path: Path) -> None:
    """One that followed scales drawn a state before made predictive sds and tau too small by 7 %,
    at any step.
    """
    model = Model(2, True, "fixed", 1.0, 2.0, heteroscedastic=tuple(Factor), noise_every=5)
    sampler = BAOAB(BAOABConfig(), 0)
    target = factor_target(
        MPI.COMM_SELF, write_planted(tmp_path / "r.h5", 12, 9), model=model, sampler=sampler
    )
    target.reset()
    for iteration in range(12):
        target.begin(iteration)
        before = [block.row("weight").copy() for block in target.blocks()]
        gradient = [
            block["g"].copy() for block in FullGradient(sampler.config, 0).by_block(target, "theta")
        ]
        changed = [
            not np.array_equal(block.row("weight"), g)
            for block, g in zip(target.blocks(), before, strict=True)
        ]
        assert any(changed) == (iteration in (0, 5, 10))
        target.full_gradient("theta", "g", errors=False)
        for block, used in zip(target.blocks(), gradient, strict=True):
            np.testing.assert_array_equal(block["g"], used)
