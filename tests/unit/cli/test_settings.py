"""Settings: declared once, with an option of ``sample``, and named in messages as the reader can
give them.
"""

import ast
import inspect
import re
from contextvars import Context
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

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


#: Parameters of BPMF that no command has, each with what it is for.
OWN = {
    "options": "all other settings by their names",
    "user": "columns in Python's types, which `columns` has as text",
    "item": "as `user`",
    "context": "as `user`",
    "random_state": "the seed, as scikit-learn names it",
    "rng": "the seed, as SPEC 7 names it",
    "model": "as --model of sample, which is no setting",
    "out": "as --out",
    "warm_start": "as --resume",
    "n_jobs": "as -n of mpirun",
    "comm": "the processes that call `fit` together",
    "verbose": "progress is shown unless --json or another program asks for none",
}
#: Parameters of BPMF whose defaults differ from the declared ones, and why.
DIFFERENT = {
    "test_fraction": (0.0, "`fit` usually gets a training set"),
    "duplicates": ("error", "in memory, repeated pairs are usually a mistake"),
    "matrix": (None, "the form of an object in memory tells"),
    "unknown": ("prior", "scikit-learn's regressors predict whatever they are given"),
}
#: Parameters that admit other objects than text, which the types of settings cannot say.
OBJECTS = {"columns", "user_features", "item_features", "feature_kinds", "ignore", "hold_out_by"}


def test_parameters_of_bpmf_are_as_declared() -> None:
    """Each is a setting that is declared once, of its type and default, or a named exception; the
    docstring says of settings of a run what the help does.
    """
    documented = re.split(r"\n(?=\w[\w, ]* : )", inspect.getdoc(BPMF) or "")
    said = {
        entry.partition(" : ")[0]: " ".join(entry.split("\n", 1)[1].split())
        for entry in documented[1:]
    }
    of_run = RunConfig.model_fields
    declarations = {**PredictSettings.model_fields, **PrepareSettings.model_fields, **of_run}
    parameters = inspect.signature(BPMF, eval_str=True).parameters
    assert parameters.keys() - declarations.keys() == OWN.keys()
    assert {"rank", "sampler", "noise", "time_levels", "until"} <= parameters.keys() & of_run.keys()
    for name in parameters.keys() & declarations.keys():
        field = declarations[name]
        default, _ = DIFFERENT.get(name, (field.default, ""))
        admitted = [default, None] if name in of_run else [default]
        assert parameters[name].default in admitted, name
        if name in of_run:
            assert said[name].startswith(str(field.description).rstrip(".")), name
        if name in OBJECTS or name == "sampler":
            continue
        annotation = parameters[name].annotation
        values = set(literals(field.annotation))
        if values and literals(annotation):
            assert set(literals(annotation)) == values, name
        else:
            assert plain_types(annotation) - {NoneType} <= plain_types(field.annotation), name


def literals(annotation: Any) -> list[object]:
    """Return the values that an annotation lists, at any depth."""
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    return [value for part in get_args(annotation) for value in literals(part)]


def plain_types(annotation: Any) -> set[type]:
    """Return the types that an annotation admits; a listed value admits its type."""
    if annotation in (Any, object):
        return {object}
    if isinstance(annotation, type):
        return {annotation}
    found = {type(value) for value in literals(annotation)}
    if get_origin(annotation) is Literal:
        return found
    return found.union(*(plain_types(part) for part in get_args(annotation) if is_typed(part)))


def is_typed(part: Any) -> bool:
    """Whether a part of an annotation is a type, and no bound of its values."""
    return isinstance(part, type) or get_origin(part) is not None or part in (Any, object)


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
