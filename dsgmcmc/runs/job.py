"""A job of ``dsgmcmc sample``: resolve the configuration, share the processes among chains, run, summarise."""

from __future__ import annotations

import logging
import os
from functools import partial
from pathlib import Path
from typing import Any

import tomli_w
from mpi4py import MPI

from dsgmcmc.config.chain import ResolvedChain
from dsgmcmc.config.job import Policy
from dsgmcmc.config.layers import Layers
from dsgmcmc.errors import (
    EXIT_DONE,
    EXIT_INTERRUPTED,
    EXIT_RESUME,
    DivergenceError,
    InputError,
    WriteError,
)
from dsgmcmc.parallel.agreement import agree
from dsgmcmc.parallel.launch import oversubscription
from dsgmcmc.parallel.machine import cpu_name, seconds_since_start
from dsgmcmc.parallel.partition import chain_group
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.parallel.signals import Request, Signals, installed
from dsgmcmc.parallel.streams import also_in
from dsgmcmc.parallel.watchdog import Watchdog
from dsgmcmc.posterior.extras import lacking
from dsgmcmc.runs.chain import Chain
from dsgmcmc.runs.control import Control
from dsgmcmc.runs.logs import LogErrors, start_logs
from dsgmcmc.runs.progress import Progress
from dsgmcmc.runs.rehearsal import rehearse
from dsgmcmc.runs.resolve import Changes, Resolution, resolve
from dsgmcmc.runs.scheduler import ChainScheduler
from dsgmcmc.runs.sources.base import Source
from dsgmcmc.runs.summary import Times, saved_result, write_summary
from dsgmcmc.runs.until import Limit, Until
from dsgmcmc.storage.facts import Facts, made_with
from dsgmcmc.storage.lock import Lock
from dsgmcmc.storage.provenance import versions
from dsgmcmc.storage.rundir import RunDirectory
from dsgmcmc.terminal import say

WORTH_SAYING = 1.0  # seconds of compiling or loading kernels

log = logging.getLogger(__name__)


