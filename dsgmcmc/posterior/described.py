r"""Features of users or items that are folded in, and how they shift the prior means of their rows, m + B^T x.

New features are encoded as `prepare` encoded those of the run (`dsgmcmc.data.features`), and centred as the
sampler centred them. A row that the run knows keeps its features from the ratings file, unless new ones are given.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dsgmcmc.data.encoding import Encoding
from dsgmcmc.data.feature_arrays import write_features
from dsgmcmc.data.features import Description, encode_new
from dsgmcmc.data.ratings import SIDES, Features
from dsgmcmc.errors import InputError
from dsgmcmc.posterior.features import feature_names
from dsgmcmc.posterior.foldin import Shifts
from dsgmcmc.posterior.saved import SavedRun
from dsgmcmc.types import Array, Float64, Int32

FeatureRow = tuple[Int32, Float64]  # indices of the features of a row, and their values


@dataclass(frozen=True)
class Described:
    """Features of users or items, known to the run or not.

    Attributes
    ----------
    names : (n,) int64, or (n,) object array of str
        All different.
    rows : list of FeatureRow
        Features of each; empty if nothing is known of it.
    """

    names: Array
    rows: list[FeatureRow]

    def updated(self, later: Described) -> Described:
        """Merge both; where both describe a row, the later features count."""
        by_name = dict(zip([*self.names.tolist(), *later.names.tolist()], [*self.rows, *later.rows], strict=True))
        return Described(np.array(list(by_name), self.names.dtype), list(by_name.values()))


def describe_new(run: SavedRun, kind: str, given: Any) -> tuple[Described, list[str]]:
    """Encode features that a run is to fold in; the notes say what looks wrong.

    `given` is a Description, whose kinds and separator are ignored because columns keep the kinds that they had for the
    run, or anything that `dsgmcmc.data.feature_arrays.write_features` takes. Raises InputError if the run has no such
    features, does not know how they were encoded, or the file is wrong.
    """
    if not feature_names(run, kind)[0]:
        raise InputError(
            f"features of {kind}s are given, but {run.path} was sampled without them: leave them out, or prepare the "
            f"ratings with --{kind}-features and sample again"
        )
    encoding, integers = _encoding(run, kind), run.vocabulary(kind).integers
    with tempfile.TemporaryDirectory(prefix="dsgmcmc-") as folder:
        if not isinstance(given, Description):
            given = write_features(given, kind, Path(folder), encoding.separator)
        names, features, notes = encode_new(kind, given, encoding, integers)
    return Described(names.astype(np.int64) if integers else names, _rows_of(features)), notes


def _encoding(run: SavedRun, kind: str) -> Encoding:
    """Return how the run's features were encoded."""
    text, _ = run.index.encoding(kind)
    if not text:
        raise InputError(
            f"{run.path} does not know how the features of {kind}s were encoded, as its ratings file does not say: "
            "prepare the ratings again with `dsgmcmc prepare`, and sample again"
        )
    try:
        encoding = Encoding.parse(text)
    except ValueError as error:
        raise InputError(f"{run.path} cannot be used for new features of {kind}s: {error}") from error
    if encoding.names != feature_names(run, kind)[0]:
        raise InputError(f"{run.path} is inconsistent: the features of {kind}s do not match their encoding")
    return encoding


def shifts_of(
    run: SavedRun, kind: str, names: Array, described: Described | None, known: Int32, data: Path | None
) -> Shifts | None:
    """Shifts of the prior means of the rows with these names, (n,); None if the run has no features.

    `described` are new features; `known`, (n,) int32, are rows of the run, -1 for names that it does not know. If any
    is known, the ratings file is needed (`data`, if it was moved).
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


def _rows_of(features: Features) -> list[FeatureRow]:
    values = features.values.astype(np.float64)
    return [(features.indices[a:b], values[a:b]) for a, b in zip(features.indptr, features.indptr[1:], strict=False)]
