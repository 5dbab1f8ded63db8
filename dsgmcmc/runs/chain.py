"""One chain on one group of processes: iterate, record, checkpoint, stop.

Which iterations are averaged, evaluated and saved follows from the iteration number alone; only the times of
checkpoints may depend on the clock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from dsgmcmc.config.chain import ResolvedChain
from dsgmcmc.config.job import Policy
from dsgmcmc.errors import DivergenceError
from dsgmcmc.parallel.faults import fault
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.parallel.signals import Request
from dsgmcmc.runs.checkpoint import Checkpoints
from dsgmcmc.runs.control import Control
from dsgmcmc.runs.recorder import DrawRecorder
from dsgmcmc.runs.resume import Resume
from dsgmcmc.runs.state import ChainState
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.settings import named
from dsgmcmc.storage.facts import Facts
from dsgmcmc.storage.rundir import RunDirectory
from dsgmcmc.targets.base import RunTarget
from dsgmcmc.types import Array, Float64

SMALLEST_SCALE = 2.0**-10  # smaller steps do not help a chain that diverges

Report = Callable[[dict[str, Any]], None]

log = logging.getLogger(__name__)


class Chain:
    """A chain of a run, for any target.

    Parameters
    ----------
    config : ResolvedChain
        Settings of the run.
    make_target : callable
        Makes the target for a sampler, in its state before the first iteration.
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
    """

    def __init__(
        self,
        config: ResolvedChain,
        make_target: Callable[[Sampler[Any, Any]], RunTarget],
        ring: Ring,
        run: RunDirectory,
        chain: int,
        data_hash: str,
        control: Control,
        policy: Policy,
        made: Facts | None = None,
        begin: Callable[[Any], None] | None = None,
    ) -> None:
        self.config, self.ring, self.run_directory, self.chain = config, ring, run, chain
        self.control, self.policy = control, policy
        self.total, self.burn_in = config.iterations, config.burn_in
        self.thin, self.every = config.thin, config.evaluate_every
        self._make_target = make_target
        self._hashes = {"config_hash": config.hash(), "data_hash": data_hash}
        self._made: Facts = made or {}
        self._move_start = begin
        self._earlier_hashes: Collection[str] = ()
        self.seconds_before = 0.0  # sampling time until `advance` was last called
        self._begin: float | None = None
        self._taken_up: Callable[[], None] | None = None  # records, at the next iteration, where it was resumed
        self._make()

    def _make(self) -> None:
        """Make everything that changes while the chain runs, in its state before the first iteration."""
        config = self.config
        self.sampler = config.make_sampler()
        self.target = self._make_target(self.sampler)
        draws = DrawRecorder(self.target, self.ring.rank == 0, config.save_draws)
        self.state = ChainState(self.target, self.sampler, draws, tuple(self.target.recorders()))
        go_on = self.policy.on_checkpoint_error == "continue"
        self.checkpoints = Checkpoints(
            self.ring,
            self.state,
            self.run_directory,
            self.chain,
            self._hashes,
            config.keep_checkpoints,
            self.control,
            go_on,
            self._made,
        )
        self.iteration = 0

    def _scale_step(self, scale: float) -> None:
        """Sample from here on with the configured step sizes times `scale`."""
        self.state.step_scale = scale
        self.sampler.config = self.config.make_sampler(scale).config

    # ------------------------------------------------------------------ the loop

    def start(self) -> None:
        """Set the initial state. Collective."""
        self.target.reset()
        self.sampler.start(self.target, self.config.initial_sd)
        if self._move_start is not None:
            self._move_start(self.target)

    def advance(self, goal: int, report: Report) -> Request:
        """Iterate until `goal` iterations are made, or all agree to stop. Collective.

        Returns
        -------
        Request
            The last request.

        Raises
        ------
        DivergenceError
            If the chain diverges, and ``on_divergence`` does not let it continue with smaller steps.
        WriteError
            If something cannot be written, and ``on_checkpoint_error`` does not let the chain continue without it.
        """
        self._begin = perf_counter()
        while True:
            try:
                with np.errstate(all="ignore"):  # `_check_finite` detects divergence
                    request = self._iterate_to(goal, report)
            except DivergenceError as error:
                self.checkpoints.settle()  # a checkpoint being written is of an earlier, finite state
                if self.policy.on_divergence != "halve" or self.state.step_scale <= SMALLEST_SCALE:
                    raise
                self._go_back(error)
            else:
                self.seconds_before, self._begin = self.seconds, None
                return request

    def _iterate_to(self, goal: int, report: Report) -> Request:
        if self._taken_up is not None:
            self._taken_up()
            self._taken_up = None
        request = Request.GO_ON
        every, _ = self.config.checkpoint_interval()
        while self.iteration < goal and request < Request.STOP:
            fault("iteration")
            self._iterate(self._next_stop(goal, every or goal), report)
            begin = self.ring.phases.enter()
            request, idle = self.control.ask(self.checkpoints.busy)
            self.ring.phases.leave("reduce", begin)
            if idle:
                self.checkpoints.advance()
            if request == Request.CHECKPOINT or (every and self.iteration % every == 0):
                self.save(last=request >= Request.STOP or self.iteration >= self.total)
        log.debug("chain %d: pausing at iteration %d (%s)", self.chain, self.iteration, request.name)
        self._check_finite(self.sampler.position(self.iteration - 1))
        self.checkpoints.settle()
        return request

    def finish(self) -> None:
        """Save the current state and the posterior, unless they are on disk already. Collective.

        Raises
        ------
        WriteError
            If it cannot be written.
        """
        if self.iteration != self.checkpoints.newest:
            self.checkpoints.save(self.iteration, self.seconds, last=True)
            self.checkpoints.settle()
        self.checkpoints.save_posterior(self.iteration, self.seconds)

    def close(self) -> None:
        """End the writer's thread once it has written everything."""
        self.checkpoints.close()

    def save(self, last: bool = False) -> None:
        """Begin to write a checkpoint and its draws. Collective.

        With `last`, the state must not change before it is written, and the job fails if that fails.

        Raises
        ------
        DivergenceError
            If the state has diverged; earlier checkpoints are kept.
        """
        self._check_finite(self.sampler.position(self.iteration - 1))
        self.checkpoints.save(self.iteration, self.seconds, last)

    def resume(self, config_hashes: Collection[str] = ()) -> bool:
        """Go on from the newest complete checkpoint; False if there is none. Collective.

        Parameters
        ----------
        config_hashes : collection of str
            Hashes of this run's configuration before it was overridden.

        Raises
        ------
        InputError
            If there are checkpoints, but none can be read.
        """
        self._earlier_hashes = config_hashes
        hashes = {self._hashes["config_hash"], *config_hashes}
        data_hash = self._hashes["data_hash"]
        source = Resume(self.ring, self.state, self.run_directory, self.chain, data_hash, hashes)
        manifest = source.newest()
        if manifest is None:
            return False
        self._taken_up = partial(source.note, manifest)
        self.iteration = self.checkpoints.newest = manifest.iteration
        self.seconds_before = float(manifest.about.get("seconds", 0.0))
        if "chain.step_scale" in manifest.state:
            self._scale_step(float(manifest.state["chain.step_scale"].array()))
        return True

    def _go_back(self, error: DivergenceError) -> None:
        """Go back to the last checkpoint, or to the start, with half the step. Collective."""
        scale, diverged, seconds = self.state.step_scale / 2, self.iteration, self.seconds_before
        self.checkpoints.close()
        self._make()
        if not self.resume(self._earlier_hashes):
            self.start()
        self.seconds_before = seconds
        self._scale_step(scale)
        if self.ring.rank == 0:
            log.warning("%s. Going back to iteration %d with %g times the step", error, self.iteration, scale)
            self.run_directory.note(
                "step halved",
                chain=self.chain,
                iteration=self.iteration,
                diverged_at=diverged,
                step_scale=scale,
                error=str(error),
            )

    def followed(self) -> dict[int, Array]:
        """What is followed of every draw, (draws, m) by block here; see `Recorder.followed`."""
        return {block: values for recorder in self.state.recorders for block, values in recorder.followed().items()}

    def draw_weights(self) -> Float64:
        """(draws,) float64: weight of every draw; on process 0."""
        return np.concatenate([[], *self.state.draws.trace.get("weight", [])])

    @property
    def seconds(self) -> float:
        """Wall seconds in which this chain was sampled, all inclusive."""
        return self.seconds_before + (0.0 if self._begin is None else perf_counter() - self._begin)

    def _next_stop(self, goal: int, saving: int) -> int:
        """Next iteration at which to evaluate or save the state, or to check for requests."""
        done = self.iteration
        if not done:
            return 1
        line, draw = self.every - done % self.every, self.thin - (done - self.burn_in) % self.thin
        return min(goal, done + min(line, draw, saving - done % saving, self.target.at_once()))

    def _iterate(self, done: int, report: Report) -> None:
        """Iterate until `done` iterations are made; record the state if it is a draw or due for metrics. Collective."""
        target, sampler, first, iteration = self.target, self.sampler, self.iteration, done - 1
        self.iteration = done
        sampler.advance(target, first, done - first)
        is_draw = done > self.burn_in and (done - self.burn_in) % self.thin == 0
        is_line = done % self.every == 0 or done == 1
        if is_draw or is_line:
            position, begin = sampler.position(iteration), self.ring.phases.enter()
            self._check_finite(position)  # no draw of a diverged state is counted
            draw = self.state.draws.next(done, sampler.weight(target, iteration)) if is_draw else None
            for recorder in self.state.recorders:
                recorder.record(position, draw)
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

    def _check_finite(self, position: str) -> None:
        """Raise DivergenceError on all processes if any block of parameters is not finite or huge. Collective."""
        divergence = self.target.find_divergence(position)
        if divergence:
            remedy = f", or {named(self.sampler.remedy)}" if self.sampler.remedy else ""
            raise DivergenceError(
                f"chain {self.chain} diverged by iteration {self.iteration}: {divergence} at step size "
                f"{self.sampler.weight(self.target, self.iteration - 1):.3g}. Use a smaller {named('step_size')}"
                f"{remedy}, or {named('on_divergence')} halve; the last checkpoint is intact"
            )
