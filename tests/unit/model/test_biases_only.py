"""Rank 0 is a model: samplers, likelihoods and parts run without a factor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from support import sample, write_planted

from dsgmcmc.posterior.heldout import predict_test
from dsgmcmc.posterior.predict import PredictOptions, Predictor
from dsgmcmc.posterior.run import Run

STEPS = {"baoab": 0.02}  # the default is for real data, not for 250 ratings
PARTS: list[dict[str, Any]] = [
    {"noise": "both", "features": "yes", "implicit_features": "both", "time_levels": "user,item"},
    {"likelihood": "negative-binomial", "implicit_features": "both"},
    {
        "likelihood": "ordinal-logit",
        "noise": "both",
        "thresholds": "user",
        "implicit_features": "user",
        "time_levels": "user",
    },
    {"prior": "normal-wishart", "standardise": False},
]


@pytest.fixture(scope="module")
def stars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Whole ratings with features and times."""
    path = tmp_path_factory.mktemp("data") / "r.h5"
    return write_planted(path, stars=True, features=(3, 4), timed=True)


def run_of(data: Path, out: Path, sampler: str, **settings: Any) -> Run:
    """A short run of rank 0."""
    section = {"name": sampler} | ({"step_size": STEPS[sampler]} if sampler in STEPS else {})
    lengths = {"grid": 3, "iterations": "14sweeps", "burn_in": "4sweeps", "save_draws": 3}
    assert sample(MPI.COMM_SELF, data, out, **{"rank": 0, "sampler": section, **lengths, **settings}) == 0
    return Run(out)


@pytest.mark.parametrize(("sampler", "noise"), [("baoab", "both"), ("gibbs", "both"), ("psgld", "shared")])
def test_what_is_predicted_is_the_sum_of_two_biases(stars: Path, tmp_path: Path, sampler: str, noise: str) -> None:
    """The predictor of a pair at a draw is mu + a_i + b_j, and both biases move."""
    run = run_of(stars, tmp_path / "run", sampler, noise=noise, features="no")
    draws = [run.draw(number).theta for number in range(len(run.draws))]
    users, items = (np.arange(len(run.vocabulary(kind)), dtype=np.int32) for kind in ("user", "item"))
    users, items = np.repeat(users, len(items)), np.tile(items, len(users))
    prediction = Predictor(run, PredictOptions(of_mean=True))(users, items)
    predictors = [run.mean + theta["user"][users, 0] + theta["item"][items, 0] for theta in draws]
    np.testing.assert_allclose(prediction.mean, np.average(predictors, axis=0, weights=run.draw_weights), atol=1e-5)
    assert all(theta[kind].shape[1] == 1 for theta in draws for kind in ("user", "item"))
    assert np.ptp([np.concatenate([theta["user"], theta["item"]]) for theta in draws], axis=0).min() > 0


@pytest.mark.parametrize("settings", PARTS, ids=lambda settings: settings.get("likelihood", "gaussian"))
def test_every_likelihood_and_part_runs_without_factors(stars: Path, tmp_path: Path, settings: dict[str, Any]) -> None:
    """Features and implicit features act on the biases; what is predicted is finite."""
    run = run_of(stars, tmp_path / "run", "baoab", **settings)
    assert np.isfinite(predict_test(run).mean).all()
    assert np.isfinite(predict_test(run).variance).all()
