"""Metrics: the coordinates in which samplers step.

P approximates the precision of a row's posterior. In the coordinates in which P is the identity,
all rows and columns move at the same pace, and one step size suits all data. A metric adds lines to
a sampler's formulas, which define

    step    h_i P^-1/2: the sampler's step h, smaller where a row's energy is more curved than P
    h_i     the step of a row, only with metrics that give each row a step
    p       p_ik, the share of the data in P_ik, only with such metrics

In a factorisation, P of a row of W is computed from H, n_i, tau and lambda, and P of a row of H
from W. So Gamma_i = sum_j d (P^-1)_ij / d theta_j [Ma 2015, eq. 3] is zero if both factors move at
once. P must use the current values of tau, lambda and a row's noise scale: values from an earlier
sweep were drawn given an earlier theta, and made posteriors too narrow, at any step
(docs/baoab.md).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from dsgmcmc.kernels.formulas.formula import Formula, Gradient, dense, diagonal
from dsgmcmc.kernels.products import add_rotated
from dsgmcmc.samplers.base import NORMAL
from dsgmcmc.targets.base import REACH, Information, Target, curvature_bound
from dsgmcmc.targets.state import ParameterBlock, Replicated, Rows, StateField
from dsgmcmc.types import Array, Factor, Float64, Purpose

#: Field of the momenta; a metric whose coordinates rotate also rotates the fields in `ROTATING`.
MOMENTUM = "r"
ROTATING = (MOMENTUM, "direction")

#: Sweeps between refreshes of the metric.
REFRESH_EVERY = 2

#: The curvature of each row's data costs as much as three gradients. It is computed at the first
#: `EVERY_REFRESH_UNTIL` refreshes; then at one refresh in `EARLY_BOUND_EVERY`, up to refresh
#: `EARLY_UNTIL`, when chains have settled; then at one in `BOUND_EVERY`. It is also computed at any
#: refresh at which a row has grown.
EVERY_REFRESH_UNTIL = 4
EARLY_BOUND_EVERY = 4
EARLY_UNTIL = 20
BOUND_EVERY = 40

#: A row has grown if its mean square exceeds `GROWTH` m + `CHANCE` / D times the average mean
#: square. Here m is the larger of the row's and the average mean square, both when the bounds were
#: last computed. The second term is there because the mean squares of rows with few columns vary by
#: chance.
GROWTH = 4.0
CHANCE = 30.0

#: l_i is at least this fraction of the largest eigenvalue of a row's Hessian.
SHARE_OF_LARGEST = 0.5

GRADIENT = Formula("out = grad")
ROTATED = Gradient("rotated")
MATRICES = ("vectors", "axes", "rotation")  # results of `Kronecker._solve`, (D, D) each


class Metric(Replicated, ABC):
    """Coordinates of a sampler's step.

    Attributes
    ----------
    fields : tuple of StateField
        Fields that the metric keeps with a block.
    """

    fields: ClassVar[tuple[StateField, ...]] = ()
    #: Temporary arrays of the shape of theta for its updates.
    scratch: ClassVar[tuple[str, ...]] = ("g",)
    #: Source code that precedes the sampler's formula, and the names of its vectors.
    source: ClassVar[str]
    columns: ClassVar[tuple[str, ...]] = ()
    rows: ClassVar[tuple[str, ...]] = ()

    #: Whether its coordinates are rotated relative to the columns of theta.
    rotates: ClassVar[bool] = False

    def formula(
        self,
        lines: str,
        *,
        columns: tuple[str, ...] = (),
        rows: tuple[str, ...] = (),
        row_sums: tuple[str, ...] = (),
    ) -> Formula:
        """Formula of a sampler's `lines`, which may read ``step``, ``h_i`` and ``p``."""
        return Formula(
            self.source + lines,
            columns=(*self.columns, *columns),
            rows=(*self.rows, *rows),
            row_sums=row_sums,
        )

    @staticmethod
    def is_due(target: Target, iteration: int) -> bool:
        """Whether `refresh` recomputes the metric in this iteration."""
        return iteration % (REFRESH_EVERY * target.sweep_length) == 0

    def refresh(self, target: Target, iteration: int, needs_bounds: bool = False) -> None:
        """Recompute the metric from the current state once in `REFRESH_EVERY` sweeps.

        Collective.

        With `needs_bounds`, the l_i are computed even if the schedule does not ask for them.
        """
        if not self.is_due(target, iteration):
            return
        number = iteration // (REFRESH_EVERY * target.sweep_length)
        settled = number >= EARLY_UNTIL
        if settled:
            bound = number % BOUND_EVERY == 0
        else:
            bound = number < EVERY_REFRESH_UNTIL or number % EARLY_BOUND_EVERY == 0
        self.compute(target, bound=bound or needs_bounds, settled=settled)

    @abstractmethod
    def compute(
        self,
        target: Target,
        *,
        bound: bool = True,
        position: str = "theta",
        settled: bool = False,
    ) -> None:
        """Compute the metric from the state in a field; with `bound` also the l_i. Collective.

        The l_i take further tours. Once the chain has `settled`, parts of the metric that need not
        follow the state may be kept.
        """

    @abstractmethod
    def values(self, target: Target, rows: Rows, h: float) -> dict[str, Any]:
        """Values of the names in `source`, for a step h."""

    def update(
        self, target: Target, rows: Rows, formula: Formula, h: float, **values: Any
    ) -> dict[str, Any]:
        """Update rows by a `formula` of this metric, and return its sums, as `Rows.update` does."""
        return self._apply(target, rows, formula, h, **values)

    def _apply(
        self, target: Target, rows: Rows, formula: Formula, h: float, **values: Any
    ) -> dict[str, Any]:
        """Apply a `formula` of this metric to rows, whose prior may have scales."""
        values |= self.values(target, rows, h)
        first = rows.blocks[0]
        if first.prior(first).scale is not None:
            formula = with_scaled_prior(formula)
            values[SCALE] = SCALE
        return rows.update(formula, **values)

    def kick(self, target: Target, rows: Rows, formula: Formula, h: float) -> None:
        """Update only the momenta of rows by a `formula`; the gradient stays valid."""
        self._apply(target, rows, formula, h)


