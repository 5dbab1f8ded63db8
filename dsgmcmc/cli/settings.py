"""Settings as options of ``dsgmcmc sample``: read from the classes that declare them by `dsgmcmc.settings.setting`."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from pathlib import Path
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
    option: str  # such as --time-levels; of a switch that can be turned off --biases/--no-biases
    kind: type  # int, float, bool, str or Path
    help: str
    default: str  # as the help shows it
    metavar: str
    short: str


def sections() -> dict[str, Fields]:
    """Settings of the model, the chain and the job; of a sampler's own only the step, which has an option."""
    chain = dict(ChainConfig.model_fields)
    step = StepSize.model_fields["step_size"]
    return {
        "model": dict(ModelConfig.model_fields),
        "chain": {"sampler": chain.pop("sampler"), "step_size": step, **chain},
        "job": {name: field for name, field in Policy.model_fields.items() if field.description},
    }


def settings() -> list[Setting]:
    """Settings that have options, in the order of the help."""
    return [
        Setting(
            section,
            name,
            option_of(name, field),
            _kind(field),
            field.description or "",
            how["shown"] or _shown(field.default),
            how["metavar"] or "|".join(word.strip("`") for word in kinds(field.annotation) if word.startswith("`")),
            how["short"],
        )
        for section, fields in sections().items()
        for name, field in fields.items()
        if (how := declared(field))["offered"]
    ]


def parameters() -> list[inspect.Parameter]:
    """Parameters of a command, one for each option; the value is None if the option is not given."""
    result = []
    for setting in settings():
        default = f" [default: {setting.default}]" if setting.default else ""
        option = typer.Option(
            *filter(None, (setting.option, setting.short)),
            metavar=setting.metavar or None,
            help=setting.help + default,
            rich_help_panel=f"Settings of the {setting.section}",
        )
        kind: Any = Annotated[setting.kind | None, option]
        result.append(inspect.Parameter(setting.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind))
    return result


def declared(field: FieldInfo) -> dict[str, Any]:
    """Return what `setting` declares about an option; a sampler's own settings have none."""
    extra: Any = field.json_schema_extra or {}
    return {"shown": "", "offered": False, "metavar": "", "short": "", **extra.get("option", {})}


def option_of(name: str, field: FieldInfo) -> str:
    """Option of a setting, with the one that turns it off if it is on by default."""
    option = f"--{name.replace('_', '-')}"
    can_be_turned_off = _kind(field) is bool and field.default is not False
    return f"{option}/--no-{option[2:]}" if can_be_turned_off else option


def kinds(annotation: Any) -> Iterable[str]:
    """Names of the types that a setting admits, or its alternatives in backquotes."""
    if get_origin(annotation) is Literal:
        return [f"`{value}`" for value in get_args(annotation)]
    if get_args(annotation):
        return [name for kind in get_args(annotation) for name in kinds(kind)]
    names = {int: ["integer"], float: ["number"], str: ["text"], bool: ["yes or no"], Path: ["path"]}
    return names.get(annotation, [])


def _kind(field: FieldInfo) -> type:
    """Type of an option: text if the setting admits several types, or has a metavar of its own."""
    types = {kind for kind in (get_args(field.annotation) or (field.annotation,)) if kind is not type(None)}
    (kind,) = types if len(types) == 1 else (str,)
    if kind in (int, float, Path) or (kind is bool and not declared(field)["metavar"]):
        return kind
    return str


def _shown(value: Any) -> str:
    """A default as the help has it."""
    if value is None or isinstance(value, bool):
        return "on" if value else ""
    return f"{value:g}" if isinstance(value, float) else str(value)
