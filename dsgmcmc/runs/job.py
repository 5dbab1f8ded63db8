"""A job: all processes that sample the chains of a run together, and the result of the run.

`Job._sample` resolves the settings, locks and prepares the run directory, samples the chains and
writes the summary. The processes are divided into groups. Each group samples its chains one after
another, each to its end. In a run with a target accuracy, a group instead samples all its chains in
turn up to the next check of the accuracy. `dsgmcmc.runs.chain` has the iterations of one chain.
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from threading import RLock
from time import monotonic, perf_counter, sleep
from typing import Any, Self, TypeVar

import numpy as np
import tomli_w
from rich.filesize import decimal
from threadpoolctl import threadpool_limits

from dsgmcmc.config.chain import CHANGEABLE, section_of
from dsgmcmc.config.job import Policy
from dsgmcmc.config.run import ResolvedConfig
from dsgmcmc.diagnostics.comparison import Comparison
from dsgmcmc.diagnostics.convergence import Look, look_at, next_look
from dsgmcmc.diagnostics.summary import as_written, describe_run, read_summary, save_summary
from dsgmcmc.errors import AgreedError, DivergenceError, Exit, InputError, WriteError, failed_file
from dsgmcmc.parallel.alone import Comm
from dsgmcmc.parallel.comm import (
    agree,
    mpi_library,
    on_root,
    oversubscription,
    peak_memory,
    seconds_since_start,
)
from dsgmcmc.parallel.partition import chain_group
from dsgmcmc.parallel.ring import PHASES, Ring
from dsgmcmc.parallel.signals import Request, Signals
from dsgmcmc.parallel.watchdog import Watchdog
from dsgmcmc.runs.chain import Chain, fallbacks
from dsgmcmc.runs.control import Control
from dsgmcmc.runs.costs import Costs
from dsgmcmc.runs.progress import Progress, logs
from dsgmcmc.runs.source import RatingsSource, targets_of
from dsgmcmc.settings import named
from dsgmcmc.storage.lock import ATTEMPT_SECONDS, Lock, is_held
from dsgmcmc.storage.rundir import Facts, RunDirectory, changed_versions, made_with, now, versions
from dsgmcmc.storage.store import clean, read_manifest, step_name
from dsgmcmc.terminal import log, say

T = TypeVar("T")

WAITING_PHASES = ("exchange", "reduce", "checkpoint")  # in these, a process mostly waits for others
SLOW_FACTOR = (
    1.25  # a slow process is busy for at least this multiple of the median of the other processes,
)
SLOW_SHARE = 0.05  # and for more than this share of the sampling time above this median

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
    given : dict
        Settings that the user has given.
    resume : bool, optional
        Whether to continue the run in `out`, if there is one.
    policy : Policy, optional
        Actions when time runs out or an error occurs.
    command : str, optional
        Command line of the job, for the run's log.
    quiet : bool, optional
        Whether to show neither progress nor messages.
    usual : dict, optional
        Defaults, which the user's settings override: the settings of a recommended model. Without
        them, a run whose model has yet to be chosen is refused.
    """

    comm: Comm
    source: RatingsSource
    out: Path
    given: Mapping[str, Any]
    resume: bool = False
    policy: Policy = field(default_factory=Policy)
    command: str = ""
    quiet: bool = False
    usual: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        self.run_directory = RunDirectory(self.out)
        self._at_root = self.comm.rank == 0
        self._signals, self._since_start = Signals(), seconds_since_start
        self._lock = Lock(self.run_directory.lock_file)
        #: Lines that tell the user the result at the end; used only on process 0.
        self.result: list[str] = []
        self._request = Request.GO_ON  # the last request
        self._failure: AgreedError | DivergenceError | None = (
            None  # first error of a chain, equal in its group
        )
        self._log_error: OSError | None = None  # first error in writing a log of the run
        self._look: Look | None = None  # the last check of the accuracy of all chains
        self._sampled, self._timed = (
            0,
            0,
        )  # iterations of this group in this job: all; all except the first sweep

    def with_model(self, settings: Mapping[str, Any]) -> Self:
        """Return a job that makes or resumes the same run, with a model's settings as defaults."""
        return replace(self, resume=True, usual=settings)

    def describe(self) -> int:
        """Print the resolved settings, and the costs in memory, disk and messages; return exit
        status 0. Collective.
        """
        config, _ = self.resolve()
        if self._at_root:
            costs = Costs.of(config, self.source.ratings, self.comm.size)._asdict()
            lines = [
                f"{name} = {cost}  # {cost / 1e6:,.1f} MB"
                for name, cost in costs.items()
                if "files" not in name
            ]
            files = f"files_per_checkpoint = {costs['files_per_checkpoint']}"
            say(
                *tomli_w.dumps(config.table()).split("\n"),
                "[costs]  # bytes, and a number of files",
                *lines,
                files,
            )
        return Exit.DONE

    # ------------------------------------------------------------------ settings and directory

    def resolve(self) -> tuple[ResolvedConfig, list[str]]:
        """Resolve the configuration on process 0, and return it on all processes. Collective.

        A resumed run has its earlier settings as defaults.

        Returns
        -------
        config : ResolvedConfig
            The configuration.
        given_names : list of str
            Names of the sampler settings that the user gave when the run was started, sorted.

        Raises
        ------
        AgreedError
            On all processes, if settings, ratings file or run directory are wrong.
        """
        return on_root(self.comm, self._resolve)

    def _resolve(self) -> tuple[ResolvedConfig, list[str]]:
        run, saved = self.run_directory, self._saved_settings()
        config = self.source.resolve(self.comm.size, saved, self.usual or {}, self.given)
        if saved:
            _refuse_changes(ResolvedConfig.of(saved), config, run)
        if config.first_draw > config.iterations:
            log.warning(
                "the run ends at iteration %s, before its first draw at %s (after a burn-in of %s):"
                " it cannot predict; give more --iterations or a shorter --burn-in",
                *(
                    f"{number:,}"
                    for number in (config.iterations, config.first_draw, config.burn_in)
                ),
            )
        if saved:
            return config, run.read_settings()[1].get("given_of_sampler", [])
        _check_disk(run, Costs.of(config, self.source.ratings, self.comm.size))
        return config, sorted(section_of(self.given.get("sampler") or {}))

    def _saved_settings(self) -> dict[str, Any]:
        """Check the data of a run to be resumed, and return its settings; an empty dict for a new
        run.
        """
        run = self.run_directory
        if not (self.resume and run.settings_file.exists()):
            refuse_taken(run, self.resume)
            # a job was stopped before it sampled the best of the compared models
            if self.usual is None and (run.comparison_file.exists() or run.candidates.exists()):
                raise InputError(
                    f"{run.path} was started with {named('model')}: repeat it, or change"
                    f" {named('out')}"
                )
            return {}
        config, facts = ResolvedConfig.of_run(run)
        if facts.get("data_hash") != self.source.ratings.digest:
            raise InputError(
                f"{run.path} was sampled on other data than {self.source.path}: change"
                f" {named('out')}"
            )
        run.check_index(facts)
        return config.table()

    def _claim(self) -> Request:
        """Wait for the lock of the run directory; return the request that ends the wait without it,
        if any. Collective.

        Raises
        ------
        AgreedError
            If another job uses the directory.
        """
        while not on_root(self.comm, self._lock.attempt):
            request = max(self.comm.allgather(self._signals.request))
            if request >= Request.STOP:
                self._lock.release()
                return request
            sleep(ATTEMPT_SECONDS)
        return Request.GO_ON

    @contextmanager
    def _opened(self, config: ResolvedConfig, given_names: list[str]) -> Iterator[Facts]:
        """Context in which this job, which has the lock, has written ``run.toml``; then the lock is
        free. Collective.

        Yields the facts that the run's snapshots record (`dsgmcmc.storage.rundir`).

        Raises
        ------
        AgreedError
            If a file in the run directory is invalid.
        """
        try:
            yield on_root(self.comm, partial(self._prepare, config, given_names))
        finally:
            if self._at_root:
                _stop_listening(self.run_directory)
                self._lock.release()

    def _prepare(self, config: ResolvedConfig, given_names: list[str]) -> Facts:
        """Clean the directory; write ``run.toml``, the index and starting values; return the facts
        for snapshots.
        """
        source, run = self.source, self.run_directory
        _refuse_shorter(config, run)
        run.listening_file.touch()  # tells scripts that all processes have installed their signal handlers
        clean(run.path)
        identity = {"data_hash": source.ratings.digest, "config_hash": config.hash()}
        data = source.prepare(run, config)
        began = run.read_settings()[1].get("versions") if run.settings_file.exists() else None
        if changes := changed_versions(began or {}):
            log.warning(
                "this run began with other versions (%s): draws follow the same law, but not to the"
                " last bit",
                ", ".join(f"{name} {old} -> {new}" for name, (old, new) in changes.items()),
            )
        about: Facts = {"versions": began or versions(), "given_of_sampler": given_names}
        if config.registered:
            about["registered"] = config.registered
        run.write_settings(config.table(), data | identity | about)
        return identity | made_with(data)

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
        messages = logs(self.comm.rank, self.quiet)
        if signals is not None:
            self._signals = signals
            with messages:
                status = self._sample()
            if self._at_root and not self.quiet:
                say(*self.result)
            return status
        import scipy.linalg  # noqa: F401  # loads a second BLAS, so that its threads are limited too

        begin = monotonic()
        self._since_start = lambda: monotonic() - begin
        if self.comm.size == 1:
            self.policy = self.policy.model_copy(update={"watchdog": 0.0})
        with (
            _ONE_AT_A_TIME,
            threadpool_limits(1, user_api="blas"),
            self._signals.borrowed(),
            messages,
        ):
            return self._sample()

    def _sample(self) -> int:
        comm, run = self.comm, self.run_directory
        if self._at_root and not is_held(run.lock_file):
            _stop_listening(run)  # a job that was killed left the file
        warn_of_processes(comm)
        deadline = agree(comm, partial(self.policy.deadline, self._since_start()))
        config, given_names = self.resolve()
        self._config = config
        run.on_log_error = self._stop_after_log_error
        who = f"process {comm.rank} of {comm.size} ({os.getpid()} on {platform.node()})"
        if request := self._claim():
            self.result = [
                f"{run.path}: stopped while another job uses it; continue with {named('resume')}"
            ]
            return STATUS[request]
        with (
            self._opened(config, given_names) as facts,
            Watchdog(self.policy.watchdog, who) as watchdog,
        ):
            group, groups = chain_group(comm.rank, comm.size, config.chains)
            ring = Ring(comm.Split(group, comm.rank), config.grid)
            ratings = ring.agree(lambda: self.source.ratings)
            make_target, data_per_iteration = (
                targets_of(config, ratings, ring),
                ratings.nnz / config.sweep_length,
            )
            _, seconds = config.checkpoint_interval()
            self._control = Control(ring.comm, self._signals, seconds, deadline, watchdog)

            def open_chain(number: int) -> Chain:
                start = partial(self.source.start_chain, run, facts, number)
                safer, control = fallbacks(config, given_names), self._control
                chain = Chain(
                    config,
                    make_target,
                    start,
                    ring,
                    run,
                    number,
                    facts,
                    control,
                    self.policy,
                    safer,
                )
                if not (self.resume and chain.resume()):
                    chain.start()
                return chain

            if not config.law.is_conditionally_gaussian():
                import scipy.special  # noqa: F401  # for the summary: an import after sampling might find no memory

            self._startup, self._begin = self._since_start(), perf_counter()
            with Progress(config.iterations, data_per_iteration, self.quiet) as self._progress:
                self._sample_chains(range(group, config.chains, groups), open_chain)
                sampling = perf_counter() - self._begin if self._timed else 0.0
            self._control.meet(comm)  # the chains of other groups may take much longer
            watchdog.stop()
            failures = [failure for failure in comm.allgather(self._failure) if failure]
            if failures:
                raise type(failures[0])("; ".join(dict.fromkeys(map(str, failures))))
            agree(comm, self._check_logs, "writing a log", WriteError)
            request = max(comm.allgather(self._request))
            earlier = saved_result(run, config.chains) if self._at_root else []
            if any(
                comm.allgather(self._sampled > 0 or earlier is None)
            ):  # another group may have sampled
                self.result = self._write_summary(ring, sampling)
            else:
                self.result = earlier or []
        return STATUS.get(request, Exit.DONE)

    def _stop_after_log_error(self, error: OSError) -> None:
        """Keep the first error in writing a log, and ask all processes of the chain to stop."""
        self._log_error = self._log_error or error
        self._signals.request = max(self._signals.request, Request.STOP)

    def _check_logs(self) -> None:
        if self._log_error is not None:
            advice = f"continue with {named('resume')} once this log can be written"
            raise WriteError(
                f"{failed_file(self._log_error)}; stopped after a checkpoint: {advice}"
            )

    # ------------------------------------------------------------------ the loop over chains

    @property
    def _stopped(self) -> bool:
        """Whether an error or a request stops sampling."""
        return self._failure is not None or self._request >= Request.STOP

    def _sample_chains(self, numbers: Sequence[int], open_chain: Callable[[int], Chain]) -> None:
        """Sample the chains of this group: together if the run has a target accuracy, else one by
        one. Collective.
        """
        for batch in [list(numbers)] if self._config.until else [[number] for number in numbers]:
            chains: list[Chain] = []
            for number in batch:
                chain = self._attempt(partial(open_chain, number))
                if chain is not None:
                    chains.append(chain)
                    self._control.chains = len(chains)
            try:
                self._iterate(chains)
                for chain in chains:
                    if chain.iteration:
                        self._attempt(chain.finish)
            finally:
                for chain in chains:
                    chain.close()
            if self._stopped:
                return

    def _iterate(self, chains: list[Chain]) -> None:
        """Sample chains to their end, or until the job is stopped. Collective.

        With a target accuracy, all chains go from one check to the next, until they reach it or the
        largest number of iterations. A chain that fails is removed from `chains`; it is neither
        checked nor saved.
        """
        config = self._config
        if not config.until:
            self._advance_all(chains, config.iterations)
            return
        reached = self.comm.allgather(max((chain.iteration for chain in chains), default=0))
        goal = next_look(max(reached), config.burn_in, config.sweep_length)
        while True:
            self._advance_all(chains, min(goal, config.iterations))
            self._control.meet(self.comm)
            if any(self.comm.allgather(self._stopped)):
                return
            self._look = self._look_at(chains)
            self._progress.look = self._look.against(config.accuracy_limits)
            if self._look.reached or self._look.iteration >= config.iterations:
                return
            goal = next_look(goal + 1, config.burn_in, config.sweep_length)

    def _advance_all(self, chains: list[Chain], goal: int) -> None:
        """Sample all chains up to iteration `goal`, and remove those that fail from `chains`.

        Collective.
        """
        for chain in list(chains):
            if (
                chain.iteration < goal
                and not self._stopped
                and not self._attempt(partial(self._advance, chain, goal))
            ):
                chains.remove(chain)
                chain.close()

    def _advance(self, chain: Chain, goal: int) -> bool:
        """Sample a chain up to iteration `goal`, unless the job is stopped; return True, for
        `_attempt`. Collective.

        Sampling time excludes the job's first sweep, which compiles or loads kernels.
        """
        if not self._sampled:
            if (
                self._at_root and self.command
            ):  # here, because a job with nothing to sample leaves the run unchanged
                self.run_directory.note_job(self.command, self.comm.size)
            first = min(goal, chain.iteration + chain.config.sweep_length)
            self._request = chain.advance(first, self._progress, timed=False)
            self._sampled = chain.sampled
            self._startup, self._begin = self._since_start(), perf_counter()
            chain.ring.phases.clear()
        begin = chain.sampled
        if not self._stopped:
            self._request = chain.advance(goal, self._progress)
        self._sampled += chain.sampled - begin
        self._timed += chain.sampled - begin
        return True

    def _attempt(self, work: Callable[[], T]) -> T | None:
        """Return the result of `work`, or None after an error of a chain. Collective.

        The first error is raised at the end of the job, so that other groups continue.
        """
        result = None
        try:
            result = work()
        except (AgreedError, DivergenceError) as error:
            self._failure = self._failure or error
        self._control.finish()  # not after other errors, which end the job while other processes may be waiting
        return result

    def _look_at(self, chains: Sequence[Chain]) -> Look:
        """Measure the accuracy of all chains on process 0, and return it on all processes.

        Collective.
        """
        followed = {
            (chain.chain, block): values
            for chain in chains
            for block, values in chain.followed().items()
        }
        draws = {
            chain.chain: (chain.iteration, chain.draw_weights())
            for chain in chains
            if chain.ring.rank == 0
        }
        gathered = self.comm.gather((followed, draws))
        look: Look = self.comm.bcast(None if gathered is None else look_at(self._config, gathered))
        return look

    # ------------------------------------------------------------------ summary

    def _write_summary(self, ring: Ring, sampling: float) -> list[str]:
        """Write ``summary.json`` on process 0, and return the lines that tell the user the result.

        Collective.

        `sampling` is the sampling time of this process in seconds, without the first sweep.

        Raises
        ------
        WriteError
            If the file cannot be written.
        """
        comm, run = self.comm, self.run_directory
        config = self._config
        phases = np.array(comm.allgather([ring.phases.seconds[name] for name in PHASES]))
        rss, hosts, seconds = (
            comm.allgather(peak_memory()),
            comm.allgather(platform.node()),
            comm.allgather(sampling),
        )
        # all processes of a group have made the same iterations
        iterations, timed = (
            comm.allreduce(count * (ring.rank == 0)) for count in (self._sampled, self._timed)
        )
        longest = max(seconds)

        def write() -> list[str]:
            data_per_iteration = self.source.ratings.nnz / config.sweep_length
            waited = phases[:, [PHASES.index(name) for name in WAITING_PHASES]].sum(axis=1)
            summary = {
                **self.source.results(run, config),
                "time": now(),
                "iterations": config.iterations,
                "reached": run.reached(config.chains),
                "iterations_made": iterations,
                "until": None if self._look is None else self._look._asdict(),
                "processes": comm.size,
                "grid": config.grid,
                "sampler": config.sampler.name,
                "seconds_startup": self._startup,
                "seconds_sampling": longest,
                "ratings_per_second": timed * data_per_iteration / longest if longest else 0.0,
                "phases": {
                    name: {
                        "mean": float(column.mean()),
                        "max": float(column.max()),
                        "by_process": column.tolist(),
                    }
                    for name, column in zip(PHASES, phases.T, strict=True)
                },
                "straggler": straggler((np.array(seconds) - waited).tolist(), hosts, longest),
                "events": run.events(),
                "fell_back": _fell_back(run, config),
                "peak_rss_bytes": [
                    peak_memory(),
                    *rss[1:],
                ],  # after process 0 has scored the test ratings
                "versions": {**versions(), "mpi": mpi_library()},
            }
            save_summary(run.summary_file, summary)
            return _result(summary, run.path)

        return on_root(comm, write, "writing the summary", WriteError)


