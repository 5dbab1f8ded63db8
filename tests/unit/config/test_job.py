"""Wall times, the straggler, logs: what is said and when, without a job."""

from __future__ import annotations

import logging
import re
import time
from pathlib import Path

import pytest

from dsgmcmc.config.job import Policy, parse_walltime
from dsgmcmc.errors import InputError
from dsgmcmc.runs.logs import start_logs, stop_logs
from dsgmcmc.runs.summary import straggler


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("1.5min", 90),
        ("1h", 3600),
        ("2d", 172800),
        ("00:01:30", 90),
        ("100:00:00", 360000),
        ("1-02:00:00", 93600),
    ],
)
def test_wall_times(text: str, seconds: float) -> None:
    """As people and as Slurm write them."""
    assert parse_walltime(text) == seconds


@pytest.mark.parametrize("text", ["", "1", "1:30", "01:60:00", "01:00:61", "-1h", "0s", "00:00:00", "1 hour", "1e3s"])
def test_what_is_no_wall_time(text: str) -> None:
    """Above all a plain number, of which nobody knows whether it is minutes."""
    with pytest.raises(InputError, match="--max-walltime"):
        parse_walltime(text)


def test_the_wall_time_counts_from_the_program_s_start() -> None:
    """Imports and compilation are part of it."""
    deadline = Policy(max_walltime="1h").deadline(since_start=600.0)
    assert deadline is not None
    assert 2990 < deadline - time.monotonic() <= 3000
    assert Policy().deadline(0.0) is None


def test_the_end_of_a_slurm_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in seconds since 1970."""
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + 500))
    deadline = Policy(max_walltime="auto").deadline(since_start=600.0)
    assert deadline is not None
    assert 480 < deadline - time.monotonic() <= 500
    monkeypatch.delenv("SLURM_JOB_END_TIME")
    with pytest.raises(InputError, match="SLURM_JOB_END_TIME is not set"):
        Policy(max_walltime="auto").deadline(0.0)


@pytest.mark.parametrize(
    "wrong",
    [{"watchdog": -1.0}, {"watchdog": float("nan")}, {"on_divergence": "pray"}, {"on_checkpoint_error": "x"}],
)
def test_wrong_policies_are_refused(wrong: dict[str, object]) -> None:
    """Named as the user gave them."""
    (name,) = wrong
    with pytest.raises(InputError, match=f"--{name.replace('_', '-')}"):
        Policy(**wrong)  # type: ignore[arg-type]


def test_sampling_does_not_read_the_wall_clock() -> None:
    """It may be set back or jump; only Slurm's end of a job and the times of events are on it."""
    package = Path(__file__).resolve().parents[3] / "dsgmcmc"
    found = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if re.search(r"\btime\.time\(|\btime import .*\btime\b|datetime\.now|gettimeofday", path.read_text())
    }
    assert found <= {"config/job.py", "storage/rundir.py"}


def test_the_straggler() -> None:
    """One for whom the others wait, and by enough to matter."""
    hosts = ["a", "b", "c"]
    assert straggler([1.0, 5.0, 1.2], hosts, 5.5) == {
        "process": 1,
        "host": "b",
        "busy_seconds": 5.0,
        "others_seconds": pytest.approx(1.1),
    }
    assert straggler([5.0, 5.2, 5.1], hosts, 5.5) is None
    assert straggler([0.1, 0.2, 0.1], hosts, 100.0) is None
    assert straggler([3.0], ["a"], 3.0) is None


def test_logs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Process 0 on the terminal, each in its own file with times, nothing below the level."""
    logger = logging.getLogger("dsgmcmc.any")
    try:
        for rank in (0, 1):
            start_logs(rank, "info", tmp_path / "logs")
            logger.debug("details")
            logger.info("process %d", rank)
            logger.warning("careful")
    finally:
        stop_logs()
    assert capfd.readouterr().err == "process 0\nwarning: careful\n"
    for rank in (0, 1):
        lines = (tmp_path / "logs" / f"process-0000{rank}.log").read_text().splitlines()
        assert len(lines) == 2
        assert lines[0].endswith(f"dsgmcmc.any: process {rank}")
        assert lines[0][:2] == "20"
