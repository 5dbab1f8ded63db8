"""A job of ``dsgmcmc sample``: resolve the configuration, share the processes among chains, run, summarise."""

from __future__ import annotations

import logging
import os
import platform
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import RLock
from time import monotonic

import tomli_w
from threadpoolctl import threadpool_limits

from dsgmcmc.config.job import Policy
from dsgmcmc.config.layers import Layers
from dsgmcmc.config.run import ResolvedConfig
from dsgmcmc.errors import (
    EXIT_DONE,
    EXIT_INTERRUPTED,
    EXIT_RESUME,
    DivergenceError,
    InputError,
    StoppedError,
    WriteError,
)
from dsgmcmc.parallel.comm import Alone, agree, library_of, oversubscription
from dsgmcmc.parallel.machine import cpu_name, seconds_since_start
from dsgmcmc.parallel.partition import chain_group
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.parallel.signals import Request, Signals, installed
from dsgmcmc.parallel.watchdog import Watchdog
from dsgmcmc.runs.chain import Chain
from dsgmcmc.runs.control import Control
from dsgmcmc.runs.logs import LogErrors, logs_as_before, start_logs
from dsgmcmc.runs.progress import Progress
from dsgmcmc.runs.recovery import fallbacks
from dsgmcmc.runs.resolve import Resolution, resolve
from dsgmcmc.runs.scheduler import ChainScheduler
from dsgmcmc.runs.source import RatingsSource
from dsgmcmc.runs.summary import RunTimes, saved_result, write_summary
from dsgmcmc.runs.until import Limit, Until
from dsgmcmc.settings import named
from dsgmcmc.storage.facts import Facts, made_with
from dsgmcmc.storage.lock import Lock, is_held
from dsgmcmc.storage.provenance import versions
from dsgmcmc.storage.rundir import RunDirectory
from dsgmcmc.terminal import say
from dsgmcmc.types import Comm

log = logging.getLogger(__name__)

#: Jobs inside another program change what all its threads share: its logs, and the number of threads of BLAS, on which
#: the last bits of results depend.
_ONE_AT_A_TIME = RLock()


