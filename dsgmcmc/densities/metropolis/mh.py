"""Metropolis-Hastings with proposals that do not use the data [Metropolis 1953; Hastings 1970, eq. 6].

Target: the posterior itself. Left out: nothing; an iteration computes the energy of all data once. The preconditioned
Crank-Nicolson proposal [Cotter 2013, eq. 4.4] is reversible with respect to the prior, so the acceptance probability
depends on the data alone.
"""

from __future__ import annotations

from dsgmcmc.densities.density import Density
from dsgmcmc.densities.metropolis.proposals import Moves, ProposalConfig, Stepwise, fill_energies
from dsgmcmc.types import Array


class MHConfig(ProposalConfig):
    """Configuration of Metropolis-Hastings."""


class MH(Stepwise[MHConfig, Density]):
    """Metropolis-Hastings."""

    Config = MHConfig

    def decide(self, density: Density, moves: Moves) -> Array:
        """Whether the data's energy rises by no more than `bar`, for every row, (n,) bool."""
        energies = fill_energies(density, moves.theta, moves.energies, moves.counts)
        new = density.energy(moves.proposed)
        moves.counts[:, 1:3] += density.n_data, 1
        accepted: Array = new - energies <= moves.bar
        energies[accepted] = new[accepted]
        return accepted
