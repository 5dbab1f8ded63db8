"""The configuration: layers, spans, errors that name the setting, and the identity of a chain."""

from __future__ import annotations

import tomllib
from pathlib import Path
from types import NoneType
from typing import Any, get_args

import pytest

from dsgmcmc.config.run import FREE, RunConfig, build, parse_assignments, read_toml
from dsgmcmc.errors import InputError
from dsgmcmc.samplers import SAMPLERS
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
    "burn_in": 12,
    "thin": 13,
    "evaluate_every": 14,
    "noise": "both",
    "hyper_start": 3,
    "hyper_every": 2,
    "checkpoint_every": "90s",
    "keep_checkpoints": 5,
    "save_draws": 6,
    "sampler": {"name": "sgld"},
}


# ---------------------------------------------------------------------- layers


def test_later_layers_win() -> None:
    """Options over file over the run's own settings; what no layer names keeps its default."""
    config = build({"rank": 8, "seed": 1}, {"rank": 9, "sampler": {"friction": 0.9}}, {"sampler": {"friction": 0.8}})
    assert (config.rank, config.seed, config.grid) == (9, 1, 4)
    assert config.sampler["friction"] == 0.8


@pytest.mark.parametrize(
    ("settings", "name"),
    [({}, "baoab"), ({"biases": False}, "psgld"), ({"center": False}, "psgld"), ({"prior": "fixed"}, "psgld")],
)
def test_the_default_sampler_is_one_that_is_stable(settings: dict[str, Any], name: str) -> None:
    """Nobody who types only --no-biases gets a chain that diverges."""
    assert build(settings).sampler_name == name


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_section_without_a_name_belongs_to_the_sampler_before(name: str) -> None:
    """--step-size with a file that names the sampler changes that sampler's step."""
    config = build({"sampler": {"name": name}}, {"sampler": {"step_size": 0.125}})
    assert (config.sampler_name, config.sampler["step_size"]) == (name, 0.125)


def test_another_sampler_discards_the_section_of_the_one_before() -> None:
    """Its settings mean something else: psgld's alpha must not reach sgld, nor stop the run."""
    config = build({"sampler": {"name": "psgld", "alpha": 0.5, "step_size": 0.125}}, {"sampler": "sgld"})
    assert config.sampler == build({"sampler": "sgld"}).sampler


def test_naming_the_default_sampler_keeps_its_settings() -> None:
    """A file's [sampler] without a name is about the default sampler, also if an option then names it."""
    default = RunConfig().sampler_name
    config = build({"sampler": {"step_size": 0.125}}, {"sampler": {"name": default}})
    assert config.sampler["step_size"] == 0.125


@pytest.mark.parametrize("name", SAMPLERS)
def test_the_resolved_configuration_is_complete(name: str) -> None:
    """run.toml says everything: building from a resolved configuration gives the same one."""
    config = build({"sampler": name})
    assert set(config.sampler) == {"name", *SAMPLERS[name].Config.model_fields}
    assert build(config.model_dump()) == config
    assert RunConfig.model_validate_json(config.model_dump_json()) == config


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("prior", ["fixed", "normal-gamma"])
def test_run_toml_gives_back_the_same_chain(tmp_path: Path, name: str, prior: str) -> None:
    """A resumed run reads its settings from run.toml; TOML has no null, and must not lose any."""
    step = {"name": name, "step_size": 0.01}
    config = build({"prior": prior, "sampler": step, "burn_in": "3sweeps"}).resolved()
    run = RunDirectory(tmp_path)
    run.write_settings(config.model_dump(), {"data": "x"})
    settings, _ = run.read_settings()
    assert build(settings).hash() == config.hash()
    assert build(settings) == config


@pytest.mark.parametrize("name", SAMPLERS)
def test_no_setting_of_a_sampler_is_lost_in_toml(name: str) -> None:
    """What admits None has the default None: run.toml leaves it out, and reads the default back."""
    for field, info in SAMPLERS[name].Config.model_fields.items():
        if NoneType in get_args(info.annotation):
            assert info.default is None, field


def test_the_noise_precision_is_one_with_a_fixed_prior_and_sampled_elsewhere() -> None:
    """Given values win in either case."""
    assert build({"prior": "fixed"}).noise_precision == 1.0
    assert build({"prior": "fixed", "noise_precision": "sampled"}).noise_precision == "sampled"
    assert build({"prior": "normal-gamma"}).noise_precision == "sampled"
    assert build({"noise_precision": 2}).noise_precision == 2.0


# ---------------------------------------------------------------------- files and --set


def test_toml_files_may_spell_names_with_hyphens(tmp_path: Path) -> None:
    """A file uses the names of the options."""
    path = tmp_path / "c.toml"
    path.write_text('burn-in = "3sweeps"\nnoise_precision = 2\n[sampler]\nname = "sgld"\nwarm-up = 2\n')
    config = build(read_toml(path))
    assert (config.burn_in, config.noise_precision, config.sampler["warm_up"]) == ("3sweeps", 2.0, 2)


