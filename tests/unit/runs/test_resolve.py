"""The settings of a job follow from the options, from the run that it resumes, and from the data."""

from pathlib import Path
from typing import Any

import pytest
from mpi4py import MPI
from support import sample, write_planted

from dsgmcmc.config.run import ResolvedConfig
from dsgmcmc.errors import AgreedError
from dsgmcmc.runs.job import Job
from dsgmcmc.runs.source import RatingsSource

SMALL = {"rank": 2, "sampler": "psgld", "iterations": 20, "burn_in": 4, "thin": 4}


def ask(data: Path, out: Path, *, resume: bool = False, **options: Any) -> tuple[ResolvedConfig, list[str]]:
    """Resolve options on one process."""
    return Job(MPI.COMM_SELF, RatingsSource(data), out, options, resume).resolve()


@pytest.fixture
def begun(data: Path, tmp_path: Path) -> Path:
    """Directory of a run that was started with `SMALL` settings."""
    assert sample(MPI.COMM_SELF, data, tmp_path / "run", **SMALL) == 0
    return tmp_path / "run"


def test_what_a_chain_cannot_change_is_refused(data: Path, begun: Path) -> None:
    """A refusal names every such setting with both values; a second start needs --resume."""
    with pytest.raises(AgreedError, match=r"thin: 4 in the run, 5 requested\n  rank: 2 in the run, 3 requested\n"):
        ask(data, begun, resume=True, rank=3, thin=5)
    with pytest.raises(AgreedError, match="is not empty: give --resume"):
        ask(data, begun, **SMALL)


def test_a_run_goes_on_with_its_own_ratings_only(begun: Path, tmp_path: Path) -> None:
    """A run refuses to go on with ratings of another content."""
    other = write_planted(tmp_path / "other.h5", seed=5)
    with pytest.raises(AgreedError, match=r"was sampled on other data than .*other\.h5"):
        ask(other, begun, resume=True)


def test_the_default_grid_fits_tiny_data(tmp_path: Path) -> None:
    """The default grid is as coarse as the data need."""
    tiny = write_planted(tmp_path / "tiny.h5", rows=9, columns=3)
    assert ask(tiny, tmp_path / "run")[0].grid == 3
