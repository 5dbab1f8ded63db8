"""``dsgmcmc plan``: an estimate of what a run needs on a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsgmcmc.cli.options import JsonOption, number_of
from dsgmcmc.errors import InputError
from dsgmcmc.terminal import say, say_json, show_table

if TYPE_CHECKING:
    from dsgmcmc.data.ratings import Ratings
    from dsgmcmc.runs.advice import Curve
    from dsgmcmc.runs.forecast import Forecast

UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def plan(
    data: Annotated[
        Path | None, typer.Argument(metavar="[DATA.h5]", help="Ratings file; or give --users, --items and --ratings.")
    ] = None,
    users: Annotated[str | None, typer.Option(metavar="N", help="Users, such as 480189 or 1e8.")] = None,
    items: Annotated[str | None, typer.Option(metavar="N", help="Items.")] = None,
    ratings: Annotated[str | None, typer.Option(metavar="N", help="Training ratings.")] = None,
    test: Annotated[str, typer.Option(metavar="N", help="Test ratings.")] = "0",
    rank: Annotated[int, typer.Option("--rank", "-K", help="Latent dimensions.")] = 32,
    sampler: Annotated[str | None, typer.Option(help="Sampler.", show_default="that of sample")] = None,
    noise: Annotated[str, typer.Option(help="shared, by-user, by-item or both.")] = "shared",
    grid: Annotated[int | None, typer.Option(help="Blocks per side.", show_default="the best")] = None,
    assign: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Any setting, e.g. save_draws=200.")
    ] = None,
    nodes: Annotated[int, typer.Option(min=1, max=100_000, help="Nodes.")] = 1,
    processes: Annotated[int | None, typer.Option(min=1, help="Processes per node.", show_default="the best")] = None,
    cores: Annotated[int, typer.Option(min=1, max=4096, help="Cores per node.")] = 32,
    memory: Annotated[str, typer.Option(metavar="SIZE", help="Memory per node.")] = "128GB",
    bandwidth: Annotated[str, typer.Option(metavar="SIZE", help="Bandwidth of a node's link, per second.")] = "12.5GB",
    latency: Annotated[float, typer.Option(metavar="SECONDS", help="Latency of a message between nodes.")] = 2e-6,
    overlap: Annotated[
        float, typer.Option(min=0, max=1, help="Fraction of a message that is sent while processes compute.")
    ] = 1.0,
    disk: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="Bytes that all nodes together write per second.", show_default="as measured"
        ),
    ] = None,
    mtbf: Annotated[str, typer.Option(metavar="TIME", help="Mean time between failures of a node.")] = "1000d",
    most: Annotated[int, typer.Option(min=1, max=1 << 20, help="Largest number of processes to try.")] = 1024,
    machine: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.toml", help="Written by `dsgmcmc bench machine`.", show_default="built-in constants"
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate time, memory and traffic of a run on a cluster, its best grid, and how far it scales.

    Only the sizes of the data are read, and no MPI is needed. Times are those of sweeps; draws, evaluation and
    checkpoints take extra time.

    \b
    Examples:
      dsgmcmc plan --users 480189 --items 17770 --ratings 1e8 --nodes 4 --cores 32
      dsgmcmc plan ml-20m.h5 --rank 64 --nodes 2 --processes 16 --grid 64
      dsgmcmc plan --users 1e8 --items 1e6 --ratings 1e10 --nodes 64 --memory 256GB --machine node.toml --json
    """
    from dsgmcmc.cluster.constants import builtin, read_machine
    from dsgmcmc.config.layers import Layers, build
    from dsgmcmc.config.units import seconds_of
    from dsgmcmc.data.session import parse_bytes
    from dsgmcmc.runs.advice import Node, checkpoint_interval, choose, curve

    sizes = _sizes(data, users, items, ratings, test)
    if not 0 <= latency < 10:
        raise InputError(f"--latency {latency}: expected seconds, such as 2e-6")
    node = Node(cores, parse_bytes(memory), _some("--bandwidth", bandwidth), latency, overlap)
    given: dict[str, Any] = {"rank": rank, "noise": noise, "iterations": "700sweeps"}
    if sampler is not None:
        given["sampler"] = {"name": sampler}
    asked = build(*Layers(given | ({"grid": grid} if grid else {}), None, assign or ()).read())
    known = read_machine(machine) if machine else builtin()
    each, chosen = choose(asked, sizes, known, node, nodes, processes)
    growing = curve(asked, sizes, known, node, each, most)
    writing = chosen.checkpoint / (_some("--disk", disk) if disk else known.disk.bandwidth)
    failures = seconds_of("--mtbf", mtbf) / nodes
    estimate = {
        "machine": {"file": str(machine) if machine else "built-in", "cpu": known.cpu, "about": known.about},
        "data": {"rows": sizes.n_rows, "columns": sizes.n_cols, "ratings": sizes.nnz, "test_ratings": sizes.nnz_test},
        "nodes": nodes,
        "processes_per_node": each,
        **chosen.table(),
        "efficiency": growing.efficiency(chosen),
        "checkpoint_seconds": writing,
        "checkpoint_every": checkpoint_interval(writing, failures),
        "scales_to": growing.last,
        "because": growing.reason,
        "curve": [{**one.table(), "efficiency": growing.efficiency(one)} for one in growing.forecasts],
    }
    if as_json:
        say_json(estimate)
    else:
        _show(estimate, chosen, growing)


