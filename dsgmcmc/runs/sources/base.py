"""What a job samples: checks settings against it, and makes the targets of its chains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from dsgmcmc.config.chain import ChainConfig, ResolvedChain
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.storage.facts import Facts
from dsgmcmc.storage.rundir import RunDirectory
from dsgmcmc.targets.base import RunTarget
from dsgmcmc.types import Comm

R = TypeVar("R", bound=ResolvedChain)

#: Makes the target of a chain, by its number, for a sampler, as it is before the first iteration.
MakeTarget = Callable[[int, Sampler[Any, Any]], RunTarget]


class Source(Protocol[R]):
    """What a job samples. But for `open`, `begin` and `miniature` its methods are called on process 0 alone."""

    @property
    def unit(self) -> str:
        """What its data are called."""

    @property
    def name(self) -> str:
        """What it is called in messages."""

    def digest(self) -> str:
        """Identity of what is sampled: SHA-256."""

    def build(self, *layers: Mapping[str, Any]) -> ChainConfig:
        """Merge layers of settings, later ones winning, and check them."""

    @property
    def resolved(self) -> type[R]:
        """Class of what its settings resolve to."""

    def finest_grid(self) -> int:
        """The most blocks a side that it can be cut into, which bounds the default."""

    def check(self, config: R, processes: int) -> None:
        """Refuse settings with which it cannot be sampled, by so many processes a chain, and warn of doubtful ones."""

    def prepare(self, run: RunDirectory, config: R, comm: Comm) -> dict[str, Any]:
        """Write what belongs to the run besides its settings; `comm` is this process. Return facts for ``run.toml``."""

    def open(self, config: R, ring: Ring) -> tuple[MakeTarget, int]:
        """Return what makes the targets of this process's chains, and the number of data. Collective."""

    def begin(self, run: RunDirectory, facts: Facts, chain: int, target: Any) -> None:
        """Move a chain's target from its usual start to that which the run's facts name, if they do. Collective."""

    def miniature(self, config: R, ring: Ring) -> MakeTarget:
        """Return what makes a target that runs the same code on next to no data; `ring` has one block."""

    def costs(self, config: R, processes: int) -> dict[str, Any]:
        """What a run will need, in bytes, by name."""

    def results(self, run: RunDirectory, config: R) -> dict[str, Any]:
        """What a run has found, for ``summary.json``."""

    def headline(self, summary: Mapping[str, Any]) -> list[str]:
        """What the user reads of the results at the end: one or two lines, none if there is nothing to say."""
