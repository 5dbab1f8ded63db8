"""The options of ``sample`` go by the names of the settings that they give."""

from __future__ import annotations

from dataclasses import fields

import typer

from dsgmcmc.cli.app import app
from dsgmcmc.config.job import Policy
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
