"""What is told to MPI before it is loaded: only what is certain, and never against the user."""

from __future__ import annotations

import os

import pytest

from dsgmcmc.parallel.comm import ALONE, LAUNCHER_SIZES, NO_CARDS, TRANSPORTS, on_one_host, sparing_network_cards


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch):
    for name in (*LAUNCHER_SIZES, "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_RANK", TRANSPORTS):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("variables", "certain"),
    [
        ({}, True),  # Python alone, also inside a batch job
        ({"OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_SIZE": "8"}, True),  # mpirun on one machine
        ({"OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, False),  # mpirun --host a:4,b:4
        ({"SLURM_STEP_NUM_TASKS": "8", "PMIX_RANK": "3"}, False),  # srun --mpi=pmix
        ({"PMI_SIZE": "8"}, False),  # MPICH, Intel MPI
    ],
)
def test_one_host_is_assumed_only_where_it_is_certain(monkeypatch, variables, certain):
    """On several hosts Open MPI needs its network cards: without them a cluster would talk by TCP, far slower."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert on_one_host() == certain
    with sparing_network_cards():
        assert os.environ.get(TRANSPORTS) == ((NO_CARDS if variables else ALONE) if certain else None)
    assert TRANSPORTS not in os.environ  # a process started from here may run on several hosts


def test_what_the_user_has_set_stays(monkeypatch):
    """Who chooses transports knows why."""
    monkeypatch.setenv(TRANSPORTS, "tcp,self")
    with sparing_network_cards():
        assert os.environ[TRANSPORTS] == "tcp,self"
    assert os.environ[TRANSPORTS] == "tcp,self"
