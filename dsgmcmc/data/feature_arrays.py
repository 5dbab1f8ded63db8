"""Features in Python, as data frames, arrays or sparse matrices, written to files that `prepare` reads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from dsgmcmc.data.arrays import names_of
from dsgmcmc.data.columns import find_column
from dsgmcmc.data.features import Description
from dsgmcmc.data.session import identifier, literal
from dsgmcmc.errors import InputError
from dsgmcmc.types import Array


def write_features(given: Any, entity: str, folder: Path, separator: str = "|") -> Description:
    """Write features of users or items to a file in a folder.

    `given` may be the path of a file that ``prepare --user-features`` reads, which is used as it is; a SciPy sparse
    matrix, whose row numbers are the names; a data frame with the names in a column ``user`` (``item``), or in the
    index; or an array (n, 1 + F): names, then numbers. Raises InputError if it is anything else.
    """
    import scipy.sparse  # takes its time to import

    if isinstance(given, str | os.PathLike):
        return Description(Path(given))
    if scipy.sparse.issparse(given):
        path = folder / f"{entity}_features.npz"
        scipy.sparse.save_npz(path, scipy.sparse.csr_matrix(given))
        return Description(path)
    names, columns = _columns(given, entity)
    kinds = {}
    texts = {entity: np.array([str(name) for name in names.tolist()], dtype=object)}
    for label, column in columns.items():
        texts[label] = _texts(column, separator)
        if column.dtype.kind not in "iufb" and _all_numbers(texts[label]):
            kinds[label] = "category"  # numbers that are given as text are codes
    path = folder / f"{entity}_features.parquet"
    with duckdb.connect() as db:
        db.register("given", texts)
        cast = ", ".join(f"{identifier(label)}::VARCHAR AS {identifier(label)}" for label in texts)
        db.execute(f"COPY (SELECT {cast} FROM given) TO {literal(str(path))} (FORMAT parquet)")
    return Description(path, entity, kinds, separator)


def _columns(given: Any, entity: str) -> tuple[Array, dict[str, Array]]:
    """Names, and columns by their labels."""
    labels = getattr(given, "columns", None)
    if labels is None:
        array = np.asarray(given)
        if array.ndim != 2 or array.shape[1] < 2:
            raise InputError(f"{entity}_features: expected an array (n, 1 + F), names first; found {array.shape}")
        return names_of(array[:, 0], entity), {f"feature_{k}": array[:, k] for k in range(1, array.shape[1])}
    place = find_column(labels, entity)
    called = None if place is None else labels[place]
    if place is not None:
        names = np.asarray(given[called])
    else:
        names = np.asarray(given.index) if hasattr(given, "index") else np.arange(len(given))
    columns = {str(label): np.asarray(given[label]) for label in labels if label != called}
    if entity in columns or len({label.lower() for label in columns}) < len(columns):
        raise InputError(f"{entity}_features: two columns have the same name ({', '.join(columns)})")
    return names_of(names, entity), columns


def _texts(column: Array, separator: str) -> Array:
    """Values as text, or None; lists of text with a separator."""
    texts: list[str | None] = []
    for value in column.tolist():
        if isinstance(value, list | tuple | np.ndarray):
            texts.append(separator.join(map(str, value)))
        else:
            missing = value is None or value != value  # NaN is not itself
            texts.append(None if missing else str(int(value) if isinstance(value, bool) else value))
    return np.array(texts, dtype=object)


def _all_numbers(texts: Array) -> bool:
    try:
        return all(np.isfinite(float(text)) for text in texts if text is not None)
    except ValueError:
        return False
