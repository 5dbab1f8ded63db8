"""The configuration of a run on a density: that of a chain, and what to keep of its draws."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Literal

from pydantic import Field

from dsgmcmc.config.chain import FREE, ChainConfig, ResolvedChain
from dsgmcmc.settings import setting

#: Settings that older runs lack, with the values that these used; the hash of a chain omits them at these values.
LATER: dict[str, Any] = {"energy_every": 1, "follow": 256}


class DensityConfig(ChainConfig):
    """Requested settings of a run on a density; see `dsgmcmc.config.chain`."""

    energy_every: int | None = setting(
        "Draws between two computations of the energy over all data; 0: none.",
        None,
        shown="1 where an iteration takes all data, else 0",
        offered=False,
        ge=0,
    )
    follow: Annotated[int, Field(ge=1)] | Literal["all"] = setting(
        "Number of elements of theta that are kept of every draw, evenly spaced; or all.",
        LATER["follow"],
        offered=False,
    )

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
    """A resolved configuration of a run on a density."""

    energy_every: int = Field(LATER["energy_every"], ge=0)

    def hash(self) -> str:
        """SHA-256 of the settings that the draws depend on; it identifies the chain."""
        content = self.model_dump(exclude=set(FREE))
        content = {name: value for name, value in content.items() if name not in LATER or value != LATER[name]}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
