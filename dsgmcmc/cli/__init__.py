"""Commands of ``dsgmcmc``, which `dsgmcmc.cli.app` registers. They handle options, and call other packages.

This file has the options that several commands share. Commands import heavy packages only in their functions.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
