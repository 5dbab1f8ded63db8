"""A Bayesian matrix factorisation on the ring, as chains see it: what is saved, loaded, recorded and checked."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from dsgmcmc.model.divergence import find_divergence
from dsgmcmc.model.heldout import HeldOut
from dsgmcmc.model.quantity import SHIFT
from dsgmcmc.model.sampled import SampledFactors
from dsgmcmc.storage.manifest import Key
from dsgmcmc.targets.base import DrawnField
from dsgmcmc.targets.state import ParameterBlock
from dsgmcmc.types import Array, Factor, Float64

if TYPE_CHECKING:
    from dsgmcmc.storage.snapshot import Snapshot


class FactorTarget(SampledFactors):
    """The blocks of a factorisation, and what a chain does with them; a `dsgmcmc.targets.base.RunTarget`."""

    @property
    def drawn(self) -> tuple[DrawnField, ...]:
        """The fields that a draw has; the first is ``theta``."""
        return self.model.drawn

    @property
    def untraced(self) -> frozenset[str]:
        """Names in `parameters` that are kept in saved draws only, and not recorded at every draw."""
        return self.model.untraced

    def at_once(self) -> int:
        """Number of iterations between checks for signals; the same on all processes.

        Here: after every iteration all processes of the ring agree.
        """
        return 1

    def reset(self) -> None:
        """Set everything but the sampler's fields to its initial value."""
        for part in self.model.parts:
            part.start(self.blocks())
        for shift in (block[SHIFT.name] for block in self.blocks() if SHIFT.name in block.arrays):
            shift.fill(0.0)

    def home(self, names: Sequence[str]) -> Iterator[ParameterBlock]:
        """Blocks with these fields, each on the process that keeps its averages, wherever it is now.

        Here: a column block is at home with the row block of its own number. Collective.
        """
        beside = self.model.at_home()
        apart = {name for fields in beside.values() for name in fields}
        for block in self.circulation.home([name for name in names if name not in apart]):
            block.arrays |= beside.get((block.factor, block.index), {})
            yield block

    def saved(self) -> Iterator[tuple[Key, Array]]:
        """State of this process, for a checkpoint."""
        for block in self.blocks():
            for name in self.layout.names:
                yield Key("state", block.factor.name, block.index, name), block[name]
        for part in self.model.parts:
            yield from part.saved(self.ring.blocks)

    def small(self) -> dict[str, Float64]:
        """State that is the same on all processes."""
        return {name: value for part in self.model.replicated for name, value in part.arrays().items()}

    def load(self, snapshot: Snapshot, but: Collection[str] | None = None) -> None:
        """Load the state of a checkpoint; blocks are placed where the next iteration needs them."""
        if but is None:
            self.circulation.place(snapshot.manifest.iteration)
        for key, array in self.saved():
            if not but or key.field not in but:
                array[:] = snapshot.read(key)
        small = {name: value.array() for name, value in snapshot.manifest.state.items()}
        for each in self.model.replicated:
            each.take(small)
        for part in self.model.parts:
            part.loaded()

    def rows_at_home(self) -> dict[tuple[Factor, int], int]:
        """Number of rows of every block that `home` yields."""
        bounds = {(factor, b): self.ratings.bounds(factor, b) for b in self.ring.blocks for factor in Factor}
        return {place: stop - start for place, (start, stop) in bounds.items()}

    def parameters(self) -> dict[str, Float64]:
        """A draw's parameters that all rows share, of the current sub-chain, in the unit of the data."""
        return self.model.parameters(self.subchain)

    def find_divergence(self, position: str) -> str:
        """Say where the state is not finite or has exploded; empty if nowhere. Collective."""
        return find_divergence(self.circulation, self.model, position)

    def recorders(self) -> Sequence[HeldOut]:
        """The target's own recorders, besides the one of moments and draws that every run has.

        Here: predictions of the test ratings.
        """
        return [HeldOut(self.circulation, self.likelihood, lambda: self.noise_precision, self.model.effects)]
