"""One chain on one group of processes: iterate, record, checkpoint, stop.

Which iterations are averaged, evaluated and saved follows from the iteration number alone; only the times of
checkpoints may depend on the clock. So a chain is found to have diverged only where it is looked at for a draw, for a
line of metrics, or at the end of burn-in. Elsewhere a state that has diverged is not saved, and a chain does not end
with it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from dsgmcmc.config.chain import KEPT_CHECKPOINTS, ResolvedChain
from dsgmcmc.config.job import Policy
from dsgmcmc.errors import AgreedError, DivergenceError, InputError, WriteError
from dsgmcmc.model.target import FactorTarget
from dsgmcmc.parallel.comm import agree
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.parallel.signals import Request
from dsgmcmc.runs.checkpoint import ChainState, Checkpoints
from dsgmcmc.runs.control import Control
from dsgmcmc.runs.recorder import DrawRecorder
from dsgmcmc.runs.recovery import Fallback
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.settings import named
from dsgmcmc.storage.draws import SavedDraws
from dsgmcmc.storage.facts import Facts, check_made_with, versions
from dsgmcmc.storage.manifest import Manifest, parse_manifest, read_manifest, read_text
from dsgmcmc.storage.rundir import RunDirectory
from dsgmcmc.storage.series import remove, step_name, steps
from dsgmcmc.storage.snapshot import Snapshot
from dsgmcmc.targets.base import Followed
from dsgmcmc.targets.state import again
from dsgmcmc.types import Float64

Report = Callable[[dict[str, Any]], None]

log = logging.getLogger(__name__)


class Chain:
    """A chain of a run.

    Parameters
    ----------
    config : ResolvedChain
        Settings of the run.
    make_target : callable
        Makes the target for a sampler, in its state before the first iteration, given the number of its random numbers.
    ring : Ring
        The processes of this chain.
    run : RunDirectory
        Where to save.
    chain : int
        Number of the chain.
    data_hash : str
        Hash of the data, or of the density.
    control : Control
        When to checkpoint and when to stop.
    policy : Policy
        What to do when something goes wrong.
    made : dict, optional
        Facts that its snapshots record; see `dsgmcmc.storage.facts`.
    begin : callable, optional
        Moves the target from its usual initial state to another one.
    fallbacks : sequence of Fallback, optional
        Samplers with which it begins again where it diverges, in their order.

    Attributes
    ----------
    iteration : int
        Iterations since its start.
    made : int
        Iterations of this job, also those of samplers with which it diverged.
    """

    def __init__(
        self,
        config: ResolvedChain,
        make_target: Callable[[int, Sampler[Any, Any]], FactorTarget],
        ring: Ring,
        run: RunDirectory,
        chain: int,
        data_hash: str,
        control: Control,
        policy: Policy,
        made: Facts | None = None,
        begin: Callable[[Any], None] | None = None,
        fallbacks: Sequence[Fallback] = (),
    ) -> None:
        self.config, self.ring, self.run_directory, self.chain = config, ring, run, chain
        self.control, self.policy = control, policy
        self.total, self.burn_in = config.iterations, config.burn_in
        self.thin, self.every = config.thin, config.evaluate_every
        self._make_target = make_target
        self._hashes = {"config_hash": config.hash(), "data_hash": data_hash}
        self._made: Facts = made or {}
        self._move_start, self._fallbacks = begin, fallbacks
        self.made = 0
        self.seconds_before = 0.0  # sampling time until `advance` was last called
        self._begin: float | None = None
        self._looked = False  # whether the current state is known not to have diverged
        self._taken_up: Callable[[], None] | None = None  # records, at the next iteration, where it was resumed
        self._make(())

    def _make(self, diverged: tuple[int, ...]) -> None:
        """Make everything that changes while the chain runs, in its state before the first iteration.

        `diverged` are the iterations at which the chain has diverged before.
        """
        config, times = self.config, len(diverged)
        section = self._fallbacks[times - 1].sampler if times else config.sampler
        self.sampler = section.make(config.burn_in)
        self.target = self._make_target(again(self.chain, times), self.sampler)
        draws = DrawRecorder(self.target, self.ring.rank == 0, config.save_draws)
        self.state = ChainState(self.target, self.sampler, draws, tuple(self.target.recorders()), diverged)
        self.checkpoints = Checkpoints(
            self.ring,
            self.state,
            self.run_directory,
            self.chain,
            self._hashes,
            KEPT_CHECKPOINTS,
            self.control,
            self._made,
            self._refuge,
        )
        self.iteration = 0

    @property
    def _facts(self) -> Facts:
        """Facts that all its snapshots must have been made with."""
        return self._hashes | self._made

    @property
    def _refuge(self) -> int | None:
        """Iteration of the checkpoint from which the chain begins again if it diverges; None for the start."""
        return self.burn_in if self._fallbacks and self.burn_in else None

    # ------------------------------------------------------------------ the loop

    def start(self) -> None:
        """Set the initial state. Collective."""
        self.target.reset()
        self.sampler.start(self.target, self.config.initial_sd)
        if self._move_start is not None:
            self._move_start(self.target)

    def advance(self, goal: int, report: Report, timed: bool = True) -> Request:
        """Iterate until `goal` iterations are made, or all agree to stop; its seconds count if `timed`. Collective.

        Returns
        -------
        Request
            The last request.

        Raises
        ------
        DivergenceError
            If the chain diverges, and ``on_divergence`` or its settings do not let it fall back to another sampler.
        WriteError
            If something cannot be written.
        """
        self._begin = perf_counter() if timed else None
        while True:
            try:
                with np.errstate(all="ignore"):  # `_check_finite` detects divergence
                    request = self._iterate_to(goal, report)
            except DivergenceError as error:
                self.checkpoints.settle()  # a checkpoint being written is of an earlier, finite state
                if self.policy.on_divergence == "stop" or len(self.state.diverged) == len(self._fallbacks):
                    remedy = f", or {named(self.sampler.remedy)}" if self.sampler.remedy else ""
                    raise DivergenceError(f"{error}. Use a smaller {named('step_size')}{remedy}") from None
                self._fall_back(error)
            else:
                self.seconds_before, self._begin = self.seconds, None
                return request

    def _iterate_to(self, goal: int, report: Report) -> Request:
        if self._taken_up is not None:
            self._taken_up()
            self._taken_up = None
        request = Request.GO_ON
        every, _ = self.config.checkpoint_interval()
        while request < Request.STOP and (self.iteration < goal or self._is_lost()):
            self._iterate(report)
            begin = self.ring.phases.enter()
            request, idle = self.control.ask(self.checkpoints.busy)
            self.ring.phases.leave("reduce", begin)
            if idle:
                self.checkpoints.advance()
            due = (every and self.iteration % every == 0) or self.iteration == self._refuge
            due = due or self.checkpoints.has_many_draws
            if request == Request.CHECKPOINT or due:
                self.save(last=request >= Request.STOP or self.iteration >= self.total)
        self.checkpoints.settle()
        return request

    def _iterate(self, report: Report) -> None:
        """Make an iteration; record the state if it is a draw or due for metrics. Collective."""
        target, sampler, iteration = self.target, self.sampler, self.iteration
        self.iteration = done = iteration + 1
        self.made += 1
        sampler.advance(target, iteration, 1)
        is_draw = done > self.burn_in and (done - self.burn_in) % self.thin == 0
        is_line = done % self.every == 0 or done == 1
        self._looked = is_draw or is_line or done == self._refuge
        if self._looked:
            begin = self.ring.phases.enter()
            self._check_finite()  # no draw of a diverged state is counted, and no chain begins again from it
            if is_draw or is_line:
                draw = self.state.draws.next(done, sampler.weight(target, iteration)) if is_draw else None
                for recorder in self.state.recorders:
                    recorder.record(sampler.position(iteration), draw)
            if is_line:
                self._line(report)
            self.ring.phases.leave("evaluate", begin)

    def _line(self, report: Report) -> None:
        """One line of metrics. Collective."""
        line: dict[str, Any] = {
            "chain": self.chain,
            "iteration": self.iteration,
            "sweep": self.iteration / self.target.sweep_length,
            "time_s": round(self.seconds, 4),
        }
        for recorder in self.state.recorders:
            line |= recorder.metrics()
        line |= self.sampler.metrics()
        if self.ring.rank == 0:
            self.run_directory.add_metrics(self.chain, line)
            report(line)

    def _find_divergence(self) -> str:
        """Say what shows that the chain has diverged; empty if nothing does. Collective."""
        position = self.sampler.position(self.iteration - 1)
        return self.target.find_divergence(position) or self.sampler.find_divergence()

    def _is_lost(self) -> bool:
        """Whether the state has diverged, which is found where the chain is looked at next. Collective."""
        return not self._looked and bool(self._find_divergence())

    def _check_finite(self) -> None:
        """Raise DivergenceError on all processes if the chain has diverged. Collective."""
        divergence = self._find_divergence()
        if divergence:
            raise DivergenceError(
                f"chain {self.chain} diverged by iteration {self.iteration}: {divergence} at step size "
                f"{self.sampler.weight(self.target, self.iteration - 1):.3g}"
            )

    def finish(self) -> None:
        """Save the current state and the posterior, unless they are on disk or it has diverged. Collective.

        Raises
        ------
        WriteError
            If it cannot be written.
        """
        if self.iteration != self.checkpoints.newest:
            if self._is_lost():
                return
            self.checkpoints.save(self.iteration, self.seconds, last=True)
            self.checkpoints.settle()
        self.checkpoints.save_posterior(self.iteration, self.seconds)

    def close(self) -> None:
        """End the writer's thread once it has written everything."""
        self.checkpoints.close()

    def save(self, last: bool = False) -> None:
        """Begin to write a checkpoint and its draws, unless the state has diverged. Collective.

        With `last`, the state must not change before it is written, and the job fails if that fails.
        """
        if not self._is_lost():
            self.checkpoints.save(self.iteration, self.seconds, last, wait=self.iteration == self._refuge)

    # ------------------------------------------------------------------ where it diverges

    def _fall_back(self, error: DivergenceError) -> None:
        """Drop all draws, and begin again with the next sampler; see `dsgmcmc.runs.recovery`. Collective.

        The new state is on disk before any other is removed. A job that is killed earlier resumes with the sampler
        that diverged, makes the same iterations again, and falls back again.
        """
        at, diverged = self.iteration, (*self.state.diverged, self.iteration)
        name, refuge = self._fallbacks[len(diverged) - 1].name, self._refuge if at > self.burn_in else None
        self.checkpoints.close()
        self._make(diverged)
        self.start()
        if refuge:
            self._go_on_from(refuge, error)
        self.checkpoints.begin_again(self.seconds)
        if self.ring.rank == 0:
            where = "the end of its burn-in" if refuge else "its start"
            log.warning("%s. It begins again from %s with %s, and its draws are dropped", error, where, name)
            facts = {"chain": self.chain, "iteration": at, "next": name, "from": refuge or 0}
            self.run_directory.note("diverged", **facts, error=str(error))

    def _go_on_from(self, iteration: int, error: DivergenceError) -> None:
        """Take the model's state from a checkpoint of the sampler that has diverged. Collective."""
        path = self.run_directory.series("checkpoints", self.chain) / step_name(iteration)
        try:
            agree(self.ring.comm, lambda: self.state.go_on_from(Snapshot(path)), f"reading {path}")
        except InputError as damage:
            raise DivergenceError(f"{error}; the state at the end of its burn-in cannot be read: {damage}") from error

    # ------------------------------------------------------------------ resuming

    def resume(self) -> bool:
        """Go on from the newest complete checkpoint; False if there is none. Collective.

        A checkpoint is complete if it is undamaged, and so are the files of the draws that it counts on. If it is not,
        the chain goes on from the checkpoint before it, and makes the same draws again. What was written after the
        checkpoint is removed, and so are earlier ones that are damaged.

        Raises
        ------
        InputError
            If there are checkpoints, but none is complete.
        """
        run, parent = self.run_directory, self.run_directory.series("checkpoints", self.chain)
        iterations: list[int] = self.ring.comm.bcast(steps(parent) if self._at_root else None, root=0)
        checked: set[Path] = set()  # draws that several checkpoints need are read once
        why = ""
        while iterations:
            path = parent / step_name(iterations.pop())
            try:
                manifest = self._load(path, checked)
            except InputError as error:
                why = str(error)
                if self._at_root:
                    log.warning("%s; falling back to the checkpoint before it", error)
                    run.note("fell back", chain=self.chain, iteration=int(path.name[5:]), error=why)
                continue
            self._at_root_alone(partial(run.cut, self.chain, manifest.iteration), "preparing to resume", AgreedError)
            for earlier in iterations:
                self._remove_damaged(parent / step_name(earlier), checked)
            self._at_root_alone(partial(run.prune_draws, self.chain), "removing draws")
            self._taken_up = partial(self._note_resumed, manifest)
            self.iteration = self.checkpoints.newest = manifest.iteration
            self.seconds_before = float(manifest.about.get("seconds", 0.0))
            return True
        if why:
            raise AgreedError(
                f"no checkpoint in {parent} can be read with its draws ({why}); start again in a new directory: the "
                "same settings give the same draws"
            )
        self._at_root_alone(partial(run.cut, self.chain, 0), "preparing to start", AgreedError)
        return False

    @property
    def _at_root(self) -> bool:
        return self.ring.rank == 0

    def _at_root_alone(self, work: Callable[[], None], doing: str, kind: type[AgreedError] = WriteError) -> None:
        """Have process 0 do something, and raise on all processes what fails. Collective."""
        agree(self.ring.comm, work if self._at_root else lambda: None, doing, kind)

    def _load(self, path: Path, checked: set[Path]) -> Manifest:
        """Load the state of a checkpoint, and check the files of its draws. Collective."""
        comm, reading = self.ring.comm, f"reading {path}"
        text = comm.bcast(agree(comm, partial(read_text, path) if self._at_root else str, reading), root=0)
        manifest = agree(comm, partial(parse_manifest, text, path), reading)
        agree(comm, partial(self._check, manifest, path), reading)
        self._check_files(self._draws_of(manifest), checked)
        state = self._state_for(manifest.diverged)
        agree(comm, partial(_take, state, Snapshot(path, manifest)), reading)
        return manifest

    def _check(self, manifest: Manifest, path: Path) -> None:
        """Raise InputError if a checkpoint is not one of this chain."""
        check_made_with(manifest, self._facts, path)
        identity = (manifest.kind, manifest.chain, manifest.grid, step_name(manifest.iteration))
        expected = ("checkpoint", self.chain, self.ring.grid, path.name)
        if identity != expected:
            raise InputError(f"{path} holds something else: (kind, chain, grid, name) are {identity}, not {expected}")

    def _draws_of(self, manifest: Manifest) -> list[Snapshot]:
        """Open the snapshots of the draws that a checkpoint counts on. Collective."""

        def opened() -> list[Snapshot]:
            return SavedDraws(self.run_directory, self.chain, self._facts).snapshots(manifest.saved_draws)

        return agree(self.ring.comm, opened, "reading saved draws")

    def _check_files(self, snapshots: list[Snapshot], checked: set[Path]) -> None:
        """Check that no file is damaged; the processes share the files. Collective."""
        new = [snapshot for snapshot in snapshots if snapshot.path not in checked]
        files = [(snapshot, shard) for snapshot in new for shard in snapshot.manifest.shards]

        def check() -> None:
            for snapshot, shard in files[self.ring.rank :: self.ring.size]:
                snapshot.check_shard(shard)

        agree(self.ring.comm, check, "checking saved files")
        checked.update(snapshot.path for snapshot in new)

    def _remove_damaged(self, path: Path, checked: set[Path]) -> None:
        """Remove an older checkpoint if it is not complete, so that no job tries to resume from it. Collective."""
        try:
            manifest = agree(self.ring.comm, partial(read_manifest, path), f"reading {path}")
            self._check_files([Snapshot(path, manifest), *self._draws_of(manifest)], checked)
        except InputError as error:
            if self._at_root:
                log.warning("%s; it is no longer needed, and is removed", error)
                self.run_directory.note("removed", chain=self.chain, error=str(error))
            self._at_root_alone(partial(remove, path), f"removing {path}")

    def _state_for(self, diverged: tuple[int, ...]) -> ChainState:
        """Return a state for a checkpoint of a chain that had diverged at these iterations. Collective."""
        if len(diverged) > len(self._fallbacks):
            raise AgreedError(f"chain {self.chain} has diverged {len(diverged)} times, and has fewer fallbacks")
        if diverged != self.state.diverged:
            self.checkpoints.close()
            self._make(diverged)
        return self.state

    def _note_resumed(self, manifest: Manifest) -> None:
        """Record that the chain resumes from a checkpoint, and warn if other versions wrote it."""
        if not self._at_root:
            return
        before, now = manifest.about.get("versions", {}), versions()
        changes = {name: [before.get(name), now[name]] for name in now if before.get(name) != now[name]}
        if changes:
            text = ", ".join(f"{name} {old} -> {new}" for name, (old, new) in changes.items())
            log.warning(
                "chain %d was sampled with other versions so far (%s): it goes on, but its bits are no longer those of "
                "a run with one version",
                self.chain,
                text,
            )
        facts = {"processes": self.ring.size, **({"changes": changes} if changes else {})}
        self.run_directory.note("resumed", chain=self.chain, iteration=manifest.iteration, **facts)

    # ------------------------------------------------------------------ what it has drawn

    def followed(self) -> dict[int, Followed]:
        """What is followed of every draw, by block here; see `Recorder.followed`."""
        return {block: values for recorder in self.state.recorders for block, values in recorder.followed().items()}

    def draw_weights(self) -> Float64:
        """(draws,) float64: weight of every draw; on process 0."""
        return np.concatenate([[], *self.state.draws.trace.get("weight", [])])

    @property
    def seconds(self) -> float:
        """Wall seconds in which this chain was sampled, all inclusive."""
        return self.seconds_before + (0.0 if self._begin is None else perf_counter() - self._begin)


def _take(state: ChainState, snapshot: Snapshot) -> None:
    """Load a state; raises InputError where the content of a snapshot, though undamaged, does not belong to the run."""
    try:
        state.load(snapshot)
    except InputError:
        raise
    except (KeyError, ValueError, IndexError) as error:
        raise InputError(f"{snapshot.path} is incomplete or inconsistent: {error!r}") from error
