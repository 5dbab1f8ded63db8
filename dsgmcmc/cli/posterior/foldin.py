"""``dsgmcmc foldin``: fold in new ratings of users or items without sampling again."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dsgmcmc.cli.options import (
    AtLeastOption,
    By,
    ByOption,
    ClipOption,
    DataOption,
    IntervalOption,
    ItemsOption,
    OutOption,
    ProbabilitiesOption,
    RunArgument,
    TopOption,
    Unknown,
    ZOption,
)
from dsgmcmc.cli.posterior.show import show_recommendations
from dsgmcmc.errors import InputError, anew
from dsgmcmc.terminal import say

New = StrEnum("New", ["users", "items"])


def foldin(
    run: RunArgument,
    ratings: Annotated[
        Path | None,
        typer.Argument(
            metavar="NEW_RATINGS",
            help="New ratings, in any format that prepare reads, - for stdin; not needed for users with features.",
            show_default=False,
        ),
    ] = None,
    new: Annotated[New, typer.Option(help="Fold in users or items.")] = New.users,
    pairs: Annotated[
        str | None, typer.Option(metavar="PAIRS", help="Predict these pairs (CSV or Parquet), as predict does.")
    ] = None,
    top: TopOption = 10,
    out: OutOption = None,
    by: ByOption = By.likely,
    z: ZOption = 1.0,
    items: ItemsOption = None,
    of_mean: Annotated[
        bool, typer.Option("--of-mean", help="With --pairs: predict the expected rating, without noise.")
    ] = False,
    interval: IntervalOption = 0.9,
    at_least: AtLeastOption = None,
    probabilities: ProbabilitiesOption = False,
    clip: ClipOption = True,
    unknown: Annotated[
        Unknown, typer.Option(help="With --pairs: unknown names: refuse, predict from the prior, or leave empty.")
    ] = Unknown.refuse,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="user=U,item=I,rating=R",
            help="Columns of NEW_RATINGS: names in the header, or positions from 1; detected by default.",
        ),
    ] = None,
    pair_columns: Annotated[
        str | None,
        typer.Option(metavar="user=U,item=I", help="Columns of PAIRS, given like --columns."),
    ] = None,
    user_features: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Features of new users, with the columns that prepare had for the run; ratings are optional.",
        ),
    ] = None,
    user_id: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column with user ids, as for prepare.", show_default="as for prepare"),
    ] = None,
    item_features: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --new items: features of items.")
    ] = None,
    item_id: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column with item ids, as for prepare.", show_default="as for prepare"),
    ] = None,
    data: DataOption = None,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Seed of Thompson sampling and of noise scales.",
            show_default="random for Thompson sampling, 0 for noise scales",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print recommendations as JSON.")] = False,
) -> None:
    """Fold in new ratings, and features of new users, without sampling again; then recommend or predict.

    The posterior of users (or items) is exact given each saved draw, so it shows the uncertainty of few ratings. Users
    may be new or known to the run; new ratings of known users are added to those that the run was sampled from, which
    needs its ratings file. With --pairs, ratings are predicted; otherwise the users of NEW_RATINGS, and the new ones of
    --user-features, get recommendations. What cannot be used, such as ratings of unknown items, is left out with a
    warning. Features can be used only if the run was sampled with features.

    \b
    Examples:
      dsgmcmc foldin run new_users.csv --items ml-1m/movies.dat
      dsgmcmc foldin run new_users.csv --top 20 -o top.csv
      dsgmcmc foldin run new_items.csv --new items --pairs pairs.csv -o predicted.csv
      dsgmcmc foldin run sales.csv --columns user=buyer,item=sku,rating=stars
      dsgmcmc foldin run new_users.csv --user-features who_they_are.csv
      dsgmcmc foldin run --user-features who_they_are.csv --top 20 -o top.csv
    """
    import numpy as np

    from dsgmcmc.data.ingest.features import describe
    from dsgmcmc.data.ingest.pipes import Copies, at_rest
    from dsgmcmc.data.pairs import parse_pair_columns
    from dsgmcmc.data.tables import output_format, write_blocks
    from dsgmcmc.posterior.names import item_titles
    from dsgmcmc.posterior.new_ratings import fold_in_file
    from dsgmcmc.posterior.predict import PredictOptions
    from dsgmcmc.posterior.predict_table import predict_table
    from dsgmcmc.posterior.recommend import recommendations
    from dsgmcmc.posterior.rules import Ranking
    from dsgmcmc.posterior.run import Run

    output_format(out)
    kind = "user" if new is New.users else "item"
    if pairs is None and kind == "item":
        raise InputError("--new items needs --pairs: recommendations are for users")
    if pairs is None and pair_columns is not None:
        raise InputError("--pair-columns needs --pairs, the file whose columns it names")
    if pairs is None and (at_least is not None or probabilities):
        raise InputError("--at-least and --probabilities need --pairs")
    features = {"user": user_features, "item": item_features}
    strange = "user" if kind == "item" else "item"
    if features[strange]:
        raise InputError(f"--{strange}-features needs --new {strange}s: {kind}s are being folded in")
    if ratings is None and columns is not None:
        raise InputError("--columns needs NEW_RATINGS, the file whose columns it names")
    names = parse_pair_columns(pair_columns, "--pair-columns")

    @anew
    def work(pipes: Copies) -> None:
        opened = Run(run)
        files = {entity: path and pipes.of(path) for entity, path in features.items()}
        given = describe(files, {"user": user_id, "item": item_id}, None, separator="|").get(kind)
        if ratings is None and given is None:
            raise InputError(f"give NEW_RATINGS, --{kind}-features, or both")
        about = ratings and pipes.of(ratings)
        newcomers, notes = fold_in_file(opened, about, kind, columns, given=given, data=data, seed=seed or 0)
        for note in notes:
            say(f"warning: {pipes.named(note)}", file=sys.stderr)
        if pairs is not None:
            options = PredictOptions(of_mean, interval, clip, at_least, probabilities)
            of = pipes.of(pairs)
            predict_table(opened, of, out, options, unknown=unknown.value, columns=names, newcomers=newcomers)
            return
        ranking = Ranking(top, by.value, z, seed, clip)
        titles = item_titles(opened.items, items) if items else None
        users = len(opened.users) + np.arange(len(newcomers.vocabulary), dtype=np.int32)
        if data is not None:
            opened.open_ratings(data).close()  # which the exposure is estimated from, unless it is kept
        blocks = recommendations(opened, users, ranking, newcomers=newcomers, titles=titles)
        if out is not None:
            write_blocks(blocks, out)
        else:
            show_recommendations(blocks, ranking, as_json)

    with at_rest([ratings, *features.values(), pairs]) as pipes:
        work(pipes)
