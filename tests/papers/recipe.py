r"""The complete recipe for stochastic gradient MCMC [Ma 2015]: the drift that keeps a given density
invariant.

A diffusion on z = (theta, auxiliary variables) that leaves exp(-H(z)) invariant can be written with
D(z), positive semidefinite, and Q(z), skew-symmetric:

    dz = f dt + sqrt(2 D) dW
    f = -(D + Q) grad H + Gamma,    Gamma_i = sum_j d (D_ij + Q_ij) / d z_j

[Ma 2015, eq. 2, 3]. Eq. 6 and 14 of the paper have Gamma inside the bracket, -eps [(D + Q) grad H +
Gamma], where its sign must be minus; with the printed sign the invariant density in one dimension
is exp(-H) / D^2.

`euler` simulates dynamics given by D and Q. To check an existing sampler, compare its drift with
`drift`, or compute `residual`, which needs neither a simulation nor the recipe. The residual is
zero everywhere if and only if the Fokker-Planck equation leaves exp(-H) unchanged. All functions
take n points at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

import numpy as np

from dsgmcmc.densities.density import multiply
from dsgmcmc.types import Float64

#: Step of the finite differences of fourth order, for z of the order of 1. Their relative error is
#: about 1e-11.
SPACING = 1e-3

Field = Callable[[Float64], Float64]


@dataclass(frozen=True)
class Dynamics:
    """Dynamics that a sampler claims to have, as functions of n points z (n, m).

    Attributes
    ----------
    gradient : callable
        Gradient of H, (n, m).
    diffusion, curl : callable
        D and Q, (n, m, m).
    divergence : callable, optional
        Gamma, (n, m). By default it is computed by central differences, with 4 m evaluations of D
        and Q.
    """

    gradient: Field
    diffusion: Field
    curl: Field
    divergence: Field | None = None

    def correction(self, z: Float64) -> Float64:
        """Return Gamma, (n, m)."""
        if self.divergence is not None:
            return self.divergence(z)
        return _divergence(lambda y: self.diffusion(y) + self.curl(y), z)


def drift(dynamics: Dynamics, z: Float64) -> Float64:
    """Return f = -(D + Q) grad H + Gamma [Ma 2015, eq. 3].

    Parameters
    ----------
    dynamics : Dynamics
    z : (n, m) float64
        Points.

    Returns
    -------
    (n, m) float64

    Raises
    ------
    ValueError
        If Q is not skew-symmetric at all points.
    """
    d = dynamics.diffusion(z)
    q = dynamics.curl(z)
    if not np.allclose(q, -q.swapaxes(1, 2), rtol=0, atol=1e-12 * max(1.0, float(np.abs(q).max()))):
        raise ValueError("Q is not skew-symmetric: it would change the invariant distribution")
    return -multiply(d + q, dynamics.gradient(z)) + dynamics.correction(z)


def euler(
    dynamics: Dynamics, z: Float64, eps: float, normals: Float64, noise: Float64 | float = 0.0
) -> Float64:
    """Take one step z + eps f + N(0, eps (2 D - eps B^)) [Ma 2015, eq.

    9, with the sign of Gamma corrected].

    Parameters
    ----------
    dynamics : Dynamics
        Its gradient may be noisy.
    z : (n, m) float64
        Points.
    eps : float
        Step.
    normals : (n, m) float64
        Standard normals.
    noise : (n, m, m) float64, optional
        B^: estimate of the covariance of the noise in the drift, (D + Q) Cov(grad H~) (D + Q)^T.

    Returns
    -------
    (n, m) float64

    Raises
    ------
    ValueError
        If 2 D - eps B^ has a negative eigenvalue, that is, if the noise of the gradients exceeds
        the noise of the step.
    """
    values, vectors = np.linalg.eigh(2 * dynamics.diffusion(z) - eps * noise)
    if values.min() < -1e-12 * max(1.0, float(values.max())):
        raise ValueError(f"2 D - eps B has an eigenvalue of {values.min():.3g}: use a smaller step")
    spread = vectors * np.sqrt(np.maximum(values, 0))[:, None, :]
    return z + eps * drift(dynamics, z) + sqrt(eps) * multiply(spread, normals)


def residual(dynamics: Dynamics, z: Float64, claimed: Field | None = None) -> Float64:
    """Return the residual of the Fokker-Planck equation for p = exp(-H), divided by p; 0 if p is
    invariant.

    The residual (div(f p) - sum_ij d_i d_j (D_ij p)) / p is div c - c . grad H, where c = f - div D
    + D grad H is the flow of probability in units of p.

    Parameters
    ----------
    dynamics : Dynamics
        Its grad H and D are used, and Q if `claimed` is not given.
    z : (n, m) float64
        Points.
    claimed : callable, optional
        Drift of the sampler to check, (n, m); by default `drift`.

    Returns
    -------
    (n,) float64
    """

    def flow(y: Float64) -> Float64:
        f = drift(dynamics, y) if claimed is None else claimed(y)
        return (
            f
            - _divergence(dynamics.diffusion, y)
            + multiply(dynamics.diffusion(y), dynamics.gradient(y))
        )

    spread = _divergence(lambda y: flow(y)[:, None, :], z)[:, 0]
    return spread - (flow(z) * dynamics.gradient(z)).sum(axis=1)


def _divergence(matrix: Field, z: Float64) -> Float64:
    """Return sum_j d M_ij / d z_j, (n, i), of matrices M (n, i, m), by central differences of
    fourth order.
    """
    total = np.zeros(())
    for j in range(z.shape[1]):
        for shift, factor in ((1, 8), (-1, -8), (2, -1), (-2, 1)):
            moved = z.copy()
            moved[:, j] += shift * SPACING
            total = total + factor * matrix(moved)[:, :, j]
    return total / (12 * SPACING)
