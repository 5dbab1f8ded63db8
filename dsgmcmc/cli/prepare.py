"""Commands that make a ratings file: ``prepare``, and ``fetch``, which downloads MovieLens."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dsgmcmc.data.movielens import DATA_SETS, LICENCE
from dsgmcmc.data.movielens import fetch as fetch_data
from dsgmcmc.terminal import console, pass_on, plain, say, say_json, show_facts

if TYPE_CHECKING:
    from dsgmcmc.data.features import FeaturesReport
    from dsgmcmc.data.prepare import Summary

FEW_RATINGS = 50  # with fewer ratings, the prior dominates predictions
_MOST_GROUPS = 8  # groups of features that are shown

DataSet = StrEnum("DataSet", {name: name for name in DATA_SETS})  # type: ignore[misc]


def fetch(
    name: Annotated[DataSet, typer.Argument(help="Data set.", show_default=False)],
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Parent of the data set's folder.")
    ] = Path("downloads"),
) -> None:
    """Download a MovieLens data set, check it and unpack it, unless it exists already.

    The command prints the path of the file with the ratings, which `dsgmcmc prepare` reads.
    """
    from rich.progress import Progress

    screen = console(stderr=True)
    with Progress(console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task(f"downloading {name.value}", total=None)

        def show_progress(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total or None)

        ratings = fetch_data(name.value, out, show_progress)
    say(LICENCE.format(folder=ratings.parent), file=sys.stderr)
    pass_on([os.fsencode(f"{ratings}\n")])


def prepare(
    ratings: Annotated[
        list[str],
        typer.Argument(metavar="RATINGS...", help="Files with ratings.", show_default=False),
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT.h5", help="Ratings file to write.")],
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="user=U,item=I,rating=R,timestamp=T",
            help=(
                "Columns that are not detected, by name in the header or by position from 1, e.g."
                " item=joke. With rating=none every line is a click."
            ),
        ),
    ] = None,
    test_fraction: Annotated[
        float | None,
        typer.Option(help="Fraction of the ratings to hold out for testing.", show_default="0.1"),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            min=0, max=2**63 - 1, help="Seed for the split, and for the order of rows and columns."
        ),
    ] = 0,
    split: Annotated[
        Literal["random", "temporal"],
        typer.Option(help="Test ratings: drawn at random, or the latest by timestamp."),
    ] = "random",
    test: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="File with the test ratings, instead of a split."),
    ] = None,
    timestamps: Annotated[
        bool,
        typer.Option(
            "--timestamps", help="Keep the temporal order of ratings, for `sample --time-levels`."
        ),
    ] = False,
    duplicates: Annotated[
        Literal["error", "first", "last", "mean"],
        typer.Option(
            help=(
                "Rating to use if a user rated an item more than once: the first or last by"
                " timestamp (or line), or the mean; error: refuse such ratings."
            )
        ),
    ] = "last",
    matrix: Annotated[
        bool,
        typer.Option(
            "--matrix",
            help=(
                "The files are matrices: a row a user, a column an item. Cells that are empty, NaN,"
                " NA, N/A, null or a dot are not rated. The first column, or --columns user=NAME,"
                " names users; the header names items."
            ),
        ),
    ] = False,
    missing: Annotated[
        str | None,
        typer.Option(
            metavar="VALUE,...",
            help=(
                "Values that mean not rated: such ratings are left out. A word, or '' for"
                " an empty field, also leaves out lines without a user or an item."
            ),
        ),
    ] = None,
    user_features: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=(
                "Features of users: text with a header, JSON, Parquet, or a matrix. Text becomes"
                " categories, text with separators becomes lists, and numbers are standardised."
            ),
        ),
    ] = None,
    item_features: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Features of items.")
    ] = None,
    feature_kinds: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN=KIND,...",
            help=(
                "Kinds of columns that are not detected: number, category, list, year, flag, skip."
            ),
        ),
    ] = None,
    separator: Annotated[str, typer.Option(help="Separator between the values of a list.")] = "|",
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Memory limit, e.g. 2GB.",
            show_default="60 % of the memory of the machine, or of the cgroup's limit",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace OUT.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Make a ratings file from text, JSON, Parquet, matrices or files of other tools.

    The formats, in docs/files.md, are detected from the content of a file. Read any other format
    into a data frame in Python, and pass it to BPMF or write it as Parquet. A file of features
    has the names in the column of --columns, in a column user (or item), or in its first column.

    \b
    Examples:
      dsgmcmc prepare ml-1m/ratings.dat ml-1m.h5
      dsgmcmc prepare ml-25m/ratings.csv ml-25m.h5 --split temporal
      dsgmcmc prepare parts/*.parquet all.h5 --columns user=buyer,item=sku,rating=stars
      dsgmcmc prepare u1.base u1.h5 --test u1.test
      dsgmcmc prepare ratings.dat ml-1m.h5 --user-features users.dat --item-features movies.dat
    """
    from rich.text import Text

    from dsgmcmc.data.descriptions import describe
    from dsgmcmc.data.prepare import prepare_ratings
    from dsgmcmc.data.session import parse_bytes

    described = describe({"user": user_features, "item": item_features}, feature_kinds, separator)
    with console(stderr=True).status("starting") as status:
        summary = prepare_ratings(
            ratings,
            out,
            columns=columns,
            test_fraction=test_fraction,
            seed=seed,
            split=split,
            test=test,
            timestamps=timestamps,
            duplicates=duplicates,
            matrix=matrix,
            missing=missing,
            described=described,
            memory=None if memory is None else parse_bytes(memory),
            force=force,
            report=lambda stage: status.update(Text(plain(stage))),
        )
    if as_json:
        say_json(summary._asdict(), indent=None)
    else:
        _show(summary, duplicates, test_fraction != 0, missing)


