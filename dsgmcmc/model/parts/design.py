"""The features of a factor's rows as matrices: products with them, by block, for sums in block order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from dsgmcmc.data.ratings import Features
from dsgmcmc.types import Float32, Float64, Int64

if TYPE_CHECKING:
    from dsgmcmc.parallel.ring import Ring  # which loads MPI

#: Features up to which the Cholesky factor of A, of F^2 numbers, is a matter of a second.
MAX_DENSE = 4000
_SLICE = 1 << 20  # numbers of the Gram matrix that are added at a time


def gram_width(size: int) -> int:
    """Most numbers of the Gram matrix of so many features that are added at a time."""
    return max(1, _SLICE // size) * size


class Design:
    """X of a factor, centred: row i of a block is x_i less the mean over the rows that have features, 0 without any.

    Parameters
    ----------
    blocks : dict of int to Features
        Of the blocks of this process: all that it is home to.
    ring : Ring
        The processes of the chain.

    Attributes
    ----------
    size : int
        F.
    rows : float
        Number of rows that have features.
    groups : (F,) int
        Number of each feature's group, in the order in which groups first occur.
    centre : (F,) float64
    """

    def __init__(self, blocks: Mapping[int, Features], ring: Ring) -> None:
        from scipy.sparse import csr_matrix  # takes its time to import, and most runs do without

        names = next(iter(blocks.values()))
        self.size = names.size
        number = {group: k for k, group in enumerate(dict.fromkeys(names.groups))}
        self.groups: Int64 = np.array([number[group] for group in names.groups], np.int64)
        self._x = {
            b: csr_matrix(
                (each.values.astype(np.float64), each.indices, each.indptr), (len(each.indptr) - 1, self.size)
            )
            for b, each in blocks.items()
        }
        self._known = {b: (np.diff(x.indptr) > 0).astype(np.float64) for b, x in self._x.items()}
        totals = np.array([np.append(self._known[b] @ x, self._known[b].sum()) for b, x in self._x.items()])
        total = ring.total(totals)
        self.rows = float(total[-1])
        self.centre: Float64 = total[:-1] / max(self.rows, 1.0)

    def product(self, block: int, effects: Float64) -> Float32:
        """X B of a block, (n, D) float32, for B (F, D) float64."""
        centred = self._x[block] @ effects - np.outer(self._known[block], self.centre @ effects)
        found: Float32 = centred.astype(np.float32)
        return found

    def moment(self, block: int, residual: Float64) -> Float64:
        """X^T R of a block, (F, D), for R (n, D)."""
        found: Float64 = self._x[block].T @ residual - np.outer(self.centre, self._known[block] @ residual)
        return found

    def gram(self, ring: Ring) -> Float64:
        """X^T X over all blocks, (F, F). Collective."""
        step = gram_width(self.size) // self.size
        found = []
        for start in range(0, self.size, step):
            part = slice(start, start + step)
            addends = [self._gram_rows(b, part).ravel() for b in self._x]
            found.append(ring.total(np.array(addends)).reshape(-1, self.size))
        return np.concatenate(found)

    def _gram_rows(self, block: int, part: slice) -> Float64:
        x, weight = self._x[block], self._known[block]
        total = weight @ x
        across = np.outer(self.centre[part], total) + np.outer(total[part], self.centre)
        square = weight.sum() * np.outer(self.centre[part], self.centre)
        found: Float64 = (x[:, part].T @ x).toarray() - across + square
        return found
