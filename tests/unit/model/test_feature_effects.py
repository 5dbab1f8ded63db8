"""Features of rows: products with the design, and the conditional draws, against dense algebra."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from mpi4py import MPI

from dsgmcmc.data.ratings import Features
from dsgmcmc.model.parts.features import Design, explained
from dsgmcmc.parallel.ring import Ring

N, F, D = 23, 5, 3
GROUPS = np.array([0, 0, 1, 1, 1])


@pytest.fixture
def design_and_x() -> tuple[Design, Ring, list[np.ndarray], np.ndarray]:
    """Features in two blocks, some rows without any: the design, its blocks' rows, and X centred by hand."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, F)) * (rng.random((N, F)) < 0.5)
    x[[3, 11]] = 0.0
    ring = Ring(MPI.COMM_SELF, 2)
    rows = [np.arange(9), np.arange(9, N)]
    blocks = {}
    for b, chosen in enumerate(rows):
        part = scipy.sparse.csr_matrix(x[chosen].astype(np.float32))
        names, groups = ("a", "b", "c", "d", "e"), ("g", "g", "h", "h", "h")
        blocks[b] = Features(part.indptr.astype(np.int64), part.indices, part.data, names, groups)
    x = x.astype(np.float32).astype(np.float64)
    known = (x != 0).any(axis=1, keepdims=True)
    return Design(blocks, ring), ring, rows, known * (x - x[known[:, 0]].mean(axis=0))


def test_design_is_x_centred(design_and_x):
    """Products and Gram matrices by block; rows without features are the average."""
    design, ring, rows, x = design_and_x
    rng = np.random.default_rng(1)
    effects, residual = rng.normal(size=(F, D)), rng.normal(size=(N, D))
    product = np.concatenate([design.product(b, effects) for b in (0, 1)])
    assert product == pytest.approx((x @ effects).astype(np.float32), abs=1e-6)
    assert (product[[3, 11]] == 0).all()
    assert sum(design.moment(b, residual[chosen]) for b, chosen in enumerate(rows)) == pytest.approx(x.T @ residual)
    assert design.gram(ring) == pytest.approx(x.T @ x)
    assert design.groups.tolist() == GROUPS.tolist()


def test_explained_is_the_mean_square_of_a_groups_part(design_and_x):
    """Over rows and columns, each column in units of its own precision; the metric of a dense one likewise."""
    _, _, _, x = design_and_x
    rng = np.random.default_rng(5)
    effects, precision = rng.normal(size=(F, D)), np.diag([1.0, 2.0, 4.0])
    squares = explained(effects, x.T @ x / N, GROUPS, precision)
    for g in (0, 1):
        part = x[:, g == GROUPS] @ effects[g == GROUPS]
        assert squares[g] == pytest.approx((part**2 @ np.diag(precision)).mean() / D)
