"""Who can be reached over the network while a run samples."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from support import Running, rank_pid
from tiny import command

LISTENS = "0A"


def listening(pid: int) -> list[str]:
    """Addresses, in hexadecimal, at which a process listens."""
    sockets = set()
    for handle in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            sockets.add(str(handle.readlink()))
    tables = [Path(f"/proc/{pid}/net/{name}").read_text(encoding="ascii") for name in ("tcp", "tcp6")]
    found = [line.split() for table in tables for line in table.splitlines()]
    return [fields[1] for fields in found if fields[3] == LISTENS and f"socket:[{fields[9]}]" in sockets]


@pytest.mark.parametrize("processes", [None, 2])
def test_no_process_of_a_run_listens(data: Path, tmp_path: Path, processes: int | None) -> None:
    """A process by itself has no port open; of several only MPI has, for messages, and none if they go by memory.

    Nor has the single one a file in shared memory: Open MPI's would be left behind, as no launcher removes it.
    """
    out = tmp_path / "run"
    line = command(data, out, processes, iterations=10**6, checkpoint_every=10**6, save_draws=0)
    with Running(line, {"OMPI_MCA_btl": "self,sm,vader"} if processes else None) as running:
        running.wait_for(out / "metrics.jsonl", 2)
        pids = [rank_pid(running, rank) for rank in range(processes)] if processes else [running.process.pid]
        assert [listening(pid) for pid in pids] == [[]] * len(pids)
        if processes is None:
            assert "/dev/shm" not in Path(f"/proc/{pids[0]}/maps").read_text(encoding="utf-8")
