"""Compressed files: gzip and bzip2, a zip archive of one file, and an Excel sheet, which is unpacked to CSV."""

from __future__ import annotations

import bz2
import gzip
import io
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Literal, cast

from dsgmcmc.data.ingest.excel import WORKBOOK, sheet_as_csv
from dsgmcmc.errors import InputError

Packing = Literal["", "gzip", "bzip2", "zip", "Excel"]

#: What is raised where something is not what it begins like.
DAMAGED = (OSError, EOFError, zlib.error, zipfile.BadZipFile, NotImplementedError)
SAMPLE = 1 << 16
LONGEST = 1 << 21  # characters of a line; DuckDB reads no longer ones
_BLOCK = 1 << 20
_MAGIC: dict[bytes, Packing] = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"PK\x03\x04": "zip", b"PK\x05\x06": "zip"}


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


def packed_how(path: Path) -> Packing:
    """How a file is compressed, by its content; "" for not."""
    head = read_head(path)
    packed = next((name for magic, name in _MAGIC.items() if head.startswith(magic)), "")
    return "Excel" if packed == "zip" and WORKBOOK in zipped(path) else cast("Packing", packed)


def unpacked(path: Path, packed: Packing) -> IO[bytes]:
    """Open the content of a file. Raises InputError, or one of `DAMAGED`."""
    if packed == "gzip":
        return cast("IO[bytes]", gzip.open(path))
    if packed == "bzip2":
        return bz2.open(path)
    if packed == "Excel":
        return sheet_as_csv(path)
    if packed == "zip":
        member = only_member(path)
        with zipfile.ZipFile(path) as archive:  # the file itself is closed with the member
            return archive.open(member)  # reads no more than the size that the archive declares
    return path.open("rb")


def zipped(path: Path) -> list[str]:
    """Names of what a zip archive holds; none if a file is no such archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    except DAMAGED:
        return []


def only_member(path: Path) -> zipfile.ZipInfo:
    """Return the one file that a zip archive holds. Raises InputError if there are several, or it is encrypted."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = [info for info in archive.infolist() if not info.is_dir() and "__MACOSX/" not in info.filename]
    except DAMAGED as error:
        raise InputError(f"{path} is not a whole zip file: {error}") from error
    if len(members) != 1:
        first = ", ".join(info.filename for info in members[:3]) + ", ..." * (len(members) > 3)
        found = f"{len(members)} files ({first})" if members else "no file"
        raise InputError(f"{path} is a zip archive of {found}: unpack it, and give the file that is wanted")
    if members[0].flag_bits & 1:
        raise InputError(f"{path} is an encrypted zip archive: unpack it first")
    return members[0]


def blocks(path: Path, packed: Packing, lines: bool = True) -> Iterator[bytes]:
    """Yield the content of a compressed file, a megabyte at a time, up to where it holds nothing or is damaged.

    Raises InputError if it is damaged, a few bytes of it stand for megabytes of white space, or, where it consists of
    `lines`, the last one is too long.
    """
    end = b""
    try:
        with unpacked(path, packed) as file:
            while block := file.read(_BLOCK):
                if len(block) == _BLOCK and not block.strip(b"\0 \t\r\n"):
                    raise InputError(f"{path} holds a megabyte of empty lines, spaces or zero bytes: remove them")
                end = (end + block)[-LONGEST:]
                yield block
        if lines:
            refuse_long_end(path, end)
    except DAMAGED as error:
        raise InputError(f"{path} is not a whole {packed} file: {error}") from error


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


@contextmanager
def readable(path: Path, packed: Packing, lines: bool = True) -> Iterator[Path]:
    """Give a file that DuckDB reads: of gzip it looks at no checksum, and others are unpacked to a temporary file.

    `lines`: whether it consists of lines, see `blocks`.
    """
    if packed == "gzip":
        for _ in blocks(path, packed, lines):
            pass
    elif not packed and lines:
        refuse_long_end(path)
    if packed in ("", "gzip"):
        yield path
        return
    with tempfile.NamedTemporaryFile(prefix="dsgmcmc-", suffix=path.stem) as file:
        folder = Path(file.name).parent
        if packed == "zip" and (size := only_member(path).file_size) > (free := shutil.disk_usage(folder).free):
            raise InputError(
                f"{path} unpacks to {size / 1e6:,.0f} MB, and {folder} has {free / 1e6:,.0f} MB left: unpack it where "
                "there is room"
            )
        try:
            file.writelines(blocks(path, packed, lines))
            file.flush()
        except OSError as error:
            raise InputError(f"{path} cannot be unpacked in {folder}: {error.strerror}") from error
        yield Path(file.name)
