"""Writes what the classes declare of settings: ``python docs/settings.py``. A test compares.

``docs/settings.md`` has all settings, ``dsgmcmc/settings.json`` those that are options of ``dsgmcmc sample``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from dsgmcmc.config.chain import ChainConfig
from dsgmcmc.config.job import Policy
from dsgmcmc.config.run import ModelConfig
from dsgmcmc.samplers import SAMPLERS
from dsgmcmc.samplers.step_size import StepSize
from dsgmcmc.settings import Setting

Fields = dict[str, FieldInfo]

HEAD = """# Settings

Generated from the configuration classes by `python docs/settings.py`; do not edit.

A setting is given to `dsgmcmc sample` as an option or with `--set NAME=VALUE`, in a file with `--config FILE.toml`, or
to `BPMF` as a parameter or in `options={...}`. `dsgmcmc sample DATA.h5 --out RUN --dry-run` prints what all of them
come to, and `RUN/run.toml` has them afterwards. Lengths are iterations, or such as `"500sweeps"`.
"""

JOB = """Options alone: the draws do not depend on them.
"""


def sections() -> dict[str, Fields]:
    """Settings by what they belong to; those of samplers are elsewhere, but for the one that has an option."""
    chain = dict(ChainConfig.model_fields)
    return {
        "model": ModelConfig.model_fields,
        "chain": {"sampler": chain.pop("sampler"), "step_size": StepSize.model_fields["step_size"], **chain},
        "job": _of_policy(),
    }


def _of_policy() -> Fields:
    hints = get_type_hints(Policy, include_extras=True)
    return {
        each.name: FieldInfo.from_annotated_attribute(hints[each.name], each.default)
        for each in fields(Policy)
        if get_origin(hints[each.name]) is Annotated
    }


# ---------------------------------------------------------------------- the options of sample


def table() -> str:
    """Return ``settings.json``."""
    found = [
        Setting(
            section,
            name,
            _option(name, field),
            _type(field),
            field.description or "",
            how.shown or _shown(field.default),
            how.metavar or "|".join(word.strip("`") for word in _kinds(field.annotation) if word.startswith("`")),
            how.short,
        )
        for section, each in sections().items()
        for name, field in each.items()
        if (how := _how(field)).offered
    ]
    rows = [json.dumps({key: text for key, text in each._asdict().items() if text}) for each in found]
    return "[\n" + ",\n".join(rows) + "\n]\n"


def _how(field: FieldInfo) -> SimpleNamespace:
    """What `dsgmcmc.settings.setting` says of a setting's option; a sampler's own settings have none."""
    extra = field.json_schema_extra or {}
    return SimpleNamespace(**{"shown": "", "offered": False, "metavar": "", "short": "", **extra.get("option", {})})


def _option(name: str, field: FieldInfo) -> str:
    option = f"--{name.replace('_', '-')}"
    can_be_turned_off = _type(field) == "bool" and field.default is not False
    return f"{option}/--no-{option[2:]}" if can_be_turned_off else option


def _type(field: FieldInfo) -> str:
    """What an option takes; text, where a setting admits several types or has a metavar of its own."""
    kinds = {kind for kind in (get_args(field.annotation) or (field.annotation,)) if kind is not type(None)}
    (kind,) = kinds if len(kinds) == 1 else (str,)
    plain = kind in (int, float, Path) or (kind is bool and not _how(field).metavar)
    return kind.__name__ if plain else "str"


def _shown(value: Any) -> str:
    """A field's default, as the help has it."""
    if value is None or isinstance(value, bool):
        return "on" if value else ""
    return f"{value:g}" if isinstance(value, float) else str(value)


# ---------------------------------------------------------------------- the page


def settings() -> str:
    """Return the page."""
    parts = [HEAD]
    for section, of_section in sections().items():
        own = {name: field for name, field in of_section.items() if name not in ("sampler", "step_size")}
        parts += [f"## The {section}\n", *([JOB] if section == "job" else []), _page_table(own)]
    parts.append("## Samplers\n\n`--sampler NAME`, and `--set sampler.SETTING=VALUE`.\n")
    for name, sampler in SAMPLERS.items():
        parts += [f"### {name}\n", _page_table(sampler.Config.model_fields, sampler.gradients[0])]
    return "\n".join(parts)


def _page_table(own: Fields, gradient: str = "") -> str:
    """Rows of a table; of a sampler's settings, if its own `gradient` is given."""
    lines = ["| setting | option | values | default | |", "|---|---|---|---|---|"]
    for name, field in own.items():
        general = StepSize.model_fields.get(name, field) if gradient else field
        option = f"`{_option(name, field).split('/')[0]}`" if _how(general).offered else ""
        default = f"`{gradient}`" if name == "gradient" else _default(field)
        what = (field.description or general.description or "").rstrip(".")
        cells = (f"`{'sampler.' if gradient else ''}{name}`", option, _values(field), default, what)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _default(field: FieldInfo) -> str:
    if field.default is PydanticUndefined:
        return "required"
    return _how(field).shown or ("" if field.default is None else f"`{field.default}`")


def _values(field: FieldInfo) -> str:
    """What a setting admits: its alternatives, or its kind and bounds."""
    bounds = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    given = [(words, getattr(each, key, None)) for each in field.metadata for key, words in bounds.items()]
    found = [f"{words} {bound}" for words, bound in given if bound is not None]
    kinds = ", ".join(dict.fromkeys(_kinds(field.annotation)))
    return " ".join([kinds, ", ".join(found)]).strip()


def _kinds(kind: Any) -> Iterable[str]:
    if get_origin(kind) is Literal:
        return [f"`{value}`" for value in get_args(kind)]
    if get_args(kind):
        return [name for each in get_args(kind) for name in _kinds(each)]
    return {int: ["integer"], float: ["number"], str: ["text"], bool: ["yes or no"], Path: ["path"]}.get(kind, [])


if __name__ == "__main__":
    here = Path(__file__).parent
    here.with_name("dsgmcmc").joinpath("settings.json").write_text(table(), encoding="utf-8")
    (here / "settings.md").write_text(settings(), encoding="utf-8")
