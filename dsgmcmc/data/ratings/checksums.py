"""Checksums of a ratings file: of every piece of every data set, and a seal over them and the attributes.

A process that reads a range of rows checks the pieces that it touches, no more. A piece is summed, modulo 2^64, line by
line of 509 words of 8 bytes, and its checksum is the CRC-32 of the sum: a fraction of the cost of a CRC of everything.
Changes within a line's length are found as by CRC-32; of changes further apart, those that cancel, in the same bit of
the same word of two lines. 509 is a prime, so that sectors and pages that are lost, or swapped, do not.

Sums tell damage, not malice: whoever changes a file on purpose can change its sums as well.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from dsgmcmc.data.ratings.format import little_endian
from dsgmcmc.types import Array, UInt32

WORDS = 509  # of a line
PIECE = 4 * WORDS * 8  # entries, however long: whole lines


def pieces(length: int) -> int:
    """Number of pieces of a data set."""
    return -(-length // PIECE)


def piece_sums(array: Array) -> UInt32:
    """Checksums of the pieces of an array of one dimension; the last piece is filled up with zeros."""
    data, size = np.asarray(little_endian(array)), PIECE * array.itemsize
    parts = [data[: len(data) // size * size]]
    if rest := len(data) % size:
        parts.append(np.concatenate([data[-rest:], np.zeros(size - rest, np.uint8)]))
    checksums = []
    for part in parts:
        lines = part.view("<u8").reshape(-1, 4 * array.itemsize, WORDS)
        sums = little_endian(lines.sum(axis=1, dtype=np.uint64).ravel())
        checksums += [zlib.crc32(sums[k : k + 8 * WORDS]) for k in range(0, len(sums), 8 * WORDS)]
    return np.array(checksums, np.uint32)


class Checksums:
    """Checksums of an array that arrives part by part."""

    def __init__(self) -> None:
        self._found: list[UInt32] = []
        self._rest: list[Array] = []

    def update(self, array: Array) -> None:
        """Add the next entries."""
        entries = np.concatenate([*self._rest, array])
        whole, rest = np.split(entries, [len(entries) // PIECE * PIECE])
        self._found.append(piece_sums(whole))
        self._rest = [rest.copy()]

    def values(self) -> UInt32:
        """Return them, (`pieces`,) uint32."""
        return np.concatenate([*self._found, *map(piece_sums, self._rest)])


class CheckedDataset:
    """A data set of one dimension whose pieces are checked as they are read, where they have checksums."""

    def __init__(self, data: Any, expected: UInt32 | None) -> None:
        self._data, self._expected = data, expected
        self.dtype: np.dtype[Any] = data.dtype

    def __len__(self) -> int:
        return len(self._data)

    def plain(self, cells: slice) -> Array:
        """Read a range of entries unchecked."""
        read: Array = self._data[cells]
        return read

    def __getitem__(self, cells: slice) -> Array:
        """Read a range of entries. Raises ValueError if they are not those that were written."""
        start, stop, _ = cells.indices(len(self))
        if self._expected is None:
            return self.plain(cells)
        first, last = start // PIECE, pieces(stop)
        read = self.plain(slice(first * PIECE, last * PIECE))
        wrong = np.flatnonzero(piece_sums(read) != self._expected[first:last])
        if len(wrong):
            damaged = (first + int(wrong[0])) * PIECE
            raise ValueError(
                f"{self._data.name} is damaged in entries {damaged} to {min(damaged + PIECE, len(self))}: copy the "
                "file again, or prepare it again"
            )
        return read[start - first * PIECE : stop - first * PIECE]


def seal(attributes: Mapping[str, Any], checksums: Mapping[str, UInt32]) -> str:
    """SHA-256 over the attributes and the checksums, by name."""
    total = hashlib.sha256()
    for name, value in sorted(attributes.items()):
        total.update(f"{name} {value!r}\n".encode())
    for name, values in sorted(checksums.items()):
        total.update(f"{name} {len(values)}\n".encode())
        total.update(little_endian(values))
    return total.hexdigest()