#: Field with the scale of the precision of a row's prior, and names in formulas of what it scales.
SCALE = "weight"
SCALED = ("lambda_", "own")


@cache
def with_scaled_prior(formula: Formula) -> Formula:
    """Return the formula for rows that multiply the prior's precision by their scale."""
    source = re.sub(rf"\b({'|'.join(SCALED)})\b", rf"({SCALE} * \1)", formula.source)
    return replace(formula, source=source, rows=(*formula.rows, SCALE))


@dataclass
class Identity(Metric):
    """P is the same for all rows: the largest possible curvature of a row's data.

    It is the unit of SGLD's steps.
    """

    source: ClassVar[str] = "step = unit\n"

    @override
    def compute(
        self,
        target: Target,
        *,
        bound: bool = True,
        position: str = "theta",
        settled: bool = False,
    ) -> None:
        """Do nothing: this metric does not depend on the state."""

    @override
    def values(self, target: Target, rows: Rows, h: float) -> dict[str, Any]:
        return {"unit": h / target.curvature_bound**0.5}


@dataclass
class Fisher(Metric):
    """Diagonal of the Fisher information of a row given the other factor, averaged.

    P_ik = tau n_i c_k + lambda_k, where n_i is the number of ratings, c_k the mean square, over the
    ratings, of the covariate that multiplies theta_ik (1 for the bias), and lambda_k the prior's
    precision, times the row's scale if the prior has scales. The step of a row is h_i = h /
    sqrt(l_i), where l_i is the larger of two values: a bound on the average curvature due to the
    interaction of the factors (`dsgmcmc.targets.base.curvature_bound`), and half the largest
    eigenvalue of M_i = P_i^-1/2 (A_i
    + Lambda) P_i^-1/2, with A_i = tau sum_j w_ij phi_j phi_j^T over the row's data. Because (h . x
    + w . y)^2 <= 2 (h . x)^2 + 2 (w . y)^2, the energy of both factors has at most twice the
    curvature of the two blocks alone, which is at most four times l_i. BAOAB at its largest default
    step, 0.35, is stable up to 5.7 times l_i.

    The larger of two estimates of the eigenvalue is used. The first is the curvature along the mean
    covariate of the row, which is accurate if covariates are similar. The second comes from power
    iteration, which detects the effect of a few large covariates: ``direction`` is a unit vector
    v_i for every row, |M_i v_i| is the estimate, and M_i v_i / |M_i v_i| is the next v_i. The
    estimate is never above the eigenvalue, which is never above the trace. Both estimates together
    cost about three gradients. If the size of a row is above ``reach``, they are computed at the
    next refresh.

    c_k, and the other factor's contribution to n_i, date from the last refresh. tau, lambda_k and
    the row's noise scale have their current values if the target requires it
    (`dsgmcmc.targets.base.Target.metric_uses_current_hyperparameters`); n_i is then stored without
    the row's scale, and lambda_k without the prior's precision. With such a target, h_i does not
    rise once the chain has settled, because l_i depends on all drawn parameters.
    """

    saved_as: ClassVar[dict[str, str]] = {
        "c": "metric.{}.c",
        "lambda_": "metric.{}.lambda",
        "tau": "metric.tau",
        "earlier": "metric.{}.earlier",
    }
    #: n_i, 1 / sqrt(l_i), the size of a row above which new bounds are computed, and v_i.
    fields: ClassVar[tuple[StateField, ...]] = (
        StateField("n", 1),
        StateField("h", 1),
        StateField(REACH, 1),
        StateField("direction"),
    )
    source: ClassVar[str] = """\
h_i = size * h
information = metric_tau * n * c
precision = information + lambda_
step = h_i / sqrt(precision)
p = information / precision
"""
    columns: ClassVar[tuple[str, ...]] = ("c", "lambda_")
    rows: ClassVar[tuple[str, ...]] = ("n", "h")

    c: dict[Factor, Float64] = field(default_factory=dict)
    lambda_: dict[Factor, Float64] = field(default_factory=dict)
    tau: Float64 = field(default_factory=lambda: np.ones(1))
    #: `Information.c` of the last refresh.
    earlier: dict[Factor, Float64] = field(default_factory=dict)

    @override
    def compute(
        self,
        target: Target,
        *,
        bound: bool = True,
        position: str = "theta",
        settled: bool = False,
    ) -> None:
        information = target.information(position, bound, self.earlier)
        self.c = information.c
        self.earlier = information.c
        self.lambda_ = dict(information.lambda_)
        self.tau = np.array([information.tau])
        if information.bound is not None:
            self._bound(target, information, position, settled)
        for block in target.blocks():
            block.row("n")[:] = information.n[block]
        if target.metric_uses_current_hyperparameters:
            for rows in target.rows_by_factor():
                self.lambda_[rows.factor] = information.lambda_[rows.factor] - _diagonal(rows)
            for block in target.blocks():
                scale = target.noise_scales_of(block)
                if scale is not None:
                    block.row("n")[:] /= scale

    # ------------------------------------------------------------------ l_i

    def _bound(
        self, target: Target, information: Information, position: str, settled: bool
    ) -> None:
        """Set 1 / sqrt(l_i) of all rows, and the sizes above which it is computed again.

        Collective.
        """
        steps_only_fall = settled and target.metric_uses_current_hyperparameters
        along_mean = self._along_mean(target, information, position)
        along_direction = self._along_direction(target, information, position)
        for block in target.blocks():
            row_curvature = SHARE_OF_LARGEST * np.maximum(along_mean[block], along_direction[block])
            average_curvature = self._average_curvature(block, information)
            inverse_root = 1 / np.sqrt(np.maximum(average_curvature, row_curvature))
            reach = GROWTH * np.maximum(information.sizes[block], 1) + CHANCE / block.dimension
            if steps_only_fall:
                inverse_root = np.minimum(inverse_root, block.row("h"))
                reach = np.maximum(reach, block.row(REACH))
            block.row("h")[:] = inverse_root
            block.row(REACH)[:] = reach

    def _at_refresh(self, block: ParameterBlock, information: Information) -> tuple[Array, Array]:
        """Return the two parts of P at a refresh: tau n_i c_k, (n, D), and lambda.

        The latter is (D,), or (n, D) if the prior has scales.
        """
        c = self.c[block.factor].astype(block.dtype)
        lambda_ = scaled(self.lambda_[block.factor].astype(block.dtype), block)
        return block.dtype.type(information.tau) * information.n[block][:, None] * c, lambda_

    def _average_curvature(self, block: ParameterBlock, information: Information) -> Float64:
        """Bound on the curvature of rows whose covariates are like the average, (n,)."""
        assert information.bound is not None
        return information.bound[block]

    def _along_mean(
        self, target: Target, information: Information, position: str
    ) -> dict[ParameterBlock, Array]:
        """Curvature of every row's energy along the row's mean covariate, (n,) by block.

        Collective.

        If a row's covariates are similar to each other, it is far above 1, and close to the largest
        curvature.
        """
        target.covariate_sums(position, "g")
        curvature: dict[ParameterBlock, Array] = {}
        for block in target.blocks():
            self._to_axes(block)
            data, lambda_ = self._at_refresh(block, information)
            tau = block.dtype.type(information.tau)
            aligned = tau * block["g"]
            shares = np.einsum("ij,ij->i", aligned, aligned / (data + lambda_))
            curvature[block] = 1 + shares / np.maximum(tau * information.n[block], 1e-30)
        return curvature

    def _along_direction(
        self, target: Target, information: Information, position: str
    ) -> dict[ParameterBlock, Array]:
        """|M_i v_i| of every row, (n,) by block; replaces v_i by M_i v_i / |M_i v_i|.

        Collective.
        """
        off_diagonal: dict[ParameterBlock, Array] = {}
        for block in target.blocks():
            if not block["direction"].any():
                block.update(NORMAL, Purpose.DIRECTION, theta="direction", sd=1.0)
                _normalise(block["direction"])
            data, lambda_ = self._at_refresh(block, information)
            np.divide(block["direction"], np.sqrt(data + lambda_), out=block["g"])
            self._from_axes(block)
            product = self._off_diagonal(block, information)
            if product is not None:
                off_diagonal[block] = product
        target.multiply_by_moments(position, "g")
        along_direction: dict[ParameterBlock, Array] = {}
        for block in target.blocks():
            if block in off_diagonal:
                block["g"][:] += off_diagonal.pop(block)
            self._to_axes(block)
            data, lambda_ = self._at_refresh(block, information)
            precision = data + lambda_
            block["direction"][:] *= lambda_ / precision
            block["direction"][:] += (
                block.dtype.type(information.tau) * block["g"] / np.sqrt(precision)
            )
            along_direction[block] = _normalise(block["direction"])
        return along_direction

    def _from_axes(self, block: ParameterBlock) -> None:
        """Rotate ``g`` from the metric's coordinates to the columns of theta."""

    def _to_axes(self, block: ParameterBlock) -> None:
        """Rotate ``g`` from the columns of theta to the metric's coordinates."""

    def _off_diagonal(self, block: ParameterBlock, information: Information) -> Array | None:
        """Product of ``g`` with the part of Lambda / tau that is not in the metric, if any."""
        common = information.common[block.factor]
        if self.rotates or common.ndim == 1:  # rotated axes diagonalise all of Lambda
            return None
        product = np.zeros_like(block["g"])
        add_rotated(product, block["g"], (common - np.diag(np.diag(common))) / information.tau)
        return scaled(product, block)

    # ------------------------------------------------------------------ updates

    @cached_property
    def _share(self) -> Formula:
        return self.formula("share = own / (own + information / (h * h))", columns=("own",))

    def set_prior_share(self, target: Target, rows: Rows, field: str) -> None:
        """Set a field of rows to the prior's share of their curvature.

        It is lambda_k / (lambda_k + l_i tau n_i c_k).
        """
        self.update(target, rows, self._share, 1.0, own=_diagonal(rows), share=field)

    @override
    def values(self, target: Target, rows: Rows, h: float) -> dict[str, Any]:
        """Values of the names in `source`, for a step h.

        Rotated axes date from the last refresh; with them, tau, lambda and n do, too.
        """
        tau = float(self.tau[0])
        lambda_ = self.lambda_[rows.factor]
        n: Array | str = "n"  # the field, or a vector over all rows
        if target.metric_uses_current_hyperparameters and not self.rotates:
            tau = target.noise_precision
            lambda_ = lambda_ + _diagonal(rows)
            scale = target.noise_scales_of(rows)
            if scale is not None:
                n = np.concatenate([block.row("n") for block in rows.blocks]) * scale
        return {
            "metric_tau": tau,
            "n": n,
            "h": "h",
            "size": h,
            "c": self.c[rows.factor].astype(rows.dtype),
            "lambda_": lambda_.astype(rows.dtype),
        }


