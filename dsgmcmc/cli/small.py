"""The short commands ``export``, ``report``, ``verify`` and ``doctor``."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from dsgmcmc.cli.options import JsonOption, PathArgument, RunArgument, kind_of
from dsgmcmc.errors import EXIT_FAILURE, InputError, retry_if_gone
from dsgmcmc.terminal import pass_on, say, say_json


@retry_if_gone
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
    posterior, sample_stats, observed_data and constant_data. Raw factors, which cannot be compared between chains, are
    in Parquet.

    \b
    Examples:
      dsgmcmc export run -o factors.parquet
      dsgmcmc export run -o run.nc
    """
    from dsgmcmc.posterior.export import export as write
    from dsgmcmc.posterior.run import Run

    write(Run(run), out, draws=draws, force=force)


@retry_if_gone
def report(
    run: RunArgument,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE.html", help="The page.", show_default="RUN/report.html"),
    ] = None,
) -> None:
    """Write one HTML file with convergence, traces, errors, calibration, residuals, times and configuration.

    The file is self-contained and needs no network. Its figures need Matplotlib, which `pip install 'dsgmcmc[report]'`
    installs.

    \b
    Examples:
      dsgmcmc report run
      dsgmcmc report run -o page.html
    """
    from dsgmcmc.diagnostics.report import write_report

    if not run.is_dir():
        raise InputError(f"{run} is not a run directory")
    page = run / "report.html" if out is None else out
    if not page.parent.is_dir():
        raise InputError(f"the folder {page.parent} does not exist")
    write_report(run, page)
    pass_on([os.fsencode(f"{page}\n")])


@retry_if_gone
def verify(path: PathArgument, as_json: JsonOption = False) -> None:
    """Check all checksums and the structure, and print the digest of the content.

    The digest of a run covers its newest checkpoint, its saved draws and its posterior. It does not depend on the
    number of processes that wrote them, nor on how often the run was resumed.

    \b
    Examples:
      dsgmcmc verify run
      dsgmcmc verify run --json | jq -r .digest
    """
    kind = kind_of(path)
    if kind == "ratings file":
        from dsgmcmc.data.ratings import open_ratings

        with open_ratings(path) as ratings:
            ratings.verify()
            digest = ratings.digest
    else:
        from dsgmcmc.diagnostics.overview import audit
        from dsgmcmc.storage.rundir import RunDirectory

        digest = audit(RunDirectory(path))
    if as_json:
        say_json({"path": str(path), "kind": kind, "valid": True, "digest": digest}, indent=None)
    else:
        say(f"{path}: a valid {kind}, digest {digest}")


def doctor(
    launch: Annotated[
        bool, typer.Option("--launch/--no-launch", help="Whether to start MPI processes; login nodes may forbid it.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Check that this machine can sample, and say how to fix what is missing.

    Ends with status 1 if sampling cannot work. On a login node: dsgmcmc doctor --no-launch
    """
    from dsgmcmc.doctor import examine

    findings = list(examine(launch))
    problems = sum(finding.level == "error" for finding in findings)
    if as_json:
        say_json({"can_sample": not problems, "findings": [asdict(finding) for finding in findings]})
    else:
        for finding in findings:
            say(f"{finding.level:8} {finding.name:15} {finding.found}")
            if finding.advice:
                say(f"{'':24} -> {finding.advice}")
        say("Sampling can work here." if not problems else f"Sampling cannot work here: {problems} error(s).")
    raise typer.Exit(EXIT_FAILURE if problems else 0)
