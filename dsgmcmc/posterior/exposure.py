r"""Exposure: which items a user will rate, estimated from the pattern of the training ratings, not their values.

Let B be the pattern of the training ratings (users x items, 1 for a rating and 0 otherwise). Every column of B is
regressed on all other columns, with a ridge penalty lambda. These regressions, EASE^R [Steck 2019], have a closed form:

    P = (B^T B + lambda I)^-1,    s_i = b_i - lambda b_i P,    h_j = 1 - lambda P_jj
    score_ij = (s_ij - h_j b_ij) / (1 - h_j)

Here s_i is the ridge regression of the pattern on itself, and h_j is the weight of item j in its own prediction, which
the second formula removes. For any lambda both follow from the singular value decomposition B = U diag(sigma) V^T:

    s_i = b_i V diag(sigma^2 / (sigma^2 + lambda)) V^T,    h = the diagonal of V diag(sigma^2 / (sigma^2 + lambda)) V^T

The decomposition is computed from the Gram matrix of the shorter side of B (the dual form, if users are fewer than
items). If the Gram matrix has more than `EXACT` rows, or V more than `MOST_NUMBERS` entries, only the `WIDTH` leading
singular vectors are used [Cremonesi 2010].

For at most `EXACT` items, S = V diag(sigma^2 / (sigma^2 + lambda)) V^T is stored: s_i is the sum of the rows of S for
the items that the user rated, so few rows are read for one user. With V, all rows are read for every user.

**Penalty.** The penalty is chosen that ranks hidden ratings best: a tenth of the ratings of at most `SAMPLE` users are
hidden from the regressions. Each of these users is left out of the regressions, exactly (v = P b_i, Sherman &
Morrison):

    P_-i = P + v v^T / (1 - b_i^T v)

If the decomposition is truncated, the penalty is `PENALTY`.

**Exposure.** The score grows too slowly to be a probability: on MovieLens 100K and 1M, the share of rated pairs among
the hidden pairs grew like the score to the power 1.5 to 1.9. The exposure is

    e_ij = max(score_ij, FLOOR times the share of users who rated j)^POWER

so that a user without ratings is exposed to popular items. The exposure orders items; it is a point estimate, and does
not enter the posterior of ratings.

**File.** ``RUN/exposure-HASH.npy`` belongs to the ratings with this hash. It has (items + items * r,) float32: h,
followed by the rows of S or, for more than `EXACT` items, of V diag(sigma / sqrt(sigma^2 + lambda)). The file is mapped
into memory, so that only the rows in use are read. It may be deleted.

[Cremonesi 2010] Performance of recommender algorithms on top-N recommendation tasks, RecSys.
[Steck 2019] Embarrassingly shallow autoencoders for sparse data, WWW.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dsgmcmc.data.ratings import Ratings
from dsgmcmc.storage.files import write_whole
from dsgmcmc.types import Float32, Float64, Int32

if TYPE_CHECKING:  # slow to import, and not needed to read a file
    import scipy.sparse

EXACT, MOST_NUMBERS = 4096, 1 << 26  # limits for a full decomposition: rows of the Gram matrix, entries of V
WIDTH, PENALTY = 64, 500.0
FLOOR, POWER = 0.01, 1.5
SAMPLE, HIDDEN = 1000, 0.1  # users in the choice of the penalty, and hidden share of their ratings
DEPTH = 50  # ranks that count in the choice of the penalty
_PENALTIES = 1.0, 1e6  # limits of the penalty
_CELLS = 1 << 22  # scores that are in memory while the penalty is chosen
_SMALL = 1e-6  # squared singular values below this fraction of the largest are dropped


class Rated:
    """Items that each user rated in training.

    Parameters
    ----------
    ratings : Ratings
        Open ratings file of the run.
    users : (n,) int32, optional
        Rows of the users that will be needed; default all.
    """

    def __init__(self, ratings: Ratings, users: Int32 | None = None) -> None:
        self._first, last = 0, ratings.n_rows
        if users is not None and len(users) and not ratings.transposed:
            self._first, last = int(users.min()), int(users.max()) + 1
        indptr, indices, _ = ratings.slab("train", self._first, last)
        self._indptr, self._indices = indptr, indices
        self._items = ratings.n_rows if ratings.transposed else ratings.n_cols
        if ratings.transposed:  # rows are items
            rows = np.repeat(np.arange(ratings.n_rows, dtype=np.int32), np.diff(indptr))
            order = np.argsort(indices, kind="stable")
            self._indptr = np.append(0, np.cumsum(ratings.column_counts))
            self._indices = rows[order]

    def of(self, user: int) -> Int32:
        """Rows of the items that a user rated."""
        row = user - self._first
        items: Int32 = self._indices[self._indptr[row] : self._indptr[row + 1]]
        return items

    def pattern(self) -> scipy.sparse.csr_matrix:
        """Pattern of the ratings of all users that were read, (users, items) float32 of ones."""
        import scipy.sparse

        ones = np.ones(len(self._indices), np.float32)
        shape = len(self._indptr) - 1, self._items
        return scipy.sparse.csr_matrix((ones, self._indices, self._indptr), shape=shape)


@dataclass(frozen=True)
class Exposure:
    """Exposure of users to items.

    Attributes
    ----------
    rows : (items, items) or (items, r) float32
        S for at most `EXACT` items, else V diag(sigma / sqrt(sigma^2 + lambda)).
    own : (items,) float32
        h, the weight of each item in its own prediction.
    shares : (items,) float64
        Share of the users who rated each item.
    """

    rows: Float32
    own: Float32
    shares: Float64

    @classmethod
    def of_pattern(cls, pattern: scipy.sparse.csr_matrix) -> Exposure:
        """Estimate the exposure from the pattern of training ratings, a sparse (users, items) matrix of ones."""
        shares = np.asarray(pattern.sum(axis=0), np.float64).ravel() / max(pattern.shape[0], 1)
        vectors, squares, complete = _spectrum(pattern.astype(np.float32))
        penalty = best_penalty(vectors, squares, pattern) if complete else PENALTY
        rows, own = _regressions(vectors, squares, penalty)
        return cls(rows if len(rows) > EXACT else rows @ rows.T, own, shares)

    @classmethod
    def read(cls, path: Path, shares: Float64) -> Exposure | None:
        """Open a file written by `write`; None if the file is missing or does not fit the number of items."""
        items = len(shares)
        try:
            numbers = np.asarray(np.lib.format.open_memmap(path, mode="r") if path.is_file() else np.zeros(0))
        except (OSError, ValueError):
            return None
        width = numbers.size // items - 1
        fits = numbers.shape == (items + items * width,) and (width == items or items > EXACT)
        if numbers.dtype != np.float32 or width < 1 or not fits or not (numbers[:items] < 1).all():
            return None
        return cls(numbers[items:].reshape(items, width), numbers[:items], shares)

    def write(self, path: Path) -> None:
        """Write the exposure to a file atomically; errors are ignored, as the exposure can be used without a file."""
        content = io.BytesIO()
        np.save(content, np.append(self.own, self.rows))
        with suppress(OSError):
            write_whole(path, [content.getbuffer()])

    def of(self, rated: Sequence[Int32]) -> Float32:
        """Exposures, (users, items) float32; `rated` has the items that each user rated."""
        floor = (FLOOR * self.shares).astype(np.float32)
        exposure: Float32 = np.power(np.maximum(self.scores(rated), floor), POWER, dtype=np.float32)
        return exposure

    def scores(self, rated: Sequence[Int32]) -> Float32:
        """Scores of EASE^R, (users, items) float32; `rated` has the items that each user rated."""
        scores = np.array([self.rows[items].sum(axis=0) for items in rated], np.float32)
        if len(self.rows) > EXACT:
            scores = scores @ self.rows.T
        for fitted, items in zip(scores, rated, strict=True):
            fitted[items] -= self.own[items]
        scores /= 1 - self.own
        return scores


def _regressions(vectors: Float32, squares: Float64, penalty: float) -> tuple[Float32, Float32]:
    """V diag(sigma / sqrt(sigma^2 + lambda)), and h."""
    rows: Float32 = vectors * np.sqrt(squares / (squares + penalty)).astype(np.float32)
    return rows, np.minimum(np.einsum("jr,jr->j", rows, rows), np.float32(1 - 1e-6))


def left_out(rows: Float32, own: Float32, penalty: float, whole: Float32, known: Float32) -> Float32:
    """Scores of users with ratings `known`, by regressions that leave out these users, whose rows in B are `whole`.

    `whole` and `known` are (users, items) of zeros and ones, with `known` a part of `whole`; scores of known items must
    not be used. `rows` and `own` are the results of `_regressions` with all singular vectors.
    """
    of_whole, of_known = (b - (b @ rows) @ rows.T for b in (whole, known))  # lambda b P
    rest = penalty - np.einsum("uj,uj->u", whole, of_whole)
    rest = np.maximum(rest, np.float32(1e-6 * penalty))[:, None]
    among = np.einsum("uj,uj->u", known, of_whole)[:, None] / rest
    scores: Float32 = -(of_known + among * of_whole) / (1 - own + of_whole**2 / rest)
    return scores


def _spectrum(pattern: scipy.sparse.csr_matrix) -> tuple[Float32, Float64, bool]:
    """Return V, sigma^2, and whether the decomposition is complete."""
    users, items = pattern.shape
    shorter = min(users, items)
    if shorter <= EXACT and shorter * items <= MOST_NUMBERS:
        import scipy.linalg

        wide = users < items
        gram = (pattern @ pattern.T if wide else pattern.T @ pattern).toarray()
        squares, vectors = scipy.linalg.eigh(gram, driver="evd", overwrite_a=True, check_finite=False)
        kept = squares > _SMALL * max(squares[-1], 1)
        squares, vectors = squares[kept].astype(np.float64), vectors[:, kept]
        if wide:
            vectors = (pattern.T @ vectors) / np.sqrt(squares).astype(np.float32)
        return np.ascontiguousarray(vectors, np.float32), squares, True
    from scipy.sparse.linalg import LinearOperator, eigsh

    turned = pattern.T.tocsr()
    gram = LinearOperator((items, items), lambda x: turned @ (pattern @ x), dtype=np.float64)
    squares, vectors = eigsh(gram, WIDTH, v0=np.ones(items))  # the default start is random
    return vectors.astype(np.float32), np.maximum(squares, 0), False


def best_penalty(vectors: Float32, squares: Float64, pattern: scipy.sparse.csr_matrix) -> float:
    """Choose a penalty among `PENALTY` times powers of 2, as long as the ranks of hidden ratings improve."""
    users, items = pattern.shape
    rng = np.random.default_rng(0)
    some = np.sort(rng.choice(users, min(users, SAMPLE, _CELLS // items + 1), replace=False))
    whole = pattern[some].toarray().astype(np.float32)
    hidden = (whole > 0) & (rng.random(whole.shape) < HIDDEN)
    best = PENALTY
    if not hidden.any():
        return best
    known = np.where(hidden, np.float32(0), whole)
    row, column = np.nonzero(hidden)

    def gain(penalty: float) -> float:
        """Mean over users of the mean gain of hidden ratings: 1 / log2(1 + rank), 0 beyond rank `DEPTH`."""
        predicted = left_out(*_regressions(vectors, squares, penalty), penalty, whole, known)
        scores = np.where(known > 0, np.float32(-np.inf), predicted)
        ordered = np.sort(scores, axis=1)
        above = [items - np.searchsorted(ordered[u], scores[u, j], "right") for u, j in zip(row, column, strict=True)]
        gains = np.where(np.array(above) < DEPTH, 1 / np.log2(2.0 + np.array(above)), 0.0)
        total = np.bincount(row, gains, len(some))
        number = np.bincount(row, minlength=len(some))
        return float((total[number > 0] / number[number > 0]).mean())

    best_gain = gain(best)
    for factor in (2.0, 0.5):
        while _PENALTIES[0] < best * factor < _PENALTIES[1]:
            reached = gain(best * factor)
            if reached <= best_gain:
                break
            best, best_gain = best * factor, reached
        if best > PENALTY:
            break
    return best
