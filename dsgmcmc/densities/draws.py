"""Draws of a density, wherever they are: what can be asked of them, and a short account of how well they mixed."""

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
from dsgmcmc.types import Array, Float64, Int64


class Mixing(NamedTuple):
    """How well the chains have mixed, of every element of theta; NaN where it cannot be told.

    Attributes
    ----------
    rhat, ess : (m,) float64
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
    theta : (chains, draws, m) float64
        Every draw of the `elements`.
    energy : (chains, draws) float64
        Minus the log posterior density, up to a constant; NaN where it was not taken.
    weight : (chains, draws) float64
        Weight of every draw in averages.
    iteration : (chains, draws) int64
        Iterations made before every draw.
    elements : (m,) int64
        Elements of theta in `theta`.
    """

    sampler: str
    interleaved: int
    theta: Float64
    energy: Float64
    weight: Float64
    iteration: Int64
    elements: Int64

    @cached_property
    def mixing(self) -> Mixing:
        """R-hat and effective sample size; they do not see a bias that all chains have."""
        weights, values = self.weight, split_subchains(self.theta, self.interleaved)
        if values.shape[1] < LEAST_DRAWS or not equal_weights(weights):
            unknown = np.full(len(self.elements), np.nan)
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
            "posterior": self.named,
            "sample_stats": {"weight": self.weight, "iteration": self.iteration, "lp": -self.energy},
        }
        named = "theta" in self.named
        coords, dims = ({"element": self.elements}, {"theta": ["element"]}) if named else ({}, {})
        return datatree(groups, coords, dims, self.sampler)

    @property
    def named(self) -> dict[str, Array]:
        """Draws by the names of the parameters, (chains, draws, their shape); theta alone, if it has no others."""
        return {"theta": self.theta}

    def __repr__(self) -> str:
        chains, draws, m = self.theta.shape
        found = f"{chains} chain(s) of {draws:,} draws of {m:,} elements of theta by {self.sampler}"
        if np.isnan(self.mixing.rhat).all():
            return f"{found}: R-hat and ESS cannot be told (too few draws, or of unequal weight)"
        return (
            f"{found}: R-hat at most {np.nanmax(self.mixing.rhat):.3f}, ESS at least {np.nanmin(self.mixing.ess):,.0f}"
        )


@dataclass(repr=False, eq=False)
class MemoryDraws(Draws):
    """Draws in memory, of all elements; see `Draws`.

    Attributes
    ----------
    density : object
        What was sampled.
    statistics : list of dict
        What the sampler says of itself at the end of every chain, such as the part of the proposals that it accepted.
    look : Look or None
        The last look at the accuracy, if one was asked for.
    """

    density: Any
    statistics: list[dict[str, float]]
    look: Look | None = None

    @property
    def named(self) -> dict[str, Array]:
        """Draws by the names of the parameters, (chains, draws, their shape); theta alone, if it has no others."""
        found: dict[str, Array] = getattr(self.density, "named", lambda theta: {"theta": theta})(self.theta)
        return found
