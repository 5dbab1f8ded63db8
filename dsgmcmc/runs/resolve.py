"""Resolves the user's settings to one configuration, the same on all processes, or raises one error on all."""

from __future__ import annotations

import logging
import shutil
from typing import Any, NamedTuple

from dsgmcmc.config.chain import CHANGEABLE
from dsgmcmc.config.layers import Layers
from dsgmcmc.config.run import ResolvedConfig
from dsgmcmc.errors import InputError
from dsgmcmc.parallel.comm import agree
from dsgmcmc.runs.source import RatingsSource
from dsgmcmc.settings import named
from dsgmcmc.storage.facts import Facts, check_made_with
from dsgmcmc.storage.manifest import read_manifest
from dsgmcmc.storage.rundir import INDEX, RunDirectory
from dsgmcmc.storage.series import step_name, steps
from dsgmcmc.types import Comm

log = logging.getLogger(__name__)


class Resolution(NamedTuple):
    """The configuration of a job.

    Attributes
    ----------
    config : ResolvedConfig
    given : list of str
        Settings of the sampler that the user named when the run was started, in order.
    """

    config: ResolvedConfig
    given: list[str]


def resolve(comm: Comm, source: RatingsSource, run: RunDirectory, layers: Layers, *, resume: bool) -> Resolution:
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
    return Resolution(ResolvedConfig.of(settings), given)


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
