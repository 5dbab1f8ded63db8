"""HAMCMC's memory on the ring: equal bits for any number of processes, resumed at every phase of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mpi4py import MPI
from test_invariance import BASE, compare

pytestmark = [pytest.mark.mpi, pytest.mark.once]


@pytest.mark.parametrize(
    ("memory", "schedule", "more"),
    [(2, "cyclic", {}), (3, "random", {"metric": "diagonal"})],
)
def test_resumed_at_every_phase_of_the_memory(
    comm: MPI.Comm, together, data: Path, mpi_tmp_path: Path, memory: int, schedule: str, more: dict[str, Any]
) -> None:
    """Before the first step of every sub-chain, among the first 2M + 1 steps, while v is frozen, and after."""
    settings: dict[str, Any] = {
        **BASE,
        "sampler": {"name": "hamcmc", "memory": memory, **more},
        "schedule": schedule,
        "prior": "normal-gamma",
        "thin": 5,
        "iterations": 17,
    }
    compare(comm, together, data, mpi_tmp_path, settings, [*range(1, 2 * memory + 5), 17])
