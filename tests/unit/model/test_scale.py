"""A logarithmic scale: a run on logarithms taken by hand is the same chain, and what it predicts is mapped back."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from scipy import integrate, stats
from support import planted, sample, typed, write_cells

from dsgmcmc import open_run
from dsgmcmc.diagnostics.summary import read_summary
from dsgmcmc.errors import InputError
from dsgmcmc.model.likelihoods import LIKELIHOODS, Levels
from dsgmcmc.model.predictive.base import PredictorDraws
from dsgmcmc.model.scale import on_scale
from dsgmcmc.posterior.fitted import FittedModel
from dsgmcmc.posterior.heldout import predict_test
from dsgmcmc.posterior.predict import PredictOptions, Predictor
from dsgmcmc.runs.compare import likelihoods_for

LAWS: dict[str, dict[str, Any]] = {"gaussian": {}, "student-t": {"noise": "both"}}
PAIRS = [[0, 0], [5, 3], [11, 16], [999, 2]]  # an unknown user among them
ROWS, COLUMNS, X = planted(29, 17, 0.5, 0)
AMOUNTS = np.exp(X).astype(np.float32)
LOGARITHMS = np.log(AMOUNTS.astype(np.float64)).astype(np.float32)
Runs = tuple[FittedModel, FittedModel]


@pytest.fixture(scope="module", params=LAWS)
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """A run on amounts with scale log, and a run on their logarithms."""
    folder, opened = tmp_path_factory.mktemp("scale"), []
    settings = {"rank": 2, "grid": 3, "burn_in": 20, "iterations": 60, "thin": 2, "save_draws": 20, "until": "none"}
    settings |= {"likelihood": request.param, **LAWS[request.param]}
    for name, values, scale in (("amounts", AMOUNTS, "log"), ("logarithms", LOGARITHMS, "identity")):
        data = write_cells(folder / f"{name}.h5", (29, 17), ROWS, COLUMNS, values, np.arange(len(X)) % 5 == 0)
        assert sample(MPI.COMM_SELF, data, folder / name, **settings, scale=scale) == 0
        opened.append(open_run(folder / name))
    for model in opened:
        model.clip = False
    return opened[0], opened[1]


def test_intervals_and_probabilities_are_those_of_logarithms(runs: Runs) -> None:
    """Also of new users, of users with new ratings, and of the median rating without noise."""
    amounts, logarithms = runs
    new = np.array([[999, 1], [999, 4], [999, 9]])
    for change in (lambda model, values: model, lambda model, values: model.fold_in(new, values)):
        ours, theirs = change(amounts, [1.0, 20.0, 300.0]), change(logarithms, np.log([1.0, 20.0, 300.0]))
        for end, other in zip(ours.predict_interval(PAIRS), theirs.predict_interval(PAIRS), strict=True):
            np.testing.assert_allclose(end, np.exp(other), rtol=1e-4)
    users, items = np.array(PAIRS[:3], np.int32).T
    ours = Predictor(amounts.run_, PredictOptions(at_least=7.0)).columns(users, items)
    theirs = Predictor(logarithms.run_, PredictOptions(at_least=float(np.log(7.0)))).columns(users, items)
    np.testing.assert_allclose(ours["at_least_7"], list(theirs.values())[-1], atol=1e-5)
    of_mean = PredictOptions(of_mean=True)
    ours, theirs = (Predictor(model.run_, of_mean).columns(users, items) for model in runs)
    np.testing.assert_allclose(ours["q05"], np.exp(theirs["q05"]), rtol=1e-4)
    np.testing.assert_allclose(ours["mean"], np.exp(theirs["mean"] + theirs["sd"] ** 2 / 2), rtol=1e-4)


def test_scores_are_those_of_the_recorded_ratings(runs: Runs) -> None:
    """Densities have the Jacobian; errors are those of the mean or, under Student-t, of the median."""
    amounts, logarithms = runs
    ours, theirs = (read_summary(model.run_.directory.summary_file) for model in runs)
    test = predict_test(amounts.run_)
    x = test.rating
    np.testing.assert_array_equal(x, AMOUNTS[np.arange(len(X)) % 5 == 0])
    jacobian = np.log(x).mean()
    densities = [summary["log_predictive_density"] for summary in (ours, theirs)]
    assert densities[0] == pytest.approx(densities[1] - jacobian, abs=1e-5)
    assert ours["coverage"] == theirs["coverage"]
    assert ours["over_biases"]["gain"] == pytest.approx(theirs["over_biases"]["gain"], abs=1e-4)
    traces = [np.array(model.run_.followed()[2]) for model in runs]
    np.testing.assert_allclose(traces[0], traces[1] - jacobian * len(x), rtol=1e-4)
    found = predict_test(logarithms.run_)
    median = amounts.run_.config.likelihood == "student-t"
    point = np.exp(found.mean + (0 if median else (found.variance + found.noise_variance) / 2))
    assert ours["point"] == ("median" if median else "mean")
    assert ours["rmse_mean"] == pytest.approx(np.sqrt(np.mean((x - point) ** 2)), rel=1e-4) == amounts.rmse_
    assert ours["mae_mean"] == pytest.approx(np.abs(x - point).mean(), rel=1e-4)
    assert ours["rmse_log"] == pytest.approx(theirs["rmse_mean"], rel=1e-4)
    *_, last = amounts.run_.directory.metrics()
    assert last["rmse_mean"] == pytest.approx(ours["rmse_mean"], rel=1e-4)


def test_the_prediction_is_a_mean_or_a_median(runs: Runs, tmp_path: Path) -> None:
    """By `predict` of Python and of the command, which has no sd where there is none."""
    amounts, logarithms = runs
    mean, sd = logarithms.predict(PAIRS[:3], return_std=True)
    (tmp_path / "pairs.csv").write_text("user,item\n" + "".join(f"{i},{j}\n" for i, j in PAIRS[:3]))
    said = typed("predict", amounts.run_.path, tmp_path / "pairs.csv", "--no-clip").out.splitlines()
    if amounts.run_.config.likelihood == "student-t":
        with pytest.raises(InputError, match="no standard deviation: use predict_interval"):
            amounts.predict(PAIRS, return_std=True)
        expected = amounts.predict_interval(PAIRS[:3], 1e-6)[0]
        assert said[0] == "user,item,median,q05,q95"
    else:
        expected = np.exp(mean + sd**2 / 2)
        found = amounts.predict(PAIRS[:3], return_std=True)[1]
        np.testing.assert_allclose(found, expected * np.sqrt(np.expm1(sd**2)), rtol=1e-3)
        assert said[0] == "user,item,mean,sd,q05,q95"
    np.testing.assert_allclose(amounts.predict(PAIRS[:3]), expected, rtol=1e-3)
    np.testing.assert_allclose([float(line.split(",")[2]) for line in said[1:]], expected, rtol=1e-3)


@pytest.mark.parametrize("name", LAWS)
def test_a_distribution_is_that_of_scipy(name: str) -> None:
    """Density, distribution function and quantiles of a mixture of two draws, and masses between half-way points."""
    eta, noise, weights = np.array([[0.5, 1.5]], np.float32), np.array([[0.4, 0.9]], np.float32), np.array([0.3, 0.7])
    shape = None if name == "gaussian" else np.array([[[2.0], [1.5]]])  # nu 4 and 6
    draws = PredictorDraws(eta, noise, np.zeros_like(eta), weights, shape=shape)
    values = np.arange(1.0, 30.0)
    made = on_scale(LIKELIHOODS[name], "log").predictive(draws, 1.0, values)
    law = stats.norm(1 + eta[0], np.sqrt(noise[0])) if shape is None else stats.t([4, 6], 1 + eta[0], np.sqrt(noise[0]))
    for x in (0.2, 3.0, 40.0):
        assert made.cdf(x)[0] == pytest.approx(weights @ law.cdf(np.log(x)), rel=1e-6)
        assert made.log_density(x)[0] == pytest.approx(np.log(weights @ law.pdf(np.log(x)) / x), rel=1e-6)
        assert made.quantile(made.cdf(x))[0] == pytest.approx(x, rel=1e-6)
    assert integrate.quad(lambda x: np.exp(made.log_density(x)[0]), 2, 5)[0] == pytest.approx(made.between(2, 5)[0])
    mass = weights @ (law.cdf(np.log(4.5)) - law.cdf(np.log(3.5)))
    assert made.log_probability(np.array([4.0]))[0] == pytest.approx(np.log(mass))
    assert made.cdf(0.0)[0] == made.cdf(-1.0)[0] == 0.0
    assert made.log_at_least(25.0)[0] == pytest.approx(np.log(weights @ law.sf(np.log(24.5))), rel=1e-6)
    assert made.at_least(3.0)[0] == pytest.approx(1 - weights @ law.cdf(np.log(2.5)))


def test_ratings_without_logarithm_are_refused(runs: Runs, tmp_path: Path) -> None:
    """With their number; so are new ones, and likelihoods with a link of their own."""
    values = np.where(np.arange(len(X)) % 7 == 0, 0, AMOUNTS)
    data = write_cells(tmp_path / "zeros.h5", (29, 17), ROWS, COLUMNS, values, np.arange(len(X)) % 5 == 0)
    refused = f"{(values == 0).sum()} of {len(X)} ratings are 0 or negative.*--scale.*negative-binomial"
    with pytest.raises(InputError, match=refused):
        sample(MPI.COMM_SELF, data, tmp_path / "run", scale="log")
    with pytest.raises(InputError, match="negative-binomial likelihood has no use for --scale"):
        sample(MPI.COMM_SELF, data, tmp_path / "run", scale="log", likelihood="negative-binomial")
    with pytest.raises(InputError, match=r"rating of 0: .* must be above 0"):
        runs[0].fold_in([[999, 1]], [0.0])


def test_logarithms_suit_skewed_positive_ratings() -> None:
    """Neither stars, nor normal measurements, nor anything with zeros."""
    rng = np.random.default_rng(0)
    for values, suited in (
        (rng.lognormal(0, 2, 2000), True),
        (rng.gamma(0.5, 1, 2000), True),
        (1.0 + rng.negative_binomial(1, 0.01, 2000), True),
        (rng.normal(50, 5, 2000), False),
        (rng.negative_binomial(1, 0.01, 2000) * 1.0, False),
        (rng.choice([1.0, 2.0, 3.0, 4.0, 100.0], 2000), False),
    ):
        names = likelihoods_for(Levels(*np.unique(values, return_counts=True)))
        assert {"log", "log noise", "log tails"} & set(names) == (
            {"log", "log noise", "log tails"} if suited else set()
        )
