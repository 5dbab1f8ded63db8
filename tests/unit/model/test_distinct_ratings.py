"""Distinct training ratings and their numbers, however many there are."""

from pathlib import Path

import numpy as np
import pytest
from support import write_cells

from dsgmcmc.model.likelihoods.ordinal.levels import Levels
from dsgmcmc.model.transform import Logarithm
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.ratings.held_out import InnerSplit


@pytest.mark.parametrize("distinct", [1, 2, 256, 257, 900])
def test_ratings_are_counted_at_each_value(tmp_path: Path, distinct: int) -> None:
    """As NumPy counts them: those of at most 256 values have codes of one byte; -0 is 0."""
    rng = np.random.default_rng(distinct)
    rows, columns = np.nonzero(rng.random((60, 40)) < 0.9)
    values = (rng.integers(0, distinct, len(rows)) / 4).astype(np.float32)
    values[: len(values) // 2] *= -1
    with Ratings(write_cells(tmp_path / "r.h5", (60, 40), rows, columns, values)) as ratings:
        levels = Levels.from_ratings(ratings)
    expected, counts = np.unique(values.astype(np.float64), return_counts=True)
    np.testing.assert_array_equal(levels.values, expected)
    np.testing.assert_array_equal(levels.counts, counts)
    assert levels.counts.dtype == np.int64


@pytest.mark.parametrize("view_of", ["inner", "log"])
def test_a_view_counts_its_own_ratings(tmp_path: Path, view_of: str) -> None:
    """Also after those of the file were counted."""
    rng = np.random.default_rng(0)
    rows, columns = np.nonzero(rng.random((60, 40)) < 0.9)
    values = rng.integers(1, 6, len(rows)).astype(np.float32)
    with Ratings(write_cells(tmp_path / "r.h5", (60, 40), rows, columns, values)) as ratings:
        assert Levels.from_ratings(ratings).counts.sum() == len(values)
        view: Ratings = InnerSplit(ratings, 0.3, seed=1)
        if view_of == "log":
            view = Logarithm(shift=0.0, has_mean=True).view(ratings)
        levels = Levels.from_ratings(view)
        seen = np.concatenate([*view.values("train")]).astype(np.float64)
    expected, counts = np.unique(seen, return_counts=True)
    np.testing.assert_array_equal(levels.values, expected)
    np.testing.assert_array_equal(levels.counts, counts)
