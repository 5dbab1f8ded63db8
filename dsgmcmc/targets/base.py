"""The interfaces of a target to samplers (`Target`), and of the recorders of a chain (`Recorder`).

There are two implementations: `dsgmcmc.model.target.FactorTarget`, the matrix factorisation on the ring, and
`dsgmcmc.densities.vector.VectorTarget`, any density on a plain vector. Samplers depend on neither.

A target's parameters lie in blocks of rows. A block has several arrays, its *fields*, which methods take by name: the
state of the chain, momenta, scratch space. *Collective* methods have to be called by all processes of the chain, in the
same order. The *energy* U is minus the log posterior density, up to a constant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

from dsgmcmc.parallel.named import Named, Shapes
from dsgmcmc.targets.state import ParameterBlock, RandomStream, Rows
from dsgmcmc.types import Array, Factor, Float64

if TYPE_CHECKING:
    from dsgmcmc.storage.manifest import Key
    from dsgmcmc.storage.snapshot import Lazy, Snapshot


class Cell(Protocol):
    """The smallest unit of the target with a gradient: blocks of parameters, and the data that depend on them."""

    @property
    def blocks(self) -> tuple[ParameterBlock, ...]:
        """The blocks that may be updated."""

    def gradient(self, position: str, out: str, prior: bool = True, errors: bool = True) -> None:
        """Set `out` of all blocks to the stochastic gradient of the energy U at field `position`.

        Parameters
        ----------
        position, out : str
            Field that holds the state, and field for the result.
        prior : bool
            Whether the prior's gradient is included.
        errors : bool
            Whether the squared errors at this state are kept for the next draw of the noise precision.
        """


NOTHING: Mapping[Factor, Float64] = MappingProxyType({})


class Information(NamedTuple):
    """Approximate Fisher information of every row given the other factor, and a bound on the energy's curvature.

    The approximate posterior precision of element k of row i is P_ik = tau n_i c_k + lambda_k. In the coordinates in
    which P is the identity, l_i bounds the curvature that is due to the interaction of the two factors.

    Attributes
    ----------
    c : dict of Factor to (D,) float64
        Mean square, over the data, of the covariates of a factor's rows: what multiplies each element in the predictor.
    lambda_ : dict of Factor to (D,) float64
        Precision that all rows share: that of the prior, and the contribution of all cells if the likelihood has one.
    tau : float
        Precision of the noise.
    n, squares : dict of ParameterBlock to (n,) array
        For every row, sums over its data of their weights and of the squared weights. A weight is 1, or the product of
        the noise scales.
    bound : dict of ParameterBlock to (n,) float64, or None
        l_i for the diagonal metric, of averages over the other factor; None if it was not asked for and no row has
        grown.
    common : dict of Factor to (D,) or (D, D) float64
        The matrix of which `lambda_` is the diagonal, or `lambda_` itself.
    sizes : dict of ParameterBlock to (n,) float64
        Mean square of a row as a covariate, in units of the mean squares of an earlier state.
    """

    c: dict[Factor, Float64]
    lambda_: dict[Factor, Float64]
    tau: float
    n: dict[ParameterBlock, Array]
    squares: dict[ParameterBlock, Array]
    bound: dict[ParameterBlock, Float64] | None
    common: dict[Factor, Float64]
    sizes: dict[ParameterBlock, Float64]


class Momenta(NamedTuple):
    """Momenta of a factor's rows, N(0, 1) each.

    Attributes
    ----------
    factor : Factor
    field : str
        Field of the blocks that has them.
    columns : slice
        Which of its columns.
    """

    factor: Factor
    field: str
    columns: slice = slice(None)


class Target(Protocol):
    """The target as a sampler sees it.

    Attributes
    ----------
    stream : RandomStream
        Seed, chain and iteration, from which random numbers are computed.
    subchain : int
        Which of the interleaved sub-chains is moved; each has its own hyperparameters.
    sweep_length : int
        Number of iterations in which all data are used once.
    n_data : int
        Number of data.
    curvature_bound : float
        Largest number of data of any row in one iteration, scaled up to all data: a bound on the energy's curvature, in
        units of tau times the mean square of the covariates.
    metric_uses_current_hyperparameters : bool
        Whether a metric uses the current values of the hyperparameters (tau, the prior's precision, the rows' noise
        scales); else those at its last refresh.
    """

    stream: RandomStream
    subchain: int
    sweep_length: int
    n_data: int
    curvature_bound: float
    metric_uses_current_hyperparameters: bool

    @property
    def renews_data(self) -> bool:
        """Whether `all_data_seen` changes the data in this iteration, so that gradients must be recomputed."""

    @property
    def renews_prior(self) -> bool:
        """Whether `all_data_seen` draws means of single rows' priors, given these rows, in this iteration."""

    @property
    def noise_precision(self) -> float:
        """Current tau; 1 if there is none."""

    def own_scale(self, block: ParameterBlock) -> Array | None:
        """Current noise scales of a block's rows, (n,); None if they have none."""

    def begin(self, iteration: int) -> None:
        """Begin an iteration."""

    def blocks(self) -> Iterator[ParameterBlock]:
        """All blocks of parameters that are on this process at present."""

    def together(self) -> Iterator[Rows]:
        """The rows that are on this process at present, one group per factor."""

    def visit(self, send: bool = False) -> Iterator[Cell]:
        """Cells of this iteration's part; `send` sends blocks on to where the next part needs them. Collective."""

    def full_gradient(self, position: str, out: str, errors: bool = True) -> None:
        """Gradient of minus the log likelihood of all data, with all blocks at a fixed state. Collective.

        `out` of every block is set to the gradient at noise precision 1, without the prior: tau and the prior may be
        drawn anew before the gradient is used. `errors` as in `Cell.gradient`.
        """

    def all_data_seen(self) -> None:
        """Draw hyperparameters and all else that the sampler does not move, if due; once a sweep. Collective."""

    def conditionals(self, factor: Factor, position: str) -> Iterator[ParameterBlock]:
        """Blocks of a factor, with the conditionals of their rows given everything else. Collective.

        Other parameters are drawn first, if due, given the current state: shared parameters in the call for W, and
        other parameters of the rows in the call for their factor.

        Parameters
        ----------
        factor : Factor
            W, then H: once each per iteration.
        position : str
            Field that holds the state.

        Yields
        ------
        ParameterBlock
            A block whose rows are to be drawn, with `ParameterBlock.conditional` set.

        Raises
        ------
        InputError
            If these conditionals are not normal.
        """

    def information(
        self, position: str, bound: bool = True, earlier: Mapping[Factor, Float64] = NOTHING
    ) -> Information:
        """Fisher information at the state in `position`. Collective.

        Parameters
        ----------
        position : str
            Field that holds the state.
        bound : bool
            Whether l_i is wanted. It is computed anyway where the size of a row is above its field ``reach``.
        earlier : dict of Factor to (D,) float64
            `Information.c` of an earlier state, in whose units rows have their sizes; empty if there is none.
        """

    def second_moments(
        self,
        position: str,
        counts: Mapping[ParameterBlock, Array],
        finish: Callable[[dict[Factor, Float64]], Named],
        result: Shapes,
    ) -> dict[str, Float64]:
        """Mean outer products, over the data, of the covariates of each factor's rows. Collective.

        Parameters
        ----------
        position : str
            Field that holds the state.
        counts : dict of ParameterBlock to (n,) array
            `Information.n`.
        finish : callable
            Maps the moments, (D, D) for each factor, to the result. Runs on the root only, so that all processes get
            the same bits even if their processors differ.
        result : shapes by name
            Shapes of what `finish` returns, which is sent to all processes.
        """

    def own_sums(self, position: str, out: str) -> None:
        """Set field `out` of every row to sum_j w_ij phi_j of its own data, as in `own_products`. Collective."""

    def own_products(self, position: str, field: str) -> None:
        """Multiply every row y_i of a field by the second moments of its own data. Collective.

        With the weights w_ij of `Information.n` and the covariates phi_j, y_i becomes sum_j w_ij phi_j (phi_j . y_i).

        Parameters
        ----------
        position : str
            Field that holds the state.
        field : str
            (n, D) array that is replaced.
        """

    def momenta(self, field: str, turned: bool) -> dict[str, Momenta]:
        """All momenta of rows, by names such as ``W.biases``.

        Parameters
        ----------
        field : str
            Field with those of theta.
        turned : bool
            Whether its columns are axes of their own, and not the columns of theta.
        """

    def sum(
        self,
        partials: Mapping[ParameterBlock, Named],
        finish: Callable[[dict[str, Float64]], Named],
        result: Shapes,
    ) -> dict[str, Float64]:
        """Add named partial sums of all blocks in block order; every process gets `finish(totals)`. Collective."""


