"""Models are compared alike on any number of processes, and a stopped comparison goes on."""

from pathlib import Path
from typing import Any

import pytest
from mpi4py import MPI
from support import write_planted

from dsgmcmc.diagnostics.comparison import Comparison
from dsgmcmc.parallel.alone import Comm
from dsgmcmc.runs import candidates
from dsgmcmc.runs.compare import Comparing
from dsgmcmc.runs.source import RatingsSource

pytestmark = [pytest.mark.mpi, pytest.mark.once, pytest.mark.long]


@pytest.mark.timeout(600, method="thread")  # the kernels of all models are compiled first
def test_the_choice_does_not_depend_on_the_processes(
    comm: MPI.Comm, together, mpi_tmp_path: Path, monkeypatch
) -> None:
    """All figures except seconds have the same bits, also if the first attempts end before and
    after half a chain.
    """
    monkeypatch.setattr(candidates, "MAX_SWEEPS", 80)
    data = mpi_tmp_path / "r.h5"
    folder = mpi_tmp_path / "compare"

    def compare(processes: Comm, folder: Path) -> Comparison:
        return Comparing(
            processes, RatingsSource(data), folder, {"grid": 5, "rank": 3}, quiet=True
        ).run()

    with together():
        if comm.rank == 0:  # first, so that one process compiles the kernels of all
            write_planted(data, stars=True)
            alone = compare(MPI.COMM_SELF, mpi_tmp_path / "alone")

    def stopped_after(work: Any, *arguments: Any) -> None:
        work(*arguments)
        raise KeyboardInterrupt

    for name, work in (
        ("_sample", Comparing._sample),
        ("_go_on", lambda *_: None),
        ("_go_on", Comparing._go_on),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(
                Comparing, name, lambda *passed, work=work: stopped_after(work, *passed)
            )
            with pytest.raises(KeyboardInterrupt):
                compare(comm, folder)
        comm.Barrier()
    again = compare(comm, folder)
    with together():
        if comm.rank == 0:
            assert not folder.exists()
            models = [
                [model.model_copy(update={"seconds": 0}) for model in table.models]
                for table in (again, alone)
            ]
            assert (models[0], again.recommended, again.best) == (
                models[1],
                alone.recommended,
                alone.best,
            )
