"""What identifies a chain, and what ``run.toml`` says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dsgmcmc.config.chain import CHANGEABLE
from dsgmcmc.config.layers import build
from dsgmcmc.config.run import ResolvedConfig
from dsgmcmc.model.likelihoods import LIKELIHOODS
from dsgmcmc.model.likelihoods.gaussian import Gaussian
from dsgmcmc.storage.rundir import RunDirectory

OTHER = {
    "rank": 8,
    "grid": 5,
    "schedule": "cyclic",
    "prior": "normal-wishart",
    "prior_precision": 2.0,
    "noise_precision": 3.0,
    "biases": False,
    "center": False,
    "initial_sd": 0.2,
    "seed": 7,
    "chains": 3,
    "iterations": 11,
    "until": "ess=5",
    "burn_in": 12,
    "thin": 13,
    "evaluate_every": 14,
    "noise": "both",
    "likelihood": "other",
    "implicit_features": "both",
    "features": "no",
    "time_levels": "user:8",
    "thresholds": "user",
    "hyper_start": 3,
    "standardise": False,
    "checkpoint_every": "90s",
    "save_draws": 6,
    "sampler": {"name": "sgld"},
    "zero_weight": 0.3,
}

#: Settings of unlike chains.
GIVEN: dict[str, dict[str, Any]] = {
    "defaults": {"grid": 4, "iterations": "700sweeps", "burn_in": "100sweeps", "prior_precision": 50.0},
    "options": {
        "grid": 7,
        "rank": 8,
        "sampler": {"name": "psgld", "step_size": 0.02},
        "prior": "fixed",
        "noise": "both",
        "iterations": "12sweeps",
        "burn_in": 9,
        "seed": 2**40,
        "chains": 3,
        "checkpoint_every": "90s",
    },
    "hamcmc": {
        "iterations": "700sweeps",
        "grid": 5,
        "sampler": {"name": "hamcmc", "metric": "diagonal", "memory": 3},
        "noise_precision": 2,
        "biases": False,
        "checkpoint_every": "7",
    },
    "sgld": {
        "iterations": "700sweeps",
        "grid": 3,
        "sampler": {"name": "psgld", "decay_power": 0.33, "burn_in_step_size": 0.5},
        "thin": "1sweep",
        "schedule": "cyclic",
        "prior": "normal-wishart",
        "prior_precision": 2,
        "center": False,
    },
    "clicks": {"likelihood": "all-cells", "zero_weight": 0.3, "until": "ess=5"},
}


@pytest.mark.parametrize("name", GIVEN)
def test_a_run_is_read_back_as_the_same_chain(tmp_path: Path, name: str) -> None:
    """Its checkpoints carry the hash, and are refused under another."""
    config = build(GIVEN[name]).resolved()
    run = RunDirectory(tmp_path)
    run.write_settings(config.table(), {"data": "x.h5", "config_hash": config.hash()})
    assert ResolvedConfig.of_run(run)[0] == config
    assert build(config.table()).resolved() == config, "a resumed run starts from its own settings"


def test_the_hash_is_of_what_the_draws_depend_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every setting is either part of a chain's identity or named as free to change on resume."""
    monkeypatch.setitem(LIKELIHOODS, "other", Gaussian)
    assert set(OTHER) == set(ResolvedConfig.model_fields)
    for name, value in OTHER.items():
        likelihood = {"zero_weight": "all-cells", "thresholds": "ordinal-logit"}.get(name)
        given = {"likelihood": likelihood} if likelihood else {}
        base, changed = build(given).resolved(), build(given, {name: value}).resolved()
        assert getattr(changed, name) != getattr(base, name)
        assert (changed.hash() == base.hash()) == (name in CHANGEABLE), name
    assert set(CHANGEABLE) == {"iterations", "until", "checkpoint_every", "chains"}, "no draw depends on these"


def test_the_hash_sees_every_setting_of_the_sampler() -> None:
    """A changed alpha is another chain."""
    base = build({"sampler": {"name": "psgld"}}).resolved()
    assert build({"sampler": {"name": "psgld", "alpha": 0.98}}).resolved().hash() != base.hash()
