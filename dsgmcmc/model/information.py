"""Sums over the ratings of every row, given the other factor: sufficient statistics, and Fisher information.

*Sufficient statistics* are exact. For the rows of W, sums stay in place, and a tour of the ring sends the positions of
the column blocks past them. For the rows of H, a tour sends only their sums, (D + 1)(D + 2) / 2 float32 per column. If
the likelihood has a sum over all pairs, its contribution is the same for every row.

*Fisher information* is computed from averages over all rows of the other factor.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

import numpy as np

from dsgmcmc.kernels.formula import Formula, RowPrior
from dsgmcmc.kernels.outer import add_outer_products, statistics_width
from dsgmcmc.kernels.pattern import product_kernel
from dsgmcmc.kernels.products import gram
from dsgmcmc.model.circulation import OTHER, Circulation
from dsgmcmc.model.likelihoods import Law
from dsgmcmc.targets.base import NO_SUMS, REACH, Information, curvature_bound
from dsgmcmc.targets.state import ParameterBlock
from dsgmcmc.types import Array, Factor, Float32, Float64, Named, Shapes

SUMS, SENT, PRODUCT = "statistics", "information.sent", "information.product"

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


class RowInformation(ABC):
    """Sums over the ratings of every row; a base of `dsgmcmc.model.target.FactorTarget`.

    Attributes
    ----------
    circulation : Circulation
        The blocks of both factors, and the ratings.
    likelihood : Law
        Determines the weight of each rating, and whether the last column is the bias.
    """

    circulation: Circulation
    likelihood: Law

    @property
    @abstractmethod
    def noise_precision(self) -> float:
        """Noise precision tau of the current sub-chain."""

    @abstractmethod
    def prior(self, block: ParameterBlock) -> RowPrior:
        """Prior of a block's rows in the current sub-chain."""

    def row_statistics(self, factor: Factor, position: str) -> dict[ParameterBlock, Float32]:
        """Sufficient statistics of all rows of a factor, in the layout of `dsgmcmc.kernels.outer`. Collective.

        Column blocks must be at home, and the likelihood conditionally Gaussian.

        Parameters
        ----------
        factor : Factor
            The factor to which the rows belong.
        position : str
            Field that holds the other factor's state.
        """
        circulation, likelihood = self.circulation, self.likelihood
        blocks = [block for block in circulation.blocks() if block.factor == factor]
        for block in blocks:
            block.arrays[SUMS] = np.zeros((len(block.counts), statistics_width(block.dimension)), np.float32)
        if factor == Factor.W:
            cells = circulation.tour((position, *likelihood.drawn))
        else:
            cells = circulation.tour((SUMS,), returning=(SUMS,))
        timers = circulation.ring.phases
        for row, column, ratings in cells:
            rows, others, seen = (row, column, ratings) if factor == Factor.W else (column, row, ratings.by_column)
            begin = timers.enter()
            root = np.sqrt(likelihood.noise_scale(others))
            add_outer_products(seen.arrays, others[position], root, likelihood.rank, rows[SUMS])
            timers.leave("gradient", begin)
        of_all = likelihood.gram_of_all(circulation, position, factor)
        if of_all is not None:
            common = of_all[np.tril_indices(len(of_all))]
            for block in blocks:
                block.arrays[SUMS][:, : len(common)] += common
        return {block: block.arrays.pop(SUMS) for block in blocks}

    def information(
        self, position: str, bound: bool = True, earlier: Mapping[Factor, Float64] = NO_SUMS
    ) -> Information:
        """Fisher information of every row at the state in `position`. Collective."""
        circulation, likelihood, tau = self.circulation, self.likelihood, self.noise_precision
        n, squares = likelihood.counts(circulation)
        c, sizes, grown = self._mean_squares(position, n, earlier)
        first = [rows.blocks[0] for rows in circulation.rows_by_factor()]
        common = {block.factor: self.prior(block).precision.astype(np.float64) for block in first}
        common, curvature = likelihood.common_precision(circulation, position, common, tau)
        lambda_ = {factor: np.diag(p).copy() if p.ndim == 2 else p for factor, p in common.items()}
        information = Information(c, lambda_, tau, n, squares, None, common, sizes)
        if not (bound or grown):
            return information
        bounds: dict[ParameterBlock, Float64] = {}
        for rows in circulation.rows_by_factor():
            metric = {"c": c[rows.factor].astype(np.float32), "lambda_": lambda_[rows.factor].astype(np.float32)}
            weights, of_squares = (np.concatenate([sums[block] for block in rows.blocks]) for sums in (n, squares))
            average = curvature_bound(rows, weights, of_squares, tau=tau, **metric)
            bounds.update(rows.by_block(average + (curvature[rows.factor] - 1)))
        return information._replace(bound=bounds)

    def second_moments(
        self,
        position: str,
        counts: Mapping[ParameterBlock, Array],
        finish: Callable[[dict[Factor, Float64]], Named],
        result: Shapes,
    ) -> dict[str, Float64]:
        """Mean outer products, over the data, of the covariates of each factor's rows. Collective.

        Here: the covariates of a row of W are (H_j, 1), those of a row of H are (W_i, 1).
        """
        partials, biases = {}, self.likelihood.biases
        for rows in self.circulation.rows_by_factor():
            name = rows.factor.name
            partials[name] = np.array([gram(block[position], counts[block], biases) for block in rows.blocks])
            partials[f"{name}.n"] = np.array([[counts[block].sum(dtype=np.float64)] for block in rows.blocks])

        def means(sums: dict[str, Float64]) -> Named:
            return finish({factor: sums[other.name] / sums[f"{other.name}.n"] for factor, other in OTHER.items()})

        return self.circulation.ring.sum(partials, means, result)

    def own_sums(self, position: str, out: str) -> None:
        """Set field `out` of every row i to sum_j w_ij phi_j over the row's data, as in `own_products`. Collective.

        Here: phi_j is (H_j, 1) for the rows of W, and (W_j, 1) for the rows of H.
        """
        scale = self.likelihood.noise_scale
        for block in self.circulation.blocks():
            block.arrays[SENT] = self._covariates(block, position, scale(block))
        self.circulation.spread(SENT, out)
        for block in self.circulation.blocks():
            del block.arrays[SENT]
            block[out][:] *= scale(block)[:, None]

    def own_products(self, position: str, field: str) -> None:
        """Multiply every row y_i of a field by the second moments of the row's covariates. Collective.

        Here: phi_j is (H_j, 1) for the rows of W, and (W_j, 1) for the rows of H.
        """
        scale, blocks = self.likelihood.noise_scale, list(self.circulation.blocks())
        for block in blocks:
            block.arrays[SENT] = self._covariates(block, position, np.sqrt(scale(block)))
            block.arrays[PRODUCT] = np.empty_like(block[SENT])
        kernel = product_kernel(blocks[0].dimension)
        for cell in self.circulation.tour((SENT, field, PRODUCT), returning=(PRODUCT,), sums=(PRODUCT,)):
            begin = self.circulation.ring.phases.enter()
            row, column = cell.row, cell.column
            kernel(*cell.ratings.pattern, row[field], column[SENT], row[PRODUCT], np.empty_like(column[SENT]))
            kernel(*cell.ratings.pattern, row[SENT], column[field], np.empty_like(row[SENT]), column[PRODUCT])
            self.circulation.ring.phases.leave("gradient", begin)
        for block in blocks:
            del block.arrays[SENT]
            np.multiply(block.arrays.pop(PRODUCT), scale(block)[:, None], out=block[field])

    def _covariates(self, block: ParameterBlock, position: str, scale: Array) -> Array:
        """Return a block's rows as covariates of the other factor, each times its element of `scale` (n,), (n, D)."""
        covariates = block[position].copy()
        if self.likelihood.biases:
            covariates[:, -1] = 1.0
        covariates *= scale[:, None]
        return covariates

    def _mean_squares(
        self, position: str, n: dict[ParameterBlock, Array], earlier: Mapping[Factor, Float64]
    ) -> tuple[dict[Factor, Float64], dict[ParameterBlock, Float64], bool]:
        """Mean squares of the covariates, sizes of rows, and whether a row has grown. Collective.

        Returns
        -------
        c : dict of Factor to (D,) float64
            Means over all ratings.
        sizes : dict of ParameterBlock to (n,) float64
            Mean, over the columns without the bias, of a row's squared elements in units of `earlier`.
        grown : bool
            Whether the size of any row is above its field ``reach``.
        """
        biases = self.likelihood.biases
        partials: dict[str, Float64] = {}
        sizes: dict[ParameterBlock, Float64] = {}
        for rows in self.circulation.rows_by_factor():
            name, counts = rows.factor.name, [n[block] for block in rows.blocks]
            unit = np.zeros(rows.dimension, rows.dtype)
            if earlier:
                unit[:] = 1 / (max(len(unit) - biases, 1) * np.maximum(earlier[OTHER[rows.factor]], 1e-30))
                unit[len(unit) - biases :] = 0
            sums = rows.update(SQUARES, theta=position, n=np.concatenate(counts), unit=unit)
            sizes.update(rows.by_block(sums["size"]))
            partials[name] = sums["square"]
            partials[f"{name}.n"] = np.array([[count.sum(dtype=np.float64)] for count in counts])
            if earlier:
                grown = [np.count_nonzero(sizes[block] > block.row(REACH)) for block in rows.blocks]
                partials[f"{name}.grown"] = np.array(grown, np.float64)[:, None]
        both = self.circulation.ring.sum(partials)
        c = {}
        for factor, other in OTHER.items():
            c[factor] = both[other.name] / both[f"{other.name}.n"]
            if biases:
                c[factor][-1] = 1.0
        return c, sizes, any(both[f"{factor.name}.grown"][0] for factor in OTHER if earlier)
