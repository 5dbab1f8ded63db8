"""Metrics: the coordinates in which samplers step.

P is about the precision of a row's posterior; in the coordinates in which it is the identity all rows and columns move
at one pace, and one step size serves all data. A metric completes a sampler's formulas. In these there are

    step    h_i P^-1/2, the step h of the sampler, made smaller where a row's energy is more curved than P says
    h_i     the step of a row, where the metric has one for each
    p       p_ik, the share of the data in P

On a factorisation nothing is left out where P depends on the state: that of a row of W is made from H, n_i, tau and
lambda, that of a row of H from W, so that Gamma_i = sum_j d (P^-1)_ij / d theta_j [Ma 2015, eq. 3] is zero where both
move at once. What is averaged over the other factor may be that of the last refresh. What is drawn may not: tau, lambda
and a row's noise scale of an older sweep were drawn given an older theta, so that P depends on theta by way of them,
whereas those of now are given to the update. A metric that kept them made posteriors too narrow, at any step
(docs/baoab.md).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np

from dsgmcmc.kernels.formula import Formula, Gradient
from dsgmcmc.kernels.products import add_rotated
from dsgmcmc.targets.base import Information, Target
from dsgmcmc.targets.information import REACH, alignment, curvature_bound
from dsgmcmc.targets.state import ParameterBlock, Replicated, Rows, StateField
from dsgmcmc.types import Array, Factor, Float64, Purpose

#: Field of the momenta of samplers that have them; a metric whose coordinates rotate rotates them, too.
MOMENTUM = "r"
TURNING = (MOMENTUM, "direction")

#: Sweeps between refreshes of the metric.
REFRESH_EVERY = 2

#: The curvature of each row's own data costs as much as three gradients. It is computed at each of the first
#: EVERY_REFRESH_UNTIL refreshes; at one in EARLY_BOUND_EVERY until EARLY_UNTIL refreshes, when chains have settled;
#: then at one in BOUND_EVERY; and where a row has grown.
EVERY_REFRESH_UNTIL, EARLY_BOUND_EVERY, EARLY_UNTIL, BOUND_EVERY = 4, 4, 20, 40

#: A row has grown if its mean square is so many times the larger of its own and the average when the bounds were
#: computed last; and by so much more, over its columns, as rows of a few columns have by chance.
GROWTH, CHANCE = 4.0, 30.0

#: l_i is at least this part of the largest eigenvalue of a row's own Hessian.
PART_OF_OWN = 0.5

PRECISION_FIELDS = {"columns": ("c", "lambda_"), "rows": ("n",)}
PROBE = Formula("g = direction / sqrt(tau * n * c + lambda_)", **PRECISION_FIELDS)
PRODUCT = Formula(
    """