# ---------------------------------------------------------------------- checks before sampling


def refuse_taken(run: RunDirectory, resume: bool) -> None:
    """Refuse a path that is a file and, for a new run, a directory that is not empty."""
    if run.path.exists() and not run.path.is_dir():
        raise InputError(
            f"{run.path} is a file: {named('out')} must name a directory; a new run creates it"
        )
    if (
        not resume
        and run.path.is_dir()
        and {path.name for path in run.path.iterdir()} - {run.lock_file.name}
    ):
        raise InputError(
            f"{run.path} is not empty: give {named('resume')} to continue it, or another"
            f" {named('out')}"
        )


def _check_disk(run: RunDirectory, costs: Costs) -> None:
    """Refuse a new run that cannot fit on the disk."""
    folder = next(path for path in (run.path, *run.path.absolute().parents) if path.exists())
    free = shutil.disk_usage(folder).free
    if free < costs.disk_least:
        smaller = f"a smaller {named('save_draws')} or {named('chains')} (--dry-run shows costs)"
        found = (
            f"at least {decimal(costs.disk_least)} on disk, but {folder} has {decimal(free)} free"
        )
        raise InputError(
            f"a run with these settings takes {found}: choose another {named('out')}, or {smaller}"
        )


def _refuse_changes(saved: ResolvedConfig, requested: ResolvedConfig, run: RunDirectory) -> None:
    """Refuse changes of settings that cannot change during a run."""
    old, new = (
        saved.model_dump(exclude=set(CHANGEABLE)),
        requested.model_dump(exclude=set(CHANGEABLE)),
    )
    if requested.chains < saved.chains:  # the draws of all chains stay
        old["chains"], new["chains"] = saved.chains, requested.chains
    changes = [
        f"{name}: {old[name]} in the run, {new[name]} requested"
        for name in old
        if old[name] != new[name]
    ]
    if changes:
        heading = f"{run.path} was started with other settings, which cannot change during a run:"
        advice = "\nLeave them out to continue with the settings of the run, or start another run"
        raise InputError("\n  ".join([heading, *changes]) + advice)


