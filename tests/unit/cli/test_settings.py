"""Settings: declared once, with an option of ``sample``, and named in messages as the reader can
give them.
"""

import ast
import inspect
import re
from contextvars import Context
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer

from dsgmcmc import BPMF
from dsgmcmc.cli.app import app
from dsgmcmc.cli.options import declared, option_name
from dsgmcmc.cli.sample import sections
from dsgmcmc.config.job import Policy
from dsgmcmc.config.run import RunConfig, build
from dsgmcmc.densities.registry import SAMPLERS
from dsgmcmc.errors import InputError
from dsgmcmc.posterior.settings import EvaluateSettings, PredictSettings, RecommendSettings
from dsgmcmc.prepare.settings import PrepareSettings
from dsgmcmc.runs.settings import CompareSettings
from dsgmcmc.settings import BPMF_NAMES, Checked, in_python, named, without_option

ROOT = Path(__file__).resolve().parents[3]
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
#: Settings that have options, by section and name.
OFFERED = {
    section: {name: field for name, field in fields.items() if declared(field)["offered"]}
    for section, fields in sections().items()
}
#: Options of `sample` that are no settings.
OTHERS = {"data", "out", "config", "assign", "model", "resume", "start", "dry_run"}


def test_every_option_of_sample_goes_somewhere() -> None:
    """One that no setting bears the name of would be read and forgotten."""
    of_job = set(OFFERED["job"])
    of_run = OFFERED["model"].keys() | OFFERED["chain"].keys()
    assert {parameter.name for parameter in COMMANDS["sample"].params} == OTHERS | of_run | of_job
    assert of_run - {"step_size"} <= set(RunConfig.model_fields), "the step is of the sampler"
    assert of_job == set(Policy.model_fields)


def test_parameters_of_bpmf_are_as_declared() -> None:
    """Their defaults are those of the run, or None, and the docstring says of them what the help
    does.
    """
    documented = re.split(r"\n(?=\w[\w, ]* : )", inspect.getdoc(BPMF) or "")
    said = {
        entry.partition(" : ")[0]: " ".join(entry.split("\n", 1)[1].split())
        for entry in documented[1:]
    }
    options = OFFERED["model"] | OFFERED["chain"]
    parameters = inspect.signature(BPMF).parameters
    shared = parameters.keys() & options.keys()
    assert {"rank", "sampler", "noise", "time_levels", "until"} <= shared
    for name in shared:
        assert said[name].startswith(str(options[name].description).rstrip(".")), name
        assert parameters[name].default in (None, RunConfig.model_fields[name].default), name


# ---------------------------------------------------------------------- names in messages


def test_a_name_is_that_of_who_is_told() -> None:
    """The command line has options, Python has parameters and ``options``; afterwards all is as
    before.
    """
    names = ("time_levels", "sampler.metric", "center", "step_size", "no_biases", "from")
    options = [
        "--time-levels",
        "--set sampler.metric",
        "--set center",
        "--step-size",
        "--no-biases",
        "--from",
    ]
    arguments = [
        "time_levels",
        "sampler.metric",
        "center",
        "sampler.step_size",
        "biases=False",
        "start",
    ]
    assert [named(name) for name in names] == options
    with in_python():
        assert [named(name) for name in names] == arguments
        with in_python({"step_size": "the step"}):
            assert named("step_size") == "the step"
    assert named("step_size") == "--step-size"
    without_front_end = Context()
    assert without_front_end.run(named, "step_size") == "sampler.step_size"
    with in_python(), pytest.raises(InputError, match="has no use for center: leave it out"):
        build({"likelihood": "ordinal-logit", "center": False}).resolved()


