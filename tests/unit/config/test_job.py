"""When a job must have ended, and policies that are none."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from dsgmcmc.config.job import Policy
from dsgmcmc.errors import InputError


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
    [{"watchdog": -1.0}, {"watchdog": float("nan")}, {"on_divergence": "pray"}],
)
def test_wrong_policies_are_refused(wrong: dict[str, object]) -> None:
    """Named as the user gave them."""
    (name,) = wrong
    with pytest.raises(InputError, match=f"^{name}: "):
        Policy.of(wrong)


def test_sampling_does_not_read_the_wall_clock() -> None:
    """It may be set back or jump; only the end of a job, the times of events and the age of a lock are on it."""
    package = Path(__file__).resolve().parents[3] / "dsgmcmc"
    found = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if re.search(r"\btime\.time\(|\btime import .*\btime\b|datetime\.now|gettimeofday", path.read_text())
    }
    assert found <= {"config/job.py", "storage/rundir.py", "storage/lock.py"}
