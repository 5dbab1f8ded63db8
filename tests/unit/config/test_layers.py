"""The layers of settings: which wins, what a file and ``--set`` say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support import STEPPING

from dsgmcmc.config.run import build, parse_assignments, read_settings
from dsgmcmc.errors import InputError
from dsgmcmc.storage.files import read_toml


def test_later_layers_win() -> None:
    """Options over file over the run's own settings; what no layer names keeps its default."""
    config = build({"rank": 8, "seed": 1}, {"rank": 9, "sampler": {"friction": 0.9}}, {"sampler": {"friction": 0.8}})
    assert (config.rank, config.seed, config.grid) == (9, 1, None)
    assert config.sampler.config.friction == 0.8


@pytest.mark.parametrize(
    ("settings", "name"),
    [({}, "baoab"), ({"biases": False}, "psgld"), ({"center": False}, "psgld"), ({"prior": "fixed"}, "psgld")],
)
def test_the_default_sampler_is_one_that_is_stable(settings: dict[str, Any], name: str) -> None:
    """Nobody who types only --no-biases gets a chain that diverges."""
    assert build(settings).sampler.name == name


@pytest.mark.parametrize("name", STEPPING)
def test_a_section_without_a_name_belongs_to_the_sampler_before(name: str) -> None:
    """--step-size with a file that names the sampler changes that sampler's step."""
    config = build({"sampler": {"name": name}}, {"sampler": {"step_size": 0.125}})
    assert (config.sampler.name, config.sampler.config.step_size) == (name, 0.125)


def test_another_sampler_discards_the_section_of_the_one_before() -> None:
    """Its settings mean something else: psgld's alpha must not reach sgld, nor stop the run."""
    config = build({"sampler": {"name": "psgld", "alpha": 0.5, "step_size": 0.125}}, {"sampler": "sgld"})
    assert config.sampler == build({"sampler": "sgld"}).sampler


def test_the_noise_precision_is_one_with_a_fixed_prior_and_sampled_elsewhere() -> None:
    """Given values win in either case."""
    assert build({"prior": "fixed"}).noise_precision == 1.0
    assert build({"prior": "fixed", "noise_precision": "sampled"}).noise_precision == "sampled"
    assert build({"prior": "normal-gamma"}).noise_precision == "sampled"
    assert build({"noise_precision": 2}).noise_precision == 2.0


# ---------------------------------------------------------------------- files and --set


def test_assignments_win_over_options_and_options_over_the_file(tmp_path: Path) -> None:
    """The nearer to the command, the stronger."""
    path = tmp_path / "c.toml"
    path.write_text("rank = 1\nseed = 1\ngrid = 1\n")
    config = build(read_settings({"seed": 2, "grid": 2}, path, ["grid=3"]))
    assert (config.rank, config.seed, config.grid) == (1, 2, 3)


def test_toml_files_may_spell_names_with_hyphens(tmp_path: Path) -> None:
    """A file uses the names of the options."""
    path = tmp_path / "c.toml"
    path.write_text('burn-in = "3sweeps"\nnoise_precision = 2\n[sampler]\nname = "sghmc"\nwarm-up = 2\n')
    config = build(read_settings({}, path))
    assert (config.burn_in, config.noise_precision, config.sampler.config.warm_up) == ("3sweeps", 2.0, 2)


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
    with pytest.raises(InputError, match=r"--set sampler\.alpha: expected NAME=VALUE"):
        parse_assignments(["sampler.alpha"])
