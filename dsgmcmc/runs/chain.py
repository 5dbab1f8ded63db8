"""One chain on one group of processes: iterate, record, save, and begin again where it diverges.

`Chain.advance` is the loop: in every iteration (`_iterate`) the sampler updates the target once; the state is recorded
if it is a draw; and the processes agree on whether to save a checkpoint, and whether to stop.

Which iterations are averaged, evaluated and saved follows from the iteration number alone; only the times of
checkpoints may depend on the clock. So a chain is found to have diverged only where it is looked at for a draw, for a
line of metrics, or at the end of burn-in. Elsewhere a state that has diverged is not saved, and a chain does not end
with it.

A chain that has diverged drops its draws and begins again, with the next sampler of `fallbacks`: smaller steps, a full
metric, exact Gibbs sampling. To keep the draws that it made before would select chains by their survival. It begins
from the state at the end of its burn-in, which a smaller step would take several times as long to reach; or from its
start, if it diverged before that. In both cases it counts its iterations from 0, with a burn-in of the same length, and
takes other random numbers: those before are the ones with which it diverged. The fallbacks follow from the settings
alone, and a checkpoint says how often the chain had diverged. So a chain that is stopped anywhere, also while it falls
back, makes the same draws in the end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.config.job import Policy
from dsgmcmc.config.run import ResolvedConfig
from dsgmcmc.config.sampler import SamplerSection
from dsgmcmc.errors import AgreedError, DivergenceError, InputError
from dsgmcmc.model.target import FactorTarget
from dsgmcmc.parallel.comm import agree
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.parallel.signals import Request
from dsgmcmc.runs.checkpoint import ChainState, Checkpoints, SavedChain
from dsgmcmc.runs.control import Control
from dsgmcmc.runs.recorder import DrawRecorder
from dsgmcmc.samplers import SAMPLERS
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.settings import named
from dsgmcmc.storage.facts import Facts, versions
from dsgmcmc.storage.manifest import Manifest
from dsgmcmc.storage.rundir import RunDirectory
from dsgmcmc.storage.series import step_name
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
    config : ResolvedConfig
        Settings of the run.
    make_target : callable
        Makes the target for a sampler, in its state before the first iteration, given the number of its random numbers.
    move_to_start : callable
        Moves a target from the sampler's start to that of the data.
    ring : Ring
        The processes of this chain.
    run : RunDirectory
        Where to save.
    chain : int
        Number of the chain.
    facts : dict
        Facts that its snapshots record (`dsgmcmc.storage.facts`).
    control : Control
        When to checkpoint and when to stop.
    policy : Policy
        What to do when something goes wrong.
    fallbacks : sequence of Fallback
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
        config: ResolvedConfig,
        make_target: Callable[[int, Sampler[Any, Any]], FactorTarget],
        move_to_start: Callable[[FactorTarget], None],
        ring: Ring,
        run: RunDirectory,
        chain: int,
        facts: Facts,
        control: Control,
        policy: Policy,
        fallbacks: Sequence[Fallback],
    ) -> None:
        self.config, self.ring, self.run_directory, self.chain = config, ring, run, chain
        self._make_target, self._move_to_start = make_target, move_to_start
        self._facts, self._control, self._policy, self._fallbacks = facts, control, policy, fallbacks
        self.made = 0
        self._seconds_before = 0.0  # sampling time until `advance` was last called
        self._begin: float | None = None
        self._looked = False  # whether the current state is known not to have diverged
        self._resumed_from: Manifest | None = None  # is noted in the next iteration
        self._make(())

    def _make(self, diverged: tuple[int, ...]) -> None:
        """Make everything that changes while the chain runs, in its state before the first iteration.

        `diverged` are the iterations at which the chain has diverged before.
        """
        config, ring, times = self.config, self.ring, len(diverged)
        section = self._fallbacks[times - 1].sampler if times else config.sampler
        self.sampler = section.make(config.burn_in)
        self.target = self._make_target(again(self.chain, times), self.sampler)
        draws = DrawRecorder(self.target, ring.rank == 0, config.save_draws)
        self.state = ChainState(self.target, self.sampler, draws, tuple(self.target.recorders()), diverged)
        self.checkpoints = Checkpoints(
            ring, self.state, self.run_directory, self.chain, self._facts, self._control, self._refuge
        )
        self.iteration = 0

    @property
    def _refuge(self) -> int | None:
        """Iteration of the checkpoint from which the chain begins again if it diverges; None for the start."""
        return self.config.burn_in if self._fallbacks and self.config.burn_in else None

    @property
    def seconds(self) -> float:
        """Wall seconds in which this chain was sampled, all inclusive."""
        return self._seconds_before + (0.0 if self._begin is None else perf_counter() - self._begin)

    # ------------------------------------------------------------------ the loop

    def start(self) -> None:
        """Set the initial state. Collective."""
        self.target.reset()
        self.sampler.start(self.target, self.config.initial_sd)
        self._move_to_start(self.target)

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
                if self._policy.on_divergence == "stop" or len(self.state.diverged) == len(self._fallbacks):
                    remedy = f", or {named(self.sampler.remedy)}" if self.sampler.remedy else ""
                    raise DivergenceError(f"{error}. Use a smaller {named('step_size')}{remedy}") from None
                self._fall_back(error)
            else:
                self._seconds_before, self._begin = self.seconds, None
                return request

    def _iterate_to(self, goal: int, report: Report) -> Request:
        self._note_resumed()
        request = Request.GO_ON
        every, _ = self.config.checkpoint_interval()
        while request < Request.STOP and (self.iteration < goal or self._is_lost()):
            self._iterate(report)
            begin = self.ring.phases.enter()
            request, idle = self._control.ask(self.checkpoints.busy)
            self.ring.phases.leave("reduce", begin)
            if idle:
                self.checkpoints.advance()
            due = (every and self.iteration % every == 0) or self.iteration == self._refuge
            due = due or self.checkpoints.has_many_draws
            if request == Request.CHECKPOINT or due:
                self.save(last=request >= Request.STOP or self.iteration >= self.config.iterations)
        self.checkpoints.settle()
        return request

    def _iterate(self, report: Report) -> None:
        """Make an iteration; record the state if it is a draw or due for metrics. Collective."""
        target, sampler, iteration, config = self.target, self.sampler, self.iteration, self.config
        self.iteration = done = iteration + 1
        self.made += 1
        sampler.advance(target, iteration, 1)
        is_draw = done > config.burn_in and (done - config.burn_in) % config.thin == 0
        is_line = done % config.evaluate_every == 0 or done == 1
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
        """Drop all draws, and begin again with the next sampler. Collective.

        The new state is on disk before any other is removed. A job that is killed earlier resumes with the sampler
        that diverged, makes the same iterations again, and falls back again.
        """
        at, diverged = self.iteration, (*self.state.diverged, self.iteration)
        name, refuge = self._fallbacks[len(diverged) - 1].name, self._refuge if at > self.config.burn_in else None
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
        saved, why = SavedChain(self.ring, self.run_directory, self.chain, self._facts), ""
        for iteration in saved.iterations():
            try:
                snapshot = saved.read(iteration)
                self._load(snapshot)
            except InputError as error:
                why = str(error)
                if self.ring.rank == 0:
                    log.warning("%s; falling back to the checkpoint before it", error)
                    self.run_directory.note("fell back", chain=self.chain, iteration=iteration, error=why)
                continue
            saved.cut(iteration)
            self.iteration = self.checkpoints.newest = iteration
            self._seconds_before = float(snapshot.manifest.about.get("seconds", 0.0))
            self._resumed_from = snapshot.manifest
            return True
        if why:
            raise AgreedError(
                f"no checkpoint in {self.run_directory.series('checkpoints', self.chain)} can be read with its draws "
                f"({why}); start again in a new directory: the same settings give the same draws"
            )
        saved.cut(0)
        return False

    def _load(self, snapshot: Snapshot) -> None:
        """Load the state of a checkpoint, for the sampler that the chain had come to. Collective."""
        diverged = snapshot.manifest.diverged
        if len(diverged) > len(self._fallbacks):
            raise AgreedError(f"chain {self.chain} has diverged {len(diverged)} times, and has fewer fallbacks")
        if diverged != self.state.diverged:
            self.checkpoints.close()
            self._make(diverged)
        agree(self.ring.comm, partial(self.state.load, snapshot), f"reading {snapshot.path}")

    def _note_resumed(self) -> None:
        """Record, once it samples, that the chain was resumed, and warn if other versions wrote its checkpoint."""
        manifest, self._resumed_from = self._resumed_from, None
        if manifest is None or self.ring.rank != 0:
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


# ---------------------------------------------------------------------- samplers to fall back to

#: Settings of a sampler that say which it is to be.
NAMED_SETTINGS = {"name", "step_size", "metric"}


class Fallback(NamedTuple):
    """A sampler to fall back to, and its name in messages."""

    name: str
    sampler: SamplerSection


def fallbacks(config: ResolvedConfig, given: Collection[str]) -> list[Fallback]:
    """List the samplers that a chain falls back to, in order: its own, made safer, and then one of exact draws.

    A sampler, a metric or a step that the user has named is not replaced.

    Parameters
    ----------
    config : ResolvedConfig
        Settings of the run.
    given : collection of str
        Settings in the sampler's section that the user has named: ``name``, ``step_size``, ``metric``, ...
    """
    section = config.sampler
    safer = section.kind.safer(section.config, given)
    own = [Fallback(name, section.model_copy(update={"config": each})) for name, each in safer.items()]
    if NAMED_SETTINGS & set(given) or not config.law.is_conditionally_gaussian():
        return own
    exact = [SamplerSection.of(name) for name, kind in SAMPLERS.items() if kind.draws_conditionals]
    same_sweeps = [each for each in exact if each.kind.sweep_length(each.config, config.grid) == config.sweep_length]
    return own + [Fallback(f"the sampler {each.name}", each) for each in same_sweeps if each.name != section.name]
