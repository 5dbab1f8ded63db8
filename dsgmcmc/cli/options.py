"""Makes options of commands from settings that classes declare by `dsgmcmc.settings.setting`.

A command gets its settings as ``**options``. The classes that declare them load Pydantic and
sometimes NumPy, so `add_options` makes the options only of a command that runs: ``dsgmcmc --help``
needs none.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar, get_args, get_origin

import typer

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

Command = TypeVar("Command", bound=Callable[..., Any])


class _Form(NamedTuple):
    """Parameters that a command always has, and the function that makes its options."""

    first: list[inspect.Parameter]
    last: list[inspect.Parameter]
    make: Callable[[], list[inspect.Parameter]]

    def signature(self, options: list[inspect.Parameter]) -> inspect.Signature:
        """Return the signature from which typer makes parameters."""
        return inspect.Signature([*self.first, *options, *self.last])


_FORMS: dict[Callable[..., Any], _Form] = {}


def takes_settings(make: Callable[[], list[inspect.Parameter]]) -> Callable[[Command], Command]:
    """Declare that a command has options for settings, in place of its parameter ``**options``.

    Parameters
    ----------
    make : callable
        Imports classes of settings and returns their options. In the help, they stand before the
        keyword-only parameters of the command.
    """

    def declare(command: Command) -> Command:
        first = []
        last = []
        for parameter in inspect.signature(command, eval_str=True).parameters.values():
            if parameter.kind is parameter.KEYWORD_ONLY:
                last.append(parameter)
            elif parameter.kind is not parameter.VAR_KEYWORD:
                first.append(parameter)
        form = _Form(first, last, make)
        _FORMS[command] = form
        command.__signature__ = form.signature([])  # type: ignore[attr-defined]
        return command

    return declare


def add_options(command: Callable[..., Any]) -> None:
    """Give a command an option for every setting that has one; other commands stay unchanged."""
    if command in _FORMS:
        form = _FORMS[command]
        command.__signature__ = form.signature(form.make())  # type: ignore[attr-defined]


def option_name(name: str) -> str:
    """Return the option for a setting, for messages: ``--thin``, or ``--set sampler.metric``."""
    from dsgmcmc.settings import without_option

    if "." in name or name in without_option:
        return f"--set {name}"
    return f"--{name.replace('_', '-')}"


def options_in(module: str, name: str) -> Callable[[], list[inspect.Parameter]]:
    """Return a function that imports a class of settings, and returns their options."""

    def make() -> list[inspect.Parameter]:
        return options_of(getattr(import_module(module), name).model_fields)

    return make


def options_of(
    fields: Mapping[str, FieldInfo], panel: str | None = None
) -> list[inspect.Parameter]:
    """Return the options of settings, with their defaults and bounds.

    With a `panel`, the heading of settings that files may give, too, an option that is not given is
    None, and the settings check their own bounds.
    """
    options = []
    for name, field in fields.items():
        declaration = declared(field)
        if not declaration["offered"]:
            continue
        default = field.default
        about: dict[str, Any] = {"show_default": declaration["shown"] or True}
        text = field.description or ""
        if panel is not None:
            default = None
            about = {"rich_help_panel": panel}
            shown = declaration["shown"] or _format_default(field.default)
            if shown:
                text += f" [default: {shown}]"
        elif not bounds_of(field).keys() & {"gt", "lt"}:  # typer's ranges have their ends
            about |= {"min": bounds_of(field).get("ge"), "max": bounds_of(field).get("le")}
        option = typer.Option(
            *flags(name, field), metavar=declaration["metavar"] or None, help=text, **about
        )
        kind = option_type(field)
        if default is None:
            kind |= None
        options.append(
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=default,
                annotation=Annotated[kind, option],
            )
        )
    return options


def _format_default(value: object) -> str:
    """Format a default for the help: ``on`` for True, empty for None and False."""
    if value is True:
        return "on"
    if value is None or value is False:
        return ""
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def flags(name: str, field: FieldInfo) -> list[str]:
    """Return the names of a setting's option: ``--clip/--no-clip`` if True is the default."""
    declaration = declared(field)
    flag = declaration["flag"] or name.replace("_", "-")
    names = [f"--{flag}"]
    if field.default is True:
        names = [f"--{flag}/--no-{flag}"]
    if declaration["short"]:
        names.append(declaration["short"])
    return names


def bounds_of(field: FieldInfo) -> dict[str, Any]:
    """Return the bounds of a setting by their names in `pydantic.Field`, such as ``ge``."""
    names = ("ge", "gt", "le", "lt")
    return {
        name: getattr(constraint, name)
        for constraint in field.metadata
        for name in names
        if hasattr(constraint, name)
    }


def declared(field: FieldInfo) -> dict[str, Any]:
    """Return the properties of a field's option that `setting` declares.

    ``offered`` is false without an option.
    """
    from dsgmcmc.settings import declaration

    without = {"shown": "", "offered": False, "metavar": "", "short": "", "flag": ""}
    return {**without, **declaration(field).get("option", {})}


def option_type(field: FieldInfo) -> Any:
    """Return the type of an option.

    It is text if the setting admits several types, because the setting's class parses it.
    """
    annotation: Any = field.annotation
    if get_origin(annotation) is Literal:
        return annotation
    types = [
        admitted for admitted in get_args(annotation) or [annotation] if admitted is not NoneType
    ]
    if len(types) == 1 and (types[0] in (int, float, bool) or get_origin(types[0]) is Literal):
        return types[0]
    return str
