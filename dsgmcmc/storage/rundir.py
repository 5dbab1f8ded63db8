"""The run directory: where everything of a run lies, its configuration, its metrics, its lock.

=========================  ============================================================================
``run.toml``               resolved configuration, seed, versions, hashes
``index/``                 original names of users and items (a snapshot)
``metrics.jsonl``          one object a line; while they run, chain c > 0 writes ``metrics-chain-c.jsonl``
``checkpoints/chain-c/``   snapshots of the chain's state, ``step-000000012000``
``draws/chain-c/``         saved draws, one snapshot each
``posterior/chain-c/``     moments of the posterior, the newest only
``summary.json``           the result
``events.jsonl``           what happened on the way: resumed, fell back, step halved, settings overridden
``lock``                   present while a process works in the directory
=========================  ============================================================================
"""

from __future__ import annotations

import json
import tomllib
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import tomli_w

from dsgmcmc.errors import InputError
from dsgmcmc.storage.files import write_whole
from dsgmcmc.storage.series import steps
from dsgmcmc.storage.snapshot import Snapshot

INDEX = "index"
SERIES = ("checkpoints", "draws", "posterior")


def now() -> str:
    """Time of day in UTC, for people who read the files of a run; nothing that is sampled knows it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class RunDirectory:
    """Paths and small files of a run.

    Parameters
    ----------
    path : Path
        The directory; it need not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.settings_file = path / "run.toml"
        self.summary_file = path / "summary.json"
        self.lock_file = path / "lock"
        self._events = path / "events.jsonl"

    def series(self, kind: str, chain: int) -> Path:
        """Directory of the snapshots of a kind and chain."""
        return self.path / kind / f"chain-{chain}"

    def chains(self) -> list[int]:
        """Chains that have a posterior or a checkpoint, in order."""
        names = {p.name for kind in SERIES if (self.path / kind).is_dir() for p in (self.path / kind).iterdir()}
        return sorted(int(name[6:]) for name in names if name.startswith("chain-") and name[6:].isdigit())

    def reached(self, chains: int) -> list[int]:
        """Iteration of the newest checkpoint of each of so many chains; 0 where there is none."""
        return [max(steps(self.series("checkpoints", chain)), default=0) for chain in range(chains)]

    def open_index(self) -> Snapshot:
        """Open the names of the run's rows and columns.

        Raises
        ------
        InputError
            If there are none, or they are damaged.
        """
        if not (self.path / INDEX).is_dir():
            raise InputError(f"{self.path} has no {INDEX}: the run was stopped before it began; start it again")
        return Snapshot(self.path / INDEX)

    # ------------------------------------------------------------------ configuration

    def read_settings(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the configuration that the run was started with, and the facts about it.

        Raises
        ------
        InputError
            If ``run.toml`` is missing or cannot be read.
        """
        if not self.settings_file.exists():
            why = "there is no run.toml in it" if self.path.is_dir() else "it does not exist"
            why = "it is a file" if self.path.is_file() else why
            raise InputError(f"{self.path} is not a run directory: {why}")
        try:
            content = tomllib.loads(self.settings_file.read_text(encoding="utf-8"))
            facts = content.pop("run")
        except (OSError, KeyError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise InputError(f"{self.path} is not a run directory: {self.settings_file}: {error}") from error
        return content, facts

    def write_settings(self, settings: dict[str, Any], facts: dict[str, Any]) -> None:
        """Write ``run.toml`` at once: the resolved settings, and the facts about the run."""
        write_whole(self.settings_file, tomli_w.dumps({**settings, "run": facts}))

    # ------------------------------------------------------------------ metrics

    def metrics_file(self, chain: int) -> Path:
        """File that a chain appends its metrics to."""
        return self.path / ("metrics.jsonl" if chain == 0 else f"metrics-chain-{chain}.jsonl")

    def split_metrics(self) -> None:
        """Give every chain a file of its own again, before any goes on: their processes do not know of each other."""
        chains: dict[int, dict[int, dict[str, Any]]] = {}
        for line in self.metrics():
            chains.setdefault(line["chain"], {})[line["iteration"]] = line
        for chain in sorted(chains, reverse=True):  # the file of all is cut last
            write_whole(self.metrics_file(chain), _as_lines(list(chains[chain].values())))

    def cut_metrics(self, chain: int, iteration: int) -> None:
        """Keep of a chain's own file what was written up to `iteration`."""
        lines = [line for line in self.metrics(chain) if line["iteration"] <= iteration]
        write_whole(self.metrics_file(chain), _as_lines(lines))

    def metrics(self, only: int | None = None) -> list[dict[str, Any]]:
        """All metrics of the run (or of one chain's file), by chain; an unfinished last line is left out."""
        files = [self.metrics_file(only)] if only is not None else sorted(self.path.glob("metrics*.jsonl"))
        lines = [line for file in files for line in _lines(file)]
        return sorted(lines, key=lambda line: (line["chain"], line["iteration"]))

    def merge_metrics(self) -> None:
        """Put the metrics of all chains into ``metrics.jsonl``."""
        extra = sorted(self.path.glob("metrics-chain-*.jsonl"))
        if extra:
            write_whole(self.metrics_file(0), _as_lines(self.metrics()))
            for file in extra:
                file.unlink()

    # ------------------------------------------------------------------ events

    def note(self, event: str, **facts: Any) -> None:
        """Append what happened to ``events.jsonl``; by one process at a time."""
        line = {"time": now(), "event": event, **facts}
        with self._events.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def events(self) -> list[dict[str, Any]]:
        """What happened so far; an unfinished last line is left out."""
        return _lines(self._events)


def _lines(path: Path) -> list[dict[str, Any]]:
    """Objects of a file of JSON lines, without those that were cut off."""
    lines = []
    if path.exists():
        for text in path.read_text(encoding="utf-8").splitlines():
            with suppress(json.JSONDecodeError):
                lines.append(json.loads(text))
    return lines


def _as_lines(objects: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(line) + "\n" for line in objects)
