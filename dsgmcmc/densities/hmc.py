r"""Hamiltonian Monte Carlo [Duane 1987; Neal 2011, fig. 2], adapted in burn-in.

Let S = L L^T be the inverse of the metric. Every iteration draws v ~ N(0, 1), and the leapfrog
steps

    v <- v - (eps / 2) L^T grad U(theta)
    theta <- theta + eps L v
    v <- v - (eps / 2) L^T grad U(theta)

propose a state, which is accepted with probability min{1, exp(H - H')}. Here H = U + |v|^2 / 2 at
the start of the trajectory, and H' at its end.

Target: the posterior itself. Left out: automatic lengths of trajectories (NUTS).

[Neal 2011] R. M. Neal: MCMC using Hamiltonian dynamics, Handbook of Markov chain Monte Carlo,
chapter 5.
[Duane 1987] S. Duane, A. D. Kennedy, B. J. Pendleton, D. Roweth. Hybrid Monte Carlo. Physics
Letters B 195(2), 1987
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from pydantic import Field
from typing_extensions import override

from dsgmcmc.densities.curvature import inverse_root
from dsgmcmc.densities.density import Density, multiply, posterior_gradient, prior_energy
from dsgmcmc.densities.metropolis import DualAveraging, Metropolis
from dsgmcmc.densities.vector import VectorTarget
from dsgmcmc.samplers.step_size import SamplerConfig
from dsgmcmc.targets.state import Attributes
from dsgmcmc.types import Float64, Int64, Purpose

#: Maximum number of leapfrog steps in a trajectory.
MAX_STEPS = 1000
#: Weight of the old S, as a number of states.
OLD_METRIC_STATES = 5.0
#: Ends of the windows of burn-in, as fractions of its length, nearly as in Stan; S is computed at
#: the end of each but the first.
WINDOWS = (0.05, 0.1, 0.15, 0.25, 0.45, 0.85)
#: Maximum of D for which S is a full matrix, whose root a leapfrog step multiplies by two vectors.
DENSE_DIMENSION = 50
#: Rise of H above which a trajectory is divergent, as in Stan.
DIVERGENT_RISE = 1000.0


class HMCConfig(SamplerConfig):
    """Configuration of Hamiltonian Monte Carlo."""

    step_size: float | None = Field(None, gt=0, description="eps; default: adapted in burn-in")
    acceptance: float = Field(
        0.8, gt=0, lt=1, description="mean acceptance probability to which the step is adapted"
    )
    length: float = Field(1.5, gt=0, description="mean time of a trajectory, in the metric")


class HMC(Metropolis[HMCConfig, Density]):
    """Hamiltonian Monte Carlo.

    The duration of every trajectory is `length` times a number drawn uniformly from 0.5 to 1.5, so
    that no trajectory stays periodic; the kernel is a mixture of reversible kernels.

    In burn-in, dual averaging adapts eps to the setting `acceptance`. For D up to
    `DENSE_DIMENSION`, S is a full matrix. It starts as the inverse of the second derivatives of U
    at the density's `start`, which is mostly a mode (`dsgmcmc.densities.curvature`). An eigenvalue
    that is not positive becomes 1, in units of the curvature. For larger D, S is diagonal, and
    starts as 1 / (typical curvature + the prior's precision).

    Burn-in has `WINDOWS`. S is fixed in the first window. At the end of each of the others it
    becomes a weighted mean of the covariance of the window's n states, with weight n, and the old
    S, with weight `OLD_METRIC_STATES`. The rest of burn-in adapts eps alone; then eps and S are
    fixed. If a `step_size` is given, neither eps nor S is adapted.

    After burn-in two kinds of trajectories are counted. A trajectory is ``cut`` if its duration
    would take more than `MAX_STEPS` steps, and ``divergent`` if H' - H is NaN or above
    `DIVERGENT_RISE`.
    """

    Config = HMCConfig
    #: Successive states are far apart, so that all are kept.
    defaults: ClassVar[dict[str, Any]] = {"iterations": 2_000, "burn_in": 1_000, "thin": 1}

    def __init__(self, config: HMCConfig, burn_in: int) -> None:
        super().__init__(config, burn_in)
        self._root: Float64 = np.zeros((0, 0))  # L of every row, (n, D) or (n, D, D)
        self._states: list[Float64] = []  # theta after each iteration of the current window
        #: Numbers of divergent and cut trajectories of every row since burn-in.
        self._troubled: Float64 = np.zeros((0, 2))
        self.replicated += (Attributes(self, "_root", "_troubled", "window"),)

    @property
    def window(self) -> Float64 | None:
        """States of the current window of burn-in, for checkpoints; None without any."""
        if not self._states:
            return None
        return np.array(self._states)

    @window.setter
    def window(self, states: Float64) -> None:
        self._states = list(states)

    @override
    def metrics(self) -> dict[str, float]:
        """Return acceptance rate, evaluations, mean step, and counts ``divergent`` and ``cut``."""
        assert self.adapted is not None
        divergent, cut = self._troubled.sum(axis=0).tolist()
        return {
            **super().metrics(),
            "step": float(self.adapted.eps(False).mean()),
            "divergent": divergent,
            "cut": cut,
        }

    @override
    def step(self, target: VectorTarget[Density], iteration: int) -> None:
        theta = target.block["theta"]
        density = target.density
        self.begin_counts(target, iteration)
        self.fill_energies(density, theta)
        if self.adapted is None:
            self.adapted = self._prepare(target)
        if iteration == self.burn_in:
            self._troubled[:] = 0.0
        adapting = self.config.step_size is None and iteration < self.burn_in
        eps = self.adapted.eps(adapting)
        rng = target.stream.generator(Purpose.PROPOSAL)
        v = rng.standard_normal(theta.shape)
        needed = np.ceil(self.config.length * (0.5 + rng.random(len(theta))) / eps)
        n_steps = np.clip(needed, 1, MAX_STEPS).astype(np.int64)
        with np.errstate(all="ignore"):  # a diverging trajectory is rejected
            proposed, w = self._trajectory(density, theta, v, eps=eps, n_steps=n_steps)
            energy = density.energy(proposed)
            rise = energy - self.energies
            rise = rise + prior_energy(density, proposed) - prior_energy(density, theta)
            rise += 0.5 * (w**2 - v**2).sum(axis=1)
            probability = np.exp(-np.maximum(rise, 0))
        accepted = rise <= rng.standard_exponential(len(theta))
        theta[accepted] = proposed[accepted]
        self.energies[accepted] = energy[accepted]
        evaluations = density.n_data * (n_steps + 2.0)
        self.counts += np.column_stack([accepted, evaluations, np.ones((len(theta), 2))])
        self._troubled += np.column_stack([~(rise <= DIVERGENT_RISE), needed > MAX_STEPS])
        if adapting:
            self.adapted.adapt(probability, self.config.acceptance)
            self._adapt_metric(theta, iteration + 1)

    def _prepare(self, target: VectorTarget[Density]) -> DualAveraging:
        """Set the first metric, and return the adaptation of the steps of all rows."""
        rows, D = target.block["theta"].shape
        self._troubled = np.zeros((rows, 2))
        if D <= DENSE_DIMENSION:
            root = inverse_root(target.density)
        else:
            root = 1 / np.sqrt(target.precision)
        self._root = np.repeat([root], rows, axis=0)
        return DualAveraging(np.full(rows, self.config.step_size or D**-0.25))

    def _adapt_metric(self, theta: Float64, iterations: int) -> None:
        """Store the state; at the end of a window, change the metric and begin a new adaptation."""
        first, *ends = (int(end * self.burn_in) for end in WINDOWS)
        if first < iterations <= ends[-1]:
            self._states.append(theta.copy())
        if iterations not in ends or not self._states:
            return
        self._root = self._new_root()
        self._states = []
        self.adapted = DualAveraging(np.full(len(theta), theta.shape[1] ** -0.25))

    def _new_root(self) -> Float64:
        """Return the root of the mean of the old S and the covariance of the window's states."""
        states = np.array(self._states)
        states -= states.mean(axis=0)
        weight = len(states) + OLD_METRIC_STATES
        if self._root.ndim == 3:
            moments = np.einsum("tni,tnj->nij", states, states)
            old = self._root @ self._root.swapaxes(1, 2)
            return np.linalg.cholesky((moments + OLD_METRIC_STATES * old) / weight)
        moments = (states**2).sum(axis=0)
        return np.sqrt((moments + OLD_METRIC_STATES * self._root**2) / weight)

    def _trajectory(
        self, density: Density, start: Float64, velocity: Float64, *, eps: Float64, n_steps: Int64
    ) -> tuple[Float64, Float64]:
        """Make `n_steps` leapfrog steps, (n,), from every row, and return the final theta and v."""
        theta = start.copy()
        v = velocity.copy()
        eps = eps[:, None]
        root = self._root
        transposed = self._root.swapaxes(1, -1)
        slope = multiply(transposed, posterior_gradient(density, theta))
        for step in range(int(n_steps.max())):
            moving = np.flatnonzero(n_steps > step)
            v[moving] -= 0.5 * eps[moving] * slope[moving]
            theta[moving] += eps[moving] * multiply(root[moving], v[moving])
            slope[moving] = multiply(transposed[moving], posterior_gradient(density, theta[moving]))
            v[moving] -= 0.5 * eps[moving] * slope[moving]
        return theta, v
