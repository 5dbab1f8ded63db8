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
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.")],
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
