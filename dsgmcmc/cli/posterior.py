"""Commands that use the draws of a run: ``predict``, ``recommend``, ``evaluate`` and ``export``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dsgmcmc.cli import JsonOption, RunArgument
from dsgmcmc.cli.options import options_in, takes_settings
from dsgmcmc.errors import InputError, retry_if_gone
from dsgmcmc.terminal import say, say_json, show_table

if TYPE_CHECKING:
    from dsgmcmc.posterior.lists.ranking import Ranking
    from dsgmcmc.posterior.lists.request import ListBlock
    from dsgmcmc.posterior.run import Run
    from dsgmcmc.posterior.settings import EvaluateSettings, PredictSettings

OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        metavar="OUT",
        help="CSV or Parquet file, by suffix.",
        show_default="CSV to stdout",
    ),
]


@takes_settings(options_in("dsgmcmc.posterior.settings", "PredictSettings"))
@retry_if_gone
def predict(
    run: RunArgument,
    pairs: Annotated[
        Path | None,
        typer.Argument(metavar="PAIRS", help="CSV or Parquet file with users and items."),
    ] = None,
    out: OutOption = None,
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a summary as JSON on stderr.")
    ] = False,
    **options: object,
) -> None:
    """Predict ratings: mean, standard deviation and interval of a new rating, including its noise.

    The output keeps the rows and columns of PAIRS, and adds the mean, the standard deviation and
    two quantiles of the posterior predictive distribution. If ratings have levels, such as stars,
    --at-least and --probabilities add probabilities of levels; Gaussian ratings are rounded to
    the nearest level.

    With --matrix, OUT has a row for each user and a column for each item, in the order of the
    matrix that was prepared, with those without ratings, or else of their names: known ratings as
    they were given, and the means of the others. It is CSV, Parquet, an array of NumPy (.npy,
    without names), netCDF (.nc) or AnnData (.h5ad; if OUT is there, layers are added to it). --sd
    and --interval 0.9 add matrices of standard deviations (0 where ratings are known) and
    quantiles: variables, layers, or files beside OUT, filled.sd.csv, filled.q05.csv and
    filled.q95.csv. With --of-mean all cells have their expected rating, without noise.

    --draws 20 writes 20 columns of draws of PAIRS, or 20 matrices, one after another, whose holes
    are drawn with their noise; with --of-mean, all cells are expected ratings, at one draw each.

    \b
    Examples:
      dsgmcmc predict run pairs.csv -o predicted.csv
      dsgmcmc predict run pairs.csv -o predicted.csv --at-least 4 --probabilities
      dsgmcmc predict run --matrix -o filled.csv --sd --interval 0.9
      dsgmcmc predict run pairs.csv --draws 20 --of-mean -o expected.csv
      dsgmcmc predict run --matrix --draws 20 -o imputed.nc
      dsgmcmc predict run --matrix --sd --interval 0.9 -o cells.h5ad
    """
    from dsgmcmc.posterior.cells.predict import Predictor
    from dsgmcmc.posterior.cells.predict_file import predict_table
    from dsgmcmc.posterior.matrix.pairs import PairDrawer
    from dsgmcmc.posterior.run import Run
    from dsgmcmc.posterior.settings import PredictSettings

    settings = PredictSettings.from_settings(options)
    if settings.matrix:
        if pairs is not None:
            raise InputError("--matrix predicts all pairs of users and items: leave out PAIRS")
        _complete_matrix(run, out, settings, as_json=as_json)
        return
    if pairs is None:
        raise InputError("give PAIRS, a file with users and items, or --matrix")
    predictor = Predictor(Run(run), settings)
    if settings.draws:
        predictor = PairDrawer(predictor.run, settings, settings.draws)
    summary = predict_table(predictor, pairs, out, settings)
    if as_json:
        say_json(summary, indent=None, file=sys.stderr)


def _complete_matrix(
    run: Path, out: Path | None, settings: PredictSettings, *, as_json: bool
) -> None:
    """Write the completed matrix of a run to a file."""
    from rich.progress import track

    from dsgmcmc.posterior.cells.fitted_rows import open_rows
    from dsgmcmc.posterior.matrix.file import MatrixFile
    from dsgmcmc.posterior.settings import PredictOptions
    from dsgmcmc.terminal import console

    if out is None:
        raise InputError("--matrix needs --out OUT.csv, .parquet, .npy, .nc or .h5ad")
    stderr = console(stderr=True)
    options = PredictOptions(
        of_mean=settings.of_mean, interval=settings.interval, clip=settings.clip
    )
    file = MatrixFile(
        open_rows(run, settings.data).run,
        imputations=settings.draws,
        options=options,
        sd=settings.sd,
    )
    summary = file.write(
        out,
        lambda blocks, number: track(
            blocks,
            "completing",
            total=number,
            console=stderr,
            transient=True,
            disable=not stderr.is_terminal,
        ),
    )
    if as_json:
        say_json(summary, indent=None, file=sys.stderr)


@takes_settings(options_in("dsgmcmc.posterior.settings", "RecommendSettings"))
@retry_if_gone
def recommend(
    run: RunArgument,
    user: Annotated[
        list[str] | None,
        typer.Option(
            "--user",
            "-u",
            metavar="ID",
            help="User; repeat the option for several users. Of parts: station=s3,day=d4.",
        ),
    ] = None,
    everyone: Annotated[bool, typer.Option("--all", help="Recommend items to all users.")] = False,
    pairs: Annotated[
        bool,
        typer.Option("--pairs", help="Rank all pairs of users and items together, e.g. by sd."),
    ] = False,
    out: OutOption = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    **options: object,
) -> None:
    """Recommend items to users; by default, items that they will probably choose and like.

    Items that a user rated in training are left out, which needs the run's ratings file. The
    default score is the exposure, estimated from who rated which items, times the probability that
    the user likes the item. With --by mean items with few ratings may rank high by chance; --by
    lcb prefers items whose expected rating is certain. `dsgmcmc evaluate` compares these rules on
    your data.

    \b
    Examples:
      dsgmcmc recommend run --user 42 --items ml-1m/movies.dat
      dsgmcmc recommend run --all --top 20 -o top.parquet
      dsgmcmc recommend run --user 42 --by ucb --z 1.5 --json
      dsgmcmc recommend run --pairs --by sd --top 50
      dsgmcmc recommend run --user 42 --items ml-1m/movies.dat --matching 'Comedy|Drama'
    """
    from dsgmcmc.posterior.cells.fitted_rows import open_rows
    from dsgmcmc.posterior.lists.exposure_of_run import exposure_file
    from dsgmcmc.posterior.lists.request import Request, lists
    from dsgmcmc.posterior.settings import PATTERN_RULES, RecommendSettings

    settings = RecommendSettings.from_settings(options)
    is_printed = out is None and not as_json
    _check_choice(user, everyone=everyone, pairs=pairs, is_printed=is_printed)
    if out is not None:
        from dsgmcmc.tables.written import output_format, write_blocks  # loads DuckDB

        output_format(out)
    model = open_rows(run, settings.data)
    request = Request.of_files(model.run, settings, user or None, of_pairs=pairs)
    is_kept = exposure_file(model.run, settings.exposure).exists()
    if settings.by in PATTERN_RULES and not is_kept and sys.stderr.isatty():
        say("estimating exposure; the run directory keeps the result", file=sys.stderr)
    blocks = lists(model, request, _say_warning)
    if out is not None:
        write_blocks((block.columns for block in blocks), out)
    elif as_json:
        say_json([line for block in blocks for line in _lines_of(block.columns)])
    else:
        _show_lists(list(blocks), request.ranking, model.run.users.columns)


def _check_choice(user: list[str] | None, *, everyone: bool, pairs: bool, is_printed: bool) -> None:
    """Raise InputError unless some users, all users or all pairs are chosen."""
    if [bool(user), everyone, pairs].count(True) != 1:
        raise InputError("give one of --user ID, --all and --pairs")
    if everyone and is_printed:
        raise InputError("--all needs --out FILE.csv or FILE.parquet (or --json)")


def _say_warning(note: str) -> None:
    say(f"warning: {note}", file=sys.stderr)


def _show_lists(blocks: list[ListBlock], ranking: Ranking, user_columns: Sequence[str]) -> None:
    """Print a table for each user, or for each list that has a heading."""
    tables: dict[str, list[list[str]]] = {}
    for columns, heading in blocks:
        names = list(columns)[: list(columns).index("score")]
        if heading is not None:
            tables[heading] = [_row_of(line, names) for line in _lines_of(columns)]
            continue
        for line in _lines_of(columns):
            title = f"user {_name(line, user_columns)}"
            tables.setdefault(title, []).append(_row_of(line, names[len(user_columns) :]))
    headings = _headings(ranking, list(blocks[0].columns))
    for title, rows in tables.items():
        if rows:
            show_table(headings, rows, title, left=("name", "because"))
        else:
            say(f"{title}: nothing to recommend: every cell is rated or excluded", file=sys.stderr)
    if not tables:
        say("nothing to recommend: every item is rated or excluded", file=sys.stderr)


def _name(line: dict[str, Any], columns: Sequence[str]) -> str:
    """Return the name in a row whose parts are in these columns."""
    return ", ".join(str(line[column]) for column in columns)


def _lines_of(table: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a table as dicts."""
    columns = (column.tolist() for column in table.values())
    return [dict(zip(table, line, strict=True)) for line in zip(*columns, strict=True)]


