"""``dsgmcmc report``: an HTML page about a run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from dsgmcmc.errors import InputError, anew
from dsgmcmc.terminal import pass_on


@anew
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories; several are compared.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE.html", help="The page.", show_default="RUN/report.html of one run"),
    ] = None,
) -> None:
    """Write one HTML file with error, traces, convergence, calibration, residuals, times and configuration.

    The file is self-contained and needs no network.

    \b
    Examples:
      dsgmcmc report run
      dsgmcmc report run1 run2 -o comparison.html
    """
    from dsgmcmc.diagnostics.report import write_report

    if out is None:
        if len(runs) > 1:
            raise InputError("a report of several runs needs --out FILE.html")
        out = runs[0] / "report.html"
        if not runs[0].is_dir():
            raise InputError(f"{runs[0]} is not a run directory")
    elif not out.parent.is_dir():
        raise InputError(f"the folder {out.parent} does not exist")
    write_report(runs, out)
    pass_on([os.fsencode(f"{out}\n")])
