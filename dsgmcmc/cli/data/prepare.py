"""``dsgmcmc prepare``: make a ratings file from files with ratings."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsgmcmc.errors import EXIT_INTERRUPTED, InputError
from dsgmcmc.parallel.signals import interrupt
from dsgmcmc.terminal import console, plain, say, say_json, show_facts

if TYPE_CHECKING:
    from dsgmcmc.data.prepare import Summary
    from dsgmcmc.data.session import Report


FEW = 50  # ratings: below, a model knows little


class Split(StrEnum):
    """How test ratings are chosen."""

    random = "random"
    temporal = "temporal"


Duplicates = StrEnum("Duplicates", ["error", "first", "last", "mean"])


def prepare(
    ratings: Annotated[
        list[str],
        typer.Argument(
            metavar="RATINGS...",
            help="Files, folders or globs with ratings.",
            default_factory=list,
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT.h5", help="Ratings file to write.")],
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="user=U,item=I,rating=R,timestamp=T",
            help="Names in the header, or positions from 1, of those that are not detected, as in item=joke. "
            "User and item without rating: clicks.",
        ),
    ] = None,
    test_fraction: Annotated[
        float | None, typer.Option(help="Fraction of the ratings that is held out for testing.", show_default="0.1")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the split, and of the order of rows and columns.")] = 0,
    split: Annotated[
        Split, typer.Option(help="Test ratings: drawn at random, or the latest by timestamp.")
    ] = Split.random,
    test: Annotated[
        str | None, typer.Option(metavar="FILE", help="File with the test ratings, instead of a split.")
    ] = None,
    timestamps: Annotated[
        bool, typer.Option("--timestamps", help="Keep the temporal order of ratings, for `sample --time-levels`.")
    ] = False,
    duplicates: Annotated[
        Duplicates,
        typer.Option(
            help="Rating that counts if a user rated an item more than once: the first or last by timestamp, and of "
            "equal or no timestamps by line; their mean; or error to refuse them."
        ),
    ] = Duplicates.last,
    drop_zeros: Annotated[
        bool, typer.Option("--drop-zeros", help="Leave ratings of 0 out, where 0 means that a user did not rate.")
    ] = False,
    user_features: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Features of users: CSV or other text with a header, Parquet, or a SciPy matrix. Text becomes "
            "categories, text with separators becomes lists of categories, and numbers are standardised.",
        ),
    ] = None,
    user_id: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column with user ids; for a matrix, a file of row names.",
            show_default="column `user`, or the first",
        ),
    ] = None,
    item_features: Annotated[Path | None, typer.Option(metavar="FILE", help="Features of items.")] = None,
    item_id: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column with item ids.")] = None,
    feature_kinds: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN=KIND,...",
            help="Kinds of columns, if not the detected ones: number, category, list, year, flag, skip.",
        ),
    ] = None,
    separator: Annotated[str, typer.Option(help="Separator of the values of a list.")] = "|",
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Memory to stay within, e.g. 2GB.",
            show_default="60 % of the machine's or of the cgroup's limit",
        ),
    ] = None,
    temp_dir: Annotated[
        Path | None,
        typer.Option(help="Folder for temporary files.", show_default="the folder of OUT"),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Number of threads.", show_default="all available cores")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace OUT.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Make a ratings file from text with any delimiter, JSON, Parquet, MatrixMarket or SciPy files.

    The content of a file says what it is; text, JSON and MatrixMarket may be compressed with gzip. Read anything else
    into a data frame, and write that as Parquet, or use BPMF in Python. Names of users and items may be numbers or any
    text. A folder may hold many files; MovieLens folders are recognised.

    \b
    Examples:
      dsgmcmc prepare ml-1m/ratings.dat ml-1m.h5
      dsgmcmc prepare ml-25m/ ml-25m.h5 --split temporal
      dsgmcmc prepare 'parts/*.parquet' all.h5 --columns user=buyer,item=sku,rating=stars
      dsgmcmc prepare u1.base u1.h5 --test u1.test
      dsgmcmc prepare ml-1m/ratings.dat ml-1m.h5 --user-features ml-1m/users.dat --item-features ml-1m/movies.dat
      dsgmcmc prepare r.csv r.h5 --user-features users.csv --feature-kinds age=number,occupation=category
    """
    if not ratings:
        raise InputError(f"missing OUT.h5: dsgmcmc prepare {out} OUT.h5")
    # a batch system's stop leaves no temporary files either
    signal.signal(signal.SIGTERM, interrupt)
    from dsgmcmc.data.features import describe
    from dsgmcmc.data.prepare import prepare_ratings
    from dsgmcmc.data.session import parse_bytes

    given, names = {"user": user_features, "item": item_features}, {"user": user_id, "item": item_id}
    try:
        with _progress() as report:
            summary = prepare_ratings(
                ratings,
                out,
                columns=columns,
                test_fraction=test_fraction,
                seed=seed,
                split=split.value,
                test=test,
                timestamps=timestamps,
                duplicates=duplicates.value,
                drop_zeros=drop_zeros,
                described=describe(given, names, feature_kinds, separator),
                memory=None if memory is None else parse_bytes(memory),
                temp_dir=temp_dir,
                threads=threads,
                force=force,
                report=report,
            )
    except KeyboardInterrupt:
        say("dsgmcmc: interrupted", file=sys.stderr)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    if as_json:
        say_json(asdict(summary), indent=None)
    else:
        _show(summary, duplicates.value, test_fraction != 0)


