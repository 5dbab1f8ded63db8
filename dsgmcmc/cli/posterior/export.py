"""``dsgmcmc export``: write a run for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsgmcmc.cli.options import RunArgument
from dsgmcmc.errors import anew


@anew
def export(
    run: RunArgument,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="OUT", help="File; its suffix chooses the format: .parquet or .nc."),
    ],
    draws: Annotated[bool, typer.Option("--draws", help="Parquet: the saved draws instead of moments.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace OUT.")] = False,
) -> None:
    """Write a run to one file: Parquet with factors by original names, or netCDF for ArviZ.

    The netCDF has hyperparameters and predictions of test pairs, for `xarray.open_datatree` and ArviZ: the groups
    posterior, sample_stats, observed_data, constant_data, log_likelihood and posterior_predictive. Raw factors, which
    cannot be compared between chains, are in Parquet.

    \b
    Examples:
      dsgmcmc export run -o factors.parquet
      dsgmcmc export run -o run.nc
    """
    from dsgmcmc.posterior.export import export as write
    from dsgmcmc.posterior.run import Run

    write(Run(run), out, draws=draws, force=force)
