r"""Exposure: which items a user will rate, estimated from who rated what, without the values.

Let B be the pattern of the training ratings (users x items, 1 for a rating and 0 otherwise). Every
column of B is regressed on all other columns, with a ridge penalty lambda. These regressions,
EASE^R [Steck 2019], have a closed form:

    P = (B^T B + lambda I)^-1,    W_jk = -P_jk / P_kk for j != k,    W_jj = 0,    score_i = b_i W

where b_i is row i of B. At most `MAX_ITEMS` items, those with the most ratings, take part. The
exposure grows faster than the score (docs/evidence/dropped.md):

    e_ij = max(score_ij, FLOOR times the share of users who rated j)^POWER

It orders items, and is a point estimate; the posterior of ratings does not depend on it.
``RUN/exposure-HASH.npy`` has W in float32, for the ratings with this hash, and the SHA-256 of its
rows (`dsgmcmc.storage.checked_rows`). It may be deleted.

[Steck 2019] Embarrassingly shallow autoencoders for sparse data, WWW.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.kernels.row_sums import sum_rows
from dsgmcmc.posterior.rated import Rated, read_rated
from dsgmcmc.posterior.run import Run
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


@dataclass(frozen=True)
class Exposure:
    """Exposure of users to items.

    Attributes
    ----------
    shares : (items,) float64
        Share of the users who rated each item.
    weights : (k, k) float32
        W of the k items with the largest shares, in ascending order of the items.
    file : CheckedRows, optional
        W in a file, whose rows are checked before they are used.
    """

    shares: Float64
    weights: Float32
    file: CheckedRows | None = None

    @classmethod
    def of_ratings(cls, rated: Rated, shares: Float64) -> Exposure:
        """Estimate the exposure from the training ratings of all users."""
        pattern = rated.pattern[:, _regressed(shares)]
        inverse = np.linalg.inv(
            (pattern.T @ pattern).toarray() + PENALTY * np.eye(pattern.shape[1])
        )
        weights = inverse / -np.diag(inverse)
        np.fill_diagonal(weights, 0.0)
        return cls(shares, weights.astype(np.float32))

    @classmethod
    def read(cls, path: Path, shares: Float64) -> Exposure | None:
        """Open a file written by `write`.

        None if it is missing, its hashes are damaged, or it does not fit the number of items.
        """
        n = len(_regressed(shares))
        with suppress(OSError, ValueError):
            file = CheckedRows(path)
            if file.matrix.shape == (n, n) and file.matrix.dtype == np.float32:
                return cls(shares, file.matrix, file)
        return None

    def write(self, path: Path) -> None:
        """Write the exposure to a file atomically, and ignore errors: W can be computed again."""
        with suppress(OSError):
            write_rows(path, self.weights)

    def scores(self, rated: Sequence[Int32]) -> Float32:
        """Return exposures, (users, items) float32; `rated` has the items that each user rated.

        Raises InputError if rows of the file are damaged.
        """
        positions = [self._position_of[items] for items in rated]
        rows = np.concatenate(positions)
        if self.file is not None:
            self.file.check(rows[rows >= 0])
        ends = np.cumsum([0, *map(len, positions)], dtype=np.int64)
        sums = np.empty((len(rated), len(self.weights)), np.float32)
        sum_rows(self.weights, rows, ends, sums)
        least = (FLOOR * self.shares).astype(np.float32)
        np.maximum(sums, least[self._regressed], out=sums)
        exposure = np.tile(least, (len(rated), 1))
        exposure[:, self._regressed] = sums
        return np.power(exposure, POWER, dtype=np.float32)

    @cached_property
    def _regressed(self) -> Int32:
        """Items that take part in the regressions, ascending."""
        return _regressed(self.shares)

    @cached_property
    def _position_of(self) -> Int64:
        """Position of each item among those that take part in the regressions; -1 for others."""
        positions = np.full(len(self.shares), -1, np.int64)
        positions[self._regressed] = np.arange(len(self._regressed))
        return positions


def _regressed(shares: Float64) -> Int32:
    """Return the items with the most ratings, which take part in the regressions, ascending."""
    return np.sort(np.argsort(-shares, kind="stable")[:MAX_ITEMS]).astype(np.int32)


# ---------------------------------------------------------------------- of runs


def exposure_file(run: Run) -> Path:
    """Return the file of a run's exposure; the first ranking writes it."""
    return run.directory.exposure_file(str(run.facts["data_hash"]))


def exposure_of(run: Run) -> Exposure:
    """Return the exposure of users to items, opened in `exposure_file`; a run keeps it.

    If there is no such file, it is estimated from the ratings and written there.

    Raises
    ------
    InputError
        As for `Run.open_ratings`, if the file is missing.
    """
    if Exposure not in run.kept:
        found = Exposure.read(exposure_file(run), _shares(run))
        keep_exposure(run, found or _estimate(run))
    exposure: Exposure = run.kept[Exposure]
    return exposure


def keep_exposure(run: Run, exposure: Exposure) -> None:
    """Let a run rank by this exposure, whatever its file has."""
    run.kept[Exposure] = exposure


def exposures(run: Run, rated: Sequence[Int32]) -> Float32:
    """Return exposures, (users, items); `rated` has the items that each user rated.

    A damaged file is replaced. Raises InputError as `exposure_of`.
    """
    exposure = exposure_of(run)
    try:
        return exposure.scores(rated)
    except InputError:
        if exposure.file is None:
            raise
        keep_exposure(run, _estimate(run))
        return exposure_of(run).scores(rated)


def _estimate(run: Run) -> Exposure:
    """Estimate the exposure from the ratings, and write it to its file."""
    exposure = Exposure.of_ratings(read_rated(run), _shares(run))
    exposure.write(exposure_file(run))
    return exposure


def _shares(run: Run) -> Float64:
    """Share of the users who rated each item in training, (items,)."""
    if run.facts.get("replicates"):
        return np.asarray(read_rated(run).pattern.getnnz(axis=0) / len(run.users))
    return run.counts("item") / len(run.users)
