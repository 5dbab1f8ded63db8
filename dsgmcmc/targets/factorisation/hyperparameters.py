r"""Priors and noise of the factorisation, and the draws of their parameters.

x_ij ~ N(mu + a_i + b_j + W_i . H_j, 1 / tau) on the observed (i, j). mu is the training mean and is not
sampled. A row theta_i of a factor has D = K + 1 columns, the last is the bias, or D = K without biases;
theta_i ~ N(m, Lambda^-1), the bias with m = 0.

Priors of (m, Lambda), drawn from their exact conditionals given the factor's current state:

- ``fixed``: m = 0, Lambda = lambda I [Simsekli 2016, 4.3]; nothing is drawn.
- ``normal-gamma``: Lambda = diag(lambda), lambda_k ~ Gamma(1, rate 5), m_k | lambda_k ~ N(0, 1 / lambda_k)
  [Nemeth 2021, 6.3].
- ``normal-wishart``: (m, Lambda) ~ N(m | 0, (2 Lambda)^-1) W(Lambda | I, K) [Salakhutdinov 2008, eq. 5-7]; the
  bias keeps its normal-gamma prior.

tau ~ Gamma(1 + N / 2, rate 1 + SSE / 2), where SSE is summed over the iterations of the last sweep from the
gradients that moved the chain. The state moved meanwhile, so this is an approximation: exact in the limit of small
steps, and exact for samplers that take the full gradient at one state.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
from scipy import stats

from dsgmcmc.kernels.formula import Formula
from dsgmcmc.parallel.named import shapes_of
from dsgmcmc.targets.factorisation.blocks import RatingBlocks
from dsgmcmc.targets.factorisation.circulation import Circulation
from dsgmcmc.targets.factorisation.noise import NU_START, draw_noise_scales, draw_nu, noise_scale_sums
from dsgmcmc.targets.state import ParameterBlock, Replicated, Stream
from dsgmcmc.types import Factor, Float64, PriorName, Purpose

SHAPE, RATE = 1.0, 5.0
WISHART_BETA = 2.0

SUMS = Formula("total = theta\nsquares = theta * theta", column_sums=("total", "squares"))


@dataclass
class Hyperparameters(Replicated):
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

    saved_as: ClassVar[dict[str, str]] = {
        "tau": "tau",
        "mean": "{}.mean",
        "precision": "{}.precision",
        "nu": "{}.nu",
        "turn": "noise.turn",
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

    def sampled(self) -> dict[str, Float64]:
        """What is drawn at the root, by name."""
        return {name: array for name, array in self.arrays().items() if name != "noise.turn"}

    def of(self, subchain: int) -> dict[str, Float64]:
        """One sub-chain's set, by name."""
        return {name: array[subchain] for name, array in self.sampled().items()}


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
        lambda if `prior` is fixed, else its value until it is first drawn.
    noise_precision : float or None
        tau, or None to draw it.
    heteroscedastic : tuple of Factor
        Factors whose rows have noise of their own (`dsgmcmc.targets.factorisation.noise`).
    first, every : int
        Sweeps before the first draw, and between draws.
    """

    rank: int
    biases: bool
    prior: PriorName
    prior_precision: float
    noise_precision: float | None
    heteroscedastic: tuple[Factor, ...] = ()
    first: int = 1
    every: int = 1

    @property
    def dimension(self) -> int:
        """Number D of columns of a factor."""
        return self.rank + int(self.biases)

    def is_turn(self, sweeps: int) -> bool:
        """Whether the parameters are drawn after so many sweeps."""
        return sweeps >= self.first and sweeps % self.every == 0

    def start(self, subchains: int) -> Hyperparameters:
        """Parameters before the first draw: one set per sub-chain."""
        d, m = self.dimension, subchains
        precision = np.full(d, self.prior_precision)
        if self.prior == "normal-wishart":
            precision = np.diag(precision)
        return Hyperparameters(
            tau=np.full(m, 1.0 if self.noise_precision is None else self.noise_precision),
            mean={factor: np.zeros((m, d)) for factor in Factor},
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
    ) -> None:
        """Draw all parameters from their conditionals. Collective.

        Parameters
        ----------
        state : Hyperparameters
            What is replaced; also conditioned on.
        circulation : Circulation
            The factors, and the noise scales, which are drawn, too.
        stream : Stream
            Names the random numbers.
        positions : tuple of str
            The field that holds the state of each sub-chain.
        squared_error : (blocks here, 1) float64
            Of the last sweep, by row block.
        """
        if self.prior == "fixed" and self.noise_precision is not None and not self.heteroscedastic:
            return
        partials = []
        for local, (row, column) in enumerate(circulation.pairs()):
            sums = self._sums(row, positions) | self._sums(column, positions)
            for block in (row, column):
                if block.factor in self.heteroscedastic:
                    sums[f"{block.factor.name}.scales"] = noise_scale_sums(block)
            partials.append([sums | {"squared_error": squared_error[local]}])
        draw = partial(self._draw_all, circulation.ratings, stream, len(positions))
        state.take(circulation.ring.sum(partials, draw, shapes_of(state.sampled())))
        if self.heteroscedastic:
            turn = np.zeros(1) if state.turn is None else state.turn
            factor = self.heteroscedastic[int(turn[0]) % len(self.heteroscedastic)]
            blocks = [block for block in circulation.blocks() if block.factor == factor]
            draw_noise_scales(blocks, float(state.nu[factor][0]), float(state.tau[0]), stream)
            state.turn = turn + 1

    def _sums(self, block: ParameterBlock, positions: tuple[str, ...]) -> dict[str, Float64]:
        """Column sums of theta of every sub-chain, (M, D), and of its squares or of its outer products."""
        totals, products = [], []
        for position in positions:
            if self.prior == "normal-wishart":
                theta = block[position].astype(np.float64)
                totals.append(theta.sum(axis=0))
                products.append(theta.T @ theta)
            else:
                sums = block.update(SUMS, theta=position)
                totals.append(sums["total"])
                products.append(sums["squares"])
        name = block.factor.name
        return {f"{name}.total": np.array(totals), f"{name}.products": np.array(products)}

    def _draw_all(
        self, ratings: RatingBlocks, stream: Stream, subchains: int, sums: dict[str, Float64]
    ) -> dict[str, Float64]:
        """One set of parameters for each sub-chain from the sums over all blocks; runs at the root."""
        key = [stream.seed, Purpose.HYPERPARAMETERS]
        rng = np.random.Generator(np.random.Philox(key=key, counter=[0, 0, stream.iteration, stream.chain]))
        drawn = self.start(subchains)
        rows = dict(zip(Factor, ratings.shape, strict=True))
        for factor in self.heteroscedastic:
            drawn.nu[factor][:] = draw_nu(sums[f"{factor.name}.scales"], rows[factor], rng)
        for m in range(subchains):
            if self.noise_precision is None:
                rate = 1.0 + sums["squared_error"][0] / 2
                drawn.tau[m] = rng.gamma(1.0 + ratings.n_data / 2) / rate
            if self.prior == "fixed":
                continue
            for factor, n in rows.items():
                total, products = sums[f"{factor.name}.total"][m], sums[f"{factor.name}.products"][m]
                drawn.mean[factor][m], drawn.precision[factor][m] = self._draw_prior(total / n, products, n, rng)
        return drawn.sampled()

    def _draw_prior(
        self, average: Float64, products: Float64, n: int, rng: np.random.Generator
    ) -> tuple[Float64, Float64]:
        d, k = self.dimension, self.rank
        if self.prior == "normal-gamma":
            mean, precision = draw_normal_gamma(average[:k], products[:k], n, rng)
            if self.biases:
                bias = rng.gamma(SHAPE + n / 2, 1 / (RATE + products[k:] / 2))
                mean, precision = np.append(mean, 0.0), np.append(precision, bias)
            return mean, precision
        mean, precision = np.zeros(d), np.zeros((d, d))
        mean[:k], precision[:k, :k] = draw_normal_wishart(average[:k], products[:k, :k], n, rng)
        if self.biases:
            precision[k, k] = rng.gamma(SHAPE + n / 2, 1 / (RATE + products[k, k] / 2))
        return mean, precision


def draw_normal_gamma(average: Float64, squares: Float64, n: int, rng: np.random.Generator) -> tuple[Float64, Float64]:
    """Draw (m, lambda) of a diagonal Gaussian given n rows [Nemeth 2021, 6.3].

    Parameters
    ----------
    average, squares : (K,) float64
        Mean over the rows, and sum of squares over the rows, of each column.
    n : int
        Number of rows.
    rng : Generator
        Source of randomness.
    """
    scatter = np.maximum(squares - n * average**2, 0.0)
    rate = RATE + scatter / 2 + n * average**2 / (2 * (n + 1))
    precision = rng.gamma(SHAPE + n / 2, 1 / rate)
    mean = rng.normal(n * average / (n + 1), 1 / np.sqrt((n + 1) * precision))
    return mean, precision


def draw_normal_wishart(average: Float64, outer: Float64, n: int, rng: np.random.Generator) -> tuple[Float64, Float64]:
    """Draw (m, Lambda) of a Gaussian given n rows [Salakhutdinov 2008, eq. 14], with W0 = I, nu0 = K, beta0 = 2.

    Parameters
    ----------
    average : (K,) float64
        Mean over the rows.
    outer : (K, K) float64
        Sum over the rows of theta theta^T.
    n : int
        Number of rows.
    rng : Generator
        Source of randomness.
    """
    k = len(average)
    scatter = outer - n * np.outer(average, average)
    inverse = np.eye(k) + scatter + WISHART_BETA * n / (WISHART_BETA + n) * np.outer(average, average)
    scale = np.linalg.inv((inverse + inverse.T) / 2)
    precision = np.atleast_2d(stats.wishart.rvs(k + n, (scale + scale.T) / 2, random_state=rng))
    covariance = np.linalg.inv((WISHART_BETA + n) * precision)
    factor = np.linalg.cholesky((covariance + covariance.T) / 2)
    mean = n * average / (WISHART_BETA + n) + factor @ rng.standard_normal(k)
    return mean, precision
