r"""L-BFGS on coefficients: H g and S z from the dot products of a few vectors, without the vectors.

H is the limited-memory BFGS inverse Hessian of the pairs (s_i, y_i), oldest first, from a diagonal H^0, and S
its square root, H = S S^T:

    H g = H^0 (g + sum a_i y_i) + sum b_i s_i
    S z = (H^0)^(1/2) z + sum e_i s_i
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dsgmcmc.types import Float64


@dataclass(frozen=True)
class Products:
    """Dot products of m pairs with each other and with g and r z, where r r = H^0 and B^0 = 1 / H^0.

    Attributes
    ----------
    sy, yhy, sbs : (m, m) float64
        s_i . y_j, y_i . H^0 y_j and s_i . B^0 s_j.
    sg, yhg : (m,) float64
        s_i . g and y_i . H^0 g.
    yrz, sbrz : (m,) float64
        y_i . r z and s_i . B^0 r z.
    """

    sy: Float64
    yhy: Float64
    sbs: Float64
    sg: Float64
    yhg: Float64
    yrz: Float64
    sbrz: Float64


def coefficients(products: Products, valid: npt.NDArray[np.bool_]) -> tuple[Float64, Float64, Float64]:
    """Coefficients (a, b, e) of H g and S z; those of invalid pairs are 0.

    Parameters
    ----------
    products : Products
        Pairs in the order of their age, oldest first.
    valid : (m,) bool
        Pairs to use; their s . y is positive.

    Returns
    -------
    a, b, e : (m,) float64
        Coefficients of the equations at the head of the module.
    """
    use = np.flatnonzero(valid)
    a, b, e = (np.zeros(len(valid)) for _ in range(3))
    a[use], b[use] = _two_loops(products, use)
    e[use] = _square_root(products, use)
    return a, b, e


def _two_loops(p: Products, use: npt.NDArray[np.int64]) -> tuple[Float64, Float64]:
    """H g by the two-loop recursion [Nocedal 1980], as coefficients of H^0 y_i and s_i."""
    sy, yhy = p.sy[use][:, use], p.yhy[use][:, use]
    m = len(use)
    alpha, b = np.zeros(m), np.zeros(m)
    for i in reversed(range(m)):  # q = g - sum alpha_j y_j
        alpha[i] = (p.sg[use[i]] - sy[i] @ alpha) / sy[i, i]
    for i in range(m):  # r = H^0 q + sum b_j s_j
        beta = (p.yhg[use[i]] - yhy[i] @ alpha + sy[:, i] @ b) / sy[i, i]
        b[i] = alpha[i] - beta
    return -alpha, b


def _square_root(p: Products, use: npt.NDArray[np.int64]) -> Float64:
    """S z by S <- (I - p q^T) S with p = s / s.y and q = y - sqrt(s.y / s.Bs) B s, as coefficients of s_i.

    B is the direct BFGS matrix; B s_i lies in the span of {B^0 s_j, y_j}: rows of `u` and `w`.
    """
    sy, sbs = p.sy[use][:, use], p.sbs[use][:, use]
    m = len(use)
    u, w = np.zeros((m, m)), np.zeros((m, m))  # B_i s_i = sum u_ij B^0 s_j + sum w_ij y_j
    curvature = np.zeros(m)  # s_i . B_i s_i
    e = np.zeros(m)
    for i in range(m):
        u[i, i] = 1.0
        for j in range(i):  # B <- B - B s s^T B / s.Bs + y y^T / s.y
            s_b_s = u[j] @ sbs[:, i] + w[j] @ sy[i]  # s_i . B_j s_j
            u[i] -= s_b_s / curvature[j] * u[j]
            w[i] -= s_b_s / curvature[j] * w[j]
            w[i, j] += sy[i, j] / sy[j, j]
        curvature[i] = u[i] @ sbs[:, i] + w[i] @ sy[i]
        root = np.sqrt(sy[i, i] / curvature[i])
        # q_i . (S z so far), with S z so far = r z + sum e_j s_j
        y_z = p.yrz[use[i]] + sy[:, i] @ e
        b_z = u[i] @ (p.sbrz[use] + sbs @ e) + w[i] @ (p.yrz[use] + sy.T @ e)
        e[i] = -(y_z - root * b_z) / sy[i, i]
    return e
