"""Curves of ``dsgmcmc plan`` to 1,024 processes, for data from MovieLens 20M to 100 billion ratings.

    python tests/benchmarks/scaling_curves.py [--machine node.toml] [--out docs/figures]

Computed, not measured: prints the table of docs/scaling.md, and draws ``scaling.png``. Nodes have 32 cores and links
of 100 Gbit/s and 2 microseconds; memory is not limited. Some seconds. Not part of the tests.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

from dsgmcmc.cluster.constants import builtin, read_machine
from dsgmcmc.config.layers import build
from dsgmcmc.runs.advice import Curve, Node, curve
from dsgmcmc.runs.forecast import Sizes

DATA = {
    "MovieLens 20M": Sizes(138_493, 26_744, 20_000_263),
    "Netflix, 100 M": Sizes(480_189, 17_770, 100_480_507),
    "1 billion": Sizes(10_000_000, 1_000_000, 10**9),
    "100 billion": Sizes(500_000_000, 10_000_000, 10**11),
}
NODE = Node(cores=32, memory=float("inf"), bandwidth=12.5e9, latency=2e-6)
SHOWN = (1, 4, 16, 64, 256, 1024)


def table(curves: dict[str, Curve]) -> None:
    """Print what docs/scaling.md has."""
    print("| data | processes | B | seconds of a sweep | efficiency | GB a process | GB sent a sweep |")
    print("|---|---|---|---|---|---|---|")
    for name, found in curves.items():
        for one in found.forecasts:
            if one.processes in SHOWN:
                memory, sent = one.memory_per_process / 1e9, one.sent_per_sweep / 1e9
                print(
                    f"| {name} | {one.processes:,} | {one.grid:,} | {one.seconds:.3g} | {found.efficiency(one):.0%} "
                    f"| {memory:,.3g} | {sent:,.3g} |"
                )
    print("\n| data | twice as many are worth it up to | then |\n|---|---|---|")
    for name, found in curves.items():
        print(f"| {name} | {found.last or found.forecasts[-1].processes:,} | {found.reason or 'not looked further'} |")


def draw(curves: dict[str, Curve], path: Path) -> None:
    """Speed beside one process, and what a sweep of Netflix' size is made of."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for name, found in curves.items():
        processes = [one.processes for one in found.forecasts]
        left.plot(processes, [found.alone / one.seconds for one in found.forecasts], marker="o", ms=3, label=name)
    left.plot(processes, processes, color="grey", lw=0.8, ls="--", label="perfect")
    left.set(xscale="log", yscale="log", xlabel="processes", ylabel="speed beside one process", title="K = 32, baoab")
    left.legend()
    found = curves["Netflix, 100 M"]
    processes = [one.processes for one in found.forecasts]
    parts = [[getattr(one, name) * one.processes for one in found.forecasts] for name in found.forecasts[0].PARTS]
    right.stackplot(processes, parts, labels=found.forecasts[0].PARTS)
    right.set(xscale="log", xlabel="processes", ylabel="seconds of all processes in a sweep", title="Netflix, 100 M")
    right.legend(loc="upper left", fontsize=8)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Compute, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--machine", type=Path)
    parser.add_argument("--rank", type=int, default=32)
    parser.add_argument("--out", type=Path, help="folder of the figure")
    options = parser.parse_args()
    machine = read_machine(options.machine) if options.machine else builtin()
    asked = build({"sampler": "baoab", "rank": options.rank, "iterations": "700sweeps", "save_draws": 50})
    curves = {name: curve(asked, sizes, machine, NODE, NODE.cores, 1024) for name, sizes in DATA.items()}
    table(curves)
    if options.out:
        draw(curves, options.out / "scaling.png")


if __name__ == "__main__":
    main()
