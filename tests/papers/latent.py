r"""Gradients given latent variables of the data, which Metropolis steps draw given theta [Simsekli
2016, section 4.2].

Where p(x_i | theta) is an integral over latent variables z_i, a chain of (theta, z) needs the
gradient given z alone. In every iteration the z_i of the part's data make a step each, one variable
after the other, with a proposal from its prior,

    accepted with probability min(1, p(x_i | z', theta) / p(x_i | z, theta)),

and then theta makes the sampler's step along the part's gradient given z. Both leave the joint
posterior as it is, up to the bias of the sampler's own step. Sub-chains that are interleaved have
latent variables of their own, since each is a chain of (theta, z).
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from dsgmcmc.densities.base import DensityGradient
from dsgmcmc.densities.density import ALL, Data, Density
from dsgmcmc.densities.vector import VectorTarget
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.samplers.step_size import SamplerConfig
from dsgmcmc.targets.base import Cell
from dsgmcmc.types import Float64

S = TypeVar("S", bound=Sampler[Any, Any])

#: Steps that all latent variables make before the first of theta: prior draws alone fit outliers
#: badly.
FIRST = 50

LATENT: Any = 0x1A7E7  # a purpose of random numbers that `Purpose` does not have


@runtime_checkable
class Augmented(Density, Protocol):
    """A density whose data have latent variables.

    Attributes
    ----------
    n_latent : int
        Number L of latent variables of a datum, which are independent before the data.
    """

    n_latent: int

    def draw_latent(self, shape: tuple[int, int], generator: np.random.Generator) -> Float64:
        """Draw (n, S, L) latent variables from their prior, of n rows and S data."""

    def given(self, theta: Float64, data: Data = ALL) -> Callable[[Float64], Float64]:
        """Function of latent variables (n, S, L) whose result is minus log p(x_i | z_i, theta), (n,
        S).
        """

    def gradient_given(self, theta: Float64, latent: Float64, data: Data = ALL) -> Float64:
        """Gradient of the sum over data of what `given` gives, and of the data's share of the
        prior: (n, D).
        """


class Latent(DensityGradient[Augmented]):
    """The gradient of a part given latent variables."""

    densities = Augmented

    def __init__(self, config: SamplerConfig, burn_in: int) -> None:
        super().__init__(config, burn_in)
        self.chains = getattr(config, "memory", 1)  # HAMCMC interleaves as many
        self.moves = np.zeros(2)  # accepted, and all
        self.latents: list[Float64] = []  # (n, N, L) of every chain

    def metrics(self) -> dict[str, float]:
        """Part of the proposals that were accepted."""
        return {"latent_acceptance": float(self.moves[0] / self.moves[1])}

    def begin(self, target: VectorTarget[Augmented], position: str) -> None:
        """Draw the latent variables of this part's data given the state; those of all data before
        the first step.
        """
        density = target.density
        theta = target.block[position]
        iteration = target.stream.iteration
        generator = target.stream.generator(LATENT)
        if iteration < self.chains:
            latent = density.draw_latent((len(theta), density.n_data), generator)
            move(density, theta, latent, ALL, generator, FIRST)
            self.latents.append(latent)
        latent = self.latents[target.stream.iteration % self.chains]
        for rows, data, _ in target.parts_of(iteration):
            moving = latent[rows][:, data].copy()
            accepted = move(density, theta[rows], moving, data, generator)
            self.moves += accepted, moving.size
            latent[
                rows if isinstance(rows, slice) else rows[:, None], np.arange(latent.shape[1])[data]
            ] = moving

    def take(
        self,
        target: VectorTarget[Augmented],
        cell: Cell,
        position: str,
        out: str = "g",
        prior: bool = True,
        errors: bool = True,
    ) -> None:
        """Compute the gradient of a part into `out`."""
        density = target.density
        latent = self.latents[target.stream.iteration % self.chains]
        for block in cell.blocks:
            block.begin_gradient(position, out, prior)
            for rows, data, probability in target.parts_of(target.stream.iteration):
                found = density.gradient_given(block[position][rows], latent[rows][:, data], data)
                block[out][rows] += found / probability


def given_latent(sampler: S) -> S:
    """Have a sampler that takes the gradient of a part take this one."""
    sampler.gradient = Latent(sampler.config, sampler.burn_in)
    return sampler


def move(
    density: Augmented,
    theta: Float64,
    latent: Float64,
    data: Data,
    generator: np.random.Generator,
    steps: int = 1,
) -> int:
    """Let latent variables (n, S, L) of some data make Metropolis steps; returns the number
    accepted.
    """
    energy = density.given(theta, data)
    accepted = 0
    now = energy(latent)
    for _ in range(steps):
        proposal = density.draw_latent(now.shape, generator)
        for k in range(density.n_latent):
            there = latent.copy()
            there[..., k] = proposal[..., k]
            then = energy(there)
            accept = np.log(generator.random(now.shape)) < now - then
            latent[accept, k] = there[accept, k]
            now = np.where(accept, then, now)
            accepted += int(accept.sum())
    return accepted
