"""What identifies a chain and what ``run.toml`` says is the same for the same settings: old runs resume."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from dsgmcmc.config.chain import FREE
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
    "hyper_every": 2,
    "model_version": 1,
    "standardise": False,
    "checkpoint_every": "90s",
    "keep_checkpoints": 5,
    "save_draws": 6,
    "sampler": {"name": "sgld"},
    "zero_weight": 0.3,
}

#: What version 0.1 did not know yet, and what it is for its runs.
LATER = {
    "likelihood": "gaussian",
    "model_version": 1,
    "standardise": False,
    "implicit_features": "no",
    "features": "yes",
    "time_levels": "no",
    "thresholds": "shared",
}
LATER_OF_SAMPLERS = {"baoab": {"metric": "fisher"}}

#: Settings as given, and the hash and ``run.toml`` that version 0.1 made of them.
WRITTEN: dict[str, tuple[dict[str, Any], str, str]] = {
    "defaults": (
        {"grid": 4, "iterations": "700sweeps", "burn_in": "100sweeps", "prior_precision": 50.0},
        "d6bd02ade45c51a3883139b009dc429238bd3241610fd5230ab584131b351535",
        """\
rank = 32
grid = 4
schedule = "shuffled"
prior = "normal-gamma"
prior_precision = 50.0
noise = "shared"
noise_precision = "sampled"
biases = true
center = true
initial_sd = 0.14
seed = 0
chains = 1
iterations = 700
burn_in = 100
thin = 2
evaluate_every = 10
hyper_start = 15
hyper_every = 1
checkpoint_every = "10min"
keep_checkpoints = 2
save_draws = 50

[sampler]
name = "baoab"
step_size = 0.35
warm_up = 20
warm_up_factor = 0.2857
decay = "constant"
decay_sweeps = 100.0
decay_power = 0.33
friction = 0.9
refresh = 2

[run]
data = "x.h5"
""",
    ),
    "options": (
        {
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
        "d5f912479b06d3d401c6728e3396836fae79d953929410d5a875279d2f3092bc",
        """\
rank = 8
grid = 7
schedule = "shuffled"
prior = "fixed"
prior_precision = 1.0
noise = "both"
noise_precision = 1.0
biases = true
center = true
initial_sd = 0.1
seed = 1099511627776
chains = 3
iterations = 84
burn_in = 9
thin = 14
evaluate_every = 70
hyper_start = 1
hyper_every = 1
checkpoint_every = "90s"
keep_checkpoints = 2
save_draws = 50

[sampler]
name = "psgld"
step_size = 0.02
burn_in_step_size = 0.09
warm_up = 0
warm_up_factor = 0.1
decay = "constant"
decay_sweeps = 100.0
decay_power = 0.33
alpha = 0.99
lambda_n = 9.0
adapt = "burn-in"

[run]
data = "x.h5"
""",
    ),
    "hamcmc": (
        {
            "iterations": "700sweeps",
            "grid": 5,
            "sampler": {"name": "hamcmc", "metric": "diagonal", "memory": 3},
            "noise_precision": 2,
            "biases": False,
            "checkpoint_every": "7",
        },
        "b6c7af776815e4973694bfb23824966d76891636f2db46dd6f82273aa0ab4247",
        """\
rank = 32
grid = 5
schedule = "shuffled"
prior = "normal-gamma"
prior_precision = 1.0
noise = "shared"
noise_precision = 2.0
biases = false
center = true
initial_sd = 0.1
seed = 0
chains = 1
iterations = 3500
burn_in = 500
thin = 10
evaluate_every = 50
hyper_start = 1
hyper_every = 1
checkpoint_every = 7
keep_checkpoints = 2
save_draws = 50

[sampler]
name = "hamcmc"
step_size = 0.04
warm_up = 0
warm_up_factor = 0.1
decay = "constant"
decay_sweeps = 100.0
decay_power = 0.33
memory = 3
trust = 1.0
metric = "diagonal"
alpha = 0.99
lambda_n = 9.0

[run]
data = "x.h5"
""",
    ),
    "sgld": (
        {
            "iterations": "700sweeps",
            "grid": 3,
            "sampler": {"name": "sgld", "decay": "polynomial", "burn_in_step_size": 0.5},
            "thin": "1sweep",
            "schedule": "cyclic",
            "prior": "normal-wishart",
            "prior_precision": 2,
            "center": False,
        },
        "7f9a00701be3e6adeb4a932c6732d862b9ce0d108d5a3af40dc57bb849162576",
        """\
rank = 32
grid = 3
schedule = "cyclic"
prior = "normal-wishart"
prior_precision = 2.0
noise = "shared"
noise_precision = "sampled"
biases = true
center = false
initial_sd = 0.1
seed = 0
chains = 1
iterations = 2100
burn_in = 300
thin = 3
evaluate_every = 30
hyper_start = 1
hyper_every = 1
checkpoint_every = "10min"
keep_checkpoints = 2
save_draws = 50

[sampler]
name = "sgld"
step_size = 0.9
burn_in_step_size = 0.5
warm_up = 0
warm_up_factor = 0.1
decay = "polynomial"
decay_sweeps = 100.0
decay_power = 0.33

[run]
data = "x.h5"
""",
    ),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_the_same_settings_are_written_alike(tmp_path: Path, name: str) -> None:
    """Otherwise a run that goes on would no longer be the one that was started."""
    given, digest, text = WRITTEN[name]
    config = build(LATER, given).resolved()
    run = RunDirectory(tmp_path)
    run.write_settings(config.table(), {"data": "x.h5"})
    written = tomllib.loads(run.settings_file.read_text(encoding="utf-8"))
    before = tomllib.loads(text)
    before["sampler"] |= LATER_OF_SAMPLERS.get(before["sampler"]["name"], {})
    assert written == {**before, **LATER}
    assert config.hash() == digest


@pytest.mark.parametrize("name", WRITTEN)
def test_an_old_run_is_read_back_as_the_same_chain(tmp_path: Path, name: str) -> None:
    """Its checkpoints carry the hash, and are refused under another."""
    given, digest, text = WRITTEN[name]
    run = RunDirectory(tmp_path)
    run.settings_file.write_text(text, encoding="utf-8")
    settings, _ = run.read_settings()
    config = ResolvedConfig.of(settings)
    assert config == build(LATER, given).resolved()
    assert config.hash() == digest
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
        assert (changed.hash() == base.hash()) == (name in FREE), name
    assert set(FREE) == {"iterations", "until", "checkpoint_every", "keep_checkpoints", "chains"}, (
        "no draw depends on these"
    )


def test_the_hash_sees_every_setting_of_the_sampler() -> None:
    """A changed alpha is another chain."""
    base = build({"sampler": {"name": "psgld"}}).resolved()
    assert build({"sampler": {"name": "psgld", "alpha": 0.98}}).resolved().hash() != base.hash()
