"""One chain on one group of processes: it iterates, records, saves, and restarts if it diverges.

`Chain.advance` is the loop. In every iteration (`_iterate`) the sampler updates the target once,
and the state is recorded if it is a draw. The processes then agree on whether to save a checkpoint,
and whether to stop. A draw to be saved waits in memory for the next checkpoint.

The iteration number alone decides which states are averaged, evaluated and saved as draws; only the
times of checkpoints may depend on the clock. Divergence is reported only in iterations with a draw
or a line of metrics and at the end of burn-in. A chain that diverges in between goes on to the next
such iteration, unless it is asked to stop; until then its state is not saved.

A chain that has diverged restarts with the next sampler of `fallbacks`: see `Chain._fall_back`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.config.chain import SamplerSection
from dsgmcmc.config.job import Policy
from dsgmcmc.config.run import ResolvedConfig
from dsgmcmc.errors import AgreedError, DivergenceError, InputError
from dsgmcmc.model.target import FactorTarget
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.parallel.signals import Request
from dsgmcmc.runs.checkpoint import ChainState, Checkpoints
from dsgmcmc.runs.control import Control
from dsgmcmc.runs.recorder import DrawRecorder
from dsgmcmc.samplers import SAMPLERS
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.settings import named
from dsgmcmc.storage.rundir import Facts, RunDirectory, changed_versions
from dsgmcmc.storage.store import Manifest, Snapshot, step_name
from dsgmcmc.targets.base import Monitored
from dsgmcmc.targets.state import restarted_chain
from dsgmcmc.terminal import log
from dsgmcmc.types import Float64

Report = Callable[[dict[str, Any]], None]


@dataclass(eq=False)
class Chain:
    """A chain of a run.

    Parameters
    ----------
    config : ResolvedConfig
        Settings of the run.
    make_target : callable
        Makes the target in its state before the first iteration, given the chain number for random
        numbers (`dsgmcmc.targets.state.restarted_chain`) and the sampler.
    move_to_start : callable
        Moves a target from the sampler's initial state to the initial state suggested by the data
        or by another run.
    ring : Ring
        The processes of this chain.
    run_directory : RunDirectory
        Directory for snapshots and metrics.
    chain : int
        Number of the chain.
    facts : dict
        Facts that the chain's snapshots record (`dsgmcmc.storage.rundir`).
    control : Control
        Decides when to save a checkpoint and when to stop.
    policy : Policy
        Says whether the chain stops or restarts after divergence.
    fallbacks : sequence of Fallback
        Samplers for restarts after divergence, in order.
    may_halve_step : bool
        Whether burn-in may halve a step that is too large (`dsgmcmc.samplers.measured_step`).

    Attributes
    ----------
    iteration : int
        Iterations since the chain was last started or restarted.
    sampled : int
        Iterations in this job, including iterations with samplers that diverged.
    """

    config: ResolvedConfig
    make_target: Callable[[int, Sampler[Any, Any]], FactorTarget]
    move_to_start: Callable[[FactorTarget], None]
    ring: Ring
    run_directory: RunDirectory
    chain: int
    facts: Facts
    control: Control
    policy: Policy
    fallbacks: Sequence[Fallback]
    may_halve_step: bool

    def __post_init__(self) -> None:
        self.sampled = 0
        #: Sampling time before the current call of `advance`, including earlier jobs.
        self._seconds_before = 0.0
        self._began_at: float | None = None
        self._is_checked = False  # whether the current state has been checked for divergence
        self._resumed_from: Manifest | None = None  # logged when the chain next advances
        self._checkpoint_iterations, _ = self.config.checkpoint_interval()
        self._make(())

    def _make(self, diverged: tuple[int, ...]) -> None:
        """Make the sampler, the target, the recorders and the checkpoints.

        `start` or `resume` sets their state. `diverged` lists the iterations at which the chain has
        diverged.
        """
        config = self.config
        restarts = len(diverged)
        section = config.sampler
        if restarts:
            section = self.fallbacks[restarts - 1].sampler
        self.sampler = section.algorithm(section.config, config.burn_in)
        self.sampler.steps.may_halve = self.may_halve_step
        self.target = self.make_target(restarted_chain(self.chain, restarts), self.sampler)
        self.state = ChainState(
            target=self.target,
            sampler=self.sampler,
            draws=DrawRecorder(self.target, self.ring.rank == 0, config.save_draws),
            others=tuple(self.target.recorders()),
            diverged=diverged,
        )
        self.checkpoints = Checkpoints(
            ring=self.ring,
            state=self.state,
            run=self.run_directory,
            chain=self.chain,
            facts=self.facts,
            control=self.control,
            kept_iteration=self._restart_iteration,
        )
        self.iteration = 0

    @property
    def _restart_iteration(self) -> int | None:
        """Iteration of the checkpoint from which the chain restarts if it diverges after burn-in.

        None without one.
        """
        if self.fallbacks and self.config.burn_in:
            return self.config.burn_in
        return None

    @property
    def seconds(self) -> float:
        """Wall time of sampling this chain in seconds, including evaluation and checkpoints."""
        if self._began_at is None:
            return self._seconds_before
        return self._seconds_before + (perf_counter() - self._began_at)

    # ------------------------------------------------------------------ loop

    def start(self) -> None:
        """Set the initial state. Collective."""
        self.target.reset()
        self.sampler.start(self.target, self.config.initial_sd)
        self.move_to_start(self.target)

    def advance(self, goal: int, report: Report, timed: bool = True) -> Request:
        """Iterate up to iteration `goal`, or until the processes agree to stop. Collective.

        The chain goes on past `goal` while an unchecked state has diverged. The elapsed time counts
        towards `seconds` if `timed`.

        Returns
        -------
        Request
            Last request on which the processes agreed: go on, save a checkpoint, or stop.

        Raises
        ------
        DivergenceError
            If the chain diverges and ``on_divergence`` is ``stop``, no fallback is left, or the
            state at the end of burn-in cannot be read.
        WriteError
            If a file cannot be written.
        """
        self._began_at = perf_counter() if timed else None
        while True:
            try:
                with np.errstate(all="ignore"):  # `_check_divergence` detects divergence
                    request = self._iterate_to(goal, report)
            except DivergenceError as error:
                # a checkpoint that is still being written holds an earlier, finite state
                self.checkpoints.settle()
                if self._must_stop_after_divergence():
                    raise DivergenceError(f"{error}{self._advice()}") from None
                self._fall_back(error)
            else:
                self._seconds_before = self.seconds
                self._began_at = None
                return request

    def _must_stop_after_divergence(self) -> bool:
        is_last_sampler = len(self.state.diverged) == len(self.fallbacks)
        return self.policy.on_divergence == "stop" or is_last_sampler

    def _advice(self) -> str:
        """Return what the user may change after divergence, as the end of a message."""
        if self.sampler.draws_conditionals:
            return ""
        return f". Use a smaller {named('step_size')}"

    def _iterate_to(self, goal: int, report: Report) -> Request:
        self._note_resumed()
        request = Request.GO_ON
        while request < Request.STOP and (self.iteration < goal or self._has_diverged_unchecked()):
            self._iterate(report)
            begin = self.ring.phases.enter()
            request, writers_idle = self.control.ask(self.checkpoints.busy)
            self.ring.phases.leave("reduce", begin)
            if writers_idle:  # no process is writing: begin the next part of a checkpoint, if any
                self.checkpoints.advance()
            self._save_if_due(request)
        self.checkpoints.settle()
        return request

    def _save_if_due(self, request: Request) -> None:
        """Save a checkpoint if requested or due, unless the state has diverged. Collective."""
        every = self._checkpoint_iterations
        at_restart = self.iteration == self._restart_iteration
        is_due = (
            request == Request.CHECKPOINT
            or at_restart
            or self.checkpoints.has_many_draws
            or bool(every and self.iteration % every == 0)
        )
        if is_due and not self._has_diverged_unchecked():
            is_last = request >= Request.STOP or self.iteration >= self.config.iterations
            self.checkpoints.save(self.iteration, self.seconds, wait=is_last or at_restart)

    def _iterate(self, report: Report) -> None:
        """Make one iteration; check and record the state if a draw or a line is due. Collective."""
        config = self.config
        iteration = self.iteration
        finished = iteration + 1
        self.iteration = finished
        self.sampled += 1
        self.sampler.advance(self.target, iteration, 1)
        if self.sampler.steps.halved_at == iteration:
            self._note_halved(iteration)
        is_draw = finished > config.burn_in and (finished - config.burn_in) % config.thin == 0
        line_due = finished % config.evaluate_every == 0 or finished == 1
        self._is_checked = is_draw or line_due or finished == self._restart_iteration
        if not self._is_checked:
            return
        begin = self.ring.phases.enter()
        # first, because a diverged state is neither counted as a draw nor used for a restart
        self._check_divergence()
        if is_draw or line_due:
            self._record(iteration, is_draw)
        if line_due:
            self._write_line(report)
        self.ring.phases.leave("evaluate", begin)

    def _note_halved(self, iteration: int) -> None:
        """Say that burn-in has halved the step."""
        if self.ring.rank != 0:
            return
        size = self.sampler.step_size(self.target, self.config.burn_in)
        log.info(
            "chain %d: the step was too large at iteration %d of burn-in, and is now %.3g",
            self.chain,
            iteration,
            size,
        )
        self.run_directory.note(
            "halved step", chain=self.chain, iteration=iteration, step_size=size
        )

    def _record(self, iteration: int, is_draw: bool) -> None:
        """Record the state after iteration `iteration`, as a draw if it is one. Collective."""
        draw = None
        if is_draw:
            weight = self.sampler.weight(self.target, iteration)
            draw = self.state.draws.next(iteration + 1, weight)
        for recorder in self.state.recorders:
            recorder.record(self.sampler.position(iteration), draw)

    def _write_line(self, report: Report) -> None:
        """Write and report one line of metrics. Collective."""
        line: dict[str, Any] = {
            "chain": self.chain,
            "iteration": self.iteration,
            "sweep": self.iteration / self.target.sweep_length,
            "time_s": round(self.seconds, 4),
        }
        for recorder in self.state.others:
            line |= recorder.metrics(self.state.draws.weight)
        line |= self.sampler.metrics()
        if self.ring.rank == 0:
            self.run_directory.add_metrics(self.chain, line)
            report(line)

    def _find_divergence(self) -> str:
        """Return the evidence of divergence as text; empty if there is none. Collective."""
        position = self.sampler.position(self.iteration - 1)
        return self.target.find_divergence(position) or self.sampler.find_divergence()

    def _has_diverged_unchecked(self) -> bool:
        """Whether the state has diverged since the last check; the next check raises the error.

        Collective.
        """
        return not self._is_checked and bool(self._find_divergence())

    def _check_divergence(self) -> None:
        """Raise DivergenceError on all processes if the chain has diverged. Collective."""
        divergence = self._find_divergence()
        if not divergence:
            return
        step = ""
        if not self.sampler.draws_conditionals:
            step_size = self.sampler.weight(self.target, self.iteration - 1)  # the weight of a draw
            step = f" at step size {step_size:.3g}"
        raise DivergenceError(
            f"chain {self.chain} diverged by iteration {self.iteration}: {divergence}{step}"
        )

    def finish(self) -> None:
        """Save a checkpoint and, if there are draws, the posterior, unless they are on disk.

        Collective.

        Nothing is saved if the state has diverged.

        Raises
        ------
        WriteError
            If a file cannot be written.
        """
        if self.iteration != self.checkpoints.newest:
            if self._has_diverged_unchecked():
                return
            self.checkpoints.save(self.iteration, self.seconds, wait=True)
        self.checkpoints.save_posterior(self.iteration, self.seconds)

    def close(self) -> None:
        """End the writer's thread after its last write."""
        self.checkpoints.close()

    # ------------------------------------------------------------------ after divergence

    def _fall_back(self, error: DivergenceError) -> None:
        """Drop all draws, and restart with the next sampler. Collective.

        The draws before a divergence are a biased sample, so they are dropped. After burn-in, the
        chain restarts from the state at its end, because smaller steps would take several times as
        long to reach this state; otherwise from a new initial state. In both cases it counts
        iterations from 0 again, repeats a burn-in of the configured length, and uses different
        random numbers.

        The fallbacks follow from the settings alone, and a checkpoint records how often the chain
        has diverged, so a stop at any time does not change the draws. The old checkpoints are
        removed only once the new state is on disk. If the job is killed earlier, the next job
        resumes with the sampler that diverged, diverges at the same iteration, and restarts as this
        job would have.
        """
        last = self.iteration
        fallback = self.fallbacks[len(self.state.diverged)]
        restart = self._restart_iteration
        if last <= self.config.burn_in:
            restart = None
        self.checkpoints.close()
        self._make((*self.state.diverged, last))
        self.start()
        if restart:
            self._load_model(restart, error)
        self.checkpoints.save(0, self.seconds, wait=True)
        if self.ring.rank == 0:
            log.warning(
                "%s. It restarts from %s with %s, and its draws are dropped",
                error,
                "the end of its burn-in" if restart else "its start",
                fallback.name,
            )
            facts = {
                "chain": self.chain,
                "iteration": last,
                "next": fallback.name,
                "from": restart or 0,
            }
            self.run_directory.note("diverged", **facts, error=str(error))

    def _load_model(self, iteration: int, error: DivergenceError) -> None:
        """Load the model's state from a checkpoint of the sampler that has diverged. Collective."""
        path = self.run_directory.series("checkpoints", self.chain) / step_name(iteration)
        try:
            self.ring.agree(lambda: self.state.load_model(Snapshot(path)), f"reading {path}")
        except InputError as damage:
            raise DivergenceError(
                f"{error}; the state at the end of its burn-in cannot be read: {damage}"
            ) from error

    # ------------------------------------------------------------------ resuming

    def resume(self) -> bool:
        """Continue from the newest complete checkpoint; return False if there are no checkpoints.

        Collective.

        A checkpoint is complete if its files and the files of its saved draws are undamaged. If the
        newest checkpoint is incomplete, the chain continues from an earlier checkpoint, and repeats
        the draws after it. Later snapshots and metrics are removed, including incomplete
        checkpoints.

        Raises
        ------
        InputError
            If there are checkpoints, but none is complete.
        """
        damage = ""
        for iteration in self.checkpoints.iterations():
            try:
                snapshot = self.checkpoints.read(iteration)
                self._load(snapshot)
            except InputError as error:
                damage = str(error)
                if self.ring.rank == 0:
                    log.warning("%s; trying the previous checkpoint", error)
                    self.run_directory.note(
                        "fell back", chain=self.chain, iteration=iteration, error=damage
                    )
                continue
            self.checkpoints.cut(iteration)
            self.iteration = iteration
            self._seconds_before = float(snapshot.manifest.about.get("seconds", 0.0))
            self._resumed_from = snapshot.manifest
            return True
        if damage:
            series = self.run_directory.series("checkpoints", self.chain)
            raise AgreedError(
                f"no checkpoint in {series} can be used ({damage}): start again in a new directory"
            )
        self.checkpoints.cut(0)
        return False

    def _load(self, snapshot: Snapshot) -> None:
        """Make the sampler that wrote a checkpoint, if it is another one, and load the state.

        Collective.
        """
        diverged = snapshot.manifest.diverged
        if len(diverged) > len(self.fallbacks):
            allowed = f"but the settings allow only {len(self.fallbacks)} restarts"
            raise AgreedError(f"chain {self.chain} has diverged {len(diverged)} times, {allowed}")
        if diverged != self.state.diverged:
            self.checkpoints.close()
            self._make(diverged)
        self.ring.agree(lambda: self.state.load(snapshot), f"reading {snapshot.path}")

    def _note_resumed(self) -> None:
        """Log that the chain was resumed, with the versions that have changed.

        The log gets this entry when the chain first advances, not when it loads its checkpoint.
        """
        manifest = self._resumed_from
        self._resumed_from = None
        if manifest is None or self.ring.rank != 0:
            return
        facts: dict[str, Any] = {"processes": self.ring.size}
        changes = changed_versions(manifest.about.get("versions", {}))
        if changes:
            facts["changes"] = changes
        self.run_directory.note("resumed", chain=self.chain, iteration=manifest.iteration, **facts)

    # ------------------------------------------------------------------ accuracy

    def monitored(self) -> dict[int, Monitored]:
        """Return the values from which ESS and R-hat are computed, by block of this process.

        `Recorder.monitored` describes them.
        """
        return {
            block: values
            for recorder in self.state.others
            for block, values in recorder.monitored().items()
        }

    def draw_weights(self) -> Float64:
        """Return the weights of the draws, (draws,) float64; empty but on the chain's process 0."""
        return np.concatenate([[], *self.state.draws.trace.get("weight", [])])


