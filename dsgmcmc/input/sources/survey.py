"""Reads SPSS's .sav and Stata's .dta files, by pyreadstat: values, not their labels.

Values that the file declares missing are missing: ranges and codes of SPSS, .a to .z of Stata.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dsgmcmc.errors import refusing
from dsgmcmc.input.sources.base import Source
from dsgmcmc.input.sources.labelled import (
    library,
    refuse_cells,
    refuse_unstored,
    refuse_variable,
    table_of_columns,
)
from dsgmcmc.ratings.reading import Reading
from dsgmcmc.types import Array


def is_stata(head: bytes) -> bool:
    """Whether a file begins as Stata's of the versions 8 and later do."""
    return head.startswith(b"<stata_dta>") or (
        head[:1] in (b"\x71", b"\x72", b"\x73") and head[1:3] in (b"\x01\x01", b"\x02\x01")
    )


def read_survey(path: Path, choice: Reading, limit: int, *, stata: bool) -> Source:
    """Return the table in a file."""
    pyreadstat = library("pyreadstat", path)
    refuse_variable(path, choice)
    refuse_unstored(path, choice)
    read = pyreadstat.read_sav
    if stata:
        read = pyreadstat.read_dta
    # its errors have no common type
    with refusing(f"{path} cannot be read", Exception):
        _, facts = read(str(path), metadataonly=True)
    refuse_cells(path, (facts.number_rows or 0, facts.number_columns or 0), limit)
    with refusing(f"{path} cannot be read", Exception):
        frame, _ = read(str(path))
    return table_of_columns(path, {str(name): column_of(frame[name]) for name in frame.columns})


def column_of(column: Any) -> Array:
    """Return a column of pandas as numbers, or as texts with None; dates become texts."""
    missing = np.asarray(column.isna())
    if column.dtype.kind in "iufb" and not missing.any():
        return np.asarray(column)
    if column.dtype.kind in "iufb":
        return np.asarray(column, np.float64)
    texts = np.array([str(value) for value in column], object)
    blank = np.array([not text.strip() for text in texts], bool)
    texts[missing | blank] = None
    return texts
