"""Noise: x_ij ~ N(eta_ij, 1 / tau), or N(eta_ij, 1 / (tau g_i g'_j)) with noise scales of rows.

    tau | rest     ~ Gamma(1 + N / 2, rate 1 + SSE / 2)
    g_i            ~ Gamma(nu / 2, nu / 2)
    g_i | nu, rest ~ Gamma((nu + n_i) / 2, rate (nu + tau SSE_i) / 2)

SSE is the sum, over the N ratings, of the squared error times g_i g'_j, and SSE_i the sum over row
i's n_i ratings of the squared error times g'_j, both from the gradients of the last sweep. As the
state moved during the sweep, the draws are approximate. They are exact in the limit of small steps,
for full gradients at one state, and in Gibbs sampling.

g_i makes the noise of a row's ratings marginally Student-t with nu degrees of freedom; nu is drawn
with g integrated out (`nu_log_density`). With the setting `coupled_noise`, g_i also multiplies the
precision of the row's prior, N(m_i, (g_i Lambda)^-1) with D columns, which adds D to n_i and

    (theta_i - m_i)^T Lambda (theta_i - m_i)

to tau SSE_i: docs/model.md says why. `dsgmcmc.model.rounding` says where tau and g are
truncated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import lru_cache
from math import inf
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.random import Generator
from pydantic import BaseModel, Field
from typing_extensions import override

from dsgmcmc.kernels.formulas.formula import Formula
from dsgmcmc.kernels.philox import gammas
from dsgmcmc.model.conjugate import draw_from
from dsgmcmc.model.parts.base import (
    ChainFacts,
    DrawContext,
    FileFacts,
    ModelFacts,
    Part,
    is_due,
)
from dsgmcmc.model.predictive.base import TINY
from dsgmcmc.model.quantity import WEIGHT, Quantity, Sampled, hyperparameter
from dsgmcmc.model.rounding import precision_limit, truncated_gamma
from dsgmcmc.orientation import Orientation
from dsgmcmc.settings import setting
from dsgmcmc.storage.store import Key
from dsgmcmc.targets.state import ParameterBlock
from dsgmcmc.types import Array, Factor, Float32, Float64, Int64, Named, NoiseName, Purpose

NU_START = 12.0
#: Sweeps between draws of noise scales for samplers that use full gradients, which a draw makes
#: outdated.
NOISE_EVERY = 5
#: Below this logarithm, shares of gamma distributions are computed by a series.
LOG_SMALL_SHARE = -600.0
#: Squared deviation of a row from its prior mean in units of Lambda, (theta_i - m_i)^T Lambda
#: (theta_i - m_i), by whether prior means are shifted; `grad_prior` includes the row's scale.
DEVIATIONS = {
    shifted: Formula(
        f"square = ({deviation}) * grad_prior / weight",
        columns=("mean",),
        rows=("weight",),
        row_sums=("square",),
    )
    for shifted, deviation in {False: "theta - mean", True: "theta - mean - shift"}.items()
}
NU_GRID = 2.0 ** np.arange(2, 10.0625, 0.125)  # from 4: 1 / g has a finite variance above 4


def drawn_factors(law: type[Any], noise: NoiseName, orientation: Orientation) -> tuple[Factor, ...]:
    """Factors whose rows' noise scales this part draws.

    There are none if the likelihood `law` has no noise, or draws it itself.
    """
    if law.draws_precision or not law.has_noise:
        return ()
    return orientation.factors_of(noise)


def coupled_factors(model: ModelFacts, orientation: Orientation) -> tuple[Factor, ...]:
    """Factors whose rows' noise scales also multiply the precision of the rows' prior."""
    if not model.coupled_noise:
        return ()
    return drawn_factors(model.law, model.noise, orientation)


@dataclass
class NoiseParameters(Sampled):
    """Parameters of the noise that all rows share, float64.

    Attributes
    ----------
    tau : ()
        Precision of the noise.
    nu : dict of Factor to ()
        Degrees of freedom, for factors whose rows have noise scales.
    n_scale_draws : (1,) or None
        Number of draws of noise scales so far, by which the factors alternate; None before the
        first draw.
    """

    quantities: ClassVar[Mapping[str, Quantity]] = {
        "tau": hyperparameter("tau", "tau, the precision of the noise", rating=-2, per_state=True),
        "nu": hyperparameter(
            "{}.nu", "nu, degrees of freedom of the {entity}s' noise", "{entity}_nu", per_state=True
        ),
        "n_scale_draws": Quantity("noise.turn", ("one",), drawn=False),
    }

    tau: Float64
    nu: dict[Factor, Float64]
    n_scale_draws: Float64 | None = None

    @classmethod
    @override
    def about(cls, factors: Sequence[Factor]) -> tuple[Quantity, ...]:
        """Quantities of the noise, given the factors whose rows have noise scales."""
        if not factors:
            return (cls.quantities["tau"],)
        return super().about(factors)


class NoiseSettings(BaseModel):
    """Settings of the noise."""

    noise: NoiseName = setting(
        "One noise level for all ratings, or one per user, per item, or both.",
        "shared",
        shown="shared; both for dense measurements of users or items of unequal scale",
    )
    noise_precision: Annotated[float, Field(gt=0)] | Literal["sampled"] = setting(
        "Precision tau of the noise; sampled: inferred from the ratings.",
        "sampled",
        shown="sampled; 1 with --prior fixed or a likelihood without noise, 30 with all-cells",
        metavar="TAU|sampled",
    )
    coupled_noise: bool = setting(
        "Give the factors of a row the scale of its noise, if users or items have noise levels of"
        " their own.",
        False,
        shown="yes with more than 100 different ratings; no in runs that were begun without it",
        offered=False,
        later=True,
    )


@dataclass(eq=False)
class Noise(Part[NoiseSettings]):
    """Precision of the noise, and noise scales of rows.

    Parameters
    ----------
    row_blocks : range
        Row blocks of this process.
    precision : float or None
        tau in the ratings' own unit, or None to draw it.
    factors : tuple of Factor
        Factors whose rows have noise scales.
    every : int
        Sweeps between draws of noise scales; if more than one, gradients must be computed again
        after a draw.
    scale : float
        Divisor of the ratings.

    Attributes
    ----------
    squared_error : (row blocks of this process, 1) float64
        Sum of the squared errors of the sweep, times g_i g'_j, by row block.
    """

    Settings = NoiseSettings
    row_blocks: range
    precision: float | None = None
    factors: tuple[Factor, ...] = ()
    _: KW_ONLY
    every: int = 1
    scale: float = 1.0
    parameters: NoiseParameters = field(init=False)

    def __post_init__(self) -> None:
        self.quantities = NoiseParameters.about(self.factors)
        self.squared_error = np.zeros((len(self.row_blocks), 1))
        self.parameters = NoiseParameters(np.zeros(()), {})
        self.start(())

    @classmethod
    @override
    def quantities_of(
        cls, settings: NoiseSettings, model: ModelFacts, file: FileFacts
    ) -> tuple[Quantity, ...]:
        return NoiseParameters.about(drawn_factors(model.law, settings.noise, file.orientation))

    @classmethod
    @override
    def create(cls, settings: NoiseSettings, chain: ChainFacts, data: None) -> Self:
        precision = None
        if settings.noise_precision != "sampled":
            precision = float(settings.noise_precision)
        return cls(
            chain.ring.blocks,
            precision,
            drawn_factors(chain.model.law, settings.noise, chain.orientation),
            every=1 if chain.by_parts else NOISE_EVERY,
            scale=chain.ratings.scale,
        )

    @override
    def start(self, blocks: Iterable[ParameterBlock]) -> None:
        """Set tau and nu to their initial values; the likelihood sets the rows' noise scales."""
        tau = 1.0
        if self.precision is not None:
            tau = self.precision * self.scale**2
        self.parameters.tau = np.array(tau)
        self.parameters.nu = {factor: np.array(NU_START) for factor in self.factors}
        self.parameters.n_scale_draws = None

    @override
    def begin(self, blocks: Iterable[ParameterBlock], first: bool) -> None:
        """Discard the errors of the last sweep before a new one."""
        if first:  # tau is drawn from the errors of one sweep
            self.squared_error[:] = 0.0

    def add_error(self, row_block: int, squares: float) -> None:
        """Add the squared errors of ratings in a row block to the sum of the sweep."""
        self.squared_error[row_block - self.row_blocks.start, 0] += squares

    @override
    def saved(self, row_blocks: Iterable[int]) -> Iterator[tuple[Key, Array]]:
        """The squared errors of the sweep, to be saved in a checkpoint."""
        for b in row_blocks:
            error = self.squared_error[b - self.row_blocks.start]
            yield Key("state", "W", b, "squared_error"), error

    # ------------------------------------------------------------------ draws

    @override
    def sums(self, context: DrawContext) -> Named | None:
        """The squared errors, from which tau is drawn, by row block; None if tau is fixed."""
        if self.precision is not None:
            return None
        return {"squared_error": self.squared_error}

    @override
    def draw_shared(
        self, sums: Mapping[str, Float64], context: DrawContext, rng: Generator
    ) -> None:
        """Draw tau given the squared errors, unless the likelihood draws it."""
        if context.law.draws_precision:
            return
        shape = 1.0 + context.circulation.ratings.n_data / 2
        rate = 1.0 + sums["squared_error"][0] / 2
        tau = truncated_gamma(shape, rate, context.precision_limit, rng)
        self.parameters.tau = np.array(tau)

    @override
    def renews_data(self, sweep: int) -> bool:
        return self.every > 1 and self._draws_scales_at(sweep)

    def _draws_scales_at(self, sweep: int) -> bool:
        return bool(self.factors) and is_due(sweep, self.every)

    @override
    def draw(self, context: DrawContext) -> None:
        """Draw the noise scales of one factor's rows, if due. Collective.

        In Gibbs sampling the factor is `context.factor`, and the other factor's scales are the
        latest. Otherwise the factors alternate: if both were drawn at once, each given the other's
        old values, the posterior would not be invariant.
        """
        if context.factor is not None:
            if context.hyper_sweep > 0 and context.factor in self.factors:
                self._draw_scales(context.factor, context)
        elif self._draws_scales_at(context.hyper_sweep):
            n_draws = self.parameters.n_scale_draws
            if n_draws is None:
                n_draws = np.zeros(1)
            self._draw_scales(self.factors[int(n_draws[0]) % len(self.factors)], context)
            self.parameters.n_scale_draws = n_draws + 1

    def _draw_scales(self, factor: Factor, context: DrawContext) -> None:
        """Draw nu of a factor with its noise scales integrated out, and the noise scales given nu.

        Collective. A new g takes effect at the next gradient. nu is not drawn given g, because such
        a chain hardly moves if nu is large and rows have few ratings.
        """
        tau = float(self.parameters.tau)
        others = tuple(other for other in self.factors if other != factor)
        most = precision_limit(context.circulation, others) / tau
        pairs = context.circulation.pairs()
        blocks = [block for pair in pairs for block in pair if block.factor == factor]

        def draw(sums: dict[str, Float64]) -> dict[str, Float64]:
            rng = context.stream.generator(Purpose.NU)
            return {"nu": np.array(draw_from(NU_GRID, sums["log_density"], rng))}

        squares = {block: squares_of(block, context) for block in blocks}
        logs = [nu_log_density(of_block, most) for of_block in squares.values()]
        partials = {"log_density": np.array(logs)}
        drawn = context.circulation.ring.sum(partials, draw, {"nu": ()})["nu"]
        self.parameters.nu[factor] = drawn
        nu = float(drawn)
        for block in blocks:
            key = context.stream.key(Purpose.NOISE_SCALE, factor, block.start)
            of_block = squares[block]
            shape = (nu + of_block.counts) / 2
            rate = (nu + of_block.total) / 2
            block.row("weight")[:] = gammas(shape, key, most * rate) / rate


