"""From what was asked for to the configuration that all processes sample by, the same on each, or one error."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

from dsgmcmc.config.chain import FREE, OVERRIDABLE, ResolvedChain
from dsgmcmc.config.layers import Layers
from dsgmcmc.errors import InputError
from dsgmcmc.parallel.agreement import agree
from dsgmcmc.runs.sources.base import Source
from dsgmcmc.storage.rundir import RunDirectory
from dsgmcmc.types import Comm

#: Settings before and now.
Changes = dict[str, tuple[Any, Any]]

log = logging.getLogger(__name__)


class Resolution(NamedTuple):
    """What a job samples by.

    Attributes
    ----------
    config : ResolvedChain
    overridden : dict of str to (object, object)
        Settings of the run that ``--override`` changes, before and now.
    """

    config: ResolvedChain
    overridden: Changes


def resolve(
    comm: Comm, source: Source[Any], run: RunDirectory, layers: Layers, *, resume: bool, override: bool
) -> Resolution:
    """Resolve the configuration on process 0, for all. Collective.

    Parameters
    ----------
    comm : MPI.Comm
        All processes of the job.
    source : Source
        What is sampled.
    run : RunDirectory
        Its settings count, if it is resumed.
    layers : Layers
        Where settings were given.
    resume, override : bool
        Whether to go on with what is in `run`, and whether settings in `OVERRIDABLE` may change.

    Raises
    ------
    AgreedError
        On all processes, saying what is wrong with the settings, the source or the run directory.
    """

    def work() -> tuple[dict[str, Any], Changes]:
        if comm.rank != 0:
            return {}, {}
        saved = _saved_settings(run, source, resume)
        asked = source.build(saved, *layers.read())
        processes = -(-comm.size // min(comm.size, asked.chains))
        config = asked.resolved(processes)
        source.check(config, processes)
        changes = _changes(source.read(saved), config, run, override) if saved else {}
        return config.model_dump(), changes

    settings, overridden = comm.bcast(agree(comm, work, "sample"))
    return Resolution(source.read(settings), overridden)


def _saved_settings(run: RunDirectory, source: Source[Any], resume: bool) -> dict[str, Any]:
    """Return the settings of the run that is resumed; none for a new run, which needs an empty directory."""
    if resume and run.settings_file.exists():
        settings, facts = run.read_settings()
        if facts.get("data_hash") != source.digest():
            raise InputError(f"{run.path} was sampled from other data than {source.name}")
        return settings
    if not resume and run.path.is_dir() and any(run.path.iterdir()):
        raise InputError(f"{run.path} is not empty: give --resume to go on with it, or another --out")
    return {}


def _changes(before: ResolvedChain, now: ResolvedChain, run: RunDirectory, override: bool) -> Changes:
    """Return the settings that `override` changes; refuse those that a chain cannot change on its way."""
    old, new = before.model_dump(exclude=set(FREE)), now.model_dump(exclude=set(FREE))
    changes = {name: (old[name], new[name]) for name in old if old[name] != new[name]}
    fixed = [name for name in changes if name not in OVERRIDABLE]
    if not changes or (override and not fixed):
        return changes
    notes = {name: "" if name in fixed else " (--override allows it)" for name in changes}
    table = "\n  ".join(f"{n}: {a} in the run, {b} asked for{notes[n]}" for n, (a, b) in changes.items())
    raise InputError(
        f"{run.path} was started with other settings, which a chain cannot change on its way:\n"
        f"  {table}\nLeave them out to go on with the run's own, or start another run"
    )
