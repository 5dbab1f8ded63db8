"""Declares settings, and names them in messages as users give them.

A setting is declared once, by `setting`, in a Pydantic class. From the declaration,
`dsgmcmc.cli.sample` makes an option, and ``python docs/reference.py`` makes a line of
docs/settings.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any


def setting(
    description: str,
    default: Any = ...,
    *,
    shown: str = "",
    metavar: str = "",
    short: str = "",
    offered: bool = True,
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
    offered : bool
        Whether there is an option; if not, users give the setting with ``--set``.
    **bounds
        Bounds ``gt``, ``le`` and so on, as for `pydantic.Field`.
    """
    from pydantic import Field

    option: Any = {"shown": shown, "metavar": metavar, "short": short, "offered": offered}
    return Field(default, description=description, json_schema_extra={"option": option}, **bounds)


#: Python names of options that have another name, or none, among the parameters of `BPMF`.
BPMF_NAMES = {
    "resume": "warm_start=True",
    "from": "start",
    "step_size": "sampler.step_size",
    "on_divergence": "--on-divergence",
    "no_biases": "biases=False",
    "timestamps": "time_levels",
}

#: Settings of the model and the chain that have no option, so that users give them with ``--set``.
WITHOUT_OPTION = {
    "center",
    "evaluate_every",
    "hyper_start",
    "initial_sd",
    "prior_precision",
    "schedule",
    "standardise",
}

_in_python: ContextVar[Mapping[str, str] | None] = ContextVar("_in_python", default=None)


@contextmanager
def in_python(names: Mapping[str, str] = BPMF_NAMES) -> Iterator[None]:
    """Context in which messages use Python names; `names` has those that differ from options."""
    token = _in_python.set(names)
    try:
        yield
    finally:
        _in_python.reset(token)


def named(name: str) -> str:
    """Return a setting's name for messages.

    It is ``--time-levels`` or ``--set sampler.metric``, or the name in Python.
    """
    names = _in_python.get()
    if names is not None:
        return names.get(name, name)
    if "." in name or name in WITHOUT_OPTION:
        return f"--set {name}"
    return f"--{name.replace('_', '-')}"
