"""Draws from a density in memory, and a summary of their mixing."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.config.units import LEAST_DRAWS
from dsgmcmc.diagnostics.convergence import split_subchains
from dsgmcmc.diagnostics.mixing import equal_weights, ess_bulk, ess_tail, halves, rhat
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
    """

    sampler: str
    interleaved: int
    theta: Float64
    energy: Float64
    weight: Float64
    iteration: Int64
    statistics: list[dict[str, float]]

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
