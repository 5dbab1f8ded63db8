"""Writes docs/settings.md and docs/cli.md from the code: ``python docs/reference.py``.

A test checks that both pages are up to date.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from dsgmcmc.cli.app import app, with_settings
from dsgmcmc.cli.options import declared
from dsgmcmc.cli.sample import sections
from dsgmcmc.samplers import SAMPLERS

SETTINGS = """# Settings

Generated from the configuration classes by `python docs/reference.py`; do not edit.

Give a setting to `dsgmcmc sample` as an option (`burn_in` is `--burn-in`; those marked * have none)
or with `--set NAME=VALUE`, in a file with `--config FILE.toml`, or to `BPMF` as a parameter or in
`options={...}`. A file has the sampler's settings in a section `[sampler]`, and Python in
`options={"sampler.friction": 0.8}`. `dsgmcmc sample DATA.h5 --out RUN --dry-run` prints the values
of all settings, and `RUN/run.toml` stores them. A length is a number of iterations, such as `2000`,
or of sweeps, such as `"500sweeps"`.
"""

JOB = """These settings are given only as options. The draws do not depend on them, except that
`on_divergence` decides what a chain does after divergence.
"""

SAMPLER = """## Samplers

`--sampler NAME` chooses a sampler ([which one](samplers.md); default `auto`), and
`--set sampler.SETTING=VALUE` gives one of its settings; `--step-size` is short for
`--set sampler.step_size`. Without settings: {without}.

### Settings that several samplers share
"""

COMMANDS = """# Commands

Generated from the commands by `python docs/reference.py`; do not edit. `dsgmcmc COMMAND --help`
explains more, with examples. These arguments and options mean the same for several commands:
"""

Row = tuple[str, ...]


def settings_page() -> str:
    """Return the page on settings."""
    parts = [SETTINGS]
    for section, of_section in sections().items():
        fields = {
            name: field
            for name, field in of_section.items()
            if name not in ("sampler", "step_size")
        }
        items = [_item((_setting(name, field), *_about(field))) for name, field in fields.items()]
        parts += [f"## The {section}\n", *([JOB] if section == "job" else [])]
        parts.append("\n".join([*items, ""]))
    return "\n".join(parts + _samplers())


def _samplers() -> list[str]:
    """Return the section on samplers: settings that several share, then those of each."""
    takers: dict[Row, list[str]] = {}
    for name, sampler in SAMPLERS.items():
        for row in _settings_of(sampler):
            takers.setdefault(row, []).append(name)
    settings = list(dict.fromkeys(row[0] for row in takers))
    alike = sorted(
        (row for row in takers if len(takers[row]) > 1), key=lambda row: settings.index(row[0])
    )
    shared = [_item(row, takers[row]) for row in alike]
    single = []
    for name in SAMPLERS:
        own = [_item(row) for row, names in takers.items() if names == [name]]
        if own:
            single.append("\n".join([f"`{name}`:\n", *own, ""]))
    without = [name for name in SAMPLERS if not any(name in names for names in takers.values())]
    return [
        SAMPLER.format(without=_listed(without)),
        "\n".join([*shared, ""]),
        "### Settings of single samplers\n",
        *single,
    ]


def _settings_of(sampler: Any) -> Iterable[Row]:
    """Yield rows for a sampler's settings; its gradient is one if there is a choice."""
    for name, field in sampler.Config.model_fields.items():
        if name != "gradient":
            yield f"`{name}`", *_about(field)
        elif len(sampler.gradients) > 1:
            yield (
                "`gradient`",
                _listed(sampler.gradients),
                f"`{sampler.gradients[0]}`",
                "estimator of the gradient",
            )


def commands_page() -> str:
    """Return the page on commands: what several of them share, and a section on each."""
    with_settings()
    commands = {command.callback.__name__: command.callback for command in app.registered_commands}
    takers: dict[Row, list[str]] = {}
    for name, function in commands.items():
        for row in _parameters(function)[1]:
            takers.setdefault(row, []).append(name)
    alike = sorted(
        (row for row in takers if len(takers[row]) > 1), key=lambda row: row[0].startswith("`-")
    )
    shared = [_item(row, takers[row]) for row in alike]
    single = {row for row, names in takers.items() if len(names) == 1}
    of_commands = [_command(function, single) for function in commands.values()]
    return "\n".join([COMMANDS, *shared, "", *of_commands])


def _command(function: Any, single: set[Row]) -> str:
    """Return the section on a command: usage, first paragraph of the help, and options."""
    summary = inspect.cleandoc(function.__doc__).partition("\n\n")[0]
    usage, rows = _parameters(function)
    parts = [f"## {function.__name__}", f"`{' '.join(usage)} [OPTIONS]`", summary]
    if own := [_item(row) for row in rows if row in single]:
        parts.append("\n".join(own))
    if len(rows) < len(inspect.signature(function).parameters):
        parts.append("Its other options are [settings](settings.md).")
    return "\n\n".join(parts) + "\n"


