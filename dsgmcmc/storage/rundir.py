"""The run directory, with all files of a run.

=========================  ============================================================================
``run.toml``               resolved configuration, seed, versions, hashes
``index/``                 original names of users and items (a snapshot)
``exposure-HASH.npy``      exposure of users to items, from the ratings with this hash; written by the first ranking
``comparison.json``        models that were compared, if the model was chosen by comparison
``start/chain-c``          states that the chains start from, if they start from another run (snapshots)
``metrics.jsonl``          metrics of chain 0, one object per line; chain c > 0 has ``metrics-chain-c.jsonl``
``checkpoints/chain-c/``   snapshots of the chain's state, ``step-000000012000``
``draws/chain-c/``         snapshots of the draws saved since the previous checkpoint, ``step-000000012000``
``posterior/chain-c/``     moments of the posterior, only the newest snapshot
``summary.json``           the result
``events.jsonl``           jobs and the commands that started them; events such as resumed, fell back, diverged
``lock``                   host and number of the process that works in the directory
``listening``              present while a signal can ask all processes of a job to stop
=========================  ============================================================================
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
from pydantic import ValidationError

from dsgmcmc.errors import InputError
from dsgmcmc.storage.facts import Facts, FactsModel, check_made_with
from dsgmcmc.storage.files import read_toml, write_whole
from dsgmcmc.storage.logs import Line, append, is_event, is_metrics, read_log
from dsgmcmc.storage.manifest import VERSION, read_manifest
from dsgmcmc.storage.series import clean, remove, step_name, steps
from dsgmcmc.storage.snapshot import Snapshot

INDEX, START = "index", "start"
#: Name of the event that a job begins.
JOB = "job"
#: Series of snapshots of a chain, and the kind of snapshot in each series, in the order in which they are read.
SERIES = {"checkpoints": "checkpoint", "draws": "draws", "posterior": "posterior"}
MAX_COMMAND = 4096  # characters
_CHAIN = re.compile(r"chain-(0|[1-9][0-9]{0,4})")


def now() -> str:
    """Current time in UTC, for log files; sampling does not depend on it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _chains_in(folder: Path) -> list[int]:
    """Chains that have a directory in a folder, in order."""
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return sorted(int(name[6:]) for name in names if _CHAIN.fullmatch(name))


