"""The logs of a run, ``metrics.jsonl`` and ``events.jsonl``: one JSON object per line.

A process that was killed may leave the last line unfinished: readers skip this line, and the next job removes it before
it appends. Any other damaged line of metrics is an error. Damaged events are skipped, because processes on several
hosts append events, and some file systems mix their lines.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dsgmcmc.errors import InputError, naming
from dsgmcmc.storage.files import open_plain, write_whole

MAX_LINE_BYTES = 1 << 16
MAX_METRICS_BYTES, MAX_EVENTS_BYTES = 1 << 25, 1 << 22
MAX_COMMAND = 4096  # characters, of at most 12 bytes each in JSON

Line = dict[str, Any]


class MetricsLine(BaseModel):
    """A line of ``metrics.jsonl``: state of the chain, and values that target and sampler report by name."""

    model_config = ConfigDict(strict=True, extra="allow")
    __pydantic_extra__: dict[str, float | str | None] = Field(init=False)

    chain: int = Field(ge=0, lt=65536)
    iteration: int = Field(ge=0, lt=1 << 63)
    sweep: float
    time_s: float
    rmse: float | None = None
    rmse_mean: float | None = None


class EventLine(BaseModel):
    """A line of ``events.jsonl``: an event, its time, and facts by name."""

    model_config = ConfigDict(strict=True, extra="allow")

    time: str
    event: str
    command: str = Field("", max_length=MAX_COMMAND)
    processes: int = Field(1, ge=1, lt=1 << 31)


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


def parse_line(text: bytes, schema: type[BaseModel]) -> Line:
    """Parse a line; raises ValueError if the line is no JSON or does not match the schema."""
    try:
        return schema.model_validate_json(text).model_dump(exclude_unset=True)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        raise ValueError(": ".join([*map(str, first["loc"][:1]), first["msg"]])) from None


def read_log(path: Path, schema: type[BaseModel], most: int, *, strict: bool = True) -> Iterator[tuple[bytes, Line]]:
    """Yield the lines of a log of at most `most` bytes, as text and parsed, without an unfinished last line.

    A missing log has no lines. Unless `strict`, other damaged lines are skipped, too. Raises InputError naming the
    damaged line, or if the log cannot be read.
    """
    try:
        file = open_plain(path, most)
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    with file:
        number = 0
        while text := file.readline(MAX_LINE_BYTES):
            number += 1
            whole = text.endswith(b"\n")
            try:
                line = parse_line(text, schema)
            except ValueError as error:
                torn = not whole and not file.peek(1)
                if strict and not torn:
                    raise InputError(
                        f"{path}, line {number}, is damaged ({error}): restore the file, or move it away to go on "
                        "without what was logged"
                    ) from error
            else:
                yield text if whole else text + b"\n", line


def mend(path: Path, schema: type[BaseModel], most: int, *, strict: bool = True) -> None:
    """Remove the lines that `read_log` skips, so that new lines can be appended.

    Raises InputError as `read_log`, and if the log is a link, through which a job would write elsewhere.
    """
    if path.is_symlink():
        raise InputError(f"{path} is a link: put the file itself there, or move the link away")
    whole = b"".join(text for text, _ in read_log(path, schema, most, strict=strict))
    if path.exists() and whole != path.read_bytes():
        write_whole(path, [whole])
