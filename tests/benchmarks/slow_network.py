"""Where exchange stops being hidden: two processes in network namespaces of their own, with a slow link between them.

    python tests/benchmarks/slow_network.py [--rates 1,2,4,8,16,1000]     # as root; MB a second

The link is a pair of TUN devices, and a relay in user space that lets packets pass at a rate (a token bucket each way):
no kernel module is needed. For each rate a sweep's steps are timed under mpirun over TCP, beside what `dsgmcmc plan`
says of the same work: `--overlap 1`, where a message moves while the processor computes, and 0, where it does not.
Needs Open MPI and `ip netns`; times are of the clock, so the machine should have no other work. Not part of the tests.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

NAMES = ("dsgmcmc-a", "dsgmcmc-b")
MTU = 16_000
CLONE_NEWNET = 0x40000000
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
ROWS, COLUMNS, PER_ROW = 8000, 4000, 400
SETTINGS = {"sampler": "baoab", "rank": 32, "grid": 8, "iterations": "700sweeps", "prior": "fixed"}


def enter(path: str) -> None:
    """Move this thread to the network namespace of a file."""
    with Path(path).open("rb") as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")


def ip(*arguments: str) -> None:
    """Run `ip`."""
    subprocess.run(["ip", *arguments], check=True)


class Link:
    """Two namespaces with a TUN device each, and the relay between them."""

    def __init__(self) -> None:
        self.rate = 1e9
        self.devices = []
        for number, name in enumerate(NAMES, 1):
            device = os.open("/dev/net/tun", os.O_RDWR)
            fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", f"slow{number}".encode(), IFF_TUN | IFF_NO_PI))
            ip("netns", "add", name)
            ip("link", "set", f"slow{number}", "netns", name)
            inside = ("-n", name)
            ip(*inside, "link", "set", "lo", "up")
            ip(*inside, "addr", "add", f"10.77.0.{number}/24", "dev", f"slow{number}")
            ip(*inside, "link", "set", f"slow{number}", "mtu", str(MTU), "up")
            self.devices.append(device)
        for way in (self.devices, self.devices[::-1]):
            threading.Thread(target=self._pass, args=way, daemon=True).start()

    def _pass(self, source: int, sink: int) -> None:
        free = time.perf_counter()  # when the bucket has room for the next packet
        while True:
            try:
                packet = os.read(source, MTU + 100)
            except OSError:  # the namespace is gone
                return
            free = max(free, time.perf_counter() - 0.005) + len(packet) / self.rate
            time.sleep(max(free - time.perf_counter(), 0))
            with suppress(OSError):
                os.write(sink, packet)

    def close(self) -> None:
        """Remove the namespaces, and the devices with them."""
        for name in NAMES:
            subprocess.run(["ip", "netns", "del", name], check=False)


def forward(listening: socket.socket, port: int) -> None:
    """Hand connections to this port on to the same port of the namespace that this thread is in."""

    def pump(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    while True:
        near, _ = listening.accept()
        far = socket.create_connection(("127.0.0.1", port))
        for way in ((near, far), (far, near)):
            threading.Thread(target=pump, args=way, daemon=True).start()


def inside(arguments: list[str]) -> int:
    """Run a worker in the namespace of its rank; it reaches the launcher, which is outside, by a forwarded port."""
    name = NAMES[int(os.environ["OMPI_COMM_WORLD_RANK"])]
    uris = [value for key, value in os.environ.items() if key.startswith("PMIX_SERVER_URI")]
    home = f"/proc/{os.getpid()}/ns/net"
    with Path(home).open("rb") as back:
        for port in {int(uri.rsplit(":", 1)[1]) for uri in uris if "127.0.0.1" in uri}:
            enter(f"/run/netns/{name}")
            listening = socket.create_server(("127.0.0.1", port))
            ctypes.CDLL(None).setns(back.fileno(), CLONE_NEWNET)
            threading.Thread(target=forward, args=(listening, port), daemon=True).start()
    alone = ["sh", "-c", 'mount -t tmpfs none /dev/shm && exec "$0" "$@"']  # what it shares with the other is the link
    command = ["ip", "netns", "exec", name, *alone, sys.executable, __file__, *arguments]
    return subprocess.run(command, check=False).returncode


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


def measure(link: Link, rate: float, turns: int) -> dict[str, float]:
    """One run at a rate, in bytes a second."""
    link.rate = rate
    settings = {"btl": "tcp,self", "pml": "ob1", "btl_tcp_if_include": "10.77.0.0/24"}
    options = [word for name, value in settings.items() for word in ("--mca", name, value)]
    command = ["mpirun", "-n", "2", *options, sys.executable, __file__, "--inside", "--turns", str(turns)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def compare(rates: list[float], turns: int) -> None:
    """Measure at all rates, the fastest first, and print what the model says beside it."""
    from dsgmcmc.cluster.constants import builtin
    from dsgmcmc.config.layers import build
    from dsgmcmc.runs.forecast import Forecast, Nodes, Sizes

    link = Link()
    try:
        found = {rate: measure(link, rate, turns) for rate in sorted(rates, reverse=True)}
    finally:
        link.close()
    config, machine = build(SETTINGS).resolved(), builtin()
    sizes, fastest = Sizes(ROWS, COLUMNS, ROWS * PER_ROW), found[max(rates)]
    nodes = Nodes(2, 1, max(rates), 1e-4)
    said = Forecast.of(config, sizes, machine, nodes)
    # the work is as long as it was here, not as long as the built-in constants have it
    scale = (fastest["seconds"] - fastest["waited"]) / (said.seconds - said.exchange - said.sums)
    work = machine.work_of("baoab", "shared", SETTINGS["rank"])
    names = ("visit", "update", "cell", "block", "iteration")
    scaled = {name: getattr(work, name) * scale for name in names} | {"rating": [r * scale for r in work.rating]}
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
    """Read the command line; this file starts itself as what runs inside, too."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rates", default="1,2,4,8,16,1000", help="MB a second")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        sys.exit(inside(["--worker", "--turns", str(options.turns)]))
    if options.worker:
        worker(options.turns)
    else:
        compare([1e6 * float(rate) for rate in options.rates.split(",")], options.turns)


if __name__ == "__main__":
    main()
