"""A matrix in a file, whose rows are checked when they are first used.

The file is that of `numpy.save`, then the SHA-256 of every row, and that of type, shape and these
hashes. A user needs few of the rows, and checking all of them would take longer than the answer.
"""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.storage.files import write_file
from dsgmcmc.types import Array, Int64

_HASH_BYTES = 32


def write_rows(path: Path, matrix: Array) -> None:
    """Write a C-contiguous matrix, and the hashes of its rows, as `write_file` does."""
    content = io.BytesIO()
    np.save(content, matrix, allow_pickle=False)
    hashes = b"".join(hashlib.sha256(row.data).digest() for row in matrix)
    write_file(path, [content.getbuffer(), hashes, _total(matrix, hashes)])


class CheckedRows:
    """A matrix that `write_rows` wrote, mapped into memory; changes stay in memory.

    Raises InputError if the hashes are damaged, ValueError if this is another file, and OSError if
    it cannot be read.

    Attributes
    ----------
    matrix : (n, m) array
        Use only rows that have been checked.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        matrix = np.lib.format.open_memmap(path, mode="c")
        stored = np.memmap(path, np.uint8, "r")[matrix.offset + matrix.nbytes :].tobytes()
        hashes = stored[:-_HASH_BYTES]
        fits = matrix.ndim == 2 and len(hashes) == _HASH_BYTES * len(matrix)
        if not fits or _total(matrix, hashes) != stored[-_HASH_BYTES:]:
            raise InputError(f"{path} is damaged: it does not match its own checksum")
        self.matrix: Array = np.asarray(matrix)
        self._hashes = hashes
        self._is_checked = np.zeros(len(matrix), bool)

    def check(self, rows: Int64) -> None:
        """Check rows that have not yet been checked. Raises InputError if one is damaged."""
        is_used = np.zeros(len(self.matrix), bool)
        is_used[rows] = True
        for row in np.flatnonzero(is_used & ~self._is_checked).tolist():
            start = row * _HASH_BYTES
            expected = self._hashes[start : start + _HASH_BYTES]
            if hashlib.sha256(self.matrix[row].data).digest() != expected:
                raise InputError(f"{self._path} is damaged: row {row} does not match its checksum")
            self._is_checked[row] = True


def _total(matrix: Array, hashes: bytes) -> bytes:
    """Return the hash of the type and shape of a matrix, and the hashes of its rows."""
    return hashlib.sha256(f"{matrix.dtype.str} {matrix.shape}\n".encode() + hashes).digest()
