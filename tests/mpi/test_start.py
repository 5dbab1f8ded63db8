"""A run that starts from another one on fewer ratings: the same bits whatever the processes, and it needs no other."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from mpi4py import MPI
from support import digest, sample, write_planted

pytestmark = [pytest.mark.mpi, pytest.mark.once]
MODEL = {"rank": 3, "noise": "both", "prior": "normal-wishart"}
SETTINGS = {"grid": 5, "burn_in": 2, "thin": 2, "evaluate_every": 4, "save_draws": 2}


@pytest.mark.parametrize("sampler", ["gibbs", "psgld"])
def test_a_start_is_a_function_of_the_run_and_the_seed(
    comm: MPI.Comm, together, mpi_tmp_path: Path, sampler: str
) -> None:
    """On all processes and resumed, when the earlier run is gone: as on one process; and not as without a start."""
    folder, failures = mpi_tmp_path, []
    grown, started = folder / "grown.h5", {"sampler": {"name": sampler}, "chains": 2, "start": folder / "run"}
    if comm.rank == 0:
        write_planted(folder / "few.h5", rows=22, columns=15)
        write_planted(grown)
        failures.append(sample(MPI.COMM_SELF, folder / "few.h5", folder / "run", iterations=9, **MODEL, **SETTINGS))
        failures.append(sample(MPI.COMM_SELF, grown, folder / "one", iterations=11, **started, **SETTINGS))
        cold = {"sampler": {"name": sampler}, "chains": 2, **MODEL, **SETTINGS}
        failures.append(sample(MPI.COMM_SELF, grown, folder / "cold", iterations=11, hyper_start=1, **cold))
    comm.Barrier()
    failures.append(sample(comm, grown, folder / "many", iterations=5, **started, **SETTINGS))
    comm.Barrier()
    if comm.rank == 0:
        shutil.rmtree(folder / "run")
    comm.Barrier()
    failures.append(sample(comm, grown, folder / "many", resume=True, iterations=11))
    with together():
        assert not any(failures)
        if comm.rank == 0:
            assert digest(folder / "many") == digest(folder / "one") != digest(folder / "cold")
