"""Tiny runs that several files of system tests make and compare."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mpi4py import MPI
from support import digest, dsgmcmc, options_of, sample

GRID = 5  # not divisible by 2, 3 or 4
BURN_IN = 6  # the state at its end is kept: a chain that diverges goes back to it
BASE: dict[str, Any] = {
    "sampler": "psgld",
    "rank": 3,
    "grid": GRID,
    "burn_in": BURN_IN,
    "thin": 3,
    "evaluate_every": 4,
    "save_draws": 3,
}


def command(data: Path, out: Path, processes: int | None = None, *more: str, **settings: Any) -> tuple[str, ...]:
    """Command line of a run with `BASE` and `settings`, or with those of a run that is resumed."""
    options = options_of({**BASE, **settings})
    return dsgmcmc("sample", data, "--out", out, *options, *more, processes=processes)


def alone(data: Path, out: Path, **settings: Any) -> str:
    """Digest of the same run, made in one go by this process."""
    settings = {**BASE, **settings}
    section = {"name": settings.pop("sampler")}
    if "step_size" in settings:
        section["step_size"] = settings.pop("step_size")
    settings["sampler"] = section
    assert sample(MPI.COMM_SELF, data, out, **settings) == 0
    return digest(out)


def content(directory: Path) -> dict[str, bytes]:
    """Every file of a run by name, but for the lock."""
    files = [path for path in directory.rglob("*") if path.is_file()]
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}