def _headings(ranking: Ranking, columns: Sequence[str]) -> list[str]:
    """Return the headings of a table of recommendations that has these columns."""
    uncertainty = ["sd of mean", "mean, 90 %"]
    if ranking.score_name == "mean":
        uncertainty = ["sd", "90 % interval"]
    headings = ["rank", ranking.score_name, *uncertainty, "ratings", "item"]
    if "item_name" in columns:
        headings.append("name")
    if "because" in columns:
        headings.append("because")
    return headings


def _written(score: float) -> str:
    """Write a score with three decimals, or with two digits if it is small."""
    if abs(score) < 0.01:
        return f"{score:.2g}"
    return f"{score:.3f}"


def _row_of(line: dict[str, Any], columns: Sequence[str]) -> list[str]:
    """Format a recommended item, named by these columns, as a row of a table."""
    row = [
        str(line["rank"]),
        _written(line["score"]),
        f"{line['sd']:.2f}",
        f"{line['q05']:.2f} to {line['q95']:.2f}",
        f"{line['ratings']:,}",
        _name(line, columns),
    ]
    if "item_name" in line:
        row.append(line["item_name"])
    if "because" in line:
        row.append(line.get("because_name") or line["because"])
    return row


@takes_settings(options_in("dsgmcmc.posterior.settings", "EvaluateSettings"))
@retry_if_gone
def evaluate(
    run: RunArgument,
    others: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RATINGS or RUN...",
            help="File of ratings, for errors in place of rankings; or runs to compare with.",
        ),
    ] = None,
    *,
    as_json: JsonOption = False,
    **options: object,
) -> None:
    """Compare the rules by which `recommend` ranks items, and popularity, on the test ratings.

    With RATINGS, a file in any format that `prepare` reads, score the predictions of these ratings:
    RMSE, MAE, log score and coverage of intervals. Columns that are items make it a matrix.

    With other runs on the same ratings file, compare the lists of all runs by the default rule, and
    their differences by user from those of the first.

    For each user with a liked test rating and training ratings, every rule ranks the items that the
    user did not rate in training, and its first items are compared with those that the user liked.
    The last column is the mean difference in NDCG from the default rule of `recommend`, and its
    standard error. --json prints all figures with their intervals. `prepare --split temporal` gives
    a harder and more realistic test.

    \b
    Examples:
      dsgmcmc evaluate run
      dsgmcmc evaluate run --at 50 --all
      dsgmcmc evaluate run new.csv
      dsgmcmc evaluate run other-run --all
    """
    from dsgmcmc.diagnostics.ranking import USERS, compare_runs
    from dsgmcmc.diagnostics.ranking import evaluate as compare_rankings
    from dsgmcmc.posterior.cells.fitted_rows import open_rows
    from dsgmcmc.posterior.lists.liked import warn_of_few
    from dsgmcmc.posterior.rated import read_rated
    from dsgmcmc.posterior.settings import EvaluateSettings

    settings = EvaluateSettings.from_settings(options)
    runs = [path for path in others or [] if path.is_dir()]
    files = [path for path in others or [] if not path.is_dir()]
    if len(files) > 1 or (files and runs):
        raise InputError("give one file of ratings, or runs to compare with")
    settings.check_form(of_file=bool(files))
    opened = open_rows(run, settings.data).run
    if files:
        _evaluate_file(opened, files[0], settings, as_json=as_json)
        return
    how: dict[str, Any] = {
        "at": settings.at,
        "liked": settings.liked,
        "users": None if settings.everyone else USERS,
        "exposure": settings.exposure,
    }
    if runs:
        others_opened = [open_rows(path, settings.data).run for path in runs]
        scores = compare_runs([opened, *others_opened], **how)
    else:
        scores = compare_rankings(opened, read_rated(opened), **how)
        for note in warn_of_few(opened, "likely", settings.liked):
            _say_warning(note)
    if as_json:
        say_json(scores)
    elif runs:
        _show_runs(scores)
    else:
        _show_rules(scores)


