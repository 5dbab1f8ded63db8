r"""Clicks: every training rating counts as a 1, and every cell, rated or not, as a 0 of weight a0 [Hu 2008].

With s_ij = W_i . H_j and O the training ratings, whatever their values, the energy is

    (tau / 2) [ sum_{ij in O} (1 - s_ij)^2 + a0 sum_{all ij} s_ij^2 ]

A pseudo-likelihood: it is not the law of anything that clicks could be drawn from, so tau is no noise to be sampled
but says how much the data weigh against the prior, and is chosen like a0. What spreads over the draws is the score.
There are neither biases nor a centre: zeros have to be where s is 0 for one Gram matrix to sum over all cells
(`dsgmcmc.model.background`). Rows are normal given the other factor.

[Hu 2008] Hu, Koren & Volinsky, Collaborative filtering for implicit feedback datasets, ICDM.
"""

from __future__ import annotations

from typing import Any, ClassVar

from dsgmcmc.model.likelihoods.gaussian import Gaussian


class AllCells(Gaussian):
    """Clicks, and zeros everywhere with a small weight."""

    has_noise = False
    all_cells = True
    noise_quantities = ()
    # the diagonal metric is slow where factors have a common mean, as they have without biases
    defaults: ClassVar[dict[str, Any]] = {
        "noise_precision": 30.0,
        "zero_weight": 0.1,
        "biases": False,
        "center": False,
        "sampler": {"metric": "kronecker"},
    }