class Job:
    """All processes of one run.

    Parameters
    ----------
    comm : Comm
        All processes.
    source : RatingsSource
        What is sampled.
    out : Path
        Run directory.
    layers : Layers
        Where the settings come from.
    resume : bool, optional
        Whether to continue the run in `out`.
    policy : Policy, optional
        What to do when time runs out or something goes wrong.
    command : str, optional
        The command that started it, which the run records.
    quiet : bool, optional
        Whether to show neither progress nor messages.
    """

    def __init__(
        self,
        comm: Comm,
        source: RatingsSource,
        out: Path,
        layers: Layers,
        resume: bool = False,
        policy: Policy | None = None,
        command: str = "",
        quiet: bool = False,
    ) -> None:
        self.comm, self.source, self.run_directory = comm, source, RunDirectory(out)
        self.policy = policy or Policy()
        self._layers, self._resume, self._command, self._quiet = layers, resume, command, quiet
        self._at_root = comm.rank == 0
        self._signals, self._age = Signals(), seconds_since_start
        self._lock = Lock(self.run_directory.lock_file)
        #: Lines for the user at the end; on process 0.
        self.result: list[str] = []

    def _resolve(self) -> Resolution:
        """Resolve the configuration; see `dsgmcmc.runs.resolve`. Collective."""
        return resolve(self.comm, self.source, self.run_directory, self._layers, resume=self._resume)

    def describe(self) -> int:
        """``--dry-run``: print the resolved settings, memory and messages. Collective."""
        config = self._resolve().config
        if self._at_root:
            costs = self.source.costs(config, self.comm.size)
            numbers = ("messages_per_sweep", "files_per_checkpoint")
            said = {name: "" if name in numbers else f"  # {cost / 1e6:,.1f} MB" for name, cost in costs.items()}
            lines = [f"{name} = {cost}{said[name]}" for name, cost in costs.items()]
            say(
                *tomli_w.dumps(config.table()).split("\n"),
                "[costs]  # bytes, and numbers of messages and files",
                *lines,
            )
        return EXIT_DONE

    # ------------------------------------------------------------------ running

    def run(self, signals: Signals | None = None) -> int:
        """Sample, and print the result, in processes started for this job. Collective.

        Parameters
        ----------
        signals : Signals, optional
            Of a program with several jobs, which has installed them.

        Returns
        -------
        int
            Exit status.
        """
        self._signals = installed() if signals is None else signals
        status = self._sample()
        if not self._quiet:
            self.say_result()
        return status

    def run_inside(self) -> None:
        """Sample in the caller's processes, and leave them as they were. Collective.

        Signal handlers, logs and the threads of BLAS are restored. A single process is never ended by the watchdog:
        it waits for no other one.

        Raises
        ------
        StoppedError
            If the job was stopped, and the signal that stopped it raised no exception.
        """
        import scipy.linalg  # noqa: F401  # has a BLAS of its own, whose threads are limited, too

        begin = monotonic()
        self._age = lambda: monotonic() - begin
        if self.comm.size == 1:
            self.policy = replace(self.policy, watchdog=0)
        with _ONE_AT_A_TIME, logs_as_before(), threadpool_limits(1, user_api="blas"), self._signals.borrowed():
            status = self._sample()
        if status != EXIT_DONE:
            raise StoppedError(f"stopped before its end, at a checkpoint: go on with {named('resume')}")

    def say_result(self) -> None:
        """Print the result."""
        if self.result:
            say(*self.result)

    def _sample(self) -> int:
        comm, policy, signals = self.comm, self.policy, self._signals
        if self._at_root and not is_held(self.run_directory.lock_file):
            self._stop_listening()  # a job that was killed left it
        start_logs(comm.rank, policy.log_level, self._quiet)
        crowded = oversubscription(comm)
        processors = sorted(set(comm.allgather(cpu_name())))
        if self._at_root and crowded:
            log.warning(crowded)
        if self._at_root and len(processors) > 1:
            log.warning(
                "the processes run on different processors (%s): only the same ones will give the same bits again",
                ", ".join(processors),
            )
        deadline = agree(comm, partial(policy.deadline, self._age()))
        config, given = self._resolve()
        log.debug("process %d of %d is %d on %s", comm.rank, comm.size, os.getpid(), platform.node())
        begin = partial(self._open, config, given) if self._at_root else dict
        made = comm.bcast(agree(comm, begin))
        who = f"process {comm.rank} of {comm.size} ({os.getpid()} on {platform.node()})"
        log_errors = self.run_directory.on_log_error = LogErrors(signals)
        try:
            with Watchdog(policy.watchdog, who) as watchdog:
                return self._run(config, given, deadline, watchdog, made, log_errors)
        finally:
            if self._at_root:
                self._stop_listening()
                self._lock.release()

    def _stop_listening(self) -> None:
        with suppress(OSError):
            self.run_directory.listening_file.unlink()

    def _open(self, config: ResolvedConfig, given: list[str]) -> Facts:
        """Create and lock the run directory, and write the settings; on process 0.

        Returns the facts that its snapshots record (`dsgmcmc.storage.facts`).
        """
        self.run_directory.path.mkdir(parents=True, exist_ok=True)
        self._lock.acquire()
        try:
            self.run_directory.listening_file.touch()  # all processes have come so far, and set their handlers before
            return self._prepare(config, given)
        except BaseException:
            self._stop_listening()
            self._lock.release()
            raise

    def _prepare(self, config: ResolvedConfig, given: list[str]) -> Facts:
        """Do the work of `_open` once the directory is locked."""
        run = self.run_directory
        run.refuse_links()
        run.remove_left()
        run.mend_logs()
        run.split_metrics()
        facts = {
            "data_hash": self.source.digest(),
            "config_hash": config.hash(),
            "versions": versions(),
            "given_of_sampler": given,
        }
        data = self.source.prepare(run, config, Alone())
        run.write_settings(config.table(), data | facts)
        return made_with(data)

    def _run(
        self,
        config: ResolvedConfig,
        given: list[str],
        deadline: float | None,
        watchdog: Watchdog,
        made: Facts,
        log_errors: LogErrors,
    ) -> int:
        comm = self.comm
        group, groups = chain_group(comm.rank, comm.size, config.chains)
        mine = comm.Split(group, comm.rank)
        ring = Ring(mine, config.grid)
        make_target, n_data = self.source.open(config, ring)
        data_hash = comm.bcast(agree(comm, self.source.digest if self._at_root else str))
        _, seconds = config.checkpoint_interval()
        control = Control(mine, self._signals, seconds, deadline, watchdog)

        def open_chain(number: int) -> Chain:
            run, begin = self.run_directory, partial(self.source.begin, self.run_directory, made, number)
            chain = Chain(
                config,
                make_target,
                ring,
                run,
                number,
                data_hash,
                control,
                self.policy,
                made,
                begin,
                fallbacks(config, given),
            )
            if not (self._resume and chain.resume()):
                chain.start()
            return chain

        with Progress(config.iterations, n_data / config.sweep_length, self._quiet) as progress:
            end = Until(config, comm, control, progress) if config.until else Limit(config.iterations)
            scheduler = ChainScheduler(
                open_chain, range(group, config.chains, groups), end, control, progress, self._note_job, self._age
            )
            scheduler.run()
            sampling = scheduler.seconds
        watchdog.stop()  # other chains may take much longer
        self._share(scheduler.failure)
        agree(comm, log_errors.check, "writing a log", WriteError)
        request = max(comm.allgather(scheduler.request))
        agree(comm, self.run_directory.merge_metrics if self._at_root else lambda: None, "writing metrics", WriteError)
        before = saved_result(self.run_directory) if self._at_root else []
        news = scheduler.made[0] or before is None
        if any(comm.allgather(bool(news))):  # another group may have finished its chains before
            times = RunTimes(scheduler.startup, sampling, *(scheduler.made if ring.rank == 0 else (0, 0)))
            measured = config, ring.phases, n_data, times
            self.result = write_summary(comm, self.source, *measured, self.run_directory, library_of(comm), end.look)
        else:
            self.result = before or []
        if request == Request.INTERRUPT:
            return EXIT_INTERRUPTED
        return EXIT_RESUME if request == Request.STOP else EXIT_DONE

    def _note_job(self) -> None:
        """Record the command of this job, now that it samples; a job with nothing to do leaves the run unchanged."""
        if self._at_root and self._command:
            self.run_directory.note_job(self._command, self.comm.size)

    def _share(self, failure: InputError | DivergenceError | None) -> None:
        """Raise on all processes the errors that ended any chain. Collective."""
        failures = [each for each in self.comm.allgather(failure) if each]
        if failures:
            raise type(failures[0])("; ".join(dict.fromkeys(map(str, failures))))
