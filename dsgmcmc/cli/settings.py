"""Settings as options of ``dsgmcmc sample``: read from the classes that declare them by `dsgmcmc.settings.setting`."""

from __future__ import annotations

import inspect
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from dsgmcmc.config.chain import ChainConfig
from dsgmcmc.config.job import Policy
from dsgmcmc.config.run import ModelConfig
from dsgmcmc.samplers.step_size import StepSize

Fields = dict[str, FieldInfo]


class Setting(NamedTuple):
    """A setting that has an option."""

    section: str  # model, chain or job
    name: str  # with underscores
    option: str  # such as --time-levels
    help: str
    default: str  # as the help shows it
    parameter: inspect.Parameter  # of a command; its value is None if the option is not given


def sections() -> dict[str, Fields]:
    """Settings of the model, the chain and the job; of a sampler's own only the step, which has an option."""
    chain = dict(ChainConfig.model_fields)
    step = StepSize.model_fields["step_size"]
    return {
        "model": dict(ModelConfig.model_fields),
        "chain": {"sampler": chain.pop("sampler"), "step_size": step, **chain},
        "job": {name: field for name, field in Policy.model_fields.items() if field.description},
    }


def declared(field: FieldInfo) -> dict[str, Any]:
    """Return what `setting` declares about an option; a sampler's own settings have none."""
    extra: Any = field.json_schema_extra or {}
    return {"shown": "", "offered": False, "metavar": "", "short": "", **extra.get("option", {})}


def settings() -> list[Setting]:
    """Settings that have options, in the order of the help."""
    return [
        _setting(section, name, field)
        for section, fields in sections().items()
        for name, field in fields.items()
        if declared(field)["offered"]
    ]


def _setting(section: str, name: str, field: FieldInfo) -> Setting:
    how, description = declared(field), field.description or ""
    option = f"--{name.replace('_', '-')}"
    default = how["shown"] or _shown(field.default)
    given = typer.Option(
        f"{option}/--no-{option[2:]}" if field.default is True else option,
        *([how["short"]] if how["short"] else []),
        metavar=how["metavar"] or None,
        help=f"{description} [default: {default}]" if default else description,
        rich_help_panel=f"Settings of the {section}",
    )
    kind: Any = Annotated[_type(field) | None, given]
    parameter = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
    return Setting(section, name, option, description, default, parameter)


def _type(field: FieldInfo) -> Any:
    """Type that the command line checks; of several types text, which the setting's class reads."""
    annotation: Any = field.annotation
    if get_origin(annotation) is Literal:
        return annotation
    types = [kind for kind in get_args(annotation) or [annotation] if kind is not NoneType]
    return types[0] if types in ([int], [float], [bool]) else str


def _shown(value: Any) -> str:
    """A default as the help has it."""
    if value is None or isinstance(value, bool):
        return "on" if value else ""
    return f"{value:g}" if isinstance(value, float) else str(value)