def _refuse_shorter(config: ResolvedConfig, run: RunDirectory) -> None:
    """Refuse a length that the run has passed already."""
    made = max(run.reached(config.chains))
    if config.iterations < made:
        found = (
            f"{run.path} has made {made:,} iterations, and cannot end at iteration"
            f" {config.iterations:,}"
        )
        raise InputError(f"{found}: give {named('iterations')} {made} or more, or leave it out")


def warn_of_processes(comm: Comm) -> None:
    """Warn if processes share cores, or run on different processors or versions of the software.

    Collective.
    """
    crowded = oversubscription(comm)
    all_versions = comm.gather(versions()) or []
    if crowded:
        log.warning(crowded)
    for name in all_versions[0] if all_versions else ():
        different = sorted({process[name] for process in all_versions})
        if len(different) > 1:
            text = (
                "the processes differ in %s (%s): draws are reproducible to the bit only with one"
                " %s everywhere"
            )
            log.warning(text, name, ", ".join(different), name)


def _stop_listening(run: RunDirectory) -> None:
    """Remove the file that tells scripts that a job accepts signals, if there is one."""
    with suppress(OSError):
        run.listening_file.unlink()


# ---------------------------------------------------------------------- result


def _fell_back(run: RunDirectory, config: ResolvedConfig) -> list[dict[str, Any]]:
    """List the abandoned models, each with the next model, and the restarts of chains, each with
    its sampler.
    """
    events: list[dict[str, Any]] = []
    if run.comparison_file.exists():
        comparison = Comparison.read(run.comparison_file)
        models = [*comparison.given_up, comparison.recommended]
        events += [{"model": model, "next": following} for model, following in pairwise(models)]
    samplers = fallbacks(config, run.read_settings()[1].get("given_of_sampler", []))
    for chain, reached in enumerate(run.reached(config.chains)):
        folder = run.series("checkpoints", chain) / step_name(reached)
        diverged = read_manifest(folder).diverged if folder.is_dir() else ()
        restarts = zip(diverged, samplers, strict=False)
        events += [
            {"chain": chain, "iteration": at, "next": sampler.name} for at, sampler in restarts
        ]
    return events