precision = tau * n * c + lambda_
direction = tau * g / sqrt(precision) + lambda_ / precision * direction
square = direction * direction
""",
    **PRECISION_FIELDS,
    row_sums=("square",),
)
ANY = Formula("direction = z\nsquare = z * z", row_sums=("square",))
NORMALISED = Formula("direction = direction / length", rows=("length",))

#: What P is made of at a refresh, by rows.
OfRefresh = dict[Rows, dict[str, Any]]

GRADIENT = Formula("out = grad")
TURNED = Gradient("turned")
SQUARE = ("vectors", "axes", "turn")


class Metric(Replicated, ABC):
    """Coordinates of a sampler's step.

    Attributes
    ----------
    fields : tuple of StateField
        Fields that it keeps with a block.
    """

    fields: ClassVar[tuple[StateField, ...]] = ()
    #: Arrays of the shape of theta that its updates need and that are not kept with a block.
    scratch: ClassVar[tuple[str, ...]] = ("g",)
    #: Lines before those of the sampler, and the vectors in them.
    source: ClassVar[str]
    columns: ClassVar[tuple[str, ...]] = ()
    rows: ClassVar[tuple[str, ...]] = ()

    #: Whether its coordinates are not the columns of theta.
    turned: ClassVar[bool] = False
    #: Setting that may help if a chain diverges in this metric, besides a smaller step.
    remedy: ClassVar[str] = ""

    def formula(self, lines: str, **declared: Any) -> Formula:
        """Formula of a sampler that reads ``step`` and may read ``p``."""
        rows = (*self.rows, *declared.pop("rows", ()))
        return Formula(self.source + lines, columns=self.columns, rows=rows, **declared)

    def refresh(self, target: Target, iteration: int, every: int) -> None:
        """Recompute it from the current state once in `every` iterations. Collective."""
        if iteration % every == 0:
            turn = iteration // every
            settled = turn >= EARLY_UNTIL
            due = turn < EVERY_REFRESH_UNTIL or turn % (BOUND_EVERY if settled else EARLY_BOUND_EVERY) == 0
            self.take_from(target, due, settled=settled)

    @abstractmethod
    def take_from(self, target: Target, bound: bool = True, position: str = "theta", settled: bool = False) -> None:
        """Compute it from the state in a field; with `bound` also the l_i, even if they cost a tour. Collective.

        Once the chain has `settled`, parts that need not follow the state may be kept.
        """

    @abstractmethod
    def of(self, target: Target, rows: Rows, h: float) -> dict[str, Any]:
        """Values that `source` reads, for a step h."""

    def update(
        self,
        target: Target,
        rows: Rows,
        formula: Formula,
        h: float,
        **given: Any,
    ) -> dict[str, Any]:
        """Update rows by a `formula` of this metric; the result is that of `ParameterBlock.update`."""
        return rows.update(formula, **self.of(target, rows, h), **given)

    def kick(self, target: Target, rows: Rows, formula: Formula, h: float) -> None:
        """Update only the momenta of rows by a `formula` of this metric; the gradient stays valid."""
        rows.update(formula, **self.of(target, rows, h))


@dataclass
class Identity(Metric):
    """P is the largest curvature that the data of a row can have, for all rows: SGLD's unit of steps."""

    saved_as: ClassVar[dict[str, str]] = {}
    source: ClassVar[str] = "step = unit\n"

    def take_from(self, target: Target, bound: bool = True, position: str = "theta", settled: bool = False) -> None:
        """Compute it from the state in a field; with `bound` also the l_i, even if they cost a tour. Collective.

        Here: nothing changes.
        """

    def of(self, target: Target, rows: Rows, h: float) -> dict[str, Any]:
        """Values that `source` reads, for a step h."""
        return {"unit": h / target.curvature_bound**0.5}


