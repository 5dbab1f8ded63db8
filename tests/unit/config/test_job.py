"""When a job must have ended, and policies that are none."""

import time

import pytest

from dsgmcmc.config.job import Policy
from dsgmcmc.errors import InputError


def test_the_wall_time_counts_from_the_program_s_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Imports and compilation are part of it; the end of a Slurm job is in seconds since 1970.

    A plain number is refused: nobody knows whether it is minutes.
    """
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + 500))
    for given, least, most in (("1h", 2990, 3000), ("auto", 480, 500)):
        deadline = Policy(max_walltime=given).deadline(since_start=600.0)
        assert deadline is not None
        assert least < deadline - time.monotonic() <= most
    assert Policy().deadline(0.0) is None
    monkeypatch.delenv("SLURM_JOB_END_TIME")
    no_times = dict.fromkeys(("", "1", "1:30", "01:60:00", "-1h", "1 hour", "1e3s", "soon", "0s"), "expected a time")
    for given, why in {"auto": "SLURM_JOB_END_TIME is not set", **no_times}.items():
        with pytest.raises(InputError, match=f"--max-walltime {given}: {why}"):
            Policy(max_walltime=given).deadline(0.0)


@pytest.mark.parametrize("wrong", [{"watchdog": -1.0}, {"on_divergence": "pray"}])
def test_wrong_policies_are_refused(wrong: dict[str, object]) -> None:
    """Named as the user gave them."""
    (name,) = wrong
    with pytest.raises(InputError, match=f"^{name}: "):
        Policy.of(wrong)
