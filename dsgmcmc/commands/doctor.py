"""``dsgmcmc doctor``: whether sampling can work here."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from dsgmcmc.errors import EXIT_FAILURE

COLOURS = {"ok": typer.colors.GREEN, "warning": typer.colors.YELLOW, "error": typer.colors.RED}


def doctor(
    launch: Annotated[
        bool, typer.Option("--launch/--no-launch", help="Whether to start MPI processes; login nodes may forbid it.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Look at what sampling needs on this machine, and say what to do about what is missing.

    Ends with status 1 if sampling cannot work. On a login node:

        dsgmcmc doctor --no-launch
    """
    from dsgmcmc.doctor import examine

    findings = examine(launch)
    problems = sum(finding.level == "error" for finding in findings)
    if as_json:
        print(json.dumps({"can_sample": not problems, "findings": [asdict(finding) for finding in findings]}, indent=1))
    else:
        for finding in findings:
            level = typer.style(f"{finding.level:8}", fg=COLOURS[finding.level])
            typer.echo(f"{level} {finding.name:13} {finding.found}")
            if finding.advice:
                typer.echo(f"{'':22} -> {finding.advice}")
        typer.echo("Sampling can work here." if not problems else f"Sampling cannot work here: {problems} error(s).")
    raise typer.Exit(EXIT_FAILURE if problems else 0)