# ---------------------------------------------------------------------- fallbacks

#: If the user gives one of these settings of the sampler, exact Gibbs sampling is not a fallback.
SETTINGS_AGAINST_GIBBS = {"name", "step_size", "metric"}


class Fallback(NamedTuple):
    """A sampler for a restart after divergence, and its name in messages."""

    name: str
    sampler: SamplerSection


def fallbacks(config: ResolvedConfig, given_of_sampler: Collection[str]) -> list[Fallback]:
    """List the fallbacks of a chain: smaller steps, then exact Gibbs sampling.

    No fallback replaces a sampler or a metric that the user has given, or changes a step size that
    the user has given.

    Parameters
    ----------
    config : ResolvedConfig
        Settings of the run.
    given_of_sampler : collection of str
        Settings in the sampler's section that the user has given: ``name``, ``step_size``,
        ``metric``, ...
    """
    section = config.sampler
    steps = section.algorithm.Steps
    samplers = [
        Fallback(name, section.model_copy(update={"config": settings}))
        for name, settings in steps.after_divergence(section.config, given_of_sampler).items()
    ]
    if (
        SETTINGS_AGAINST_GIBBS.isdisjoint(given_of_sampler)
        and config.law.is_conditionally_gaussian()
    ):
        samplers += _gibbs_samplers(config)
    return samplers


def _gibbs_samplers(config: ResolvedConfig) -> list[Fallback]:
    """List the exact Gibbs samplers whose sweeps are as long as the run's, but not its own."""
    found = []
    for name, sampler in SAMPLERS.items():
        if name == config.sampler.name or not sampler.draws_conditionals:
            continue
        section = SamplerSection.parse(name)
        if section.algorithm.sweep_length(section.config, config.grid) == config.sweep_length:
            found.append(Fallback(f"the sampler {name}", section))
    return found
