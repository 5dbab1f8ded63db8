"""``dsgmcmc doctor``: whether this machine can sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsgmcmc.cli.options import JsonOption
from dsgmcmc.errors import EXIT_FAILURE
from dsgmcmc.terminal import say, say_json

if TYPE_CHECKING:
    from dsgmcmc.doctor import Finding


def doctor(
    launch: Annotated[
        bool, typer.Option("--launch/--no-launch", help="Whether to start MPI processes; login nodes may forbid it.")
    ] = True,
    out: Annotated[
        Path, typer.Option(help="Under a launcher: folder for runs, to check that all processes share it.")
    ] = Path(),
    as_json: JsonOption = False,
) -> None:
    """Check that this machine can sample, and say how to fix what is missing.

    Ends with status 1 if sampling cannot work. On a login node, and on all hosts of a job:

        dsgmcmc doctor --no-launch

        mpirun -n 64 dsgmcmc doctor --out /scratch/me/runs
    """
    from dsgmcmc.doctor import compare, examine
    from dsgmcmc.parallel.comm import launched, run_parallel, world_comm

    if not (launch and launched()):
        raise typer.Exit(_tell(list(examine(launch)), as_json))
    comm = world_comm()

    def work() -> int:
        findings = compare(comm, out)
        return int(comm.bcast(_tell(findings, as_json) if comm.rank == 0 else None))

    run_parallel(comm, work)


def _tell(findings: Sequence[Finding], as_json: bool) -> int:
    """Print findings; return the exit status."""
    problems = sum(finding.level == "error" for finding in findings)
    if as_json:
        say_json({"can_sample": not problems, "findings": [asdict(finding) for finding in findings]})
    else:
        for finding in findings:
            say(f"{finding.level:8} {finding.name:15} {finding.found}")
            if finding.advice:
                say(f"{'':24} -> {finding.advice}")
        say("Sampling can work here." if not problems else f"Sampling cannot work here: {problems} error(s).")
    return EXIT_FAILURE if problems else 0
