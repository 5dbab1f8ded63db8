"""Curvature of a row's energy in the metric of its Fisher information, for any target."""

from __future__ import annotations

from typing import Any

import numpy as np

from dsgmcmc.kernels.formula import Formula
from dsgmcmc.targets.state import Rows
from dsgmcmc.types import Array, Float64

SHARE = Formula(
    """
information = tau * n * c
p = information / (information + lambda_)
largest = p
""",
    columns=("c", "lambda_"),
    rows=("n",),
    row_sums=("p",),
    row_max=("largest",),
)


ALONG = Formula(
    "share = (tau * aligned) * (tau * aligned) / (tau * n * c + lambda_)",
    columns=("c", "lambda_"),
    rows=("n",),
    row_sums=("share",),
)

#: Field with the size of a row above which the bounds on its curvature are computed again.
REACH = "reach"


def curvature_bound(rows: Rows, n: Array, squares: Array, **metric: Any) -> Float64:
    """Bound l_i on the curvature due to the interaction of the rows of two factors, in the metric P.

    With P_ik = tau n_i c_k + lambda_k, p_k = tau n_i c_k / P_ik and t = sum p_k, the bound is
    1 + t / m_i + 2 sqrt(max(p) t / m_i), where m_i = (sum w)^2 / sum w^2 is the effective number of data.

    Parameters
    ----------
    rows : Rows
    n, squares : (n,) array
        Sums over a row's data of their weights, and of the squared weights.
    **metric
        ``tau``, and ``c`` and ``lambda_`` (D,) in the rows' dtype.

    Returns
    -------
    (n,) float64
    """
    shares = rows.update(SHARE, **metric, n=n)
    effective = np.maximum(n * n / np.maximum(squares, 1e-30), 1e-30)
    per_datum = np.where(n > 0, shares["p"] / effective, 0.0)
    return np.asarray(1 + per_datum + 2 * np.sqrt(shares["largest"] * per_datum))


def alignment(rows: Rows, aligned: str, n: Array, tau: float, **metric: Any) -> Float64:
    """Curvature of every row's energy along the mean of its covariates, in the metric P.

    If a row's covariates are similar to each other, this is far above 1, and close to the largest curvature.

    Parameters
    ----------
    rows : Rows
    aligned : str
        Field with weighted sums of the covariates over a row's data.
    n : (n,) array
        Sums over a row's data of their weights.
    tau, **metric
        As in `curvature_bound`.

    Returns
    -------
    (n,) float64
    """
    shares: Float64 = rows.update(ALONG, tau=tau, **metric, n=n, aligned=aligned)["share"]
    return 1 + shares / np.maximum(tau * n, 1e-30)
