"""What identifies a chain, and what ``run.toml`` says of it."""

from __future__ import annotations

import pytest

from dsgmcmc.config.chain import CHANGEABLE
from dsgmcmc.config.run import ResolvedConfig, build
from dsgmcmc.model.likelihoods import LIKELIHOODS
from dsgmcmc.model.likelihoods.gaussian import Gaussian

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
    base = build({"sampler": {"name": "psgld"}}).resolved()
    assert build({"sampler": {"name": "psgld", "alpha": 0.98}}).resolved().hash() != base.hash()
