"""The ratings that a process holds, in few bytes or in many, against those of the file."""

from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from support import write_planted

from dsgmcmc.model import blocks
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.ratings.file import Ratings

ROWS = 80
COLUMNS = 40
GRID = 2


@pytest.mark.parametrize("stars", [True, False])
def test_blocks_have_the_ratings_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stars: bool
) -> None:
    """Centred and standardised in single precision, and the same by column, whatever they are
    stored as.

    Five different values are numbered. Where all differ, the first pieces that are read have fewer
    than 256, and those after them more, so what is there has to be stored anew.
    """
    monkeypatch.setattr(blocks, "SLAB", 100)
    path = write_planted(tmp_path / "r.h5", ROWS, COLUMNS, stars=stars)
    with Ratings(path) as ratings:
        held = blocks.RatingBlocks(
            ratings, Ring(MPI.COMM_SELF, GRID), ratings.mean, standardise=True
        )
        indptr, columns, values = ratings.slab("train", 0, ROWS)[:3]
        rows = np.repeat(np.arange(ROWS), np.diff(indptr))
        values = values - np.float32(ratings.mean)
    assert held.scale == pytest.approx(np.sqrt(np.mean(values.astype(np.float64) ** 2)), rel=1e-12)
    expected = np.zeros((ROWS, COLUMNS), np.float32)
    expected[rows, columns] = values / np.float32(held.scale)
    matrices = [np.zeros_like(expected), np.zeros_like(expected)]
    for (b, c), block in held.train.items():
        assert (block.stored.dtype, block.indices.dtype) == (
            np.uint8 if stars else np.float32,
            np.uint16,
        )
        i = held.row_bounds[b] + np.repeat(np.arange(len(block.indptr) - 1), np.diff(block.indptr))
        matrices[0][i, held.column_bounds[c] + block.indices] = block.values
        turned = block.by_column
        j = held.column_bounds[c] + np.repeat(np.arange(block.columns), np.diff(turned.indptr))
        matrices[1][held.row_bounds[b] + turned.indices, j] = turned.values
    for matrix in matrices:
        assert matrix.tobytes() == expected.tobytes()
