"""A job of ``dsgmcmc sample``: resolve the configuration, share the processes among chains, run, summarise."""

from __future__ import annotations

import logging
import os
import platform
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import RLock
from time import monotonic, perf_counter
from typing import Any, TypeVar

import tomli_w
from threadpoolctl import threadpool_limits

from dsgmcmc.config.chain import CHANGEABLE
from dsgmcmc.config.job import Policy
from dsgmcmc.config.layers import Layers
from dsgmcmc.config.run import ResolvedConfig
from dsgmcmc.diagnostics.accuracy import Look, look_at, next_look
from dsgmcmc.errors import (
    EXIT_DONE,
    EXIT_INTERRUPTED,
    EXIT_RESUME,
    AgreedError,
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
from dsgmcmc.runs.progress import LogErrors, Progress, logs_as_before, start_logs
from dsgmcmc.runs.recovery import fallbacks
from dsgmcmc.runs.source import RatingsSource
from dsgmcmc.runs.summary import RunTimes, saved_result, write_summary
from dsgmcmc.settings import named
from dsgmcmc.storage.facts import Facts, check_made_with, made_with
from dsgmcmc.storage.lock import Lock, is_held
from dsgmcmc.storage.manifest import read_manifest
from dsgmcmc.storage.provenance import versions
from dsgmcmc.storage.rundir import INDEX, RunDirectory
from dsgmcmc.storage.series import step_name, steps
from dsgmcmc.terminal import say
from dsgmcmc.types import Comm

T = TypeVar("T")

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
        self._request = Request.GO_ON  # the last one
        self._failure: AgreedError | DivergenceError | None = None  # what ended a chain, on all processes of its group
        self._look: Look | None = None  # the last look at all chains
        self._made, self._timed = 0, 0  # iterations, and those of them after the first sweep

    def _resolve(self) -> tuple[ResolvedConfig, list[str]]:
        return resolve(self.comm, self.source, self.run_directory, self._layers, resume=self._resume)

    def describe(self) -> int:
        """``--dry-run``: print the resolved settings, memory and messages. Collective."""
        config, _ = self._resolve()
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
            self.policy = self.policy.model_copy(update={"watchdog": 0.0})
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
        start_logs(comm.rank, self._quiet)
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
        """Sample the chains of this process's group, and write the result of all. Collective."""
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

        self._startup, self._begin = self._age(), perf_counter()
        with Progress(config.iterations, n_data / config.sweep_length, self._quiet) as progress:
            self._sample_chains(config, range(group, config.chains, groups), open_chain, control, progress)
            sampling = perf_counter() - self._begin if self._timed else 0.0
        watchdog.stop()  # other chains may take much longer
        self._share(self._failure)
        agree(comm, log_errors.check, "writing a log", WriteError)
        request = max(comm.allgather(self._request))
        agree(comm, self.run_directory.merge_metrics if self._at_root else lambda: None, "writing metrics", WriteError)
        before = saved_result(self.run_directory) if self._at_root else []
        news = self._made or before is None
        if any(comm.allgather(bool(news))):  # another group may have finished its chains before
            counts = (self._made, self._timed) if ring.rank == 0 else (0, 0)
            measured = config, ring.phases, n_data, RunTimes(self._startup, sampling, *counts)
            self.result = write_summary(comm, self.source, *measured, self.run_directory, library_of(comm), self._look)
        else:
            self.result = before or []
        if request == Request.INTERRUPT:
            return EXIT_INTERRUPTED
        return EXIT_RESUME if request == Request.STOP else EXIT_DONE

    # ------------------------------------------------------------------ the loop over chains

    @property
    def _stopped(self) -> bool:
        """Whether sampling stops, though chains may not have ended."""
        return self._failure is not None or self._request >= Request.STOP

    def _sample_chains(
        self,
        config: ResolvedConfig,
        numbers: Sequence[int],
        open_chain: Callable[[int], Chain],
        control: Control,
        progress: Progress,
    ) -> None:
        """Sample the chains of this group: one after another, or in turns where they end together. Collective."""
        for batch in [list(numbers)] if config.until else [[number] for number in numbers]:
            chains: list[Chain] = []
            for number in batch:
                chain = self._attempt(control, partial(open_chain, number))
                if chain is not None:
                    chains.append(chain)
                    control.chains = len(chains)
            try:
                self._iterate(config, chains, control, progress)
                for chain in chains:
                    if chain.iteration:
                        self._attempt(control, chain.finish)
            finally:
                for chain in chains:
                    chain.close()
            if self._stopped:
                return

    def _iterate(self, config: ResolvedConfig, chains: list[Chain], control: Control, progress: Progress) -> None:
        """Sample chains to their end, or to one look at their accuracy after the other until they have reached it.

        A chain that fails leaves the list: it is neither evaluated nor saved.
        """
        goal = config.iterations
        if config.until:
            made = self.comm.allgather(max((chain.iteration for chain in chains), default=0))
            goal = next_look(max(made), config.burn_in, config.sweep_length)
        while True:
            for chain in list(chains):
                ahead = min(goal, config.iterations)
                if chain.iteration >= ahead or self._stopped:
                    continue
                if not self._attempt(control, partial(self._advance, chain, ahead, progress)):
                    chains.remove(chain)
                    chain.close()
            if not config.until:
                return
            control.meet(self.comm)
            if any(self.comm.allgather(self._stopped)):
                return
            self._look = self._look_at(config, chains)
            progress.look = self._look.against(config.wanted)
            if self._look.reached or self._look.iteration >= config.iterations:
                return
            goal = next_look(goal + 1, config.burn_in, config.sweep_length)

    def _advance(self, chain: Chain, goal: int, progress: Progress) -> bool:
        """Sample a chain up to a goal, or until the job is stopped.

        In the first sweep of a job kernels are compiled, or loaded: the clock starts after it.
        """
        if not self._made:
            self._note_job()
            first = min(goal, chain.iteration + chain.config.sweep_length)
            self._request = chain.advance(first, progress, timed=False)
            self._made = chain.made
            self._startup, self._begin = self._age(), perf_counter()
            chain.ring.phases.clear()
        before = chain.made
        if not self._stopped:
            self._request = chain.advance(goal, progress)
        self._made += chain.made - before
        self._timed += chain.made - before
        return True

    def _attempt(self, control: Control, work: Callable[[], T]) -> T | None:
        """Do something with a chain, and keep its error for the end of the job: other groups continue."""
        result = None
        try:
            result = work()
        except (AgreedError, DivergenceError) as error:
            self._failure = self._failure or error
        control.finish()  # not after other errors: this process ends the job, and the others wait for it
        return result

    def _look_at(self, config: ResolvedConfig, chains: Sequence[Chain]) -> Look:
        """Measure the accuracy of all chains on process 0, for all. Collective."""
        followed = {(chain.chain, block): parts for chain in chains for block, parts in chain.followed().items()}
        draws = {chain.chain: (chain.iteration, chain.draw_weights()) for chain in chains if chain.ring.rank == 0}
        everything = self.comm.gather((followed, draws))
        look: Look = self.comm.bcast(None if everything is None else look_at(config, everything))
        return look

    def _note_job(self) -> None:
        """Record the command of this job, now that it samples; a job with nothing to do leaves the run unchanged."""
        if self._at_root and self._command:
            self.run_directory.note_job(self._command, self.comm.size)

    def _share(self, failure: AgreedError | DivergenceError | None) -> None:
        """Raise on all processes the errors that ended any chain. Collective."""
        failures = [each for each in self.comm.allgather(failure) if each]
        if failures:
            raise type(failures[0])("; ".join(dict.fromkeys(map(str, failures))))


# ---------------------------------------------------------------------- the configuration


def resolve(
    comm: Comm, source: RatingsSource, run: RunDirectory, layers: Layers, *, resume: bool
) -> tuple[ResolvedConfig, list[str]]:
    """Resolve the configuration on process 0, for all. Collective.

    Parameters
    ----------
    comm : MPI.Comm
        All processes of the job.
    source : RatingsSource
        What is sampled.
    run : RunDirectory
        Run directory; if the run is resumed, its settings are the defaults.
    layers : Layers
        Where the settings come from.
    resume : bool
        Whether to continue the run in `run`.

    Returns
    -------
    config : ResolvedConfig
    given : list of str
        Settings of the sampler that the user named when the run was started, in order.

    Raises
    ------
    AgreedError
        On all processes, if settings, source or run directory are wrong.
    """

    def work() -> tuple[dict[str, Any], list[str]]:
        if comm.rank != 0:
            return {}, []
        saved = _saved_settings(run, source, resume)
        asked = source.build(saved, *layers.read())
        processes = -(-comm.size // min(comm.size, asked.chains))
        config = asked.resolved(processes, source.finest_grid())
        source.check(config, processes)
        if config.first_draw > config.iterations:
            log.warning(
                "the run ends at iteration %s, before its first draw at %s (after a burn-in of %s): it will predict "
                "nothing; ask for more --iterations or a shorter --burn-in",
                *(f"{number:,}" for number in (config.iterations, config.first_draw, config.burn_in)),
            )
        if saved:
            _refuse_changes(ResolvedConfig.of(saved), config, run)
        else:
            _check_disk(run, source.costs(config, comm.size))
        given = run.read_settings()[1].get("given_of_sampler", []) if saved else sorted(layers.of_sampler())
        return config.model_dump(), given

    settings, given = comm.bcast(agree(comm, work))
    return ResolvedConfig.of(settings), given


def _saved_settings(run: RunDirectory, source: RatingsSource, resume: bool) -> dict[str, Any]:
    """Return the settings of the run that is resumed; none for a new run, which needs an empty directory."""
    if resume and run.settings_file.exists():
        before, facts = ResolvedConfig.of_run(run)
        if facts.get("data_hash") != source.digest():
            raise InputError(
                f"{run.path} was sampled from other data than {source.path}, and a run cannot change its data: start "
                f"another run with another {named('out')}"
            )
        _check_facts(run, facts)
        return before.table()
    refuse_taken(run, resume)
    return {}


def refuse_taken(run: RunDirectory, resume: bool) -> None:
    """Refuse a directory in which no run can be started, or resumed."""
    if run.path.exists() and not run.path.is_dir():
        raise InputError(f"{run.path} is a file: {named('out')} names the run's directory, which sample makes")
    if not resume and run.path.is_dir() and any(run.path.iterdir()):
        raise InputError(f"{run.path} is not empty: give {named('resume')} to go on with it, or another {named('out')}")


def _check_facts(run: RunDirectory, facts: Facts) -> None:
    """Refuse a ``run.toml`` that was changed: compare it with the first snapshot whose manifest can be read."""
    series = [run.series("checkpoints", chain) for chain in run.chains()]
    for folder in (run.path / INDEX, *(parent / step_name(n) for parent in series for n in reversed(steps(parent)))):
        try:
            manifest = read_manifest(folder)
        except InputError:
            continue
        check_made_with(manifest, facts, folder)
        return


def _check_disk(run: RunDirectory, costs: dict[str, Any]) -> None:
    """Refuse a new run that cannot fit on the disk, and warn if it may not fit, before anything is sampled."""
    folder = next(path for path in (run.path, *run.path.absolute().parents) if path.exists())
    free = shutil.disk_usage(folder).free
    if free < costs["disk_most"]:
        most, least, room = (f"{size / 1e6:,.0f} MB" for size in (costs["disk_most"], costs["disk_least"], free))
        text = f"a run of these settings leaves {least} to {most} on disk, and {folder} has {room} free: "
        fewer = f"fewer {named('save_draws')} or {named('chains')}"
        advice = f"choose another {named('out')}, or {fewer} (--dry-run shows the costs)"
        if free < costs["disk_least"]:
            raise InputError(text + advice)
        log.warning("%s%s", text, advice)


def _refuse_changes(before: ResolvedConfig, now: ResolvedConfig, run: RunDirectory) -> None:
    """Refuse settings that cannot change during a run."""
    old, new = before.model_dump(exclude=set(CHANGEABLE)), now.model_dump(exclude=set(CHANGEABLE))
    changes = [f"{name}: {old[name]} in the run, {new[name]} asked for" for name in old if old[name] != new[name]]
    if changes:
        raise InputError(
            f"{run.path} was started with other settings, which cannot change during a run:\n  "
            + "\n  ".join(changes)
            + "\nLeave them out to go on with the run's own, or start another run"
        )
