"""Settings as people name them: options of ``dsgmcmc sample``, and arguments in Python.

A setting is declared once, by `setting` in the class that it belongs to: `dsgmcmc.cli.settings` makes its option, and
``python docs/settings.py`` its line of the page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any


def setting(
    what: str,
    default: Any = ...,
    *,
    shown: str = "",
    metavar: str = "",
    short: str = "",
    offered: bool = True,
    **bounds: Any,
) -> Any:
    """Declare a setting: a field of a Pydantic model, and what its option has besides.

    Parameters
    ----------
    what : str
        What the setting is: the help of its option, and of docs/settings.md.
    default : object
        Of the field; ``...`` for none.
    shown : str
        What it comes to if nothing is said, where that is not simply the default.
    metavar : str
        What stands for its value in the help, where that does not follow from the type.
    short : str
        A short option, such as ``-K``.
    offered : bool
        Whether there is an option; else the setting is given with ``--set``.
    **bounds
        ``gt``, ``le`` and so on, as of `pydantic.Field`.
    """
    from pydantic import Field

    option: Any = {"shown": shown, "metavar": metavar, "short": short, "offered": offered}
    return Field(default, description=what, json_schema_extra={"option": option}, **bounds)


#: What callers of `BPMF` give for options whose names it does not have.
BPMF_NAMES = {
    "resume": "warm_start=True",
    "from": "start",
    "step_size": "sampler.step_size",
    "on_divergence": "--on-divergence",
    "no_biases": "biases=False",
}

_in_python: ContextVar[Mapping[str, str] | None] = ContextVar("_in_python", default=None)


@contextmanager
def in_python(names: Mapping[str, str] = BPMF_NAMES) -> Iterator[None]:
    """Context in which messages name settings as Python does, those that it calls otherwise by `names`."""
    token = _in_python.set(names)
    try:
        yield
    finally:
        _in_python.reset(token)


def named(name: str) -> str:
    """Name of a setting or option in a message: ``--time-levels``, ``--set sampler.metric``; in Python as it is."""
    names = _in_python.get()
    if names is not None:
        return names.get(name, name)
    return f"--set {name}" if "." in name else f"--{name.replace('_', '-')}"
