r"""Bayesian probabilistic matrix factorisation: priors, noise, and the draws of their parameters.

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
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy import stats

from dsgmcmc.kernels.formula import Formula
from dsgmcmc.targets.factorisation.noise import NU_START, draw_nu, draw_weights, weight_sums
from dsgmcmc.targets.state import Side
from dsgmcmc.types import PriorName

if TYPE_CHECKING:
    from dsgmcmc.targets.factorisation.target import FactorWorld

Float64 = npt.NDArray[np.float64]

SHAPE, RATE = 1.0, 5.0
WISHART_BETA = 2.0
_PURPOSE_HYPER = 0x147

SUMS = Formula("total = x\nsquares = x * x", fields=("x",), column_sums=("total", "squares"))


@dataclass(frozen=True)
class Model:
    """Priors and noise of the factorisation.

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
    own_noise : tuple of str
        Factors whose rows have noise of their own (`dsgmcmc.targets.factorisation.noise`).
    """

    rank: int
    biases: bool
    prior: PriorName
    prior_precision: float
    noise_precision: float | None
    own_noise: tuple[str, ...] = ()

    @property
    def dimension(self) -> int:
        """Number D of columns of a factor."""
        return self.rank + int(self.biases)

    def start(self, subchains: int) -> dict[str, Float64]:
        """Parameters before the first draw: one set per sub-chain.

        Returns
        -------
        dict
            ``tau`` (M,); ``W.mean`` and ``H.mean`` (M, D); ``W.precision`` and ``H.precision`` (M, D), or (M, D, D)
            for ``normal-wishart``. All float64.
        """
        d, m = self.dimension, subchains
        precision = np.full(d, self.prior_precision)
        if self.prior == "normal-wishart":
            precision = np.diag(precision)
        state = {"tau": np.full(m, 1.0 if self.noise_precision is None else self.noise_precision)}
        for factor in ("W", "H"):
            state[f"{factor}.mean"] = np.zeros((m, d))
            state[f"{factor}.precision"] = np.repeat(precision[None], m, axis=0)
        for factor in self.own_noise:
            state[f"{factor}.nu"] = np.full(m, NU_START)
        return state

    def draw(self, world: FactorWorld, positions: tuple[str, ...]) -> None:
        """Draw all parameters from their conditionals, and replace `world.state`. Collective.

        Parameters
        ----------
        world : FactorWorld
            Its sides' `positions` and its squared error of the last sweep are what is conditioned on.
        positions : tuple of str
            The field that holds the state of each sub-chain.
        """
        if self.prior == "fixed" and self.noise_precision is not None and not self.own_noise:
            return
        names = sorted(self.start(1))
        shapes = [world.state[name].shape for name in names]
        width = sum(int(np.prod(shape)) for shape in shapes)
        sums = {id(side): [self._sums(side, position) for position in positions] for side in world.sides()}
        partials = []
        for local, row in enumerate(world.rows()):
            column = world.meeting(row.index)
            weights = [weight_sums(row if factor == "W" else column) for factor in self.own_noise]
            partials.append(np.concatenate([*sums[id(row)], *sums[id(column)], *weights, world.squared_error[local]]))

        def finish(everything: Float64) -> Float64:
            total = everything.sum(axis=0)
            drawn = self._draw_all(world, total, len(positions))
            return np.concatenate([drawn[name].ravel() for name in names])

        result = world.ring.reduce(np.array(partials), finish, width)
        pieces = np.split(result, np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1])
        for name, piece, shape in zip(names, pieces, shapes, strict=True):
            world.state[name] = piece.reshape(shape)
        if self.own_noise:
            turn = world.state.get("noise.turn", np.zeros(1))
            draw_weights(world, self.own_noise[int(turn[0]) % len(self.own_noise)])
            world.state["noise.turn"] = turn + 1

    def _sums(self, side: Side, position: str) -> Float64:
        """Column sums of theta and of its squares, or of its outer products: (2 D,) or (D + D * D,)."""
        if self.prior != "normal-wishart":
            sums = side.update(SUMS, {"x": position})
            return np.concatenate([sums["total"], sums["squares"]])
        theta = side[position].astype(np.float64)
        return np.concatenate([theta.sum(axis=0), (theta.T @ theta).ravel()])

    def _draw_all(self, world: FactorWorld, total: Float64, subchains: int) -> dict[str, Float64]:
        """One set of parameters for each sub-chain from the sums over all blocks; runs at the root."""
        key = [world.seed, _PURPOSE_HYPER]
        rng = np.random.Generator(np.random.Philox(key=key, counter=[0, 0, world.iteration, world.chain]))
        drawn = self.start(subchains)
        tail = 1 + 2 * len(self.own_noise)
        stride = (len(total) - tail) // (2 * subchains)
        for number, factor in enumerate(self.own_noise):
            rows = world.ratings.shape[factor == "H"]
            drawn[f"{factor}.nu"][:] = draw_nu(total[-tail:][2 * number : 2 * number + 2], rows, rng)
        for m in range(subchains):
            if self.noise_precision is None:
                drawn["tau"][m] = rng.gamma(1.0 + world.n_data / 2) / (1.0 + total[-1] / 2)
            if self.prior == "fixed":
                continue
            for f, (factor, n) in enumerate(zip(("W", "H"), world.ratings.shape, strict=True)):
                sums = total[(f * subchains + m) * stride : (f * subchains + m + 1) * stride]
                mean, precision = self._draw_prior(sums, n, rng)
                drawn[f"{factor}.mean"][m], drawn[f"{factor}.precision"][m] = mean, precision
        return drawn

    def _draw_prior(self, sums: Float64, n: int, rng: np.random.Generator) -> tuple[Float64, Float64]:
        d, k = self.dimension, self.rank
        average = sums[:d] / n
        if self.prior == "normal-gamma":
            squares = sums[d:]
            mean, precision = draw_normal_gamma(average[:k], squares[:k], n, rng)
            if self.biases:
                bias = rng.gamma(SHAPE + n / 2, 1 / (RATE + squares[k:] / 2))
                mean, precision = np.append(mean, 0.0), np.append(precision, bias)
            return mean, precision
        outer = sums[d:].reshape(d, d)
        mean, precision = np.zeros(d), np.zeros((d, d))
        mean[:k], precision[:k, :k] = draw_normal_wishart(average[:k], outer[:k, :k], n, rng)
        if self.biases:
            precision[k, k] = rng.gamma(SHAPE + n / 2, 1 / (RATE + outer[k, k] / 2))
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
