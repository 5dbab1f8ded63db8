"""Messages and progress of a job while it samples."""

from pathlib import Path

import pytest
from mpi4py import MPI
from support import sample

from dsgmcmc.diagnostics.summary import in_units, read_summary
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.runs.progress import Progress, logs
from dsgmcmc.terminal import log


@pytest.mark.parametrize(("sampler", "parts"), [("psgld", 3), ("baoab", 1)])
def test_the_speed_counts_the_ratings_of_an_iteration(
    data: Path, tmp_path: Path, sampler: str, parts: int
) -> None:
    """Those of a part, or all where an iteration is a sweep."""
    settings = {"sampler": sampler, "grid": 3, "rank": 2, "iterations": 9, "burn_in": 1, "thin": 2}
    assert sample(MPI.COMM_SELF, data, tmp_path / "run", **settings) == 0
    summary = read_summary(tmp_path / "run" / "summary.json")
    with Ratings(data) as ratings:
        counted = summary["ratings_per_second"] * summary["seconds_sampling"]
        # the first sweep is not timed
        assert counted == pytest.approx((9 - parts) * ratings.nnz / parts)


def test_a_line_says_which_rmse_is_which(capsys: pytest.CaptureFixture[str]) -> None:
    """A line has the RMSE of one draw and, once there is one, that of all draws."""
    with Progress(10, 100.0) as progress:
        for iteration, mean in ((1, None), (10, 0.83234)):
            progress(
                {
                    "chain": 0,
                    "iteration": iteration,
                    "time_s": 0.0,
                    "rmse": 0.9068,
                    "rmse_mean": mean,
                    "tau": 1.8,
                }
            )
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].endswith("RMSE: this draw 0.9068  tau 1.8")
    assert lines[1].endswith("RMSE: this draw 0.9068, all draws 0.8323  tau 1.8")


@pytest.mark.parametrize(
    ("rate", "text"),
    [(244e6, "244 M"), (2.44e6, "2.4 M"), (244_000, "244 k"), (2_440, "2.4 k"), (24, "24")],
)
def test_a_rate_has_a_unit_of_its_size(rate: float, text: str) -> None:
    """A small rate is not shown as 0 M."""
    assert in_units(rate) == text


def test_logs(capfd: pytest.CaptureFixture[str]) -> None:
    """Only process 0 logs, a message is one line, and the handlers are as before in the end."""
    before = list(log.handlers)
    for rank in (0, 1):
        with logs(rank):
            log.debug("details")
            log.info("process %d", rank)
            log.warning("taking over %s", "run\x1b[2J\n2026 ERROR \udcff")
    assert (
        capfd.readouterr().err
        == "process 0\nwarning: taking over run\\x1b[2J\\n2026 ERROR \\udcff\n"
    )
    assert log.handlers == before