def test_every_name_in_messages_is_one() -> None:
    """An option of some command, or a setting of some sampler."""
    options = {
        word
        for each in COMMANDS.values()
        for one in each.params
        for word in (*one.opts, *one.secondary_opts)
    }
    own = {name for sampler_type in SAMPLERS.values() for name in sampler_type.Config.model_fields}
    found = set()
    for path in (ROOT / "dsgmcmc").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and ast.unparse(node.func) == "named"
                and isinstance(node.args[0], ast.Constant)
            ):
                found.add(str(node.args[0].value))
    assert len(found) > 20
    for name in found | BPMF_NAMES.keys():
        section, _, last = name.rpartition(".")
        if section == "sampler":
            assert last in own, name
        else:
            assert option_name(name) in options or name in without_option, name
    hidden = {
        name
        for fields in sections().values()
        for name in fields
        if not declared(fields[name])["offered"]
    }
    assert hidden == without_option


def test_options_of_prepare_are_its_settings() -> None:
    """An option that no setting has would be read and forgotten; so would a setting without one."""
    options = {parameter.name for parameter in COMMANDS["prepare"].params}
    settings = {
        name for name, field in PrepareSettings.model_fields.items() if declared(field)["offered"]
    }
    assert options == {"ratings", "out", "as_json"} | settings


def test_arguments_of_bpmf_are_as_prepare_declares() -> None:
    """They admit the same values; defaults differ where `fit` gets a training set."""
    parameters = inspect.signature(BPMF, eval_str=True).parameters
    shared = parameters.keys() & PrepareSettings.model_fields.keys()
    assert {"columns", "missing", "feature_kinds", "duplicates", "matrix"} <= shared
    others = {"test_fraction": 0.0, "duplicates": "error", "matrix": None}
    for name in shared:
        declared_default = PrepareSettings.model_fields[name].default
        assert parameters[name].default == others.get(name, declared_default), name
    assert (
        parameters["duplicates"].annotation == PrepareSettings.model_fields["duplicates"].annotation
    )


@dataclass(repr=False, eq=False)
class Separated(BPMF):
    """An estimator with one more setting of `prepare`."""

    separator: str = "|"


def test_a_parameter_that_prepare_declares_reaches_it() -> None:
    """By its name alone: one that had to be listed once more would be read and forgotten."""
    pairs = [[1, 1], [1, 2], [2, 1], [2, 2]]
    with pytest.raises(InputError, match=r"^fit: separator: "):
        Separated(separator="").fit(pairs, [1.0, 2.0, 3.0, 4.0])


def test_a_wrong_setting_of_prepare_is_named_as_it_was_given() -> None:
    """By the option on the command line, by the argument in Python; all wrong ones at once."""
    wrong = {"test_fraction": 1, "separator": ""}
    expected = r"^--test-fraction: .* less than 1.*; --separator: "
    with pytest.raises(InputError, match=expected):
        PrepareSettings.from_settings(wrong)
    with in_python(), pytest.raises(InputError, match=r"^test_fraction: .*; separator: "):
        PrepareSettings.from_settings(wrong)


@pytest.mark.parametrize(
    ("command", "settings", "others"),
    [
        ("predict", PredictSettings, {"run", "pairs", "out", "as_json"}),
        ("recommend", RecommendSettings, {"run", "user", "everyone", "pairs", "out", "as_json"}),
        ("evaluate", EvaluateSettings, {"run", "others", "as_json"}),
        ("compare", CompareSettings, {"data", "out", "config", "assign", "as_json"}),
    ],
)
def test_options_of_a_command_are_its_settings(
    command: str, settings: type[Checked], others: set[str]
) -> None:
    """Every setting has an option, and no option is read and forgotten."""
    options = {parameter.name for parameter in COMMANDS[command].params}
    assert options == others | settings.model_fields.keys()


def test_arguments_of_recommend_are_as_declared() -> None:
    """In Python they have the defaults and the values that the command has."""
    parameters = inspect.signature(BPMF.recommend, eval_str=True).parameters
    fields = RecommendSettings.model_fields
    shared = parameters.keys() & fields.keys()
    assert {"by", "z", "seed", "at_least", "include_rated"} <= shared
    for name in shared:
        assert parameters[name].default == fields[name].default, name
    assert parameters["n"].default == fields["top"].default
    assert parameters["by"].annotation == fields["by"].annotation
