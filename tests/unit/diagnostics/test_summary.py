"""The text about a run: no warning where all is well, the right one where it is not; gains over
biases only.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from support import sample, typed, write_cells

from dsgmcmc.diagnostics.summary import describe_run, doubts, ending, no_better, read_summary

GOOD = {
    "rmse_mean": 0.83,
    "mae_mean": 0.65,
    "tau": 1.9,
    "draws": 60,
    "coverage": {"0.5": 0.5, "0.9": 0.91},
    "test_ratings": 10_000,
    "baselines": {"mean_only": 1.12, "biases_only": 0.91},
    "agreement": None,
    "reached": [700],
    "iterations": 700,
}


def result(summary: dict) -> list[str]:
    return describe_run(summary).result


#: The comparison of a good model with biases only.
BETTER = {
    "measure": "log_probability",
    "biases_only": -1.3,
    "gain": 0.07,
    "gain_error": 0.004,
    "square": 0.09,
    "square_error": 0.008,
}
#: That of a model that predicts as biases only do.
SIMPLE = BETTER | {"gain": 0.001, "square": 0.0}


def test_a_good_run():
    """The RMSE of a run is shown with those of the simplest predictors; chance and a decent
    coverage raise no doubt.
    """
    assert "0.8300 (biases only 0.9100, mean only 1.1200)" in result(GOOD)[0]
    assert doubts(GOOD) == doubts(GOOD | {"coverage": {"0.9": 0.86}, "test_ratings": 50}) == []
    assert doubts(GOOD | {"coverage": {"0.9": 1.0}, "narrower_than_levels": True}) == [], (
        "an interval holds a level"
    )
    assert ending(GOOD) == "finished: 700 iterations"


def test_any_unit_is_readable():
    """Scores of very small and very large ratings have the digits that matter."""
    small = GOOD | {"rmse_mean": 5.6e-5, "baselines": {"mean_only": 9.75e-5, "biases_only": 8.1e-5}}
    assert "5.6e-05 (biases only 8.1e-05, mean only 9.75e-05)" in result(small)[0]
    assert "5.61e+05" in result(GOOD | {"rmse_mean": 560_971.0, "baselines": None})[0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rmse_mean": 11.66}, "predicting the mean (1.1200)"),
        ({"over_biases": SIMPLE}, "no better than biases only"),
        ({"coverage": {"0.9": 0.99}}, "too wide"),
        ({"coverage": {"0.9": 0.8}}, "too narrow"),
        ({"coverage": {"0.5": 0.82, "0.9": 0.91}}, "50 % intervals contain 82.0%"),
        ({"coverage": {"0.8": 0.7, "0.9": 0.89}}, "80 % intervals contain 70.0%"),
        (
            {"coverage": {"0.5": 0.82, "0.9": 0.975}},
            "90 % intervals contain 97.5%, 50 % intervals contain 82.0% of the test ratings",
        ),
        ({"rmse_mean": None, "draws": 0}, "no draw"),
    ],
)
def test_a_bad_run_is_doubted(change, words):
    """Every fault of a run is named."""
    (doubt,) = doubts(GOOD | change)
    assert words in doubt


def test_intervals_of_whole_groups_are_judged_by_group():
    """1,168 ratings of 6 items without training ratings are 6 that may err together."""
    wide = GOOD | {"coverage": {"0.5": 0.6, "0.9": 0.978}, "test_ratings": 1168}
    assert doubts(wide | {"independent": 6}) == []
    assert len(doubts(wide | {"independent": 1168})) == 1


@pytest.mark.parametrize(
    ("sampler", "is_wide"), [("sgld", True), ("hamcmc", True), ("psgld", False)]
)
def test_half_of_a_step_that_diverged_is_doubted(sampler, is_wide):
    """Where ratings are few, only the samplers without a metric then draw too widely."""
    event = {"chain": 0, "iteration": 20, "next": "half the step"}
    diverged, *others = doubts(GOOD | {"sampler": sampler, "fell_back": [event]})
    assert "began again with half the step" in diverged
    assert bool(others) == is_wide
    assert not is_wide or "standard deviations were 1.2 times as large" in others[0]
    assert doubts(GOOD | {"sampler": sampler, "fell_back": []}) == []


def test_what_concerns_all_scores_follows_the_first_line():
    """Predictions that have hardly mixed are said before any other score, and so is a simpler model
    with a smaller error.
    """
    check = {"until": "ess=100", "iteration": 700, "found": {"ess": 2.0}, "reached": False}
    bad = GOOD | {"until": check | {"limit": 700}, "larger_error_than": "plain"}
    text = describe_run(bad)
    second, third = text.lines()[1:3]
    assert second.startswith("warning: predictions are only as accurate as 2 independent draws")
    assert "mean squared error worse than that of plain" in third
    assert text.all_warnings()[:2] == [*text.reservations]
    assert describe_run(GOOD).reservations == []
    enough = GOOD | {"until": check | {"limit": 700, "found": {"ess": 30.0}}}
    assert describe_run(enough).reservations == []


def test_a_stopped_run_is_not_doubted():
    """A run that was stopped early is not judged."""
    bad = GOOD | {"rmse_mean": 11.66}
    assert doubts(bad | {"reached": [54]}) == []
    check = {
        "until": "ess=100",
        "iteration": 54,
        "found": {"ess": 3.0},
        "reached": False,
        "limit": 5000,
    }
    assert doubts(bad | {"until": check}) == []
    assert doubts(bad | {"until": check | {"iteration": 5000}})
    assert doubts(bad | {"until": check | {"reached": True}})


def test_a_run_of_levels_has_no_tau():
    """A run on levels or clicks lacks tau or errors, and is not doubted for it; of levels the log
    probability comes first.
    """
    levels = GOOD | {"tau": None, "log_probability": -1.25}
    assert result(levels)[0] == "log probability of a recorded rating -1.2500"
    assert result(levels)[1].startswith("RMSE of the posterior mean")
    assert "tau" not in result(levels)[1]
    assert result(levels | {"over_biases": SIMPLE})[0].endswith(
        "rating -1.2500 (biases only -1.3000)"
    )
    assert result(levels | {"rmse_mean": None, "test_ratings": 0}) == [
        "no RMSE: no ratings were held out"
    ]
    clicks = GOOD | {"rmse_mean": None}
    assert result(clicks) == [
        "no rankings: they need saved draws, and there are none (--save-draws 0)"
    ]
    assert doubts(levels) == doubts(levels | {"rmse_mean": None}) == []


def test_a_stopped_run_says_how_to_go_on():
    """The ending of a stopped run names the command that continues it."""
    assert (
        ending({"reached": [1130], "iterations": 20_000})
        == "stopped at iteration 1,130 of 20,000; continue with the same command and --resume"
    )
    assert "700, 300, 0 of 700 (by chain)" in ending({"reached": [700, 300, 0], "iterations": 700})


def test_chains_that_disagree():
    """Chains agree or not by the limit of the diagnostics."""
    agreement = {"pairs": 256, "rhat_median": 1.002, "rhat_worst": 1.02, "above": 0.03}
    assert "the chains agree" in result(GOOD | {"agreement": agreement})[2]
    assert "do not agree" in result(GOOD | {"agreement": agreement | {"above": 0.3}})[2]


def test_uncertain_shared_parameters_are_named():
    """Shared parameters that are not to be interpreted are named, with the precision of the slowest
    and a remedy.
    """
    known = {
        "label": "threshold 3",
        "ess": 4.4,
        "rhat": None,
        "mean": 1.25,
        "error": 0.034,
        "iterations": 4500,
    }
    few = known | {"uncertain": ["threshold 3", "tau, the precision of the noise"]}
    line = result(GOOD | {"slowest": {"shared": few}})[-1]
    assert line.startswith(
        "do not interpret threshold 3, tau from this run: the ESS of threshold 3 is 4, "
    )
    assert (
        "and its mean 1.25 is known to ± 0.034; about 4,500 iterations would do: --resume --until"
        " none" in line
    )
    many = known | {"uncertain": ["threshold 3", "tau", "a", "b", "c"]}
    assert "threshold 3, tau, a and 2 more from" in result(GOOD | {"slowest": {"shared": many}})[-1]
    assert result(GOOD | {"slowest": {"shared": known | {"uncertain": []}}}) == result(GOOD)
    assert result(GOOD | {"slowest": {}}) == result(GOOD)


def test_no_length_below_that_of_a_stopped_run_is_advised():
    """`--iterations 100` would cut a run of 3,000 that was stopped at 70; a longer one is said, and
    so is a shorter one than the limit of a run that has ended.
    """
    slow = {
        "label": "tau",
        "uncertain": ["tau"],
        "ess": 9.0,
        "rhat": None,
        "mean": 1.9,
        "error": 0.03,
    }
    stopped = GOOD | {"reached": [70], "iterations": 3_000}
    short = stopped | {"slowest": {"shared": slow | {"iterations": 100}}}
    assert result(short)[-1].endswith("its mean 1.9 is known to ± 0.03")
    long = stopped | {"slowest": {"shared": slow | {"iterations": 4_000}}}
    assert result(long)[-1].endswith("--resume --until none --iterations 4000")
    until = {"until": "ess=16", "reached": True, "iteration": 70, "limit": 3_000, "found": {}}
    ended = short | {"until": until}
    assert result(ended)[-1].endswith("--resume --until none --iterations 100")


# ---------------------------------------------------------------------- biases only


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"gain": 0.003},
            [
                "no better than biases only",
                "rating is higher by 0.0030 (standard error 0.0040)",
                "--rank 0",
            ],
        ),
        ({"gain": -0.003}, ["no better than biases only", "lower by 0.0030"]),
        ({"gain": -0.03}, ["worse than biases only", "lower by 0.0300"]),
        (
            {"measure": "log_predictive_density", "gain": 0.0},
            ["log predictive density of a rating"],
        ),
        (
            {"square": 0.001},
            ["no better than biases only in the mean squared error", "lower by 0.001"],
        ),
        (
            {"square": -0.02},
            ["worse than biases only in the mean squared error, which is higher by 0.02"],
        ),
    ],
)
def test_a_model_must_be_better_by_a_standard_error(
    change: dict[str, Any], words: list[str]
) -> None:
    """The log score and then the errors must be better, and the sentence has the difference and its
    standard error.
    """
    assert no_better({"over_biases": BETTER}) == []
    assert no_better({"over_biases": BETTER | {"gain": -2e-5, "gain_error": 1e-6}}) == [], (
        "both are exact"
    )
    (said,) = no_better({"over_biases": BETTER | change})
    assert all(word in said for word in words), said


def test_biases_only_are_not_compared_with_themselves(tmp_path: Path) -> None:
    """A summary at rank 0 has no comparison, and the baseline has the RMSE of the run to 1 %."""
    assert no_better({}) == no_better({"over_biases": None}) == []
    settings = {"rank": 0, "grid": 2, "iterations": 80, "burn_in": 50, "save_draws": 0}
    assert sample(MPI.COMM_SELF, write(tmp_path / "r.h5", 0.0), tmp_path / "run", **settings) == 0
    summary = read_summary(tmp_path / "run" / "summary.json")
    assert summary["over_biases"] is None
    assert summary["baselines"]["biases_only"] == pytest.approx(summary["rmse_mean"], rel=0.01)


def write(path: Path, factors: float) -> Path:
    """Write 4,000 ratings of biases, noise of sd 1 and factors, of which a fifth are held out.

    Factors that vanish are as good as biases only, and by chance better by more than an error: not
    with this seed.
    """
    rng = np.random.default_rng(2)
    i, j = np.nonzero(rng.random((150, 80)) < 0.33)
    w = rng.normal(size=(150, 2))
    h = rng.normal(size=(80, 2))
    x = (
        3
        + rng.normal(0, 0.5, 150)[i]
        + rng.normal(0, 0.5, 80)[j]
        + factors * (w[i] * h[j]).sum(axis=1)
    )
    x += rng.normal(0, 1, len(i))
    return write_cells(path, (150, 80), i, j, x, rng.random(len(i)) < 0.2)


@pytest.mark.parametrize(("factors", "worth"), [(0.0, False), (0.7, True)])
def test_a_run_says_whether_its_factors_are_worth_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], factors: float, worth: bool
) -> None:
    """`sample`, the summary, `info` and the report say so where ratings have no factors, and only
    there.
    """
    data = write(tmp_path / "r.h5", factors)
    run = tmp_path / "run"
    settings = {"rank": 3, "grid": 2, "iterations": 300, "burn_in": 50, "save_draws": 4}
    assert sample(MPI.COMM_SELF, data, run, **settings) == 0
    said = " ".join(capsys.readouterr().out.split())
    comparison = read_summary(run / "summary.json")["over_biases"]
    assert (comparison["gain"] > comparison["gain_error"]) == worth
    assert ("better than biases only" in said or "worse than biases only" in said) != worth
    assert f"(biases only {comparison['biases_only']:.4f})" in said
    shown = " ".join(typed("info", run).expect().out.split())
    assert ("better than biases only" in shown or "worse than biases only" in shown) != worth
    if not worth:
        assert typed("report", run).expect().code == 0
        page = (run / "report.html").read_text(encoding="utf-8")
        assert "than biases only: the log predictive density" in " ".join(page.split())