def _sizes(data: Path | None, users: str | None, items: str | None, ratings: str | None, test: str) -> Ratings:
    """Sizes of a ratings file, or those that were given."""
    from dsgmcmc.data.ratings import open_ratings
    from dsgmcmc.runs.forecast import Sizes

    given = {"--users": users, "--items": items, "--ratings": ratings}
    if data is not None:
        if any(given.values()):
            raise InputError(f"{data} says how many users, items and ratings there are: leave out {', '.join(given)}")
        return open_ratings(data)
    missing = [option for option, value in given.items() if value is None]
    if missing:
        raise InputError(f"give a ratings file, or {' and '.join(missing)}")
    i, j, n = (number_of(option, str(value)) for option, value in given.items())
    if not max(i, j) <= n <= i * j:
        raise InputError(f"{n:,} ratings of {i:,} users and {j:,} items: expected {max(i, j):,} to {i * j:,}")
    return Sizes(i, j, n, number_of("--test", test, 0))


def _some(option: str, text: str) -> float:
    from dsgmcmc.data.session import parse_bytes

    size = parse_bytes(text)
    if size < 1:
        raise InputError(f"{option} {text}: expected at least 1 byte")
    return size


#: Parts of the seconds of a sweep, by their names in `dsgmcmc.runs.forecast.Forecast`.
PARTS = {
    "ratings": "gradients or conditionals",
    "visits": "rows that meet column blocks",
    "updates": "updates of rows",
    "calls": "calls around the kernels",
    "differences": "waiting: cells differ",
    "exchange": "waiting: exchange",
    "sums": "ordered sums",
}


def _show(estimate: dict[str, Any], chosen: Forecast, growing: Curve) -> None:
    """Print the forecast for people."""
    data, machine = estimate["data"], estimate["machine"]
    seconds, per_node = chosen.seconds, estimate["processes_per_node"] * chosen.memory_per_process
    rows = [
        ("data", f"{data['rows']:,} x {data['columns']:,}, {data['ratings']:,} ratings"),
        ("constants", f"{machine['file']}: {machine['about']}, {machine['cpu']}"),
        ("", ""),
        ("processes", f"{chosen.processes:,}: {estimate['nodes']:,} nodes, {estimate['processes_per_node']} on each"),
        ("blocks", f"--grid {chosen.grid}"),
        ("a sweep", f"{_seconds(seconds)}, {data['ratings'] / seconds / 1e6:,.0f} M ratings/s"),
        ("efficiency", f"{estimate['efficiency']:.0%} of {chosen.processes:,} times the speed of one process"),
        ("memory", f"{_bytes(chosen.memory_per_process)} per process, {_bytes(per_node)} per node"),
        ("sent", f"{_bytes(chosen.sent_per_sweep)} per sweep, in {chosen.messages_per_sweep:,.0f} messages"),
        ("a message", f"{_bytes(chosen.message)} at most"),
        ("disk", f"{_bytes(chosen.disk_least)} to {_bytes(chosen.disk_most)}"),
        ("checkpoint", f"{_bytes(chosen.checkpoint)}, {_seconds(estimate['checkpoint_seconds'])} to write"),
        ("", f"best interval: --checkpoint-every {max(round(estimate['checkpoint_every']), 1)}s"),
    ]
    for name, text in rows:
        say(f"{name:12}{text}".rstrip())
    say("", "A sweep")
    for name, text in PARTS.items():
        part = getattr(chosen, name)
        say(f"  {name:12}{text:30}{_seconds(part):>10}{part / seconds:6.0%}")
    headings = (
        "processes",
        "B",
        "a sweep",
        "efficiency",
        "memory each",
        "sent a sweep",
        "largest cost",
    )
    table = []
    for one in growing.forecasts:
        most = max(list(PARTS)[1:], key=lambda name: float(getattr(one, name)))
        texts = (f"{one.processes:,}", str(one.grid), _seconds(one.seconds), f"{growing.efficiency(one):.0%}")
        table.append([*texts, _bytes(one.memory_per_process), _bytes(one.sent_per_sweep), most])
    show_table(headings, table, "More processes; the largest cost besides ratings", framed=False)
    if growing.last is None:
        say(f"It scales up to the largest number tried{f': {growing.reason}' if growing.reason else ''}.")
    else:
        say(f"Doubling the processes beyond {growing.last:,} is not worth it: {growing.reason}.")


def _bytes(size: float) -> str:
    unit = 0
    while size >= 1000 and unit < len(UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:,.3g} {UNITS[unit]}"


def _seconds(seconds: float) -> str:
    if seconds >= 120:
        return f"{seconds / 60:,.1f} min"
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"