class Job:
    """All processes of one run.

    Parameters
    ----------
    comm : MPI.Comm
        All processes.
    source : Source
        What is sampled.
    out : Path
        Run directory.
    layers : Layers
        Where its settings were given.
    resume : bool, optional
        Whether to go on with what is in `out`.
    policy : Policy, optional
        What to do when time runs out or something goes wrong.
    command : str, optional
        What it was started with; the run keeps it for people.
    """

    def __init__(
        self,
        comm: MPI.Comm,
        source: Source[Any],
        out: Path,
        layers: Layers,
        resume: bool = False,
        policy: Policy | None = None,
        command: str = "",
    ) -> None:
        self.comm, self.source, self.run_directory = comm, source, RunDirectory(out)
        self.policy = policy or Policy()
        self._layers, self._resume, self._command = layers, resume, command
        self._at_root = comm.rank == 0
        self._lock = Lock(self.run_directory.lock_file)

    def _resolve(self) -> Resolution:
        """Resolve the configuration; see `dsgmcmc.runs.resolve`. Collective."""
        override = self.policy.override
        return resolve(self.comm, self.source, self.run_directory, self._layers, resume=self._resume, override=override)

    def describe(self) -> int:
        """``--dry-run``: print the resolved settings, memory and messages. Collective."""
        config = self._resolve().config
        if self._at_root:
            costs = self.source.costs(config, self.comm.size)
            lines = [f"{name} = {size}  # {size / 1e6:,.1f} MB" for name, size in costs.items()]
            say(*tomli_w.dumps(config.table()).split("\n"), "[costs]  # in bytes", *lines)
        return EXIT_DONE

    # ------------------------------------------------------------------ running

    def run(self) -> int:
        """Sample. Collective.

        Returns
        -------
        int
            Exit status.
        """
        signals = installed()
        comm, policy = self.comm, self.policy
        start = partial(start_logs, comm.rank, policy.log_level, policy.log_dir)
        agree(comm, start, "opening the log", WriteError)
        crowded = oversubscription(comm)
        processors = sorted(set(comm.allgather(cpu_name())))
        if self._at_root and crowded:
            log.warning(crowded)
        if self._at_root and (wanting := lacking()):
            log.info("afterwards %s", wanting)
        if self._at_root and len(processors) > 1:
            log.warning(
                "the processes run on different processors (%s): only these give the same bits again",
                ", ".join(processors),
            )
        deadline = agree(comm, partial(policy.deadline, seconds_since_start()))
        config, overridden = self._resolve()
        log.debug("process %d of %d is %d on %s", comm.rank, comm.size, os.getpid(), MPI.Get_processor_name())
        begin = partial(self._open, config, overridden) if self._at_root else tuple
        earlier, made = comm.bcast(agree(comm, begin))
        who = f"process {comm.rank} of {comm.size} ({os.getpid()} on {MPI.Get_processor_name()})"
        log_errors = self.run_directory.on_log_error = LogErrors(signals, policy.on_checkpoint_error == "continue")
        try:
            with Watchdog(policy.watchdog, who) as watchdog:
                return self._run(config, signals, deadline, watchdog, earlier, made, log_errors)
        finally:
            if self._at_root:
                self._lock.release()

    def _open(self, config: ResolvedChain, overridden: Changes) -> tuple[list[str], Facts]:
        """Make the run directory, claim it and write the settings; on process 0.

        Returns
        -------
        earlier : list of str
            Hashes of the configurations that this run had before it was overridden.
        made : dict
            What its snapshots are made with; see `dsgmcmc.storage.facts`.
        """
        self.run_directory.path.mkdir(parents=True, exist_ok=True)
        taken_over = self._lock.acquire()
        try:
            return self._prepare(config, overridden, taken_over)
        except BaseException:
            self._lock.release()
            raise

    def _prepare(self, config: ResolvedChain, overridden: Changes, taken_over: str) -> tuple[list[str], Facts]:
        """Do what `_open` does in a directory that is ours."""
        run = self.run_directory
        run.refuse_links()
        run.remove_left()
        run.mend_logs()
        run.split_metrics()
        if taken_over:
            log.warning("taking over %s: %s", run.path, taken_over)
            run.note("lock taken over", reason=taken_over)
        earlier = []
        if run.settings_file.exists():
            before = run.read_settings()[1]
            earlier = [*before.get("earlier_config_hashes", []), before.get("config_hash", "")]
        if overridden:
            log.warning("overridden: %s", ", ".join(f"{n} {a} -> {b}" for n, (a, b) in overridden.items()))
            run.note("overridden", changes={name: list(change) for name, change in overridden.items()})
        facts = {
            "data_hash": self.source.digest(),
            "config_hash": config.hash(),
            "earlier_config_hashes": sorted(set(earlier) - {config.hash(), ""}),
            "versions": versions(),
        }
        data = self.source.prepare(run, config, MPI.COMM_SELF)
        run.write_settings(config.table(), data | facts)
        return earlier, made_with(data)

    def _run(
        self,
        config: ResolvedChain,
        signals: Signals,
        deadline: float | None,
        watchdog: Watchdog,
        earlier: list[str],
        made: Facts,
        log_errors: LogErrors,
    ) -> int:
        comm = self.comm
        group, groups = chain_group(comm.rank, comm.size, config.chains)
        mine = comm.Split(group, comm.rank)
        ring = Ring(mine, config.grid)
        self._rehearse(config)
        make_target, n_data = self.source.open(config, ring)
        data_hash = comm.bcast(agree(comm, self.source.digest if self._at_root else str))
        _, seconds = config.checkpoint_interval()
        control = Control(mine, signals, seconds, deadline, watchdog)

        def open_chain(number: int) -> Chain:
            make = partial(make_target, number)
            run, begin = self.run_directory, partial(self.source.begin, self.run_directory, made, number)
            chain = Chain(config, make, ring, run, number, data_hash, control, self.policy, made, begin)
            if not (self._resume and chain.resume(earlier)):
                chain.start()
            return chain

        with Progress(config.iterations, n_data / config.sweep_length, self.source.unit) as progress:
            end = Until(config, comm, control, progress) if config.until else Limit(config.iterations)
            turns = ChainScheduler(
                open_chain, range(group, config.chains, groups), end, control, progress, self._note_job
            )
            turns.run()
            sampling = turns.seconds
        watchdog.stop()  # other chains may take their time
        self._share(turns.failure)
        agree(comm, log_errors.check, "writing a log", WriteError)
        request = Request(comm.allreduce(int(turns.request), op=MPI.MAX))
        agree(comm, self.run_directory.merge_metrics if self._at_root else lambda: None, "writing metrics", WriteError)
        before = saved_result(self.source, self.run_directory) if self._at_root else []
        news = turns.iterations or before is None
        if comm.allreduce(bool(news), op=MPI.LOR):  # another group may have finished its chains before
            times = Times(turns.startup, sampling, turns.iterations if ring.rank == 0 else 0)
            library = MPI.Get_library_version().splitlines()[0].rstrip("\x00")
            write_summary(comm, self.source, config, ring.phases, n_data, times, self.run_directory, library, end.look)
        elif before:
            say(*before)
            also_in(self.run_directory.summary_file)
        if request == Request.INTERRUPT:
            return EXIT_INTERRUPTED
        return EXIT_RESUME if request == Request.STOP else EXIT_DONE

    def _note_job(self) -> None:
        """Keep what this job was started with, now that it samples. With nothing to do a run stays as it is."""
        if self._at_root and self._rehearsed > WORTH_SAYING:
            self.run_directory.note("kernels ready", seconds=round(self._rehearsed, 1))
        if self._at_root and self._command:
            self.run_directory.note_job(self._command, self.comm.size)

    def _rehearse(self, config: ResolvedChain) -> None:
        """Compile, or load, what sampling needs; say so if that took long."""
        make_target = partial(self.source.miniature, config, Ring(MPI.COMM_SELF, 1))
        self._rehearsed = rehearse(config, make_target, self.comm.rank)
        if self._at_root and self._rehearsed > WORTH_SAYING:
            log.info("kernels compiled or loaded in %.1f s", self._rehearsed)

    def _share(self, failure: InputError | DivergenceError | None) -> None:
        """Raise on all processes what ended the chain of any. Collective."""
        failures = [found for found in self.comm.allgather(failure) if found]
        if failures:
            raise type(failures[0])("; ".join(dict.fromkeys(map(str, failures))))
