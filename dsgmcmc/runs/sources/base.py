"""The source of a job, which is what it samples: checks the settings, and makes the targets of its chains."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol, TypeVar

from dsgmcmc.config.chain import ChainConfig, ResolvedChain
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.runs.recovery import Fallback
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.storage.facts import Facts
from dsgmcmc.storage.rundir import RunDirectory
from dsgmcmc.targets.base import RunTarget
from dsgmcmc.types import Comm

R = TypeVar("R", bound=ResolvedChain)

#: Makes the target of a chain for a sampler, in its state before the first iteration, given the number of its random
#: numbers (`dsgmcmc.targets.state.again`).
MakeTarget = Callable[[int, Sampler[Any, Any]], RunTarget]


class Source(Protocol[R]):
    """What a job samples. All methods except `open`, `begin` and `miniature` are called only on process 0."""

    @property
    def unit(self) -> str:
        """Name of the data: what is counted per second."""

    @property
    def name(self) -> str:
        """Name of the source in messages."""

    def digest(self) -> str:
        """SHA-256 that identifies what is sampled."""

    def build(self, *layers: Mapping[str, Any]) -> ChainConfig:
        """Merge layers of settings, of which later ones take precedence, and check them."""

    @property
    def resolved(self) -> type[R]:
        """Class of its resolved settings."""

    def finest_grid(self) -> int:
        """Largest possible number of blocks per side, which bounds the default."""

    def check(self, config: R, processes: int) -> None:
        """Refuse settings with which it cannot be sampled on `processes` processes per chain; warn of doubtful ones."""

    def prepare(self, run: RunDirectory, config: R, comm: Comm) -> dict[str, Any]:
        """Write the run's files besides its settings, and return facts for ``run.toml``; `comm` is this process."""

    def open(self, config: R, ring: Ring) -> tuple[MakeTarget, int]:
        """Return a function that makes the targets of this process's chains, and the number of data. Collective."""

    def begin(self, run: RunDirectory, facts: Facts, chain: int, target: Any) -> None:
        """Move a chain's target from the sampler's start to that of the data, or of the run's facts. Collective."""

    def miniature(self, config: R, ring: Ring) -> MakeTarget:
        """Return a function that makes a target with the same code but next to no data; `ring` has one block."""

    def fallbacks(self, config: R, given: Collection[str]) -> list[Fallback]:
        """Samplers that a chain falls back to if it diverges; called on all processes. See `runs.recovery`."""

    def costs(self, config: R, processes: int) -> dict[str, Any]:
        """Bytes that a run will need, by name."""

    def results(self, run: RunDirectory, config: R) -> dict[str, Any]:
        """Results of a run, for ``summary.json``."""

    def headline(self, summary: Mapping[str, Any]) -> list[str]:
        """Results that the user reads at the end: one or two lines, or none."""
