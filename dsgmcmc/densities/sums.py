"""Densities whose energy is a sum over data, U = sum_i U_i + prior, asked for datum by datum.

Samplers that weigh data against each other, and Metropolis kernels that look at few of them, need the terms; those that
step along gradients take such a density like any other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from dsgmcmc.densities.density import ALL, Data, prior_energy, prior_gradient
from dsgmcmc.errors import InputError
from dsgmcmc.types import Float64


class SumDensity(ABC):
    """A posterior of a vector theta of length D from N data; a `dsgmcmc.densities.density.Density`.

    A subclass sets its attributes, and says the energy and the gradient of every datum. Bounds are needed by those
    kernels alone that rest on them.

    Attributes
    ----------
    dimension, n_data : int
        D and N.
    curvature : (D,) float64
        Typical second derivative of the likelihood's energy, the unit of step sizes given by curvature.
    prior_mean, prior_precision : (D,) and (D,) or (D, D) float64
        Normal prior, which is never split over data; precision 0 where there is none.
    """

    dimension: int
    n_data: int
    curvature: Float64
    prior_mean: Float64
    prior_precision: Float64

    @abstractmethod
    def energies(self, theta: Float64, index: Data = ALL) -> Float64:
        """U_i, minus the log likelihood of each of S data: (n, S) for theta (n, D)."""

    @abstractmethod
    def gradients(self, theta: Float64, index: Data = ALL) -> Float64:
        """Gradients of `energies`, (n, S, D)."""

    def energy(self, theta: Float64, data: Data = ALL) -> Float64:
        """Minus the log likelihood of some of the data, (n,) for theta (n, D)."""
        energy: Float64 = self.energies(theta, data).sum(axis=1)
        return energy

    def gradient(self, theta: Float64, data: Data = ALL) -> Float64:
        """Gradient of `energy`, (n, D)."""
        gradient: Float64 = self.gradients(theta, data).sum(axis=1)
        return gradient

    def prior_energy(self, theta: Float64) -> Float64:
        """Minus the log density of the prior up to a constant, (n,)."""
        return prior_energy(self, theta)

    def prior_gradient(self, theta: Float64) -> Float64:
        """Gradient of `prior_energy`, (n, D)."""
        return prior_gradient(self, theta)

    # ------------------------------------------------------------------ gradients as estimators keep them

    @property
    def width(self) -> int:
        """Numbers W by which a gradient of a datum is kept: D, or fewer where its direction is known."""
        return self.dimension

    def slopes(self, theta: Float64, index: Data = ALL) -> Float64:
        """`gradients` as they are kept, (n, S, W)."""
        return self.gradients(theta, index)

    def spread(self, slopes: Float64, index: Data = ALL) -> Float64:
        """Gradients (n, S, D) of what is kept of them, (n, S, W)."""
        return slopes

    def total(self, slopes: Float64) -> Float64:
        """Sum over all data of the gradients that are kept, (n, D) of (n, N, W)."""
        total: Float64 = self.spread(slopes).sum(axis=1)
        return total

    def weighted(self, slopes: Float64, index: Data, p: Float64) -> Float64:
        """Sum of gradients that are kept, each divided by a number of its own: (D,) of (1, S, W) and (S,)."""
        weighted: Float64 = (self.spread(slopes, index)[0] / p[:, None]).sum(axis=0)
        return weighted

    def lengths(self, slopes: Float64, index: Data = ALL) -> Float64:
        """Lengths of the gradients that are kept, (n, S)."""
        lengths: Float64 = np.linalg.norm(self.spread(slopes, index), axis=2)
        return lengths

    def stiffness(self, theta: Float64, index: Data = ALL) -> Float64:
        """Lipschitz constants of the gradients of U_i about theta, (n, S); `smoothness`, if no more is known."""
        return np.broadcast_to(self.smoothness[index], (len(theta), len(self.smoothness[index])))

    @property
    def smoothness(self) -> Float64:
        """L_i, Lipschitz constants of the gradients of U_i in the Euclidean norm, (N,).

        Raises
        ------
        InputError
            If this density has none.
        """
        raise InputError(f"{type(self).__name__} has no smoothness: Lipschitz constants (N,) of its gradients")

    def bounds(self, order: int) -> Float64:
        """Bounds of all partial derivatives of one order of U_i, 1 to 3, at any theta: (N,).

        Raises
        ------
        InputError
            If this density has none.
        """
        raise InputError(f"{type(self).__name__} has no bounds(order): suprema (N,) of the derivatives of its energies")
