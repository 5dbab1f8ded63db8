"""Tiny runs that several files of system tests make and compare."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mpi4py import MPI
from support import digest, dsgmcmc, newest, options_of, sample

from dsgmcmc.parallel.comm import Alone

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

#: A longer run, which is stopped, killed or damaged on its way. So few ratings bear no larger step for long.
LONG: dict[str, Any] = {"rank": 3, "grid": 5, "burn_in": 20, "thin": 10, "evaluate_every": 20, "save_draws": 3}
SAMPLER: dict[str, Any] = {"name": "psgld", "step_size": 0.02}
FOREVER = 10_000_000


def resuming(
    data: Path, out: Path, processes: int | None, *more: str, iterations: int = FOREVER, **settings: Any
) -> tuple[str, ...]:
    """Command line that starts a run with `LONG` settings, or goes on with it."""
    options = [*options_of({**LONG, **settings, "iterations": iterations}), "--sampler=psgld", "--step-size=0.02"]
    return dsgmcmc("sample", data, "--out", out, *options, "--resume", *more, processes=processes)


def go_on(data: Path, out: Path, iterations: int, **settings: Any) -> int:
    """Start or go on in this process; the exit status."""
    settings = {**LONG, **settings, "iterations": iterations, "sampler": SAMPLER}
    return sample(Alone(), data, out, resume=True, **settings)


def expect_same(data: Path, out: Path, tmp_path: Path, **settings: Any) -> None:
    """Finish a run a little after where it is: nothing is left over, and it is the run that nothing interrupted."""
    iterations = newest(out) + 50
    assert go_on(data, out, iterations, **settings) == 0
    assert [path for path in out.rglob("*") if ".tmp-" in path.name or ".trash-" in path.name] == []
    assert go_on(data, tmp_path / "alone", iterations) == 0
    assert digest(out) == digest(tmp_path / "alone")


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
    files = [path for path in directory.rglob("*") if path.is_file() and path.name != "lock"]
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}