class ScaledSquares(NamedTuple):
    """What the scales of a block's rows are drawn from: sums of squares in units of variance / g.

    Attributes
    ----------
    counts : (n,) int64
        Number of terms of every row.
    total : (n,) float64
        Sum of the terms.
    """

    counts: Int64
    total: Float64


def squares_of(block: ParameterBlock, context: DrawContext) -> ScaledSquares:
    """Squared errors of every row's ratings and, if coupled, its squared deviation as well."""
    total = context.tau() * block.row("row_error").astype(np.float64)
    prior = context.prior(block)
    if prior.scale is None:
        return ScaledSquares(block.counts, total)
    formula = DEVIATIONS[prior.shift is not None]
    theta = context.position
    sums = block.update(formula, theta=theta, mean=prior.mean, weight=WEIGHT.name)
    return ScaledSquares(block.counts + block.dimension, total + sums["square"])


def nu_log_density(squares: ScaledSquares, most: float = inf) -> Float64:
    """Contribution of rows to the log density of nu at every value of `NU_GRID`, (65,).

    The grid is uniform in log nu. Up to a constant, row i contributes

        lgamma((nu + n_i) / 2) - lgamma(nu / 2) + (nu / 2) log(nu / 2)
        - ((nu + n_i) / 2) log((nu + tau SSE_i) / 2)

    and the logarithm of the probability that its noise scale is at most `most`.
    """
    # float32 logarithms take a sixth of the time of float64 ones; the sum over 10,000 rows is
    # accurate to 0.01
    errors = squares.total.astype(np.float32)
    logs = errors / NU_GRID.astype(np.float32)[:, None]
    logs += 1
    np.log(logs, out=logs)
    totals = logs.sum(axis=1, dtype=np.float64)
    logs *= (squares.counts / 2).astype(np.float32)
    powers = NU_GRID / 2 * totals + logs.sum(axis=1, dtype=np.float64)
    logs_of_nu = np.asarray(_nu_log_normaliser(squares.counts.tobytes()) - powers)
    if most < inf:
        logs_of_nu += _log_share_below(most, squares.counts, errors)
    return logs_of_nu


