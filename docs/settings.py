"""Writes docs/settings.md from the classes that declare settings: ``python docs/settings.py``.

A test checks that the page is up to date.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from dsgmcmc.cli.sample import declared, sections
from dsgmcmc.samplers import SAMPLERS
from dsgmcmc.samplers.step_size import StepSize

HEAD = """# Settings

Generated from the configuration classes by `python docs/settings.py`; do not edit.

A setting is given to `dsgmcmc sample` as an option or with `--set NAME=VALUE`, in a file with `--config FILE.toml`, or
to `BPMF` as a parameter or in `options={...}`. `dsgmcmc sample DATA.h5 --out RUN --dry-run` prints the values of
all settings, and `RUN/run.toml` stores them. A length is a number of iterations, such as `2000`, or of sweeps, such as
`"500sweeps"`.
"""

JOB = """These settings are given only as options. The draws do not depend on them, except that `on_divergence`
decides what a chain does after divergence.
"""


def page() -> str:
    """Return the page."""
    parts = [HEAD]
    for section, of_section in sections().items():
        fields = {name: field for name, field in of_section.items() if name not in ("sampler", "step_size")}
        parts += [f"## The {section}\n", *([JOB] if section == "job" else []), _page_table(fields)]
    parts.append("## Samplers\n\n`--sampler NAME`, and `--set sampler.SETTING=VALUE`.\n")
    for name, sampler in SAMPLERS.items():
        parts += [f"### {name}\n", _page_table(sampler.Config.model_fields, sampler.gradients[0])]
    return "\n".join(parts)


def _page_table(fields: dict[str, FieldInfo], gradient: str = "") -> str:
    """Return a table of settings; for settings of a sampler, `gradient` is the sampler's default gradient."""
    lines = ["| setting | option | values | default | |", "|---|---|---|---|---|"]
    for name, field in fields.items():
        general = StepSize.model_fields.get(name, field) if gradient else field
        option = f"`--{name.replace('_', '-')}`" if declared(general)["offered"] else ""
        default = f"`{gradient}`" if name == "gradient" else _default(field)
        description = (field.description or general.description or "").rstrip(".")
        cells = (f"`{'sampler.' if gradient else ''}{name}`", option, _values(field), default, description)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _default(field: FieldInfo) -> str:
    if field.default is PydanticUndefined:
        return "required"
    return declared(field)["shown"] or ("" if field.default is None else f"`{field.default}`")


def _values(field: FieldInfo) -> str:
    """Return the values that a setting admits: its alternatives, or its types and bounds."""
    bounds = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    limits = [(words, getattr(constraint, key, None)) for constraint in field.metadata for key, words in bounds.items()]
    phrases = [f"{words} {bound}" for words, bound in limits if bound is not None]
    types = ", ".join(dict.fromkeys(kinds(field.annotation)))
    return " ".join([types, ", ".join(phrases)]).strip()


def kinds(annotation: Any) -> Iterable[str]:
    """Return the names of the types that a setting admits, or its alternatives in backquotes."""
    if get_origin(annotation) is Literal:
        return [f"`{value}`" for value in get_args(annotation)]
    if get_args(annotation):
        return [name for kind in get_args(annotation) for name in kinds(kind)]
    names = {int: ["integer"], float: ["number"], str: ["text"], bool: ["yes or no"], Path: ["path"]}
    return names.get(annotation, [])


if __name__ == "__main__":
    Path(__file__).with_suffix(".md").write_text(page(), encoding="utf-8")
