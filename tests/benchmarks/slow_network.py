"""Where exchange stops being hidden: two processes on nodes of their own, with a slow link between them.

    python tests/benchmarks/slow_network.py [--rates 1,2,4,8,16,1000]     # as root; MB a second

The link is that of `network.py`, without dilation. For each rate a sweep's steps are timed under mpirun over TCP,
beside what `dsgmcmc plan` says of the same work: `--overlap 1`, where a message moves while the processor computes, and
0, where it does not. Times are of the clock, so the machine should have no other work. Not part of the tests.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace

from network import Network

ROWS, COLUMNS, PER_ROW = 8000, 4000, 400
SETTINGS = {"sampler": "baoab", "rank": 32, "grid": 8, "iterations": "700sweeps", "prior": "fixed"}


def worker(turns: int) -> None:
    """Time sweeps, and print them with their phases."""
    from mpi4py import MPI

    from dsgmcmc.config.layers import build
    from dsgmcmc.runs.calibrate import CalibrationChain, CountingRing, MadeUp, Shape

    comm, shape = MPI.COMM_WORLD, Shape(ROWS, COLUMNS, PER_ROW, SETTINGS["grid"])
    config = build(SETTINGS).resolved()
    chain = CalibrationChain(config, MadeUp(shape), CountingRing(comm, shape.grid))
    found = []
    for _ in range(turns):
        comm.Barrier()
        chain.ring.phases.clear()
        begin = time.perf_counter()
        chain.cycle(2)
        found.append((time.perf_counter() - begin, dict(chain.ring.phases.seconds)))
    seconds, phases = min(found, key=lambda each: each[0])
    waited = (phases["exchange"] + phases["reduce"]) / 2
    everyone = comm.gather((seconds / 2, waited))
    if comm.rank == 0:
        print(json.dumps({"seconds": max(s for s, _ in everyone), "waited": max(w for _, w in everyone)}))


def measure(network: Network, rate: float, turns: int) -> dict[str, float]:
    """One run at a rate, in bytes a second."""
    network.rate = rate
    found = network.mpirun(2, 1, [sys.executable, __file__, "--worker", "--turns", str(turns)])
    return json.loads(found.splitlines()[-1])


def compare(rates: list[float], turns: int) -> None:
    """Measure at all rates, the fastest first, and print what the model says beside it."""
    from dsgmcmc.cluster.constants import builtin
    from dsgmcmc.config.layers import build
    from dsgmcmc.runs.forecast import Counts, Forecast, Nodes, Sizes

    network = Network(2, max(rates))
    try:
        found = {rate: measure(network, rate, turns) for rate in sorted(rates, reverse=True)}
    finally:
        network.close()
    config, machine = build(SETTINGS).resolved(), builtin()
    sizes, fastest = Sizes(ROWS, COLUMNS, ROWS * PER_ROW), found[max(rates)]
    nodes = Nodes(2, 1, max(rates), 1e-4)
    said = Forecast.of(config, sizes, machine, nodes)
    # the work is as long as it was here, not as long as the built-in constants have it
    scale = (fastest["seconds"] - fastest["waited"]) / (said.seconds - said.exchange - said.sums)
    work = machine.work_of("baoab", "shared", SETTINGS["rank"])
    scaled = {name: getattr(work, name) * scale for name in Counts.names} | {"rating": [r * scale for r in work.rating]}
    machine = machine.model_copy(update={"work": [work.model_copy(update=scaled)]})
    print(f"a message {said.message / 1e6:.2f} MB; work of a sweep {fastest['seconds'] - fastest['waited']:.3f} s")
    print(f"{'MB/s':>8}{'sweep, s':>10}{'waiting':>10}{'said: overlap 1':>17}{'overlap 0':>11}")
    for rate, seen in sorted(found.items()):
        waits = []
        for overlap in (1.0, 0.0):
            one = Forecast.of(config, sizes, machine, replace(nodes, bandwidth=rate, overlap=overlap))
            waits.append(one.exchange + one.sums)
        print(f"{rate / 1e6:>8g}{seen['seconds']:>10.3f}{seen['waited']:>10.3f}{waits[0]:>17.3f}{waits[1]:>11.3f}")


def main() -> None:
    """Read the command line; this file starts itself as what runs on the nodes, too."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rates", default="1,2,4,8,16,1000", help="MB a second")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(options.turns)
    else:
        compare([1e6 * float(rate) for rate in options.rates.split(",")], options.turns)


if __name__ == "__main__":
    main()