@pytest.mark.parametrize("content", [b"rank = ", b"\xff\xfe", b"rank = 1\nrank = 2\n"])
def test_a_file_that_is_not_toml_is_named(tmp_path: Path, content: bytes) -> None:
    """The message says which file."""
    path = tmp_path / "c.toml"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"c\.toml cannot be read as TOML"):
        read_toml(path)
    with pytest.raises(InputError, match=r"absent\.toml"):
        read_toml(tmp_path / "absent.toml")


def test_assignments_take_toml_values_and_plain_words() -> None:
    """--set sampler.alpha=0.95, --set schedule=cyclic, --set no-such=[1, 2]."""
    given = parse_assignments(
        ["sampler.alpha=0.95", "sampler.warm-up=3", "schedule=cyclic", "burn-in=3sweeps", "biases=false", "a=b=c"]
    )
    assert given == {
        "sampler": {"alpha": 0.95, "warm_up": 3},
        "schedule": "cyclic",
        "burn_in": "3sweeps",
        "biases": False,
        "a": "b=c",
    }


def test_an_assignment_without_a_value_is_refused() -> None:
    """With an example of what was expected."""
    with pytest.raises(InputError, match=r"--set sampler\.alpha: expected NAME=VALUE"):
        parse_assignments(["sampler.alpha"])


# ---------------------------------------------------------------------- spans and intervals


def test_spans_resolve_by_the_sweep() -> None:
    """Lengths may be given in sweeps or iterations, as numbers or text."""
    spans = {"iterations": "10sweeps", "burn_in": "3 sweeps", "thin": "1sweep", "evaluate_every": "7"}
    config = build({"grid": 5, "sampler": "psgld", **spans})
    resolved = config.resolved()
    assert [resolved.iterations, resolved.burn_in, resolved.thin, resolved.evaluate_every] == [50, 15, 5, 7]
    assert resolved.resolved() == resolved


@pytest.mark.parametrize("name", ["iterations", "thin", "evaluate_every"])
def test_spans_of_nothing_are_refused(name: str) -> None:
    """0 would divide by zero or do nothing; burn-in may be 0."""
    for nothing in (0, "0", "0sweeps"):
        with pytest.raises(InputError, match=f"{name} must be at least 1"):
            build({name: nothing}).resolved()
    assert build({"burn_in": 0}).resolved().burn_in == 0


@pytest.mark.parametrize(
    ("text", "expected"), [(7, (7, None)), ("7", (7, None)), ("90s", (None, 90.0)), ("1.5 h", (None, 5400.0))]
)
def test_checkpoint_intervals(text: int | str, expected: tuple[int | None, float | None]) -> None:
    """Iterations or time."""
    assert build({"checkpoint_every": text}).checkpoint_interval() == expected


# ---------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"rank": 0}, ["rank", "0"]),
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
        ({"keep_checkpoints": 1}, ["keep_checkpoints"]),
        ({"seed": -1}, ["seed"]),
        ({"seed": 2**63}, ["seed"]),
        ({"chains": 0}, ["chains"]),
        ({"rnak": 3}, ["rnak", "not a setting"]),
        ({"sampler": "sgdl"}, ["sgdl", *SAMPLERS]),
        ({"sampler": {"name": "psgld", "alhpa": 1}}, ["sampler.alhpa", "not a setting"]),
        ({"sampler": {"name": "psgld", "alpha": 2}}, ["sampler.alpha", "2"]),
        ({"sampler": {"step_size": 0}}, ["sampler.step_size"]),
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
        build({"rank": 0, "seed": -1, "schedule": "spiral"})
    assert all(name in str(caught.value) for name in ("rank", "seed", "schedule"))


# ---------------------------------------------------------------------- identity


def test_the_hash_is_of_what_the_draws_depend_on() -> None:
    """Every setting is either part of a chain's identity or named as free to change on resume."""
    base = build({})
    assert set(OTHER) == set(RunConfig.model_fields)
    for name, value in OTHER.items():
        changed = build({name: value})
        assert getattr(changed, name) != getattr(base, name)
        assert (changed.hash() == base.hash()) == (name in FREE), name
    assert set(FREE) == {"iterations", "checkpoint_every", "keep_checkpoints", "chains"}, "no draw depends on these"


def test_the_hash_sees_every_setting_of_the_sampler() -> None:
    """A changed alpha is another chain."""
    base = build({"sampler": {"name": "psgld"}})
    assert build({"sampler": {"name": "psgld", "alpha": 0.98}}).hash() != base.hash()


def test_the_configuration_is_plain_toml(tmp_path: Path) -> None:
    """run.toml can be read by anything, and names the facts of the run apart."""
    run = RunDirectory(tmp_path)
    run.write_settings(build({"sampler": "psgld"}).resolved().model_dump(), {"data": "x.h5"})
    content = tomllib.loads(run.settings_file.read_text(encoding="utf-8"))
    assert content["run"] == {"data": "x.h5"}
    assert content["burn_in"] == 400
