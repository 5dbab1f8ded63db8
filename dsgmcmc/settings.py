"""Declares settings, and names them in messages.

A setting is declared once, by `setting`, in a Pydantic class. From the declaration,
`dsgmcmc.cli.options` makes an option, and ``python docs/reference.py`` makes a line of
docs/settings.md or docs/cli.md. Messages name settings by `named`; the front end, which is the
command line or `BPMF`, decides how a name is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.config import JsonDict
from pydantic.fields import FieldInfo
from typing_extensions import override

from dsgmcmc.errors import InputError, front_end, settings_written

MAX_SHOWN_CHARACTERS = 80  # of a wrong value in an error message


def setting(
    description: str,
    default: Any = ...,
    *,
    shown: str = "",
    metavar: str = "",
    short: str = "",
    flag: str = "",
    offered: bool = True,
    later: bool = False,
    **bounds: Any,
) -> Any:
    """Declare a setting: a field of a Pydantic model, with the properties of its option.

    Parameters
    ----------
    description : str
        Description of the setting, for the help of its option and for docs/settings.md.
    default : object
        Default of the field; ``...`` if the setting is required.
    shown : str
        Text that the help has in place of a default that depends on other settings.
    metavar : str
        Placeholder for the value in the help, if it does not follow from the type.
    short : str
        Short option, such as ``-K``.
    flag : str
        Name of the option without hyphens at its beginning, if it is not the setting's.
    offered : bool
        Whether there is an option; if not, users give the setting with ``--set``.
    later : bool
        Whether there are runs that were begun before the setting existed. At its default, it is
        then neither stored nor hashed, and such runs can be resumed.
    **bounds
        Bounds ``gt``, ``le`` and so on, as for `pydantic.Field`.
    """
    option: JsonDict = {
        "shown": shown,
        "metavar": metavar,
        "short": short,
        "flag": flag,
        "offered": offered,
    }
    extra: JsonDict = {"option": option, "later": later}
    return Field(default, description=description, json_schema_extra=extra, **bounds)


def declaration(field: FieldInfo) -> Mapping[str, Any]:
    """Return what `setting` declares of a field besides its type and default; empty for others."""
    extra = field.json_schema_extra
    if isinstance(extra, dict):
        return extra
    return {}


def unchanged_later(settings: BaseModel) -> set[str]:
    """Return the names of settings that `setting` declares as `later` and that have the default."""
    return {
        name
        for name, field in type(settings).model_fields.items()
        if declaration(field).get("later") and getattr(settings, name) == field.default
    }


#: Names of settings that differ from those of the parameters of `BPMF`, and the latter.
BPMF_NAMES = {
    "resume": "warm_start=True",
    "from": "start",
    "matrix": "matrix=True",
    "step_size": "sampler.step_size",
    "on_divergence": "--on-divergence",
    "memory": "--memory of dsgmcmc prepare",
    "no_biases": "biases=False",
    "timestamps": "time_levels",
    "top": "n",
}

#: Settings without an option, of the classes that have been declared: users give them with
#: ``--set``.
without_option: set[str] = set()


@contextmanager
def in_python(names: Mapping[str, str] = BPMF_NAMES) -> Iterator[None]:
    """Context in which messages use Python names; `names` has those that differ from settings."""
    with settings_written(lambda name: names.get(name, name)):
        yield


def named(name: str) -> str:
    """Return a setting's name for messages, as the front end writes it.

    The command line writes ``--time-levels`` or ``--set sampler.metric``; without a front end, it
    is the name in Python.
    """
    write = front_end.get()
    if write is None:
        return BPMF_NAMES.get(name, name)
    return write(name)


def short_repr(value: object) -> str:
    """Return the representation of any value, shortened."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        # an integer with thousands of digits, or very deep nesting
        text = f"a very long {type(value).__name__}"
    if len(text) > MAX_SHOWN_CHARACTERS:
        return f"{text[:MAX_SHOWN_CHARACTERS]} ..."
    return text


def explain(error: ValidationError, prefix: str = "", name_of: Callable[[str], str] = str) -> str:
    """Return a message with all wrong settings and their values.

    `prefix` precedes the names of settings, and `name_of` returns how the message names them.
    """
    problems: dict[str, str] = {}
    values: dict[str, str] = {}
    for detail in error.errors():
        location = detail["loc"] or ("",)
        name = f"{prefix}{location[0]}"
        problem = detail["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
        if detail["type"] == "extra_forbidden":
            problem = "is not a setting"
            if not prefix:
                problem += "; settings of the sampler are sampler.NAME"
        if name in problems:
            problem = f"{problems[name]} or {problem}"
        problems[name] = problem
        values[name] = short_repr(detail["input"])
    messages = []
    for name, problem in problems.items():
        if name == prefix:
            messages.append(problem)
        else:
            messages.append(f"{name_of(name)}: {problem} (found {values[name]})")
    return "; ".join(messages)


class Checked(BaseModel):
    """Base class for groups of settings, with messages for the user if any is wrong."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    #: Whether a file may have the settings. If not, messages name options, or arguments in Python.
    in_file: ClassVar[bool] = True

    def __init__(self, **settings: object) -> None:
        """Check settings.

        Raises
        ------
        InputError
            If any setting is wrong; the message names all of them.
        """
        try:
            super().__init__(**settings)
        except ValidationError as error:
            name_of = str if self.in_file else named
            raise InputError(explain(error, name_of=name_of)) from error

    @classmethod
    @override
    def __pydantic_init_subclass__(cls, **kwargs: object) -> None:
        for name, field in cls.model_fields.items():
            option = declaration(field).get("option", {})
            if cls.in_file and not option.get("offered", True):
                without_option.add(name)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """Check settings; raise InputError, which names all that are wrong."""
        return cls.complete()(**settings)

    def changed(self, *names: str) -> list[str]:
        """Return those of the named settings that do not have their default."""
        fields = type(self).model_fields
        return [name for name in names if getattr(self, name) != fields[name].default]

    @classmethod
    def complete(cls) -> type[Self]:
        """Return the class whose fields are all settings.

        It is a subclass if a script has registered further settings.
        """
        return cls