class RunDirectory:
    """Paths and small files of a run, in a directory that need not exist."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.settings_file = path / "run.toml"
        self.summary_file = path / "summary.json"
        self.comparison_file = path / "comparison.json"
        self.lock_file = path / "lock"
        self.listening_file = path / "listening"
        self._events = path / "events.jsonl"
        #: Called if a line of a log cannot be written; if None, the error is raised.
        self.on_log_error: Callable[[OSError], None] | None = None

    def exposure_file(self, data_hash: str) -> Path:
        """File with the exposure of users to items, computed from the ratings with this hash."""
        return self.path / f"exposure-{data_hash[:16]}.npy"

    def series(self, kind: str, chain: int) -> Path:
        """Directory of a chain's snapshots in series `kind`."""
        return self.path / kind / f"chain-{chain}"

    def chains(self) -> list[int]:
        """Chains with a directory in one of `SERIES`, in order."""
        return sorted({chain for kind in SERIES for chain in _chains_in(self.path / kind)})

    def cut(self, chain: int, iteration: int) -> None:
        """Remove a chain's snapshots and metrics after an iteration, the newest first, and unfinished writes."""
        for kind in SERIES:
            parent = self.series(kind, chain)
            clean(parent)
            for later in reversed(steps(parent)):
                if later > iteration:
                    remove(parent / step_name(later))
        self.cut_metrics(chain, iteration)

    def forget(self) -> None:
        """Remove all files of the run except events, the model comparison and start states; settings go first."""
        self.settings_file.unlink(missing_ok=True)
        for chain in self.chains():
            self.cut(chain, -1)  # so that a job that is killed leaves no snapshot that cannot be read
        for kind in (INDEX, *SERIES):
            shutil.rmtree(self.path / kind, ignore_errors=True)
        for file in (self.summary_file, *self._metrics_files(), *self.path.glob("exposure-*.npy")):
            file.unlink(missing_ok=True)

    def reached(self, chains: int) -> list[int]:
        """Iteration of the newest checkpoint of each of `chains` chains; 0 without a checkpoint."""
        return [max(steps(self.series("checkpoints", chain)), default=0) for chain in range(chains)]

    def prune_draws(self, chain: int) -> None:
        """Remove snapshots of draws to which no remaining checkpoint refers; a run may fall back to any checkpoint."""
        series, draws = self.series("checkpoints", chain), self.series("draws", chain)
        try:
            manifests = [read_manifest(series / step_name(iteration)) for iteration in steps(series)]
        except InputError:  # the next call may succeed
            return
        written = steps(draws)
        saved = sorted({iteration for manifest in manifests for iteration in manifest.saved_draws})
        needed = set(np.searchsorted(written, saved).tolist())  # a draw is in the first step from its iteration on
        for number, step in enumerate(written):
            if number not in needed:
                remove(draws / step_name(step))

    def open_index(self, facts: Facts) -> Snapshot:
        """Open the names of the run's rows and columns.

        Raises InputError if they are missing, damaged, or of another run.

        Parameters
        ----------
        facts : dict
            Section ``[run]`` of ``run.toml``.
        """
        return self._opened(self.path / INDEX, ("index", 0, 0), facts)

    def open_snapshot(self, kind: str, chain: int, iteration: int, facts: Facts) -> Snapshot:
        """Open a snapshot of a chain, of a kind in `SERIES`; raises as `open_index`."""
        path = self.series(kind, chain) / step_name(iteration)
        return self._opened(path, (SERIES[kind], chain, iteration), facts)

    @staticmethod
    def _opened(path: Path, expected: tuple[str, int, int], facts: Facts) -> Snapshot:
        snapshot = Snapshot(path)
        manifest = snapshot.manifest
        identity = (manifest.kind, manifest.chain, manifest.iteration)
        if identity != expected:
            raise InputError(f"{path} holds something else: (kind, chain, iteration) are {identity}, not {expected}")
        check_made_with(manifest, facts, path)
        return snapshot

    def start(self, chain: int | None = None) -> Path:
        """Directory with the states of another run that chains start from, or with the state of one of its chains."""
        return self.path / START / ("" if chain is None else f"chain-{chain}")

    def starts(self) -> list[Path]:
        """Directories of the chains in `start`, in order."""
        return [self.start(chain) for chain in _chains_in(self.start())]

    def open_start(self, chain: int, facts: Facts) -> Snapshot:
        """Open the state that a chain starts from; raises as `open_index`."""
        starts = self.starts()
        if not starts:
            raise InputError(f"{self.start()} is missing: the run starts from it")
        number = chain % len(starts)
        return self._opened(self.start(number), ("start", number, 0), facts)

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
            raise InputError(f"{self.path} is not a run directory: {self.settings_file} has no section [run]")
        if section.pop("format", 1) != VERSION:
            raise InputError(
                f"{self.path} is of another version of dsgmcmc, whose files this one cannot read: sample again, in a "
                "new directory; the same ratings and settings give the same draws"
            )
        try:
            facts = FactsModel.model_validate(section).model_dump(exclude_unset=True)
        except ValidationError as error:
            first = error.errors(include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise InputError(f"{self.settings_file} is damaged: run.{where}: {first['msg']}") from error
        return content, facts

    def write_settings(self, settings: dict[str, Any], facts: Facts) -> None:
        """Write the resolved settings and the facts about the run to ``run.toml``, atomically."""
        write_whole(self.settings_file, tomli_w.dumps({**settings, "run": {"format": VERSION, **facts}}))

    # ------------------------------------------------------------------ metrics

    def metrics_file(self, chain: int) -> Path:
        """File with the metrics of a chain."""
        return self.path / ("metrics.jsonl" if chain == 0 else f"metrics-chain-{chain}.jsonl")

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
        write_whole(file, "".join(f"{json.dumps(line)}\n" for line in lines))

    def metrics(self) -> list[Line]:
        """Lines of metrics of all chains, ordered by chain and iteration; raises InputError as `read_log`."""
        lines = [line for file in self._metrics_files() for line in read_log(file, is_metrics)]
        return sorted(lines, key=itemgetter("chain", "iteration"))

    def _metrics_files(self) -> list[Path]:
        """Metrics files of chain 0, which may be missing, and of the other chains."""
        return [self.metrics_file(0), *sorted(self.path.glob("metrics-chain-*.jsonl"))]

    # ------------------------------------------------------------------ events

    def note(self, event: str, **facts: Any) -> None:
        """Append an event to ``events.jsonl``; only one process may do so at a time."""
        self._append(self._events, {"time": now(), "event": event, **facts})

    def note_job(self, command: str, processes: int) -> None:
        """Append the event that a job begins, with the first characters of its command."""
        self.note(JOB, command=command.encode(errors="replace").decode()[:MAX_COMMAND], processes=processes)

    def jobs(self) -> list[Line]:
        """Events of jobs that worked on the run, with ``time``, ``command`` and ``processes``."""
        return [line for line in self.events() if line["event"] == JOB and "command" in line]

    def events(self) -> list[Line]:
        """All events, without damaged lines."""
        return read_log(self._events, is_event)
