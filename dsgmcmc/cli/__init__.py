"""The commands of ``dsgmcmc``.

They parse options, and call other packages of dsgmcmc, which do the work.

`dsgmcmc.cli.app` registers the commands. This file defines options that several commands share.
Commands import heavy packages inside their functions, so that ``--help`` answers at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