@contextlib.contextmanager
def _progress() -> Iterator[Report]:
    """Show a bar on standard error, if that is a terminal."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    shown = console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=shown, transient=True, disable=not shown.is_terminal) as bar:
        task = bar.add_task("starting", total=1.0)
        yield lambda stage, fraction: bar.update(task, description=plain(stage), completed=fraction)


def _show(summary: Summary, duplicates: str, wanted: bool) -> None:
    share = summary.test / summary.ratings
    facts = {
        "users": f"{summary.users:,}",
        "items": f"{summary.items:,}",
        "ratings": f"{summary.ratings:,}, density {summary.density:.3%}",
        "scale": f"{summary.minimum:g} to {summary.maximum:g}, mean {summary.mean:.5g}",
        "training": f"{summary.train:,}",
        "test": f"{summary.test:,} ({share:.1%})",
        **{f"{entity} features": _features(entity, features) for entity, features in summary.features.items()},
        "columns": summary.columns,
        **({"timestamps": "order kept"} if summary.timestamps else {}),
        "file": f"{summary.path}, {summary.bytes / 1e6:,.1f} MB",
    }
    show_facts(facts)
    notes = [note for features in summary.features.values() for note in features["notes"]]
    for note in (*notes, *_hints(summary, duplicates, wanted)):
        say(f"dsgmcmc: {note}", file=sys.stderr)


def _hints(summary: Summary, duplicates: str, wanted: bool) -> Iterator[str]:
    """Say what repeated ratings, few ratings and many zeros mean; `wanted`: whether test ratings are."""
    if summary.duplicates:
        yield (
            f"{summary.duplicates:,} ratings are of a user and an item that have another: the {duplicates} of each "
            "counts (--duplicates)"
        )
    if summary.not_rated:
        yield (
            f"{summary.not_rated:.0%} of the ratings are 0, far more than of any level near it: 0 probably means "
            "not rated, and a model would learn it as the worst rating; --drop-zeros leaves these out"
        )
    if summary.ratings < FEW:
        yield (
            f"{summary.ratings} ratings are few: what a model says of them is mostly its prior, and intervals are wide "
            "(docs/small-data.md)"
        )
    if not summary.test and wanted:
        yield (
            "no ratings are held out for testing, so a run can neither measure its error nor end by its accuracy: "
            "--test-fraction 0.2 holds out a fifth"
        )


def _features(entity: str, features: dict[str, Any]) -> str:
    groups = ", ".join(f"{group} {number}" if number > 1 else group for group, number in features["groups"].items())
    without = f"; {features['unknown']:,} {entity}s have none" if features["unknown"] else ""
    cold = f"; {features['unrated']:,} {entity}s have features but no ratings" if features["unrated"] else ""
    return f"{sum(features['groups'].values()):,}: {groups}{without}{cold}"
