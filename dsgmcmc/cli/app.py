"""The program ``dsgmcmc``: its commands, and the messages and exit statuses of errors."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterable
from copy import copy
from typing import Annotated, Any, TextIO

import typer
from typer.models import CommandInfo

from dsgmcmc._version import __version__
from dsgmcmc.cli.compare import compare
from dsgmcmc.cli.info import doctor, info, report, verify
from dsgmcmc.cli.options import add_options, option_name
from dsgmcmc.cli.posterior import evaluate, export, predict, recommend
from dsgmcmc.cli.prepare import fetch, prepare
from dsgmcmc.cli.sample import SampleCommand, sample
from dsgmcmc.errors import (
    Exit,
    InputError,
    WriteError,
    failed_file,
    is_of_disk,
    settings_written,
)
from dsgmcmc.parallel.launcher import is_first
from dsgmcmc.terminal import complain, log, say

#: Base class of the errors that typer raises for a wrong command line; typer does not export it.
USAGE_ERROR: Any = typer.BadParameter.__base__

#: How Python shows warnings.
_SHOW_WARNING = warnings.showwarning

# plain help, because panels of 80 columns truncate the names of options
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


def _print_version(requested: bool) -> None:
    if requested:
        say(f"dsgmcmc {__version__}")
        raise typer.Exit


@app.callback()
def program(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Bayesian matrix factorisation by stochastic-gradient MCMC, on one core or on a cluster."""


app.command(short_help="Download a MovieLens data set and check it.")(fetch)
app.command(short_help="Make a ratings file from CSV, Parquet and other formats.")(prepare)
app.command(short_help="Compare models, and recommend one.")(compare)
app.command(cls=SampleCommand, short_help="Sample the posterior, in one process or under mpirun.")(
    sample
)
app.command(short_help="Predict ratings: mean, sd and an interval.")(predict)
app.command(short_help="Recommend items to users.")(recommend)
app.command(short_help="Compare rankings of items on the test ratings.")(evaluate)
app.command(short_help="Export a run to Parquet or netCDF for other tools.")(export)
app.command(short_help="Write an HTML report on sampling and predictions.")(report)
app.command(short_help="Describe a ratings file, or a run and its quality.")(info)
app.command(short_help="Check all checksums, and print the digest.")(verify)
app.command(short_help="Check that this machine can sample.")(doctor)


def _program_for(arguments: list[str]) -> typer.Typer:
    """Return the program with only the command that the first argument names, to start fast.

    If it names none, the program has all commands.
    """
    name = arguments[0] if arguments else ""
    matching = [
        command
        for command in app.registered_commands
        if getattr(command.callback, "__name__", None) == name
    ]
    program = copy(app)
    if matching:
        with_settings(matching)
        program.registered_commands = matching
    return program


def with_settings(commands: Iterable[CommandInfo] | None = None) -> None:
    """Give commands, by default all of them, the options of their settings."""
    for command in app.registered_commands if commands is None else commands:
        if command.callback is not None:
            add_options(command.callback)


def main() -> None:
    """Run the command line; print the message of an error of the user or of the file system.

    The exit status is 2 for wrong input or a missing permission, and 1 for a failed disk or another
    `OSError`. Ctrl-C raises KeyboardInterrupt.
    """
    warnings.showwarning = _show_warning
    if is_first():
        log.addHandler(logging.StreamHandler())
        log.setLevel(logging.INFO)
    with settings_written(option_name):
        _run(sys.argv[1:] or ["--help"])


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning for users as a message of the program; others as Python does."""
    if category is UserWarning:
        complain(f"warning: {message}")
    else:
        _SHOW_WARNING(message, category, filename, lineno, file, line)


def _run(arguments: list[str]) -> None:
    """Run the command line as `main` does."""
    try:
        status = _program_for(arguments)(arguments, standalone_mode=False)
    except USAGE_ERROR as error:
        message = error.format_message().replace("Value error, ", "")
        complain(f"{message} (--help lists commands and options)")
        sys.exit(Exit.USAGE)
    except InputError as error:
        complain(error)
        failed = isinstance(error, WriteError) or is_of_disk(error)
        sys.exit(Exit.FAILURE if failed else Exit.USAGE)
    except OSError as error:
        complain(failed_file(error))
        sys.exit(Exit.USAGE if isinstance(error, PermissionError) else Exit.FAILURE)
    except (ImportError, MemoryError, RuntimeError) as error:
        # there is little memory: for a library, or for a thread
        if isinstance(error, RuntimeError) and "can't start new thread" not in str(error):
            raise
        complain(" ".join(f"{type(error).__name__}: {error}".split()).rstrip(":"))
        sys.exit(Exit.FAILURE)
    if status == Exit.INTERRUPTED:  # typer's exit status after Ctrl-C
        raise KeyboardInterrupt
    sys.exit(status)
