"""Errors whose message is meant for the user, and the exit codes of the command line."""

EXIT_DONE = 0
EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_ABORT = 70
EXIT_RESUME = 75
EXIT_INTERRUPTED = 130


def plain(text: str) -> str:
    """Text without control characters, which a terminal would obey; a path or a name may hold any."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


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
