"""Preparation of a job: resolve its settings, and check, lock and prepare its run directory."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from dsgmcmc.config.chain import CHANGEABLE, section_of
from dsgmcmc.config.run import ResolvedConfig
from dsgmcmc.errors import InputError
from dsgmcmc.parallel.comm import on_root, oversubscription
from dsgmcmc.runs.costs import Costs
from dsgmcmc.runs.source import RatingsSource
from dsgmcmc.settings import named
from dsgmcmc.storage.lock import Lock, is_held
from dsgmcmc.storage.rundir import INDEX, Facts, RunDirectory, check_made_with, made_with, versions
from dsgmcmc.storage.store import clean, read_manifest
from dsgmcmc.types import Comm

log = logging.getLogger(__name__)

# ---------------------------------------------------------------------- the settings


def resolve(
    comm: Comm,
    source: RatingsSource,
    run: RunDirectory,
    given: Mapping[str, Any],
    usual: Mapping[str, Any],
    resume: bool,
) -> tuple[ResolvedConfig, list[str]]:
    """Resolve the configuration on process 0, and return it on all processes. Collective.

    Parameters
    ----------
    comm : Comm
        All processes of the job.
    source : RatingsSource
        Ratings and model.
    run : RunDirectory
        Run directory; if the run is resumed, its settings are the defaults.
    given, usual : dict
        Settings that the user has given, and defaults that they override.
    resume : bool
        Whether to continue the run in `run`.

    Returns
    -------
    config : ResolvedConfig
    given_of_sampler : list of str
        Names of the sampler settings that the user gave when the run was started, sorted.

    Raises
    ------
    AgreedError
        On all processes, if settings, source or run directory are wrong.
    """

    def work() -> tuple[ResolvedConfig, list[str]]:
        saved = _saved_settings(run, source, resume)
        config = source.resolve(comm.size, saved, usual, given)
        if config.first_draw > config.iterations:
            log.warning(
                "the run ends at iteration %s, before its first draw at %s (after a burn-in of %s): it will predict "
                "nothing; ask for more --iterations or a shorter --burn-in",
                *(f"{number:,}" for number in (config.iterations, config.first_draw, config.burn_in)),
            )
        if saved:
            _refuse_changes(ResolvedConfig.of(saved), config, run)
            return config, run.read_settings()[1].get("given_of_sampler", [])
        _check_disk(run, Costs.of(config, source.ratings, comm.size))
        return config, sorted(section_of(given.get("sampler") or {}))

    return on_root(comm, work)


def _saved_settings(run: RunDirectory, source: RatingsSource, resume: bool) -> dict[str, Any]:
    """Return the settings of the run to be resumed; empty for a new run."""
    if resume and run.settings_file.exists():
        before, facts = ResolvedConfig.of_run(run)
        if facts.get("data_hash") != source.ratings.digest:
            raise InputError(
                f"{run.path} was sampled from other data than {source.path}, and a run cannot change its data: start "
                f"another run with another {named('out')}"
            )
        index, made = run.path / INDEX, None
        with suppress(InputError):  # the job writes it again
            made = read_manifest(index)
        if made is not None:
            check_made_with(made, facts, index)
        return before.table()
    refuse_taken(run, resume)
    return {}


def refuse_taken(run: RunDirectory, resume: bool) -> None:
    """Refuse a path that is a file, and, for a new run, a directory that is not empty."""
    if run.path.exists() and not run.path.is_dir():
        raise InputError(f"{run.path} is a file: {named('out')} names the run's directory, which sample makes")
    if not resume and run.path.is_dir() and {path.name for path in run.path.iterdir()} - {run.lock_file.name}:
        raise InputError(f"{run.path} is not empty: give {named('resume')} to go on with it, or another {named('out')}")


def _check_disk(run: RunDirectory, costs: Costs) -> None:
    """Refuse a new run that cannot fit on the disk."""
    folder = next(path for path in (run.path, *run.path.absolute().parents) if path.exists())
    free = shutil.disk_usage(folder).free
    if free < costs.disk_least:
        least, room = (f"{size / 1e6:,.0f} MB" for size in (costs.disk_least, free))
        raise InputError(
            f"a run of these settings leaves at least {least} on disk, and {folder} has {room} free: choose another "
            f"{named('out')}, or fewer {named('save_draws')} or {named('chains')} (--dry-run shows the costs)"
        )


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


# ---------------------------------------------------------------------- the processes, and the directory


def warn_of_processes(comm: Comm) -> None:
    """Warn if processes share cores, or differ in processor or versions of the software. Collective."""
    crowded = oversubscription(comm)
    about = comm.allgather(versions())
    if comm.rank == 0 and crowded:
        log.warning(crowded)
    for name in versions() if comm.rank == 0 else ():
        found = sorted({each[name] for each in about})
        if len(found) > 1:
            text = "the processes differ in %s (%s): only the same will give the same bits again"
            log.warning(text, name, ", ".join(found))


@contextmanager
def opened(
    comm: Comm, source: RatingsSource, run: RunDirectory, config: ResolvedConfig, given: list[str]
) -> Iterator[Facts]:
    """Context in which the run directory is locked for this job, and its settings are written. Collective.

    Yields the facts that its snapshots record (`dsgmcmc.storage.rundir`).

    Raises
    ------
    AgreedError
        If another job uses the directory, or a file in it is invalid.
    """
    lock = Lock(run.lock_file)
    on_root(comm, partial(_claim, run, lock))
    try:
        yield on_root(comm, partial(_prepare, source, run, config, given))
    finally:
        if comm.rank == 0:
            _stop_listening(run)
            lock.release()


def forget_killed_job(run: RunDirectory) -> None:
    """Remove the file by which a killed job told scripts that it accepts signals; every job calls this first."""
    if not is_held(run.lock_file):
        _stop_listening(run)


def _stop_listening(run: RunDirectory) -> None:
    with suppress(OSError):
        run.listening_file.unlink()


def _claim(run: RunDirectory, lock: Lock) -> None:
    """Create the directory, and lock it."""
    run.path.mkdir(parents=True, exist_ok=True)
    lock.acquire()


def _prepare(source: RatingsSource, run: RunDirectory, config: ResolvedConfig, given: list[str]) -> Facts:
    """Clean the directory, write the settings, and save the facts about the data."""
    run.listening_file.touch()  # all processes have installed their signal handlers
    clean(run.path)
    identity = {"data_hash": source.ratings.digest, "config_hash": config.hash()}
    data = source.prepare(run, config)
    run.write_settings(config.table(), data | identity | {"versions": versions(), "given_of_sampler": given})
    return identity | made_with(data)
