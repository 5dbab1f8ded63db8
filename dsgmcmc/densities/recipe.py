r"""The complete recipe for stochastic gradient MCMC [Ma 2015]: the drift that a sampler's claimed dynamics need.

A diffusion on z = (theta, auxiliary variables) that leaves exp(-H(z)) invariant can be written with D(z), positive
semidefinite, and Q(z), skew-symmetric:

    dz = f dt + sqrt(2 D) dW,    f = -(D + Q) grad H + Gamma,    Gamma_i = sum_j d (D_ij + Q_ij) / d z_j

[Ma 2015, eq. 2, 3]. Its eq. 6 and 14 have Gamma inside the bracket, -eps [(D + Q) grad H + Gamma], where the sign must
be minus; as printed the law in one dimension is exp(-H) / D^2.

`euler` simulates dynamics of your own. To check an existing sampler, compare its drift with `drift`, or compute
`residual`, which needs neither a simulation nor the recipe: it is zero exactly where the Fokker-Planck equation leaves
exp(-H) unchanged. All functions take n points, plain vectors, at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

import numpy as np

from dsgmcmc.types import Float64

#: Step of differences, where z is of the order of 1: of fourth order, so that 1e-11 of a derivative is wrong.
SPACING = 1e-3

Field = Callable[[Float64], Float64]


@dataclass(frozen=True)
class Dynamics:
    """Dynamics that a sampler claims to have, at n points z (n, m).

    Attributes
    ----------
    gradient : callable
        Gradient of H, (n, m).
    diffusion, curl : callable
        D and Q, (n, m, m).
    divergence : callable, optional
        Gamma, (n, m); by central differences, 4 m evaluations of D and Q, if it is not given.
    """

    gradient: Field
    diffusion: Field
    curl: Field
    divergence: Field | None = None

    def correction(self, z: Float64) -> Float64:
        """Gamma, (n, m)."""
        if self.divergence is not None:
            return self.divergence(z)
        return _divergence(lambda y: self.diffusion(y) + self.curl(y), z)


def drift(dynamics: Dynamics, z: Float64) -> Float64:
    """Return f = -(D + Q) grad H + Gamma [Ma 2015, eq. 3].

    Parameters
    ----------
    dynamics : Dynamics
        What is claimed.
    z : (n, m) float64
        Points.

    Returns
    -------
    (n, m) float64

    Raises
    ------
    ValueError
        If Q is not skew-symmetric somewhere.
    """
    d, q = dynamics.diffusion(z), dynamics.curl(z)
    if not np.allclose(q, -q.swapaxes(1, 2), rtol=0, atol=1e-12 * max(1.0, float(np.abs(q).max()))):
        raise ValueError("Q is not skew-symmetric: it would change the law")
    return -_times(d + q, dynamics.gradient(z)) + dynamics.correction(z)


def euler(dynamics: Dynamics, z: Float64, eps: float, normals: Float64, noise: Float64 | float = 0.0) -> Float64:
    """One step z + eps f + N(0, eps (2 D - eps B^)) [Ma 2015, eq. 9, the sign of Gamma mended].

    Parameters
    ----------
    dynamics : Dynamics
        What is simulated; its gradient may be a noisy one.
    z : (n, m) float64
        Points.
    eps : float
        Step.
    normals : (n, m) float64
        Standard normals.
    noise : (n, m, m) float64, optional
        B^: estimate of the covariance of the drift's noise, (D + Q) Cov(grad H~) (D + Q)^T.

    Returns
    -------
    (n, m) float64

    Raises
    ------
    ValueError
        If 2 D - eps B^ has a negative eigenvalue: the gradients' noise is more than is to be added.
    """
    values, vectors = np.linalg.eigh(2 * dynamics.diffusion(z) - eps * noise)
    if values.min() < -1e-12 * max(1.0, float(values.max())):
        raise ValueError(f"2 D - eps B has an eigenvalue of {values.min():.3g}: use a smaller step")
    spread = vectors * np.sqrt(np.maximum(values, 0))[:, None, :]
    return z + eps * drift(dynamics, z) + sqrt(eps) * _times(spread, normals)


def residual(dynamics: Dynamics, z: Float64, found: Field | None = None) -> Float64:
    """Residual of the Fokker-Planck equation at exp(-H), relative to it; 0 where exp(-H) is invariant.

    div(f p) - sum_ij d_i d_j (D_ij p), over p = exp(-H), is div c - c . grad H with c = f - div D + D grad H: the flow
    of probability in units of p.

    Parameters
    ----------
    dynamics : Dynamics
        grad H and D are used, and Q if `found` is not given.
    z : (n, m) float64
        Points.
    found : callable, optional
        Drift of a sampler, (n, m); `drift` if not given.

    Returns
    -------
    (n,) float64
    """

    def flow(y: Float64) -> Float64:
        f = drift(dynamics, y) if found is None else found(y)
        return f - _divergence(dynamics.diffusion, y) + _times(dynamics.diffusion(y), dynamics.gradient(y))

    spread = _divergence(lambda y: flow(y)[:, None, :], z)[:, 0]
    left: Float64 = spread - (flow(z) * dynamics.gradient(z)).sum(axis=1)
    return left


def _times(matrices: Float64, vectors: Float64) -> Float64:
    product: Float64 = np.einsum("nij,nj->ni", matrices, vectors)
    return product


def _divergence(matrix: Field, z: Float64) -> Float64:
    """Sum_j d M_ij / d z_j of (n, i, m) matrices, (n, i), by central differences of fourth order."""
    total = np.zeros(())
    for j in range(z.shape[1]):
        for shift, factor in ((1, 8), (-1, -8), (2, -1), (-2, 1)):
            moved = z.copy()
            moved[:, j] += shift * SPACING
            total = total + factor * matrix(moved)[:, :, j]
    divergence: Float64 = total / (12 * SPACING)
    return divergence
