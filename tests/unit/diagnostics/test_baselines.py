"""Biases only: against its equations with dense matrices, against models, and what is said of one that is no better."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from support import csr, planted, sample, typed, write_planted

from dsgmcmc.data.ratings import Ratings, open_ratings, write_ratings
from dsgmcmc.diagnostics import baselines
from dsgmcmc.diagnostics.baselines import PRECISION_RATE, PRECISION_SHAPE, advantage, fit_biases_only
from dsgmcmc.diagnostics.summary import read_summary
from dsgmcmc.diagnostics.verdict import no_better


def triples(ratings: Ratings, part: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Row, column and value of every rating of a part."""
    indptr, columns, values = ratings.slab(part, 0, ratings.n_rows)
    return np.repeat(np.arange(ratings.n_rows), np.diff(indptr)), columns, values.astype(np.float64)


@pytest.mark.parametrize("slab", [7, 10**6])
def test_the_fit_is_the_one_that_its_precisions_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slab: int
) -> None:
    """Means of the joint normal posterior, with the precisions that the updates of the docstring end at.

    These are found here with dense matrices. In slabs of some rows and in one.
    """
    monkeypatch.setattr(baselines, "_SLAB", slab)
    monkeypatch.setattr(baselines, "CONVERGED_BELOW", 0.0)
    monkeypatch.setattr(baselines, "MOST_SWEEPS", 400)
    with open_ratings(write_planted(tmp_path / "r.h5")) as ratings:
        found = fit_biases_only(ratings)
        rows, columns, values = triples(ratings, "train")
        shape = (ratings.n_rows, ratings.n_cols)
    design, sides = np.zeros((len(values), sum(shape))), np.repeat([0, 1], shape)
    design[np.arange(len(values)), rows] = design[np.arange(len(values)), shape[0] + columns] = 1
    centred = values - found.mean
    variance = np.mean(centred**2)
    strengths, tau = np.full(2, 4 / variance), 2 / variance
    for _ in range(400):
        precision = np.diag(strengths[sides]) + tau * design.T @ design
        mean, spread = np.linalg.solve(precision, tau * design.T @ centred), 1 / np.diag(precision)
        for side in (0, 1):
            total = np.sum((mean**2 + spread)[sides == side])
            strengths[side] = (PRECISION_SHAPE + shape[side] / 2) / (PRECISION_RATE * variance + total / 2)
        errors = (centred - design @ mean) ** 2 + design @ spread
        tau = (1 + len(values) / 2) / (variance + errors.sum() / 2)
    np.testing.assert_allclose(np.concatenate(found.means), mean, atol=1e-6)


@pytest.mark.parametrize("transposed", [False, True])
def test_errors_and_advantage_are_those_of_loops(tmp_path: Path, transposed: bool) -> None:
    """RMSE of mu + a_i + b_j, and of mu; the gain of a model, with the standard error of a mean of clusters by user."""
    with open_ratings(write_planted(tmp_path / "r.h5", transposed=transposed)) as ratings:
        biases = fit_biases_only(ratings)
        rows, columns, x = triples(ratings, "test")
        mean = x + np.random.default_rng(0).normal(0, 0.5, len(x))
        errors, found = baselines.baselines(ratings, biases), advantage(mean, ratings, biases)
    centre = biases.mean + biases.means[0][rows] + biases.means[1][columns]
    assert errors["biases_only"] == pytest.approx(np.sqrt(np.mean((x - centre) ** 2)), rel=1e-12)
    assert errors["mean_only"] == pytest.approx(np.sqrt(np.mean((x - biases.mean) ** 2)))
    each, owners = (x - centre) ** 2 - (x - mean) ** 2, columns if transposed else rows
    sums = [(each[owners == user] - each.mean()).sum() for user in np.unique(owners)]
    assert found["square"] == pytest.approx(each.mean())
    error = np.sqrt(len(sums) / (len(sums) - 1) * np.sum(np.square(sums))) / len(x)
    assert found["square_error"] == pytest.approx(error)


def test_ratings_that_are_all_the_same_have_a_fit(tmp_path: Path) -> None:
    """Their variance is 0, and nothing is divided by it."""
    i, j, x = planted()
    parts = csr(29, i, j, np.full_like(x, 4.0)), csr(29, i[:9], j[:9], x[:9])
    write_ratings(tmp_path / "r.h5", *parts, np.arange(29), np.arange(17), seed=0, source="all 4")
    with open_ratings(tmp_path / "r.h5") as ratings:
        assert all(np.abs(each).max() == 0 for each in fit_biases_only(ratings).means)


@pytest.mark.parametrize(("gain", "said"), [(0.003, "no better .*lower by 0.003"), (-0.03, "worse .*higher by 0.03")])
def test_a_model_must_be_better_by_a_standard_error(gain: float, said: str) -> None:
    """The sentence has the difference and its error; without a comparison there is none."""
    assert no_better({"over_biases": {"square": 0.01, "square_error": 0.008}}) == no_better({"over_biases": None}) == []
    (text,) = no_better({"over_biases": {"square": gain, "square_error": 0.008}})
    assert re.match(rf"{said} \(standard error 0.008\); plain biases only, --rank 0", text)


@pytest.mark.parametrize(("factors", "rank"), [(0.0, 4), (0.7, 4), (0.0, 0)])
def test_a_run_says_whether_its_factors_are_worth_it(tmp_path: Path, factors: float, rank: int) -> None:
    """Where all there is are biases and noise, and not where tastes differ, nor of a run that has no factors."""
    rng = np.random.default_rng(0)
    i, j = np.nonzero(rng.random((150, 80)) < 0.33)
    w, h = rng.normal(size=(150, 2)), rng.normal(size=(80, 2))
    x = 3 + rng.normal(0, 0.5, 150)[i] + rng.normal(0, 0.5, 80)[j] + factors * (w[i] * h[j]).sum(axis=1)
    x += rng.normal(0, 1, len(i))
    held = rng.random(len(i)) < 0.2
    parts = [csr(150, i[part], j[part], x[part]) for part in (~held, held)]
    data = tmp_path / "r.h5"
    write_ratings(data, *parts, np.arange(150), np.arange(80), seed=0, source="biases, noise and factors")
    settings = {"rank": rank, "grid": 2, "iterations": 300, "burn_in": 50, "save_draws": 4}
    assert sample(MPI.COMM_SELF, data, tmp_path / "run", **settings) == 0
    shown = " ".join(typed("info", tmp_path / "run").expect().out.split())
    assert ("better than biases only" in shown or "worse than biases only" in shown) == (rank > 0 and not factors)
    summary = read_summary(tmp_path / "run" / "summary.json")
    if not rank:
        assert summary["baselines"]["biases_only"] == pytest.approx(summary["rmse_mean"], rel=0.01)
