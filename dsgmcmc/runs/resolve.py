"""From what was asked for to the configuration that all processes sample by, the same on each, or one error."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dsgmcmc.config.layers import Layers, build
from dsgmcmc.config.run import FREE, OVERRIDABLE, ResolvedConfig
from dsgmcmc.data.ratings import open_ratings
from dsgmcmc.errors import InputError
from dsgmcmc.parallel.agreement import agree
from dsgmcmc.runs.plan import check_messages
from dsgmcmc.storage.rundir import RunDirectory
from dsgmcmc.types import Comm

#: Numbers of the factors for a rating above which exact Gibbs, too, was seen to take noise for structure.
MAX_NUMBERS_PER_RATING = 3

#: Settings before and now.
Changes = dict[str, tuple[Any, Any]]

log = logging.getLogger(__name__)


class Resolution(NamedTuple):
    """What a job samples by.

    Attributes
    ----------
    config : ResolvedConfig
    overridden : dict of str to (object, object)
        Settings of the run that ``--override`` changes, before and now.
    """

    config: ResolvedConfig
    overridden: Changes


def resolve(comm: Comm, data: Path, run: RunDirectory, layers: Layers, *, resume: bool, override: bool) -> Resolution:
    """Resolve the configuration on process 0, for all. Collective.

    Parameters
    ----------
    comm : MPI.Comm
        All processes of the job.
    data : Path
        Ratings file.
    run : RunDirectory
        Its settings count, if it is resumed.
    layers : Layers
        Where settings were given.
    resume, override : bool
        Whether to go on with what is in `run`, and whether settings in `OVERRIDABLE` may change.

    Raises
    ------
    AgreedError
        On all processes, saying what is wrong with the settings, the ratings or the run directory.
    """

    def work() -> tuple[str, Changes]:
        if comm.rank != 0:
            return "", {}
        given = layers.read()
        saved = _saved_settings(run, data, resume)
        config = _resolved(saved, given, data, comm.size)
        changes = _changes(ResolvedConfig.of(saved), config, run, override) if saved else {}
        return config.model_dump_json(), changes

    text, overridden = comm.bcast(agree(comm, work, "sample"))
    return Resolution(ResolvedConfig.model_validate_json(text), overridden)


def _saved_settings(run: RunDirectory, data: Path, resume: bool) -> dict[str, Any]:
    """Return the settings of the run that is resumed; none for a new run, which needs an empty directory."""
    if resume and run.settings_file.exists():
        settings, facts = run.read_settings()
        with open_ratings(data) as ratings:
            if facts.get("data_hash") != ratings.digest:
                raise InputError(f"{run.path} was sampled from other ratings than {data}")
        return settings
    if not resume and run.path.is_dir() and any(run.path.iterdir()):
        raise InputError(f"{run.path} is not empty: give --resume to go on with it, or another --out")
    return {}


def _resolved(
    saved: Mapping[str, Any], given: Sequence[Mapping[str, Any]], data: Path, processes: int
) -> ResolvedConfig:
    """Resolve the settings of a run, and check that the data and the processes admit them."""
    asked = build(saved, *given)
    groups = min(processes, asked.chains)
    largest = -(-processes // groups)
    config = asked.resolved(largest)
    _check_data(config, data)
    if largest > config.grid:
        raise InputError(
            f"{largest} processes cannot share a grid of {config.grid} blocks: start at most "
            f"{config.grid * groups} processes, or a new run with --grid {2 * largest}"
        )
    return config


def _check_data(config: ResolvedConfig, data: Path) -> None:
    """Refuse what cannot be sampled from these ratings, and warn of what they hardly tell."""
    with open_ratings(data) as ratings:
        if config.grid > ratings.n_cols:
            raise InputError(f"--grid {config.grid} is more than the {ratings.n_cols} columns of {data}")
        check_messages(config, ratings.column_counts)
        rows_and_columns = ratings.n_rows + ratings.n_cols
        numbers = config.rank * rows_and_columns
        if numbers > MAX_NUMBERS_PER_RATING * ratings.nnz:
            log.warning(
                "%s numbers of the factors for %s training ratings: the data hardly tell noise from factors, so "
                "tau may be far too large; try --rank %d",
                f"{numbers:,}",
                f"{ratings.nnz:,}",
                max(1, ratings.nnz // rows_and_columns),
            )


def _changes(before: ResolvedConfig, now: ResolvedConfig, run: RunDirectory, override: bool) -> Changes:
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
