"""``dsgmcmc bench``: the speed of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dsgmcmc.cli.options import JsonOption
from dsgmcmc.errors import InputError
from dsgmcmc.terminal import say, say_json, show_table

bench = typer.Typer(no_args_is_help=True, help="Measure kernels, noise, the ring and whole runs on this machine.")

RepeatsOption = Annotated[int, typer.Option(min=1, help="Repetitions; the median and quartiles are shown.")]


@bench.command()
def kernels(
    rank: Annotated[str, typer.Option("--rank", "-K", help="Ranks, separated by commas.")] = "10,16,32,64,128",
    repeats: RepeatsOption = 30,
    as_json: JsonOption = False,
) -> None:
    """Measure the gradient kernel and Gibbs sampling's sums of outer products on one core, for several ranks.

    For the latter also the operations per second, next to the peak of the core.
    """
    from dsgmcmc.cluster.bench import kernels as measure

    _show("kernels, one core", measure(_numbers(rank, "--rank"), repeats), as_json)


@bench.command()
def noise(repeats: RepeatsOption = 50, as_json: JsonOption = False) -> None:
    """Measure the nanoseconds per normal of the counter-based generator and of NumPy's."""
    from dsgmcmc.cluster.bench import noise as measure

    _show("noise, one core", measure(repeats), as_json)


@bench.command()
def ring(
    sizes: Annotated[str, typer.Option(help="Bytes, separated by commas.")] = "1000,10000,100000,1000000,10000000",
    repeats: RepeatsOption = 50,
    as_json: JsonOption = False,
) -> None:
    """Measure block exchange by message and by shared memory, and the ordered sum; start it under mpirun.

    \b
    Example:
      mpirun -n 4 dsgmcmc bench ring --sizes 1000,1000000
    """
    from dsgmcmc.parallel import launch

    wanted = _numbers(sizes, "--sizes")
    comm = launch.processes()
    from dsgmcmc.cluster.bench import ring as measure

    def work() -> int:
        lines = measure(comm, wanted, repeats)
        if comm.rank == 0:
            _show(f"ring of {comm.size} process(es)", lines, as_json)
        return 0

    launch.run_parallel(comm, work)


@bench.command()
def sample(
    data: Annotated[
        Path | None,
        typer.Argument(metavar="[DATA.h5]", help="Ratings file; default synthetic, growing with processes."),
    ] = None,
    processes: Annotated[str, typer.Option("--processes", "-n", help="Numbers of processes.")] = "1,2",
    sampler: Annotated[str, typer.Option(help="Sampler.")] = "baoab",
    rank: Annotated[int, typer.Option("--rank", "-K", min=1, help="Latent dimensions.")] = 32,
    grid: Annotated[int, typer.Option(min=1, help="Blocks per side, the same for all runs.")] = 8,
    iterations: Annotated[str, typer.Option(help="Length of a run.")] = "200sweeps",
    repeats: RepeatsOption = 3,
    as_json: JsonOption = False,
) -> None:
    """Time runs and their phases on several numbers of processes, each started by mpirun.

    With DATA.h5 all runs have the same data (strong scaling); without it there are a million synthetic ratings per
    process (weak scaling). Efficiency is ratings per second and process, relative to the first line.

    \b
    Examples:
      dsgmcmc bench sample ml-1m.h5 -n 1,2,4
      dsgmcmc bench sample -n 1,2,4,8 --sampler psgld --json
    """
    from dsgmcmc.cluster.bench import scaling

    options = ["--sampler", sampler, "--rank", str(rank), "--grid", str(grid), "--iterations", iterations]
    title = f"{sampler}, K = {rank}, grid {grid}: {'strong' if data else 'weak'} scaling"
    _show(title, scaling(data, _numbers(processes, "-n"), options, repeats), as_json)


@bench.command()
def machine(
    out: Annotated[Path, typer.Argument(metavar="FILE.toml", help="Machine file to write, or to add to.")],
    sampler: Annotated[str, typer.Option(help="Sampler.")] = "baoab",
    noise: Annotated[str, typer.Option(help="shared, by-user, by-item or both.")] = "shared",
    rank: Annotated[str, typer.Option("--rank", "-K", help="Ranks, separated by commas.")] = "16,32,64",
    folder: Annotated[Path, typer.Option(help="Where runs will be written, to measure its disk.")] = Path(),
) -> None:
    """Measure the costs of sampling here, and write them to a file for `dsgmcmc plan --machine`.

    Start as many processes on one node as you would sample with: they share its caches, memory and links. Entries of
    the file for other samplers and ranks are kept. It takes about a minute for each rank.

    \b
    Examples:
      mpirun -n 32 dsgmcmc bench machine node.toml
      mpirun -n 32 dsgmcmc bench machine node.toml --sampler gibbs --rank 32,64
    """
    from dsgmcmc.parallel import launch

    ranks = _numbers(rank, "--rank")
    comm = launch.processes()
    from dsgmcmc.cluster.constants import read_machine, write_machine
    from dsgmcmc.runs.calibrate import measure_machine

    def work() -> int:
        measured = measure_machine(comm, sampler, noise, ranks, folder, read_machine(out) if out.exists() else None)
        if measured:
            write_machine(out, measured)
            say(f"{out}: {measured.about} on {measured.cpu}")
        return 0

    launch.run_parallel(comm, work)


def _numbers(text: str, option: str) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise InputError(f"{option} {text}: expected positive numbers separated by commas, such as 1,2,4")
    return numbers


def _show(title: str, lines: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        say_json({"title": title, "lines": lines})
        return
    headings = [name.replace("_", " ") for name in lines[0]]
    show_table(headings, ([_text(value) for value in line.values()] for line in lines), title)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return " - ".join(map(_text, value))
    if isinstance(value, float):
        return f"{value:.3g}" if value < 100 else f"{value:.0f}"
    return "" if value is None else str(value)
