"""``dsgmcmc predict``: predict new ratings, with their uncertainty."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

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
from dsgmcmc.errors import EXIT_DONE, AgreedGoneError, anew
from dsgmcmc.parallel.comm import launched, run_parallel, world_comm
from dsgmcmc.terminal import say_json


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
        Unknown, typer.Option(help="Unknown users and items: refuse, predict from the prior, or leave empty.")
    ] = Unknown.refuse,
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
      mpirun -n 8 dsgmcmc predict run pairs.parquet -o predicted.parquet
    """
    from dsgmcmc.data.pairs import parse_pair_columns
    from dsgmcmc.parallel.comm import agree
    from dsgmcmc.posterior.predict import PredictOptions
    from dsgmcmc.posterior.predict_table import predict_table
    from dsgmcmc.posterior.run import Run

    options = PredictOptions(of_mean, interval, clip, at_least, probabilities)
    names = parse_pair_columns(columns)

    def tell(done: dict[str, Any]) -> None:
        if as_json:
            say_json(done, indent=None, file=sys.stderr)

    comm = world_comm() if launched() else None
    if comm is None:
        tell(anew(lambda: predict_table(Run(run), pairs, out, options, unknown=unknown.value, columns=names))())
        return

    @anew
    def work() -> int:
        opened = agree(comm, lambda: Run(run), "predict")
        if any(draws != opened.draws for draws in comm.allgather(opened.draws)):
            raise AgreedGoneError(f"predict: {run} got new draws while the processes opened it. Try again")
        done = predict_table(opened, pairs, out, options, unknown=unknown.value, columns=names, comm=comm)
        if comm.rank == 0:
            tell(done)
        return EXIT_DONE

    run_parallel(comm, work)
