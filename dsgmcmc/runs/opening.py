"""Opens the directory of a run: resolves its settings, locks it, and writes ``run.toml``."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from time import sleep
from typing import Any, NamedTuple

from rich.filesize import decimal

from dsgmcmc.config.chain import AUTO, CHANGEABLE, ResolvedChain
from dsgmcmc.config.run import ResolvedConfig, merged
from dsgmcmc.errors import InputError
from dsgmcmc.parallel.alone import Comm
from dsgmcmc.parallel.comm import on_root
from dsgmcmc.parallel.signals import Request, Signals
from dsgmcmc.ratings.directions import refuse_open
from dsgmcmc.runs.costs import Costs
from dsgmcmc.runs.source import RatingsSource
from dsgmcmc.settings import named
from dsgmcmc.storage.lock import ATTEMPT_SECONDS, Lock
from dsgmcmc.storage.rundir import Facts, RunDirectory, changed_versions, made_with, versions
from dsgmcmc.storage.store import clean
from dsgmcmc.terminal import log


class OpenRun(NamedTuple):
    """A run whose directory this job has locked and prepared.

    Attributes
    ----------
    config : ResolvedConfig
        Settings of the run.
    given_of_sampler : list of str
        Names of the sampler settings that the user gave when the run was started, sorted.
    facts : dict
        Facts that the run's snapshots record (`dsgmcmc.storage.rundir`).
    """

    config: ResolvedConfig
    given_of_sampler: list[str]
    facts: Facts


class RunOpening:
    """Resolves the settings of a run and prepares its directory. Used on process 0.

    Parameters
    ----------
    run : RunDirectory
        The directory.
    source : RatingsSource
        Ratings, and the earlier run to start from, if any.
    settings : dict
        Settings that the user has given.
    defaults : dict or None
        Settings of a recommended model, which the user's settings override. Without them, a run
        whose model has yet to be chosen is refused.
    resume : bool
        Whether to continue the run, if there is one.
    """

    def __init__(
        self,
        run: RunDirectory,
        source: RatingsSource,
        settings: Mapping[str, Any],
        *,
        defaults: Mapping[str, Any] | None,
        resume: bool,
    ) -> None:
        self.run = run
        self._source = source
        self._settings = settings
        self._defaults = defaults
        self._resume = resume

    def resolve(self, processes: int) -> tuple[ResolvedConfig, list[str]]:
        """Return the configuration, and the names of the sampler settings that the user gave.

        A resumed run has its earlier settings as defaults, and keeps the names that its first job
        recorded.

        Raises
        ------
        InputError
            If settings, ratings file or run directory are wrong.
        """
        run = self.run
        refuse_open(self._source.ratings)
        saved = self._saved_settings()
        config = self._source.resolve(processes, saved, self._defaults or {}, self._settings)
        if saved:
            refuse_changes(ResolvedConfig.from_settings(saved), config, run)
        _warn_without_draws(config)
        if saved:
            return config, run.read_settings()[1].get("given_of_sampler", [])
        _check_disk(run, Costs.estimate(config, self._source.ratings, processes))
        return config, sorted(merged(self._settings)["sampler"])

    def _saved_settings(self) -> dict[str, Any]:
        """Check the data of a run to be resumed, and return its settings; empty for a new run."""
        run = self.run
        if not self._resume or not run.settings_file.exists():
            refuse_taken(run, self._resume)
            self._refuse_unchosen_model()
            return {}
        config, facts = ResolvedConfig.of_run(run)
        if facts.get("data_hash") != self._source.ratings.digest:
            raise InputError(
                f"{run.path} was sampled on other data than {self._source.path}: change"
                f" {named('out')}"
            )
        run.check_index(facts)
        return config.table()

    def _refuse_unchosen_model(self) -> None:
        """Refuse a run whose job was stopped before it sampled the best of the compared models."""
        run = self.run
        if self._defaults is not None:
            return
        if run.comparison_file.exists() or run.candidates.exists():
            raise InputError(
                f"{run.path} was started with {named('model')}: repeat it, or change {named('out')}"
            )

    def prepare(self, config: ResolvedConfig, given_of_sampler: list[str]) -> Facts:
        """Clean the directory; write ``run.toml``, the index and starting values.

        Returns
        -------
        dict
            The facts that the run's snapshots record.

        Raises
        ------
        InputError
            If a file in the directory is invalid, or the run is longer than `config` allows.
        """
        run = self.run
        source = self._source
        refuse_shorter(config.iterations, config.chains, run)
        run.listening_file.touch()  # tells scripts that all processes have installed their handlers
        clean(run.path)
        identity = {"data_hash": source.ratings.digest, "config_hash": config.hash()}
        data = source.prepare(run, config)
        about: Facts = {
            "versions": self._first_versions(),
            "given_of_sampler": given_of_sampler,
            "requested_sampler": config.sampler.name if "name" in given_of_sampler else AUTO,
        }
        if config.registered:
            about["registered"] = config.registered
        run.write_settings(config.table(), data | identity | about)
        return identity | made_with(data)

    def _first_versions(self) -> dict[str, str]:
        """Return the versions with which the run began; warn if they have changed since."""
        began: dict[str, str] | None = None
        if self.run.settings_file.exists():
            began = self.run.read_settings()[1].get("versions")
        changes = changed_versions(began or {})
        if changes:
            listed = ", ".join(f"{name} {old} -> {new}" for name, (old, new) in changes.items())
            log.warning(
                "this run began with other versions (%s): draws follow the same law, but not to the"
                " last bit",
                listed,
            )
        return began or versions()


# ---------------------------------------------------------------------- the lock


def claim(comm: Comm, lock: Lock, signals: Signals) -> Request:
    """Wait for the lock of a run directory. Collective.

    Returns
    -------
    Request
        ``GO_ON`` once the lock is held; else the request that ended the wait without it.

    Raises
    ------
    AgreedError
        If another job uses the directory.
    """
    while not on_root(comm, lock.attempt):
        request = max(comm.allgather(signals.request))
        if request >= Request.STOP:
            lock.release()
            return request
        sleep(ATTEMPT_SECONDS)
    return Request.GO_ON


@contextmanager
def open_run_directory(
    comm: Comm,
    lock: Lock,
    opening: RunOpening,
    *,
    config: ResolvedConfig,
    given_of_sampler: list[str],
) -> Iterator[OpenRun]:
    """Context with a prepared run directory, whose lock this job holds until the end. Collective.

    Raises
    ------
    AgreedError
        If a file in the run directory is invalid.
    """
    try:
        facts = on_root(comm, partial(opening.prepare, config, given_of_sampler))
        yield OpenRun(config, given_of_sampler, facts)
    finally:
        if comm.rank == 0:
            stop_listening(opening.run)
            lock.release()


def stop_listening(run: RunDirectory) -> None:
    """Remove the file that tells scripts that a job accepts signals, if there is one."""
    with suppress(OSError):
        run.listening_file.unlink()


# ---------------------------------------------------------------------- checks


def refuse_taken(run: RunDirectory, resume: bool) -> None:
    """Refuse a path that is a file and, for a new run, a directory that is not empty."""
    if not run.path.exists():
        return
    if not run.path.is_dir():
        raise InputError(
            f"{run.path} is a file: {named('out')} must name a directory; a new run creates it"
        )
    if resume:
        return
    files = {path.name for path in run.path.iterdir()}
    if files - {run.lock_file.name}:
        raise InputError(
            f"{run.path} is not empty: give {named('resume')} to continue it, or another"
            f" {named('out')}"
        )


def _warn_without_draws(config: ResolvedConfig) -> None:
    """Warn if a run ends before its first draw."""
    if config.first_draw > config.iterations:
        log.warning(
            "the run ends at iteration %s, before its first draw at %s (after a burn-in of %s):"
            " it cannot predict; give more %s or a shorter %s",
            f"{config.iterations:,}",
            f"{config.first_draw:,}",
            f"{config.burn_in:,}",
            named("iterations"),
            named("burn_in"),
        )


def _existing_folder(path: Path) -> Path:
    """Return `path` or its nearest parent that exists."""
    return next(folder for folder in (path, *path.absolute().parents) if folder.exists())


def _check_disk(run: RunDirectory, costs: Costs) -> None:
    """Refuse a new run that cannot fit on the disk, and warn of one that may not fit."""
    folder = _existing_folder(run.path)
    free = shutil.disk_usage(folder).free
    if free < costs.disk_least:
        raise InputError(
            f"a run with these settings takes at least {decimal(costs.disk_least)} on disk, but"
            f" {folder} has {decimal(free)} free: choose another {named('out')}, or a smaller"
            f" {named('save_draws')} or {named('chains')} ({named('dry_run')} shows costs)"
        )
    if free < costs.disk_most:
        log.warning(
            "the run may take up to %s on disk with its checkpoints, and %s has %s free: if the"
            " disk fills, the run ends, and %s goes on once there is room",
            decimal(costs.disk_most),
            folder,
            decimal(free),
            named("resume"),
        )


def refuse_changes(saved: ResolvedChain, requested: ResolvedChain, run: RunDirectory) -> None:
    """Refuse changes of settings that cannot change during a run."""
    old = saved.model_dump(exclude=set(CHANGEABLE))
    new = requested.model_dump(exclude=set(CHANGEABLE))
    if requested.chains < saved.chains:  # the draws of all chains stay
        old["chains"] = saved.chains
        new["chains"] = requested.chains
    changes = [
        f"{name}: {old[name]} in the run, {new[name]} requested"
        for name in old
        if old[name] != new[name]
    ]
    if changes:
        heading = f"{run.path} was started with other settings, which cannot change during a run:"
        advice = "\nLeave them out to continue with the settings of the run, or start another run"
        raise InputError("\n  ".join([heading, *changes]) + advice)


def refuse_shorter(iterations: int, chains: int, run: RunDirectory) -> None:
    """Refuse a length that the run has passed already."""
    made = max(run.reached(chains))
    if iterations < made:
        raise InputError(
            f"{run.path} has made {made:,} iterations, and cannot end at iteration"
            f" {iterations:,}: give {named('iterations')} {made} or more, or leave it out"
        )
