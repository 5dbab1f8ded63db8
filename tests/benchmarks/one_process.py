"""A chain of a ratings file on this process, state by state: for benchmarks that look at every one of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from dsgmcmc.data.ratings import open_ratings
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.runs.source import RatingsSource
from dsgmcmc.types import Factor, Float64

Theta = dict[Factor, Float64]


class Triplets(NamedTuple):
    """Rows, columns and values of ratings, (n,) each."""

    rows: np.ndarray
    columns: np.ndarray
    values: np.ndarray


class Chain:
    """A chain with settings as of ``dsgmcmc sample``; `train` and `test` are in the ratings' own unit."""

    def __init__(self, path: Path, **settings: Any) -> None:
        source = RatingsSource(path)
        self.config = source.build(settings).resolved()
        self.ring = Ring(MPI.COMM_SELF, self.config.grid)
        make, _ = source.open(self.config, self.ring)
        self.sampler = self.config.make_sampler()
        self.target: Any = make(0, self.sampler)
        with open_ratings(path) as ratings:
            self.train, self.test = (self._triplets(ratings, part) for part in ("train", "test"))
            self.limits = ratings.minimum, ratings.maximum
        self.target.reset()
        self.sampler.start(self.target, self.config.initial_sd)

    @staticmethod
    def _triplets(ratings: Any, part: str) -> Triplets:
        indptr, columns, values = ratings.slab(part, 0, ratings.n_rows)
        return Triplets(np.repeat(np.arange(ratings.n_rows), np.diff(indptr)), columns, values.astype(np.float64))

    def __iter__(self) -> Iterator[int]:
        """Iterate; the number of iterations made, after each."""
        for iteration in range(self.config.iterations):
            self.target.begin(iteration)
            self.sampler.step(self.target, iteration)
            yield iteration + 1

    def theta(self, field: str = "theta") -> Theta:
        """State of all rows of both factors, in the unit of the chain."""
        blocks = sorted(self.target.blocks(), key=lambda block: block.index)
        return {f: np.concatenate([b[field] for b in blocks if b.factor == f]).astype(np.float64) for f in Factor}

    def place(self, theta: Theta) -> None:
        """Set the state."""
        for block in self.target.blocks():
            block["theta"][:] = theta[block.factor][block.start : block.start + len(block.counts)]

    def predict(self, theta: Theta, at: Triplets) -> Float64:
        """Predicted ratings, in their own unit."""
        w, h = theta[Factor.W][at.rows], theta[Factor.H][at.columns]
        k, ratings = self.config.rank, self.target.ratings
        eta = np.einsum("nk,nk->n", w[:, :k], h[:, :k]) + w[:, k:].sum(axis=1) + h[:, k:].sum(axis=1)
        found: Float64 = ratings.centre + ratings.scale * eta
        return found