def _title_of_lists(scores: dict[str, Any]) -> str:
    """Return who and what is counted in scores of lists."""
    counted = f"{scores['users']:,} users"
    if scores["of_users"] > scores["users"]:
        counted += f" of {scores['of_users']:,}"
    title = f"{counted}, lists of {scores['at']}, liked: {scores['liked']:g} or more"
    if scores["untrained"]:
        title += f"; not counted: {scores['untrained']:,} users without training ratings"
    return title


def _show_rules(scores: dict[str, Any]) -> None:
    """Print the scores of lists by rule, and their differences from those of the first rule."""
    changes = [rule["difference"] for rule in scores["rules"]]
    differences = [f"{change['mean']:+.3f} ± {change['se']:.3f}" for change in changes]
    _show_lists_of("rule", scores, differences, digits=3)


def _show_runs(scores: dict[str, Any]) -> None:
    """Print the scores of the lists of several runs, and their differences from the first run."""
    changes = [of_run["difference"]["ndcg"] for of_run in scores["runs"]]
    differences = [
        f"{change['mean']:+.4f} ({change['low']:+.4f} to {change['high']:+.4f})"
        for change in changes
    ]
    _show_lists_of("run", scores, differences, digits=4)


#: Headings of what has scores of lists, and of differences in NDCG.
LIST_HEADINGS = {
    "rule": ("rank by", "NDCG, difference"),
    "run": ("run", "NDCG, difference, 95 %"),
}


