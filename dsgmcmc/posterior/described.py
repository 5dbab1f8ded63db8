r"""Features of users or items that are folded in: what they do to the prior means of their rows, m + B^T x.

Features that are given are encoded as `prepare` did it for the run (`dsgmcmc.data.ingest.features`), and centred as the
sampler did it. A row that the run knows keeps those of the ratings file, unless there are new ones.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dsgmcmc.data.feature_arrays import write_features
from dsgmcmc.data.ingest.features import Description, Encoding, encode_new
from dsgmcmc.data.ratings import SIDES, Features
from dsgmcmc.errors import InputError
from dsgmcmc.posterior.features import feature_names
from dsgmcmc.posterior.foldin import Shifts
from dsgmcmc.posterior.saved import SavedRun
from dsgmcmc.types import Array, Float64, Int32

Row = tuple[Int32, Float64]  # features that a row has, and their values


@dataclass(frozen=True)
class Described:
    """Features of users or items, known to the run or not.

    Attributes
    ----------
    names : (n,) int64, or (n,) object array of str
        All different.
    rows : list of Row
        None of which is empty only if nothing is known of it.
    """

    names: Array
    rows: list[Row]

    def updated(self, later: Described) -> Described:
        """Those of both, the later where both describe somebody."""
        found = dict(zip([*self.names.tolist(), *later.names.tolist()], [*self.rows, *later.rows], strict=True))
        return Described(np.array(list(found), self.names.dtype), list(found.values()))


def describe_new(run: SavedRun, kind: str, given: Any) -> tuple[Described, list[str]]:
    """Encode features that a run is to fold in; the notes say what looks wrong.

    They are a Description, of which kinds and separator do not count, as columns are what they were for the run; or
    what `dsgmcmc.data.feature_arrays.write_features` takes. Raises InputError if the run has no such features, it is
    not known how they were made, or the file is wrong.
    """
    if not feature_names(run, kind)[0]:
        raise InputError(
            f"features of {kind}s are given, and {run.path} was sampled without: leave them out, or prepare the "
            f"ratings with --{kind}-features and sample again"
        )
    encoding, integers = _encoding(run, kind), run.vocabulary(kind).integers
    with tempfile.TemporaryDirectory(prefix="dsgmcmc-") as folder:
        if not isinstance(given, Description):
            given = write_features(given, kind, Path(folder), encoding.separator)
        names, features, notes = encode_new(kind, given, encoding, integers)
    return Described(names.astype(np.int64) if integers else names, _rows_of(features)), notes


def _encoding(run: SavedRun, kind: str) -> Encoding:
    """How the run's features were made."""
    text, _ = run.index.encoding(kind)
    if not text:
        raise InputError(
            f"{run.path} does not know how features of {kind}s were made, as its ratings file does not say: make that "
            "with `dsgmcmc prepare`, and sample again"
        )
    try:
        encoding = Encoding.parse(text)
    except ValueError as error:
        raise InputError(f"{run.path} cannot be used for new features of {kind}s: {error}") from error
    if encoding.names != feature_names(run, kind)[0]:
        raise InputError(f"{run.path} is inconsistent: features of {kind}s are not those that were made")
    return encoding


def shifts_of(
    run: SavedRun, kind: str, names: Array, described: Described | None, known: Int32, data: Path | None
) -> Shifts | None:
    """What features do to the prior means of the rows of these names, (n,); None in a run without.

    `described` are new features; `known`, (n,) int32, rows of the run, -1 for those that it does not know. The ratings
    file, `data` if it was moved, is needed if any is known.
    """
    if not feature_names(run, kind)[0]:
        return None
    given = {} if described is None else dict(zip(described.names.tolist(), described.rows, strict=True))
    _, centre = run.index.encoding(kind)
    rows = [given.get(name, (np.zeros(0, np.int32), np.zeros(0))) for name in names.tolist()]
    old = [k for k, name in enumerate(names.tolist()) if known[k] >= 0 and name not in given]
    if old:
        side = SIDES["WH".index(run.index.factors[kind])]
        with run.open_ratings(data) as ratings:
            for k in old:
                row = int(known[k])
                rows[k] = _rows_of(ratings.feature_slab(side, row, row + 1))[0]
    return Shifts(rows, centre)


def _rows_of(features: Features) -> list[Row]:
    values = features.values.astype(np.float64)
    return [(features.indices[a:b], values[a:b]) for a, b in zip(features.indptr, features.indptr[1:], strict=False)]
