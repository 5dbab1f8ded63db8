"""The run directory, with all files of a run.

=========================  =========================================================================
``run.toml``               resolved configuration, and facts in ``[run]``: hashes, versions, ...
``index/``                 original names of users and items (a snapshot)
``exposure-HASH.npy``      exposure of users to items in the ratings with this hash; written by the
                           first ranking
``comparison.json``        models that were compared, if the model was chosen by comparison
``ratings.h5``             ratings of a table of three directions in the arrangement that was chosen
``start/chain-c``          starting states of the chains, if they start from another run (snapshots)
``metrics.jsonl``          metrics of chain 0, one object per line; chain c > 0 has
                           ``metrics-chain-c.jsonl``
``checkpoints/chain-c/``   snapshots of the chain's state, ``step-000000012000``
``draws/chain-c/``         snapshots of the draws saved since the previous checkpoint,
                           ``step-000000012000``
``posterior/chain-c/``     moments and traces of the posterior; only the newest snapshot is kept
``summary.json``           the result
``events.jsonl``           jobs and the commands that started them; events such as resumed, fell
                           back, diverged
``lock``                   process number and host of the last process that has worked here
``listening``              exists while a signal can ask all processes of a job to stop
=========================  =========================================================================

The manifest of every snapshot has the hashes of the configuration and of the data. Its
``about.made_with`` has facts about the data on which results depend: centre, range and levels of
the ratings, whether the ratings are transposed, and so on. A reader compares the hashes and the
facts with ``run.toml``, and refuses a run if they differ.

A snapshot of draws contains the draws up to its iteration that are not in an earlier snapshot. Its
data sets ``draw/FACTOR/BLOCK/FIELD`` have one entry per draw along the first axis, in order;
``draw/run/000000/NAME`` has a shared parameter. A snapshot of draws is never rewritten, and is kept
as long as a checkpoint refers to one of its draws. The logs are not part of a chain.
"""

from __future__ import annotations

import json
import platform
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import tomli_w
from pydantic import BaseModel, ConfigDict, ValidationError

from dsgmcmc._version import __version__
from dsgmcmc.errors import GoneError, InputError, refusing
from dsgmcmc.parallel.machine import cpu_name
from dsgmcmc.storage import store
from dsgmcmc.storage.files import read_toml, remove_folder, sync, write_file
from dsgmcmc.storage.log import Line, append, is_event, is_metrics, read_log

Facts = dict[str, Any]

#: Hashes that identify a run; every manifest has separate fields for them.
IDENTITY_FACTS = ("data_hash", "config_hash")
#: Facts that are not in `made_with`. The path of the data, the names of their columns, how they
#: were read and the warnings about them may differ between jobs; hashes and versions have other
#: places in a manifest.
OTHER_FACTS = (
    "data",
    "columns",
    "reading",
    "cautions",
    "range",
    "open_length",
    "energies",
    *IDENTITY_FACTS,
    "versions",
)
INDEX = "index"
START = "start"
#: Name of the event that a job begins.
JOB = "job"
#: Series of snapshots of a chain, and the kind of snapshot in each series, in the order in which
#: they are read.
SERIES = {"checkpoints": "checkpoint", "draws": "draws", "posterior": "posterior"}
MAX_COMMAND = 4096  # characters
_CHAIN = re.compile(r"chain-(0|[1-9][0-9]{0,4})")

# ---------------------------------------------------------------------- facts


class FactsModel(BaseModel):
    """Section ``[run]`` of ``run.toml``: facts whose types are checked here, and any others."""

    model_config = ConfigDict(strict=True, extra="allow")

    data: str = ""
    given_of_sampler: list[str] = []
    requested_sampler: str = ""
    registered: list[str] = []
    columns: dict[str, str] = {}
    reading: dict[str, bool | str | list[str]] = {}
    cautions: list[str] = []
    versions: dict[str, str] = {}
    start: store.Sha256 = ""
    data_hash: store.Sha256 = ""
    config_hash: store.Sha256 = ""


def made_with(facts: Mapping[str, Any]) -> Facts:
    """Return those facts of a run that its snapshots record, and that must not change."""
    return {name: value for name, value in facts.items() if name not in OTHER_FACTS}


