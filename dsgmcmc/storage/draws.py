"""The saved draws of a chain: for every checkpoint a snapshot of the draws since the one before.

``RUN/draws/chain-c/step-N`` holds the draws that were made up to iteration N, after the step before it. A data set
``draw/FACTOR/BLOCK/FIELD`` has one entry a draw along its first axis, in order; ``draw/run/000000/NAME`` has shared
parameters. A snapshot of draws is written once, and stays as long as a checkpoint counts on one of its draws.
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
    """Where a draw lies: the snapshot, and its number along the first axis of every data set."""

    snapshot: Snapshot
    number: int


class SavedDraws:
    """The saved draws of a chain, for reading. A snapshot is opened when one of its draws is first asked for.

    Parameters
    ----------
    run : RunDirectory
    chain : int
    facts : dict
        What ``run.toml`` says besides the settings.
    """

    def __init__(self, run: RunDirectory, chain: int, facts: Facts) -> None:
        self._run, self._chain, self._facts = run, chain, facts
        self.path = run.series("draws", chain)
        #: Iterations at which the snapshots were written, in order.
        self.steps = steps(self.path)
        self._opened: dict[int, Snapshot] = {}
        self._numbers: dict[int, dict[int, int]] = {}

    def open(self, step: int) -> Snapshot:
        """Open one of the snapshots. Raises InputError if it is damaged, or of another run, or gone."""
        if step not in self._opened:
            snapshot = self._run.open_snapshot("draws", self._chain, step, self._facts)
            self._numbers[step] = {iteration: number for number, iteration in enumerate(snapshot.manifest.saved_draws)}
            self._opened[step] = snapshot
        return self._opened[step]

    def place(self, iteration: int) -> DrawPlace:
        """Find the draw of an iteration; raises as `open`, and a GoneError if there is no such draw."""
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
        """Open the snapshots that have the draws of some iterations, in order; raises as `place`."""
        holders = [self.place(iteration).snapshot for iteration in iterations]
        return list({snapshot.path: snapshot for snapshot in holders}.values())
