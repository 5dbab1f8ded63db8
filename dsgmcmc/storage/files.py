"""Small files, written atomically and read up to a size limit; temporary folders."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import stat
import tempfile
import tomllib
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dsgmcmc.errors import InputError, naming, refusing
from dsgmcmc.parallel.signals import before_death
from dsgmcmc.settings import named

MAX_TOML_BYTES = 1 << 16
#: In a line; the parser's time and memory grow with the square of a dotted name's length.
MAX_TOML_DOTS = 200


def check_target(path: Path, force: bool) -> None:
    """Raise InputError if `path` cannot be written, or exists; with `force` it may be a file."""
    if not path.parent.exists():
        raise InputError(f"{path} cannot be written: the folder {path.parent} does not exist")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"{path} cannot be written: the folder {path.parent} is not writable")
    if path.is_file() and not force:
        raise InputError(f"{path} exists; give another name, or {named('force')} to replace it")
    if path.exists() and not path.is_file():
        raise InputError(f"{path} exists; give another name")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Context with a temporary path; the file that is made there then replaces `path`.

    After an error, it is removed.
    """
    temporary = path.with_name(f"{path.name}.tmp-{secrets.token_hex(4)}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        with suppress(OSError):  # it must not hide an earlier error
            temporary.unlink()


def write_file(path: Path, content: str | Iterable[bytes | memoryview]) -> None:
    """Write or replace a file atomically, and sync it: a reader finds the old or the new file.

    Raises OSError if the file cannot be written; no temporary file remains.
    """
    if isinstance(content, str):
        content = [content.encode()]
    with naming(path), replacing(path) as temporary, temporary.open("xb") as file:
        file.writelines(content)
        file.flush()
        os.fsync(file.fileno())


def sync(path: Path) -> None:
    """Flush a file or directory to its device."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        with suppress(OSError):  # whether the flush succeeded is known
            os.close(handle)


def remove_folder(path: Path) -> None:
    """Remove a temporary folder as far as possible, with a second attempt if the disk fails."""
    for _ in range(2):
        # `rmtree` raises errors of closing folders even if it ignores errors
        with suppress(OSError):
            shutil.rmtree(path, ignore_errors=True)


def read_plain(path: Path, max_bytes: int) -> bytes:
    """Read a regular file of at most `max_bytes` bytes.

    Raises InputError if the file is larger, or is a directory, a pipe or a device, and OSError if
    it is missing or cannot be opened.
    """
    # O_NONBLOCK: opening a pipe must not wait for its writer
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        os.close(handle)
        raise InputError(f"{path} is a directory, a pipe or a device: expected a file")
    if status.st_size > max_bytes:
        os.close(handle)
        raise InputError(f"{path} has {status.st_size:,} bytes, but may have at most {max_bytes:,}")
    with os.fdopen(handle, "rb") as file:
        return file.read(status.st_size)  # `read(max_bytes)` would allocate `max_bytes` at once


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file from an untrusted source. Raises InputError if it cannot be read."""
    with refusing(f"{path} cannot be read", OSError):
        data = read_plain(path, MAX_TOML_BYTES)
    with refusing(f"{path} cannot be read as TOML", ValueError, RecursionError):
        if any(line.count(b".") > MAX_TOML_DOTS for line in data.splitlines()):
            raise ValueError(f"a line has more than {MAX_TOML_DOTS} dots")
        return tomllib.loads(data.decode())


_SCRATCH = "dsgmcmc-"


def without_scratch(text: str) -> str:
    """Return a message about a model in memory, in which temporary files have no paths.

    The ratings file is X, and the run directory is the run.
    """
    folder = re.escape(str(Path(tempfile.gettempdir()) / _SCRATCH)) + r"\w+"
    text = re.sub(rf"{folder}/(ratings|other)[.]h5", "X", text)
    return re.sub(rf"{folder}/run\b", "the run", text)


class Scratch:
    """A temporary folder that is removed with this object or at the end of the process.

    Attributes
    ----------
    path : Path
        The folder.
    process : int
        The process that has made the folder; copies of it that are forked do not remove the folder.
    """

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=_SCRATCH))
        self.process = os.getpid()
        weakref.finalize(self, remove_folder, self.path)
        _scratches.add(self)


_scratches: weakref.WeakSet[Scratch] = weakref.WeakSet()


def _remove_scratches() -> None:
    """Remove the temporary folders of this process."""
    for scratch in list(_scratches):
        if scratch.process == os.getpid():
            remove_folder(scratch.path)


before_death(_remove_scratches)
