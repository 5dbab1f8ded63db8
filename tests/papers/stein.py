r"""Kernel Stein discrepancy of draws from a density whose gradient is known [Gorham & Mackey 2017].

With s = -grad U and the inverse multiquadric kernel k(x, y) = (c^2 + |x - y|^2)^beta,

    k0(x, y) = s(x).s(y) k + s(x).grad_y k + s(y).grad_x k + div_x grad_y k
    KSD = sqrt(sum_ij k0(x_i, x_j)) / K

For independent draws x, y from exp(-U), E k0(x, y) = 0, so KSD falls as K^-1/2; for draws from
another distribution it stays above zero. KSD therefore detects the bias of a sampler, unlike R-hat
and effective sample sizes, which compare chains with each other. But it hardly detects a mode
without draws, and in many dimensions it detects little.

[Nemeth 2021, eq. 13] prints k0 with grad U = -s and two plus signs in the middle, which must be
minus. It sums roots over dimensions, while its code takes one root of the sum, as this module does.

[Gorham & Mackey 2017] J. Gorham, L. Mackey: Measuring sample quality with kernels. ICML.
"""

from math import sqrt

import numpy as np

from dsgmcmc.types import Float64

#: Number of rows in a block of the matrix k0(x_i, x_j), which is computed block by block.
CHUNK = 500


def stein_kernel(
    x: Float64, score_x: Float64, y: Float64, score_y: Float64, c: float = 1.0, beta: float = -0.5
) -> Float64:
    """Compute k0 between draws x and draws y, from their Gram matrices.

    Parameters
    ----------
    x, score_x : (n, D) float64
        Draws, and s = -grad U at these draws.
    y, score_y : (m, D) float64
        Other draws, and s at these draws.
    c, beta : float
        Parameters of the kernel; c > 0, -1 < beta < 0.

    Returns
    -------
    (n, m) float64
    """
    squares = (x**2).sum(axis=1)[:, None] + (y**2).sum(axis=1) - 2 * x @ y.T
    along = (
        (score_x * x).sum(axis=1)[:, None]
        + (score_y * y).sum(axis=1)
        - score_x @ y.T
        - x @ score_y.T
    )
    base = c**2 + np.maximum(squares, 0)
    return base**beta * (
        score_x @ score_y.T
        - 2 * beta * (along + x.shape[1]) / base
        - 4 * beta * (beta - 1) * (np.maximum(squares, 0) / base) / base
    )


def kernel_stein_discrepancy(draws: Float64, gradients: Float64) -> float:
    """Compute the kernel Stein discrepancy; its limit for many draws from the density itself is 0.

    Parameters
    ----------
    draws : (K, D) float64
        Draws by any sampler; the computation takes K^2 D operations.
    gradients : (K, D) float64
        Gradient of the energy, prior included, at each draw.
    """
    # k0 depends on the draws only through their differences
    x = draws - draws.mean(axis=0)
    score = -gradients
    blocks = [slice(begin, begin + CHUNK) for begin in range(0, len(x), CHUNK)]
    total = sum(float(stein_kernel(x[rows], score[rows], x, score).sum()) for rows in blocks)
    return sqrt(max(total, 0.0) / len(x) ** 2)
