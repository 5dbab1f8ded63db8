"""Densities whose energy is a sum over data, U = sum_i U_i + prior, with access to single terms.

Importance sampling of data needs the terms, and so do Metropolis kernels that evaluate few data.
Gradient-based samplers treat these densities like any other density.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from typing_extensions import override

from dsgmcmc.densities.density import ALL, Data, Density
from dsgmcmc.errors import InputError
from dsgmcmc.types import Float64


class SumDensity(Density, ABC):
    """A density of a vector theta of length D, given N data with separate energies.

    A subclass sets the attributes, and defines the energy and the gradient of every datum. Only
    some samplers need `smoothness` or `bounds`.

    Attributes
    ----------
    dimension, n_data : int
        D and N.
    curvature : (D,) float64
        Typical second derivative of the likelihood's energy, the unit of step sizes.
    prior_mean, prior_precision : (D,) and (D,) or (D, D) float64
        Normal prior, which is never split over the data; precision 0 if there is no prior.
    """

    @abstractmethod
    def energies(self, theta: Float64, index: Data = ALL) -> Float64:
        """Return U_i, minus the log likelihood, for each of S data: (n, S) for theta (n, D)."""

    @abstractmethod
    def gradients(self, theta: Float64, index: Data = ALL) -> Float64:
        """Gradients of `energies`, (n, S, D)."""

    @override
    def energy(self, theta: Float64, data: Data = ALL) -> Float64:
        return self.energies(theta, data).sum(axis=1)

    @override
    def gradient(self, theta: Float64, data: Data = ALL) -> Float64:
        return self.gradients(theta, data).sum(axis=1)

    # ------------------------------------------------------------------ gradients in stored form

    def slopes(self, theta: Float64, index: Data = ALL) -> Float64:
        """Return `gradients` in stored form, (n, S, W).

        W is D, or less if the data determine the directions of the gradients.
        """
        return self.gradients(theta, index)

    def spread(self, slopes: Float64, index: Data = ALL) -> Float64:
        """Return gradients (n, S, D) from their stored form (n, S, W)."""
        return slopes

    def total(self, slopes: Float64) -> Float64:
        """Sum of stored gradients (n, N, W) over all data, (n, D)."""
        return self.spread(slopes).sum(axis=1)

    def weighted(self, slopes: Float64, index: Data, p: Float64) -> Float64:
        """Sum of stored gradients (1, S, W), each divided by its element of p (S,): (D,)."""
        return (self.spread(slopes, index)[0] / p[:, None]).sum(axis=0)

    def lengths(self, slopes: Float64, index: Data = ALL) -> Float64:
        """Lengths of stored gradients, (n, S)."""
        return np.linalg.norm(self.spread(slopes, index), axis=2)

    def stiffness(self, theta: Float64, index: Data = ALL) -> Float64:
        """Lipschitz constants of gradients of U_i near theta, (n, S); by default `smoothness`."""
        return np.broadcast_to(self.smoothness[index], (len(theta), len(self.smoothness[index])))

    @property
    def smoothness(self) -> Float64:
        """Lipschitz constants L_i of the gradients of U_i in the Euclidean norm, (N,).

        Raises
        ------
        InputError
            If this density does not define them.
        """
        raise InputError(
            f"{type(self).__name__} has no smoothness: Lipschitz constants (N,) of its gradients"
        )

    def bounds(self, order: int) -> Float64:
        """Bounds of all partial derivatives of U_i of one order, 2 or 3, for all theta: (N,).

        Raises
        ------
        InputError
            If this density does not define them.
        """
        raise InputError(
            f"{type(self).__name__} has no bounds(order): suprema (N,) of the derivatives of its"
            " energies"
        )