def straggler(busy: list[float], hosts: list[str], sampling: float) -> dict[str, Any] | None:
    """Describe the slowest process if it is much slower than the other processes; else return None.

    Parameters
    ----------
    busy : list of float
        Seconds during which each process was not waiting.
    hosts : list of str
        Host of each process.
    sampling : float
        Seconds of sampling.

    Returns
    -------
    dict or None
        ``process``, ``host``, ``busy_seconds`` and ``others_seconds`` (median of the other
        processes).
    """
    if len(busy) < 2:
        return None
    slowest = int(np.argmax(busy))
    typical = median(busy[:slowest] + busy[slowest + 1 :])
    if busy[slowest] < SLOW_FACTOR * typical or busy[slowest] - typical <= SLOW_SHARE * sampling:
        return None
    return {
        "process": slowest,
        "host": hosts[slowest],
        "busy_seconds": busy[slowest],
        "others_seconds": typical,
    }


def saved_result(run: RunDirectory, chains: int) -> list[str] | None:
    """Return the lines that tell the user the result of a finished run; None without a summary of
    its last state.
    """
    with suppress(FileNotFoundError, InputError), as_written(run.summary_file):
        summary = read_summary(run.summary_file)
        if summary["reached"] == run.reached(chains):
            first, *others = _result(summary, run.path)
            return [f"finished before: {first}", *others]
    return None


def _result(summary: dict[str, Any], path: Path) -> list[str]:
    """Return the lines that tell the user the result."""
    first, *others = describe_run(summary).lines()
    return [f"{path}: {first}", *(f"  {line}" for line in others)]
