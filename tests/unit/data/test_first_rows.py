"""The first rows of a ratings file as a smaller file."""

from __future__ import annotations

import numpy as np
import pytest
from support import write_planted

from dsgmcmc.data.ratings import open_ratings
from dsgmcmc.data.ratings.first_rows import FirstRows


@pytest.mark.parametrize(("wanted", "whole"), [(1 << 62, True), (150, False), (0, False)])
def test_the_first_rows_are_those_of_the_file(tmp_path, wanted, whole):
    """As many whole rows as have at most so many ratings, one at least, with the counts of their columns."""
    path = write_planted(tmp_path / "r.h5", 60, 40, 0.6, timed=True, features=(3, 4))
    with open_ratings(path) as file:
        first = FirstRows(file, wanted)
        assert (first.n_rows == file.n_rows) == whole
        assert first.n_rows == max(sum(file.row_indptr[1:] <= wanted), 1)
        assert first.nnz == file.row_indptr[first.n_rows]
        indptr, columns, values = first.slab("train", 0, first.n_rows)
        assert values.tolist() == file.slab("train", 0, first.n_rows)[2].tolist()
        assert indptr[-1] == len(values) == first.nnz
        assert first.column_counts.tolist() == np.bincount(columns, minlength=40).tolist()
        assert len(first.row_ids()) == first.n_rows
        assert (first.features, first.times, first.temporal) == ({}, None, False)
        assert first.digest not in (file.digest, FirstRows(file, 300).digest)