def _show(summary: Summary, duplicates: str, asked_for_test: bool, missing: str | None) -> None:
    """Print a summary, and notes on standard error.

    Missing test ratings are noted only if `asked_for_test`.
    """
    from dsgmcmc.data.ratings import Ratings

    with Ratings(summary.path) as written:
        facts: dict[str, str | list[str]] = {**written.describe()}
    if summary.missing:
        facts["left out"] = _left_out(summary.missing, missing or "")
    for entity, features in summary.features.items():
        facts[f"{entity} features"] = _features(entity, features)
    others = [f"{path}: {columns}" for path, columns in summary.other_columns.items()]
    facts["columns"] = [summary.columns, *others]
    facts["file"] = summary.path
    show_facts(facts)
    for note in _notes(summary, duplicates, asked_for_test):
        say(f"dsgmcmc: {note}", file=sys.stderr)


def _left_out(number: int, missing: str) -> str:
    """Say how many ratings were left out, and by which values."""
    from dsgmcmc.data.words import missing_words

    values = [value.strip() for value in missing.split(",")]
    shown = ", ".join(value or "an empty field" for value in values)
    if missing_words(values):
        return f"{number:,} lines with {shown}"
    return f"{number:,} ratings that are {shown}"


def _notes(summary: Summary, duplicates: str, asked_for_test: bool) -> list[str]:
    """List what the user should know about a ratings file."""
    notes = [note for features in summary.features.values() for note in features["notes"]]
    if summary.duplicates:
        used = f"the {duplicates} rating by {summary.order} is used"
        if duplicates == "mean":
            used = "their mean is used"
        notes.append(
            f"{summary.duplicates:,} ratings repeat the user and item of another rating: {used}"
            " (--duplicates)"
        )
    if summary.ratings < FEW_RATINGS:
        notes.append(
            f"{summary.ratings} ratings are few: the prior dominates predictions, and intervals are"
            " wide (docs/check-a-run.md)"
        )
    if not summary.test and asked_for_test:
        notes.append(
            "no ratings are held out for testing, so a run can neither measure its error nor end at"
            " a target accuracy: --test-fraction 0.2 holds out a fifth"
        )
    notes += [f"warning: {doubt}" for doubt in summary.doubts]
    return notes


def _features(entity: str, features: FeaturesReport) -> str:
    """Describe the features of users or items: groups, with their kinds and sizes."""
    kinds = {column.partition("=")[0]: kind for column, kind in features["kinds"].items()}
    groups = []
    others = "flag" if kinds else "unchanged"  # flags that share a group; the columns of a matrix
    for group, size in features["groups"].items():
        kind = kinds.get(group, others)
        groups.append(f"{group} ({kind})" if size == 1 else f"{group} ({kind}, {size:,})")
    shown = groups[:_MOST_GROUPS]
    if len(groups) > _MOST_GROUPS:
        shown.append(f"... ({len(groups):,} groups)")
    text = f"{sum(features['groups'].values()):,}: {', '.join(shown)}"
    if features["unknown"]:
        text += f"; {features['unknown']:,} {entity}s have none"
    return text
