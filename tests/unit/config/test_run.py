"""The configuration: what is resolved, lengths, errors that name the setting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support import STEPPING

from dsgmcmc.config.run import ResolvedConfig, build
from dsgmcmc.errors import InputError
from dsgmcmc.samplers import SAMPLERS
from dsgmcmc.storage.rundir import RunDirectory

# ---------------------------------------------------------------------- what is resolved


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("prior", ["fixed", "normal-gamma"])
def test_run_toml_gives_back_the_same_chain(tmp_path: Path, name: str, prior: str) -> None:
    """A resumed run reads its settings from run.toml, which has all; TOML has no null, and must not lose any."""
    step = {"name": name} | ({"step_size": 0.01} if name in STEPPING else {})
    config = build({"prior": prior, "sampler": step, "burn_in": "3sweeps"}).resolved()
    assert set(config.table()) | {"zero_weight", "until"} == set(ResolvedConfig.model_fields)
    run = RunDirectory(tmp_path)
    run.write_settings(config.table(), {"data": "x", "config_hash": config.hash()})
    assert ResolvedConfig.of_run(run)[0] == config
    assert build(run.read_settings()[0]).resolved() == config


# ---------------------------------------------------------------------- lengths and intervals


def test_lengths_resolve_by_the_sweep() -> None:
    """Lengths may be given in sweeps or iterations, as numbers or text."""
    lengths = {"iterations": "10sweeps", "burn_in": "3 sweeps", "thin": "1sweep", "evaluate_every": "7"}
    config = build({"grid": 5, "sampler": "psgld", **lengths})
    resolved = config.resolved()
    assert [resolved.iterations, resolved.burn_in, resolved.thin, resolved.evaluate_every] == [50, 15, 5, 7]


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
        ({"rank": -3}, ["rank: ", "greater than or equal to 0", "'auto' (found -3)"]),
        ({"rank": 0, "biases": False}, ["--rank 0", "--no-biases", "--rank 1 or more"]),
        ({"rank": 0, "likelihood": "all-cells"}, ["--rank 0", "all-cells"]),
        ({"schedule": "spiral"}, ["schedule", "spiral", "cyclic"]),
        ({"noise_precision": float("nan")}, ["noise_precision"]),
        ({"noise_precision": "loud"}, ["noise_precision", "loud", "sampled"]),
        ({"iterations": "ten"}, ["iterations", "ten", "500sweeps"]),
        ({"burn_in": -1}, ["burn_in", "-1"]),
        ({"checkpoint_every": 0}, ["checkpoint_every"]),
        ({"checkpoint_every": "soon"}, ["checkpoint_every", "soon", "10min"]),
        ({"seed": 2**63}, ["seed"]),
        ({"friction": 0.8}, ["friction: is not a setting; those of the sampler are sampler.NAME"]),
        ({"sampler": "sgdl"}, ["sgdl", *SAMPLERS]),
        ({"sampler": {"frictoin": 0.8}}, ["sampler.frictoin: is not a setting"]),
        ({"sampler": {"name": "psgld", "alpha": 2}}, ["sampler.alpha", "2"]),
        ({"sampler": {"name": "gibbs", "step_size": 0.1}}, ["sampler.step_size: is not a setting"]),
        ({"sampler": 3}, ["sampler"]),
        ({"rank": -1, "seed": -1, "grid": 0}, ["rank", "seed", "grid"]),
    ],
)
def test_errors_name_the_setting(settings: dict[str, Any], words: list[str]) -> None:
    """One line with all errors: the setting's name as the user writes it, what was found, what would be right."""
    with pytest.raises(InputError) as caught:
        build(settings)
    message = str(caught.value)
    assert all(word in message for word in words), message
    assert "\n" not in message
    assert "Value error" not in message
