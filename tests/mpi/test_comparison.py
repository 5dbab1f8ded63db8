"""Models are compared alike on any number of processes, and a stopped comparison goes on."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from support import write_planted

from dsgmcmc.diagnostics.comparison import Comparison
from dsgmcmc.input.load import RatingsTable
from dsgmcmc.input.sources.columns import MemoryTable
from dsgmcmc.parallel.alone import Comm
from dsgmcmc.posterior.run import Run
from dsgmcmc.prepare.prepare import prepare_ratings
from dsgmcmc.runs import models as runs_models
from dsgmcmc.runs.compare import Comparing
from dsgmcmc.runs.job import Job
from dsgmcmc.runs.recommended import sample_recommended
from dsgmcmc.runs.source import RatingsSource

pytestmark = [pytest.mark.mpi, pytest.mark.once, pytest.mark.long]


@pytest.mark.timeout(600, method="thread")  # the kernels of all models are compiled first
def test_the_choice_does_not_depend_on_the_processes(
    comm: MPI.Comm, together, mpi_tmp_path: Path, monkeypatch
) -> None:
    """All figures except seconds have the same bits, also if the first attempts end before and
    after half a chain.
    """
    monkeypatch.setattr(runs_models, "MAX_SWEEPS", 80)
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


@pytest.mark.timeout(600, method="thread")
def test_an_arrangement_does_not_depend_on_the_processes(
    comm: MPI.Comm, together, mpi_tmp_path: Path, monkeypatch
) -> None:
    """The arrangement of three directions, all figures and the draws of the run are the same."""
    monkeypatch.setattr(runs_models, "MAX_SWEEPS", 80)
    data = mpi_tmp_path / "t.h5"
    settings = {"grid": 5, "rank": 2, "likelihood": "gaussian", "noise": "shared"}
    settings |= {"implicit_features": "no", "iterations": 60, "burn_in": 20, "until": "none"}

    def sampled(processes: Comm, out: Path) -> Run:
        job = Job(processes, RatingsSource(data), out, settings, quiet=True)
        assert sample_recommended(job) == 0
        return Run(out)

    with together():
        if comm.rank == 0:
            _write_three_directions(data)
            alone = sampled(MPI.COMM_SELF, mpi_tmp_path / "alone")
    shared = sampled(comm, mpi_tmp_path / "shared")
    with together():
        if comm.rank == 0:
            tables = [Comparison.read(run.directory.comparison_file) for run in (shared, alone)]
            models = [
                [model.model_copy(update={"seconds": 0}) for model in table.models]
                for table in tables
            ]
            assert models[0] == models[1]
            assert tables[0].recommended == tables[1].recommended
            assert shared.facts["data_hash"] == alone.facts["data_hash"]
            for found, expected in zip(shared.moments, alone.moments, strict=True):
                for entity in ("user", "item"):
                    assert np.array_equal(found.mean[entity], expected.mean[entity])


def _write_three_directions(path: Path) -> None:
    """Write a table of 8 places, 9 days and 10 hours, whose arrangement is open."""
    rng = np.random.default_rng(1)
    place, day, hour = (axis.ravel() for axis in np.indices((8, 9, 10)))
    number = rng.normal(0, 1, (8, 9))[place, day] * np.sin(hour) + rng.normal(0, 0.2, len(hour))
    columns = {"user": place, "item": hour, "item 2": day, "rating": number.round(2)}
    file = MemoryTable.of(Path("places"), columns)
    positions = {role: k for k, role in enumerate(columns)}
    named = {"user": "user", "item": "item", "context": "item 2"}
    prepare_ratings([RatingsTable(file, positions)], path, columns=named)
