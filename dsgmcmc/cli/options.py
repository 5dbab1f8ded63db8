"""Options and arguments that several commands share, so that they mean and say the same everywhere."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dsgmcmc.errors import InputError


class Unknown(StrEnum):
    """What is done with users and items that the run does not know."""

    refuse = "refuse"
    prior = "prior"
    nan = "nan"


class By(StrEnum):
    """What items are ranked by."""

    mean = "mean"
    ucb = "ucb"
    lcb = "lcb"
    thompson = "thompson"
    likely = "likely"


PathArgument = Annotated[Path, typer.Argument(metavar="PATH", help="Ratings file, run directory or snapshot.")]
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.")]
OutOption = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="OUT", help="CSV or Parquet, by the suffix.", show_default="CSV to stdout"),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
IntervalOption = Annotated[
    float, typer.Option(help="Probability between the two quantiles: 0.9 gives q05 and q95.", show_default=True)
]
AtLeastOption = Annotated[
    float | None,
    typer.Option("--at-least", metavar="RATING", help="Also the probability of a rating of at least so much."),
]
ProbabilitiesOption = Annotated[
    bool, typer.Option("--probabilities", help="Also the probability of every level that ratings have.")
]
TopOption = Annotated[int, typer.Option("--top", "-n", min=1, help="Items a user.")]
ZOption = Annotated[float, typer.Option("--z", min=0, help="Sds between the mean and a confidence bound.")]
DataOption = Annotated[
    Path | None,
    typer.Option(metavar="DATA.h5", help="The run's ratings file, if it was moved.", show_default="where it was"),
]
ByOption = Annotated[
    By,
    typer.Option(
        help="By expected rating, its upper or lower confidence bound, Thompson sampling, or the probability that the "
        "user rates the item and likes it."
    ),
]
MatchingOption = Annotated[
    str | None,
    typer.Option(metavar="REGEX", help="With --items: only items whose line there matches, such as 'Comedy|Drama'."),
]
CandidatesOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Recommend only these items, one name a line.")
]
ExcludeOption = Annotated[Path | None, typer.Option(metavar="FILE", help="Never recommend these items.")]
ItemsOption = Annotated[
    Path | None,
    typer.Option("--items", metavar="FILE", help="Names of items: movies.dat, u.item, movies.csv or any CSV."),
]


def kind_of(path: Path) -> str:
    """Which of the three a `PathArgument` is: ``ratings file``, ``run`` or ``snapshot``.

    Raises InputError if it is none of them.
    """
    if path.is_file():
        return "ratings file"
    if (path / "run.toml").exists():
        return "run"
    if (path / "manifest.json").exists():
        return "snapshot"
    what = "has neither run.toml nor manifest.json" if path.is_dir() else "does not exist"
    raise InputError(f"{path} {what}: expected a ratings file, a run directory or a snapshot")
