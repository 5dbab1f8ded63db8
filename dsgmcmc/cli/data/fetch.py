"""``dsgmcmc fetch``: MovieLens from its publisher."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dsgmcmc.data.movielens import DATA_SETS, LICENCE
from dsgmcmc.data.movielens import fetch as fetch_data

Name = StrEnum("Name", {name: name for name in DATA_SETS})  # type: ignore[misc]


def fetch(
    name: Annotated[Name, typer.Argument(help="Data set.", show_default=False)],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder in which its folder is made.")] = Path("downloads"),
) -> None:
    """Download a MovieLens data set, check it and unpack it; what is there is not fetched again.

    Prints the path of the file with the ratings, for dsgmcmc prepare.
    """
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(f"downloading {name.value}", total=None)
        ratings = fetch_data(name.value, out, lambda done, total: bar.update(task, completed=done, total=total or None))
    console.print(LICENCE.format(folder=ratings.parent), soft_wrap=True, highlight=False)
    print(ratings)
