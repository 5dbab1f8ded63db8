"""Temperatures in burn-in halve a step that is too large."""

from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from support import MODEL, factor_target, write_planted

from dsgmcmc.model.target import FactorTarget
from dsgmcmc.samplers.baoab import BAOAB, BAOABConfig
from dsgmcmc.samplers.measured_step import FIRST_MEASURED, MeasuredStep
from dsgmcmc.targets.state import arrays_of, take_all

BURN_IN = 50


@pytest.fixture
def target(tmp_path: Path) -> FactorTarget:
    return factor_target(
        MPI.COMM_SELF,
        write_planted(tmp_path / "r.h5", 60, 40),
        model=MODEL,
        sampler=BAOAB(BAOABConfig(), BURN_IN),
    )


@pytest.fixture
def steps() -> MeasuredStep:
    made = MeasuredStep(BAOABConfig(), BURN_IN)
    made.may_halve = True
    return made


def follow(steps: MeasuredStep, target: FactorTarget, iteration: int, temperature: float) -> None:
    """Measure normal momenta whose temperature is this."""
    rng = np.random.default_rng(iteration)
    for block in target.blocks():
        block["r"][:] = temperature**0.5 * rng.normal(size=block["r"].shape)
    steps.follow(target, iteration, rotated=False)


def test_a_step_is_halved_once_where_momenta_are_far_too_hot(
    steps: MeasuredStep, target: FactorTarget
) -> None:
    """Only a temperature above 4, by four standard errors, halves it, and no second one does."""
    full = steps.size(30, 1)
    for iteration, temperature in ((12, 1.0), (14, 3.5)):
        follow(steps, target, iteration, temperature)
        assert steps.halved_at is None
    follow(steps, target, 16, 8.0)
    follow(steps, target, 18, 8.0)
    assert steps.halved_at == 16
    assert steps.size(30, 1) == full / 2


@pytest.mark.parametrize("iteration", [FIRST_MEASURED - 1, BURN_IN])
def test_only_burn_in_from_its_tenth_sweep_on_halves_a_step(
    steps: MeasuredStep, target: FactorTarget, iteration: int
) -> None:
    """Before, momenta tell how the chain started; later, draws would have two steps."""
    follow(steps, target, iteration, 8.0)
    assert steps.halved_at is None


def test_a_step_that_the_user_has_chosen_stays(steps: MeasuredStep, target: FactorTarget) -> None:
    steps.may_halve = False
    follow(steps, target, 16, 8.0)
    assert steps.halved_at is None


def test_bounds_are_computed_until_momenta_have_cooled(
    steps: MeasuredStep, target: FactorTarget
) -> None:
    """At every refresh, also after burn-in, and only if the step was halved."""
    follow(steps, target, 12, 3.0)
    assert not steps.needs_bounds
    follow(steps, target, 14, 8.0)
    assert steps.needs_bounds
    follow(steps, target, BURN_IN + 2, 3.0)
    assert steps.needs_bounds
    follow(steps, target, BURN_IN + 4, 1.0)
    assert not steps.needs_bounds


def test_a_resumed_chain_knows_what_was_decided(steps: MeasuredStep, target: FactorTarget) -> None:
    """The decision and the latest temperature are in the state that checkpoints save."""
    follow(steps, target, 14, 8.0)
    resumed = MeasuredStep(BAOABConfig(), BURN_IN)
    take_all([resumed], arrays_of([steps]))
    assert resumed.halved_at == 14
    assert resumed.needs_bounds
