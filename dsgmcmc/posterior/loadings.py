r"""Factors that can be read: draws in one orientation, with loadings of items and scores of users.

Factors W of users and H of items enter predictors only through W H^T, so that a linear map of W and
its inverse of H change nothing. At every draw, with C = L L^T the covariance of the users' rows,

    scores = (W - mean) L^-T,    loadings = H L

have users of variance 1, as in factor analysis: row j of the loadings has the covariances of item
j's predictors with the factors. What is left is a rotation. Draws are rotated to their mean
[Schoenemann 1966], which is computed again until it does not change. The axes of the mean that hold
`SHARE` of its sum of squares are then rotated by varimax [Kaiser 1958]; the others are principal
axes. Columns are in the order of their sums of squares, and large loadings are positive.

With a target, which says for each item to which dimensions it belongs, draws need no common
orientation. With loadings A at a draw, and A_k those of the items that do not belong to dimension
k, column k of the loadings is A u_k, where u_k minimises the share |A_k u|^2 / |A u|^2, and has the
scale at which the scores have variance 1. Scores are then correlated: this is the oblique rotation
to a partially specified target, each column by itself [Browne 1972].

[Schoenemann 1966] A generalized solution of the orthogonal Procrustes problem, Psychometrika 31.
[Browne 1972] Oblique rotation to a partially specified target, British Journal of Mathematical and
Statistical Psychology 25.
[Kaiser 1958] The varimax criterion for analytic rotation in factor analysis, Psychometrika 23.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.posterior.index import Vocabulary
from dsgmcmc.posterior.moments import Estimates, over_draws, saved_of_chains, spread_positions
from dsgmcmc.posterior.run import Run
from dsgmcmc.settings import named
from dsgmcmc.tables.result import Table
from dsgmcmc.types import Array, Float64, Mask

#: Share of the variance that the columns of interest hold.
SHARE = 0.99
#: Draws from which shares are computed for ``dsgmcmc info``.
FEW_DRAWS = 16
#: Largest number of passes over the draws, and of rotations by varimax.
PASSES = 30
ROTATIONS = 500
#: Relative changes at which the mean, and the criterion of varimax, count as constant.
TOLERANCE = 1e-6
#: Largest number of bytes of loadings, and of draws for `variance_shares`, that are kept.
KEPT_BYTES = 1 << 28


@dataclass(frozen=True)
class Loadings:
    """Factors of a run in one orientation; columns are in the order of their shares.

    Attributes
    ----------
    items : Table
        Loadings: ``item_id``, and for each factor ``factor_1`` (the mean) and ``factor_1_sd``.
    users : Table
        Scores, of variance 1 between users: ``user_id`` and the same columns.
    share : (K,) float64
        Share of each factor in the variance of the items' predictors between users, biases left
        out, at the mean loadings.
    n_factors : int
        Number of factors that hold 99 % of this variance.
    correlation, correlation_sd : (K, K) float64
        Correlations of the scores between users, and their sds; 0 without a target.
    """

    items: Table
    users: Table
    share: Float64
    n_factors: int
    correlation: Float64
    correlation_sd: Float64

    def __repr__(self) -> str:
        shares = ", ".join(f"{share:.1%}" for share in self.share[: self.n_factors])
        return f"<Loadings: {self.n_factors} of {len(self.share)} factors hold 99 %: {shares}>"


class FactorsAtDraw(NamedTuple):
    """Rows whose products are the predictors, (users, K) and (items, K) float64."""

    users: Float64
    items: Float64

    def of_unit_variance(self) -> FactorsAtDraw:
        """Return scores and loadings, in the orientation of the draw."""
        users = self.users - self.users.mean(axis=0)
        covariance = users.T @ users / len(users)
        # users may be fewer than factors
        smallest = 1e-10 * max(float(np.trace(covariance)), np.finfo(np.float64).tiny)
        lower = np.linalg.cholesky(covariance + smallest * np.eye(len(covariance)))
        scores = np.linalg.solve(lower, users.T).T
        return FactorsAtDraw(np.asarray(scores, np.float64), np.asarray(self.items @ lower))


def _of_run(run: Run, position: int) -> FactorsAtDraw:
    """Return the scores and the loadings of a run at a saved draw, in its own orientation."""
    rank = run.config.rank
    rows = run.draw(position).theta
    users = rows["user"][:, :rank].astype(np.float64)
    items = rows["item"][:, :rank].astype(np.float64)
    return FactorsAtDraw(users, items).of_unit_variance()


def loadings_at(run: Run, position: int) -> Float64:
    """Return the loadings (items, K) at a saved draw, in the orientation of the draw."""
    return _of_run(run, position).items


@dataclass(frozen=True)
class Orientation:
    """Rotations of draws to a common orientation.

    Attributes
    ----------
    positions : sequence of int
        Positions of the draws in `Run.draws`.
    rotations : list of (K, K) float64
        Rotation of each of these draws.
    share : (K,) float64
        Share of each column in the sum of squares of the mean loadings.
    """

    positions: Sequence[int]
    rotations: list[Float64]
    share: Float64

    @property
    def n_factors(self) -> int:
        """Number of columns that hold `SHARE` of the sum of squares."""
        return _number_of(self.share)

    @classmethod
    def find(
        cls,
        run: Run,
        positions: Sequence[int] | None = None,
        of_draw: Callable[[int], Float64] | None = None,
    ) -> Orientation:
        """Rotate the saved draws, or some of them, to a common orientation.

        `of_draw` returns the loadings at a draw, by default those of the run's factors. Raises
        InputError if the run has no draws or no factors.
        """
        run.need_draws()
        if of_draw is None:
            _need_factors(run)
            of_draw = partial(loadings_at, run)
        if positions is None:
            positions = range(len(run.draws))
        weights = run.draw_weights[list(positions)]
        weights = weights / weights.sum()
        kept: dict[int, Float64] = {}
        if 8 * len(run.items) * run.config.rank * len(positions) <= KEPT_BYTES:
            kept = {position: of_draw(position) for position in positions}
        mean = of_draw(positions[0])
        for _ in range(PASSES):
            before = mean
            rotations = []
            mean = np.zeros_like(before)
            for position, weight in zip(positions, weights.tolist(), strict=True):
                at_draw = kept[position] if kept else of_draw(position)
                rotations.append(procrustes(at_draw, before))
                mean += weight * (at_draw @ rotations[-1])
            if np.abs(mean - before).max() <= TOLERANCE * np.abs(mean).max():
                break
        common = _readable(mean)
        squares = np.square(mean @ common).sum(axis=0)
        return cls(
            positions, [rotation @ common for rotation in rotations], squares / squares.sum()
        )


def _need_factors(run: Run) -> None:
    """Raise InputError if the run has no factors."""
    if not run.config.rank:
        raise InputError(
            f"{run.path} has biases only ({named('rank')} 0), so there are no loadings: sample"
            f" with {named('rank')} 1 or more"
        )


def procrustes(matrix: Float64, target: Float64) -> Float64:
    """Return the orthogonal Q (K, K) that minimises the distance of matrix Q from the target."""
    left, _, right = np.linalg.svd(matrix.T @ target)
    return np.asarray(left @ right)


def varimax(loadings: Float64) -> Float64:
    """Return the rotation (K, K) that maximises the variance of the squared loadings."""
    rotation = np.eye(loadings.shape[1])
    total = 0.0
    for _ in range(ROTATIONS):
        rotated = loadings @ rotation
        gradient = rotated**3 - rotated * np.square(rotated).mean(axis=0)
        left, values, right = np.linalg.svd(loadings.T @ gradient)
        rotation = left @ right
        if values.sum() <= total * (1 + TOLERANCE):
            break
        total = values.sum()
    return rotation


def _readable(mean: Float64) -> Float64:
    """Return the rotation of mean loadings to columns that can be read, ordered and with signs."""
    _, values, right = np.linalg.svd(mean, full_matrices=False)
    axes = np.eye(mean.shape[1])
    axes[:, : len(right)] = right.T
    n_factors = _number_of(np.square(values) / np.square(values).sum())
    kept = axes[:, :n_factors]
    axes[:, :n_factors] = kept @ varimax(mean @ kept)
    rotated = mean @ axes
    order = np.argsort(-np.square(rotated).sum(axis=0), kind="stable")
    signs = np.where((rotated**3).sum(axis=0) < 0, -1.0, 1.0)
    return (axes * signs)[:, order]


def _number_of(shares: Float64) -> int:
    """Return how many of the shares, in descending order, hold `SHARE` of all."""
    return int(np.searchsorted(np.cumsum(shares), SHARE * (1 - 1e-12))) + 1


def loadings(
    run: Run,
    *,
    items: Array | None = None,
    users: Array | None = None,
    target: object = None,
    of_draw: Callable[[int], FactorsAtDraw] | None = None,
    name: str = "factor",
) -> Loadings:
    """Return loadings of items and scores of users, in one orientation of all draws and chains.

    Parameters
    ----------
    items, users : (n,) array, optional
        Names in the order of the tables (`Vocabulary.rows_in_order`).
    target : (n, K) array, optional
        For each item, in the order of the table, which dimensions it belongs to.
    of_draw : callable, optional
        Returns scores and loadings at a draw, by default those of the run's factors.
    name : str
        What the columns of loadings are called.
    """
    if of_draw is None:
        _need_factors(run)
        of_draw = partial(_of_run, run)
    order = run.items.rows_in_order(items)
    if target is not None:
        estimates = over_draws(run, _to_target(run, of_draw, order, target))
        squares = np.square(estimates["item"].mean).sum(axis=0)
        share = squares / squares.sum()
        n_factors = len(share)
    else:
        orientation = Orientation.find(run, of_draw=lambda position: of_draw(position).items)
        estimates = over_draws(run, _turned(of_draw, orientation))
        share = orientation.share
        n_factors = orientation.n_factors
    return Loadings(
        items=_table(run.items, estimates["item"], order, name),
        users=_table(run.users, estimates["user"], run.users.rows_in_order(users), "factor"),
        share=share,
        n_factors=n_factors,
        correlation=estimates["correlation"].mean,
        correlation_sd=estimates["correlation"].sd,
    )


def _turned(
    of_draw: Callable[[int], FactorsAtDraw], orientation: Orientation
) -> Callable[[int], dict[str, Float64]]:
    """Return a function of a draw's position: its arrays in the common orientation."""

    def arrays_at(position: int) -> dict[str, Float64]:
        scores, loadings = of_draw(position)
        rotation = orientation.rotations[position]
        return {
            "item": loadings @ rotation,
            "user": scores @ rotation,
            "correlation": np.eye(len(rotation)),
        }

    return arrays_at


