"""Counts the messages of a sweep on many processes, and their bytes, beside the estimate of
`sample --dry-run`. Nothing is timed, so that a small machine will do.

    python data/synthetic.py ratings.csv --rows 6400 --cols 1280 --ratings 200000
    dsgmcmc prepare ratings.csv ratings.h5
    mpirun -n 64 --oversubscribe python tests/benchmarks/traffic.py ratings.h5

Processes behave as if each were alone on its host: none shares memory with another. Messages of
ordered sums and of evaluation are not counted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from bench import arguments, say
from mpi4py import MPI

from dsgmcmc.config.run import build
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.runs.costs import Costs
from dsgmcmc.runs.source import targets_of

SETTLED = (
    60  # sweeps after which means and biases are exchanged, and metrics renewed, at long times
)
COUNTED = 10  # sweeps


class Traffic:
    """Messages and bytes that this process has sent."""

    messages = 0
    sent = 0

    @classmethod
    def add(cls, message: Any) -> None:
        """Count a message."""
        cls.messages += 1
        cls.sent += np.asarray(message).nbytes


class CountedRequest(MPI.Prequest):
    """A persistent request that counts its message whenever it is started."""

    message: Any

    def Start(self) -> None:
        """Start the communication."""
        Traffic.add(self.message)
        super().Start()


class CountingComm(MPI.Intracomm):
    """A communicator that counts messages, and whose processes share no memory."""

    def Send_init(self, buf: Any, dest: int, tag: int = 0) -> CountedRequest:
        """Make a persistent request to send."""
        request = CountedRequest(super().Send_init(buf, dest, tag))
        request.message = buf
        return request

    def Isend(self, buf: Any, dest: int, tag: int = 0) -> MPI.Request:
        """Send without waiting."""
        Traffic.add(buf)
        return super().Isend(buf, dest, tag)

    def Split_type(self, *_: Any, **__: Any) -> MPI.Intracomm:
        """Return the processes that share memory with this one: itself."""
        return MPI.COMM_SELF.Dup()


def main() -> None:
    """Make sweeps of a chain without draws, and print what was sent. Collective."""
    parser = arguments(__doc__)
    parser.add_argument("ratings", type=Path)
    parser.add_argument("--rank", type=int, default=32)
    options = parser.parse_args()
    comm = CountingComm(MPI.COMM_WORLD)
    config = build(
        {"iterations": "100sweeps", "rank": options.rank, "grid": comm.size, "sampler": "baoab"}
    ).resolved()
    ring = Ring(comm, config.grid)
    sampler = config.make_sampler()
    with Ratings(options.ratings) as ratings:
        costs = Costs.estimate(config, ratings, comm.size)
        target = targets_of(config, ratings, ring)(0, sampler)
    target.reset()
    sampler.start(target, config.initial_sd)
    for sweep in range(SETTLED + COUNTED):
        if sweep == SETTLED:
            Traffic.messages = Traffic.sent = 0
        sampler.advance(target, sweep, 1)
    messages = comm.allreduce(Traffic.messages) / COUNTED
    sent = comm.allreduce(Traffic.sent) / COUNTED
    largest = comm.allreduce(Traffic.sent, MPI.MAX) / COUNTED
    if comm.rank == 0:
        say("processes", "messages a sweep", "MB a sweep", "of one process", "estimated, MB")
        say(comm.size, messages, sent / 1e6, largest / 1e6, costs.sent_per_sweep / 1e6)


if __name__ == "__main__":
    main()
