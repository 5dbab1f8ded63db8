"""Rank 0, biases only: against the normal posterior in closed form, and against the reference Gibbs sampler."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from support import Model, factor_target, write_planted

from dsgmcmc.data.ratings import open_ratings
from dsgmcmc.model.start import fit_biases
from dsgmcmc.samplers import SAMPLERS
from dsgmcmc.types import Factor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "reference"))

import gibbs

pytestmark = pytest.mark.statistical
TAU, LAMBDA, BATCHES = 2.0, 1.5, 40


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_planted(tmp_path_factory.mktemp("data") / "r.h5", 12, 9)


def chain(data: Path, name: str, model: Model, sweeps: int, **section: Any) -> tuple[np.ndarray, np.ndarray]:
    """Biases of the rows and then of the columns, (sweeps, I + J), and tau, after a tenth as many sweeps more."""
    kind = SAMPLERS[name]
    sampler = kind(kind.Config(**section), sweeps // 10)
    target = factor_target(MPI.COMM_SELF, data, 2, model=model, sampler=sampler, seed=1)
    sampler.start(target, 0.1)
    fit_biases(target)
    states, taus = [], []
    for iteration in range(sweeps // 10 + sweeps):
        target.begin(iteration)
        sampler.step(target, iteration)
        states.append(np.concatenate([b["theta"][:, 0] for f in Factor for b in target.blocks() if b.factor == f]))
        taus.append(target.noise_precision)
    return np.array(states[-sweeps:], np.float64), np.array(taus[-sweeps:])


def z_scores(draws: np.ndarray, expected: np.ndarray | float) -> np.ndarray:
    """Of the means of draws (sweeps, n), by the spread of `BATCHES` of them."""
    means = draws.reshape(BATCHES, -1, *draws.shape[1:]).mean(axis=1)
    return (means.mean(axis=0) - expected) / (means.std(axis=0, ddof=1) / np.sqrt(BATCHES))


@pytest.mark.parametrize(
    ("name", "section"),
    [
        ("gibbs", {}),
        ("baoab", {"step_size": 0.2, "warm_up": 0, "friction": 0.5}),
        ("baoab", {"step_size": 0.2, "warm_up": 0, "friction": 0.5, "metric": "kronecker"}),
    ],
)
def test_the_posterior_given_the_precisions_is_normal(data: Path, name: str, section: dict[str, Any]) -> None:
    """All means and variances, also of the row and the column without a rating: |z| < 5 of 42 moments.

    With tau and the prior fixed the biases (a, b) are N(P^-1 tau Z^T x, P^-1), P = lambda I + tau Z^T Z, where a row of
    Z is 1 at a rating's user and at its item.
    """
    with open_ratings(data) as ratings:
        indptr, columns, values = ratings.slab("train", 0, ratings.n_rows)
        shape, centre = (ratings.n_rows, ratings.n_cols), ratings.mean
    design = np.zeros((len(values), sum(shape)))
    each = np.arange(len(values))
    design[each, np.repeat(np.arange(shape[0]), np.diff(indptr))] = 1
    design[each, shape[0] + columns] = 1
    covariance = np.linalg.inv(LAMBDA * np.eye(sum(shape)) + TAU * design.T @ design)
    mean = covariance @ (TAU * design.T @ (values.astype(np.float64) - centre))
    model = Model(rank=0, prior="fixed", prior_precision=LAMBDA, noise_precision=TAU)
    draws, _ = chain(data, name, model, 8000, **section)
    assert np.abs(z_scores(draws, mean)).max() < 5
    assert np.abs(z_scores((draws - mean) ** 2, np.diag(covariance))).max() < 5


def test_the_precisions_are_those_of_the_reference(data: Path) -> None:
    """With tau and the biases' precisions drawn: tau and every bias, |z| < 5 of both chains' errors together."""
    draws, taus = chain(data, "gibbs", Model(rank=0), 4000)
    model, rng = gibbs.Model(rank=0), np.random.default_rng(0)
    train, _, shape = gibbs.from_ratings(data)
    rows, columns = np.repeat(np.arange(shape[0]), np.diff(train[0])), train[1].astype(np.int64)
    residuals = train[2].astype(np.float64) - train[2].astype(np.float64).mean()
    sides, state, states = gibbs.views(rows, columns, shape), gibbs.start(model, shape, rng), []
    for _ in range(4400):
        gibbs.sweep(state, residuals, sides, model, rng)
        states.append([*state.theta[0][:, 0], *state.theta[1][:, 0], state.tau])
    exact, ours = np.array(states[400:]), np.column_stack([draws, taus])
    errors = [x.reshape(BATCHES, -1, x.shape[1]).mean(axis=1).std(axis=0) / np.sqrt(BATCHES) for x in (exact, ours)]
    assert np.abs((ours.mean(axis=0) - exact.mean(axis=0)) / np.hypot(*errors)).max() < 5
