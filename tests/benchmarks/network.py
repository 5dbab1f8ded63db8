"""Nodes on one machine, joined by slow links: namespaces of their own, and a relay that passes their packets on.

A node has its own network, host name and shared memory, so that an MPI library sees a cluster. Its link is a TUN
device. The relay reads all devices in user space: a packet has left a node once those before it have, has reached the
other node once those before it have, and is handed over `latency` later. No kernel module is needed. Needs root, Open
MPI and `ip netns`.
"""

from __future__ import annotations

import fcntl
import heapq
import os
import select
import shlex
import struct
import subprocess
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

MTU = 16_000
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
NAME, ADDRESS = "dsgmcmc-{}", "10.77.0.{}"
#: Runs a command on a node, as `ssh` does on a host: the address, and the words of a shell's command.
ENTER = r"""#!/bin/sh
number=${1##*.}; shift
exec ip netns exec dsgmcmc-$number unshare --mount --uts sh -c \
    "hostname node$number && mount -t tmpfs none /dev/shm && $*"
"""


def ip(*arguments: str) -> None:
    """Run `ip`."""
    subprocess.run(["ip", *arguments], check=True)


class Network:
    """Nodes 1 to `nodes`, and the relay between them; `close` removes them.

    Parameters
    ----------
    nodes : int
        At most 254.
    rate : float
        Bytes a second of a node's link, in each direction; it may be changed.
    latency : float
        Seconds from node to node; it may be changed.
    """

    def __init__(self, nodes: int, rate: float, latency: float = 0.0) -> None:
        self.nodes, self.rate, self.latency = nodes, rate, latency
        self._folder = tempfile.TemporaryDirectory()
        self._enter = Path(self._folder.name) / "enter"
        self._enter.write_text(ENTER)
        self._enter.chmod(0o755)
        self._devices: list[int] = []
        try:
            for number in range(1, nodes + 1):
                self._devices.append(_node(number))
        except BaseException:
            self.close()
            raise
        threading.Thread(target=self._relay, daemon=True).start()

    def mpirun(self, processes: int, each: int, command: list[str], preload: str = "") -> str:
        """What `command` prints on `processes` processes, `each` of them on a node; started on the first node.

        Parameters
        ----------
        processes, each : int
        command : list of str
        preload : str
            Library that is loaded before all others.
        """
        hosts = ",".join(f"{ADDRESS.format(number + 1)}:{each}" for number in range(-(-processes // each)))
        settings = {"pml": "ob1", "btl": "self,sm,tcp", "plm_ssh_agent": str(self._enter), "plm_ssh_no_tree_spawn": "1"}
        mca = [word for name, value in settings.items() for word in ("--mca", name, value)]
        loaded = ["-x", f"LD_PRELOAD={preload}"] if preload else []
        words = [
            "mpirun",
            "--host",
            hosts,
            "--map-by",
            "slot:oversubscribe",
            "-n",
            str(processes),
            *mca,
            *loaded,
            *command,
        ]
        inside = [str(self._enter), ADDRESS.format(1), shlex.join(words)]
        return subprocess.run(inside, check=True, stdout=subprocess.PIPE, text=True).stdout

    def _relay(self) -> None:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(2))  # a link waits for no processor
        devices, number = self._devices, 0
        place = {device: node for node, device in enumerate(devices)}
        sent, received = [0.0] * len(devices), [0.0] * len(devices)  # when links have room for the next packet
        waiting: list[tuple[float, int, int, bytes]] = []
        while True:
            wait = max(waiting[0][0] - time.perf_counter(), 0.0) if waiting else None
            ready, _, _ = select.select(devices, [], [], wait)
            now = time.perf_counter()
            for device in ready:
                try:
                    packet = os.read(device, MTU + 100)
                except OSError:  # the namespace is gone
                    return
                source, sink = place[device], packet[19] - 1  # the last byte of the IPv4 address
                if packet[0] >> 4 != 4 or not 0 <= sink < len(devices):
                    continue
                takes = len(packet) / self.rate
                sent[source] = max(sent[source], now) + takes
                received[sink] = max(received[sink] + takes, sent[source])
                number += 1
                heapq.heappush(waiting, (received[sink] + self.latency, number, devices[sink], packet))
            while waiting and waiting[0][0] <= now:
                _, _, device, packet = heapq.heappop(waiting)
                with suppress(OSError):
                    os.write(device, packet)

    def close(self) -> None:
        """Remove the namespaces, and the devices with them."""
        for number in range(1, len(self._devices) + 1):
            subprocess.run(["ip", "netns", "del", NAME.format(number)], check=False)
        self._folder.cleanup()


def _node(number: int) -> int:
    """Make a namespace with its device; the device as the relay sees it."""
    name, inside = f"slow{number}", ("-n", NAME.format(number))
    device = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    ip("netns", "add", NAME.format(number))
    ip("link", "set", name, "netns", NAME.format(number))
    ip(*inside, "link", "set", "lo", "up")
    ip(*inside, "addr", "add", f"{ADDRESS.format(number)}/24", "dev", name)
    ip(*inside, "link", "set", name, "mtu", str(MTU), "up")
    return device
