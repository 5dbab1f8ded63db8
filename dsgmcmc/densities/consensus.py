"""Consensus of shards: draws of the posterior of all data from chains each of which saw some of them [Scott 2016].

[Scott 2016] S. L. Scott et al.: Bayes and big data: the consensus Monte Carlo algorithm.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.types import Float64


def consensus(shards: Sequence[Float64]) -> Float64:
    r"""Combine draws of shards: theta = (sum W_s)^-1 sum W_s theta_s, W_s the inverse covariance of shard s.

    Every shard is sampled with its data alone and with the S-th root of the prior (its precision divided by S), so that
    the shards' laws multiply to the posterior. Exact where they are normal, an approximation elsewhere. With a shard a
    process, ``consensus(comm.allgather(draws))`` gives all of them the result.

    Parameters
    ----------
    shards : sequence of (K, D) float64
        Draws of each shard, as many of each; those of one number are combined to one.

    Returns
    -------
    (K, D) float64

    Raises
    ------
    InputError
        If the shapes differ, or the draws of a shard have a singular covariance.
    """
    shapes = {draws.shape for draws in shards}
    if len(shapes) != 1 or len(next(iter(shapes))) != 2:
        raise InputError(f"the draws of all shards must be (K, D), with the same K and D: found {sorted(shapes)}")
    weights = []
    for number, draws in enumerate(shards):
        covariance = np.atleast_2d(np.cov(draws, rowvar=False))
        if len(draws) <= draws.shape[1] or not np.linalg.cond(covariance) < 1 / np.finfo(np.float64).eps:
            raise InputError(f"the {len(draws)} draws of shard {number} have a singular covariance: make more of them")
        weights.append(np.linalg.inv(covariance))
    weighted = sum(draws @ weight for draws, weight in zip(shards, weights, strict=True))
    found: Float64 = np.linalg.solve(np.sum(weights, axis=0), np.transpose(weighted)).T
    return found
