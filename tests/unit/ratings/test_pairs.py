"""Ratings by user and item, in files whose rows are users or items, and parts of arrays."""

import numpy as np
import pytest
from support import write_cells

from dsgmcmc.ratings.file import Ratings
from dsgmcmc.ratings.pairs import RatedPairs, join, pairs_in_slabs, rated_pairs, select


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("part", ["train", "test"])
def test_reads_users_and_items_of_each_rating(tmp_path, monkeypatch, transposed, part):
    """Rows of the file are items if it is transposed; slabs together have all ratings."""
    monkeypatch.setattr("dsgmcmc.ratings.pairs.SLAB", 2)
    i = np.array([0, 0, 1, 2, 2, 3, 3])
    j = np.array([0, 2, 1, 0, 1, 0, 2])
    x = np.arange(1.0, 8.0)
    held = np.array([False, True, False, False, True, False, True])
    path = write_cells(tmp_path / "r.h5", (4, 3), i, j, x, held, transposed=transposed)
    chosen = held if part == "test" else ~held
    with Ratings(path) as ratings:
        pairs = rated_pairs(ratings, part)
        slabs = list(pairs_in_slabs(ratings, part))
    rows, columns = (pairs.items, pairs.users) if transposed else (pairs.users, pairs.items)
    assert rows.tolist() == i[chosen].tolist()
    assert columns.tolist() == j[chosen].tolist()
    assert pairs.values.tolist() == x[chosen].tolist()
    assert pairs.held_out == (part == "test")
    assert len(slabs) > 1
    for found, expected in zip(join(slabs), pairs, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_chooses_and_joins_all_arrays_together():
    """Ratings of a part without bounds are their own bounds beside those of another part."""
    one = RatedPairs(np.int32([0, 1]), np.int32([2, 3]), np.array([4.0, 5.0]))
    bounds = np.array([[0.0, 2.0], [3.0, 3.0]])
    other = RatedPairs(np.int32([5, 6]), np.int32([7, 8]), np.array([1.0, 3.0]), bounds=bounds)
    both = join([one, other])
    assert both.users.tolist() == [0, 1, 5, 6]
    assert both.bounds.tolist() == [[4, 4], [5, 5], [0, 2], [3, 3]]
    assert both.weights is None
    last = select(both, both.values < 4)
    assert last.items.tolist() == [7, 8]
    assert last.bounds.tolist() == bounds.tolist()
    assert join([one, one]).bounds is None