@dataclass
class Kronecker(Fisher):
    """Full Fisher information of a row given the other factor, averaged: G_i = tau n_i C + Lambda.

    C is the mean, over the ratings, of the outer product of the row's covariates (1 for the bias).
    Lambda is the precision of the prior, plus the precision from the sum over all pairs if the
    likelihood has one (`dsgmcmc.model.likelihoods.all_cells`). One generalised eigenproblem per
    factor, C V = Lambda V diag(c) with V^T Lambda V = I, diagonalises G of all rows: G_i = V^-T
    diag(P_i) V^-1 with P_ik = tau n_i c_k + 1. So an update transforms the gradient to V^T grad,
    makes the move of the diagonal metric P, and transforms the move back by V. Momenta are kept in
    these coordinates, and are rotated when the coordinates change: with L L^T = Lambda, the axes
    L^T V are orthogonal, and so is the rotation from the old axes to the new ones.

    l_i is defined as in `Fisher`, in these coordinates; the directions v_i are rotated with the
    momenta.
    """

    saved_as: ClassVar[dict[str, str]] = {
        **Fisher.saved_as,
        "vectors": "metric.{}.vectors",
        "axes": "metric.{}.axes",
    }
    scratch: ClassVar[tuple[str, ...]] = ("g", "rotated")
    rotates: ClassVar[bool] = True

    vectors: dict[Factor, Float64] = field(default_factory=dict)  # V
    axes: dict[Factor, Float64] = field(default_factory=dict)  # L^T V

    @override
    def compute(
        self,
        target: Target,
        *,
        bound: bool = True,
        position: str = "theta",
        settled: bool = False,
    ) -> None:
        information = target.information(position, bound, self.earlier)
        precision = information.common
        shapes: dict[str, tuple[int, ...]] = {}
        for factor, p in precision.items():
            shapes[f"c.{factor.name}"] = (len(p),)
            for name in MATRICES:
                shapes[f"{name}.{factor.name}"] = (len(p), len(p))
        solved = target.second_moments(
            position, information.n, lambda moments: self._solve(precision, moments), shapes
        )
        self.tau = np.array([information.tau])
        self.earlier = information.c
        for name in ("c", "vectors", "axes"):
            setattr(self, name, {factor: solved[f"{name}.{factor.name}"] for factor in precision})
        self.lambda_ = {factor: np.ones(len(p)) for factor, p in precision.items()}
        for block in target.blocks():
            block.row("n")[:] = information.n[block]
            rotation = solved[f"rotation.{block.factor.name}"]
            for name in ROTATING:
                if name in block.arrays:
                    add_rotated(block[name], block[name], rotation, keep=0.0)
        if information.bound is not None:
            self._bound(target, information, position, settled)

    @override
    def _average_curvature(self, block: ParameterBlock, information: Information) -> Float64:
        data, lambda_ = self._at_refresh(block, information)
        return curvature_bound(information.n[block], information.squares[block], data, lambda_)

    @override
    def _from_axes(self, block: ParameterBlock) -> None:
        add_rotated(block["g"], block["g"], self.vectors[block.factor].T, keep=0.0)

    @override
    def _to_axes(self, block: ParameterBlock) -> None:
        add_rotated(block["g"], block["g"], self.vectors[block.factor], keep=0.0)

    def _solve(
        self, precision: dict[Factor, Float64], moments: dict[Factor, Float64]
    ) -> dict[str, Float64]:
        """Solve both factors' eigenproblems, and compute the rotation to the new coordinates.

        Runs at the root.
        """
        result: dict[str, Float64] = {}
        for factor, moment in moments.items():
            inverse = np.linalg.inv(np.linalg.cholesky(dense(precision[factor])))
            c, axes = np.linalg.eigh(inverse @ moment @ inverse.T)
            old = self.axes.get(factor, axes)
            solved = {
                "c": np.maximum(c, 0),
                "vectors": inverse.T @ axes,
                "axes": axes,
                "rotation": old.T @ axes,
            }
            result |= {f"{name}.{factor.name}": array for name, array in solved.items()}
        return result

    @override
    def update(
        self, target: Target, rows: Rows, formula: Formula, h: float, **values: Any
    ) -> dict[str, Any]:
        """Update rows by a `formula` of this metric, and return its sums, as `Rows.update` does.

        In the formula, `theta` is the move and `grad` the gradient, both in the metric's
        coordinates.
        """
        self._rotate_gradient(rows)
        for block in rows.blocks:
            block["g"].fill(0.0)
        sums = self._apply(target, rows, formula, h, **values, theta="g")
        for block in rows.blocks:
            add_rotated(block["theta"], block["g"], self.vectors[block.factor].T)
        return sums

    @override
    def kick(self, target: Target, rows: Rows, formula: Formula, h: float) -> None:
        self._rotate_gradient(rows)
        super().kick(target, rows, formula, h)

    def _rotate_gradient(self, rows: Rows) -> None:
        """Transform `grad` to the metric's coordinates, once for each gradient."""
        if rows.gradient is ROTATED:
            return
        rows.update(GRADIENT, out="rotated")
        for block in rows.blocks:
            add_rotated(block["rotated"], block["rotated"], self.vectors[block.factor], keep=0.0)
        rows.gradient = ROTATED


def scaled(precision: Array, block: ParameterBlock) -> Array:
    """Return a precision, (D,) or (n, D), times the scales of the block's prior, if it has any."""
    scale = block.prior(block).scale
    if scale is None:
        return precision
    return precision * scale


def _normalise(directions: Array) -> Array:
    """Divide each row of `directions` (n, D) by its length, and return the lengths, (n,)."""
    lengths: Array = np.sqrt(np.einsum("ij,ij->i", directions, directions))
    directions /= lengths[:, None]
    return lengths


def _diagonal(rows: Rows) -> Array:
    """Diagonal, (D,), of the precision of the rows' prior, which is the same in all blocks."""
    first = rows.blocks[0]
    return diagonal(first.prior(first).precision)


METRICS: dict[str, type[Metric]] = {"identity": Identity, "fisher": Fisher, "kronecker": Kronecker}
