"""Tiny runs that several files of system tests make and compare."""

from pathlib import Path
from typing import Any

from mpi4py import MPI
from support import Running, digest, dsgmcmc, metrics, newest, options_of, sample

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

#: A longer run, which is stopped, killed or damaged on its way. So few ratings bear no larger step
#: for long.
LONG: dict[str, Any] = BASE | {"burn_in": 20, "thin": 10, "evaluate_every": 20, "step_size": 0.02}
FOREVER = 10_000_000


def command(
    data: Path, out: Path, processes: int | None = None, *more: str, **settings: Any
) -> tuple[str, ...]:
    """Command line of a run with `BASE` and `settings`, or with those of a run that is resumed."""
    options = options_of(BASE | settings)
    return dsgmcmc("sample", data, "--out", out, *options, *more, processes=processes)


def resuming(
    data: Path,
    out: Path,
    processes: int | None,
    *more: str,
    iterations: int = FOREVER,
    **settings: Any,
) -> tuple[str, ...]:
    """Command line that starts a run with `LONG` settings, or goes on with it."""
    return command(
        data, out, processes, "--resume", *more, **{**LONG, **settings, "iterations": iterations}
    )


def with_section(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings with those of the sampler in a section."""
    section = {"name": settings["sampler"]} | {
        k: v for k, v in settings.items() if k == "step_size"
    }
    return {k: v for k, v in settings.items() if k != "step_size"} | {"sampler": section}


def alone(data: Path, out: Path, **settings: Any) -> str:
    """Digest of the run of `command`, made in one go by this process."""
    assert sample(MPI.COMM_SELF, data, out, **with_section(BASE | settings)) == 0
    return digest(out)


def go_on(data: Path, out: Path, iterations: int, **settings: Any) -> int:
    """Start the run of `resuming`, or go on with it, in this process; the exit status."""
    return sample(
        Alone(),
        data,
        out,
        resume=True,
        **with_section(LONG | settings | {"iterations": iterations}),
    )


def expect_same(data: Path, out: Path, tmp_path: Path, **settings: Any) -> None:
    """Finish a run a little after where it is: nothing is left over, and it is the run that nothing
    interrupted.
    """
    iterations = newest(out) + 50
    assert go_on(data, out, iterations, **settings) == 0
    assert [path for path in out.rglob("*") if ".tmp-" in path.name or ".trash-" in path.name] == []
    assert go_on(data, tmp_path / "alone", iterations) == 0
    assert digest(out) == digest(tmp_path / "alone")


def wait_until_past(running: Running, out: Path, iteration: int) -> None:
    """Wait until there are metrics of an iteration after this one."""
    running.until(
        lambda: any(line["iteration"] > iteration for line in metrics(out)),
        f"past iteration {iteration}",
    )


def content(directory: Path) -> dict[str, bytes]:
    """Every file of a run by name, but for the lock."""
    files = [path for path in directory.rglob("*") if path.is_file() and path.name != "lock"]
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}
