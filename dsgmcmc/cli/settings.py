"""Options of ``dsgmcmc sample``, made from the settings that classes declare with `dsgmcmc.settings.setting`."""

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
    help: str
    parameter: inspect.Parameter  # of the command; None if the option is not given


def sections() -> dict[str, Fields]:
    """Settings of the model, the chain and the job; among sampler settings only the step size, which has an option."""
    chain = dict(ChainConfig.model_fields)
    step = StepSize.model_fields["step_size"]
    return {
        "model": dict(ModelConfig.model_fields),
        "chain": {"sampler": chain.pop("sampler"), "step_size": step, **chain},
        "job": {name: field for name, field in Policy.model_fields.items() if field.description},
    }


def declared(field: FieldInfo) -> dict[str, Any]:
    """Return the declaration of an option by `setting`; most settings of samplers have no option."""
    extra: Any = field.json_schema_extra or {}
    return {"shown": "", "offered": False, "metavar": "", "short": "", **extra.get("option", {})}


def settings() -> list[Setting]:
    """List the settings that have options, in the order of the help."""
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
    return Setting(section, name, description, parameter)


def _type(field: FieldInfo) -> Any:
    """Type of the option; text if the setting admits several types, as its class parses the text."""
    annotation: Any = field.annotation
    if get_origin(annotation) is Literal:
        return annotation
    types = [kind for kind in get_args(annotation) or [annotation] if kind is not NoneType]
    return types[0] if types in ([int], [float], [bool]) else str


def _shown(value: Any) -> str:
    """Format a default for the help."""
    if value is None or isinstance(value, bool):
        return "on" if value else ""
    return f"{value:g}" if isinstance(value, float) else str(value)
