"""Biases only: against its equations with dense matrices, and against models, rating by rating."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from measurements import write_measured
from scipy.stats import norm, truncnorm
from support import cells_of, planted, write_cells, write_planted

from dsgmcmc.diagnostics import baselines
from dsgmcmc.diagnostics.baselines import (
    PRECISION_RATE,
    PRECISION_SHAPE,
    Advantage,
    fit_biases_only,
)
from dsgmcmc.model.likelihoods.gaussian import GaussianRatings
from dsgmcmc.model.likelihoods.negative_binomial import NegativeBinomial
from dsgmcmc.posterior import heldout
from dsgmcmc.ratings.file import Ratings


@pytest.fixture
def to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fits make so many sweeps that their equations hold."""
    monkeypatch.setattr(baselines, "CONVERGED_BELOW", 0.0)
    monkeypatch.setattr(baselines, "MAX_SWEEPS", 400)


@pytest.mark.usefixtures("to_the_end")
@pytest.mark.parametrize(("slab", "kept_bytes"), [(7, 0), (7, 10**6), (10**6, 10**6)])
def test_the_fit_solves_its_equations(
    data: Path, monkeypatch: pytest.MonkeyPatch, slab: int, kept_bytes: int
) -> None:
    """The means are those of the joint posterior, and the precisions those that their updates give.

    The last row and column have no rating, so their variances are those of the prior.
    """
    monkeypatch.setattr(baselines, "SLAB", slab)
    monkeypatch.setattr(baselines, "_KEPT_BYTES", kept_bytes)
    with Ratings(data) as ratings:
        fitted = fit_biases_only(ratings)
        shape = (ratings.n_rows, ratings.n_cols)
    rows, columns, values = cells_of(data)
    design = np.zeros((len(values), sum(shape)))
    design[np.arange(len(values)), rows] = design[np.arange(len(values)), shape[0] + columns] = 1
    strengths = [1 / spread[-1] for spread in fitted.variances]
    tau = 1 / fitted.noise
    precision = np.diag(np.repeat(strengths, shape)) + tau * design.T @ design
    centred = values.astype(float) - fitted.mean
    np.testing.assert_allclose(
        np.concatenate(fitted.means),
        np.linalg.solve(precision, tau * design.T @ centred),
        atol=1e-6,
    )
    np.testing.assert_allclose(np.concatenate(fitted.variances), 1 / np.diag(precision), rtol=1e-6)
    variance = np.mean(centred**2)
    for strength, mean, spread in zip(strengths, fitted.means, fitted.variances, strict=True):
        expected = (PRECISION_SHAPE + len(mean) / 2) / (
            PRECISION_RATE * variance + np.sum(mean**2 + spread) / 2
        )
        assert strength == pytest.approx(expected, rel=1e-6)
    errors = (centred - design @ np.concatenate(fitted.means)) ** 2 + design @ np.concatenate(
        fitted.variances
    )
    assert tau == pytest.approx((1 + len(values) / 2) / (variance + errors.sum() / 2), rel=1e-6)


