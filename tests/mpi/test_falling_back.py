"""A chain that diverges begins again alike on any number of processes, also where it is stopped meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest
from mpi4py import MPI
from support import digest, diverging

from dsgmcmc.diagnostics.summary import read_summary

pytestmark = [pytest.mark.mpi, pytest.mark.once]


@pytest.mark.parametrize("chains", [1, 2])
def test_a_recovered_chain_does_not_know_the_machine(
    comm: MPI.Comm, together, mpi_tmp_path: Path, data: Path, chains: int
) -> None:
    """In one go by one process, and by several in parts that end where the state is not looked at otherwise."""
    out, alone = mpi_tmp_path / "run", mpi_tmp_path / "alone"
    with together():
        if comm.rank == 0:  # first, so that one process compiles what all need
            assert diverging(MPI.COMM_SELF, data, alone, chains=chains) == 0
    for iterations in (23, 27, 41, 60):
        assert diverging(comm, data, out, iterations, chains=chains) == 0
    with together():
        if comm.rank == 0:
            assert len(read_summary(alone / "summary.json")["fell_back"]) >= chains
            assert digest(out) == digest(alone)
