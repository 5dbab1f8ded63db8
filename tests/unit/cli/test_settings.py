"""The options of ``sample`` go by the names of the settings that they give."""

from __future__ import annotations

from dataclasses import fields

import typer

from dsgmcmc.cli.app import app
from dsgmcmc.config.job import Policy
from dsgmcmc.config.layers import build
from dsgmcmc.config.run import RunConfig

#: Options that are neither settings of the run nor of the job's policy; the step is part of the sampler's section,
#: `verify` and `start` are the source's.
OTHERS = {"data", "out", "step_size", "config", "assign", "resume", "verify", "start", "dry_run"}


def test_every_option_of_sample_goes_somewhere() -> None:
    """One that no setting bears the name of would be read and forgotten."""
    options = {parameter.name for parameter in typer.main.get_command(app).commands["sample"].params}
    policy = {field.name for field in fields(Policy)}
    assert OTHERS | policy <= options
    assert options - OTHERS - policy <= set(RunConfig.model_fields)
    assert not (OTHERS | policy) & set(RunConfig.model_fields)


def test_options_of_the_policy_have_its_defaults() -> None:
    """The help shows them."""
    command = typer.main.get_command(app).commands["sample"]
    shown = {parameter.name: parameter.default for parameter in command.params}
    for name, default in vars(Policy()).items():
        assert shown[name] == default, name


def test_every_setting_says_its_default() -> None:
    """The help shows what a run comes to where nothing is said."""
    chosen = build({})
    written = {True: "on", False: "off"}
    found = {name: written.get(value, value) if isinstance(value, bool) else value for name, value in chosen}
    found |= {"sampler": chosen.sampler.name, "step_size": chosen.sampler.config.step_size, "standardise": "yes"}
    found |= {"grid": chosen.resolved().grid, "thin": "2sweeps", "zero_weight": 0.1}
    found |= {"iterations": "at most 5000sweeps", "until": "ess=100"}  # of ratings with a test set: by `resolved`
    for parameter in typer.main.get_command(app).commands["sample"].params:
        if parameter.name in set(RunConfig.model_fields) | {"step_size"}:
            default = found[parameter.name]
            said = default if isinstance(default, str) else f"{default:g}"
            assert isinstance(parameter.show_default, str), parameter.name
            assert parameter.show_default.startswith(said), parameter.name
