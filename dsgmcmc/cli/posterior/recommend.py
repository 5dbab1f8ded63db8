"""``dsgmcmc recommend``: recommend items to users."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from dsgmcmc.cli.options import (
    ByOption,
    CandidatesOption,
    ClipOption,
    DataOption,
    ExcludeOption,
    ItemsOption,
    MatchingOption,
    OutOption,
    RunArgument,
    TopOption,
    ZOption,
)
from dsgmcmc.cli.posterior.show import show_recommendations
from dsgmcmc.errors import InputError, retry_if_gone
from dsgmcmc.terminal import say


@retry_if_gone
def recommend(
    run: RunArgument,
    user: Annotated[
        list[str] | None, typer.Option("--user", "-u", metavar="ID", help="A user; repeat for more.")
    ] = None,
    everyone: Annotated[bool, typer.Option("--all", help="All users.")] = False,
    top: TopOption = 10,
    out: OutOption = None,
    by: ByOption = "likely",
    z: ZOption = 1.0,
    at_least: Annotated[
        float | None,
        typer.Option(
            "--at-least",
            metavar="RATING",
            help="With --by likely, the lowest rating that counts as liked (by default three quarters up the scale); "
            "with mean and thompson, rank by the probability of at least this rating.",
        ),
    ] = None,
    items: ItemsOption = None,
    matching: MatchingOption = None,
    candidates: CandidatesOption = None,
    exclude: ExcludeOption = None,
    clip: ClipOption = True,
    include_rated: Annotated[
        bool, typer.Option("--include-rated", help="Also recommend items that the user has rated.")
    ] = False,
    data: DataOption = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of Thompson sampling.", show_default="random")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Recommend items to users, by default those that they will probably choose and like.

    Items that a user rated in training are left out, which needs the run's ratings file. The default score is the
    exposure, which is estimated from who rated what, times the probability that the user likes the item; it is for the
    order only. With --by mean it is the expected rating, by which items with few ratings may rank high by luck: --by
    lcb prefers certain items. Next to scores are sd and 90 % interval of the expected rating, and the number of ratings
    of the item. `dsgmcmc evaluate` compares the rules on your data.

    \b
    Examples:
      dsgmcmc recommend run --user 42 --items ml-1m/movies.dat
      dsgmcmc recommend run --all --top 20 -o top.parquet
      dsgmcmc recommend run --user 42 --by ucb --z 1.5 --json
      dsgmcmc recommend run --user 42 --by mean
      dsgmcmc recommend run --user 42 --items ml-1m/movies.dat --matching 'Comedy|Drama'
      dsgmcmc recommend run --user 42 --at-least 4
    """
    import numpy as np

    from dsgmcmc.data.titles import read_names
    from dsgmcmc.posterior.exposure import Rated
    from dsgmcmc.posterior.names import item_titles
    from dsgmcmc.posterior.rank import PATTERN_RULES, Ranking, recommendations, those_among
    from dsgmcmc.posterior.run import Run

    if bool(user) == everyone:
        raise InputError("missing --user ID or --all")
    if out is None and everyone and not as_json:
        raise InputError("--all needs --out FILE.csv or FILE.parquet (or --json)")
    if out is not None:
        from dsgmcmc.data.tables import output_format, write_blocks  # loads DuckDB, which printing does not need

        output_format(out)
    opened = Run(run)
    ranking = Ranking(top, by, z, seed, clip, at_least, include_rated)
    titles = item_titles(opened.items, items) if items else None
    among = those_among(opened, candidates and read_names(candidates), exclude and read_names(exclude))
    if matching is not None:
        if items is None:
            raise InputError("--matching needs --items FILE, the file with the lines to match")
        matched = np.zeros(len(opened.items), bool)
        matched[list(item_titles(opened.items, items, matching))] = True
        among = matched if among is None else among & matched
    if everyone:
        users = np.argsort(opened.users.ids, kind="stable").astype(np.int32)
    else:
        users = opened.users.index_of(list(dict.fromkeys(user or [])), refuse=True)
    rated = None
    if not include_rated or by in PATTERN_RULES:
        with opened.open_ratings(data) as ratings:
            rated = Rated(ratings, users)
    if by in PATTERN_RULES and sys.stderr.isatty() and not opened.exposure_file.exists():
        say("working out who rates what, once: the run keeps it", file=sys.stderr)
    blocks = recommendations(opened, users, ranking, rated, titles=titles, among=among)
    if out is not None:
        write_blocks(blocks, out)
    else:
        show_recommendations(blocks, ranking, as_json)