def _parameters(function: Any) -> tuple[list[str], list[Row]]:
    """Return a command's usage, and rows for its arguments and options that are no settings."""
    usage = [f"dsgmcmc {function.__name__}"]
    rows = []
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        annotated, about = get_args(parameter.annotation)
        is_argument = isinstance(about, typer.models.ArgumentInfo)
        if about.rich_help_panel and not is_argument:
            continue  # a setting of a run
        if is_argument:
            name = flag = about.metavar or parameter.name.upper()
            usage.append(name)
        else:
            flag = ", ".join(_flags(parameter.name, about))
            name = f"{flag} {about.metavar or ''}".strip()
            if parameter.default is parameter.empty:
                usage.append(name.split(", ")[0] + name.removeprefix(flag))
        values = _values_of(annotated, about)
        default = _default_of(parameter.default, about, flag)
        rows.append((f"`{name}`", values, default, (about.help or "").rstrip(".")))
    return usage, rows


def _flags(name: str, about: Any) -> list[str]:
    """Return the names of an option; typer has the first as the `default` of ``Option``."""
    given = [about.default] if isinstance(about.default, str) else []
    return [*given, *(about.param_decls or [])] or [f"--{name.replace('_', '-')}"]


def _values_of(kind: Any, about: Any) -> str:
    """Return the values that an option's placeholder does not name: alternatives, or a bound."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _listed(kind)
    alternatives = dict.fromkeys(kinds(kind))
    if about.metavar or set(alternatives) <= {"yes or no", "path"}:
        return ""
    return ", ".join(alternatives) + ("" if about.min is None else f" ≥ {about.min:g}")


def _default_of(default: Any, about: Any, flag: str) -> str:
    if isinstance(about.show_default, str):
        return about.show_default
    if default is inspect.Parameter.empty:
        return "required"
    if isinstance(default, bool):
        return f"`{flag.split('/')[not default]}`" if "/" in flag else ""
    return "" if default is None else f"`{default}`"


# ---------------------------------------------------------------------- lines of lists


def _item(row: Row, owners: Iterable[str] = ()) -> str:
    """Return a line of a list: a setting or option, whose it is, its values, default and help.

    The usage of a command shows what is required.
    """
    name, values, default, about = row
    if owners:
        name = f"{name} of {_listed(owners)}"
    facts = [values] if values else []
    if default not in ("", "required"):
        facts.append(f"default {default}")
    return f"- {name} ({'; '.join(facts)}): {about}" if facts else f"- {name}: {about}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _setting(name: str, field: FieldInfo) -> str:
    """Return the name of a setting, with a star if it is no option."""
    return f"`{name}`" if declared(field)["offered"] else f"`{name}` *"


def _about(field: FieldInfo) -> Row:
    """Return the values, the default and the description of a setting."""
    return _values(field), _default(field), (field.description or "").rstrip(".")


def _default(field: FieldInfo) -> str:
    if field.default is PydanticUndefined:
        return "required"
    if declared(field)["shown"] or field.default is None:
        return declared(field)["shown"]
    return (
        "no" if field.default is False else "yes" if field.default is True else f"`{field.default}`"
    )


def _values(field: FieldInfo) -> str:
    """Return the values that a setting admits: its alternatives, or its types and bounds."""
    bounds = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    limits = [
        (words, getattr(constraint, key, None))
        for constraint in field.metadata
        for key, words in bounds.items()
    ]
    phrases = [f"{words} {bound}" for words, bound in limits if bound is not None]
    types = ", ".join(dict.fromkeys(kinds(field.annotation)))
    if types == "text" and declared(field)["metavar"]:
        types = _listed(declared(field)["metavar"].split("|"))
    return " ".join([types, ", ".join(phrases)]).strip()


def kinds(annotation: Any) -> Iterable[str]:
    """Return the names of the types that a setting admits, or its alternatives in backquotes."""
    if get_origin(annotation) is Literal:
        return [f"`{value}`" for value in get_args(annotation)]
    if get_args(annotation):
        return [name for kind in get_args(annotation) for name in kinds(kind)]
    names = {
        int: ["integer"],
        float: ["number"],
        str: ["text"],
        bool: ["yes or no"],
        Path: ["path"],
    }
    return names.get(annotation, [])


#: The pages, by file name.
PAGES = {"settings": settings_page, "cli": commands_page}

if __name__ == "__main__":
    for name, page in PAGES.items():
        Path(__file__).with_name(f"{name}.md").write_text(page(), encoding="utf-8")
