"""The simplest predictors: against the same, rating by rating."""

from __future__ import annotations

import numpy as np
import pytest
from support import write_planted

from dsgmcmc.data.ratings import open_ratings
from dsgmcmc.diagnostics import baselines
from dsgmcmc.diagnostics.baselines import SHRINKAGE


def triples(ratings, part):
    """Row, column and value of every rating of a part."""
    indptr, columns, values = ratings.slab(part, 0, ratings.n_rows)
    return np.repeat(np.arange(ratings.n_rows), np.diff(indptr)), columns, values.astype(np.float64)


def test_they_are_those_of_loops(tmp_path, monkeypatch):
    """Shrunken means of items, then of users, written out; in slabs of a few rows and in one."""
    with open_ratings(write_planted(tmp_path / "r.h5")) as ratings:
        whole = baselines.baselines(ratings)
        monkeypatch.setattr(baselines, "_SLAB", 7)
        assert baselines.baselines(ratings) == pytest.approx(whole, rel=1e-12)
        rows, columns, values = triples(ratings, "train")
        mean, b, a = ratings.mean, {}, {}
        for j in range(ratings.n_cols):
            own = values[columns == j] - mean
            b[j] = own.sum() / (SHRINKAGE["item"] + len(own))
        for i in range(ratings.n_rows):
            own = [x - mean - b[j] for r, j, x in zip(rows, columns, values, strict=True) if r == i]
            a[i] = sum(own) / (SHRINKAGE["user"] + len(own))
        test = list(zip(*triples(ratings, "test"), strict=True))
        expected = np.sqrt(np.mean([(x - mean - a[i] - b[j]) ** 2 for i, j, x in test]))
        assert whole["biases_only"] == pytest.approx(expected, rel=1e-12)
        assert whole["mean_only"] == pytest.approx(np.sqrt(np.mean([(x - mean) ** 2 for _, _, x in test])), rel=1e-12)


def test_there_are_none_without_test_ratings(tmp_path):
    """Nothing to score them on."""
    with open_ratings(write_planted(tmp_path / "r.h5", test=0.0)) as ratings:
        assert baselines.baselines(ratings) is None
