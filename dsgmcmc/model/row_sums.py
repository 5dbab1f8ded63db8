"""Sums over the ratings of every row, given the rows of the other factor.

*Sufficient statistics* of a row are exact. The statistics of the rows of W stay in place, and a
tour of the ring brings them the state of every column block. For the rows of H (the columns of the
rating matrix), a tour sends only the statistics, (D + 1)(D + 2) / 2 float32 per row of H. If the
likelihood has a term for every pair, rated or not, these terms add the same statistics to every
row.

*Fisher information* is approximate: it is computed from averages over all rows of the other factor.

The *covariates* phi_j of a row of W are (H_j, 1), and those of a row of H are (W_i, 1): the numbers
that multiply the row's elements in the predictor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import is_
from typing import NamedTuple

import numpy as np

from dsgmcmc.kernels.formulas.formula import Formula, RowPrior, diagonal
from dsgmcmc.kernels.gradient import product_kernel
from dsgmcmc.kernels.normal_rows import (
    OuterProducts,
    add_outer_products,
    addresses,
    statistics_width,
)
from dsgmcmc.kernels.products import inner
from dsgmcmc.model.circulation import OTHER, Circulation, RatingsCell
from dsgmcmc.model.likelihoods import Law
from dsgmcmc.model.likelihoods.background import CommonPrecision
from dsgmcmc.model.likelihoods.ordinal.logit_weights import NormalRatings
from dsgmcmc.targets.base import REACH, Information, curvature_bound
from dsgmcmc.targets.state import ParameterBlock, Rows
from dsgmcmc.types import Array, Factor, Finish, Float32, Float64, Int64, Named, Shapes

#: Names of temporary arrays of blocks.
STATISTICS = "statistics"
SENT = "information.sent"
PRODUCT = "information.product"

SQUARES = Formula(
    """
