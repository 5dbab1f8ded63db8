"""Rank 0 is a model: likelihoods and parts run without a factor. `posterior/test_predict.py` has its predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from support import sample, write_planted

from dsgmcmc.posterior.heldout import predict_test
from dsgmcmc.posterior.run import Run

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


@pytest.mark.parametrize("settings", PARTS, ids=lambda settings: settings.get("likelihood", "gaussian"))
def test_every_likelihood_and_part_runs_without_factors(stars: Path, tmp_path: Path, settings: dict[str, Any]) -> None:
    """Features and implicit features act on the biases; what is predicted is finite."""
    usual = {"rank": 0, "sampler": {"name": "baoab", "step_size": 0.02}, "grid": 3, "save_draws": 3}
    usual |= {"iterations": "14sweeps", "burn_in": "4sweeps"}  # the default step is for real data, not for 250 ratings
    assert sample(MPI.COMM_SELF, stars, tmp_path / "run", **usual | settings) == 0
    run = Run(tmp_path / "run")
    assert np.isfinite(predict_test(run).mean).all()
    assert np.isfinite(predict_test(run).variance).all()
