"""Numbers past 2^31: refused before the start where MPI cannot count them, right everywhere else."""

from __future__ import annotations

import numpy as np
import pytest

from dsgmcmc.config.run import build
from dsgmcmc.errors import InputError
from dsgmcmc.parallel.partition import block_bounds
from dsgmcmc.runs.counts import MAX_COUNT, check_counts


def equal(columns: int) -> np.ndarray:
    """Counts of columns that all have as many ratings."""
    return np.ones(columns, np.int64)


@pytest.mark.parametrize("sampler", ["psgld", "sgld"])
def test_the_largest_block_that_can_be_sent(sampler: str) -> None:
    """One column more in a block, and the run is refused with a grid that helps."""
    config = build({"rank": 512, "biases": False, "grid": 2, "sampler": {"name": sampler}})
    rows = MAX_COUNT // (2 * 512)
    check_counts(config, equal(2 * rows))
    with pytest.raises(InputError, match=r"--grid of at least 3") as caught:
        check_counts(config, equal(2 * rows + 2))
    assert f"{(rows + 1) * 1024:,}" in str(caught.value)
    check_counts(config.model_copy(update={"grid": 3}), equal(2 * rows + 2))


def test_uneven_columns_count_as_they_are_cut() -> None:
    """One popular column is a block of its own, and the rest shares the others."""
    config = build({"rank": 512, "biases": False, "grid": 2})
    counts = equal(3_000_000)
    counts[0] = 10_000_000
    with pytest.raises(InputError, match="block of columns"):
        check_counts(config, counts)


def test_sums_past_the_limit() -> None:
    """A dense prior's moments, gathered from very many blocks."""
    config = build({"rank": 400, "grid": 32767, "prior": "normal-wishart"})
    with pytest.raises(InputError, match="normal-gamma"):
        check_counts(config, equal(40_000))
    check_counts(config.model_copy(update={"prior": "normal-gamma"}), equal(40_000))


def test_ratings_past_the_limit_are_cut_right() -> None:
    """Running numbers of ratings are 64-bit: ten thousand million ratings in equal ranges."""
    prefix = np.arange(0, 10_000_000_001, 1_000_000, dtype=np.int64)
    bounds = block_bounds(prefix, 7)
    sizes = np.diff(prefix[bounds])
    assert sizes.sum() == 10_000_000_000
    assert sizes.max() - sizes.min() <= 2_000_000
