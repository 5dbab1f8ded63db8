"""Options and arguments that several commands share, with the same meaning and help in all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from dsgmcmc.errors import InputError

#: Treatments of unknown users and items in `predict`, ranking rules of `recommend`, and criteria of `compare`.
Unknown = Literal["refuse", "prior"]
By = Literal["likely", "exposure", "mean", "ucb", "lcb", "thompson"]
Metric = Literal["log-probability", "log-density", "rmse", "ndcg"]

PathArgument = Annotated[Path, typer.Argument(metavar="PATH", help="Ratings file or run directory.")]
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.")]
OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out", "-o", metavar="OUT", help="CSV or Parquet file, by its suffix.", show_default="CSV to stdout"
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
IntervalOption = Annotated[
    float, typer.Option(help="Probability between the two quantiles: 0.9 gives q05 and q95.", show_default=True)
]
AtLeastOption = Annotated[
    float | None,
    typer.Option("--at-least", metavar="RATING", help="Also predict the probability of at least this rating."),
]
ProbabilitiesOption = Annotated[
    bool, typer.Option("--probabilities", help="Also predict the probability of each level of the ratings.")
]
ClipOption = Annotated[
    bool, typer.Option("--clip/--no-clip", help="Clip predicted ratings and quantiles to the range of the ratings.")
]
TopOption = Annotated[int, typer.Option("--top", "-n", min=1, help="Number of items per user.")]
ZOption = Annotated[
    float, typer.Option("--z", min=0, help="Number of standard deviations between the mean and the bound.")
]
DataOption = Annotated[
    Path | None,
    typer.Option(metavar="DATA.h5", help="The run's ratings file, if it was moved.", show_default="where it was"),
]
ByOption = Annotated[
    By,
    typer.Option(
        help="Rank by what the user will probably choose and like, by what they will choose alone, by the expected "
        "rating, its upper or lower confidence bound, or by Thompson sampling."
    ),
]
MatchingOption = Annotated[
    str | None,
    typer.Option(metavar="REGEX", help="With --items: only items whose line in FILE matches, such as 'Comedy|Drama'."),
]
CandidatesOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Recommend only these items, one name per line.")
]
ExcludeOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Never recommend these items, one name per line.")
]
ItemsOption = Annotated[
    Path | None,
    typer.Option(
        "--items", metavar="FILE", help="File with titles of items: movies.dat, u.item, movies.csv or any CSV."
    ),
]


def kind_of(path: Path) -> str:
    """Kind of a path: ``ratings file`` or ``run``; raises InputError for any other path."""
    if path.is_file():
        return "ratings file"
    if (path / "run.toml").exists():
        return "run"
    what = "has no run.toml" if path.is_dir() else "does not exist"
    raise InputError(f"{path} {what}: expected a ratings file or a run directory")
