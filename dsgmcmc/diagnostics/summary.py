"""Read and write ``summary.json``, the results and times of a job.

This file and ``comparison.json`` are JSON with a checksum.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dsgmcmc.errors import InputError
from dsgmcmc.storage.files import open_plain, write_whole
from dsgmcmc.storage.manifest import seal, unseal

MAX_BYTES = 1 << 22


def save_summary(path: Path, summary: dict[str, Any]) -> None:
    """Write a summary and its checksum; raises OSError."""
    write_whole(path, seal(json.dumps(summary, indent=1)))


def read_summary(path: Path) -> dict[str, Any]:
    """Read a summary. Raises InputError if it is damaged or not a summary, and FileNotFoundError if there is none."""
    try:
        with open_plain(path, MAX_BYTES) as file:
            summary: dict[str, Any] = json.loads(unseal(file.read().decode(), path))
    except (FileNotFoundError, InputError):
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    return summary


@contextmanager
def as_written(path: Path) -> Iterator[None]:
    """Context in which a summary is used: errors that its contents cause become InputError."""
    try:
        yield
    except InputError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        why = f"{type(error).__name__}: {error}"
        raise InputError(f"{path} is not the summary of a run ({why}); move it away, or sample again") from error
