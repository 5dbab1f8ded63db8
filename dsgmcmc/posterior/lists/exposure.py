r"""Exposure: which items a user will rate, or rate and like, estimated from who rated what.

Let B be the pattern of the training ratings (users x items, 1 for a rating and 0 otherwise), or of
those that are liked. Every column of B is regressed on all other columns, with a ridge penalty
lambda. These regressions, EASE^R [Steck 2019], have a closed form:

    P = (B^T B + lambda I)^-1,    W_jk = -P_jk / P_kk for j != k,    W_jj = 0,    score_i = b_i W

where b_i is row i of B. At most `MAX_ITEMS` items, those with the most ratings, take part.
With s_j the share of users who rated j,

    rated:  e_ij = max(score_ij, FLOOR s_j)^POWER c_j
    liked:  e_ij = max(score_ij, FLOOR s_j) c_j

since the exposure to rated items grows faster than the score (docs/evidence/dropped.md).
c_j says how the popularity of j has changed. If the split is by time, and item j has n_j of the N
ratings, and r_j of the R in the latest `RECENT` hundredths,

    c_j = (r_j + a R / N) / ((n_j + a) R / N),    a = PRIOR_RATINGS,

the posterior mean of the rate of ratings of j now, over that of the whole time, under a gamma prior
with mean 1. Otherwise c_j = 1. `dsgmcmc.posterior.lists.exposure_choice` chooses between the two.

Exposure orders items, and is a point estimate; the posterior of ratings does not depend on it.
`dsgmcmc.posterior.lists.exposure_of_run` keeps it in files, with the SHA-256 of their rows
(`dsgmcmc.storage.checked_rows`): W in float32, and a last row of c_j, which files of earlier
versions lack.

[Steck 2019] Embarrassingly shallow autoencoders for sparse data, WWW.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from dsgmcmc.kernels.row_sums import sum_rows
from dsgmcmc.posterior.rated import Rated
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.storage.checked_rows import CheckedRows, write_rows
from dsgmcmc.types import Float32, Float64, Int32, Int64

#: Maximum number of items that take part in the regressions.
MAX_ITEMS = 4096
#: lambda
PENALTY = 500.0
#: Least score, in units of the share of users who rated an item; it exposes users without ratings
#: to popular items.
FLOOR = 0.01
POWER = 1.5
#: Latest hundredths of the training ratings that show how popular items are now.
RECENT = 10
#: a: ratings of an item after which its own change counts as much as that of all items.
PRIOR_RATINGS = 30.0


@dataclass(frozen=True)
class Exposure:
    """Exposure of users to items.

    Attributes
    ----------
    shares : (items,) float64
        Share of the users who rated each item.
    weights : (k, k) float32
        W of the k items with the largest shares, in ascending order of the items.
    liked : float, optional
        Lowest rating that is liked, if the exposure is to items that users rate and like.
    changes : (k,) float32, or 1.0
        c of the k items.
    file : CheckedRows, optional
        W in a file, whose rows are checked before they are used.
    """

    shares: Float64
    weights: Float32
    liked: float | None = None
    changes: Float32 | float = 1.0
    file: CheckedRows | None = None

    @classmethod
    def of_ratings(
        cls,
        rated: Rated,
        shares: Float64,
        liked: float | None = None,
        *,
        changes: Float64 | None = None,
        most: int | None = None,
    ) -> Exposure:
        """Estimate the exposure from the training ratings of all users.

        `changes` has c of all items, and `most` is the number of items that take part, by default
        `MAX_ITEMS`.
        """
        if most is None:
            most = MAX_ITEMS
        chosen = _regressed(shares, most)
        pattern = rated.reaching(liked)[:, chosen]
        inverse = np.linalg.inv(
            (pattern.T @ pattern).toarray() + PENALTY * np.eye(pattern.shape[1])
        )
        weights = inverse / -np.diag(inverse)
        np.fill_diagonal(weights, 0.0)
        if changes is None:
            changes = np.ones(len(shares))
        of_chosen = changes[chosen].astype(np.float32)
        return cls(shares, weights.astype(np.float32), liked, of_chosen)

    @classmethod
    def read(cls, path: Path, shares: Float64, liked: float | None = None) -> Exposure | None:
        """Open a file written by `write`, of the exposure to rated items, or to liked ones.

        None if it is missing, its hashes are damaged, or it does not fit the number of items.
        """
        n = len(_regressed(shares, MAX_ITEMS))
        with suppress(OSError, ValueError):
            file = CheckedRows(path)
            if file.matrix.dtype != np.float32:
                return None
            if file.matrix.shape == (n, n):  # of an earlier version
                return cls(shares, file.matrix, liked, file=file)
            if file.matrix.shape == (n + 1, n):
                file.check(np.array([n]))
                return cls(shares, file.matrix[:n], liked, file.matrix[n], file)
        return None

    def write(self, path: Path) -> None:
        """Write the exposure to a file atomically, and ignore errors: W can be computed again."""
        changes = np.broadcast_to(np.float32(self.changes), len(self.weights))
        with suppress(OSError):
            write_rows(path, np.vstack([self.weights, changes]))

    def scores(self, rated: Sequence[Int32]) -> Float32:
        """Return exposures, (users, items) float32.

        `rated` has the items that each user rated, or, if `liked` is given, rated that high. Raises
        InputError if rows of the file are damaged.
        """
        positions = [self._position_of[items] for items in rated]
        rows = np.concatenate([np.zeros(0, np.int64), *positions])
        if self.file is not None:
            self.file.check(rows[rows >= 0])
        ends = np.cumsum([0, *map(len, positions)], dtype=np.int64)
        sums = np.empty((len(rated), len(self.weights)), np.float32)
        sum_rows(self.weights, rows, ends, sums)
        least = (FLOOR * self.shares).astype(np.float32)
        np.maximum(sums, least[self._regressed], out=sums)
        exposure = np.tile(least, (len(rated), 1))
        exposure[:, self._regressed] = sums
        if self.liked is None:
            exposure = np.power(exposure, POWER, dtype=np.float32)
        exposure[:, self._regressed] *= self.changes
        return exposure

    def reason(self, rated: Int32, items: Int32) -> Int32:
        """Return the rated item that adds most to a user's score of each item: max_k W_kj.

        Parameters
        ----------
        rated : (r,) int32
            The items that the user rated, as for `scores`, which has checked their rows.
        items : (m,) int32

        Returns
        -------
        (m,) int32
            -1 where no rated item adds to the score.
        """
        rated = rated[self._position_of[rated] >= 0]
        if not len(rated):
            return np.full(len(items), -1, np.int32)
        columns = self._position_of[items]
        weights = self.weights[self._position_of[rated]][:, columns]
        best = weights.argmax(axis=0)
        is_reason = (columns >= 0) & (weights.max(axis=0) > 0)
        return np.where(is_reason, rated[best], np.int32(-1))

    @cached_property
    def _regressed(self) -> Int32:
        """Items that take part in the regressions, ascending."""
        return _regressed(self.shares, len(self.weights))

    @cached_property
    def _position_of(self) -> Int64:
        """Position of each item among those that take part in the regressions; -1 for others."""
        positions = np.full(len(self.shares), -1, np.int64)
        positions[self._regressed] = np.arange(len(self._regressed))
        return positions


def _regressed(shares: Float64, most: int) -> Int32:
    """Return the items with the most ratings, which take part in the regressions, ascending."""
    return np.sort(np.argsort(-shares, kind="stable")[:most]).astype(np.int32)


def recent_changes(ratings: Ratings) -> Float64 | None:
    """Return c of all items, (items,), from an open ratings file; None without a split by time."""
    if not ratings.temporal:
        return None
    slab = ratings.slab("train", 0, ratings.n_rows)
    _, items = ratings.orientation.users_and_items(slab.rows, slab.indices.astype(np.int64))
    _, n_items = ratings.orientation.users_and_items(ratings.n_rows, ratings.n_cols)
    is_recent = ratings.ages(0, ratings.n_rows) < RECENT
    n_rated = np.bincount(items, minlength=n_items)
    n_recent = np.bincount(items[is_recent], minlength=n_items)
    share = np.count_nonzero(is_recent) / len(items)
    if not share:
        return None
    changes: Float64 = (n_recent + PRIOR_RATINGS * share) / ((n_rated + PRIOR_RATINGS) * share)
    return changes
