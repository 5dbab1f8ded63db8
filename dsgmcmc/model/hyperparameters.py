r"""Priors and noise of the factorisation, and the draws of their parameters.

x_ij ~ N(mu + a_i + b_j + W_i . H_j, 1 / tau) on the observed (i, j). mu is the training mean and is not
sampled. A row theta_i of a factor has D = K + 1 columns, the last is the bias, or D = K without biases;
theta_i ~ N(m, Lambda^-1), the bias with m = 0, or of counts with half the logarithm of their mean; what its mean has
besides is in `dsgmcmc.model.parts`.

Priors of (m, Lambda), drawn from their exact conditionals given the factor's current state:

- ``fixed``: m = 0, Lambda = lambda I [Simsekli 2016, 4.3]; nothing is drawn.
- ``normal-gamma``: Lambda = diag(lambda), lambda_k ~ Gamma(1, rate 5), m_k | lambda_k ~ N(0, 1 / lambda_k)
  [Nemeth 2021, 6.3]. Where ratings are standardised it is lambda_k ~ Gamma(4, rate 3 b), so that E[1 / lambda_k] = b.
  Then E[W_ik^2] = 2 b, that of m included, and b = 1 / (4 sqrt K) makes E[(W_i . H_j)^2] = 4 K b^2 a quarter of the
  ratings' variance. For the biases b = 1/8: a_i and b_j together claim another quarter.
- ``normal-wishart``: (m, Lambda) ~ N(m | 0, (2 Lambda)^-1) W(Lambda | I, K) [Salakhutdinov 2008, eq. 5-7]; the
  bias keeps its normal-gamma prior.

tau ~ Gamma(1 + N / 2, rate 1 + SSE / 2), where SSE is summed over the iterations of the last sweep from the
gradients that moved the chain. The state moved meanwhile, so this is an approximation: exact in the limit of small
steps, and exact for samplers that take the full gradient at one state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from dsgmcmc.model.blocks import RatingBlocks
from dsgmcmc.model.circulation import Circulation
from dsgmcmc.model.conjugate import (
    PUBLISHED,
    GammaPrior,
    draw_normal_gamma,
    draw_normal_wishart,
    sums_of_rows,
    with_mean_variance,
)
from dsgmcmc.model.noise import NU_START, draw_noise_scales, draw_nu, nu_log_density
from dsgmcmc.model.parts.base import NO_TERMS, PrecisionTerms, Terms
from dsgmcmc.model.quantity import Quantity, Sampled
from dsgmcmc.parallel.named import shapes_of
from dsgmcmc.targets.state import ParameterBlock, Stream
from dsgmcmc.types import Factor, Float64, PriorName, Purpose

TAU = Quantity(
    "tau",
    rating=-2,
    positive=True,
    started=True,
    per_chain=True,
    diagnosed="tau",
    label="tau, the precision of the noise",
)
MEAN = Quantity("{}.mean", ("column",), columns=1, started=True, per_chain=True)
PRECISION = Quantity("{}.precision", ("column",), columns=-2, positive=True, started=True, per_chain=True)
DENSE_PRECISION = replace(PRECISION, dims=("column", "column"))
NU = Quantity(
    "{}.nu",
    positive=True,
    started=True,
    per_chain=True,
    diagnosed="{kind}_nu",
    label="nu, degrees of freedom of the {kind}s' noise",
)
TURN = Quantity("noise.turn", ("one",), drawn=False)


def common_quantities(prior: PriorName, heteroscedastic: Sequence[Factor]) -> tuple[Quantity, ...]:
    """What is sampled of the priors of both factors, and of noise, of which `heteroscedastic` ones have their own."""
    precision = DENSE_PRECISION if prior == "normal-wishart" else PRECISION
    noise = (*(NU.of(factor) for factor in heteroscedastic), *((TURN,) if heteroscedastic else ()))
    return (TAU, *(quantity.of(factor) for quantity in (MEAN, precision) for factor in Factor), *noise)


@dataclass
class Hyperparameters(Sampled):
    """What is sampled besides the factors: one set for each of M sub-chains, float64.

    Attributes
    ----------
    tau : (M,)
        Precision of the noise.
    mean : dict of Factor to (M, D)
        Of the factor's rows.
    precision : dict of Factor to (M, D), or (M, D, D) for ``normal-wishart``
    nu : dict of Factor to (M,)
        Degrees of freedom, for factors whose rows have noise of their own.
    turn : (1,) or None
        Number of times that their noise was drawn.
    """

    quantities: ClassVar[Mapping[str, Quantity]] = {
        "tau": TAU,
        "mean": MEAN,
        "precision": PRECISION,
        "nu": NU,
        "turn": TURN,
    }

    tau: Float64
    mean: dict[Factor, Float64]
    precision: dict[Factor, Float64]
    nu: dict[Factor, Float64]
    turn: Float64 | None

    @classmethod
    def empty(cls) -> Hyperparameters:
        """Return one for `take` to fill."""
        return cls(np.zeros(0), {}, {}, {}, None)

    def copy(self) -> Hyperparameters:
        """Copy all arrays."""
        found = self.empty()
        found.take({name: array.copy() for name, array in self.arrays().items()})
        return found

    def sampled(self) -> dict[str, Float64]:
        """What is drawn at the root, by name."""
        return {name: array for name, array in self.arrays().items() if name != TURN.name}


@dataclass(frozen=True)
class HyperparameterModel:
    """Priors and noise of the factorisation: their parameters' law, and when they are drawn.

    Parameters
    ----------
    rank : int
        Number K of latent dimensions.
    biases : bool
        Whether there is a bias column.
    prior : {"fixed", "normal-gamma", "normal-wishart"}
        Prior of the rows of both factors.
    prior_precision : float
        lambda if `prior` is fixed, in the ratings' own unit; else its value until it is first drawn.
    noise_precision : float or None
        tau in the ratings' own unit, or None to draw it.
    heteroscedastic : tuple of Factor
        Factors whose rows have noise of their own (`dsgmcmc.model.noise`).
    first, every : int
        Sweeps before the first draw, and between draws.
    noise_every : int
        Sweeps between draws of noise scales; if more than one, the gradient is then to be taken again.
    scale : float
        What ratings were divided by.
    standardised : bool
        Whether that is their standard deviation: the priors are those in its unit, and not the published ones.
    width : float
        How much wider these are: where the predictor is not in the unit of the ratings.
    bias_mean : float
        Prior mean of the biases.
    """

    rank: int
    biases: bool
    prior: PriorName
    prior_precision: float
    noise_precision: float | None
    heteroscedastic: tuple[Factor, ...] = ()
    first: int = 1
    every: int = 1
    noise_every: int = 1
    scale: float = 1.0
    standardised: bool = False
    width: float = 1.0
    bias_mean: float = 0.0

    @property
    def dimension(self) -> int:
        """Number D of columns of a factor."""
        return self.rank + int(self.biases)

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """What is sampled."""
        return common_quantities(self.prior, self.heteroscedastic)

    @property
    def precision_prior(self) -> GammaPrior:
        """Of the precision of a factor's columns, under ``normal-gamma``."""
        return with_mean_variance(self.width * 0.25 / np.sqrt(self.rank)) if self.standardised else PUBLISHED

    @property
    def bias_prior(self) -> GammaPrior:
        """Of the precision of the biases."""
        return with_mean_variance(self.width * 0.125) if self.standardised else PUBLISHED

    @property
    def unit(self) -> Float64:
        """By what a row of a factor is multiplied to be in the ratings' own unit, (D,)."""
        unit = np.full(self.dimension, np.sqrt(self.scale))
        unit[self.rank :] = self.scale
        return unit

    @property
    def origin(self) -> Float64:
        """Prior mean of a row before the first draw, (D,)."""
        origin = np.zeros(self.dimension)
        origin[self.rank :] = self.bias_mean
        return origin

    def turn(self, sweeps: int) -> int:
        """Which draw the parameters have after so many sweeps; 0 if none."""
        return 0 if sweeps < self.first or sweeps % self.every else sweeps // self.every

    def is_turn_of_noise(self, sweeps: int) -> bool:
        """Whether noise scales are drawn after so many sweeps; if not after all, after the first, to rehearse it."""
        turn = sweeps >= self.first and sweeps % self.noise_every == 1 if self.noise_every > 1 else self.turn(sweeps)
        return bool(turn and self.heteroscedastic)

    def start(self, subchains: int) -> Hyperparameters:
        """Parameters before the first draw: one set per sub-chain."""
        d, m, tau = self.dimension, subchains, self.noise_precision
        precision = np.full(d, self.prior_precision)
        if self.prior == "fixed":
            precision = precision * self.unit**2
        if self.prior == "normal-wishart":
            precision = np.diag(precision)
        return Hyperparameters(
            tau=np.full(m, 1.0 if tau is None else tau * self.scale**2),
            mean={factor: np.repeat(self.origin[None], m, axis=0) for factor in Factor},
            precision={factor: np.repeat(precision[None], m, axis=0) for factor in Factor},
            nu={factor: np.full(m, NU_START) for factor in self.heteroscedastic},
            turn=None,
        )

    def draw(
        self,
        state: Hyperparameters,
        circulation: Circulation,
        stream: Stream,
        positions: tuple[str, ...],
        squared_error: Float64,
        terms: Terms | None = None,
    ) -> None:
        """Draw the parameters that all rows have in common from their conditionals. Collective.

        Parameters
        ----------
        state : Hyperparameters
            What is replaced; also conditioned on.
        circulation : Circulation
            The factors, and the noise scales.
        stream : Stream
            Names the random numbers.
        positions : tuple of str
            The field that holds the state of each sub-chain.
        squared_error : (blocks here, 1) float64
            Of the last sweep, by row block.
        terms : dict of Factor to PrecisionTerms
            What else says something of Lambda: parameters of the rows' means.
        """
        if self.prior == "fixed" and self.noise_precision is not None:
            return
        partials = []
        for local, (row, column) in enumerate(circulation.pairs()):
            sums = {block.factor.name: self._sums(block, positions) for block in (row, column)}
            partials.append([sums | {"squared_error": squared_error[local]}])
        draw = partial(self._draw_all, circulation.ratings, stream, state, terms or {})
        state.take(circulation.ring.sum(partials, draw, shapes_of(state.sampled())))

    def draw_noise(self, state: Hyperparameters, factor: Factor, circulation: Circulation, stream: Stream) -> None:
        """Draw nu and the noise scales of a factor's rows, if they have some, given their errors. Collective."""
        if factor in self.heteroscedastic:
            blocks = [block for pair in circulation.pairs() for block in pair if block.factor == factor]
            self._draw_nu(state, factor, blocks, circulation, stream)
            draw_noise_scales(blocks, float(state.nu[factor][0]), float(state.tau[0]), stream)

    def draw_noise_in_turn(self, state: Hyperparameters, circulation: Circulation, stream: Stream) -> None:
        """Draw the noise scales of one factor, and of the next one the next time: their errors are of one state."""
        turn = np.zeros(1) if state.turn is None else state.turn
        factor = self.heteroscedastic[int(turn[0]) % len(self.heteroscedastic)]
        self.draw_noise(state, factor, circulation, stream)
        state.turn = turn + 1

    @staticmethod
    def _draw_nu(
        state: Hyperparameters, factor: Factor, blocks: list[ParameterBlock], circulation: Circulation, stream: Stream
    ) -> None:
        """Draw nu of a factor with the noise scales integrated out; one block for every row block here. Collective."""

        def draw(sums: dict[str, Float64]) -> dict[str, Float64]:
            return {"nu": np.array([draw_nu(sums["log_density"], stream.generator(Purpose.NU))])}

        partials = [[{"log_density": nu_log_density(block, float(state.tau[0]))}] for block in blocks]
        state.nu[factor] = np.full_like(state.nu[factor], circulation.ring.sum(partials, draw, {"nu": (1,)})["nu"])

    def _sums(self, block: ParameterBlock, positions: tuple[str, ...]) -> Float64:
        """What (m, Lambda) are drawn given: for every sub-chain total and products of `sums_of_rows`."""
        found = [sums_of_rows(block, position, self.prior == "normal-wishart") for position in positions]
        return np.array([np.concatenate((total, products.ravel())) for total, products in found])

    def _draw_all(
        self,
        ratings: RatingBlocks,
        stream: Stream,
        state: Hyperparameters,
        terms: Terms,
        sums: dict[str, Float64],
    ) -> dict[str, Float64]:
        """One set of parameters for each sub-chain from the sums over all blocks; runs at the root."""
        rng = stream.generator(Purpose.HYPERPARAMETERS)
        drawn = state.copy()
        rows = dict(zip(Factor, ratings.shape, strict=True))
        for m in range(len(drawn.tau)):
            if self.noise_precision is None:
                rate = 1.0 + sums["squared_error"][0] / 2
                drawn.tau[m] = rng.gamma(1.0 + ratings.n_data / 2) / rate
            if self.prior == "fixed":
                continue
            for factor, n in rows.items():
                found = self._draw_prior(sums[factor.name][m], n, terms.get(factor, NO_TERMS), rng)
                drawn.mean[factor][m], drawn.precision[factor][m] = found
        return drawn.sampled()

    def _draw_prior(
        self, sums: Float64, n: int, more: PrecisionTerms, rng: np.random.Generator
    ) -> tuple[Float64, Float64]:
        d, k = self.dimension, self.rank
        average, products = sums[:d] / n, sums[d:]
        mean = self.origin
        if self.prior == "normal-gamma":
            precision, squares = np.empty(d), products
            found = draw_normal_gamma(average[:k], products[:k], n, rng, self.precision_prior, more)
            mean[:k], precision[:k] = found
        else:
            products = products.reshape(d, d)
            precision, squares = np.zeros((d, d)), np.diag(products)
            found = draw_normal_wishart(average[:k], products[:k, :k], n, rng, more)
            mean[:k], precision[:k, :k] = found
        if self.biases:
            b = self.bias_mean  # the squares of the biases about it are those about 0, and
            from_mean = n * b * (b - 2 * average[k])
            square = squares[k] + from_mean + more.of(d)[k, k]
            shape, rate = self.bias_prior.shape + (n + more.n) / 2, self.bias_prior.rate
            precision[(k,) * precision.ndim] = rng.gamma(shape, 1 / (rate + square / 2))
        return mean, precision
