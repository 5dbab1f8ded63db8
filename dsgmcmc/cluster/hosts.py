"""Checks of processes that a launcher started together: hosts, versions, a shared folder."""

from __future__ import annotations

import contextlib
import platform
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dsgmcmc.cluster.doctor import Finding, examine
from dsgmcmc.parallel.launch import oversubscription, processes_here
from dsgmcmc.storage.provenance import versions
from dsgmcmc.types import Comm

PING = 1 << 20  # bytes that every process sends to its neighbour


def compare(comm: Comm, folder: Path) -> list[Finding]:
    """Check every host, and that all processes can write a run to `folder`. Collective.

    Returns, at process 0 alone, all findings of its own host, those of other hosts that are not well or not the same,
    and how the processes fit together.
    """
    here = processes_here(comm)
    local = examine(launch=False) if here.rank == 0 else []
    everyone = comm.gather((platform.node(), here.rank == 0, local, versions()))
    here.Free()
    crowded = oversubscription(comm)
    exchange = _exchange(comm)
    shared = _shared(comm, folder)
    if everyone is None:  # not process 0
        return []
    hosts = {name: checks for name, leads, checks, _ in everyone if leads}
    own = next(iter(hosts))
    findings = [finding for finding in hosts.pop(own) if finding.name != "MPI start"]
    for host, others in hosts.items():
        findings += [Finding(f"{f.name} of {host}", f.level, f.found, f.advice) for f in others if f.level != "ok"]
    names = [name for name, _, _, _ in everyone]
    findings.append(Finding("Hosts", "ok", ", ".join(f"{host} ({names.count(host)})" for host in dict.fromkeys(names))))
    findings.append(exchange)
    findings += _differences([(name, facts) for name, _, _, facts in everyone])
    fit = Finding("Processes", "warning" if crowded else "ok", crowded or "no host has more of them than cores")
    return [*findings, fit, shared]


def _exchange(comm: Comm) -> Finding:
    """Send to the next process and receive from the one before, as the ring does. Collective."""
    sent, received = np.full(PING, comm.rank % 251, np.uint8), np.full(PING, 255, np.uint8)
    before, after = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    comm.Sendrecv(sent, after, recvbuf=received, source=before)
    damaged = [rank for rank, bad in enumerate(comm.allgather(bool((received != before % 251).any()))) if bad]
    if damaged:
        return Finding("MPI start", "error", f"messages to processes {damaged} arrived damaged", "check the network")
    return Finding("MPI start", "ok", f"{comm.size} processes, each sent {PING:,} bytes to the next")


def _differences(everyone: list[tuple[str, dict[str, str]]]) -> Iterator[Finding]:
    """Compare CPUs and versions, on which the bits of a chain depend."""
    different = False
    for what in everyone[0][1]:
        where: dict[str, list[str]] = {}
        for host, about in everyone:
            where.setdefault(about[what], []).append(host)
        if len(where) == 1:
            continue
        different = True
        text = "; ".join(f"{value} on {', '.join(dict.fromkeys(hosts))}" for value, hosts in where.items())
        if what == "cpu":
            advice = "the last bits of draws depend on the kind of CPU: ask for nodes of one kind if they must repeat"
            yield Finding("CPU", "warning", text, advice)
        else:
            yield Finding(f"{what} version", "error", text, "give every host the same environment")
    if not different:
        facts = ", ".join(f"{name} {value}" for name, value in everyone[0][1].items())
        yield Finding("Same everywhere", "ok", facts)


def _shared(comm: Comm, folder: Path) -> Finding:
    """Every process writes a file into a folder that process 0 makes, and process 0 looks for all. Collective."""
    place = folder.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    probe, reason = "", ""
    if comm.rank == 0:
        try:
            probe = tempfile.mkdtemp(prefix=".dsgmcmc-doctor-", dir=place)
        except OSError as error:
            reason = str(error)
    made, reason, place = comm.bcast((probe, reason, place))
    if not made:
        return Finding("Run directory", "error", f"{place} cannot be written: {reason}", "choose another folder")
    files = [Path(made) / str(rank) for rank in range(comm.size)]
    with contextlib.suppress(OSError):
        files[comm.rank].touch()
    names = comm.gather(platform.node())
    if names is None:  # not process 0
        return Finding("Run directory", "ok", "")
    missing = {name for name, file in zip(names, files, strict=True) if not file.exists()}
    shutil.rmtree(made, ignore_errors=True)
    if missing:
        text = f"{place} is not shared: what {', '.join(sorted(missing))} wrote there did not arrive at {names[0]}"
        return Finding("Run directory", "error", text, "write the run to a file system that all hosts share (--out)")
    return Finding("Run directory", "ok", f"{place}: all processes can write there, and see the same files")
