"""The saved draws of a chain: at every checkpoint, a snapshot of the draws since the previous checkpoint.

``RUN/draws/chain-c/step-N`` holds the draws up to iteration N that are not in an earlier snapshot. A data set
``draw/FACTOR/BLOCK/FIELD`` has one entry per draw along its first axis, in order; ``draw/run/000000/NAME`` has shared
parameters. A snapshot of draws is never rewritten, and is kept as long as a checkpoint refers to one of its draws.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple

from dsgmcmc.errors import GoneError
from dsgmcmc.storage.facts import Facts
from dsgmcmc.storage.rundir import RunDirectory
from dsgmcmc.storage.series import steps
from dsgmcmc.storage.snapshot import Snapshot


class DrawPlace(NamedTuple):
    """Place of a draw: its snapshot, and its index along the first axis of every data set there."""

    snapshot: Snapshot
    number: int


class SavedDraws:
    """The saved draws of a chain, for reading. A snapshot is opened when one of its draws is first requested.

    Parameters
    ----------
    run : RunDirectory
    chain : int
    facts : dict
        Section ``[run]`` of ``run.toml``.
    """

    def __init__(self, run: RunDirectory, chain: int, facts: Facts) -> None:
        self._run, self._chain, self._facts = run, chain, facts
        self.path = run.series("draws", chain)
        #: Iterations at which the snapshots were written, in order.
        self.steps = steps(self.path)
        self._opened: dict[int, Snapshot] = {}
        self._numbers: dict[int, dict[int, int]] = {}

    def open(self, step: int) -> Snapshot:
        """Open a snapshot. Raises InputError if the snapshot is damaged, belongs to another run, or is gone."""
        if step not in self._opened:
            snapshot = self._run.open_snapshot("draws", self._chain, step, self._facts)
            self._numbers[step] = {iteration: number for number, iteration in enumerate(snapshot.manifest.saved_draws)}
            self._opened[step] = snapshot
        return self._opened[step]

    def place(self, iteration: int) -> DrawPlace:
        """Find the draw of an iteration; raises as `open`, and GoneError if there is no such draw."""
        later = bisect_left(self.steps, iteration)
        if later < len(self.steps):
            snapshot = self.open(self.steps[later])
            number = self._numbers[self.steps[later]].get(iteration)
            if number is not None:
                return DrawPlace(snapshot, number)
        raise GoneError(
            f"{self.path} has no draw of iteration {iteration}: the run has removed it since. Open the run again"
        )

    def snapshots(self, iterations: Iterable[int]) -> list[Snapshot]:
        """Open the snapshots with the draws of `iterations`, in order and without repeats; raises as `place`."""
        holders = [self.place(iteration).snapshot for iteration in iterations]
        return list({snapshot.path: snapshot for snapshot in holders}.values())
