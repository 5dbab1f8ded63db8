"""Completes matrices: predicts all cells, or draws them from their predictive distribution.

A cell's prediction is that of `dsgmcmc.posterior.cells.predict`. All cells of a block of rows are
computed together. If the predictor is the expected rating, the mean over the draws is one product
of matrices, with the draws side by side (`dsgmcmc.posterior.lists.screen.Stack`), in float32.

An imputation is a matrix drawn from the posterior predictive distribution: parameters are those of
one saved draw, and every cell has its own noise. Its draws are spread over all chains in proportion
to their weights. Random numbers are addressed by the matrix, the user and the item.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.model.predictive.base import PredictorDraws
from dsgmcmc.posterior.cells.predict import Predictor
from dsgmcmc.posterior.lists.screen import Average, Screen, Stack, TableAverage
from dsgmcmc.posterior.matrix.draws import MatrixDraws
from dsgmcmc.posterior.matrix.known import BoundedCells, cells_in_rows
from dsgmcmc.posterior.moments import Estimates
from dsgmcmc.posterior.run import Run
from dsgmcmc.ratings.pairs import join, select
from dsgmcmc.types import Array, Float64, Int32

#: Cells of a block if products of matrices predict it, and if it is predicted draw by draw.
CELLS_OF_PRODUCTS = 1 << 19
CELLS_OF_DRAWS = 1 << 17
#: Cells within bounds whose quantiles at all draws are in memory together.
PAIRS_WITHIN = 4096
#: Gauss-Legendre nodes and weights on (0, 1), by which quantiles are averaged.
_NODES, _SHARES = np.polynomial.legendre.leggauss(12)
NODES = ((_NODES + 1) / 2).tolist()
SHARES = (_SHARES / 2).tolist()


class Within(NamedTuple):
    """What is predicted of cells that are known to lie within bounds, (q,) float64 each."""

    mean: Float64
    sd: Float64
    low: Float64
    high: Float64

    @classmethod
    def of(cls, values: Float64, weights: Float64, levels: tuple[float, float]) -> Within:
        """Summarise quantiles at the nodes and at all draws, (nodes, q, draws).

        Quantiles of their mixture are those of these values with the weights of draws and nodes.
        """
        shares = np.array(SHARES)
        mean = np.einsum("nqd,n,d->q", values, shares, weights)
        square = np.einsum("nqd,n,d->q", np.square(values), shares, weights)
        sd = np.sqrt(np.maximum(square - np.square(mean), 0.0))
        in_order = values.transpose(1, 0, 2).reshape(values.shape[1], -1)
        order = np.argsort(in_order, axis=1)
        ends = np.cumsum(np.outer(shares, weights).ravel()[order], axis=1)
        quantiles = []
        for level in levels:
            at = np.minimum((ends < level).sum(axis=1), ends.shape[1] - 1)[:, None]
            found = np.take_along_axis(in_order, np.take_along_axis(order, at, axis=1), axis=1)
            quantiles.append(found[:, 0])
        return cls(mean, sd, *quantiles)

    def between(self, bounded: BoundedCells) -> Within:
        """Return the same with values between the bounds, which rounding may leave."""
        mean, low, high = (
            np.clip(values, bounded.lower, bounded.upper)
            for values in (self.mean, self.low, self.high)
        )
        return Within(mean, self.sd, low, high)


class Block(NamedTuple):
    """Predicted or drawn cells of some rows of a matrix.

    Attributes
    ----------
    number : int
        Number of the matrix that is drawn, from 0; 0 if cells are predicted.
    rows : slice
        Rows of the matrix.
    values : dict of str to (n, J) float array
        The ``rating`` of every cell, and what was asked for beside it, by name.
    """

    number: int
    rows: slice
    values: Mapping[str, Array]

    def keeping(self, known: Array) -> Block:
        """Return the block with known cells, (n, J) with NaN in others, whose sd is 0."""
        is_known = ~np.isnan(known)
        kept = {}
        for name, predicted in self.values.items():
            kept[name] = np.where(is_known, 0 if name == "sd" else known, predicted)
        return self._replace(values=kept)


@dataclass(frozen=True)
class Completion:
    """Predicts the cells of a matrix, a block of users at a time.

    Parameters
    ----------
    predictor : Predictor
        It has the indices of rows that were not sampled.
    items : (J,) int32
        Columns of the matrix: rows of items in the run, -1 for items without ratings.
    """

    predictor: Predictor
    items: Int32

    @property
    def run(self) -> Run:
        """The run, which has saved draws."""
        return self.predictor.run

    def _are_sampled(self, entity: str, index: Int32) -> bool:
        """Return whether all these users (or items) were sampled."""
        return bool(self.predictor.predictors.rows[entity].are_sampled(index).all())

    @cached_property
    def _draws(self) -> MatrixDraws:
        return MatrixDraws(self.run, self.predictor.predictors.rows, self.items)

    @cached_property
    def _screen(self) -> Screen | None:
        """Rows of all items, whose products give expected ratings; None if these are not exact."""
        law = self.run.config.law
        if law.transform.name != "identity" or not self._are_sampled("item", self.items):
            return None
        screen = Screen.of_run(self.run, at_least=None, sds=0.0)
        if screen is None or isinstance(screen.average, TableAverage):
            return None
        return screen

    def blocks(
        self, users: Int32, *, draws: int = 0, others: Sequence[str] = ()
    ) -> list[tuple[int, slice]]:
        """Return the blocks of `filled`: numbers of matrices, and slices of users."""
        cells = CELLS_OF_DRAWS
        if self._screen is not None and not (draws or others or self.predictor.options.of_mean):
            cells = CELLS_OF_PRODUCTS
        step = max(1, cells // max(len(self.items), 1))
        slices = [slice(start, start + step) for start in range(0, len(users), step)]
        return [(number, rows) for number in range(max(draws, 1)) for rows in slices]

    def filled(
        self,
        users: Int32,
        bounded: BoundedCells | None,
        *,
        draws: int = 0,
        others: Sequence[str] = (),
        noise: bool = True,
    ) -> Iterator[Block]:
        """Yield all cells of users, block after block.

        Parameters
        ----------
        users : (n,) int32
        bounded : BoundedCells or None
            Cells that are predicted or drawn between their bounds.
        draws : int
            Number of matrices that are drawn, one after the other; 0 predicts one.
        others : sequence of str
            What is predicted beside ratings: ``sd``, and quantiles by the `names` of the predictor.
        noise : bool
            Whether draws are new ratings; otherwise expected ratings, at one draw each.
        """
        positions = self.positions(draws)
        for number, rows in self.blocks(users, draws=draws, others=others):
            within = cells_in_rows(bounded, rows)
            if not draws:
                yield Block(number, rows, self._predicted(users[rows], others, within))
                continue
            drawn = self.imputed(
                users[rows],
                first=rows.start,
                number=number,
                position=positions[number],
                bounded=within,
                noise=noise,
            )
            yield Block(number, rows, {"rating": drawn})

    def _predicted(
        self, users: Int32, others: Sequence[str], bounded: BoundedCells | None
    ) -> dict[str, Array]:
        """Return predictions of a block, (n, J) each; those of bounded cells between bounds."""
        cells = self._cells(users, others)
        if bounded is None:
            return cells
        options = self.predictor.options
        names = ("rating", "sd", *options.predicted_columns[2:])
        within = self.within(users, bounded, options.levels)
        for name, values in zip(names, within, strict=True):
            if name in cells:
                cells[name][bounded.row, bounded.column] = values
        return cells

    # ------------------------------------------------------------------ predictions

    def _cells(self, users: Int32, others: Sequence[str]) -> dict[str, Array]:
        """Return predictions without bounds, by the cheapest way to what was asked for."""
        if not others and not self.predictor.options.of_mean:
            return {"rating": self._means(users)}
        if [*others] == ["sd"] and not self.predictor.options.of_mean:
            mean, sd = self._moments(users)
            return {"rating": mean, "sd": sd}
        columns = self.predictor.columns(*self._pairs(users))
        columns["rating"] = columns[self.predictor.names[0]]
        return {name: self._as_block(columns[name]) for name in ("rating", *others)}

    def _pairs(self, users: Int32) -> tuple[Int32, Int32]:
        """Return the users and the items of all cells, row by row."""
        return np.repeat(users, len(self.items)), np.tile(self.items, len(users))

    def _as_block(self, cells: Array) -> Array:
        return cells.reshape(-1, len(self.items))

    def _means(self, users: Int32) -> Array:
        """Return the expected ratings of users and all items of the matrix, (n, J)."""
        screen = self._screen
        if screen is None or not self._are_sampled("user", users):
            return self._moments(users).mean
        rows = screen.stack.users(users)
        if self.run.config.law.is_linear:
            means = screen.stack.mean(rows)
            means += np.float32(self.run.mean)
        else:
            means, _ = screen.stack.moments(rows, screen.average)
            means += np.float32(screen.average.start)
        return self.predictor.limits.clip(means[:, self.items])

    def _moments(self, users: Int32) -> Estimates:
        """Return means and standard deviations of new ratings, noise included, (n, J) each."""
        if self.run.config.law.is_linear and self._screen and self._are_sampled("user", users):
            return self._linear_moments(users, self._screen.stack)
        return Estimates(*map(self._as_block, self.predictor.moments(*self._pairs(users))))

    def _linear_moments(self, users: Int32, stack: Stack) -> Estimates:
        """Return moments if the expected rating is the predictor, by products of matrices."""
        run = self.run
        mean, variance = stack.moments(stack.users(users), Average())
        mean = mean[:, self.items]
        variance = variance[:, self.items].astype(np.float64)
        of_users = np.empty((len(users), len(run.draws)))
        of_items = np.empty((len(run.draws), len(self.items)))
        for position, weight in enumerate(run.draw_weights.tolist()):
            draw = run.draw(position)
            noise = self._noise(position)
            of_users[:, position] = weight * noise * draw.inverse_scale["user"][users]
            of_items[position] = draw.inverse_scale["item"][self.items]
        variance += of_users @ of_items
        return Estimates(self.predictor.limits.clip(mean + np.float32(run.mean)), np.sqrt(variance))

    def _noise(self, position: int) -> float:
        """Return the variance of a rating at noise scales of 1, at a draw."""
        run = self.run
        draw = run.draw(position)
        one_rating = PredictorDraws(
            eta=np.zeros((1, 1), np.float32),
            noise=np.full((1, 1), 1 / draw.tau, np.float32),
            spread=np.zeros((1, 1), np.float32),
            weights=np.ones(1),
            parameters=draw.one_set(run.config.law),
        )
        return float(run.config.law.predictive(one_rating).sd[0]) ** 2

    # ------------------------------------------------------------------ cells within bounds

    def within(
        self, users: Int32, bounded: BoundedCells, levels: tuple[float, float] = (0.05, 0.95)
    ) -> Within:
        """Return what is predicted of cells that are known to lie within bounds, (q,) each.

        It is that of the law between the bounds, over the draws.

        Parameters
        ----------
        users : (n,) int32
            Users of the rows in which the cells are.
        bounded : BoundedCells
        levels : (float, float)
            Probabilities of the two quantiles.
        """
        parts = []
        for start in range(0, len(bounded.row), PAIRS_WITHIN):
            part = select(bounded, slice(start, start + PAIRS_WITHIN))
            draws = self.predictor.predictors.at(users[part.row], self.items[part.column])
            values = np.stack(
                [
                    self._quantiles_within(np.full(draws.eta.shape, node), draws, part)
                    for node in NODES
                ]
            )
            parts.append(Within.of(values, draws.weights, levels).between(part))
        return join(parts)

    def _quantiles_within(
        self, p: Float64, draws: PredictorDraws, bounded: BoundedCells
    ) -> Float64:
        """Return quantiles of cells between their bounds at every draw, (q, draws)."""
        inverse: Array = (1 / bounded.weights[:, None]).astype(np.float32)
        return self.run.config.law.quantiles_within(
            p,
            draws._replace(noise=draws.noise * inverse),
            (bounded.lower, bounded.upper),
            self.run.mean,
        )

    # ------------------------------------------------------------------ imputations

    def need_draws(self, number: int, *, noise: bool) -> None:
        """Raise InputError if so many matrices cannot be drawn.

        Ratings may have no predictive distribution. Without noise, matrices of one saved draw are
        equal, so that there are no more than saved draws.
        """
        if not self.run.config.law.can_be_evaluated:
            raise InputError(
                f"{self.run.path}: {self.run.config.likelihood} predicts scores, not ratings, so no"
                " ratings can be drawn"
            )
        if not noise:
            self.run.need_draws(number)

    def positions(self, imputations: int) -> list[int]:
        """Return the position of the saved draw from which each imputation is drawn."""
        middles = (np.arange(imputations) + 0.5) / imputations
        ends = np.cumsum(self.run.draw_weights)
        positions: list[int] = np.minimum(np.searchsorted(ends, middles), len(ends) - 1).tolist()
        return positions

    def imputed(
        self,
        users: Int32,
        *,
        first: int,
        number: int,
        position: int,
        bounded: BoundedCells | None = None,
        noise: bool = True,
    ) -> Array:
        """Return new ratings of users drawn at a saved draw, noise included, (n, J).

        Without `noise` they are expected ratings, of cells within bounds those of all new ratings.

        Parameters
        ----------
        users : (n,) int32
        first : int
            Position of the first user in the matrix.
        number : int
            Number of the imputation, from 0.
        position : int
            Position of the saved draw.
        bounded : BoundedCells, optional
            Cells in these rows that are drawn between their bounds.
        """
        run = self.run
        draws = self._draws.drawn(position, users, first, number)
        if not noise:
            expected = run.config.law.expectation(draws, run.mean, run.levels).mean
            return self.predictor.limits.clip(expected.reshape(len(users), -1))
        uniforms = self._draws.uniforms(users, first, number)
        predictive = run.config.law.predictive(draws, run.mean, run.levels)
        drawn = self.predictor.limits.clip(
            predictive.quantile(uniforms.reshape(-1)).reshape(uniforms.shape)
        )
        if bounded is not None:
            cells = (bounded.row, bounded.column)
            chosen = np.ravel_multi_index(cells, uniforms.shape)
            p = uniforms[cells][:, None]
            within = self._quantiles_within(p, draws.at(chosen), bounded)[:, 0]
            drawn[cells] = np.clip(within, bounded.lower, bounded.upper)
        return drawn
