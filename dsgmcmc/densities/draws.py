"""Draws of a density in memory: what can be asked of them, and a short account of how well the chains mixed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.config.accuracy import LEAST_DRAWS
from dsgmcmc.diagnostics.accuracy import Look
from dsgmcmc.diagnostics.convergence import split_subchains
from dsgmcmc.diagnostics.mixing import equal_weights, ess_bulk, ess_tail, halves, rhat
from dsgmcmc.posterior.arviz import datatree
from dsgmcmc.types import Float64, Int64


class Mixing(NamedTuple):
    """How well the chains have mixed, for every element of theta; NaN where it cannot be told.

    Attributes
    ----------
    rhat, ess : (D,) float64
        Rank-normalised R-hat (of a single chain between its quarters), and the smaller of bulk and tail ESS.
    """

    rhat: Float64
    ess: Float64


@dataclass(repr=False, eq=False)
class Draws:
    """Draws of all chains of a density.

    Attributes
    ----------
    sampler : str
        Name of the sampler.
    interleaved : int
        States that it moves in turns.
    theta : (chains, draws, D) float64
        Every draw.
    energy : (chains, draws) float64
        Minus the log posterior density, up to a constant; NaN where it was not computed.
    weight : (chains, draws) float64
        Weight of every draw in averages.
    iteration : (chains, draws) int64
        Iterations made before every draw.
    statistics : list of dict
        For every chain, what the sampler reports at its end, such as the part of the proposals that it accepted.
    look : Look or None
        The last check of the accuracy, if one was asked for.
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
        """R-hat and effective sample size; they do not see a bias that all chains have."""
        values = split_subchains(self.theta, self.interleaved)
        if values.shape[1] < LEAST_DRAWS or not equal_weights(self.weight):
            unknown = np.full(self.theta.shape[2], np.nan)
            return Mixing(unknown, unknown)
        compared = halves(values) if len(self.theta) == 1 else values
        return Mixing(rhat(compared), np.minimum(ess_bulk(values), ess_tail(values)))

    def to_arviz(self) -> Any:
        """Return the draws as ArviZ sees them.

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
            return f"{text}: R-hat and ESS cannot be told (too few draws, or of unequal weight)"
        return (
            f"{text}: R-hat at most {np.nanmax(self.mixing.rhat):.3f}, ESS at least {np.nanmin(self.mixing.ess):,.0f}"
        )
