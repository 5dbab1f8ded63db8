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
        typer.Option("--out", "-o", metavar="OUT", help="File; its suffix chooses the format: .h5, .parquet or .nc."),
    ],
    draws: Annotated[bool, typer.Option("--draws", help="Parquet: the saved draws instead of moments.")] = False,
    float16: Annotated[bool, typer.Option("--float16", help="HDF5: draws in half precision.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace OUT.")] = False,
) -> None:
    """Write a run to one file: HDF5 or Parquet with factors by original names, or netCDF for ArviZ.

    The netCDF has hyperparameters and predictions of test pairs, for `xarray.open_datatree` and ArviZ: the groups
    posterior, sample_stats, observed_data, constant_data, log_likelihood and posterior_predictive. Raw factors, which
    cannot be compared between chains, are in the other formats.

    \b
    Examples:
      dsgmcmc export run -o run.h5 --float16
      dsgmcmc export run -o factors.parquet
      dsgmcmc export run -o run.nc
    """
    from dsgmcmc.posterior.export import export as write
    from dsgmcmc.posterior.run import Run

    write(Run(run), out, draws=draws, float16=float16, force=force)