def header(
    kind: str,
    facts: Facts,
    *,
    chain: int = 0,
    iteration: int = 0,
    grid: int = 1,
    state: Mapping[str, Any] | None = None,
    **about: object,
) -> dict[str, Any]:
    """Return the fields of a manifest except its blocks.

    `about` has further facts that the digest does not cover.
    """
    return {
        "kind": kind,
        "chain": chain,
        "iteration": iteration,
        "grid": grid,
        "state": state or {},
        "about": {"versions": versions(), "made_with": made_with(facts), **about},
        **{name: facts[name] for name in IDENTITY_FACTS},
    }


def check_made_with(manifest: store.Manifest, facts: Mapping[str, Any], path: Path) -> None:
    """Compare the manifest of a snapshot at `path` with the facts in its run's ``run.toml``.

    Raises InputError that names the facts that differ.
    """
    hashes = {name: getattr(manifest, name) for name in IDENTITY_FACTS if facts.get(name)}
    recorded = manifest.about.get("made_with", {}) | hashes
    changed = [name for name, value in recorded.items() if facts.get(name) != value]
    if changed:
        raise InputError(f"run.toml has been changed since {path} was made: {', '.join(changed)}")


def versions() -> dict[str, str]:
    """Return the versions of the software and the name of the processor.

    The bits of a chain may depend on them.
    """
    import llvmlite  # here, because they are slow to import and readers of a run do not need them
    import numba
    import scipy

    libraries = {
        library.__name__: library.__version__ for library in (np, scipy, numba, llvmlite, h5py)
    }
    return {
        "dsgmcmc": __version__,
        "python": platform.python_version(),
        **libraries,
        "cpu": cpu_name(),
    }


