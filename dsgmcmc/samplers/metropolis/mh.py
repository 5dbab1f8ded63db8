"""Metropolis-Hastings with proposals that do not look at the data [Metropolis 1953; Hastings 1970, eq. 6].

Target: the posterior itself. Left out: nothing; an iteration takes the energy of all data once. The preconditioned
Crank-Nicolson proposal [Cotter 2013, eq. 4.4] is reversible with respect to the prior, and the data alone decide.
"""

from __future__ import annotations

import numpy as np

from dsgmcmc.samplers.metropolis.proposals import ProposalConfig
from dsgmcmc.samplers.metropolis.stepwise import Stepwise, known
from dsgmcmc.targets.density import Density
from dsgmcmc.types import Array, Float64


class MHConfig(ProposalConfig):
    """Configuration of Metropolis-Hastings."""


class MH(Stepwise[MHConfig]):
    """Metropolis-Hastings."""

    Config = MHConfig

    def decide(
        self,
        density: Density,
        theta: Float64,
        proposed: Float64,
        bar: Float64,
        energies: Float64,
        counts: Float64,
        rng: np.random.Generator,
    ) -> Array:
        """See `Stepwise.decide`."""
        known(density, theta, energies, counts)
        new = density.energy(proposed)
        counts[:, 1:3] += density.n_data, 1
        accepted: Array = new - energies <= bar
        energies[accepted] = new[accepted]
        return accepted
