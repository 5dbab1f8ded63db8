r"""Exposure: which items a user will rate, estimated from who rated what in training, whatever the ratings.

With the pattern B of training ratings (users x items, 1 where there is one) and a penalty lambda, every column of B is
regressed on all others. These regressions, EASE^R [Steck 2019], have a closed form:

    P = (B^T B + lambda I)^-1,    s_i = b_i - lambda b_i P,    h_j = 1 - lambda P_jj
    score_ij = (s_ij - h_j b_ij) / (1 - h_j)

s_i is the ridge regression of the pattern on itself, and h_j what an item explains of itself, which the division takes
out. All follow from the singular values and right singular vectors B = U diag(sigma) V^T, for any lambda:

    s_i = b_i V diag(sigma^2 / (sigma^2 + lambda)) V^T,    h = the diagonal of V diag(sigma^2 / (sigma^2 + lambda)) V^T

They are found from the Gram matrix of the shorter side of B (the dual form, where users are fewer than items). If that
is larger than `EXACT` rows, or V larger than `MOST_NUMBERS`, the `WIDTH` leading ones are taken [Cremonesi 2010].

Of at most `EXACT` items what is used and kept is S = V diag(sigma^2 / (sigma^2 + lambda)) V^T itself: s_i is the sum of
its rows of what the user rated, so that few rows serve one user. By V every user needs all of its rows.

**Penalty.** That which ranks best what is hidden from the regressions: a tenth of the ratings of at most `SAMPLE`
users. Each of these users is left out of the regressions, exactly (v = P b_i, Sherman & Morrison):

    P_-i = P + v v^T / (1 - b_i^T v)

If not all singular vectors are known, it is `PENALTY`.

**Exposure.** The score grows too slowly to be a probability: among the hidden pairs the share of those rated grew like
its power 1.5 to 1.9 on MovieLens 100K and 1M. The exposure is

    e_ij = max(score_ij, FLOOR times the share of users who rated j)^POWER

so that a user without ratings is exposed to popular items. It orders items; it is a point estimate, and does not enter
the posterior of ratings.

[Cremonesi 2010] Performance of recommender algorithms on top-N recommendation tasks, RecSys.
[Steck 2019] Embarrassingly shallow autoencoders for sparse data, WWW.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dsgmcmc.types import Float32, Float64, Int32

if TYPE_CHECKING:  # it takes its time to import, and what is kept needs none of it
    import scipy.sparse

EXACT, MOST_NUMBERS = 4096, 1 << 26  # beyond these the decomposition is truncated: rows of the Gram matrix; of V
WIDTH, PENALTY = 64, 500.0
FLOOR, POWER = 0.01, 1.5
SAMPLE, HIDDEN = 1000, 0.1  # users by whom the penalty is chosen, and the share of their ratings that is hidden
DEPTH = 50  # ranks that count where it is chosen
_PENALTIES = 1.0, 1e6  # limits
_CELLS = 1 << 22  # scores that are in memory while the penalty is chosen
_SMALL = 1e-6  # squares of singular values below this fraction of the largest are zeros


@dataclass(frozen=True)
class Exposure:
    """Exposure of users to items; see the module.

    Attributes
    ----------
    rows : (items, items) or (items, r) float32
        S, or V diag(sigma / sqrt(sigma^2 + lambda)); by `rows[items]` alone where `turn` is None.
    turn : (r, items) float32 or None
        By what the sums of rows are multiplied for s_i: those of S by nothing, others by the transpose of `rows`.
    own : (items,) float32
        h, what an item explains of itself.
    shares : (items,) float64
        Of the users who rated each item.
    penalty : float
        lambda.
    """

    rows: Any
    turn: Float32 | None
    own: Float32
    shares: Float64
    penalty: float

    @classmethod
    def of_pattern(cls, pattern: scipy.sparse.csr_matrix) -> Exposure:
        """Estimate it from the pattern of training ratings, a sparse (users, items) matrix of ones."""
        shares = np.asarray(pattern.sum(axis=0), np.float64).ravel() / max(pattern.shape[0], 1)
        vectors, squares, complete = _spectrum(pattern.astype(np.float32))

        def shrunk(penalty: float) -> Exposure:
            scaled: Float32 = vectors * np.sqrt(squares / (squares + penalty)).astype(np.float32)
            own = np.einsum("jr,jr->j", scaled, scaled)
            return cls(scaled, scaled.T, np.minimum(own, np.float32(1 - 1e-6)), shares, penalty)

        found = _best(shrunk, pattern) if complete else shrunk(PENALTY)
        return found if len(vectors) > EXACT else replace(found, rows=found.rows @ found.turn, turn=None)

    def of(self, rated: Sequence[Int32]) -> Float32:
        """Exposures (users, items) float32 of users who rated these items each."""
        floor = (FLOOR * self.shares).astype(np.float32)
        exposure: Float32 = np.power(np.maximum(self.scores(rated), floor), POWER, dtype=np.float32)
        return exposure

    def scores(self, rated: Sequence[Int32]) -> Float32:
        """Scores of EASE^R (users, items) float32 of users who rated these items each."""
        scores = self._turned(np.array([self.rows[items].sum(axis=0) for items in rated], np.float32))
        for fitted, items in zip(scores, rated, strict=True):
            fitted[items] -= self.own[items]
        scores /= 1 - self.own
        return scores

    def _turned(self, sums: Float32) -> Float32:
        return sums if self.turn is None else sums @ self.turn

    def left_out(self, whole: Float32, known: Float32) -> Float32:
        """Scores of `known` items' rows by regressions without the users themselves, whose rows are `whole`.

        Both are (users, items) of zeros and ones, `known` at most `whole`; scores of known items are not to be used.
        All singular vectors must be there.
        """
        of_whole, of_known = (b - self._turned(b @ self.rows) for b in (whole, known))  # lambda b P
        rest = self.penalty - np.einsum("uj,uj->u", whole, of_whole)
        rest = np.maximum(rest, np.float32(1e-6 * self.penalty))[:, None]
        among = np.einsum("uj,uj->u", known, of_whole)[:, None] / rest
        scores: Float32 = -(of_known + among * of_whole) / (1 - self.own + of_whole**2 / rest)
        return scores


def _spectrum(pattern: scipy.sparse.csr_matrix) -> tuple[Float32, Float64, bool]:
    """V, sigma^2, and whether these are all that are not zero."""
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
    squares, vectors = eigsh(gram, WIDTH, v0=np.ones(items))  # a start of its own would be drawn at random
    return vectors.astype(np.float32), np.maximum(squares, 0), False


def _best(shrunk: Callable[[float], Exposure], pattern: scipy.sparse.csr_matrix) -> Exposure:
    """Among `PENALTY` times powers of 2, that up to which ranks of hidden ratings become better."""
    users, items = pattern.shape
    rng = np.random.default_rng(0)
    some = np.sort(rng.choice(users, min(users, SAMPLE, _CELLS // items + 1), replace=False))
    whole = pattern[some].toarray().astype(np.float32)
    hidden = (whole > 0) & (rng.random(whole.shape) < HIDDEN)
    best = shrunk(PENALTY)
    if not hidden.any():
        return best
    known = np.where(hidden, np.float32(0), whole)
    row, column = np.nonzero(hidden)

    def gain(tried: Exposure) -> float:
        """Mean over users of the mean of 1 / log2(1 + rank) of what is hidden, 0 beyond the first `DEPTH` ranks."""
        scores = np.where(known > 0, np.float32(-np.inf), tried.left_out(whole, known))
        ordered = np.sort(scores, axis=1)
        above = [items - np.searchsorted(ordered[u], scores[u, j], "right") for u, j in zip(row, column, strict=True)]
        gains = np.where(np.array(above) < DEPTH, 1 / np.log2(2.0 + np.array(above)), 0.0)
        total = np.bincount(row, gains, len(some))
        number = np.bincount(row, minlength=len(some))
        return float((total[number > 0] / number[number > 0]).mean())

    found = gain(best)
    for factor in (2.0, 0.5):
        while _PENALTIES[0] < best.penalty * factor < _PENALTIES[1]:
            tried = shrunk(best.penalty * factor)
            if (reached := gain(tried)) <= found:
                break
            best, found = tried, reached
        if best.penalty > PENALTY:
            break
    return best
