r"""What all cells, rated or not, add to the energy: (tau / 2) a0 sum_ij (W_i . H_j)^2 = (tau a0 / 2) tr(W^T W H^T H).

The Gram matrix of each factor suffices: the gradient for W_i is tau a0 (H^T H) W_i, and every row of W gets the same
precision tau a0 H^T H. In a metric it is added to the precision Lambda of the prior, which all rows also share. Each
cell has one row of W and one of H, and (x + y)^2 <= 2 (x^2 + y^2): as for the ratings, both factors together are at
most twice as curved as each alone, which the steps allow for.

In the metric of Lambda + tau a0 H^T H itself the curvature that a row has from the two is 1. In that of its diagonal it
is at most the largest eigenvalue of the matrix scaled to a diagonal of 1, whatever the row's ratings are.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dsgmcmc.kernels.products import add_rotated, gram
from dsgmcmc.model.circulation import Circulation
from dsgmcmc.parallel.named import Named
from dsgmcmc.targets.state import ParameterBlock
from dsgmcmc.types import Factor, Float32, Float64

OTHER = {Factor.W: Factor.H, Factor.H: Factor.W}


def _partials(circulation: Circulation, position: str) -> Named:
    """Gram matrices of this process's blocks."""

    def of(block: ParameterBlock) -> Float64:
        return gram(block[position], np.ones_like(block[position][:, 0]))

    return {rows.factor.name: np.array([of(block) for block in rows.blocks]) for rows in circulation.together()}


def grams(circulation: Circulation, position: str) -> dict[Factor, Float32]:
    """For each factor, the Gram matrix (D, D) of the other factor's rows. Collective."""
    sums = circulation.ring.sum(_partials(circulation, position))
    return {factor: sums[other.name].astype(np.float32) for factor, other in OTHER.items()}


def add_gradient(circulation: Circulation, weight: float, position: str, out: str) -> None:
    """Add the gradient of the energy of all cells at tau 1 to `out` of all blocks. Collective.

    Parameters
    ----------
    circulation : Circulation
        The blocks of both factors.
    weight : float
        a0.
    position, out : str
        Field that holds the state, and field that the gradient is added to.
    """
    matrices = grams(circulation, position)
    with circulation.ring.phases("gradient"):
        for block in circulation.blocks():
            add_rotated(block[out], block[position], np.float32(weight) * matrices[block.factor])


def common_precision(
    circulation: Circulation, position: str, prior: Mapping[Factor, Float64], scale: float
) -> tuple[dict[Factor, Float64], dict[Factor, float]]:
    """Precision that all rows of a factor have in common. Collective.

    Parameters
    ----------
    circulation : Circulation
        The blocks of both factors.
    position : str
        Field that holds the state.
    prior : dict of Factor to (D,) or (D, D) float64
        Precision of the prior.
    scale : float
        tau a0.

    Returns
    -------
    precision : dict of Factor to (D, D) float64
    curvature : dict of Factor to float
        Largest curvature in the metric of its own diagonal, at least 1.
    """

    def finish(sums: dict[str, Float64]) -> dict[str, Float64]:
        result = {}
        for factor, precision in prior.items():
            whole = (precision if precision.ndim == 2 else np.diag(precision)) + scale * sums[OTHER[factor].name]
            root = np.sqrt(np.diag(whole))
            result[factor.name] = whole
            result[f"{factor.name}.curvature"] = np.linalg.eigvalsh(whole / np.outer(root, root))[-1:]
        return result

    shapes: dict[str, tuple[int, ...]] = {factor.name: (len(precision),) * 2 for factor, precision in prior.items()}
    shapes |= {f"{factor.name}.curvature": (1,) for factor in prior}
    sums = circulation.ring.sum(_partials(circulation, position), finish, shapes)
    return {f: sums[f.name] for f in prior}, {f: float(sums[f"{f.name}.curvature"][0]) for f in prior}
