"""A job: all processes that sample the chains of a run together.

A job resolves the settings, opens the run directory (`dsgmcmc.runs.opening`), samples the chains
and writes the summary (`dsgmcmc.runs.result`). The processes are divided into groups, each of which
samples some of the chains (`dsgmcmc.runs.group`).
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import RLock
from time import monotonic
from typing import Any, Self

import tomli_w
from threadpoolctl import threadpool_limits

from dsgmcmc.config.chain import AUTO
from dsgmcmc.config.job import Policy
from dsgmcmc.config.run import ResolvedConfig
from dsgmcmc.errors import Exit, WriteError, failed_file
from dsgmcmc.parallel.alone import Comm
from dsgmcmc.parallel.comm import agree, on_root, oversubscription
from dsgmcmc.parallel.machine import seconds_since_start
from dsgmcmc.parallel.partition import chain_group
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.parallel.signals import Request, Signals
from dsgmcmc.parallel.watchdog import Watchdog
from dsgmcmc.runs.chain import Chain, fallbacks
from dsgmcmc.runs.control import Control
from dsgmcmc.runs.costs import Costs
from dsgmcmc.runs.group import ChainGroup
from dsgmcmc.runs.opening import OpenRun, RunOpening, claim, open_run_directory, stop_listening
from dsgmcmc.runs.progress import Progress, logs
from dsgmcmc.runs.result import saved_result, write_summary
from dsgmcmc.runs.source import MakeTarget, RatingsSource, targets_of
from dsgmcmc.settings import named
from dsgmcmc.storage.lock import Lock, is_held
from dsgmcmc.storage.rundir import RunDirectory, versions
from dsgmcmc.terminal import log, say

#: Exit status of a job that a request has stopped.
STATUS = {Request.STOP: Exit.RESUME, Request.INTERRUPT: Exit.INTERRUPTED}

#: Lets only one job run at a time inside another program, because a job changes global state: the
#: logs, and the number of BLAS threads, on which the last bits of the results depend.
_ONE_AT_A_TIME = RLock()


@dataclass(eq=False)
class Job:
    """A job on all its processes: it samples one run.

    Parameters
    ----------
    comm : Comm
        All processes of the job.
    source : RatingsSource
        Ratings, and the earlier run to start from, if any.
    out : Path
        Run directory.
    settings : dict
        Settings that the user has given.
    resume : bool, optional
        Whether to continue the run in `out`, if there is one.
    policy : Policy, optional
        Actions when time runs out or an error occurs.
    command : str, optional
        Command line of the job, for the run's log.
    quiet : bool, optional
        Whether to show neither progress nor messages.
    defaults : dict, optional
        Settings of a recommended model, which the user's settings override. Without them, a run
        whose model has yet to be chosen is refused.
    """

    comm: Comm
    source: RatingsSource
    out: Path
    settings: Mapping[str, Any]
    _: KW_ONLY
    resume: bool = False
    policy: Policy = field(default_factory=Policy)
    command: str = ""
    quiet: bool = False
    defaults: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        self.run_directory = RunDirectory(self.out)
        #: Lines that tell the user the result at the end; used only on process 0.
        self.result: list[str] = []
        self._at_root = self.comm.rank == 0
        self._signals = Signals()
        self._since_start: Callable[[], float] = seconds_since_start
        self._log_error: OSError | None = None  # first error in writing a log of the run
        self._opening = RunOpening(
            self.run_directory,
            self.source,
            self.settings,
            defaults=self.defaults,
            resume=self.resume,
        )

    def with_model(self, settings: Mapping[str, Any], source: RatingsSource) -> Self:
        """Return a job that makes or resumes the same run, with a model's settings as defaults.

        `source` has the ratings in the arrangement of the model.
        """
        return replace(self, resume=True, defaults=settings, source=source)

    def resolve(self) -> tuple[ResolvedConfig, list[str]]:
        """Resolve the configuration on process 0, and return it on all processes. Collective.

        A resumed run has its earlier settings as defaults.

        Returns
        -------
        config : ResolvedConfig
            The configuration.
        given_of_sampler : list of str
            Names of the sampler settings that the user gave when the run was started, sorted.

        Raises
        ------
        AgreedError
            On all processes, if settings, ratings file or run directory are wrong.
        """
        return on_root(self.comm, partial(self._opening.resolve, self.comm.size))

    def describe(self) -> int:
        """Print the settings, and the costs in memory, disk and messages; return 0. Collective."""
        config, given_of_sampler = self.resolve()
        if self._at_root:
            asked = []
            if "name" not in given_of_sampler:
                asked = [f"# {named('sampler')} {AUTO} has chosen {config.sampler.name}", ""]
            costs = Costs.estimate(config, self.source.ratings, self.comm.size)._asdict()
            files = costs.pop("files_per_checkpoint")
            say(
                *tomli_w.dumps(config.table()).split("\n"),
                *asked,
                "[costs]  # bytes, and a number of files",
                *(f"{name} = {cost}  # {cost / 1e6:,.1f} MB" for name, cost in costs.items()),
                f"files_per_checkpoint = {files}",
            )
        return Exit.DONE

    # ------------------------------------------------------------------ running

    def run(self, signals: Signals | None = None) -> int:
        """Sample, and print the result. Collective.

        Parameters
        ----------
        signals : Signals, optional
            Handlers that the program has installed. If None, the job runs inside another program:
            it prints no result, and at the end it restores signal handlers, logs and the number of
            BLAS threads. A single process then has no watchdog, because it waits for no other
            process.

        Returns
        -------
        int
            Exit status: 0, or the status that says why the job stopped.
        """
        if signals is None:
            return self._run_as_guest()
        self._signals = signals
        with logs(self.comm.rank, self.quiet):
            status = self._sample()
        if self._at_root and not self.quiet:
            say(*self.result)
        return status

    def _run_as_guest(self) -> int:
        """Run inside another program, as `run` does without `signals`."""
        import scipy.linalg  # noqa: F401  # loads a second BLAS, so that its threads are limited too

        begin = monotonic()
        self._since_start = lambda: monotonic() - begin
        if self.comm.size == 1:
            self.policy = self.policy.model_copy(update={"watchdog": 0.0})
        with (
            _ONE_AT_A_TIME,
            threadpool_limits(1, user_api="blas"),
            self._signals.borrowed(),
            logs(self.comm.rank, self.quiet),
        ):
            return self._sample()

    def _sample(self) -> int:
        """Open the run directory, sample the chains and write the summary. Collective."""
        comm = self.comm
        run = self.run_directory
        if self._at_root and not is_held(run.lock_file):
            stop_listening(run)  # a job that was killed left the file
        warn_of_processes(comm)
        deadline = agree(comm, partial(self.policy.deadline, self._since_start()))
        config, given_of_sampler = self.resolve()
        run.on_log_error = self._stop_after_log_error
        lock = Lock(run.lock_file)
        request = claim(comm, lock, self._signals)
        if request:
            self.result = [
                f"{run.path}: stopped while another job uses it; continue with {named('resume')}"
            ]
            return STATUS[request]
        process = f"process {comm.rank} of {comm.size} ({os.getpid()} on {platform.node()})"
        with (
            open_run_directory(
                comm, lock, self._opening, config=config, given_of_sampler=given_of_sampler
            ) as opened,
            Watchdog(self.policy.watchdog, process) as watchdog,
        ):
            group = self._sample_chains(opened, deadline, watchdog)
            watchdog.stop()
            request = self._agree_on_request(group)
            self._summarise(group)
        return STATUS.get(request, Exit.DONE)

    # ------------------------------------------------------------------ sampling

    def _sample_chains(
        self, opened: OpenRun, deadline: float | None, watchdog: Watchdog
    ) -> ChainGroup:
        """Sample the chains of this process's group, and wait for the other groups. Collective."""
        comm = self.comm
        config = opened.config
        first_chain, groups = chain_group(comm.rank, comm.size, config.chains)
        ring = Ring(comm.Split(first_chain, comm.rank), config.grid)
        ratings = ring.agree(lambda: self.source.ratings)
        make_target = targets_of(config, ratings, ring)
        _, checkpoint_seconds = config.checkpoint_interval()
        control = Control(ring.comm, self._signals, checkpoint_seconds, deadline, watchdog)
        if not config.law.is_conditionally_gaussian():
            import scipy.special  # noqa: F401  # for the summary: later there may be no memory for it

        group = ChainGroup(
            comm=comm,
            config=config,
            ring=ring,
            control=control,
            open_chain=partial(
                self._open_chain, opened=opened, make_target=make_target, ring=ring, control=control
            ),
            since_start=self._since_start,
            on_first_iteration=self._note_job,
        )
        data_per_iteration = ratings.nnz / config.sweep_length
        with Progress(config.iterations, data_per_iteration, self.quiet) as progress:
            group.sample(range(first_chain, config.chains, groups), progress)
        control.meet(comm)  # the chains of other groups may take much longer
        return group

    def _open_chain(
        self, number: int, *, opened: OpenRun, make_target: MakeTarget, ring: Ring, control: Control
    ) -> Chain:
        """Make a chain in its initial state, or in that of its newest checkpoint. Collective."""
        config, given_of_sampler, facts = opened
        chain = Chain(
            config=config,
            make_target=make_target,
            move_to_start=partial(self.source.start_chain, self.run_directory, facts, number),
            ring=ring,
            run_directory=self.run_directory,
            chain=number,
            facts=facts,
            control=control,
            policy=self.policy,
            fallbacks=fallbacks(config, given_of_sampler),
            may_halve_step="step_size" not in given_of_sampler,
        )
        resumed = self.resume and chain.resume()
        if not resumed:
            chain.start()
        return chain

    def _note_job(self) -> None:
        """Log the command; not for a job with nothing to sample, which leaves the run unchanged."""
        if self._at_root and self.command:
            self.run_directory.note_job(self.command, self.comm.size)

    def _stop_after_log_error(self, error: OSError) -> None:
        """Keep the first error in writing a log, and ask all processes of the chain to stop."""
        self._log_error = self._log_error or error
        self._signals.request = max(self._signals.request, Request.STOP)

    # ------------------------------------------------------------------ ending

    def _agree_on_request(self, group: ChainGroup) -> Request:
        """Return the largest request that has stopped a group, or raise its error. Collective.

        Raises
        ------
        AgreedError, DivergenceError
            The errors of all groups, joined in one message.
        WriteError
            If a log could not be written.
        """
        failures = [failure for failure in self.comm.allgather(group.failure) if failure]
        if failures:
            raise type(failures[0])("; ".join(dict.fromkeys(map(str, failures))))
        agree(self.comm, self._check_logs, "writing a log", WriteError)
        return max(self.comm.allgather(group.request))

    def _check_logs(self) -> None:
        if self._log_error is not None:
            advice = f"continue with {named('resume')} once this log can be written"
            raise WriteError(
                f"{failed_file(self._log_error)}; stopped after a checkpoint: {advice}"
            )

    def _summarise(self, group: ChainGroup) -> None:
        """Set `result`, from the summary of an earlier job if no group has sampled. Collective."""
        earlier: list[str] | None = []
        if self._at_root:
            earlier = saved_result(self.run_directory, group.config.chains)
        is_needed = group.sampled > 0 or earlier is None
        if any(self.comm.allgather(is_needed)):
            self.result = self._write_summary(group)
        else:
            self.result = earlier or []

    def _write_summary(self, group: ChainGroup) -> list[str]:
        """Write ``summary.json``; return the lines that tell the user the result. Collective."""
        return write_summary(self.comm, self.source, self.run_directory, group)


def warn_of_processes(comm: Comm) -> None:
    """Warn if processes share cores, or run on different processors or versions of the software.

    Collective.
    """
    crowded = oversubscription(comm)
    all_versions = comm.gather(versions())
    if crowded:
        log.warning(crowded)
    if not all_versions:
        return
    for name in all_versions[0]:
        different = sorted({process[name] for process in all_versions})
        if len(different) > 1:
            log.warning(
                "the processes differ in %s (%s): draws are reproducible to the bit only with one"
                " %s everywhere",
                name,
                ", ".join(different),
                name,
            )