def changed_versions(earlier: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the earlier and the present version of what has changed, by name."""
    return {
        name: [earlier[name], present]
        for name, present in versions().items()
        if name in earlier and earlier[name] != present
    }


# ---------------------------------------------------------------------- the directory


def now() -> str:
    """Return the current time in UTC, for log files; sampling does not depend on it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _chains_in(folder: Path) -> list[int]:
    """Return the chains that have a directory in a folder, in order."""
    if not folder.is_dir():
        return []
    matches = [_CHAIN.fullmatch(path.name) for path in folder.iterdir()]
    return sorted(int(match[1]) for match in matches if match)


class RunDirectory:
    """Paths and small files of a run, in a directory that need not exist."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.settings_file = path / "run.toml"
        self.summary_file = path / "summary.json"
        self.comparison_file = path / "comparison.json"
        self.candidates = path / "compare"  # while models are compared
        self.ratings_file = path / "ratings.h5"
        self.lock_file = path / "lock"
        self.listening_file = path / "listening"
        self._events = path / "events.jsonl"
        #: Called if a line of a log cannot be written; if None, the error is raised.
        self.on_log_error: Callable[[OSError], None] | None = None

    def exposure_file(self, data_hash: str, ending: str) -> Path:
        """File about the exposure of users to items in the ratings with hash `data_hash`."""
        return self.path / f"exposure-{data_hash[:16]}{ending}"

    def series(self, name: str, chain: int) -> Path:
        """Directory of a chain's snapshots in a series, one of `SERIES`."""
        return self.path / name / f"chain-{chain}"

    def chains(self) -> list[int]:
        """Chains with a directory in one of `SERIES`, in order."""
        return sorted({chain for name in SERIES for chain in _chains_in(self.path / name)})

    def cut(self, chain: int, iteration: int) -> None:
        """Remove a chain's unfinished writes, and what is later than an iteration.

        These are later snapshots and metrics, and draws that no checkpoint needs.
        """
        for name in SERIES:
            parent = self.series(name, chain)
            store.clean(parent)
            for step in reversed(store.steps(parent)):
                if step > iteration:
                    store.remove(parent / store.step_name(step))
        self.prune_draws(chain)
        self.cut_metrics(chain, iteration)

    def forget(self) -> None:
        """Remove the settings, then the results and names of the run, so that it can start again.

        Events, the comparison of models, starting values and the lock remain.
        """
        self.settings_file.unlink(missing_ok=True)
        for chain in self.chains():
            # snapshot by snapshot: a job that is killed leaves no damaged snapshot
            self.cut(chain, -1)
        for folder in (INDEX, *SERIES):
            remove_folder(self.path / folder)
        for file in (self.summary_file, *self._metrics_files(), *self.path.glob("exposure-*")):
            file.unlink(missing_ok=True)

    def reached(self, chains: int) -> list[int]:
        """Iteration of the newest checkpoint of each of `chains` chains; 0 without a checkpoint."""
        return [
            max(store.steps(self.series("checkpoints", chain)), default=0)
            for chain in range(chains)
        ]

    def prune_draws(self, chain: int) -> None:
        """Remove the snapshots of draws to which no checkpoint refers.

        A job may resume from any checkpoint.
        """
        checkpoints = self.series("checkpoints", chain)
        draws = self.series("draws", chain)
        try:
            manifests = [
                store.read_manifest(checkpoints / store.step_name(step))
                for step in store.steps(checkpoints)
            ]
        except InputError:  # the next call may succeed
            return
        written = store.steps(draws)
        saved = sorted({iteration for manifest in manifests for iteration in manifest.saved_draws})
        # a draw is in the first step from its iteration on
        needed = set(np.searchsorted(written, saved).tolist())
        for number, step in enumerate(written):
            if number not in needed:
                store.remove(draws / store.step_name(step))

    def open_index(self, facts: Facts) -> store.Snapshot:
        """Open the names of the run's rows and columns.

        Raises InputError if they are missing, damaged, or of another run.

        Parameters
        ----------
        facts : dict
            Section ``[run]`` of ``run.toml``.
        """
        return self._open(self.path / INDEX, ("index", 0, 0), facts)

    def check_index(self, facts: Facts) -> None:
        """Raise InputError if the index was made with other facts.

        A damaged index passes, as it will be replaced.
        """
        index = self.path / INDEX
        try:
            manifest = store.read_manifest(index)
        except InputError:
            return
        check_made_with(manifest, facts, index)

    def open_snapshot(
        self, series: str, chain: int, iteration: int, facts: Facts
    ) -> store.Snapshot:
        """Open a snapshot of a chain in a series, one of `SERIES`; raises as `open_index`."""
        path = self.series(series, chain) / store.step_name(iteration)
        return self._open(path, (SERIES[series], chain, iteration), facts)

    @staticmethod
    def _open(path: Path, expected: tuple[str, int, int], facts: Facts) -> store.Snapshot:
        snapshot = store.Snapshot(path)
        manifest = snapshot.manifest
        identity = (manifest.kind, manifest.chain, manifest.iteration)
        if identity != expected:
            raise InputError(
                f"{path} has another identity: (kind, chain, iteration) are {identity}, not"
                f" {expected}"
            )
        check_made_with(manifest, facts, path)
        return snapshot

    def start(self, chain: int | None = None) -> Path:
        """Directory of the starting values from another run, for one `chain` or for all chains."""
        folder = self.path / START
        if chain is None:
            return folder
        return folder / f"chain-{chain}"

    def starts(self) -> list[Path]:
        """Directories of the chains in `start`, in order."""
        return [self.start(chain) for chain in _chains_in(self.start())]

    def open_start(self, chain: int, facts: Facts) -> store.Snapshot:
        """Open the starting values of a chain, which chains may share; raises as `open_index`."""
        starts = self.starts()
        if not starts:
            raise InputError(f"{self.start()} is missing: the run starts from it")
        number = chain % len(starts)
        return self._open(self.start(number), ("start", number, 0), facts)

    # ------------------------------------------------------------------ configuration

    def read_settings(self) -> tuple[dict[str, Any], Facts]:
        """Return the configuration of the run, unchecked, and the facts about the run.

        Raises InputError if ``run.toml`` is missing or cannot be read, or if facts are invalid.
        """
        if not self.settings_file.exists():
            raise InputError(f"{self.path} is not a run directory: there is no run.toml in it")
        content = read_toml(self.settings_file)
        section = content.pop("run", None)
        if not isinstance(section, dict):
            raise InputError(
                f"{self.path} is not a run directory: {self.settings_file} has no section [run]"
            )
        if section.pop("format", 1) != store.VERSION:
            raise InputError(
                f"{self.path} was written by another version of dsgmcmc: sample again in a new"
                " directory"
            )
        with refusing(f"{self.settings_file} is damaged in [run]", ValidationError):
            return content, FactsModel.model_validate(section).model_dump(exclude_unset=True)

    def write_settings(self, settings: dict[str, Any], facts: Facts) -> None:
        """Write the resolved settings and the facts about the run to ``run.toml``, atomically."""
        content = {**settings, "run": {"format": store.VERSION, **facts}}
        write_file(self.settings_file, tomli_w.dumps(content))
        sync(self.path)

    # ------------------------------------------------------------------ metrics

    def metrics_file(self, chain: int) -> Path:
        """File with the metrics of a chain."""
        if chain == 0:
            return self.path / "metrics.jsonl"
        return self.path / f"metrics-chain-{chain}.jsonl"

    def add_metrics(self, chain: int, line: Line) -> None:
        """Append a line of metrics of a chain."""
        self._append(self.metrics_file(chain), line)

    def _append(self, log: Path, line: Line) -> None:
        try:
            append(log, line)
        except OSError as error:
            if self.on_log_error is None:
                raise
            self.on_log_error(error)

    def cut_metrics(self, chain: int, iteration: int) -> None:
        """Remove metrics after `iteration` from the file of a chain."""
        file = self.metrics_file(chain)
        lines = [line for line in read_log(file, is_metrics) if line["iteration"] <= iteration]
        write_file(file, "".join(f"{json.dumps(line)}\n" for line in lines))

    def metrics(self) -> list[Line]:
        """Lines of metrics of all chains, by chain and iteration; raises as `read_log`."""
        lines = [line for file in self._metrics_files() for line in read_log(file, is_metrics)]
        return sorted(lines, key=lambda line: (line["chain"], line["iteration"]))

    def _metrics_files(self) -> list[Path]:
        """Metrics files of chain 0, which may be missing, and of the other chains."""
        return [self.metrics_file(0), *sorted(self.path.glob("metrics-chain-*.jsonl"))]

    # ------------------------------------------------------------------ events

    def note(self, event: str, **facts: object) -> None:
        """Append an event to ``events.jsonl``; only one process may do so at a time."""
        self._append(self._events, {"time": now(), "event": event, **facts})

    def note_job(self, command: str, processes: int) -> None:
        """Append the event that a job begins; its command is cut after `MAX_COMMAND` characters."""
        printable = command.encode(errors="replace").decode()
        self.note(JOB, command=printable[:MAX_COMMAND], processes=processes)

    def jobs(self) -> list[Line]:
        """Events of jobs that worked on the run, with ``time``, ``command`` and ``processes``."""
        return [line for line in self.events() if line["event"] == JOB and "command" in line]

    def events(self) -> list[Line]:
        """All events, without damaged lines."""
        return read_log(self._events, is_event)


# ---------------------------------------------------------------------- saved draws


class StoredDraw(NamedTuple):
    """A draw: its snapshot, and its index along the first axis of the snapshot's data sets."""

    snapshot: store.Snapshot
    number: int


class SavedDraws:
    """The saved draws of a chain, for reading.

    A snapshot is opened when one of its draws is first requested.

    Parameters
    ----------
    run : RunDirectory
        The run.
    chain : int
        Number of the chain.
    facts : dict
        Section ``[run]`` of ``run.toml``.
    """

    def __init__(self, run: RunDirectory, chain: int, facts: Facts) -> None:
        self._run = run
        self._chain = chain
        self._facts = facts
        self.path = run.series("draws", chain)
        #: Iterations at which the snapshots were written, in order.
        self.steps = store.steps(self.path)
        self._opened: dict[int, store.Snapshot] = {}
        #: All draws in the opened snapshots, by iteration.
        self._draws: dict[int, StoredDraw] = {}

    def open(self, step: int) -> store.Snapshot:
        """Open a snapshot.

        Raises InputError if the snapshot is damaged, belongs to another run, or is gone.
        """
        if step not in self._opened:
            snapshot = self._run.open_snapshot("draws", self._chain, step, self._facts)
            self._opened[step] = snapshot
            for number, iteration in enumerate(snapshot.manifest.saved_draws):
                self._draws[iteration] = StoredDraw(snapshot, number)
        return self._opened[step]

    def find(self, iteration: int) -> StoredDraw:
        """Return the draw of an iteration.

        Raises as `open`, and GoneError if there is no such draw.
        """
        position = bisect_left(self.steps, iteration)
        if position < len(self.steps):
            self.open(self.steps[position])
        if iteration not in self._draws:
            raise GoneError(
                f"draw {iteration} of {self.path} is gone: the run has since removed it. Open the"
                " run again"
            )
        return self._draws[iteration]

    def snapshots(self, iterations: Iterable[int]) -> list[store.Snapshot]:
        """Open the snapshots with the draws of `iterations`, each once; raises as `find`."""
        return list(dict.fromkeys(self.find(iteration).snapshot for iteration in iterations))
