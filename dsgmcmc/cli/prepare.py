"""Commands that make a ratings file: ``prepare``, and ``fetch``, which downloads MovieLens."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsgmcmc.cli.options import options_in, takes_settings
from dsgmcmc.input.movielens import DATA_SETS, LICENCE
from dsgmcmc.input.movielens import fetch as fetch_data
from dsgmcmc.terminal import console, pass_on, plain, say, say_json, show_facts

if TYPE_CHECKING:
    from dsgmcmc.features.encoders import FeaturesReport
    from dsgmcmc.prepare.settings import PrepareSettings
    from dsgmcmc.prepare.summary import Summary

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


@takes_settings(options_in("dsgmcmc.prepare.settings", "PrepareSettings"))
def prepare(
    ratings: Annotated[
        list[str],
        typer.Argument(metavar="RATINGS...", help="Files with ratings.", show_default=False),
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT.h5", help="Ratings file to write.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    **options: object,
) -> None:
    """Make a ratings file from text, JSON, Parquet, matrices or files of other tools.

    The formats, in docs/files.md, are detected from the content of a file. Read any other format
    into a data frame in Python, and pass it to BPMF or write it as Parquet.

    \b
    Examples:
      dsgmcmc prepare ml-1m/ratings.dat ml-1m.h5
      dsgmcmc prepare ml-25m/ratings.csv ml-25m.h5 --split temporal
      dsgmcmc prepare parts/*.parquet all.h5 --columns user=buyer,item=sku,rating=stars
      dsgmcmc prepare u1.base u1.h5 --test u1.test
      dsgmcmc prepare ratings.dat ml-1m.h5 --user-features users.dat --item-features movies.dat
    """
    from rich.text import Text

    from dsgmcmc.prepare.prepare import make_ratings_file
    from dsgmcmc.prepare.settings import PrepareSettings

    settings = PrepareSettings.from_settings(options)
    with console(stderr=True).status("starting") as status:
        summary = make_ratings_file(
            ratings, out, settings, report=lambda stage: status.update(Text(plain(stage)))
        )
    if as_json:
        say_json(summary._asdict(), indent=None)
    else:
        _show(summary, settings)


def _show(summary: Summary, settings: PrepareSettings) -> None:
    """Print a summary, and notes on standard error."""
    from dsgmcmc.ratings.description import describe_ratings
    from dsgmcmc.ratings.file import Ratings

    with Ratings(summary.path) as written:
        facts: dict[str, str | list[str]] = {**describe_ratings(written)}
    if summary.missing:
        facts["left out"] = _left_out(summary.missing, settings.missing)
    for entity, features in summary.features.items():
        if not features["groups"]:
            continue
        facts[f"{entity} features"] = _features(entity, features)
    others = [f"{path}: {columns}" for path, columns in summary.other_columns.items()]
    facts["columns"] = [summary.columns, *others]
    if summary.dates:
        facts["dates"] = summary.dates
    facts["file"] = summary.path
    show_facts(facts)
    for note in _notes(summary, settings):
        say(f"dsgmcmc: {note}", file=sys.stderr)


def _left_out(number: int, missing: str | None) -> str:
    """Say how many ratings were left out, and by which values."""
    from dsgmcmc.input.sources.numbers import missing_words

    if missing is None:
        return f"{number:,} ratings of weight 0"
    values = [value.strip() for value in missing.split(",")]
    shown = ", ".join(value or "an empty field" for value in values)
    if missing_words(values):
        return f"{number:,} lines or cells with {shown}"
    return f"{number:,} ratings that are {shown}"


def _notes(summary: Summary, settings: PrepareSettings) -> list[str]:
    """List what the user should know about a ratings file."""
    notes = [note for features in summary.features.values() for note in features["notes"]]
    if summary.duplicates:
        used = f"the {settings.of_repeated} rating by {summary.order} is used"
        if settings.of_repeated == "mean":
            used = "their mean is used"
        notes.append(
            f"{summary.duplicates:,} ratings repeat the user and item of another rating: {used}"
            " (--duplicates)"
        )
    if summary.replicates and settings.duplicates is None:
        notes.append(
            f"{summary.replicates:,} ratings are replicates: pairs were measured more than once,"
            " and differ; every measurement counts (--duplicates last uses one for each pair)"
        )
    if summary.ratings < FEW_RATINGS:
        notes.append(
            f"{summary.ratings} ratings are few: the prior dominates predictions, and intervals are"
            " wide (docs/check-a-run.md)"
        )
    if not summary.test and settings.test_fraction != 0:
        notes.append(
            "no ratings are held out for testing, so a run can neither measure its error nor end at"
            " a target accuracy: --test-fraction 0.2 holds out a fifth"
        )
    if summary.holes:
        notes.append(summary.holes)
    notes += [f"warning: {doubt}" for doubt in summary.doubts]
    return notes


def _features(entity: str, features: FeaturesReport) -> str:
    """Describe the features of users or items: groups, with their kinds and sizes."""
    kinds = {column.partition("=")[0]: kind for column, kind in features["kinds"].items()}
    groups = []
    others = "flag" if kinds else "unchanged"  # flags that share a group; the columns of a matrix
    for group, size in features["groups"].items():
        if group in features["groups_of_times"]:
            continue
        kind = kinds.get(group, others)
        groups.append(f"{group} ({kind})" if size == 1 else f"{group} ({kind}, {size:,})")
    shown = groups[:_MOST_GROUPS]
    if len(groups) > _MOST_GROUPS:
        shown.append(f"... ({len(groups):,} groups)")
    shown += [f"{column} (time: {functions})" for column, functions in features["times"].items()]
    text = f"{sum(features['groups'].values()):,}: {', '.join(shown)}"
    if features["parts"]:
        text += f"; {', '.join(features['parts'])} from names (--no-part-features leaves them out)"
    if features["unknown"]:
        text += f"; {features['unknown']:,} {entity}s have none"
    return text
