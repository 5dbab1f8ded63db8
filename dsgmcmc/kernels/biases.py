"""One sweep of the fit of biases only through ratings in consecutive rows.

With deviations d_ij of weight w_ij from the mean, and means m_j of the columns' biases, row i gets

    m_i = tau sum_j w_ij (d_ij - m_j) / (tau n_i + lambda),    n_i = sum_j w_ij,

and the deviations become d_ij - m_i, whose weighted sums by column are added up. All sums are in
the order of the ratings, in float64.
"""

from __future__ import annotations

import numpy as np

from dsgmcmc.kernels import jit
from dsgmcmc.types import Float32, Float64, Int32, Int64

_SWEEP = '''\
@kernel("void(int64[::1], int32[::1], float32[::1], float64[::1], float64[::1], float64, float64, "
        "float64[::1], float64[::1], float64[::1])", set())
def sweep(indptr, columns, weights, deviations, numbers, tau, strength, rows, means, sums):
    """Set the means of the rows, subtract them, and add deviations to the sums of columns."""
    weighted = weights.shape[0] > 0
    for i in range(indptr.shape[0] - 1):
        total = float64(0)
        for r in range(indptr[i], indptr[i + 1]):
            deviation = deviations[r] - means[columns[r]]
            if weighted:
                deviation *= weights[r]
            total += deviation
        mean = tau * total / (tau * numbers[i] + strength)
        rows[i] = mean
        for r in range(indptr[i], indptr[i + 1]):
            deviation = deviations[r] - mean
            deviations[r] = deviation
            if weighted:
                deviation *= weights[r]
            sums[columns[r]] += deviation
'''


def sweep_rows(
    indptr: Int64,
    columns: Int32,
    deviations: Float64,
    weights: Float32 | None,
    *,
    numbers: Float64,
    tau: float,
    strength: float,
    means: tuple[Float64, Float64],
) -> Float64:
    """Set the means of rows in place, and subtract them from the deviations.

    Parameters
    ----------
    indptr : (n + 1,) int64
    columns : (m,) int32
    deviations : (m,) float64
        Ratings less their mean; on return also less the mean of the row.
    weights : (m,) float32, optional
    numbers : (n,) float64
        Sums of the weights of the rows, or numbers of ratings.
    tau, strength : float
        Precision of the noise, and lambda.
    means : (n,) and (J,) float64
        Those of the rows, which are set, and of the columns.

    Returns
    -------
    (J,) float64
        Weighted sums of the new deviations by column.
    """
    if weights is None:
        weights = np.zeros(0, np.float32)
    sums = np.zeros(len(means[1]))
    kernel = jit.compile_source("biases", _SWEEP).sweep
    kernel(indptr, columns, weights, deviations, numbers, tau, strength, means[0], means[1], sums)
    return sums
