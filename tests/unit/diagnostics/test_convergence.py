"""Diagnostics of chains against those of ArviZ, their warnings, and calibration."""

from itertools import pairwise

import numpy as np
import pytest
from arviz_stats.base import array_stats
from runs import make_run

from dsgmcmc.diagnostics import scores
from dsgmcmc.diagnostics.convergence import RHAT_LIMIT, diagnose, slowest
from dsgmcmc.diagnostics.mixing import ess_bulk, ess_smaller, ess_tail, rhat
from dsgmcmc.diagnostics.overview import score_tables
from dsgmcmc.diagnostics.scores import calibration
from dsgmcmc.posterior.heldout import predict_test
from dsgmcmc.posterior.scores import coverage
from dsgmcmc.posterior.traces import predictions

AXES = {"chain_axis": 0, "draw_axis": 1}


def autoregression(chains: int, draws: int, m: int, phi: float) -> np.ndarray:
    """A stationary autoregression of variance 1, in which every tenth value equals the one
    before.
    """
    rng = np.random.default_rng(3)
    x = rng.normal(size=(chains, draws, m))
    for t in range(1, draws):
        x[:, t] = x[:, t - 1] if t % 10 == 0 else phi * x[:, t - 1] + np.sqrt(1 - phi**2) * x[:, t]
    return x