def _to_target(
    run: Run, of_draw: Callable[[int], FactorsAtDraw], order: Array, target: object
) -> Callable[[int], dict[str, Float64]]:
    """Return a function of a draw's position: its arrays, rotated to a target.

    Raises InputError if the target has another shape, or leaves a dimension open.
    """
    run.need_draws()
    n_factors = of_draw(0).items.shape[1]
    given = np.asarray(target, bool)
    if given.shape != (len(order), n_factors):
        raise InputError(
            f"the target has the shape {given.shape}: expected a row for each of {len(order)} items"
            f" and a column for each of {n_factors} dimensions"
        )
    belongs = np.ones((len(run.items), n_factors), bool)  # items without a row say nothing
    belongs[order] = given
    few = ~belongs.any(axis=0) | ((~belongs).sum(axis=0) < n_factors - 1)
    if few.any():
        raise InputError(
            f"dimension {int(np.flatnonzero(few)[0]) + 1} of the target needs an item that belongs"
            f" to it, and {n_factors - 1} that do not"
        )

    def arrays_at(position: int) -> dict[str, Float64]:
        scores, loadings = of_draw(position)
        turn = oblique(loadings, belongs)
        inverse = np.linalg.inv(turn)
        return {
            "item": loadings @ turn,
            "user": scores @ inverse.T,
            "correlation": inverse @ inverse.T,
        }

    return arrays_at