@dataclass
class Fisher(Metric):
    """Diagonal of the Fisher information of a row given the other factor, on the average.

    P_ik = tau n_i c_k + lambda_k: n_i ratings, c_k the mean square over the ratings of what multiplies theta_ik (1 for
    the bias), lambda_k the prior's precision. h_i = h / sqrt(l_i), where l_i is the larger of a bound on the curvature
    that the factors give each other on the average (`dsgmcmc.targets.information.curvature_bound`), and half the
    largest eigenvalue of M_i = P_i^-1/2 (A_i + Lambda) P_i^-1/2, with A_i = tau sum_j w_ij phi_j phi_j^T of the row's
    own data. By (h . x + w . y)^2 <= 2 (h . x)^2 + 2 (w . y)^2 the energy of both factors is at most twice as curved as
    these together, four times l_i; BAOAB at its largest default step, 0.35, is stable up to 5.7 times l_i.

    That eigenvalue is estimated in two ways, of which the larger counts: along the mean of what multiplies the row
    (`dsgmcmc.targets.information.alignment`), which serves where ratings are like each other, and by power iteration,
    which finds what a few large ones make. ``direction`` is a unit vector v_i for every row; |M_i v_i| is the estimate,
    never above the eigenvalue, nor that above the trace; M_i v_i / |M_i v_i| is the next v_i. Both cost about three
    gradients. ``reach`` is the size of a row from which on they are made at the next refresh.

    c_k, and what the other factor contributes to n_i, are those of the last refresh. tau, lambda_k and the row's own
    noise scale are current where the target asks for it
    (`dsgmcmc.targets.base.Target.metric_uses_current_hyperparameters`): n_i is then kept without that scale, lambda_k
    without the prior's precision. Once the chain has settled h_i does not rise there, for l_i is made of all that was
    drawn.
    """

    saved_as: ClassVar[dict[str, str]] = {
        "c": "metric.{}.c",
        "lambda_": "metric.{}.lambda",
        "tau": "metric.tau",
        "earlier": "metric.{}.earlier",
    }
    #: n_i, 1 / sqrt(l_i), the size that calls for new bounds, and v_i.
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
    remedy: ClassVar[str] = "sampler.metric=kronecker"
    rows: ClassVar[tuple[str, ...]] = ("n", "h")

    c: dict[Factor, Float64] = field(default_factory=dict)
    lambda_: dict[Factor, Float64] = field(default_factory=dict)
    tau: Float64 = field(default_factory=lambda: np.ones(1))
    earlier: dict[Factor, Float64] = field(default_factory=dict)  # `Information.c` of the last refresh

    def take_from(self, target: Target, bound: bool = True, position: str = "theta", settled: bool = False) -> None:
        """Compute it from the state in a field; with `bound` also the l_i, even if they cost a tour. Collective."""
        information = target.information(position, bound, self.earlier)
        self.c = self.earlier = information.c
        self.lambda_, self.tau = dict(information.lambda_), np.array([information.tau])
        if information.bound is not None:
            self._bound(target, information, position, settled)
        current = target.metric_uses_current_hyperparameters
        for rows in target.together() if current else ():
            self.lambda_[rows.factor] = information.lambda_[rows.factor] - _diagonal(rows)
        for block in target.blocks():
            block.row("n")[:] = information.n[block]
            if current and (own := target.own_scale(block)) is not None:
                block.row("n")[:] /= own

    # ------------------------------------------------------------------ l_i

    def _bound(self, target: Target, information: Information, position: str, settled: bool) -> None:
        """Set the h_i of all rows, and the sizes from which on they are due again. Collective."""
        kept = settled and target.metric_uses_current_hyperparameters
        given = {rows: self._of_refresh(rows, information) for rows in target.together()}
        along_mean = self._along_mean(target, given, position)
        along_own = self._along_own(target, information, given, position)
        for block in target.blocks():
            of_row = PART_OF_OWN * np.maximum(along_mean[block], along_own[block])
            h_i = 1 / np.sqrt(np.maximum(self._average_curvature(block, information), of_row))
            reach = GROWTH * np.maximum(information.sizes[block], 1) + CHANCE / block.dimension
            if kept:
                h_i, reach = np.minimum(h_i, block.row("h")), np.maximum(reach, block.row(REACH))
            block.row("h")[:], block.row(REACH)[:] = h_i, reach

    def _of_refresh(self, rows: Rows, information: Information) -> dict[str, Any]:
        """Values that make P at a refresh."""
        vectors = {name: getattr(self, name)[rows.factor].astype(rows.dtype) for name in ("c", "lambda_")}
        return vectors | {"tau": information.tau, "n": np.concatenate([information.n[block] for block in rows.blocks])}

    def _average_curvature(self, block: ParameterBlock, information: Information) -> Float64:
        """Bound on the curvature of rows whose data are like the average, (n,)."""
        assert information.bound is not None
        return information.bound[block]

    def _along_mean(self, target: Target, given: OfRefresh, position: str) -> dict[ParameterBlock, Float64]:
        """Curvature of every row along the mean of what multiplies it, (n,) by block. Collective."""
        target.own_sums(position, "g")
        curvature: dict[ParameterBlock, Float64] = {}
        for rows, values in given.items():
            for block in rows.blocks:
                self._to_axes(block)
            curvature.update(rows.by_block(alignment(rows, "g", **values)))
        return curvature

    def _along_own(
        self, target: Target, information: Information, given: OfRefresh, position: str
    ) -> dict[ParameterBlock, Float64]:
        """|M_i v_i| of every row, (n,) by block; v_i turns to M_i v_i. Collective."""
        off_diagonal: dict[ParameterBlock, Array] = {}
        for rows, values in given.items():
            for block in rows.blocks:
                if not block["direction"].any():
                    lengths = np.sqrt(block.update(ANY, Purpose.DIRECTION)["square"])
                    block.update(NORMALISED, length=lengths.astype(block.dtype))
            rows.update(PROBE, **values)
            for block in rows.blocks:
                self._from_axes(block)
                if (besides := self._off_diagonal(block, information)) is not None:
                    off_diagonal[block] = besides
        target.own_products(position, "g")
        along_own: dict[ParameterBlock, Float64] = {}
        for rows, values in given.items():
            for block in rows.blocks:
                if block in off_diagonal:
                    block["g"][:] += off_diagonal.pop(block)
                self._to_axes(block)
            lengths = np.sqrt(rows.update(PRODUCT, **values)["square"])
            rows.update(NORMALISED, length=lengths.astype(rows.dtype))
            along_own.update(rows.by_block(lengths))
        return along_own

    def _from_axes(self, block: ParameterBlock) -> None:
        """Turn ``g`` from the metric's coordinates to those of rows, in which data are multiplied."""

    def _to_axes(self, block: ParameterBlock) -> None:
        """Turn it back."""

    def _off_diagonal(self, block: ParameterBlock, information: Information) -> Array | None:
        """Product of ``g`` with what Lambda / tau has beside the metric's part of it; None if that is nothing."""
        common = information.common[block.factor]
        if common.ndim == 1:
            return None
        product = np.zeros_like(block["g"])
        add_rotated(product, block["g"], (common - np.diag(np.diag(common))) / information.tau)
        return product

    # ------------------------------------------------------------------ updates

    def now(self, target: Target, rows: Rows) -> tuple[float, Float64, Array | str]:
        """Tau, lambda (D,) and n of an update: a vector of all rows, or the field that has it."""
        tau, lambda_ = float(self.tau[0]), self.lambda_[rows.factor]
        if not target.metric_uses_current_hyperparameters:
            return tau, lambda_, "n"
        scales = [target.own_scale(block) for block in rows.blocks]
        scaled = [block.row("n") * scale for block, scale in zip(rows.blocks, scales, strict=True) if scale is not None]
        return target.noise_precision, lambda_ + _diagonal(rows), np.concatenate(scaled) if scaled else "n"

    def of(self, target: Target, rows: Rows, h: float) -> dict[str, Any]:
        """Values that `source` reads, for a step h."""
        tau, lambda_, n = self.now(target, rows)
        return {
            "metric_tau": tau,
            "c": self.c[rows.factor].astype(rows.dtype),
            "lambda_": lambda_.astype(rows.dtype),
            "n": n,
            "h": "h",
            "size": h,
        }


