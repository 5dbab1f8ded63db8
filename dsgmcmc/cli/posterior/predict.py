"""``dsgmcmc predict``: predict new ratings, with their uncertainty."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from dsgmcmc.cli.options import (
    AtLeastOption,
    ClipOption,
    IntervalOption,
    OutOption,
    ProbabilitiesOption,
    RunArgument,
    Unknown,
)
from dsgmcmc.errors import retry_if_gone
from dsgmcmc.terminal import say_json


@retry_if_gone
def predict(
    run: RunArgument,
    pairs: Annotated[Path, typer.Argument(metavar="PAIRS", help="CSV or Parquet with users and items.")],
    out: OutOption = None,
    of_mean: Annotated[bool, typer.Option("--of-mean", help="Predict the expected rating, without noise.")] = False,
    interval: IntervalOption = 0.9,
    at_least: AtLeastOption = None,
    probabilities: ProbabilitiesOption = False,
    clip: ClipOption = True,
    unknown: Annotated[
        Unknown, typer.Option(help="Unknown users and items: refuse them, or predict them from the prior.")
    ] = "refuse",
    columns: Annotated[
        str | None,
        typer.Option(metavar="user=U,item=I", help="Names in the header, or positions from 1; detected by default."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a summary as JSON on stderr.")] = False,
) -> None:
    """Predict ratings: mean, sd and an interval of a new rating, noise included.

    PAIRS has original user and item names. Its rows and columns are kept
    in their order, and mean, sd and two quantiles of the mixture over the saved draws are added. If ratings have
    levels, such as stars, --at-least and --probabilities add their probabilities: those of an ordinal likelihood, or of
    Gaussian ratings rounded to the nearest level.

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
    named = parse_columns(columns, ROLES)
    done = predict_table(Run(run), pairs, out, options, unknown=unknown, columns=named)
    if as_json:
        say_json(done, indent=None, file=sys.stderr)
