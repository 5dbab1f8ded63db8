"""Chains that end with an accuracy: when they are looked at, what is measured, and what is
reported.
"""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from support import digest, sample, typed, write_planted

from dsgmcmc.diagnostics.accuracy import accuracy, next_check, reached
from dsgmcmc.errors import InputError
from dsgmcmc.runs.source import RatingsSource

#: Mixes within tens of iterations: a tight prior leaves one mode.
SETTINGS: dict[str, Any] = {"rank": 2, "grid": 3, "burn_in": 20, "thin": 1, "save_draws": 2}
SETTINGS |= {
    "sampler": {"name": "baoab", "step_size": 0.15},
    "prior": "fixed",
    "prior_precision": 20.0,
}


def last(out: Path) -> dict[str, Any]:
    """The last check that the summary of a run has."""
    check: dict[str, Any] = json.loads((out / "summary.json").read_text(encoding="utf-8"))["until"]
    return check


def test_checks_are_fixed_and_ever_rarer() -> None:
    """The next check follows from the iteration alone, also in a chain that is resumed."""
    checks = [next_check(0, 7, 4)]
    while checks[-1] < 40 * 100:
        checks.append(next_check(checks[-1] + 1, 7, 4))
    sweeps = [(check - 7) // 4 for check in checks]
    assert sweeps[:16] == [10, 20, 30, 40, 50, 60, 70, 80, 100, 120, 140, 160, 200, 240, 280, 320]
    assert all(b <= 1.25 * a for a, b in pairwise(sweeps[3:]))
    for iteration in range(4000):
        assert next_check(iteration, 7, 4) == min(check for check in checks if check >= iteration)


def test_all_but_one_in_ten_must_have_it() -> None:
    """Four of forty quantities may be bad, and interleaved sub-chains count as chains."""
    x = np.random.default_rng(5).normal(size=(2, 400, 40))
    good = accuracy(x, 1, ["rhat", "ess"])
    assert good["rhat"] < 1.02
    assert good["ess"] > 400
    x[0, :, :4] += 9
    assert accuracy(x, 1, ["rhat"]) == {"rhat": pytest.approx(good["rhat"], abs=0.005)}
    x[0, :, 4] += 9
    assert accuracy(x, 1, ["rhat"])["rhat"] > 1.5
    x[0, :, 4] -= 9
    x[:, ::2, 4:7] += 9
    assert accuracy(x, 1, ["rhat"])["rhat"] < 1.02 < 1.5 < accuracy(x, 2, ["rhat"])["rhat"]
    assert accuracy(x[:1, :7], 1, ["ess"]) == {}


def test_shared_parameters_are_waited_for_until_predictions_are_better_by_half() -> None:
    """A drift of shared parameters keeps a run going until predictions are better than wanted by
    half.
    """
    x = np.random.default_rng(6).normal(size=(1, 800, 20))
    drift = np.linspace(0, 9, 800)[None] + x[..., 0]
    good = accuracy(x, 1, ["ess"], x[..., 0])
    bad = accuracy(x, 1, ["ess"], drift)
    assert good["shared_ess"] > 400
    assert bad["shared_ess"] < 10
    assert bad["ess"] == good["ess"] > 400
    cases = (
        (good, 400, True),
        (bad, round(bad["ess"] / 1.4), False),
        (bad, round(bad["ess"] / 1.6), True),
        (good, 4000, False),
        ({}, 1, False),
    )
    for measured, wanted, over in cases:
        assert reached({"ess": wanted}, measured) == over
    slow = {"rhat": 1.008, "shared_rhat": 1.2}
    assert not reached({"rhat": 1.01}, slow)
    assert reached({"rhat": 1.01}, slow | {"shared_rhat": 1.09})
    assert reached({"rhat": 1.013}, slow)


def test_a_run_ends_with_the_accuracy(data: Path, tmp_path: Path) -> None:
    """A run ends at the accuracy with the bits of a run of that length; only a higher accuracy
    continues it.
    """
    out = tmp_path / "until"
    fixed = tmp_path / "fixed"
    assert sample(MPI.COMM_SELF, data, out, until="ess=12", **SETTINGS) == 0
    check = last(out)
    assert check["reached"]
    assert check["found"]["ess"] >= 12
    assert set(check["found"]) == {"ess", "shared_ess"}
    shown = typed("info", out).expect(0).out  # as the last line of `sample` did
    assert (
        f"draws, 12 were wanted: reached at iteration {check['iteration']}; to continue: " in shown
    )
    assert "stopped at" not in shown
    assert sample(MPI.COMM_SELF, data, fixed, iterations=check["iteration"], **SETTINGS) == 0
    assert last(fixed) is None
    assert digest(out) == digest(fixed)
    assert sample(MPI.COMM_SELF, data, out, resume=True) == 0
    assert digest(out) == digest(fixed)
    assert sample(MPI.COMM_SELF, data, out, resume=True, until="ess=20") == 0
    assert last(out)["iteration"] > check["iteration"]


def test_the_limit_ends_a_run_and_says_how_far_it_was(data: Path, tmp_path: Path) -> None:
    """The summary, `info` and `sample` say which accuracy was reached, and `sample` how to
    continue.
    """
    options = (
        "--rank=2",
        "--grid=3",
        "--burn-in=20",
        "--iterations=90",
        "--until=rhat=1.0001",
        "--chains=2",
    )
    options += ("--sampler=baoab", "--step-size=0.15", "--prior=fixed", "--set=prior_precision=20")
    done = typed("sample", data, "--out", tmp_path / "run", *options).expect(0)
    check = last(tmp_path / "run")
    assert (check["reached"], check["iteration"], check["limit"]) == (False, 90, 90)
    rhat = check["found"]["rhat"]
    shared_rhat = check["found"]["shared_rhat"]
    why = (
        f"R-hat of predictions is {rhat:.3f}, 1.0001 was wanted; R-hat of the test log likelihood"
        f" is {shared_rhat:.3f}, 1.001 was wanted: ended at the limit of 90 iterations; "
    )
    assert f"{why}to continue: --resume --iterations 180" in done.out
    assert "/1.0001" in done.err, "the way to go is shown"
    facts = json.loads(typed("info", tmp_path / "run", "--json").expect(0).out)
    assert facts["why"].startswith(why)
    assert facts["complete"]
    assert why in typed("info", tmp_path / "run").expect(0).out


def test_without_test_ratings_there_is_nothing_to_follow(tmp_path: Path) -> None:
    """Without test ratings `--until` is refused, and the default length is fixed."""
    data = write_planted(tmp_path / "r.h5", test=0.0)
    with pytest.raises(InputError, match="has none: give --until none"):
        sample(MPI.COMM_SELF, data, tmp_path / "run", until="ess=12", **SETTINGS)
    config = RatingsSource(data).resolve(1, {}, SETTINGS)
    assert (config.until, config.iterations) == (None, 700)