class DrawInfo(NamedTuple):
    """A state that counts as a draw.

    Attributes
    ----------
    iteration : int
        Number of iterations made.
    weight : float
        Its weight in averages.
    share : float
        `weight` divided by the total weight of all draws so far, this one included.
    """

    iteration: int
    weight: float
    share: float


class Followed(NamedTuple):
    """Quantities of a block that a recorder follows at every draw.

    Attributes
    ----------
    values : (draws, m) array
        Quantities whose accuracy is wanted.
    score : (draws,) float64
        A sum over blocks that all shared parameters move; (0,) if there is none.
    """

    values: Array
    score: Float64


class Recorder(Protocol):
    """Accumulates over the draws of a chain; its accumulators are part of every checkpoint."""

    def record(self, position: str, draw: DrawInfo | None) -> None:
        """Record the state in field `position`, and include it in averages if it is a draw. Collective."""

    def metrics(self) -> dict[str, float | None]:
        """Its entries in a line of metrics, about the state last recorded and about all draws. Collective."""

    def followed(self) -> dict[int, Followed]:
        """Values that ESS and R-hat are computed from, by block of this process; may be empty."""

    def saved(self) -> Iterator[tuple[Key, Array]]:
        """Accumulators of this process, for a checkpoint."""

    def small(self) -> dict[str, Float64]:
        """Accumulators that are the same on all processes."""

    def load(self, snapshot: Snapshot) -> None:
        """Load the accumulators of a checkpoint."""

    def posterior(self, weight: float) -> Iterator[tuple[Key, Lazy]]:
        """Arrays of the saved posterior, such as means, given the total weight of all draws."""
