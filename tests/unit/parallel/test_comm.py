"""Launchers and transports, known before MPI is loaded."""

import os

import pytest

from dsgmcmc.parallel import comm
from dsgmcmc.parallel.launcher import LAUNCHERS


@pytest.fixture(autouse=True)
def without_variables_of_launchers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests set the variables that they need."""
    for name in (
        *LAUNCHERS,
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        "PMIX_RANK",
        comm.TRANSPORT_VARIABLE,
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("variables", "certain"),
    [
        ({}, True),  # Python alone, also inside a batch job
        (
            {"OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_SIZE": "8"},
            True,
        ),  # mpirun on one machine
        (
            {"OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"},
            False,
        ),  # mpirun --host a:4,b:4
        ({"SLURM_STEP_NUM_TASKS": "8", "PMIX_RANK": "3"}, False),  # srun --mpi=pmix
        ({"PMI_SIZE": "8"}, False),  # MPICH, Intel MPI
    ],
)
def test_one_host_is_assumed_only_where_it_is_certain(monkeypatch, variables, certain):
    """On several hosts Open MPI needs its network cards: without them the processes would use TCP,
    which is slower.
    """
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert comm.on_one_host() == certain
    expected = None
    if certain:
        expected = comm.NO_NETWORK_CARDS if variables else comm.NO_TRANSPORT
    with comm.ignoring_network_cards():
        assert os.environ.get(comm.TRANSPORT_VARIABLE) == expected
    # a process started from here may run on several hosts
    assert comm.TRANSPORT_VARIABLE not in os.environ
    monkeypatch.setenv(comm.TRANSPORT_VARIABLE, "tcp,self")  # a setting of the user stays
    with comm.ignoring_network_cards():
        assert os.environ[comm.TRANSPORT_VARIABLE] == "tcp,self"
    assert os.environ[comm.TRANSPORT_VARIABLE] == "tcp,self"


def test_of_processes_with_pmix_alone_the_second_reports(monkeypatch):
    """Their launcher tells ranks, but no size: the first process cannot know of the others."""
    for rank, variable in (("0", None), ("1", "PMIX_RANK"), ("2", "PMIX_RANK")):
        monkeypatch.setenv("PMIX_RANK", rank)
        launch = comm._launch_of_several()
        assert (launch and launch.variable) == variable
        assert (launch is not None and launch.reports) == (rank == "1")
