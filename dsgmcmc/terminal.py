"""Output for people: all lines and tables that commands print.

Names of users, items and features, titles, paths and settings are untrusted data. They must not
control a terminal, break a line, reverse the direction of text, or be read as rich's markup. Output
to files and to other programs is not changed.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:  # the command line imports this module first, and only tables need rich
    from rich.console import Console


_WIDEST = 1 << 20  # characters of a line of a table in a file


def plain(text: str) -> str:
    r"""Return text as one line without effects on a terminal.

    Python's escapes, such as ``\x1b``, replace control characters (including line ends), characters
    that change the direction of text, and other invisible characters.
    """
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _escape(record: logging.LogRecord) -> bool:
    """Make the message of a log record one line that `plain` has made safe."""
    record.msg = plain(record.getMessage())
    record.args = ()
    return True


#: The logger of the whole package. Its filter acts before all handlers, also those of a program
#: that imports dsgmcmc.
log = logging.getLogger("dsgmcmc")
log.addFilter(_escape)


def say(*lines: str, file: IO[str] | None = None) -> None:
    """Print lines after `plain` has made them safe.

    If the reader of a pipe has ended, as `head` does, the output is dropped without an error.

    Parameters
    ----------
    *lines : str
        Lines without line ends.
    file : file, optional
        Standard output or standard error; default standard output.
    """
    try:
        print(*map(plain, lines), sep="\n", file=file, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), (file or sys.stdout).fileno())


def say_json(content: object, indent: int | None = 1, file: IO[str] | None = None) -> None:
    """Print JSON in ASCII, with escapes for control characters, and null for NaN and infinity."""
    content = json.loads(json.dumps(content), parse_constant=lambda name: None)
    say(*json.dumps(content, indent=indent).replace("\x7f", r"\u007f").split("\n"), file=file)


def complain(error: object) -> None:
    """Print an error on standard error.

    Its further lines are indented, so that none looks like another message.
    """
    first, *others = str(error).split("\n")
    say(f"dsgmcmc: {first}", *(f"  {line.strip()}" for line in others), file=sys.stderr)


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn in Python, at the line of the program that called this package."""
    package = f"{Path(__file__).parent}{os.sep}"
    ours = (package, contextlib.__file__)  # decorators of contextlib call methods of the package
    frame = sys._getframe()
    level = 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(ours):
        frame = frame.f_back
        level += 1
    warnings.warn(plain(message), category, stacklevel=level)


def pass_on(lines: Iterable[bytes]) -> None:
    """Print lines for programs, such as CSV or a path.

    They are unchanged to a file or a pipe, but `plain` elsewhere.

    Parameters
    ----------
    lines : iterable of bytes
        Lines with line ends, such as an open file.
    """
    file = getattr(sys.stdout, "buffer", None)
    if file is None or sys.stdout.isatty():  # a notebook has no buffer
        for line in lines:
            say(line.removesuffix(b"\n").decode(errors="backslashreplace"))
        return
    with contextlib.suppress(BrokenPipeError):
        file.writelines(lines)
        file.flush()


def console(stderr: bool = False) -> Console:
    """Return a rich console that prints text literally: no markup, emoji codes or highlighting."""
    from rich.console import Console

    return Console(stderr=stderr, markup=False, emoji=False, highlight=False)


def show_table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], title: str, *, left: Collection[str]
) -> None:
    """Print a table.

    Parameters
    ----------
    headings : sequence of str
        Headings of the columns.
    rows : iterable of sequences of str
        Cells of each row.
    title : str
        Title above the table.
    left : collection of str
        Headings of left-aligned columns; other columns are right-aligned.
    """
    from rich.table import Table

    say(title)
    table = Table(box=None)
    for heading in headings:
        table.add_column(plain(heading), justify="left" if heading in left else "right")
    for row in rows:
        table.add_row(*map(plain, row))
    _print_table(table)


def _print_table(table: Any) -> None:
    """Print a table of rich: within the width of a terminal, and uncut in a file or a pipe."""
    screen = console()
    if not sys.stdout.isatty() and not screen.is_jupyter:
        unlimited = screen.options.update(max_width=_WIDEST)
        screen.width = max(screen.width, screen.measure(table, options=unlimited).maximum)
    screen.print(table)


def show_facts(facts: Mapping[str, str | Sequence[str]]) -> None:
    """Print facts with their names, one below another; a fact may have several lines."""
    from rich.table import Table

    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, fact in facts.items():
        lines = [fact] if isinstance(fact, str) else fact
        table.add_row(plain(name), "\n".join(map(plain, lines)))
    _print_table(table)
