"""The logs of a run, ``metrics.jsonl`` and ``events.jsonl``: one JSON object per line.

Logs are not part of the chain. A reader skips a damaged line: a process that was killed may leave a torn line, and some
file systems mix the lines of several hosts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from dsgmcmc.errors import InputError, naming
from dsgmcmc.storage.files import open_plain

MAX_LINE_BYTES = 1 << 16
MAX_LOG_BYTES = 1 << 25

Line = dict[str, Any]


def append(path: Path, line: Line) -> None:
    """Append a line to a log; raises OSError, also if the log is a link."""
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    with naming(path), os.fdopen(handle, "r+b", buffering=0) as file:
        _cut_unfinished(file)
        text = json.dumps(line).encode() + b"\n"
        while text:
            text = text[file.write(text) :]


def _cut_unfinished(file: IO[bytes]) -> None:
    """Remove the partial line that a failed write has left."""
    size = file.seek(0, os.SEEK_END)
    if size and os.pread(file.fileno(), 1, size - 1) != b"\n":
        end = os.pread(file.fileno(), MAX_LINE_BYTES, max(0, size - MAX_LINE_BYTES))
        file.truncate(size - len(end) + end.rfind(b"\n") + 1)


def read_log(path: Path, is_line: Callable[[Line], bool]) -> list[Line]:
    """Read the lines of a log that are JSON objects and that `is_line` accepts; a missing log has none.

    Raises InputError if the log cannot be read.
    """
    try:
        with open_plain(path, MAX_LOG_BYTES) as file:
            texts = file.read(MAX_LOG_BYTES).split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    lines = []
    for text in texts:
        with suppress(ValueError, RecursionError):
            line = json.loads(text) if len(text) < MAX_LINE_BYTES else None
            if isinstance(line, dict) and is_line(line):
                lines.append(line)
    return lines


def is_metrics(line: Line) -> bool:
    """Whether a line has what a line of metrics must have, and numbers or texts beside it."""
    plain = all(isinstance(value, int | float | str | None) for value in line.values())
    numbers = all(isinstance(line.get(name, None), int | float | None) for name in ("rmse", "rmse_mean"))
    return plain and numbers and _has(line, chain=int, iteration=int, sweep=int | float, time_s=int | float)


def is_event(line: Line) -> bool:
    """Whether a line has what an event must have."""
    return _has({"command": "", "processes": 1, **line}, time=str, event=str, command=str, processes=int)


def _has(line: Line, **kinds: Any) -> bool:
    return all(isinstance(line.get(name), kind) for name, kind in kinds.items())
