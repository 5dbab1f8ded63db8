"""Errors whose message is meant for the user, and the exit codes of the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

EXIT_DONE = 0
EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_ABORT = 70
EXIT_RESUME = 75
EXIT_INTERRUPTED = 130


def plain(text: str) -> str:
    """Text without control characters, which a terminal would obey; a path or a name may hold any."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


#: What was expected, by Pydantic's type of error; its own words are those of a programmer.
EXPECTED = {
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be more than {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be less than {lt}",
    "finite_number": "must be a finite number",
    "literal_error": "must be {expected}",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "must be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    "string_type": "must be text",
}


def what_it_must_be(detail: Mapping[str, Any]) -> str:
    """What a value must be, of one of the errors that Pydantic's `ValidationError.errors` gives."""
    expected = EXPECTED.get(detail["type"])
    found: str = detail["msg"].removeprefix("Value error, ")
    return expected.format(**detail.get("ctx", {})) if expected else found


class InputError(Exception):
    """Something that the user gave is wrong: a file, an option, a launch.

    The message says what was found, where, and what to do; the command line prints it without a
    traceback and exits with status 2.
    """


class AgreedError(InputError):
    """An `InputError` that all processes of a job raise together, so that each may end by itself."""


class WriteError(AgreedError):
    """Files could not be written: a full disk, a quota, permissions. All processes raise it together."""


class DivergenceError(Exception):
    """The chain left the region where its numbers mean anything (non-finite or exploding)."""
