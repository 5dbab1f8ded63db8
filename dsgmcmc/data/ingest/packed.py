"""Files that gzip has compressed, and what DuckDB does not notice of them."""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path
from typing import IO, cast

from dsgmcmc.errors import InputError

#: What is raised where something is not what it begins like.
DAMAGED = (OSError, EOFError, zlib.error)
SAMPLE = 1 << 16
LONGEST = 1 << 21  # characters of a line; DuckDB reads no longer ones
_BLOCK = 1 << 20


def read_head(path: Path) -> bytes:
    """Return the first bytes of a file that is not empty."""
    try:
        with path.open("rb") as file:
            head = file.read(SAMPLE)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    if not head:
        raise InputError(f"{path} is empty")
    return head


def is_packed(path: Path) -> bool:
    """Whether a file is compressed by gzip, by its content."""
    return read_head(path).startswith(b"\x1f\x8b")


def unpacked(path: Path) -> IO[bytes]:
    """Open the content of a file. Raises one of `DAMAGED`."""
    return cast("IO[bytes]", gzip.open(path)) if is_packed(path) else path.open("rb")


def check_packed(path: Path, lines: bool = True) -> None:
    """Read a compressed file once: DuckDB looks at no checksum.

    Raises InputError if it is damaged, a few bytes of it stand for megabytes of white space, or, where it consists of
    `lines`, the last one is too long.
    """
    end = b""
    try:
        with unpacked(path) as file:
            while block := file.read(_BLOCK):
                if len(block) == _BLOCK and not block.strip(b"\0 \t\r\n"):
                    raise InputError(f"{path} holds a megabyte of empty lines, spaces or zero bytes: remove them")
                end = (end + block)[-LONGEST:]
        if lines:
            refuse_long_end(path, end)
    except DAMAGED as error:
        raise InputError(f"{path} is not a whole gzip file: {error}") from error


def refuse_long_end(path: Path, end: bytes | None = None) -> None:
    """Refuse text whose last line is longer than DuckDB reads, as it leaves out such a line without a word.

    `end` is that of the content, where it is not that of the file.
    """
    if end is None:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, io.SEEK_END) - LONGEST))
            end = file.read()
    if len(end) == LONGEST and b"\n" not in end and b"\r" not in end:
        raise InputError(f"{path} is no table: its last line has more than {LONGEST:,} bytes")


def check(path: Path, lines: bool = True) -> None:
    """Refuse what DuckDB would not: damaged compression, and, of a file of `lines`, a last one that is too long."""
    if is_packed(path):
        check_packed(path, lines)
    elif lines:
        refuse_long_end(path)