def _show_lists_of(
    kind: str, scores: dict[str, Any], differences: list[str], *, digits: int
) -> None:
    """Print a table of scores of lists, in which the first row is what others differ from."""
    from dsgmcmc.posterior.lists.measures import MEASURES

    name, difference = LIST_HEADINGS[kind]
    rows: list[list[str]] = []
    for scored, change in zip(scores[f"{kind}s"], ["", *differences[1:]], strict=True):
        measures = [f"{scored[measure]['mean']:.{digits}f}" for measure in MEASURES]
        rows.append([scored[kind], *measures, change])
    headings = [name, "NDCG", "precision", "recall", "reciprocal rank", difference]
    show_table(headings, rows, _title_of_lists(scores), left=[name])


def _evaluate_file(run: Run, ratings: Path, settings: EvaluateSettings, *, as_json: bool) -> None:
    """Print the scores of the predictions of the ratings in a file."""
    from dsgmcmc.diagnostics.overview import total_scores
    from dsgmcmc.posterior.cells.evaluate_file import evaluate_file
    from dsgmcmc.settings import named

    scores = evaluate_file(run, ratings, settings)
    if as_json:
        say_json(scores)
        return
    table = total_scores(scores, "ratings")
    show_table(table.headings, table.rows, table.title, left=["score"])
    if scores["unknown"]:
        say(f"{scores['unknown']:,} of the ratings are of unknown users or items")
    if scores["trained"]:
        say(
            f"warning: {scores['trained']:,} of the ratings were in training, so that new ratings"
            " will be predicted worse",
            file=sys.stderr,
        )
    if scores["trained"] is None:
        say(
            f"warning: ratings may have been in training: {named('data')} says where the run's"
            " ratings file is",
            file=sys.stderr,
        )


