"""The configuration: what is resolved, lengths, errors that name the setting."""

from __future__ import annotations

from pathlib import Path
from types import NoneType
from typing import Any, get_args

import pytest
from support import STEPPING

from dsgmcmc.config.layers import build
from dsgmcmc.config.run import ResolvedConfig
from dsgmcmc.errors import InputError
from dsgmcmc.samplers import SAMPLERS
from dsgmcmc.storage.rundir import RunDirectory

# ---------------------------------------------------------------------- what is resolved


@pytest.mark.parametrize("name", SAMPLERS)
def test_the_resolved_configuration_is_complete(name: str) -> None:
    """run.toml says everything: building from a resolved configuration gives the same one."""
    config = build({"sampler": name}).resolved()
    assert set(config.table()) == set(ResolvedConfig.model_fields) - {"zero_weight"}, "which is of clicks alone"
    assert set(config.model_dump()["sampler"]) == {"name", *SAMPLERS[name].Config.model_fields}
    assert ResolvedConfig.of(config.model_dump()) == config
    assert ResolvedConfig.model_validate_json(config.model_dump_json()) == config


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("prior", ["fixed", "normal-gamma"])
def test_run_toml_gives_back_the_same_chain(tmp_path: Path, name: str, prior: str) -> None:
    """A resumed run reads its settings from run.toml; TOML has no null, and must not lose any."""
    step = {"name": name} | ({"step_size": 0.01} if name in STEPPING else {})
    config = build({"prior": prior, "sampler": step, "burn_in": "3sweeps"}).resolved()
    run = RunDirectory(tmp_path)
    run.write_settings(config.table(), {"data": "x"})
    settings, _ = run.read_settings()
    assert ResolvedConfig.of(settings) == config
    assert build(settings).resolved().hash() == config.hash()


@pytest.mark.parametrize("name", SAMPLERS)
def test_no_setting_of_a_sampler_is_lost_in_toml(name: str) -> None:
    """What admits None has the default None: run.toml leaves it out, and reads the default back."""
    for field, info in SAMPLERS[name].Config.model_fields.items():
        if NoneType in get_args(info.annotation):
            assert info.default is None, field


# ---------------------------------------------------------------------- lengths and intervals


def test_lengths_resolve_by_the_sweep() -> None:
    """Lengths may be given in sweeps or iterations, as numbers or text."""
    lengths = {"iterations": "10sweeps", "burn_in": "3 sweeps", "thin": "1sweep", "evaluate_every": "7"}
    config = build({"grid": 5, "sampler": "psgld", **lengths})
    resolved = config.resolved()
    assert [resolved.iterations, resolved.burn_in, resolved.thin, resolved.evaluate_every] == [50, 15, 5, 7]
    assert resolved.resolved() == resolved


def test_the_grid_is_large_enough_for_the_processes() -> None:
    """Two blocks for each, where more than four share a chain; what is asked for stays."""
    assert [build({}).resolved(processes).grid for processes in (1, 4, 5, 9)] == [4, 4, 10, 18]
    assert build({"grid": 3}).resolved(9).grid == 3
    assert build({}).resolved(9, finest=7).grid == 7
    assert build({"grid": 9}).resolved(1, finest=7).grid == 9  # which the data then refuse


@pytest.mark.parametrize("name", STEPPING)
def test_smaller_steps_are_all_smaller(name: str) -> None:
    """A chain that begins again with half the step takes it in its burn-in, too."""
    whole = build({"sampler": {"name": name, "burn_in_step_size": 0.5}}).resolved().sampler.config
    half = whole.scaled(0.5)
    assert half.step_size == 0.5 * whole.step_size
    assert half.burn_in_step_size == 0.25


@pytest.mark.parametrize("name", ["iterations", "thin", "evaluate_every"])
def test_lengths_of_nothing_are_refused(name: str) -> None:
    """0 would divide by zero or do nothing; burn-in may be 0."""
    for nothing in (0, "0", "0sweeps"):
        with pytest.raises(InputError, match=f"{name} must be at least 1"):
            build({name: nothing}).resolved()
    assert build({"burn_in": 0}).resolved().burn_in == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [(7, (7, None)), ("7", (7, None)), ("90s", (None, 90.0)), ("1.5 h", (None, 5400.0)), ("2d", (None, 172800.0))],
)
def test_checkpoint_intervals(text: int | str, expected: tuple[int | None, float | None]) -> None:
    """Iterations or time."""
    assert build({"checkpoint_every": text}).resolved().checkpoint_interval() == expected


# ---------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"rank": -1}, ["rank", "-1"]),
        ({"rank": 0, "biases": False}, ["--rank 0", "--no-biases", "--rank 1 or more"]),
        ({"rank": 0, "likelihood": "all-cells"}, ["--rank 0", "all-cells"]),
        ({"rank": 513}, ["rank", "513"]),
        ({"rank": "many"}, ["rank", "many"]),
        ({"grid": 0}, ["grid"]),
        ({"schedule": "spiral"}, ["schedule", "spiral", "cyclic"]),
        ({"prior": "flat"}, ["prior", "flat", "normal-gamma"]),
        ({"prior_precision": 0}, ["prior_precision"]),
        ({"prior_precision": float("nan")}, ["prior_precision"]),
        ({"noise_precision": -1}, ["noise_precision"]),
        ({"noise_precision": float("inf")}, ["noise_precision"]),
        ({"noise_precision": "loud"}, ["noise_precision", "loud", "sampled"]),
        ({"iterations": "ten"}, ["iterations", "ten", "500sweeps"]),
        ({"burn_in": -1}, ["burn_in", "-1"]),
        ({"burn_in": 1.5}, ["burn_in", "1.5"]),
        ({"thin": "2 weeks"}, ["thin", "2 weeks"]),
        ({"checkpoint_every": 0}, ["checkpoint_every"]),
        ({"checkpoint_every": "soon"}, ["checkpoint_every", "soon", "10min"]),
        ({"seed": -1}, ["seed"]),
        ({"seed": 2**63}, ["seed"]),
        ({"chains": 0}, ["chains"]),
        ({"rnak": 3}, ["rnak", "not a setting"]),
        ({"sampler": "sgdl"}, ["sgdl", *SAMPLERS]),
        ({"sampler": {"name": "psgld", "alhpa": 1}}, ["sampler.alhpa", "not a setting"]),
        ({"sampler": {"name": "psgld", "alpha": 2}}, ["sampler.alpha", "2"]),
        ({"sampler": {"step_size": 0}}, ["sampler.step_size"]),
        ({"sampler": {"name": "gibbs", "step_size": 0.1}}, ["sampler.step_size", "not a setting"]),
        ({"sampler": 3}, ["sampler"]),
    ],
)
def test_errors_name_the_setting(settings: dict[str, Any], words: list[str]) -> None:
    """One line: the setting's name as the user writes it, what was found, what would be right."""
    with pytest.raises(InputError) as caught:
        build(settings)
    message = str(caught.value)
    assert all(word in message for word in words), message
    assert "\n" not in message
    assert "literal[" not in message, message
    assert "Value error" not in message


def test_all_errors_are_reported_together() -> None:
    """Nobody likes to correct one setting a run."""
    with pytest.raises(InputError) as caught:
        build({"rank": -1, "seed": -1, "schedule": "spiral"})
    assert all(name in str(caught.value) for name in ("rank", "seed", "schedule"))
