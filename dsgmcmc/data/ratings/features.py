"""Features of rows or columns in a ratings file: compressed sparse rows, with names and groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from dsgmcmc.data.ratings.format import find_bad_cells
from dsgmcmc.types import Array, Float32, Int32, Int64

Side = Literal["rows", "cols"]
SIDES: tuple[Side, Side] = ("rows", "cols")

MAX_FEATURES = 1_000_000


@dataclass(frozen=True)
class Features:
    """Features of all rows of a side, or of a range of them.

    Attributes
    ----------
    indptr : (n + 1,) int64, starting at 0
        A row without any entry has features that are unknown: it is taken to be like the average row.
    indices : (nnz,) int32, ascending in each row
    values : (nnz,) float32
    names : (F,) of str
    groups : (F,) of str
        The column of the source that each was made from; features of a group share their prior's strength.
    encoding : str
        How they were made, so that those of new rows can be made alike; empty where that is not known. No part of the
        data's identity.
    """

    indptr: Int64
    indices: Int32
    values: Float32
    names: tuple[str, ...]
    groups: tuple[str, ...]
    encoding: str = ""

    @property
    def size(self) -> int:
        """Number F of features."""
        return len(self.names)

    def datasets(self, side: Side) -> dict[str, Array]:
        """What is stored, by data set; of the encoding only where it is known, as UTF-8."""
        arrays: dict[str, Array] = {"indptr": self.indptr, "indices": self.indices, "values": self.values}
        for name, texts in (("names", self.names), ("groups", self.groups)):
            arrays[name] = np.array([text.encode() for text in texts], "S")
        if self.encoding:
            arrays["encoding"] = np.frombuffer(self.encoding.encode(), np.uint8)
        return {f"{side}/features/{name}": array for name, array in arrays.items()}


class StoredFeatures:
    """The features of one side, of n rows or columns, in an open ratings file, checked.

    `dataset` gives a data set of a name, a length (None: any) and a type (None: text) once it is known to be sound;
    `encoded`: whether the encoding is stored, too. Raises ValueError if they contradict themselves.

    Attributes
    ----------
    names, groups : (F,) of str
    encoding : str
    indptr : (n + 1,) int64
    """

    def __init__(
        self, side: Side, n: int, dataset: Callable[[str, int | None, type | None], Any], encoded: bool
    ) -> None:
        self._where = f"{side}/features"
        names = dataset(f"{self._where}/names", None, None)
        if not 0 < len(names) <= MAX_FEATURES:
            raise ValueError(f"/{self._where} has {len(names)} features: expected 1 to {MAX_FEATURES}")
        groups = dataset(f"{self._where}/groups", len(names), None)
        if {names.dtype.kind, groups.dtype.kind} != {"S"}:
            raise ValueError(f"names and groups in /{self._where} are not text")
        self.names, self.groups = (tuple(text.decode() for text in data[:].tolist()) for data in (names, groups))
        if len(set(self.names)) < len(self.names):
            raise ValueError(f"/{self._where}/names has a name twice")
        text = dataset(f"{self._where}/encoding", None, np.uint8)[:].tobytes() if encoded else b""
        self.encoding = text.decode()
        self.indptr: Int64 = dataset(f"{self._where}/indptr", n + 1, np.int64)[:]
        self._indices = dataset(f"{self._where}/indices", None, np.int32)
        self._values = dataset(f"{self._where}/values", len(self._indices), np.float32)
        if self.indptr[0] != 0 or self.indptr[-1] != len(self._indices) or (np.diff(self.indptr) < 0).any():
            raise ValueError(f"/{self._where}/indptr does not rise from 0 to {len(self._indices)}")

    def slab(self, start: int, stop: int) -> Features:
        """Features of a range of rows.

        Raises ValueError if there are indices out of range or order, or values that are not finite.
        """
        indptr = self.indptr[start : stop + 1]
        cells = slice(int(indptr[0]), int(indptr[-1]))
        features = Features(indptr - indptr[0], self._indices[cells], self._values[cells], self.names, self.groups)
        bad = find_bad_cells(features.indptr, features.indices, features.values, features.size)
        if bad:
            raise ValueError(f"/{self._where} has {bad} in rows {start} to {stop}")
        return features