@retry_if_gone
def export(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...", help="Run directories; several of the same ratings for netCDF."
        ),
    ],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="OUT", help="Parquet or NetCDF file: .parquet or .nc."),
    ],
    draws: Annotated[
        bool, typer.Option("--draws", help="Parquet: saved draws instead of posterior moments.")
    ] = False,
    items: Annotated[
        bool,
        typer.Option(
            "--items",
            help=(
                "CSV or Parquet: difficulties and abilities, if ratings are ordered levels; with"
                " --draws, plausible values of abilities."
            ),
        ),
    ] = False,
    ranking: Annotated[
        Literal["user", "item"] | None,
        typer.Option(
            "--ranking",
            help="CSV or Parquet: rank all items over all users, or users over items.",
            show_default=False,
        ),
    ] = None,
    training: Annotated[
        bool,
        typer.Option(
            "--training",
            help="NetCDF: log likelihoods of training in place of test ratings, for LOO.",
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace OUT.")] = False,
) -> None:
    """Write a run to one file: Parquet with factors by the original names, or netCDF for ArviZ.

    The netCDF file has hyperparameters and predictions for test pairs, for `xarray.open_datatree`
    and ArviZ, in the groups posterior, sample_stats, observed_data and constant_data; what cannot
    be compared between chains, such as the precisions of columns of factors, is in the group
    columns. The group loadings has factors in one orientation; only Parquet has them as sampled.
    Runs with other seeds become one file with the chains of all, for R-hat across them. With
    --training, ArviZ's `loo` estimates the score of new ratings from the training ratings.

    \b
    Examples:
      dsgmcmc export run -o factors.parquet
      dsgmcmc export run -o run.nc
      dsgmcmc export run -o items.csv --items
      dsgmcmc export seed-0 seed-1 seed-2 -o joined.nc
      dsgmcmc export run -o loo.nc --training
      dsgmcmc export run -o ranking.csv --ranking item
    """
    from dsgmcmc.posterior.draws import ENTITIES
    from dsgmcmc.posterior.export import export as write
    from dsgmcmc.posterior.joined import open_runs
    from dsgmcmc.posterior.matrix.axis import names_in_order
    from dsgmcmc.posterior.matrix.ranking import ranking as ranked

    run = open_runs(runs)
    if ranking is None:
        order = {entity: names_in_order(run, entity) for entity in ENTITIES}
        write(run, out, draws=draws, items=items, training=training, order=order, force=force)
        return
    if draws or items or training or len(runs) > 1:
        raise InputError(
            "--ranking is of one run, and a file has one table: leave out --draws, --items,"
            " --training and other runs"
        )
    ranked(run, kind=ranking).write(out, force=force)