@dataclass
class Kronecker(Fisher):
    """Fisher information of a row given the other factor, all its columns, on average: G_i = tau n_i C + Lambda.

    C is the mean outer product over the ratings of what multiplies the row, 1 for the bias; Lambda the precision of the
    prior, and what all cells add to it where they count (`dsgmcmc.model.likelihoods.all_cells`). One generalised
    eigenproblem for each factor, C V = Lambda V diag(c) with V^T Lambda V = I, makes all rows diagonal: G_i = V^-T
    diag(P_i) V^-1 with P_ik = tau n_i c_k + 1. So an update turns the gradient, V^T grad, makes the move that the
    diagonal metric P makes, and turns it back by V. Momenta live in these coordinates, and are turned when they change:
    with L L^T = Lambda, the axes L^T V are orthogonal, and so is the rotation from old to new ones.

    l_i is that of `Fisher`, in these coordinates; the directions v_i are turned as the momenta are.
    """

    saved_as: ClassVar[dict[str, str]] = {**Fisher.saved_as, "vectors": "metric.{}.vectors", "axes": "metric.{}.axes"}
    scratch: ClassVar[tuple[str, ...]] = ("g", "turned")
    turned: ClassVar[bool] = True
    remedy: ClassVar[str] = ""

    vectors: dict[Factor, Float64] = field(default_factory=dict)  # V
    axes: dict[Factor, Float64] = field(default_factory=dict)  # L^T V

    def take_from(self, target: Target, bound: bool = True, position: str = "theta", settled: bool = False) -> None:
        """Compute it from the state in a field; with `bound` also the l_i, even if they cost a tour. Collective."""
        information = target.information(position, bound, self.earlier)
        precision = information.common
        solve = partial(self._solve, precision)
        square = {f"{name}.{factor.name}": (len(p), len(p)) for factor, p in precision.items() for name in SQUARE}
        shapes = square | {f"c.{factor.name}": (len(p),) for factor, p in precision.items()}
        solved = target.second_moments(position, information.n, solve, shapes)
        self.tau, self.earlier = np.array([information.tau]), information.c
        for name in ("c", "vectors", "axes"):
            setattr(self, name, {factor: solved[f"{name}.{factor.name}"] for factor in precision})
        self.lambda_ = {factor: np.ones(len(p)) for factor, p in precision.items()}
        for block in target.blocks():
            block.row("n")[:] = information.n[block]
            for name in TURNING:
                if name in block.arrays:
                    add_rotated(block[name], block[name], solved[f"turn.{block.factor.name}"], keep=0.0)
        if information.bound is not None:
            self._bound(target, information, position, settled)

    def _average_curvature(self, block: ParameterBlock, information: Information) -> Float64:
        """Bound on the curvature of rows whose data are like the average, (n,): in these coordinates."""
        columns = {name: getattr(self, name)[block.factor].astype(block.dtype) for name in self.columns}
        of_row = (information.n[block], information.squares[block])
        return curvature_bound(block, *of_row, tau=information.tau, **columns)

    def _from_axes(self, block: ParameterBlock) -> None:
        """Turn ``g`` from the metric's coordinates to those of rows, in which data are multiplied."""
        add_rotated(block["g"], block["g"], self.vectors[block.factor].T, keep=0.0)

    def _to_axes(self, block: ParameterBlock) -> None:
        """Turn it back."""
        add_rotated(block["g"], block["g"], self.vectors[block.factor], keep=0.0)

    def _off_diagonal(self, block: ParameterBlock, information: Information) -> None:
        """Product of ``g`` with what Lambda / tau has beside the metric's part of it; None if that is nothing.

        Here: nothing, as all of Lambda is in the metric.
        """

    def now(self, target: Target, rows: Rows) -> tuple[float, Float64, Array | str]:
        """Tau, lambda (D,) and n of an update: a vector of all rows, or the field that has it.

        Here: all of the last refresh, like the axes.
        """
        return float(self.tau[0]), self.lambda_[rows.factor], "n"

    def _solve(self, precision: dict[Factor, Float64], moments: dict[Factor, Float64]) -> dict[str, Float64]:
        """Eigenproblems of both factors, and the rotation of momenta to their coordinates; runs at the root."""
        result: dict[str, Float64] = {}
        for factor, moment in moments.items():
            dense = precision[factor] if precision[factor].ndim == 2 else np.diag(precision[factor])
            inverse = np.linalg.inv(np.linalg.cholesky(dense))
            c, axes = np.linalg.eigh(inverse @ moment @ inverse.T)
            before = self.axes.get(factor, axes)
            solved = {"c": np.maximum(c, 0), "vectors": inverse.T @ axes, "axes": axes, "turn": before.T @ axes}
            result |= {f"{name}.{factor.name}": array for name, array in solved.items()}
        return result

    def update(self, target: Target, rows: Rows, formula: Formula, h: float, **given: Any) -> dict[str, Any]:
        """Update rows by a `formula` of this metric; the result is that of `ParameterBlock.update`.

        Here: `theta` of the formula is the move, `grad` the gradient, in the metric's coordinates.
        """
        self._turn(rows)
        for block in rows.blocks:
            block["g"].fill(0.0)
        sums = rows.update(formula, **self.of(target, rows, h), **given, theta="g")
        for block in rows.blocks:
            add_rotated(block["theta"], block["g"], self.vectors[block.factor].T)
        return sums

    def kick(self, target: Target, rows: Rows, formula: Formula, h: float) -> None:
        """Update only the momenta of rows by a `formula` of this metric; the gradient stays valid."""
        self._turn(rows)
        super().kick(target, rows, formula, h)

    def _turn(self, rows: Rows) -> None:
        """Make `grad` the gradient in the metric's coordinates, if this is the first update with it."""
        if rows.gradient is not TURNED:
            rows.update(GRADIENT, out="turned")
            for block in rows.blocks:
                add_rotated(block["turned"], block["turned"], self.vectors[block.factor], keep=0.0)
            rows.gradient = TURNED


def _diagonal(rows: Rows) -> Array:
    """Diagonal of the precision of the prior of rows, which is that of each of their blocks, (D,)."""
    first = rows.blocks[0]
    precision = first.prior(first).precision
    return np.diag(precision) if precision.ndim == 2 else precision


METRICS: dict[str, type[Metric]] = {"identity": Identity, "fisher": Fisher, "kronecker": Kronecker}
