"""The settings of `sample_density`: those of any chain, and how often energies are computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field

from dsgmcmc.config.chain import ChainConfig, ResolvedChain
from dsgmcmc.config.sampler import DEFAULT_SAMPLER, section_of
from dsgmcmc.samplers import sampler_named


class DensityConfig(ChainConfig):
    """Requested settings; see `dsgmcmc.config.chain`.

    `energy_every` is the number of draws between two computations of the energy, 0 for none. By default it is 1 where
    an iteration takes all data, and 0 where it takes a part of them.
    """

    energy_every: int | None = Field(None, ge=0)

    @classmethod
    def build(cls, settings: Mapping[str, Any]) -> Self:
        """Check settings. A sampler's own defaults take the place of those that are not given.

        Raises
        ------
        InputError
            If any setting is wrong; the message names all of them.
        """
        section = {"name": DEFAULT_SAMPLER, **section_of(settings.get("sampler", {}))}
        kind = sampler_named(section["name"])
        declared = kind.defaults if kind else {}
        defaults = {name: value for name, value in declared.items() if name in cls.model_fields}
        return cls.of({**defaults, **settings, "sampler": section})

    def _plain(self, processes: int, finest: int | None, until: str | None) -> dict[str, Any]:
        """Choose what was left open, convert lengths to iterations, and check that the sampler allows the settings.

        The sampler's steps are chosen for vectors, and for the noise of the gradients.
        """
        plain = super()._plain(processes, finest, until)
        kind, config = self.sampler.kind, self.sampler.config
        sweep = kind.sweep_length(config, plain["grid"])
        suited = kind.suited_to_density(config, kind.noise_of_parts(config, plain["grid"]))
        every = (1 if sweep == 1 else 0) if self.energy_every is None else self.energy_every
        return {**plain, "sampler": self.sampler.model_copy(update={"config": suited}), "energy_every": every}

    def resolved(self, processes: int = 1, finest: int | None = None) -> ResolvedDensity:
        """Resolve it; see `ChainConfig.plain`."""
        return ResolvedDensity.of(self.plain(processes, finest))


class ResolvedDensity(ResolvedChain, DensityConfig):
    """Settings in plain numbers, with nothing left open."""

    energy_every: int = Field(ge=0)

    @property
    def draws(self) -> int:
        """Number of draws of a chain that makes all iterations."""
        return max(self.iterations - self.burn_in, 0) // self.thin
