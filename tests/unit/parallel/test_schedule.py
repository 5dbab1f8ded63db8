"""The part that an iteration visits, and its step."""

import numpy as np
import pytest

from dsgmcmc.parallel.schedule import Schedule
from dsgmcmc.samplers.psgld import PSGLDConfig
from dsgmcmc.samplers.step_size import RisingStep, StepSize
from dsgmcmc.types import ScheduleName

SIZES = (50, 10, 25, 15)


def test_shuffled_visits_every_part_once_a_sweep() -> None:
    """Every sweep is a permutation, and all orders occur equally often: no part follows another
    more often.
    """
    sweeps = 6000
    schedule = Schedule("shuffled", SIZES[:3], seed=1, chain=0)
    orders = [tuple(schedule.part(3 * sweep + k) for k in range(3)) for sweep in range(sweeps)]
    assert all(sorted(order) == [0, 1, 2] for order in orders)
    counts = np.unique(orders, axis=0, return_counts=True)[1]
    assert len(counts) == 6
    z = (counts - sweeps / 6) / np.sqrt(sweeps / 6 * 5 / 6)
    assert np.abs(z).max() < 5


def test_random_visits_parts_in_proportion_to_their_size() -> None:
    """Frequencies are |part| / N, and the next part does not depend on the last: the gradient is
    unbiased.
    """
    n = 20000
    schedule = Schedule("random", SIZES, seed=2, chain=0)
    parts = np.array([schedule.part(iteration) for iteration in range(n)])
    p = np.array(SIZES) / sum(SIZES)
    np.testing.assert_allclose(schedule.probability, p, rtol=1e-15)
    z = (np.bincount(parts, minlength=4) - n * p) / np.sqrt(n * p * (1 - p))
    assert np.abs(z).max() < 5
    pairs = np.bincount(4 * parts[:-1] + parts[1:], minlength=16).reshape(4, 4)
    expected = n * np.outer(p, p)
    assert (np.abs(pairs - expected) / np.sqrt(expected)).max() < 5


def test_an_empty_part_is_never_visited_at_random() -> None:
    """Its probability is 0, and 1 / p_t would be infinite."""
    schedule = Schedule("random", (0, 7, 0, 3, 0), seed=0, chain=0)
    assert {schedule.part(iteration) for iteration in range(500)} == {1, 3}


def test_cyclic_is_the_plain_order() -> None:
    """The parts come in their order, sweep after sweep."""
    schedule = Schedule("cyclic", SIZES, seed=0, chain=0)
    assert [schedule.part(iteration) for iteration in range(9)] == [0, 1, 2, 3, 0, 1, 2, 3, 0]


@pytest.mark.parametrize("name", ["shuffled", "random"])
def test_seeds_and_chains_have_orders_of_their_own(name: ScheduleName) -> None:
    """Chains must be independent; seeds up to the largest are allowed."""
    keys = [(0, 0), (1, 0), (0, 1), (2**63 - 1, 65535)]
    orders = [tuple(Schedule(name, SIZES, *key).part(i) for i in range(100)) for key in keys]
    assert len(set(orders)) == len(keys)


def test_constant_step_with_another_step_for_burn_in() -> None:
    """The step of burn-in holds for exactly its iterations; by default it is `step_size`."""
    steps = PSGLDConfig(step_size=0.5, burn_in_step_size=2.0)
    assert [steps.step(i, grid=4, burn_in=3) for i in range(5)] == [2.0, 2.0, 2.0, 0.5, 0.5]
    assert PSGLDConfig(step_size=0.5).step(0, grid=4, burn_in=3) == 0.5
    assert PSGLDConfig().step(0, grid=4, burn_in=3) == 0.09


def test_warm_up_rises_linearly_over_its_sweeps() -> None:
    """The step rises from a tenth to the full step, by sweeps and not by iterations."""
    steps = RisingStep(step_size=10.0, warm_up=2)
    assert [steps.step(i, grid=2, burn_in=0) for i in range(6)] == pytest.approx(
        [1.0, 3.25, 5.5, 7.75, 10.0, 10.0]
    )


def test_polynomial_decay() -> None:
    """The factor is (1 + sweep / decay_sweeps) ** -decay_power at any number of iterations."""
    steps = StepSize(step_size=3.0, decay_sweeps=10, decay_power=0.5)
    assert steps.step(0, grid=4, burn_in=0) == 3.0
    assert steps.step(120, grid=4, burn_in=0) == pytest.approx(1.5, rel=1e-15)
