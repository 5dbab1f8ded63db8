"""One sweep of the fit of biases only through ratings in consecutive rows.

With deviations d_ij of weight w_ij from the mean, and means m_j of the columns' biases, row i gets

    m_i = tau sum_j w_ij (d_ij - m_j) / (tau n_i + lambda),    n_i = sum_j w_ij,

and the residuals d_ij - m_i are added up by column, and squared, each with its weight. All sums are
in the order of the ratings, in float64.
"""

from __future__ import annotations

import numpy as np

from dsgmcmc.kernels.compact_ratings import COLUMN, RATINGS
from dsgmcmc.kernels.compiling import jit
from dsgmcmc.types import Array, Float32, Float64

_SWEEP = f'''\
@kernel("float64({RATINGS}, float32[::1], float64[::1], float64, float64, float64, float64[::1], "
        "float64[::1], float64[::1])", set())
def sweep(indptr, indices, codes, values, weights, numbers, mean, tau, strength, of_rows,
          of_columns, sums):
    """Set the means of the rows, and add residuals to the sums of columns."""
    ratings = uint64(indptr[-1])
    halves = uint64(indices.shape[0]) > ratings
    coded = codes.shape[0] > 0
    weighted = weights.shape[0] > 0
    squares = float64(0)
    for i in range(indptr.shape[0] - 1):
        total = float64(0)
        for r in range(uint64(indptr[i]), uint64(indptr[i + 1])):
            deviation = float64(values[codes[r]] if coded else values[r]) - mean
            deviation -= of_columns[column(indices, halves, r)]
            if weighted:
                deviation *= weights[r]
            total += deviation
        of_row = tau * total / (tau * numbers[i] + strength)
        of_rows[i] = of_row
        for r in range(uint64(indptr[i]), uint64(indptr[i + 1])):
            residual = float64(values[codes[r]] if coded else values[r]) - mean - of_row
            weighed = residual
            if weighted:
                weighed *= weights[r]
            sums[column(indices, halves, r)] += weighed
            squares += weighed * residual
    return squares
'''


def sweep_rows(
    ratings: tuple[Array, ...],
    weights: Float32 | None,
    *,
    numbers: Float64,
    mean: float,
    tau: float,
    strength: float,
    means: tuple[Float64, Float64],
    sums: Float64,
) -> float:
    """Set the means of rows, add residuals to `sums`, and return the sum of their squares.

    Parameters
    ----------
    ratings : tuple of arrays
        Ratings of n rows (`dsgmcmc.kernels.compact_ratings.kernel_arguments`).
    weights : (m,) float32, optional
    numbers : (n,) float64
        Sums of the weights of the rows, or numbers of ratings.
    mean : float
        Mean of the ratings.
    tau, strength : float
        Precision of the noise, and lambda.
    means : (n,) and (J,) float64
        Those of the rows, which are set, and of the columns.
    sums : (J,) float64
        Weighted sums of residuals by column, to which those of these ratings are added.

    Returns
    -------
    float
        Weighted sum of the squares of the residuals.
    """
    if weights is None:
        weights = np.zeros(0, np.float32)
    kernel = jit.compile_source("biases", COLUMN + _SWEEP).sweep
    squares: float = kernel(*ratings, weights, numbers, mean, tau, strength, *means, sums)
    return squares
