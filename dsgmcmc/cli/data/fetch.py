"""``dsgmcmc fetch``: MovieLens from its publisher."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dsgmcmc.data.movielens import DATA_SETS, LICENCE
from dsgmcmc.data.movielens import fetch as fetch_data
from dsgmcmc.terminal import console, pass_on, say

Name = StrEnum("Name", {name: name for name in DATA_SETS})  # type: ignore[misc]


def fetch(
    name: Annotated[Name, typer.Argument(help="Data set.", show_default=False)],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Parent folder of the data set's folder.")] = Path(
        "downloads"
    ),
) -> None:
    """Download a MovieLens data set, check it and unpack it; files that are already there are not fetched again.

    Prints the path of the file with the ratings, for dsgmcmc prepare.
    """
    from rich.progress import Progress

    shown = console(stderr=True)
    with Progress(console=shown, transient=True, disable=not shown.is_terminal) as bar:
        task = bar.add_task(f"downloading {name.value}", total=None)
        ratings = fetch_data(name.value, out, lambda done, total: bar.update(task, completed=done, total=total or None))
    say(LICENCE.format(folder=ratings.parent), file=sys.stderr)
    pass_on([os.fsencode(f"{ratings}\n")])
