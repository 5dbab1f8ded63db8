"""The interfaces between targets and samplers, and between chains and recorders.

There are two implementations: `dsgmcmc.model.target.FactorTarget`, the matrix factorisation on the
ring, and `dsgmcmc.densities.vector.VectorTarget`, any density on a plain vector. Samplers depend on
neither.

A target's parameters lie in blocks of rows. A block has several arrays, its *fields*: the state of
the chain, momenta, scratch space. Methods take the names of fields. All processes of the chain must
call *collective* methods, in the same order. The *energy* U is minus the log posterior density, up
to a constant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from dsgmcmc.kernels.formulas.formula import Formula
from dsgmcmc.targets.state import Conditional, ParameterBlock, RandomStream, Rows
from dsgmcmc.types import Array, Factor, Finish, Float64, Named, Shapes

if TYPE_CHECKING:
    from dsgmcmc.storage.store import Key, Lazy, Snapshot


class Cell(Protocol):
    """The smallest unit of the target with a gradient: blocks of parameters, and their data."""

    @property
    def blocks(self) -> tuple[ParameterBlock, ...]:
        """The blocks of parameters on which the data of the cell depend."""

    def gradient(self, position: str, out: str, prior: bool = True, errors: bool = True) -> None:
        """Set `out` of all blocks to the stochastic gradient of the energy U at field `position`.

        Parameters
        ----------
        position, out : str
            Field that holds the state, and field for the result.
        prior : bool
            Whether the prior's gradient is included.
        errors : bool
            Whether the squared errors at this state are kept for the next draw of the noise
            precision.
        """


class Information(NamedTuple):
    """Fisher information of every row given the other factor, and a bound on curvature.

    The approximate posterior precision of element k of row i is P_ik = tau n_i c_k + lambda_k. In
    the coordinates in which P is the identity, l_i bounds the curvature that is due to the
    interaction of the two factors.

    Attributes
    ----------
    c : dict of Factor to (D,) float64
        Mean squares, over the data, of the covariates: the numbers that multiply a row's elements
        in the predictor.
    lambda_ : dict of Factor to (D,) float64
        Precision that all rows share: the prior's, plus the precision from the likelihood's sum
        over all pairs, if any. If the rows' prior has scales, that of a row is as many times as
        large.
    tau : float
        Precision of the noise.
    n, squares : dict of ParameterBlock to (n,) array
        For every row, sums over its data of their weights and of the squared weights. A weight is
        1, or the product of the noise scales.
    bound : dict of ParameterBlock to (n,) float64, or None
        l_i for the diagonal metric, from averages over the other factor; None if it was not
        requested, and the size of no row is above the row's field ``reach``.
    common : dict of Factor to (D,) or (D, D) float64
        The precision whose diagonal is `lambda_`; (D,) if it is diagonal.
    sizes : dict of ParameterBlock to (n,) float64
        Mean square of a row's elements, biases excluded, each in units of its column's mean square
        over the data at an earlier state; 0 if there is none.
    """

    c: dict[Factor, Float64]
    lambda_: dict[Factor, Float64]
    tau: float
    n: dict[ParameterBlock, Array]
    squares: dict[ParameterBlock, Array]
    bound: dict[ParameterBlock, Float64] | None
    common: dict[Factor, Float64]
    sizes: dict[ParameterBlock, Float64]


#: Field with the row size above which the bound on the row's curvature is computed again.
REACH = "reach"


def curvature_bound(n: Array, squares: Array, information: Array, lambda_: Array) -> Float64:
    """Return bounds l_i on the curvature due to the interaction of two factors, in the metric P.

    With P_ik = tau n_i c_k + lambda_k, p_k = tau n_i c_k / P_ik and t = sum p_k, the bound is 1 + t
    / m_i + 2 sqrt(max(p) t / m_i), where m_i = (sum w)^2 / sum w^2 is the effective number of data.

    Parameters
    ----------
    n, squares : (n,) array
        Sums over a row's data of their weights, and of the squared weights.
    information : (n, D) array
        tau n_i c_k.
    lambda_ : (D,) or (n, D) array

    Returns
    -------
    (n,) float64
    """
    p = information / (information + lambda_)
    effective = np.maximum(n * n / np.maximum(squares, 1e-30), 1e-30)
    per_datum = np.where(n > 0, p.sum(axis=1, dtype=np.float64) / effective, 0.0)
    return np.asarray(1 + per_datum + 2 * np.sqrt(p.max(axis=1) * per_datum))


class Momenta(NamedTuple):
    """Momenta of a factor's rows, N(0, 1) each.

    Attributes
    ----------
    factor : Factor
    field : str
        Field of the blocks that holds the momenta.
    columns : slice
        Columns of that field.
    """

    factor: Factor
    field: str
    columns: slice = slice(None)


class RowStep(NamedTuple):
    """A step of underdamped Langevin dynamics that all rows make, given their gradient.

    Attributes
    ----------
    h : float
        Step, before a row's curvature makes it smaller.
    damp : float
        Fraction of the momentum that the step keeps.
    prior_share : callable
        Sets a field of rows to the prior's share of their curvature, lambda_k / (lambda_k + l_i tau
        n_i c_k).
    """

    h: float
    damp: float
    prior_share: Callable[[Rows, str], None]


class Target(Protocol):
    """The target as a sampler sees it.

    Attributes
    ----------
    stream : RandomStream
        Seed, chain and iteration, from which random numbers are computed.
    sweep_length : int
        Number of iterations that use all data once: B with gradients of parts, otherwise 1.
    n_data : int
        Number of data.
    curvature_bound : float
        max(count / p): largest number of data of a row in one iteration, divided by the probability
        of that part of the data. It bounds the energy's curvature, in units of tau times the mean
        square of the covariates. Of a plain vector: the largest element of the density's curvature.
    metric_uses_current_hyperparameters : bool
        Whether a metric uses the current values of the hyperparameters (tau, the prior's precision,
        the rows' noise scales), instead of their values at its last refresh.
    """

    stream: RandomStream
    sweep_length: int
    n_data: int
    curvature_bound: float
    metric_uses_current_hyperparameters: bool

    @property
    def renews_data(self) -> bool:
        """Whether `all_data_seen` changes the data in this iteration.

        Gradients must then be computed again.
        """

    @property
    def renews_prior(self) -> bool:
        """Whether `all_data_seen` draws prior means of single rows in this iteration."""

    @property
    def noise_precision(self) -> float:
        """Current noise precision tau; 1 if there is no noise."""

    def noise_scales_of(self, rows: Rows) -> Array | None:
        """Current noise scales of rows, (n,); None if rows have no noise scales."""

    def begin(self, iteration: int) -> None:
        """Begin an iteration. Collective."""

    def blocks(self) -> Iterator[ParameterBlock]:
        """All blocks of parameters that this process holds at present."""

    def rows_by_factor(self) -> Iterator[Rows]:
        """The rows that this process holds at present, in one group per factor."""

    def visit(self, send: bool = False) -> Iterator[Cell]:
        """Cells of the part of the data that this iteration visits. Collective.

        With `send`, blocks are sent to where the next part of the data needs them.
        """

    def full_gradient(self, position: str, out: str, errors: bool = True) -> None:
        """Compute the gradient of minus the log likelihood of all data at a state. Collective.

        `out` of every block is set to the gradient at noise precision 1, without the prior, because
        tau and the prior may be drawn again before the gradient is used. `errors` is as in
        `Cell.gradient`.
        """

    def all_data_seen(self) -> None:
        """Draw the hyperparameters and other parameters that the sampler does not update, if due.

        Collective.

        Called once a sweep.
        """

    def moving(self, step: RowStep) -> AbstractContextManager[None]:
        """Move other parameters while rows make `step` in the ``with`` block. Collective."""

    def conditionals(self, factor: Factor, position: str) -> Iterator[tuple[Rows, Conditional]]:
        """Rows of a factor, with their conditional distributions. Collective.

        Other parameters are drawn first, if due, given the current state: shared parameters in the
        call for W, further parameters of rows in the call for the rows' factor.

        Parameters
        ----------
        factor : Factor
            W, then H: once each per iteration.
        position : str
            Field that holds the state.

        Yields
        ------
        rows : Rows
            Rows that are to be drawn.
        conditional : Conditional
            The distributions of these rows.

        Raises
        ------
        InputError
            If the conditional distributions are not normal.
        """

    def information(
        self, position: str, bound: bool, earlier: Mapping[Factor, Float64]
    ) -> Information:
        """Fisher information at the state in `position`. Collective.

        Parameters
        ----------
        position : str
            Field that holds the state.
        bound : bool
            Whether l_i is requested. It is always computed if the size of a row is above the row's
            field ``reach``.
        earlier : dict of Factor to (D,) float64
            `Information.c` of an earlier state, the unit of `Information.sizes`; empty if there is
            none.
        """

    def second_moments(
        self, position: str, counts: Mapping[ParameterBlock, Array], finish: Finish, result: Shapes
    ) -> dict[str, Float64]:
        """Mean outer products, over the data, of the covariates of each factor's rows. Collective.

        Parameters
        ----------
        position : str
            Field that holds the state.
        counts : dict of ParameterBlock to (n,) array
            `Information.n`.
        finish : callable
            Maps the moments, (D, D) for each factor, to the result. Only the root calls it, so that
            all processes get the same bits even if their processors differ.
        result : shapes by name
            Shapes of the arrays that `finish` returns, which are sent to all processes.
        """

    def covariate_sums(self, position: str, out: str) -> None:
        """Set field `out` of every row i to the sum over its data of w_ij phi_j. Collective.

        The notation is as in `multiply_by_moments`.
        """

    def multiply_by_moments(self, position: str, field: str) -> None:
        """Multiply every row y_i of a field by the second moments of the row's covariates.

        Collective.

        With the weights w_ij of `Information.n` and the covariates phi_j, y_i becomes sum_j w_ij
        phi_j (phi_j . y_i).

        Parameters
        ----------
        position : str
            Field that holds the state.
        field : str
            Field to replace, (n, D).
        """

    def momenta(self, field: str, turned: bool) -> dict[str, Momenta]:
        """All momenta of rows, by names such as ``W.biases``.

        Parameters
        ----------
        field : str
            Field with the momenta of theta.
        turned : bool
            Whether this field's columns belong to rotated axes instead of the columns of theta.
        """

    def sum(
        self, partials: Mapping[ParameterBlock, Named], finish: Finish, result: Shapes
    ) -> dict[str, Float64]:
        """Add the named partial sums of all blocks, in block order. Collective.

        Every process gets `finish(totals)`.
        """


class DrawInfo(NamedTuple):
    """Weight of a state that counts as a draw.

    Attributes
    ----------
    iteration : int
        Number of iterations completed.
    weight : float
        The draw's weight in averages.
    share : float
        `weight` divided by the total weight of all draws up to and including this draw.
    """

    iteration: int
    weight: float
    share: float


class Monitored(NamedTuple):
    """Quantities of a block that a recorder monitors at every draw.

    Attributes
    ----------
    values : (draws, m) array
        Quantities for which ESS and R-hat are computed.
    score : (draws,) float64
        Scalar that is summed over blocks and depends on all shared parameters; (0,) if there is
        none.
    """

    values: Array
    score: Float64


#: Adds a draw ``x`` to the weighted mean and the weighted sum of squared deviations ``m2``,
#: elementwise, by West's form of Welford's recursion. `DrawInfo` has the scalars.
COUNT_DRAW = Formula("""
delta = x - mean
mean = mean + share * delta
m2 = m2 + weight * delta * (x - mean)
""")


class Recorder(Protocol):
    """Accumulates values over the draws of a chain; checkpoints have its accumulators."""

    def record(self, position: str, draw: DrawInfo | None) -> None:
        """Record the state in field `position`; add it to the averages unless `draw` is None.

        Collective.
        """

    def metrics(self, weight: float) -> dict[str, float | None]:
        """Values for a line of metrics, from the last recorded state and from all draws.

        Collective.

        `weight` is the total weight of all draws.
        """

    def monitored(self) -> dict[int, Monitored]:
        """Values from which ESS and R-hat are computed, by block of this process; may be empty."""

    def saved(self) -> Iterator[tuple[Key, Array]]:
        """Accumulators of this process, for a checkpoint."""

    def small(self) -> dict[str, Float64]:
        """Accumulators that are equal on all processes."""

    def load(self, snapshot: Snapshot) -> None:
        """Load the accumulators of a checkpoint."""

    def posterior(self, weight: float) -> Iterator[tuple[Key, Lazy]]:
        """Arrays of the saved posterior, such as means, given the total weight of all draws."""
