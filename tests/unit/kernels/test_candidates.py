"""Items that may be among the best of a user are found from bounds of their scores."""

import numpy as np
import pytest

from dsgmcmc.kernels.candidates import find_candidates


@pytest.mark.parametrize("top", [1, 2, 3, 10, 40])
@pytest.mark.parametrize("bound", [np.float32, np.float64])
@pytest.mark.parametrize("added", [np.float32, np.float64])
def test_keeps_every_item_that_may_be_among_the_best(top, bound, added):
    """A list would miss an item whose bounds reach the last place; equal scores are kept too."""
    rng = np.random.default_rng(top)
    low = rng.integers(-20, 20, (50, 40)).astype(bound)
    high = low + rng.integers(0, 4, low.shape).astype(bound)
    log_exposure = rng.integers(-3, 3, low.shape).astype(added)
    left_out = rng.random(low.shape) < rng.random((50, 1))
    log_exposure[left_out] = -np.inf
    chosen = find_candidates(low, high, log_exposure, top)
    for user in range(len(low)):
        lows = np.sort((low + log_exposure)[user])
        expected = ~left_out[user] & ((high + log_exposure)[user] >= lows[-top])
        np.testing.assert_array_equal(chosen[user], expected)


def test_items_without_a_score_are_no_candidates():
    """A score that is not a number neither enters a list nor raises the last place of it."""
    low = np.array([[1, np.nan, 3, 2]], np.float32)
    added = np.zeros((1, 4), np.float32)
    assert find_candidates(low, low, added, 2).tolist() == [[False, False, True, True]]
    assert find_candidates(low, low, added, 4).tolist() == [[True, False, True, True]]
