"""What a run says at a glance: nothing where all is well, and the right thing where it is not."""

from __future__ import annotations

import pytest

from dsgmcmc.diagnostics.summary import doubts, ending, verdict

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
    return verdict(summary).result


#: A model that predicts as biases only do.
SIMPLE = {
    "measure": "log_probability",
    "biases_only": -1.3,
    "gain": 0.001,
    "gain_error": 0.004,
    "square": 0.0,
    "square_error": 0.01,
}


def test_a_good_run():
    """Its RMSE stands beside the simplest predictors'."""
    assert "0.8300 (biases only 0.9100, mean only 1.1200)" in result(GOOD)[0]
    assert doubts(GOOD) == []
    assert ending(GOOD) == "finished: 700 iterations"


def test_any_unit_is_readable():
    """Of ratings in ten-thousandths, every RMSE was 0.0001; of millions, digits that mean nothing were shown."""
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
        ({"rmse_mean": None, "draws": 0}, "no draw"),
    ],
)
def test_a_bad_run_is_doubted(change, words):
    """An RMSE of 11.7 on a scale of 1 to 5 once ended without a word."""
    (doubt,) = doubts(GOOD | change)
    assert words in doubt


def test_a_stopped_run_is_not_doubted():
    """After 54 iterations, Ctrl-C ended in advice about the rank."""
    bad = GOOD | {"rmse_mean": 11.66}
    assert doubts(bad | {"reached": [54]}) == []
    look = {"until": "ess=100", "iteration": 54, "found": {"ess": 3.0}, "reached": False, "limit": 5000}
    assert doubts(bad | {"until": look}) == []
    assert doubts(bad | {"until": look | {"iteration": 5000}})
    assert doubts(bad | {"until": look | {"reached": True}})


def test_chance_is_no_doubt():
    """Of 50 ratings, 43 inside their 90 % intervals is what happens."""
    assert doubts(GOOD | {"coverage": {"0.9": 0.86}, "test_ratings": 50}) == []


def test_a_run_of_levels_has_no_tau():
    """Which does not mean that it has no draw, also where no ratings were held out."""
    levels = GOOD | {"tau": None, "log_probability": -1.25}
    assert "tau" not in result(levels)[0]
    assert result(levels)[1] == "log probability of a rating's level -1.2500"
    assert result(levels | {"over_biases": SIMPLE})[1].endswith("level -1.2500 (biases only -1.3000)")
    assert result(levels | {"rmse_mean": None, "test_ratings": 0}) == ["no RMSE: no ratings were held out"]
    clicks = GOOD | {"rmse_mean": None}
    assert result(clicks) == ["no rankings: they need saved draws, and there are none (--save-draws 0)"]
    assert doubts(levels) == doubts(levels | {"rmse_mean": None}) == []


def test_a_stopped_run_says_how_to_go_on():
    """Not like a finished one."""
    assert ending({"reached": [1130], "iterations": 20_000}) == (
        "stopped at iteration 1,130 of 20,000; continue with the same command and --resume"
    )
    assert "700, 300, 0 of 700 (by chain)" in ending({"reached": [700, 300, 0], "iterations": 700})


def test_chains_that_disagree():
    """By the limit that the diagnostics use."""
    agreement = {"pairs": 256, "rhat_median": 1.002, "rhat_worst": 1.02, "above": 0.03}
    assert "the chains agree" in result(GOOD | {"agreement": agreement})[2]
    assert "do not agree" in result(GOOD | {"agreement": agreement | {"above": 0.3}})[2]


def test_the_slowest_shared_parameter_is_named():
    """Thresholds that still drift show in no score, and nobody asks for diagnostics of a run that has ended well."""
    slow = {"label": "threshold 3", "ess": 4.4, "rhat": 1.618}
    line = "slowest shared parameter: threshold 3, ESS 4, R-hat 1.62"
    assert result(GOOD | {"slowest": {"shared": slow}})[-1] == line
    assert result(GOOD | {"slowest": {"shared": slow | {"rhat": None}}})[-1] == line.removesuffix(", R-hat 1.62")
    assert result(GOOD | {"slowest": {}}) == result(GOOD)