def oblique(loadings: Float64, belongs: Mask) -> Float64:
    """Return the map (K, K) of loadings to a target: which items (n, K) belong to a dimension.

    Scores with the covariance I have variances 1 afterwards.
    """
    to_orthonormal = np.linalg.inv(np.linalg.qr(loadings)[1])  # of columns
    columns = []
    for k in range(loadings.shape[1]):
        others = loadings[~belongs[:, k]]
        _, _, right = np.linalg.svd(np.linalg.qr(others @ to_orthonormal)[1])
        column = to_orthonormal @ right[-1]
        columns.append(column * np.sign(((loadings[belongs[:, k]] @ column) ** 3).sum()))
    turn = np.column_stack(columns)
    inverse = np.linalg.inv(turn)
    return np.asarray(turn * np.sqrt(np.square(inverse).sum(axis=1)), np.float64)


def _table(vocabulary: Vocabulary, estimates: Estimates, order: Array, name: str) -> Table:
    columns = Table(vocabulary.table(vocabulary.ids[order]))
    for k in range(estimates.mean.shape[1]):
        columns[f"{name}_{k + 1}"] = estimates.mean[order, k]
        columns[f"{name}_{k + 1}_sd"] = estimates.sd[order, k]
    return columns


def turned_loadings(run: Run) -> Float64:
    """Return draws of the loadings that hold 99 % of the variance, (chains, draws, items, n).

    They are the last saved draws of each chain, as many as the shortest chain has.
    """
    orientation = Orientation.find(run)
    turned = []
    for position, rotation in enumerate(orientation.rotations):
        turned.append(loadings_at(run, position) @ rotation[:, : orientation.n_factors])
    return saved_of_chains(run, turned)


def variance_shares(run: Run) -> Float64:
    """Return the shares of the factors in the variance, from a few draws, (K,); none without any.

    Runs without factors or without saved draws have none.
    """
    if not run.config.rank or not run.draws:
        return np.zeros(0)
    bytes_of_draw = 4 * run.config.rank * (len(run.users) + len(run.items))
    number = min(FEW_DRAWS, max(2, KEPT_BYTES // bytes_of_draw))
    return Orientation.find(run, spread_positions(run, number)).share
