"""Rank 0 is a model: every sampler, likelihood and part runs without a factor, and everything is done with the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from support import planted, sample, write_planted

from dsgmcmc import BPMF
from dsgmcmc.posterior.heldout import predict_test
from dsgmcmc.posterior.predict import PredictOptions, Predictor
from dsgmcmc.posterior.run import Run
from dsgmcmc.samplers import SAMPLERS

STEPS = {"baoab": 0.02}  # the default is for real data, not for 250 ratings
PARTS: list[dict[str, Any]] = [
    {"noise": "both", "features": "yes", "implicit_features": "both", "time_levels": "user,item"},
    {"likelihood": "negative-binomial", "implicit_features": "both"},
    {"likelihood": "ordinal-logit", "noise": "both", "thresholds": "user", "implicit_features": "user"},
    {"likelihood": "ordinal-probit", "time_levels": "user"},
    {"prior": "normal-wishart", "standardise": False},
]


@pytest.fixture(scope="module")
def stars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Whole ratings with features and times."""
    path = tmp_path_factory.mktemp("data") / "r.h5"
    return write_planted(path, stars=True, features=(3, 4), timed=True)


def made(data: Path, out: Path, sampler: str, **settings: Any) -> Run:
    """A short run of rank 0."""
    section = {"name": sampler} | ({"step_size": STEPS[sampler]} if sampler in STEPS else {})
    lengths = {"grid": 3, "iterations": "14sweeps", "burn_in": "4sweeps", "save_draws": 3}
    assert sample(MPI.COMM_SELF, data, out, **{"rank": 0, "sampler": section, **lengths, **settings}) == 0
    return Run(out)


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("noise", ["shared", "both"])
def test_every_sampler_predicts_the_sum_of_two_biases(stars: Path, tmp_path: Path, sampler: str, noise: str) -> None:
    """Of every pair, and nothing else: the predictor of a draw is mu + a_i + b_j, and both biases move."""
    run = made(stars, tmp_path / "run", sampler, noise=noise, features="no")
    draws = [run.draw(number).theta for number in range(len(run.draws))]
    users, items = (np.arange(len(run.vocabulary(kind)), dtype=np.int32) for kind in ("user", "item"))
    users, items = np.repeat(users, len(items)), np.tile(items, len(users))
    found = Predictor(run, PredictOptions(of_mean=True))(users, items)
    each = [run.mean + theta["user"][users, 0] + theta["item"][items, 0] for theta in draws]
    np.testing.assert_allclose(found.mean, np.average(each, axis=0, weights=run.draw_weights), atol=1e-5)
    assert all(theta[kind].shape[1] == 1 for theta in draws for kind in ("user", "item"))
    assert np.ptp([np.concatenate([theta["user"], theta["item"]]) for theta in draws], axis=0).min() > 0


@pytest.mark.parametrize("settings", PARTS, ids=lambda settings: settings.get("likelihood", "gaussian"))
def test_every_likelihood_and_part_runs_without_factors(stars: Path, tmp_path: Path, settings: dict[str, Any]) -> None:
    """Features and implicit features act on the biases; what is predicted is finite."""
    run = made(stars, tmp_path / "run", "baoab", **settings)
    assert np.isfinite(predict_test(run).mean).all()
    assert np.isfinite(predict_test(run).variance).all()


def test_the_estimator_fits_goes_on_and_learns(tmp_path: Path) -> None:
    """BPMF(rank=0): predictions and intervals, a second `fit` that goes on, `load`, and new users."""
    rng = np.random.default_rng(0)
    i, j, _ = planted(30, 20, 0.6)
    a, b = rng.normal(0, 1, 30), rng.normal(0, 0.7, 20)
    x = 3 + a[i] + b[j] + rng.normal(0, 0.5, len(i))
    pairs, short = np.column_stack([i, j]), {"iterations": 200, "burn_in": 60, "options": {"grid": 2}}
    model = BPMF(rank=0, out=tmp_path / "run", warm_start=True, **short).fit(pairs, x)
    low, high = model.predict_interval(pairs)
    truth = 3 + a[i] + b[j]
    anew = truth + rng.normal(0, 0.5, len(i))
    assert abs(np.mean((low <= anew) & (anew <= high)) - 0.9) < 3 * np.sqrt(0.09 / len(i))
    error = model.predict(pairs) - truth
    assert np.sqrt(np.mean(error**2)) < 0.25  # sd of the noise over the root of half a row's ratings
    model.set_params(iterations=260).fit(pairs, x)
    again = BPMF.load(tmp_path / "run")
    assert again.rank == 0
    assert again.iterations == 260
    new = np.column_stack([np.full(19, 99), np.arange(19)])
    again.update(new, 4 + b[:19])
    assert np.abs(again.predict(new) - (4 + b[:19])).max() < 0.6
