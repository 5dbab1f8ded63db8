"""Writes ``docs/settings.md`` from the configuration classes: ``python docs/settings.py``. A test compares."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from dsgmcmc.cli.app import app
from dsgmcmc.config.chain import ChainConfig
from dsgmcmc.config.run import ModelConfig
from dsgmcmc.samplers import SAMPLERS

HEAD = """# Settings

Generated from the configuration classes by `python docs/settings.py`; do not edit.

A setting is given to `dsgmcmc sample` as an option or with `--set NAME=VALUE`, in a file with `--config FILE.toml`, or
to `BPMF` as a parameter or in `options={...}`. `dsgmcmc sample DATA.h5 --out RUN --dry-run` prints what all of them
come to, and `RUN/run.toml` has them afterwards. Lengths are iterations, or such as `"500sweeps"`.
"""


def settings() -> str:
    """Return the page."""
    options = _options()
    parts = [HEAD]
    for title, model in (("The model", ModelConfig), ("The chain", ChainConfig)):
        own = {name: field for name, field in model.model_fields.items() if name != "sampler"}
        parts += [f"## {title}\n", _table(own, "", options)]
    parts.append("## Samplers\n\n`--sampler NAME`, and `--set sampler.SETTING=VALUE`.\n")
    for name, sampler in SAMPLERS.items():
        fields = sampler.Config.model_fields
        parts += [f"### {name}\n", _table(fields, "sampler.", options, sampler.gradients[0])]
    return "\n".join(parts)


def _options() -> dict[str, tuple[str, str]]:
    """Longest option of `dsgmcmc sample`, and what its help says, by the name of its parameter."""
    command = typer.main.get_command(app).commands["sample"]  # type: ignore[attr-defined]
    return {each.name: (max(each.opts, key=len), each.help or "") for each in command.params if each.opts[0][0] == "-"}


def _table(fields: dict[str, FieldInfo], prefix: str, options: dict[str, tuple[str, str]], gradient: str = "") -> str:
    lines = ["| setting | option | values | default | |", "|---|---|---|---|---|"]
    for name, field in fields.items():
        option, said = options.get(name, ("", ""))
        default = f"`{gradient}`" if name == "gradient" else _default(field.default)
        what = field.description or said.rstrip(".")
        cells = (f"`{prefix}{name}`", f"`{option}`" if option else "", _values(field), default, what)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _default(value: Any) -> str:
    if value is PydanticUndefined:
        return "required"
    return "" if value is None else f"`{value}`"


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
    return {int: ["integer"], float: ["number"], str: ["text"], bool: ["yes or no"]}.get(kind, [])


if __name__ == "__main__":
    Path(__file__).with_name("settings.md").write_text(settings(), encoding="utf-8")