squared = theta * theta
square = n * squared
size = unit * squared
""",
    columns=("unit",),
    rows=("n",),
    column_sums=("square",),
    row_sums=("size",),
)


class MeanSquares(NamedTuple):
    """Mean squares of the covariates, and the sizes of the rows.

    Attributes
    ----------
    c : dict of Factor to (D,) float64
        Mean squares of the covariates over all ratings.
    sizes : dict of ParameterBlock to (n,) float64
        Mean, over all columns except the bias, of a row's squared elements, each divided by the
        column's mean square at an earlier state; 0 if there is none.
    grown : bool
        Whether the size of any row is above its field ``reach``.
    """

    c: dict[Factor, Float64]
    sizes: dict[ParameterBlock, Float64]
    grown: bool


@dataclass
class _Statistics:
    """Statistics of a factor's rows on this process.

    Attributes
    ----------
    rows : Rows
    whole : (n, (D + 1)(D + 2) / 2) float32
        Of all rows.
    parts : list of float32 array
        Views of `whole`, by block.
    cells : list of OuterProducts
        The arrays from which they were last added up in one call, if they were.
    calls : int64 array
        Addresses of these arrays.
    source : list
        Field of the other factor and ratings of the cells of that call.
    """

    rows: Rows
    whole: Float32
    parts: list[Float32]
    cells: Sequence[OuterProducts]
    calls: Int64
    source: Sequence[object]


class RowSums:
    """Sums over the ratings of every row. All methods are collective.

    Parameters
    ----------
    circulation : Circulation
        The blocks of both factors.
    likelihood : Law
        The likelihood, whose noise scales are weights in these sums.
    prior : callable
        Returns the prior of a block's rows.
    """

    def __init__(
        self,
        circulation: Circulation,
        likelihood: Law,
        prior: Callable[[ParameterBlock], RowPrior],
    ) -> None:
        self._circulation = circulation
        self._likelihood = likelihood
        self._prior = prior
        self._timers = circulation.ring.phases
        self._memory = np.empty(0, np.float32)
        self._statistics: dict[Factor, _Statistics] = {}
        self._roots: dict[tuple[Factor, int], Float32] = {}

    # ------------------------------------------------------------------ sufficient statistics

    def statistics(self, factor: Factor, position: str) -> tuple[Rows, Float32]:
        """Sufficient statistics of all rows of a factor on this process. Collective.

        Column blocks must be at home, and the likelihood conditionally Gaussian.

        Parameters
        ----------
        factor : Factor
            The factor to which the rows belong.
        position : str
            Field that holds the other factor's state.

        Returns
        -------
        rows : Rows
        statistics : (n, (D + 1)(D + 2) / 2) float32
            In the layout of `dsgmcmc.kernels.normal_rows`; valid until the next call.
        """
        sums = self._zeros(factor)
        self._add_statistics(factor, position, sums)
        background = self._likelihood.background
        if background is not None:
            gram = background.gram(self._circulation, position, factor)
            common = gram[np.tril_indices(len(gram))]
            sums.whole[:, : len(common)] += common
        return sums.rows, sums.whole

    def _add_statistics(self, factor: Factor, position: str, sums: _Statistics) -> None:
        """Add the statistics of all cells to those of the rows of a factor. Collective.

        A single process adds them in one call, unless ratings have weights, which take memory.
        """
        rank = self._likelihood.rank
        alone = self._circulation.ring.size == 1
        source = [position, *self._circulation.ratings.train.values()]
        if alone and len(source) == len(sums.source) and all(map(is_, source, sums.source)):
            with self._timers("gradient"):
                for rows in self._circulation.rows_by_factor():
                    if rows.factor != factor:
                        for block in rows.blocks:
                            self._root(block)
                add_outer_products(sums.calls, sums.rows.dimension, rank=rank)
            return
        for block, array in zip(sums.rows.blocks, sums.parts, strict=True):
            block.arrays[STATISTICS] = array
        roots: dict[int, Float32] = {}
        cells = []
        for cell in self._statistics_tour(factor, position):
            begin = self._timers.enter()
            weighted = self._likelihood.normal_ratings(cell, factor)
            products = self._outer_products(cell, factor, position, weighted=weighted, roots=roots)
            if alone and weighted is None:
                cells.append(products)
            else:
                add_outer_products(
                    addresses([products]),
                    sums.rows.dimension,
                    rank=rank,
                    by_rating=weighted is not None,
                )
            self._timers.leave("gradient", begin)
        for block in sums.rows.blocks:
            del block.arrays[STATISTICS]
        if cells:
            sums.source = source
            sums.cells = cells
            sums.calls = addresses(cells)
            with self._timers("gradient"):
                add_outer_products(sums.calls, sums.rows.dimension, rank=rank)

    def _outer_products(
        self,
        cell: RatingsCell,
        factor: Factor,
        position: str,
        *,
        weighted: NormalRatings | None,
        roots: dict[int, Float32],
    ) -> OuterProducts:
        """Arrays of a cell, for the statistics of its rows of a factor.

        `roots` keeps the square roots of the other factor's noise scales, by block.
        """
        if factor == Factor.W:
            rows = cell.row
            others = cell.column
            ratings = cell.ratings
        else:
            rows = cell.column
            others = cell.row
            ratings = cell.ratings.by_column
        if weighted is not None:
            return OuterProducts(
                weighted.ratings.arrays, others[position], weighted.root, rows[STATISTICS]
            )
        if others.index not in roots:
            roots[others.index] = self._root(others)
        return OuterProducts(
            ratings.arrays, others[position], roots[others.index], rows[STATISTICS]
        )

    def _root(self, block: ParameterBlock) -> Float32:
        """Square roots of a block's noise scales, (n,), in memory that later calls use again."""
        key = block.factor, block.index
        scale = self._likelihood.noise_scale(block)
        root = self._roots.get(key)
        if root is None:
            root = self._roots[key] = np.empty(len(block.counts), np.float32)
        elif scale is block.ones:
            return root
        return np.sqrt(scale, out=root)

    def _zeros(self, factor: Factor) -> _Statistics:
        """Return statistics of a factor's rows, set to zero, in memory that is used again.

        Fresh memory in every sweep would cost as much as drawing the rows.
        """
        rows = next(rows for rows in self._circulation.rows_by_factor() if rows.factor == factor)
        sums = self._statistics.get(factor)
        if sums is None or sums.rows is not rows:
            sums = self._statistics[factor] = self._new_statistics(rows)
        sums.whole[:] = 0.0
        return sums

    def _new_statistics(self, rows: Rows) -> _Statistics:
        """Statistics of rows; both factors share the memory."""
        groups = list(self._circulation.rows_by_factor())
        width = statistics_width(rows.dimension)
        most = max(len(group.n_data) for group in groups)
        if most * width > len(self._memory):
            self._memory = np.empty(most * width, np.float32)
        n = len(rows.n_data)
        whole = self._memory[: n * width].reshape(n, width)
        parts = [part for _, part in rows.by_block(whole)]
        return _Statistics(rows, whole, parts, (), np.zeros(0, np.int64), ())

    def _statistics_tour(self, factor: Factor, position: str) -> Iterator[RatingsCell]:
        """The cells on the tour that adds up the statistics of a factor's rows. Collective.

        A single process visits them block by block, so that the statistics of a block stay in the
        second-level cache. A block meets the others in the same order as on several processes.
        """
        if factor == Factor.W:
            cells = self._circulation.tour((position, *self._likelihood.drawn))
        else:
            cells = self._circulation.tour((STATISTICS,), returning=(STATISTICS,))
        if self._circulation.ring.size > 1:
            return cells

        def summed_block(cell: RatingsCell) -> int:
            return cell.row.index if factor == Factor.W else cell.column.index

        return iter(sorted(cells, key=summed_block))

    # ------------------------------------------------------------------ Fisher information

    def information(
        self, position: str, bound: bool, earlier: Mapping[Factor, Float64], tau: float
    ) -> Information:
        """Fisher information of every row at the state in `position`. Collective.

        `bound` requests curvature bounds; they are also computed if a row's size in units of the
        mean squares `earlier` exceeds its field ``reach``. `tau` is the precision of the noise.
        """
        circulation = self._circulation
        n, squares = self._likelihood.counts(circulation)
        mean_squares = self._mean_squares(position, n, earlier)
        prior_precision = {}
        for rows in circulation.rows_by_factor():
            prior = self._prior(rows.blocks[0])
            prior_precision[rows.factor] = prior.precision.astype(np.float64)
        common = CommonPrecision(prior_precision, dict.fromkeys(prior_precision, 1.0))
        background = self._likelihood.background
        if background is not None:
            common = background.common_precision(circulation, position, prior_precision, tau)
        information = Information(
            c=mean_squares.c,
            lambda_={factor: diagonal(array) for factor, array in common.precision.items()},
            tau=tau,
            n=n,
            squares=squares,
            bound=None,
            common=common.precision,
            sizes=mean_squares.sizes,
        )
        if not (bound or mean_squares.grown):
            return information
        return information._replace(bound=self._bounds(information, common.curvature))

    def _bounds(
        self, information: Information, curvature: Mapping[Factor, float]
    ) -> dict[ParameterBlock, Float64]:
        """Curvature bound of every row, given each factor's curvature by the sum over all pairs."""
        bounds: dict[ParameterBlock, Float64] = {}
        for block in self._circulation.blocks():
            n = information.n[block]
            mean = information.c[block.factor].astype(np.float32)
            shared = information.lambda_[block.factor].astype(np.float32)
            scale = self._prior(block).scale
            if scale is not None:
                shared = shared * scale
            data = np.float32(information.tau) * n[:, None] * mean
            bound = curvature_bound(n, information.squares[block], data, shared)
            bounds[block] = bound + (curvature[block.factor] - 1)
        return bounds

    def _mean_squares(
        self, position: str, n: dict[ParameterBlock, Array], earlier: Mapping[Factor, Float64]
    ) -> MeanSquares:
        """Mean squares of the covariates, given the sums `n` of every row's weights. Collective.

        `earlier` are mean squares of the columns at an earlier state; empty if there is none.
        """
        partials: dict[str, Float64] = {}
        sizes: dict[ParameterBlock, Float64] = {}
        for rows in self._circulation.rows_by_factor():
            name = rows.factor.name
            counts = [n[block] for block in rows.blocks]
            sums = rows.update(
                SQUARES,
                theta=position,
                n=np.concatenate(counts),
                unit=self._size_unit(rows, earlier),
            )
            sizes.update(rows.by_block(sums["size"]))
            partials[name] = sums["square"]
            totals_of_blocks = [[np.add.reduce(count, dtype=np.float64)] for count in counts]
            partials[f"{name}.n"] = np.array(totals_of_blocks)
            if earlier:
                grown = sums["size"] > rows.joined(REACH, rows.dtype)[:, 0]
                numbers = [[np.count_nonzero(of_block)] for _, of_block in rows.by_block(grown)]
                partials[f"{name}.grown"] = np.array(numbers, np.float64)
        totals = self._circulation.ring.sum(partials)
        c = {}
        for factor, other in OTHER.items():
            c[factor] = totals[other.name] / totals[f"{other.name}.n"]
            if self._likelihood.biases:
                c[factor][-1] = 1.0
        any_grown = bool(earlier) and any(totals[f"{factor.name}.grown"][0] for factor in Factor)
        return MeanSquares(c, sizes, any_grown)

    def _size_unit(self, rows: Rows, earlier: Mapping[Factor, Float64]) -> Array:
        """Multipliers, (D,), of squared elements in the size of a row; 0 without `earlier`."""
        unit = np.zeros(rows.dimension, rows.dtype)
        if earlier:
            n_factors = len(unit) - self._likelihood.biases
            mean_squares = np.maximum(earlier[OTHER[rows.factor]], 1e-30)
            unit[:] = 1 / (max(n_factors, 1) * mean_squares)
            unit[n_factors:] = 0
        return unit

    # ------------------------------------------------------------------ covariates

    def second_moments(
        self, position: str, counts: Mapping[ParameterBlock, Array], finish: Finish, result: Shapes
    ) -> dict[str, Float64]:
        """`dsgmcmc.targets.base.Target.second_moments`. Collective."""
        partials = {}
        for rows in self._circulation.rows_by_factor():
            products = []
            for block in rows.blocks:
                covariates = self._covariates(block, position, np.sqrt(counts[block]))
                products.append(inner(covariates, covariates))
            totals = [[counts[block].sum(dtype=np.float64)] for block in rows.blocks]
            partials[rows.factor.name] = np.array(products)
            partials[f"{rows.factor.name}.n"] = np.array(totals)

        def finish_means(sums: dict[str, Float64]) -> Named:
            means = {}
            for factor, other in OTHER.items():
                means[factor] = sums[other.name] / sums[f"{other.name}.n"]
            return finish(means)

        return self._circulation.ring.sum(partials, finish_means, result)

    def covariate_sums(self, position: str, out: str) -> None:
        """Set field `out` of every row i to the sum over its data of w_ij phi_j. Collective.

        w_ij is the product of the noise scales of both rows.
        """
        scale = self._likelihood.noise_scale
        for block in self._circulation.blocks():
            block.arrays[SENT] = self._covariates(block, position, scale(block))
        self._circulation.spread(SENT, out)
        for block in self._circulation.blocks():
            del block.arrays[SENT]
            block[out][:] *= scale(block)[:, None]

    def multiply_by_moments(self, position: str, field: str) -> None:
        """Multiply every row of a field by the second moments of its covariates. Collective."""
        scale = self._likelihood.noise_scale
        blocks = list(self._circulation.blocks())
        for block in blocks:
            block.arrays[SENT] = self._covariates(block, position, np.sqrt(scale(block)))
            block.arrays[PRODUCT] = np.empty_like(block[SENT])
        multiply = product_kernel(blocks[0].dimension)
        with self._timers("gradient"):
            cells = self._circulation.tour(
                (SENT, field, PRODUCT), returning=(PRODUCT,), sums=(PRODUCT,)
            )
            for row, column, ratings in cells:
                # the kernel also adds to the other side of a cell, where nothing is needed
                unused_column = np.empty_like(column[SENT])
                unused_row = np.empty_like(row[SENT])
                pattern = ratings.pattern
                multiply(*pattern, row[field], column[SENT], row[PRODUCT], unused_column)
                multiply(*pattern, row[SENT], column[field], unused_row, column[PRODUCT])
        for block in blocks:
            del block.arrays[SENT]
            np.multiply(block.arrays.pop(PRODUCT), scale(block)[:, None], out=block[field])

    def _covariates(self, block: ParameterBlock, position: str, scale: Array) -> Array:
        """A block's rows as covariates of the other factor, (n, D), multiplied by `scale`, (n,)."""
        covariates = block[position].copy()
        if self._likelihood.biases:
            covariates[:, -1] = 1.0
        covariates *= scale[:, None]
        return covariates
