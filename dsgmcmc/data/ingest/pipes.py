"""Pipes, which are copied to files first because they are read more than once."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from os import PathLike
from pathlib import Path

from dsgmcmc.data.ingest.npz import is_npz
from dsgmcmc.data.ingest.packed import DAMAGED, unpacked
from dsgmcmc.errors import InputError

#: How a file begins, and the suffix of such; others are taken for text.
BEGINNINGS = {b"PAR1": ".parquet", b"%%MatrixMarket": ".mtx", b"{": ".jsonl", b"[": ".json"}
STDIN = "standard input"


def is_pipe(name: str) -> bool:
    """Whether a name stands for what can be read once: ``-``, a pipe, or what a shell calls ``/dev/fd/63``."""
    return name in ("-", "/dev/stdin") or name.startswith("/dev/fd/") or Path(name).is_fifo()


def copy_pipe(name: str, folder: Path) -> Path:
    """Copy what comes through a pipe, or by ``-`` standard input, to a file whose suffix says what it is.

    Raises InputError if it cannot be read, or there is no room for it.
    """
    called = "stdin" if shown(name) == STDIN else f"pipe-{Path(name).name}"
    try:
        copy = Path(tempfile.mkdtemp(dir=folder)) / called
        with nullcontext(sys.stdin.buffer) if name == "-" else Path(name).open("rb") as given, copy.open("wb") as file:
            shutil.copyfileobj(given, file)
        return copy.rename(copy.with_name(called + _suffix(copy)))
    except OSError as error:
        raise InputError(f"{shown(name)} cannot be read, or copied to {folder}: {error.strerror}") from error


def shown(name: str) -> str:
    """Name of a pipe in messages."""
    return STDIN if name in ("-", "/dev/stdin") else name


class Copies:
    """Copies of pipes, by the names that were given."""

    def __init__(self, copies: dict[str, Path]) -> None:
        self._copies = copies

    def of(self, given: str | PathLike[str]) -> Path:
        """The copy of a pipe; what is none, as it is."""
        return self._copies.get(str(given), Path(given))

    def named(self, text: str) -> str:
        """Put what was given in the place of the copies' names; in errors it is done."""
        for name, copy in self._copies.items():
            text = text.replace(str(copy), shown(name)).replace(copy.name, shown(name))
        return text


@contextmanager
def at_rest(names: Sequence[str | PathLike[str] | None], folder: Path | None = None) -> Iterator[Copies]:
    """Give files in the place of pipes, as long as the context lasts; `folder`: where copies lie meanwhile.

    Raises InputError if standard input is given twice, or a pipe cannot be copied.
    """
    pipes = [str(name) for name in names if name is not None and is_pipe(str(name))]
    if len({shown(name) for name in pipes}) < len(pipes):
        raise InputError(f"{shown(pipes[0])} is given twice, but can be read only once")
    if not pipes:
        yield Copies({})
        return
    try:
        scratch = tempfile.TemporaryDirectory(prefix=".dsgmcmc-pipes-", dir=folder)
    except OSError as error:
        raise InputError(f"cannot write in the folder {folder}: {error.strerror}") from error
    with scratch:
        copies = Copies({name: copy_pipe(name, Path(scratch.name)) for name in pipes})
        try:
            yield copies
        except InputError as error:
            raise InputError(copies.named(str(error))) from error


def _suffix(path: Path) -> str:
    if not path.stat().st_size:
        return ".csv"
    if is_npz(path):
        return ".npz"
    try:
        with unpacked(path) as content:
            head = content.read(64)
    except (InputError, *DAMAGED):
        return ".csv"  # whoever reads it says what is wrong
    head = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    return next((suffix for start, suffix in BEGINNINGS.items() if head.startswith(start)), ".csv")
