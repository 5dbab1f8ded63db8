"""Snapshots of a chain: checkpoints of its whole state, its saved draws, and the posterior.

`ChainState` is the content of a checkpoint. `Checkpoints` writes snapshots while the chain is
sampled, and reads the checkpoints of a chain that is resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from dsgmcmc.config.chain import KEPT_CHECKPOINTS
from dsgmcmc.errors import InputError, WriteError, refusing
from dsgmcmc.model.target import FactorTarget
from dsgmcmc.parallel.comm import agree, on_root
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.runs.control import Control
from dsgmcmc.runs.recorder import DrawRecorder
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.storage import store
from dsgmcmc.storage.rundir import SERIES, Facts, RunDirectory, SavedDraws, header
from dsgmcmc.storage.store import Key, Lazy, SmallArray, Snapshot, SnapshotWriter
from dsgmcmc.targets.base import Recorder
from dsgmcmc.targets.state import arrays_of, take_all
from dsgmcmc.types import Array

#: Time reserved for the last checkpoint, its draws and the posterior, in units of the longest write
#: so far.
RESERVE = 3.0
#: Speed of writing, in bytes per second, that is assumed until the first checkpoint is written.
ASSUMED_WRITE_SPEED = 20e6
#: A checkpoint is due when the draws that are not on disk take more memory than the state, and more
#: than this number of bytes in all processes of the chain; the minimum limits the number of files.
MIN_DRAW_BYTES = 64 << 20


def _run_all(tasks: Iterable[Callable[[], None]]) -> None:
    for task in tasks:
        task()


@dataclass
class ChainState:
    """The content of a checkpoint.

    Attributes
    ----------
    target : FactorTarget
        Target, with the model's state.
    sampler : Sampler
        Sampler, with its replicated state.
    draws : DrawRecorder
        Moments and draws.
    others : tuple of Recorder
        Further recorders of the target.
    diverged : tuple of int
        Iterations at which the chain has diverged, one for each restart with another sampler.
    """

    target: FactorTarget
    sampler: Sampler[Any, Any]
    draws: DrawRecorder
    others: tuple[Recorder, ...]
    diverged: tuple[int, ...] = ()

    @property
    def recorders(self) -> tuple[DrawRecorder | Recorder, ...]:
        """All recorders."""
        return (self.draws, *self.others)

    def saved(self) -> Iterator[tuple[Key, Array]]:
        """Yield the arrays of this process, for a checkpoint."""
        yield from self.target.saved()
        for recorder in self.recorders:
            yield from recorder.saved()

    def small(self) -> dict[str, SmallArray]:
        """Return the arrays that are equal on all processes, for the manifest of a checkpoint."""
        arrays = self.target.small() | arrays_of(self.sampler.replicated)
        for recorder in self.recorders:
            arrays |= recorder.small()
        if self.diverged:
            arrays[store.DIVERGED] = np.array(self.diverged, np.float64)
        return {name: SmallArray.from_array(array) for name, array in arrays.items()}

    def load(self, snapshot: Snapshot) -> None:
        """Load all arrays from a checkpoint; `diverged` must be equal to the checkpoint's.

        Raises
        ------
        InputError
            If an array is missing, or its shape or type differs from that at the start of a chain;
            traces may have any length.
        """
        problem = f"{snapshot.path} is incomplete or inconsistent"
        with refusing(problem, KeyError, ValueError, IndexError):
            expected = self._shapes()
            small = {name: value.array() for name, value in snapshot.manifest.state.items()}
            for name, array in self.target.small().items():
                if name not in small or small[name].shape != array.shape:
                    raise ValueError(f"{name} is missing, or not of shape {array.shape}")
            self.target.load(snapshot)
            take_all(self.sampler.replicated, small)
            for recorder in self.recorders:
                recorder.load(snapshot)
            for key, loaded in self._shapes().items():
                # a column block may have moved here, and is then not expected
                if key in expected and loaded != expected[key]:
                    raise ValueError(f"{key.path} is {loaded}, not {expected[key]}")

    def _shapes(self) -> dict[Key, str]:
        """Return the type and shape of every array of this process except traces, as text."""
        return {
            key: f"{array.dtype} {array.shape}"
            for key, array in self.saved()
            if key.object != "trace"
        }

    def load_model(self, snapshot: Snapshot) -> None:
        """Load the model's state from a checkpoint of another sampler, after the chain's start.

        Momenta and other auxiliary fields of the sampler are not loaded.
        """
        kept = {field.name for field in self.sampler.kept}
        self.target.load(snapshot, skip=kept.difference(self.sampler.positions))

    def posterior(self) -> Iterator[tuple[Key, Lazy]]:
        """Yield the arrays of this process for the posterior, from all draws so far."""
        weight = max(self.draws.weight, np.finfo(np.float64).tiny)
        for recorder in self.recorders:
            yield from recorder.posterior(weight)


@dataclass
class _Write:
    """A write in progress: the snapshots of a checkpoint and its draws, or of a posterior.

    Attributes
    ----------
    iteration : int
        Iteration of the saved state.
    begin : float
        Time at which writing began, on the clock of `time.monotonic`.
    drafts : list of SnapshotWriter
        Writers of the snapshots, in the order in which the snapshots are committed.
    task : Future
        Current task of the writer's thread.
    following : iterator of Future
        Submits the next task, once all processes have completed the current task.
    """

    iteration: int
    begin: float
    drafts: list[SnapshotWriter]
    task: Future[None]
    following: Iterator[Future[None]]


@dataclass(eq=False)
class Checkpoints:
    """The snapshots of one chain.

    The state is copied, and a thread writes the copy while the chain continues. The thread makes no
    MPI calls. The reduction in every iteration shows when the threads of all processes are idle;
    the processes then agree on whether the write succeeded.

    Parameters
    ----------
    ring : Ring
        The processes of the chain.
    state : ChainState
        State to save.
    run : RunDirectory
        Directory of the snapshots.
    chain : int
        Number of the chain.
    facts : dict
        Facts that the snapshots record (`dsgmcmc.storage.rundir`).
    control : Control
        Waits for other processes, and reserves time for the last write before the end of the wall
        time.
    kept_iteration : int, optional
        Iteration of a checkpoint that is never pruned.
    """

    ring: Ring
    state: ChainState
    run: RunDirectory
    chain: int
    facts: Facts
    control: Control
    kept_iteration: int | None = None

    def __post_init__(self) -> None:
        self._draws = self.state.draws
        self._at_root = self.ring.rank == 0
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._write: _Write | None = None
        self._longest_write = 0.0
        #: Checked snapshots of draws, to which several checkpoints refer.
        self._checked: set[Path] = set()
        #: Iteration of the newest complete checkpoint; 0 without one. A posterior has the iteration
        #: of a checkpoint.
        self.newest = 0
        state_bytes = sum(array.nbytes for _, array in self.state.saved())
        self.control.write_seconds = RESERVE * state_bytes / ASSUMED_WRITE_SPEED
        sizes = self.ring.comm.allgather((state_bytes, self._draws.draw_bytes))
        all_state_bytes = sum(state for state, _ in sizes)
        all_draw_bytes = sum(draw for _, draw in sizes)
        self._max_pending = max(all_state_bytes, MIN_DRAW_BYTES) // max(all_draw_bytes, 1)

    # ------------------------------------------------------------------ saving

    @property
    def busy(self) -> bool:
        """Whether this process is still writing."""
        return self._write is not None and not self._write.task.done()

    @property
    def has_many_draws(self) -> bool:
        """Whether a checkpoint is due because of many draws in memory; equal on all processes."""
        return len(self._draws.pending) > self._max_pending

    def save(self, iteration: int, seconds: float, wait: bool = False) -> None:
        """Wait for an earlier write, then begin to write the pending draws and a checkpoint.

        Collective.

        A chain that restarts after divergence saves a checkpoint of iteration 0. It replaces all
        snapshots of the chain, and removes its metrics.

        Parameters
        ----------
        iteration : int
            Iteration of the state.
        seconds : float
            Sampling time so far.
        wait : bool
            Whether to wait for the end of the write. Without it the state is copied, and takes
            twice the memory.

        Raises
        ------
        WriteError
            On all processes, if a file of the earlier write cannot be written or, with `wait`, of
            this write.
        """
        self.settle()
        begin = monotonic()
        self.control.saving()
        with self.ring.phases("checkpoint"):
            drafts = []
            numbers, draws = self._draws.take_pending()
            if numbers:
                state = {store.SAVED_DRAWS: SmallArray.from_array(numbers)}
                drafts.append(self._draft("draws", iteration, seconds, blocks=draws, state=state))
            blocks: dict[Key, Lazy] = dict(self.state.saved())
            if not wait:
                blocks = {key: np.array(array) for key, array in blocks.items()}
            small = self.state.small()
            drafts.append(
                self._draft("checkpoints", iteration, seconds, blocks=blocks, state=small)
            )
        clean_up = self._prune
        if iteration == 0:
            clean_up = partial(self.run.cut, self.chain, 0)
        self._submit(iteration, begin, drafts, clean_up)
        if wait:
            self.settle()

    def _draft(
        self,
        series: str,
        iteration: int,
        seconds: float,
        *,
        blocks: Mapping[Key, Lazy],
        state: dict[str, SmallArray],
    ) -> SnapshotWriter:
        """Return the writer of a snapshot in one of `SERIES`. Collective."""
        head = header(
            SERIES[series],
            self.facts,
            chain=self.chain,
            iteration=iteration,
            grid=self.ring.grid,
            state=state,
            processes=self.ring.size,
            seconds=seconds,
        )
        parent = self.run.series(series, self.chain)
        name = store.step_name(iteration)
        return SnapshotWriter(parent, name, blocks, head, comm=self.ring.comm)

    def _submit(
        self,
        iteration: int,
        begin: float,
        drafts: list[SnapshotWriter],
        clean_up: Callable[[], None],
    ) -> None:
        tasks = self._tasks(drafts, clean_up)
        first = next(tasks)
        self._write = _Write(
            iteration=iteration, begin=begin, drafts=drafts, task=first, following=tasks
        )

    def _tasks(
        self, drafts: list[SnapshotWriter], clean_up: Callable[[], None]
    ) -> Iterator[Future[None]]:
        """Submit the tasks of a write one after another, and yield their futures. Collective.

        The first task creates the folders: if the disk stalls, only the writer's thread waits. The
        last task calls `clean_up`, which removes the snapshots that the write has replaced.
        """
        make: list[Callable[[], None]] = []
        commit: list[Callable[[], None]] = []
        if self._at_root:
            make = [draft.make for draft in drafts]
            commit = [draft.commit for draft in drafts]
            commit.append(clean_up)
        yield self._writer.submit(_run_all, make)
        yield self._writer.submit(_run_all, [draft.shard for draft in drafts])
        for draft in drafts:
            draft.gather()
        yield self._writer.submit(_run_all, commit)

    def advance(self) -> None:
        """Check the completed task of a write, if any, and begin the next task. Collective.

        Call it only when no process is `busy`.

        Raises
        ------
        WriteError
            On all processes, if a file could not be written.
        """
        write = self._write
        if write is None:
            return
        self.control.finish()  # the pending reduction does not cover the next task
        with self.ring.phases("checkpoint"):
            activity = f"writing {write.drafts[-1].final}"
            try:
                agree(self.ring.comm, write.task.result, activity, WriteError)
            except WriteError:
                self._write = None
                if self._at_root:
                    for draft in write.drafts:
                        draft.discard()
                raise
            task = next(write.following, None)
            if task is not None:
                write.task = task
                return
            self._write = None
            self._longest_write = max(self._longest_write, monotonic() - write.begin)
            self.newest = write.iteration
            self.control.write_seconds = RESERVE * self._longest_write

    def settle(self) -> None:
        """Wait for the end of the current write, if any; raise WriteError if it fails.

        Collective.
        """
        while self._write is not None:
            with self.ring.phases("checkpoint"):
                self.control.wait(lambda: self.busy)
            self.advance()

    def close(self) -> None:
        """End the writer's thread after its last task."""
        self._writer.shutdown()

    def _prune(self) -> None:
        """Remove old checkpoints, and draws that no checkpoint needs; called on process 0."""
        store.prune(
            self.run.series("checkpoints", self.chain), KEPT_CHECKPOINTS, self.kept_iteration
        )
        self.run.prune_draws(self.chain)

    def save_posterior(self, iteration: int, seconds: float) -> None:
        """Write the posterior of all draws so far, and wait for the end of the write. Collective.

        It replaces older and damaged posteriors. Nothing is written if there are no draws, or if
        the posterior is on disk.
        """
        self.settle()
        begin = monotonic()
        if not self._draws.weight:
            return
        parent = self.run.series("posterior", self.chain)
        folder = parent / store.step_name(iteration)
        exists = partial(store.is_intact, folder, "it is computed again")
        if on_root(self.ring.comm, exists):
            return
        saved = {store.SAVED_DRAWS: self.state.small()[store.SAVED_DRAWS]}
        posterior = dict(self.state.posterior())
        draft = self._draft("posterior", iteration, seconds, blocks=posterior, state=saved)
        self._submit(iteration, begin, [draft], partial(store.prune, parent, 1))
        self.settle()

    # ------------------------------------------------------------------ resuming

    def iterations(self) -> list[int]:
        """Iterations of the checkpoints on disk, the newest first. Collective."""
        series = self.run.series("checkpoints", self.chain)
        steps = on_root(self.ring.comm, partial(store.steps, series))
        return steps[::-1]

    def read(self, iteration: int) -> Snapshot:
        """Open a checkpoint, and check its manifest and the files of its saved draws. Collective.

        The processes divide the files among themselves. `ChainState.load` checks the files of the
        checkpoint.

        Raises
        ------
        InputError
            If a file is missing or damaged, or is not of this chain.
        """
        reading = partial(self._open, iteration)
        checkpoint, draws = on_root(self.ring.comm, reading, "reading a checkpoint")
        unchecked = [snapshot for snapshot in draws if snapshot.path not in self._checked]
        checking = partial(self._check_own_share, unchecked)
        self.ring.agree(checking, "checking saved files")
        self._checked.update(snapshot.path for snapshot in unchecked)
        return checkpoint

    def _open(self, iteration: int) -> tuple[Snapshot, list[Snapshot]]:
        """Open a checkpoint and the snapshots of its saved draws; called on process 0."""
        checkpoint = self.run.open_snapshot("checkpoints", self.chain, iteration, self.facts)
        if checkpoint.manifest.grid != self.ring.grid:
            raise InputError(
                f"{checkpoint.path} belongs to another run: its grid is {checkpoint.manifest.grid}"
            )
        saved = SavedDraws(self.run, self.chain, self.facts)
        return checkpoint, saved.snapshots(checkpoint.manifest.saved_draws)

    def _check_own_share(self, snapshots: list[Snapshot]) -> None:
        """Check this process's share of the files of some snapshots."""
        shards = [(snapshot, shard) for snapshot in snapshots for shard in snapshot.manifest.shards]
        for snapshot, shard in shards[self.ring.rank :: self.ring.size]:
            snapshot.check_shard(shard)

    def cut(self, iteration: int) -> None:
        """Remove snapshots and metrics of later iterations, and draws that no checkpoint needs.

        Collective.
        """
        on_root(self.ring.comm, partial(self.run.cut, self.chain, iteration), "preparing to sample")
        self.newest = iteration