def test_ratings_that_are_all_the_same_have_a_fit(tmp_path: Path) -> None:
    """Nothing is divided by a variance of 0."""
    i, j, x = planted()
    held = np.arange(len(i)) < 9
    with Ratings(
        write_cells(tmp_path / "r.h5", (29, 17), i, j, np.where(held, x, 4.0), held)
    ) as ratings:
        fitted = fit_biases_only(ratings)
    assert all(np.abs(mean).max() == 0 for mean in fitted.means)
    assert 0 < fitted.noise < 0.1


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("scale", ["measurements", "levels", "counts"])
def test_the_advantage_is_that_of_loops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transposed: bool, scale: str
) -> None:
    """Both gains have the standard error of a mean of clusters by user, whatever the parts of the
    predictions, and those in which the file is read.
    """
    monkeypatch.setattr(baselines, "SLAB", 5)
    path = write_planted(tmp_path / "r.h5", stars=scale != "measurements", transposed=transposed)
    law = NegativeBinomial if scale == "counts" else GaussianRatings
    levels = np.arange(1.0, 6.0) if scale == "levels" else None
    with Ratings(path) as ratings:
        biases = fit_biases_only(ratings)
        rows, columns, values = cells_of(path, "test")
        x = values.astype(float)
        mean = np.maximum(x + np.random.default_rng(0).normal(0, 0.5, len(x)), 0.1)
        noise = mean if scale == "counts" else np.full(len(x), 0.3)
        resolution = 1.0 if scale == "counts" else None
        everything = heldout.TestPredictions(
            x, mean, np.zeros(len(x)), noise, resolution=resolution
        )
        parts = [
            everything._replace(
                rating=x[start:stop],
                mean=mean[start:stop],
                variance=everything.variance[start:stop],
                noise_variance=noise[start:stop],
            )
            for start, stop in pairwise([0, 1, 8, 9, len(x)])
        ]
        advantage = Advantage(ratings, biases)
        for part in parts:
            advantage.add(part.scored(law, levels))
        result = advantage.result()
    centre = biases.predict(rows, columns)
    sd = np.sqrt(biases.noise + biases.variances[0][rows] + biases.variances[1][columns])
    low = x - 0.5
    high = x + 0.5
    if scale == "levels":  # the outer ones are those of all values beyond them
        low[x == 1] = -9
        high[x == 5] = 99
    inside = np.log(norm.cdf(high, centre, sd) - norm.cdf(low, centre, sd))
    simple = norm.logpdf(x, centre, sd) if scale == "measurements" else inside
    predictive = everything.predictive(law, levels)
    model = predictive.log_probability(x) if scale == "levels" else predictive.log_density(x)
    measure = "log_predictive_density" if scale == "measurements" else "log_probability"
    assert result["measure"] == measure
    assert result["biases_only"] == pytest.approx(simple.mean())
    squares = (x - centre) ** 2 - (x - mean) ** 2
    owners = columns if transposed else rows
    users = np.unique(owners)
    for name, gains in (("gain", model - simple), ("square", squares)):
        sums = [(gains[owners == user] - gains.mean()).sum() for user in users]
        error = np.sqrt(len(users) / (len(users) - 1) * np.sum(np.square(sums))) / len(x)
        assert result[name] == pytest.approx(gains.mean())
        assert result[f"{name}_error"] == pytest.approx(error)


@pytest.mark.usefixtures("to_the_end")
def test_the_fit_uses_weights_and_bounds(tmp_path: Path) -> None:
    """Values within bounds are means of truncated normal laws; each term has its weight."""
    path = write_measured(tmp_path / "r.h5", replicated=True, weighted=True, bounded=True)
    with Ratings(path) as ratings:
        fitted = fit_biases_only(ratings)
        slab = ratings.slab("train", 0, ratings.n_rows)
        shape = (ratings.n_rows, ratings.n_cols)
    n = len(slab.values)
    design = np.zeros((n, sum(shape)))
    design[np.arange(n), slab.rows] = design[np.arange(n), shape[0] + slab.indices] = 1
    tau = 1 / fitted.noise
    means = np.concatenate(fitted.means)
    law = norm(fitted.mean + design @ means, 1 / np.sqrt(tau * slab.weights))
    bounded = slab.bounds.bounded
    inside = truncnorm(
        *((limit[bounded] - law.mean()[bounded]) / law.std()[bounded] for limit in slab.bounds),
        loc=law.mean()[bounded],
        scale=law.std()[bounded],
    )
    x = slab.values.astype(float)
    variance = np.mean((x - fitted.mean) ** 2)
    x[bounded] = inside.mean()
    weighted = design.T * slab.weights
    spreads = np.concatenate(fitted.variances)
    known = 1 / spreads - tau * weighted.sum(axis=1)
    precision = np.diag(known) + tau * weighted @ design
    expected = np.linalg.solve(precision, tau * weighted @ (x - fitted.mean))
    np.testing.assert_allclose(means, expected, atol=1e-5)
    for part in np.split(known, [shape[0]]):
        np.testing.assert_allclose(part, part[0], rtol=1e-6)
    squares = (x - fitted.mean - design @ means) ** 2 + design @ spreads
    squares[bounded] += inside.var()
    total = slab.weights @ squares
    assert tau == pytest.approx((1 + n / 2) / (variance + total / 2), rel=1e-5)
