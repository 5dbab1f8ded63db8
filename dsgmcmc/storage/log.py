"""Logs of a run: files with a JSON object in every line.

Readers skip damaged lines: a process that was killed may leave a partial line, and some file
systems mix the lines of several hosts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from dsgmcmc.errors import naming, refusing
from dsgmcmc.storage.files import read_plain

Line = dict[str, Any]  # a line of a log

MAX_LINE_BYTES = 1 << 16
MAX_LOG_BYTES = 1 << 25


def append(path: Path, line: Line) -> None:
    """Append a line to a log.

    Raises OSError if the line cannot be written, or if the log is a symbolic link.
    """
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    with naming(path), os.fdopen(handle, "r+b", buffering=0) as file:
        _cut_unfinished(file)
        text = json.dumps(line).encode() + b"\n"
        while text:
            text = text[file.write(text) :]


def _cut_unfinished(file: IO[bytes]) -> None:
    """Remove the partial line at the end of a log, if a failed write has left one."""
    size = file.seek(0, os.SEEK_END)
    if size and os.pread(file.fileno(), 1, size - 1) != b"\n":
        end = os.pread(file.fileno(), MAX_LINE_BYTES, max(0, size - MAX_LINE_BYTES))
        file.truncate(size - len(end) + end.rfind(b"\n") + 1)


def read_log(path: Path, is_line: Callable[[Line], bool]) -> list[Line]:
    """Return the lines of a log that are JSON objects and that `is_line` accepts.

    A missing log has no lines. Raises InputError if the log cannot be read.
    """
    with refusing(f"{path} cannot be read", OSError):
        try:
            content = read_plain(path, MAX_LOG_BYTES)
        except FileNotFoundError:
            return []
    lines = []
    for text in content.split(b"\n"):
        if len(text) >= MAX_LINE_BYTES:
            continue
        with suppress(ValueError, RecursionError):
            line = json.loads(text)
            if isinstance(line, dict) and is_line(line):
                lines.append(line)
    return lines


def is_metrics(line: Line) -> bool:
    """Whether a line has all required metrics, and all its values are numbers, texts or null."""
    return (
        all(isinstance(value, int | float | str | None) for value in line.values())
        and all(isinstance(line.get(name), int | float | None) for name in ("rmse", "rmse_mean"))
        and _has(line, chain=int, iteration=int, sweep=int | float, time_s=int | float)
    )


def is_event(line: Line) -> bool:
    """Whether a line has the texts ``time`` and ``event``, and valid facts of a job if any."""
    with_defaults = {"command": "", "processes": 1, **line}
    return _has(with_defaults, time=str, event=str, command=str, processes=int)


def _has(line: Line, **types: Any) -> bool:
    return all(isinstance(line.get(name), expected) for name, expected in types.items())