@pytest.mark.parametrize(
    ("chains", "draws", "phi"),
    [
        (4, 200, 0.5),
        (1, 101, 0.9),
        (2, 40, -0.5),
        (3, 9, 0.5),
        (2, 10, 0.99),
        (2, 300, 0.999),
        (1, 8, 0.0),
    ],
)
def test_measures_of_an_autoregression_are_those_of_arviz(
    chains: int, draws: int, phi: float
) -> None:
    """The measures are those of ArviZ for few, many and tied draws, and for chains that mix badly
    or very well. A tail without draws beyond it, which ArviZ gives the number of all draws, is left
    out.
    """
    x = autoregression(chains, draws, 16, phi)
    np.testing.assert_allclose(ess_bulk(x), array_stats.ess(x, **AXES, method="bulk"), rtol=1e-9)
    tails = [array_stats.ess(x, **AXES, method="quantile", prob=p) for p in (0.05, 0.95)]
    all_draws = 2 * chains * (draws // 2)
    known = [np.where(tail == all_draws, np.nan, tail) for tail in tails]
    np.testing.assert_allclose(ess_tail(x), np.fmin(*known), rtol=1e-9)
    if chains > 1:  # ArviZ tells none of one chain
        np.testing.assert_allclose(rhat(x), array_stats.rhat(x, **AXES), rtol=1e-9)


def test_what_is_constant_has_no_ess() -> None:
    """A constant has neither R-hat nor ESS, as in R's posterior."""
    x = np.ones((2, 20, 3))
    for measure in (rhat, ess_bulk, ess_tail, ess_smaller):
        assert np.isnan(measure(x)).all()


def test_a_tail_without_draws_has_no_ess() -> None:
    """Of what is true in 97 % of the draws no draw is beyond either quantile."""
    rare = (autoregression(4, 1000, 1, 0.9) > 2.0).astype(float)
    assert 0.01 < rare.mean() < 0.05
    assert ess_tail(rare) < 1000
    assert np.isnan(ess_tail(1 - rare)).all()
    np.testing.assert_array_equal(ess_smaller(1 - rare), ess_bulk(1 - rare))


# ---------------------------------------------------------------------- of a run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("run"), chains=3, noise="both").open()


def test_measures_are_those_of_arviz_on_what_was_sampled(run):
    """R-hat and ESS are those of ArviZ, so that chains and draws are on their axes."""
    result = diagnose(run)
    assert (result["chains"], result["draws"], result["withheld"]) == (3, 40, None)
    tau = np.stack([trace["tau"][:, 0] for trace in run.traces])
    by_name = {line["name"]: line for line in result["quantities"]}
    assert set(
        by_name
    ) == {  # and no factors, in which chains that sample the same distribution differ
        *("tau", "user_bias_precision", "item_bias_precision", "mean_product", "variance_product"),
        *("user_nu", "item_nu", "test_log_likelihood"),
    }
    assert by_name["tau"]["rhat"] == pytest.approx(array_stats.rhat(tau, chain_axis=0, draw_axis=1))
    assert by_name["tau"]["ess_bulk"] == pytest.approx(
        array_stats.ess(tau, chain_axis=0, draw_axis=1)
    )
    assert by_name["tau"]["mean"] == pytest.approx(tau.mean())
    assert (
        len(result["predictions"]["rhat"])
        == result["predictions"]["pairs"]
        == len(predictions(run)[0])
    )


def test_chains_that_have_not_mixed_are_warned_of(run, monkeypatch):
    """Shifted predictions of one chain show in R-hat and in the warnings."""
    index, values, scores = run.monitored()
    shifted = [values[0] + 1.0, *values[1:]]
    monkeypatch.setattr(run, "monitored", lambda: (index, shifted, scores))
    result = diagnose(run)
    assert np.mean(np.array(result["predictions"]["rhat"]) > RHAT_LIMIT) > 0.9
    assert any("have not mixed" in warning for warning in result["warnings"])
    assert any("ESS below 100 per chain" in warning for warning in result["warnings"])
    assert "Nemeth 2021" in result["note"]


def test_one_chain_of_unequal_weights_has_no_measures_but_advice(tmp_path):
    """One chain with a decaying step has no R-hat and no ESS, but a warning that names --chains."""
    sampler = {"name": "psgld", "decay_power": 0.33}
    run = make_run(tmp_path, sampler=sampler, iterations=240, burn_in=60, thin=6).open()
    result = diagnose(run)
    assert result["predictions"]["rhat"] is None
    assert "--chains 4" in result["warnings"][0]
    assert "unequal weights" in result["withheld"]
    assert result["withheld"] in result["warnings"][1]
    assert np.ptp(run.draw_weights) > 0


def test_groups_are_called_as_columns_are(run):
    """In the words of the file, where they are known."""
    groups = score_tables(calibration(run), {"user": "variety"})[1]
    labels = [row[0] for row in groups.rows]
    assert labels[0].startswith("variety with ")
    assert labels[-1].startswith("item with ")


def test_calibration_is_that_of_the_test_ratings(run):
    """Groups cover all test ratings, and the scores are those of `dsgmcmc.diagnostics.scores`."""
    result = calibration(run)
    test = predict_test(run)
    predicted = test.predictive(run.config.law, run.levels)
    assert result["coverage"] == coverage(predicted.pit(test.rating))
    assert sum(result["pit"]) == result["ratings"] == len(test.rating)
    users, items = run.test_pairs()
    for name, counts in (
        ("by_activity", run.counts("user")[users]),
        ("by_popularity", run.counts("item")[items]),
    ):
        groups = result[name]
        assert sum(group["ratings"] for group in groups) == len(test.rating)
        assert all(a["to"] < b["from"] for a, b in pairwise(groups))
        total = sum(group["ratings"] * group["rmse"] ** 2 for group in groups)
        assert np.sqrt(total / len(test.rating)) == pytest.approx(result["rmse"])
        first = groups[0]
        inside = (counts >= first["from"]) & (counts <= first["to"])
        assert first["rmse"] == pytest.approx(scores.rmse(test.rating[inside], test.mean[inside]))


def test_shared_parameters_that_drift_are_uncertain(run):
    """A parameter of low ESS, or whose halves differ, is not to be interpreted, and a longer run is
    named.
    """
    line = {"name": "tau", "label": "tau", "mean": 1.0, "sd": 0.5, "rhat": None, "read": True}
    good = line | {"halves": 1.01, "ess_bulk": 80.0, "ess_tail": 90.0}
    bad = line | {"label": "nu", "halves": 1.3, "ess_bulk": 4.0, "ess_tail": 9.0}
    diagnosis = {"quantities": [good, bad], "withheld": None, "draws": 300}
    found = slowest(diagnosis, run.config)["shared"]
    assert (found["uncertain"], found["ess"], found["error"]) == (["nu"], 4.0, 0.25)
    assert found["iterations"] == pytest.approx(
        run.config.burn_in + 5 * 300 * run.config.thin, rel=0.05
    )
    after_long_burn_in = run.config.model_copy(update={"burn_in": 10_400, "thin": 1})
    few = slowest(diagnosis | {"draws": 50}, after_long_burn_in)["shared"]
    assert few["iterations"] >= 10_400 + 5 * 50, "rounded down, it would be less than was made"
    assert slowest(diagnosis | {"quantities": [good]}, run.config)["shared"]["uncertain"] == []
    apart = slowest(diagnosis | {"quantities": [good | {"halves": 1.2}]}, run.config)["shared"]
    assert apart["uncertain"] == ["tau"]
    known = good | {"halves": 1.2, "sd": 0.1}
    assert slowest(diagnosis | {"quantities": [known]}, run.config)["shared"]["uncertain"] == []
    unread = bad | {"read": False}
    assert slowest(diagnosis | {"quantities": [unread]}, run.config) == {}
