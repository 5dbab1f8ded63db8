"""``dsgmcmc recommend``: the items that users would like best."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from dsgmcmc.cli.posterior.predict import From, FromOption, OutOption, RunArgument
from dsgmcmc.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator


class By(StrEnum):
    """What items are ranked by."""

    mean = "mean"
    ucb = "ucb"
    lcb = "lcb"
    thompson = "thompson"


DataOption = Annotated[
    Path | None,
    typer.Option(metavar="DATA.h5", help="The run's ratings file, if it was moved.  [default: where it was]"),
]
TopOption = Annotated[int, typer.Option("--top", "-n", min=1, help="Items a user.")]
ItemsOption = Annotated[
    Path | None,
    typer.Option("--items", metavar="FILE", help="Names of items: movies.dat, u.item, movies.csv or any CSV."),
]


def recommend(
    run: RunArgument,
    user: Annotated[
        list[str] | None, typer.Option("--user", "-u", metavar="ID", help="A user; repeat for more.")
    ] = None,
    everyone: Annotated[bool, typer.Option("--all", help="All users.")] = False,
    top: TopOption = 10,
    out: OutOption = None,
    by: Annotated[By, typer.Option(help="Mean, upper or lower confidence bound, or Thompson sampling.")] = By.mean,
    z: Annotated[float, typer.Option("--z", min=0, help="Sds between the mean and a confidence bound.")] = 1.0,
    source: FromOption = From.auto,
    items: ItemsOption = None,
    include_rated: Annotated[bool, typer.Option("--include-rated", help="Also what the user has rated.")] = False,
    data: DataOption = None,
    seed: Annotated[int, typer.Option(min=0, help="Of Thompson sampling.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Recommend items to users, by default those with the highest expected rating.

    What a user rated in training is left out, for which the run's ratings file is needed. Scores are of the
    predictor, without the noise of a rating.

    \b
    Examples:
      dsgmcmc recommend run --user 42 --items ml-1m/movies.dat
      dsgmcmc recommend run --all --top 20 -o top.parquet
      dsgmcmc recommend run --user 42 --by ucb --z 1.5 --json
    """
    import numpy as np

    from dsgmcmc.data.tables import output_format, write_blocks
    from dsgmcmc.posterior.names import item_titles
    from dsgmcmc.posterior.recommend import Ranking, Rated, recommendations
    from dsgmcmc.posterior.run import open_run

    if bool(user) == everyone:
        raise InputError("say for whom: --user ID (repeat it for more), or --all")
    if out is None and everyone and not as_json:
        raise InputError("--all needs --out FILE.csv or FILE.parquet (or --json)")
    output_format(out)
    opened = open_run(run)
    ranking = Ranking(top, by.value, z, source.value, seed)
    titles = item_titles(opened.items, items) if items else None
    if everyone:
        users = np.argsort(opened.users.ids, kind="stable").astype(np.int32)
    else:
        users = opened.users.index_of(list(dict.fromkeys(user or [])), refuse=True)
    rated = None
    if not include_rated:
        with opened.open_ratings(data) as ratings:
            rated = Rated(ratings)
    found = recommendations(opened, users, ranking, rated, titles=titles)
    if out is not None:
        write_blocks(found, out)
    else:
        show(found, as_json)


def show(blocks: Iterator[dict[str, Any]], as_json: bool) -> None:
    """Print recommendations."""
    lines = [
        dict(zip(block, values, strict=True))
        for block in blocks
        for values in zip(*(column.tolist() for column in block.values()), strict=True)
    ]
    if as_json:
        print(json.dumps(lines, indent=1))
        return
    console = Console()
    for name in dict.fromkeys(line["user_id"] for line in lines):
        own = [line for line in lines if line["user_id"] == name]
        table = Table(title=f"user {name}", title_justify="left")
        for heading in ("rank", "score", "item", *(("name",) if "item_name" in own[0] else ())):
            table.add_column(heading, justify="left" if heading == "name" else "right")
        for line in own:
            named = [line["item_name"]] if "item_name" in line else []
            table.add_row(str(line["rank"]), f"{line['score']:.3f}", str(line["item_id"]), *named)
        console.print(table)
    if not lines:
        print("nothing is left to recommend: everything was rated", file=sys.stderr)
