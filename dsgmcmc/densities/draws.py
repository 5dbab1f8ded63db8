"""Draws from a density in memory, a summary of their mixing, and the combination of draws from shards.

[Scott 2016] S. L. Scott et al.: Bayes and big data: the consensus Monte Carlo algorithm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.config.accuracy import LEAST_DRAWS
from dsgmcmc.diagnostics.accuracy import Look
from dsgmcmc.diagnostics.convergence import split_subchains
from dsgmcmc.diagnostics.mixing import equal_weights, ess_bulk, ess_tail, halves, rhat
from dsgmcmc.errors import InputError
from dsgmcmc.posterior.export import datatree
from dsgmcmc.types import Float64, Int64


class Mixing(NamedTuple):
    """Mixing of the chains, for every element of theta; NaN if unknown.

    Attributes
    ----------
    rhat, ess : (D,) float64
        Rank-normalised R-hat (for a single chain between its quarters), and the smaller of bulk and tail ESS.
    """

    rhat: Float64
    ess: Float64


@dataclass(repr=False, eq=False)
class Draws:
    """Draws of all chains that sample a density.

    Attributes
    ----------
    sampler : str
        Name of the sampler.
    interleaved : int
        Number of sub-chains that the sampler interleaves in a chain.
    theta : (chains, draws, D) float64
    energy : (chains, draws) float64
        Minus the log posterior density, up to a constant; NaN if it was not computed.
    weight : (chains, draws) float64
        Weight of every draw in averages.
    iteration : (chains, draws) int64
        Number of iterations of the chain up to every draw.
    statistics : list of dict
        Values that the sampler reports at the end of every chain, such as the acceptance rate.
    look : Look or None
        The last check of the accuracy; None without `until`.
    """

    sampler: str
    interleaved: int
    theta: Float64
    energy: Float64
    weight: Float64
    iteration: Int64
    statistics: list[dict[str, float]]
    look: Look | None = None

    @cached_property
    def mixing(self) -> Mixing:
        """R-hat and effective sample size; they do not detect a bias that all chains share."""
        values = split_subchains(self.theta, self.interleaved)
        if values.shape[1] < LEAST_DRAWS or not equal_weights(self.weight):
            unknown = np.full(self.theta.shape[2], np.nan)
            return Mixing(unknown, unknown)
        compared = halves(values) if len(self.theta) == 1 else values
        return Mixing(rhat(compared), np.minimum(ess_bulk(values), ess_tail(values)))

    def to_arviz(self) -> Any:
        """Return the draws as a tree of data sets for ArviZ.

        Returns
        -------
        xarray.DataTree
            ``posterior``: ``theta`` by ``element``, for all draws; ``sample_stats``: ``weight``, ``iteration`` and
            ``lp``, the log posterior density up to a constant, NaN for draws without energies.

        Raises
        ------
        InputError
            If arviz-base is not installed.
        """
        groups: dict[str, dict[str, Any]] = {
            "posterior": {"theta": self.theta},
            "sample_stats": {"weight": self.weight, "iteration": self.iteration, "lp": -self.energy},
        }
        elements = np.arange(self.theta.shape[2])
        return datatree(groups, {"element": elements}, {"theta": ["element"]}, self.sampler)

    def __repr__(self) -> str:
        chains, draws, m = self.theta.shape
        text = f"{chains} chain(s) of {draws:,} draws of {m:,} elements of theta by {self.sampler}"
        if np.isnan(self.mixing.rhat).all():
            return f"{text}: R-hat and ESS are unknown (too few draws, or draws of unequal weight)"
        return (
            f"{text}: R-hat at most {np.nanmax(self.mixing.rhat):.3f}, ESS at least {np.nanmin(self.mixing.ess):,.0f}"
        )


def consensus(shards: Sequence[Float64]) -> Float64:
    r"""Combine draws from shards: theta = (sum W_s)^-1 sum W_s theta_s, W_s the inverse covariance of shard s.

    Every shard is sampled with its data alone and with the S-th root of the prior (its precision divided by S), so that
    the product of the shards' densities is the posterior. The combination is exact for normal densities, otherwise an
    approximation. With one shard per process, ``consensus(comm.allgather(draws))`` returns the result on every process.

    Parameters
    ----------
    shards : sequence of (K, D) float64
        Draws from each shard. Draw k of the result combines the draws k of all shards.

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
    combined: Float64 = np.linalg.solve(np.sum(weights, axis=0), np.transpose(weighted)).T
    return combined
