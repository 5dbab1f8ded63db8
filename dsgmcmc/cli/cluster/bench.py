"""``dsgmcmc bench``: the speed of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dsgmcmc.cli.options import JsonOption, number_of
from dsgmcmc.errors import InputError
from dsgmcmc.terminal import say, say_json, show_table

bench = typer.Typer(no_args_is_help=True, help="Measure kernels, noise, the ring, and how a cluster scales.")

FEWEST = 10_000  # ratings of a study: fewer say nothing of a machine
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
def cluster(
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FOLDER", help="New folder for the results, on a shared disk.")
    ],
    data: Annotated[
        Path | None, typer.Argument(metavar="[DATA.h5]", help="Ratings file; default synthetic ratings.")
    ] = None,
    time: Annotated[str, typer.Option(metavar="TIME", help="It ends within this time.")] = "30min",
    ratings: Annotated[
        str | None, typer.Option(metavar="N", help="Number of synthetic ratings.", show_default="2e7")
    ] = None,
    each: Annotated[
        str | None,
        typer.Option(
            metavar="N", help="Ratings for each process in weak scaling.", show_default="all, shared by all processes"
        ),
    ] = None,
    sampler: Annotated[str, typer.Option(help="Sampler.")] = "baoab",
    noise: Annotated[str, typer.Option(help="shared, by-user, by-item or both.")] = "shared",
    rank: Annotated[int, typer.Option("--rank", "-K", min=1, help="Latent dimensions.")] = 32,
) -> None:
    """Measure how an allocation scales, beside what `dsgmcmc plan` says: start it on all of its processes.

    On 1, 2, 4, ... of the processes: the same ratings (strong scaling), as many for each (weak scaling), and on several
    nodes more and more processes on each. Times by phase, bytes, memory, checkpoint and resumption are compared with
    the forecast from the machine's own constants, which are measured first.

    FOLDER gets scaling.html, scaling.json (no names of hosts, people or folders: to be sent to the project) and
    machine.toml for `dsgmcmc plan --machine`. What there is no time for is left out, and said so.

    \b
    Examples:
      launch/mpirun.sh -n 8 bench cluster --out scaling
      mpirun -n 128 dsgmcmc bench cluster --out scaling --ratings 1e8 --time 2h
      srun --mpi=pmix dsgmcmc bench cluster ratings.h5 --out scaling --rank 64
      dsgmcmc launch-script slurm --bench --nodes 4 --processes 32 --time 1:00:00 --out job.sbatch
    """
    from dsgmcmc.config.units import seconds_of
    from dsgmcmc.parallel import launch

    if data is not None and ratings is not None:
        raise InputError(f"--ratings {ratings}: {data} has its own, leave one of the two out")
    number = number_of("--ratings", ratings or "2e7", FEWEST)
    share = number_of("--each", each, FEWEST) if each else None
    seconds = seconds_of("--time", time)
    comm = launch.processes()
    from dsgmcmc.parallel.machine import seconds_since_start
    from dsgmcmc.runs.scaling.study import Study, Wanted

    settings = {"sampler": sampler, "noise": noise, "rank": rank, "save_draws": 0, "iterations": "700sweeps"}
    wanted = Wanted(settings, out, seconds - seconds_since_start(), data, number, share)
    launch.run_parallel(comm, lambda: Study(comm, wanted).run())


@bench.command()
def machine(
    out: Annotated[Path, typer.Argument(metavar="FILE.toml", help="Machine file to write, or to add to.")],
    sampler: Annotated[str, typer.Option(help="Samplers, separated by commas.")] = "baoab",
    noise: Annotated[str, typer.Option(help="shared, by-user, by-item or both.")] = "shared",
    rank: Annotated[str, typer.Option("--rank", "-K", help="Ranks, separated by commas.")] = "16,32,64",
    folder: Annotated[Path, typer.Option(help="Where runs will be written, to measure its disk.")] = Path(),
) -> None:
    """Measure the costs of sampling here, and write them to a file for `dsgmcmc plan --machine`.

    Start as many processes on one node as you would sample with: they share its caches, memory and links. Entries of
    the file for other samplers and ranks are kept. It takes about 20 seconds for each sampler and rank, of
    gibbs up to two minutes.

    \b
    Examples:
      mpirun -n 32 dsgmcmc bench machine node.toml
      mpirun -n 32 dsgmcmc bench machine node.toml --sampler gibbs,psgld --rank 32,64
    """
    from dsgmcmc.parallel import launch

    ranks = _numbers(rank, "--rank")
    comm = launch.processes()
    from dsgmcmc.cluster.constants import read_machine, write_machine
    from dsgmcmc.runs.calibrate import measure_machine

    def work() -> int:
        known = read_machine(out) if out.exists() else None
        measured = measure_machine(comm, sampler.split(","), noise, ranks, folder, known)
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