def _log_share_below(most: float, counts: Int64, errors: Float32) -> Float64:
    """Sum over rows of log P(g_i <= most), at every value of `NU_GRID`, (65,).

    `errors` are tau SSE_i. Rows whose bound is far above their noise scale are left out: there the
    sum is 0.
    """
    from scipy.special import gammainc, gammaln

    shapes = (NU_GRID[:, None] + counts) / 2
    bounds = most * (NU_GRID[:, None] + errors.astype(np.float64)) / 2
    is_near = np.any(bounds < shapes + 8 * np.sqrt(shapes) + 20, axis=0)
    shape = shapes[:, is_near]
    bound = bounds[:, is_near]
    logs = np.log(np.maximum(gammainc(shape, bound), TINY))
    # far below the mode: the first terms of the series of the incomplete gamma function
    ratio = np.minimum(bound / (shape + 1), 0.99)
    series = shape * np.log(bound) - bound - gammaln(shape + 1) - np.log1p(-ratio)
    return np.asarray(np.where(logs < LOG_SMALL_SHARE, series, logs).sum(axis=1))


@lru_cache(maxsize=4096)
def _nu_log_normaliser(counts: bytes) -> Float64:
    """Terms of the log density of nu that depend only on the rows' counts, (65,).

    They are the same in every sweep.
    """
    from scipy.special import gammaln

    n, rows = np.unique(np.frombuffer(counts, np.int64), return_counts=True)
    half = NU_GRID[:, None] / 2
    return np.asarray((gammaln(half + n / 2) - gammaln(half) - n / 2 * np.log(half)) @ rows)
