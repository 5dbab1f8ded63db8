"""Output for people: every line and every table of a command goes through here.

Names of users, items and features, titles, paths and settings are data, and may come from others: nothing in them may
steer a terminal, break a line, turn its order round or pass for the markup of rich. What is written to files stays as
it is, and so does what goes to another program.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:  # the command line starts with this file; only tables need rich
    from rich.console import Console


def plain(text: str) -> str:
    r"""Text as one line that a terminal only shows.

    Control characters, ends of lines among them, characters that change the direction of what follows, and others that
    cannot be seen are written as Python writes them, such as ``\x1b``.
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def say(*lines: str, file: IO[str] | None = None) -> None:
    """Print lines, each of them `plain`.

    Whoever reads them may have gone, as `head` does: nothing fails for that, now or at the end.

    Parameters
    ----------
    *lines : str
        Without their ends.
    file : file, optional
        Standard output, or standard error.
    """
    try:
        print(*map(plain, lines), sep="\n", file=file, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), (file or sys.stdout).fileno())


def say_json(content: Any, indent: int | None = 1, file: IO[str] | None = None) -> None:
    """Print JSON, in ASCII, with escapes of its own for all that a terminal would obey."""
    say(*json.dumps(content, indent=indent).replace("\x7f", r"\u007f").split("\n"), file=file)


def complain(error: object) -> None:
    """Print why the program ends, on standard error: no name with several lines can begin another message there."""
    first, *others = str(error).split("\n")
    say(f"dsgmcmc: {first}", *(f"  {line.strip()}" for line in others), file=sys.stderr)


def pass_on(lines: Iterable[bytes]) -> None:
    """Print lines for programs, such as CSV or a path: as they are to a file or a pipe, `plain` elsewhere.

    Parameters
    ----------
    lines : iterable of bytes
        With their ends; a file is one.
    """
    file = getattr(sys.stdout, "buffer", None)
    if file is None or sys.stdout.isatty():  # a notebook has none
        for line in lines:
            say(line.removesuffix(b"\n").decode(errors="backslashreplace"))
        return
    with contextlib.suppress(BrokenPipeError):
        file.writelines(lines)
        file.flush()


def console(stderr: bool = False) -> Console:
    """Make a console of rich that takes text for what it is: no markup, no names of emoji, no colours by guess."""
    from rich.console import Console

    return Console(stderr=stderr, markup=False, emoji=False, highlight=False)


def show_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    title: str = "",
    *,
    left: Collection[str] = (),
) -> None:
    """Print a table.

    Parameters
    ----------
    headings : sequence of str
        Headings of the columns.
    rows : iterable of sequences of str
        Their cells.
    title : str
        Title above it.
    left : collection of str
        Headings of columns that are words; the others are numbers.
    """
    from rich.table import Table

    if title:
        say(title)
    table = Table(box=None)
    for heading in headings:
        table.add_column(plain(heading), justify="left" if heading in left else "right")
    for row in rows:
        table.add_row(*map(plain, row))
    console().print(table)


def show_facts(facts: Mapping[str, str | Sequence[str]]) -> None:
    """Print what is known by name, one below the other; what is known may have several lines."""
    from rich.table import Table

    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, lines in facts.items():
        table.add_row(plain(name), "\n".join(map(plain, [lines] if isinstance(lines, str) else lines)))
    console().print(table)
