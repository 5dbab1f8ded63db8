"""Commands that use the draws of a run: ``predict``, ``recommend``, ``evaluate`` and ``export``."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dsgmcmc.cli import JsonOption, RunArgument
from dsgmcmc.errors import InputError, retry_if_gone
from dsgmcmc.terminal import say, say_json, show_table

if TYPE_CHECKING:
    from dsgmcmc.posterior.rank import Ranking

OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out", "-o", metavar="OUT", help="CSV or Parquet file: the suffix decides.", show_default="CSV to stdout"
    ),
]
ClipOption = Annotated[
    bool, typer.Option("--clip/--no-clip", help="Clip predicted ratings and quantiles to the range of the ratings.")
]
DataOption = Annotated[
    Path | None,
    typer.Option(metavar="DATA.h5", help="The run's ratings file, if it was moved.", show_default="where it was"),
]


@retry_if_gone
def predict(
    run: RunArgument,
    pairs: Annotated[Path, typer.Argument(metavar="PAIRS", help="CSV or Parquet file with users and items.")],
    out: OutOption = None,
    of_mean: Annotated[bool, typer.Option("--of-mean", help="Predict the expected rating, without noise.")] = False,
    interval: Annotated[
        float, typer.Option(help="Probability between the two quantiles: 0.9 gives q05 and q95.")
    ] = 0.9,
    at_least: Annotated[
        float | None,
        typer.Option(metavar="RATING", help="Also predict the probability of at least this rating."),
    ] = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Also predict the probability of each level of the ratings.")
    ] = False,
    clip: ClipOption = True,
    unknown: Annotated[
        Literal["refuse", "prior"],
        typer.Option(help="Unknown users and items: refuse them, or predict them from the prior."),
    ] = "refuse",
    columns: Annotated[
        str | None,
        typer.Option(metavar="user=U,item=I", help="Columns of PAIRS by name or position from 1; detected by default."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a summary as JSON on stderr.")] = False,
) -> None:
    """Predict ratings: mean, sd and an interval of a new rating, noise included.

    PAIRS lists users and items by their original names. The output has the rows and columns of PAIRS in the same order,
    followed by the mean, the sd and two quantiles of the mixture over the saved draws. If ratings have levels, such as
    stars, --at-least and --probabilities add probabilities, from an ordinal likelihood or from Gaussian ratings rounded
    to the nearest level.

    \b
    Examples:
      dsgmcmc predict run pairs.csv -o predicted.csv
      dsgmcmc predict run pairs.parquet -o predicted.parquet --interval 0.5
      dsgmcmc predict run pairs.csv -o predicted.csv --at-least 4 --probabilities
    """
    from dsgmcmc.data.columns import parse_columns
    from dsgmcmc.data.pairs import ROLES
    from dsgmcmc.posterior.predict import PredictOptions, predict_table
    from dsgmcmc.posterior.run import Run

    options = PredictOptions(of_mean, interval, clip, at_least, probabilities)
    summary = predict_table(Run(run), pairs, out, options, unknown=unknown, columns=parse_columns(columns, ROLES))
    if as_json:
        say_json(summary, indent=None, file=sys.stderr)


@retry_if_gone
def recommend(
    run: RunArgument,
    user: Annotated[
        list[str] | None, typer.Option("--user", "-u", metavar="ID", help="A user; repeat the option for more users.")
    ] = None,
    everyone: Annotated[bool, typer.Option("--all", help="All users.")] = False,
    top: Annotated[int, typer.Option("--top", "-n", min=1, help="Number of items per user.")] = 10,
    out: OutOption = None,
    by: Annotated[
        Literal["likely", "exposure", "mean", "ucb", "lcb", "thompson"],
        typer.Option(
            help="Rank by: likely: whether the user will choose and like an item; exposure: whether they will choose "
            "it; mean: expected rating; ucb, lcb: its upper or lower confidence bound; thompson: Thompson sampling."
        ),
    ] = "likely",
    z: Annotated[
        float, typer.Option(min=0, help="With ucb and lcb, standard deviations between mean and bound.")
    ] = 1.0,
    at_least: Annotated[
        float | None,
        typer.Option(
            metavar="RATING",
            help="With --by likely, the lowest rating that counts as liked (default: three quarters up the scale); "
            "with mean and thompson, rank by the probability of at least this rating.",
        ),
    ] = None,
    items: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File with titles of items: movies.dat, u.item, movies.csv or any CSV."),
    ] = None,
    matching: Annotated[
        str | None,
        typer.Option(
            metavar="REGEX", help="With --items: only items whose line in FILE matches, such as 'Comedy|Drama'."
        ),
    ] = None,
    candidates: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Recommend only these items, one name per line.")
    ] = None,
    exclude: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Never recommend these items, one name per line.")
    ] = None,
    clip: ClipOption = True,
    include_rated: Annotated[
        bool, typer.Option("--include-rated", help="Also recommend items that the user has rated.")
    ] = False,
    data: DataOption = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of Thompson sampling.", show_default="random")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Recommend items to users, by default those that they will probably choose and like.

    Items that a user rated in training are left out; this needs the run's ratings file. The default score is the
    exposure, estimated from who rated what, times the probability that the user likes the item; it orders items, but is
    not a probability. With --by mean the score is the expected rating, so items with few ratings may rank high by luck;
    --by lcb prefers items whose rating is certain. The sd and 90 % interval of the expected rating, and the number of
    ratings of the item, stand next to the score. `dsgmcmc evaluate` compares the rules of --by on your data.

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
    from dsgmcmc.posterior.names import item_titles
    from dsgmcmc.posterior.rank import PATTERN_RULES, Ranking, allowed_items, recommendations
    from dsgmcmc.posterior.run import Run

    if bool(user) == everyone:
        raise InputError("give either --user ID or --all")
    if out is None and everyone and not as_json:
        raise InputError("--all needs --out FILE.csv or FILE.parquet (or --json)")
    if out is not None:
        from dsgmcmc.data.tables import output_format, write_blocks  # loads DuckDB, which printing does not need

        output_format(out)
    opened = Run(run)
    ranking = Ranking(top, by, z, seed, clip, at_least, include_rated)
    titles = item_titles(opened.items, items) if items else None
    among = allowed_items(opened, candidates and read_names(candidates), exclude and read_names(exclude))
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
    rated = opened.rated(data, users) if not include_rated or by in PATTERN_RULES else None
    if by in PATTERN_RULES and sys.stderr.isatty() and not opened.exposure_file.exists():
        say("estimating who rates what; the run keeps the result", file=sys.stderr)
    blocks = recommendations(opened, users, ranking, rated, titles=titles, among=among)
    if out is not None:
        write_blocks(blocks, out)
    else:
        _show_recommendations(blocks, ranking, as_json)


def _show_recommendations(blocks: Iterable[dict[str, Any]], ranking: Ranking, as_json: bool) -> None:
    """Print recommendations as JSON, or as a table for each user."""
    lines = [
        dict(zip(block, line, strict=True))
        for block in blocks
        for line in zip(*(column.tolist() for column in block.values()), strict=True)
    ]
    if as_json:
        say_json(lines)
        return
    uncertainty = ("sd", "90 % interval") if ranking.score_name == "mean" else ("sd of mean", "mean, 90 %")
    tables: dict[Any, list[list[str]]] = {}
    for line in lines:
        interval = f"{line['q05']:.2f} to {line['q95']:.2f}"
        row = [f"{line['score']:.3f}", f"{line['sd']:.2f}", interval, f"{line['ratings']:,}", str(line["item_id"])]
        item_name = [line["item_name"]] if "item_name" in line else []
        tables.setdefault(line["user_id"], []).append([str(line["rank"]), *row, *item_name])
    for user, rows in tables.items():
        headings = ["rank", ranking.score_name, *uncertainty, "ratings", "item", "name"]
        show_table(headings[: len(rows[0])], rows, f"user {user}", left=("name",))
    if not lines:
        say("nothing to recommend: every item is rated or excluded", file=sys.stderr)


@retry_if_gone
def evaluate(
    run: RunArgument,
    at: Annotated[int, typer.Option(min=1, help="Number of recommended items per user.")] = 10,
    liked: Annotated[
        float | None,
        typer.Option(help="Lowest test rating that counts as liked.", show_default="three quarters up the scale"),
    ] = None,
    everyone: Annotated[bool, typer.Option("--all", help="Rank for all users, not only for 1,000 of them.")] = False,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare rankings of items, by the rules of recommend and by popularity, on the test ratings.

    For each user with a liked test rating (without --all, for at most 1,000 of them), the items that the user did not
    rate in training are ranked, and the first of them are compared with the items that the user liked. Exposure is
    EASE^R, which uses who rated what but no rating values. The last column is the difference in NDCG from recommend's
    default rule, averaged over users, and its standard error. --json has all figures, with their intervals. A random
    split favours exposure: prepare --split temporal gives a harder and more realistic test.

    \b
    Examples:
      dsgmcmc evaluate run
      dsgmcmc evaluate run --at 50 --all
      dsgmcmc evaluate run --liked 4 --json
    """
    from dsgmcmc.diagnostics.ranking import MEASURES, USERS
    from dsgmcmc.diagnostics.ranking import evaluate as compare_rankings
    from dsgmcmc.posterior.run import Run

    opened = Run(run)
    scores = compare_rankings(opened, opened.rated(data), at, liked, None if everyone else USERS)
    if as_json:
        say_json(scores)
        return
    out_of = f" of {scores['of_users']:,}" if scores["of_users"] > scores["users"] else ""
    title = f"{scores['users']:,} users{out_of}, lists of {at}, liked: {scores['liked']:g} or more"
    rows: list[list[str]] = []  # the first row is that of the default rule
    for row in scores["rules"]:
        difference = f"{row['difference']['mean']:+.3f} ± {row['difference']['se']:.3f}"
        rows.append([row["rule"], *(f"{row[name]['mean']:.3f}" for name in MEASURES), difference if rows else ""])
    headings = ["rank by", "NDCG", "precision", "recall", "reciprocal rank", "NDCG, difference"]
    show_table(headings, rows, title, left=["rank by"])


@retry_if_gone
def export(
    run: RunArgument,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="OUT", help="File; its suffix chooses the format: .parquet or .nc."),
    ],
    draws: Annotated[bool, typer.Option("--draws", help="Parquet: saved draws instead of posterior moments.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace OUT.")] = False,
) -> None:
    """Write a run to one file: Parquet with factors under the original names, or netCDF for ArviZ.

    The netCDF file has hyperparameters and predictions of test pairs, for `xarray.open_datatree` and ArviZ, in the
    groups posterior, sample_stats, observed_data and constant_data. Only Parquet has the factors, because factors
    cannot be compared between chains.

    \b
    Examples:
      dsgmcmc export run -o factors.parquet
      dsgmcmc export run -o run.nc
    """
    from dsgmcmc.posterior.export import export as write
    from dsgmcmc.posterior.run import Run

    write(Run(run), out, draws=draws, force=force)
