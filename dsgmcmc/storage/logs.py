"""The logs of a run, ``metrics.jsonl`` and ``events.jsonl``: one JSON object a line, which ends with its checksum.

Its last member, ``crc32``, is of the text before. A process that was killed
may leave the last line unfinished: readers leave it out, and the next job cuts it off before it appends. A line that is
damaged anywhere else is an error. In the events, to which processes of several hosts append, and not all file systems
keep their lines apart, it becomes an event itself: ``dsgmcmc verify`` refuses it until the next job has written that.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dsgmcmc.errors import InputError, naming
from dsgmcmc.storage.files import open_plain, write_whole

MAX_LINE_BYTES = 1 << 16
MAX_METRICS_BYTES, MAX_EVENTS_BYTES = 1 << 25, 1 << 22
MAX_COMMAND = 4096  # characters, of which each takes 12 bytes at most

Line = dict[str, Any]

_SEAL = re.compile(rb', "crc32": "([0-9a-f]{8})"\}')
_SEAL_BYTES = len(', "crc32": "01234567"}')


class MetricsLine(BaseModel):
    """A line of ``metrics.jsonl``: where the chain was, and numbers that target and sampler report by name."""

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


def sealed(line: Line) -> bytes:
    """Text of a line, with its checksum."""
    body = json.dumps(line)[:-1].encode()
    return b'%b, "crc32": "%08x"}\n' % (body, zlib.crc32(body))


def append(path: Path, line: Line) -> None:
    """Append a line to a log; raises OSError, also where the log is a link to another file."""
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    with naming(path), os.fdopen(handle, "r+b", buffering=0) as file:
        _cut_unfinished(file)
        text = sealed(line)
        while text:
            text = text[file.write(text) :]


def _cut_unfinished(file: IO[bytes]) -> None:
    """Cut off the partial line that a failed write has left."""
    size = file.seek(0, os.SEEK_END)
    if size and os.pread(file.fileno(), 1, size - 1) != b"\n":
        end = os.pread(file.fileno(), MAX_LINE_BYTES, max(0, size - MAX_LINE_BYTES))
        file.truncate(size - len(end) + end.rfind(b"\n") + 1)


def parse_line(text: bytes, schema: type[BaseModel]) -> Line:
    """Read a line; raises ValueError if it is damaged, or does not match the schema."""
    text = text.rstrip(b"\n")
    body, end = text[:-_SEAL_BYTES], _SEAL.fullmatch(text[-_SEAL_BYTES:])
    if not end or int(end[1], 16) != zlib.crc32(body):
        raise ValueError("it does not match its own checksum")
    try:
        return schema.model_validate_json(body + b"}").model_dump(exclude_unset=True)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        raise ValueError(": ".join([*map(str, first["loc"][:1]), first["msg"]])) from None


def read_log(path: Path, schema: type[BaseModel], most: int, *, strict: bool = True) -> Iterator[tuple[bytes, Line]]:
    """Lines of a log, as text and parsed; an unfinished last one is left out.

    No log is an empty one; it can have `most` bytes. Unless `strict`, a damaged line is no error: an event says that
    there is one. Raises InputError naming the line that is damaged, or saying why the log cannot be read.
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
                yield text if whole else text + b"\n", parse_line(text, schema)
            except ValueError as error:
                torn = not whole and not file.peek(1)
                if not strict and not torn:
                    event = {"time": "", "event": "damaged line", "line": number}
                    yield sealed(event), event
                elif not torn:
                    raise InputError(
                        f"{path}, line {number}, is damaged ({error}): restore the file, or move it away to go on "
                        "without what was logged"
                    ) from error


def mend(path: Path, schema: type[BaseModel], most: int, *, strict: bool = True) -> None:
    """Cut off an unfinished last line, so that the next one can be appended; damaged events become an event each.

    Raises InputError as `read_log`; or if the log is a link, through which a job would write elsewhere.
    """
    if path.is_symlink():
        raise InputError(f"{path} is a link: put the file itself there, or move the link away")
    whole = b"".join(text for text, _ in read_log(path, schema, most, strict=strict))
    if path.exists() and whole != path.read_bytes():
        write_whole(path, [whole])
