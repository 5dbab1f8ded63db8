"""Context of ratings in a ratings file: categorical columns besides users, items and times, such as a device.

Every rating has one category of each column. A value that is missing is a category of its own, whose name is empty.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dsgmcmc.data.ratings.format import SPLITS, Split
from dsgmcmc.types import Array, Float64, Int32, Int64

MAX_CATEGORIES = 1 << 20
_NAME = re.compile(r"\w[\w -]{0,63}")
_TEXT = "S"


def context_name(name: str) -> str:
    """Return the name of a column, if it can be one in options and in files: letters, digits, spaces, ``_`` and ``-``.

    Raises
    ------
    ValueError
        If it cannot.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a context column: letters, digits, spaces, _ and - make one")
    return name


@dataclass(frozen=True)
class Categories:
    """The categories of a column.

    Attributes
    ----------
    names : (C,) of str
        All different.
    edges : (E,) float64, ascending; or None
        Of numbers: category k has those above edge k - 1 and up to edge k. A last name, if there is one more than
        groups, is that of missing values.
    """

    names: tuple[str, ...]
    edges: Float64 | None = None

    @property
    def size(self) -> int:
        """Number C of categories."""
        return len(self.names)

    def codes(self, values: Sequence[str | None]) -> Int32:
        """Categories of values given as text, (n,) int32; -1 where there is none such."""
        if self.edges is not None:
            return np.array([self._of_number(value) for value in values], np.int32)
        number = {name: k for k, name in enumerate(self.names)}
        return np.array([number.get(value or "", -1) for value in values], np.int32)

    def _of_number(self, value: str | None) -> int:
        assert self.edges is not None
        try:
            number = float(value or "nan")
        except ValueError:
            return -1
        if np.isnan(number):
            return self.size - 1 if self.names[-1] == "" else -1
        return int(np.searchsorted(self.edges, number))

    def datasets(self, name: str) -> dict[str, Array]:
        """What is stored of a column of this name, by data set."""
        texts = np.array([each.encode() for each in self.names], _TEXT)
        edges = np.zeros(0) if self.edges is None else self.edges
        return {f"context/{name}/names": texts, f"context/{name}/edges": edges}


class StoredContext:
    """The context columns of an open ratings file, whose rows' ratings begin at `indptr` by part; checked.

    `dataset` gives a data set of a name, a length (None: any) and a type (None: text) once it is known to be sound;
    `names` are those of the columns. Raises ValueError if they contradict themselves.

    Attributes
    ----------
    columns : dict of str to Categories
    """

    def __init__(
        self,
        indptr: Mapping[str, Int64],
        dataset: Callable[[str, int | None, type | None], Any],
        names: Sequence[str],
        wrong: Callable[[str], Exception],
    ) -> None:
        self._indptr, self._wrong = indptr, wrong
        self._data: dict[str, Any] = {}
        self.columns: dict[str, Categories] = {}
        for column in names:
            where = f"context/{context_name(column)}"
            stored = dataset(f"{where}/names", None, None)
            if not 0 < len(stored) <= MAX_CATEGORIES or stored.dtype.kind != _TEXT:
                raise ValueError(f"/{where}/names has {len(stored)} categories, or no text")
            texts = tuple(text.decode() for text in stored[:].tolist())
            edges = dataset(f"{where}/edges", None, np.float64)[:]
            if len(set(texts)) < len(texts):
                raise ValueError(f"/{where}/names has a name twice")
            if not (np.isfinite(edges).all() and (np.diff(edges) > 0).all()):
                raise ValueError(f"/{where}/edges do not ascend")
            if len(edges) and len(texts) - len(edges) - 1 not in (0, 1):
                raise ValueError(f"/{where} has {len(edges)} edges for {len(texts)} categories")
            self.columns[column] = Categories(texts, edges if len(edges) else None)
            for part in SPLITS:
                name = f"{part}/context/{column}"
                self._data[name] = dataset(name, int(indptr[part][-1]), np.int32)

    def slab(self, column: str, part: Split, start: int, stop: int) -> Int32:
        """Read the categories of the ratings in rows `start` to `stop` of a part, (m,) int32.

        Raises InputError if they cannot be read, or there is no such category.
        """
        name, indptr = f"{part}/context/{column}", self._indptr[part]
        try:
            codes: Int32 = self._data[name][int(indptr[start]) : int(indptr[stop])]
        except (OSError, RuntimeError, ValueError) as error:
            raise self._wrong(f"/{name} cannot be read ({error})") from error
        if len(codes) and not 0 <= codes.min() <= codes.max() < self.columns[column].size:
            raise self._wrong(f"/{name} has numbers outside 0..{self.columns[column].size - 1}")
        return codes

    def datasets(self, part: Split, start: int, stop: int) -> Iterator[tuple[str, Int32]]:
        """All that is stored of the ratings in some rows of a part, by data set; raises as `slab`."""
        for column in self.columns:
            yield f"{part}/context/{column}", self.slab(column, part, start, stop)


#: Of ratings without any.
NO_CONTEXT = StoredContext({}, lambda *_: None, (), ValueError)
