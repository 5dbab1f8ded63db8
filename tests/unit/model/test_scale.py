"""A logarithmic scale: the chain on logarithms taken by hand, and predictions mapped back."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from scipy import integrate, optimize, stats
from support import planted, sample, typed, write_cells

from dsgmcmc import open_run
from dsgmcmc.diagnostics.summary import read_summary
from dsgmcmc.errors import InputError
from dsgmcmc.model.likelihoods import LIKELIHOODS
from dsgmcmc.model.log_scale import on_scale
from dsgmcmc.model.predictive.base import PredictorDraws
from dsgmcmc.posterior.cells.predict import Predictor
from dsgmcmc.posterior.fitted import FittedModel
from dsgmcmc.posterior.heldout import predict_test
from dsgmcmc.posterior.settings import PredictOptions

LAWS: dict[str, dict[str, Any]] = {"gaussian": {}, "student-t": {"noise": "both"}}
PAIRS = [[0, 0], [5, 3], [11, 16], [999, 2]]  # an unknown user among them
ROWS, COLUMNS, X = planted(29, 17, 0.5, 0)
AMOUNTS = np.exp(X).astype(np.float32)
LOGARITHMS = np.log(AMOUNTS.astype(np.float64)).astype(np.float32)
Runs = tuple[FittedModel, FittedModel]


@pytest.fixture(scope="module", params=LAWS)
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """A run on amounts with scale log, and a run on their logarithms."""
    folder = tmp_path_factory.mktemp("scale")
    opened = []
    settings = {
        "rank": 2,
        "grid": 3,
        "burn_in": 20,
        "iterations": 60,
        "thin": 2,
        "save_draws": 20,
        "until": "none",
    }
    settings |= {"likelihood": request.param, **LAWS[request.param]}
    for name, values, scale in (
        ("amounts", AMOUNTS, "log"),
        ("logarithms", LOGARITHMS, "identity"),
    ):
        data = write_cells(
            folder / f"{name}.h5", (29, 17), ROWS, COLUMNS, values, np.arange(len(X)) % 5 == 0
        )
        assert sample(MPI.COMM_SELF, data, folder / name, **settings, scale=scale) == 0
        opened.append(open_run(folder / name))
    for model in opened:
        model.clip = False
    return opened[0], opened[1]


def test_intervals_and_probabilities_are_those_of_logarithms(runs: Runs) -> None:
    """Also of new users, of users with new ratings, and of the median rating without noise."""
    amounts, logarithms = runs
    new = np.array([[999, 1], [999, 4], [999, 9]])
    for change in (
        lambda model, values: model,
        lambda model, values: model.fold_in(new, values),
        lambda model, values: model.fold_in(new[1:], values[1:]).update(new[:1], values[:1]),
    ):
        ours = change(amounts, [1.0, 20.0, 300.0])
        theirs = change(logarithms, np.log([1.0, 20.0, 300.0]))
        ends = ours.predict_interval(PAIRS)
        np.testing.assert_allclose(ends, np.exp(theirs.predict_interval(PAIRS)), rtol=1e-4)
    users, items = np.array(PAIRS[:3], np.int32).T
    of_mean = PredictOptions(of_mean=True)
    ours, theirs = (Predictor(model.run_, of_mean).columns(users, items) for model in runs)
    np.testing.assert_allclose(ours["q05"], np.exp(theirs["q05"]), rtol=1e-4)
    np.testing.assert_allclose(
        ours["mean"], np.exp(theirs["mean"] + theirs["sd"] ** 2 / 2), rtol=1e-4
    )


def test_scores_are_those_of_the_recorded_ratings(runs: Runs) -> None:
    """Densities have the Jacobian; errors are of the mean or, under Student-t, of the median."""
    amounts, logarithms = runs
    ours, theirs = (read_summary(model.run_.directory.summary_file) for model in runs)
    test = predict_test(amounts.run_)
    x = test.rating
    np.testing.assert_array_equal(x, AMOUNTS[np.arange(len(X)) % 5 == 0])
    jacobian = np.log(x).mean()
    expected = theirs["log_predictive_density"] - jacobian
    assert ours["log_predictive_density"] == pytest.approx(expected, abs=1e-5)
    assert ours["coverage"] == theirs["coverage"]
    assert ours["over_biases"]["gain"] == pytest.approx(theirs["over_biases"]["gain"], abs=1e-4)
    traces = [np.array(model.run_.monitored()[2]) for model in runs]
    np.testing.assert_allclose(traces[0], traces[1] - jacobian * len(x), rtol=1e-4)
    found = predict_test(logarithms.run_)
    median = amounts.run_.config.likelihood == "student-t"
    if median:
        point = np.exp(found.mean)
        assert ours["point"] == "median"
    else:
        point = np.exp(found.mean + (found.variance + found.noise_variance) / 2)
        assert ours["point"] == "mean"
    assert ours["rmse_mean"] == pytest.approx(np.sqrt(np.mean((x - point) ** 2)), rel=1e-4)
    assert ours["rmse_mean"] == pytest.approx(amounts.rmse_)
    assert ours["mae_mean"] == pytest.approx(np.abs(x - point).mean(), rel=1e-4)
    assert ours["rmse_log"] == pytest.approx(theirs["rmse_mean"], rel=1e-4)
    *_, last = amounts.run_.directory.metrics()
    assert last["rmse_mean"] == pytest.approx(ours["rmse_mean"], rel=1e-4)


@dataclass
class ByHand:
    """The predictive distribution of a rating, from its predictor, noise and nu at every draw.

    All draws have the same weight.
    """

    eta: np.ndarray
    sd: np.ndarray
    nu: np.ndarray | float
    scale: str

    @classmethod
    def predict(
        cls, model: FittedModel, user: int, item: int, folded: dict[int, float] | None = None
    ) -> "ByHand":
        """Of a pair; `folded` are ratings of items by a new user.

        The new user's row is normal given a draw, with the noise that all rows share.
        """
        run = model.run_
        u = run.users.index_of([user])[0]
        i = run.items.index_of([item])[0]
        etas = []
        sds = []
        nus = []
        for draw in map(run.draw, range(len(run.draws))):
            row = draw.theta["user"][u]
            column = draw.theta["item"][i]
            eta = row[:-1] @ column[:-1] + row[-1] + column[-1]
            variance = 1 / draw.tau / (draw.noise_scale["user"][u] * draw.noise_scale["item"][i])
            if folded:
                items = draw.theta["item"][run.items.index_of(list(folded))]
                phi = np.column_stack([items[:, :-1], np.ones(len(items))])
                y = np.log(list(folded.values())) - run.mean - items[:, -1]
                prior = np.linalg.inv(draw.prior["user"].covariance)
                covariance = np.linalg.inv(prior + draw.tau * phi.T @ phi)
                moment = prior @ draw.prior["user"].mean + draw.tau * phi.T @ y
                covariates = np.append(column[:-1], 1.0)
                eta = covariates @ covariance @ moment + column[-1]
                variance = 1 / draw.tau + covariates @ covariance @ covariates
            etas.append(run.mean + eta)
            sds.append(np.sqrt(variance))
            nus.append(np.max(draw.shared.get("nu", np.inf)))
        return cls(np.array(etas), np.array(sds), np.array(nus), run.config.scale)

    def up_to(self, x: float) -> float:
        """Probability of a rating of at most x."""
        y = np.log(x) if self.scale == "log" else np.log(np.floor(x) + 1.5)
        return float(stats.t.cdf((y - self.eta) / self.sd, self.nu).mean())

    def quantile(self, p: float, rounded: bool = True) -> float:
        """Quantile, found by its definition; before counts are rounded if not `rounded`."""
        y = optimize.brentq(
            lambda y: stats.t.cdf((y - self.eta) / self.sd, self.nu).mean() - p, -50, 50
        )
        if self.scale == "log1p" and rounded:
            return next(float(k) for k in range(10_000) if self.up_to(k) >= p)
        return float(np.exp(y) - (self.scale == "log1p"))

    def moments(self, noise: bool = True) -> tuple[float, float]:
        """Mean and sd, or the median and NaN under Student-t noise.

        Without noise: those of exp(eta) over the draws.
        """
        variance = self.eta.var()
        if noise:
            variance += (self.sd**2).mean()
        if noise and np.all(np.isfinite(self.nu)):
            return max(self.quantile(0.5, rounded=False), 0.0), np.nan
        mean = np.exp(self.eta.mean() + variance / 2)
        return max(mean - (self.scale == "log1p"), 0.0), mean * np.sqrt(np.expm1(variance))


@pytest.mark.parametrize("scale", ["log", "log1p"])
@pytest.mark.parametrize("likelihood", LAWS)
@pytest.mark.parametrize("noise", ["shared", "both"])
def test_predictions_follow_from_the_draws(
    scale: str, likelihood: str, noise: str, tmp_path: Path
) -> None:
    """By `predict` and `recommend`, for known users and, where it is a simple formula, for one that
    is folded in.
    """
    values = AMOUNTS if scale == "log" else np.floor(AMOUNTS / 10)
    data = write_cells(
        tmp_path / "r.h5", (29, 17), ROWS, COLUMNS, values, np.arange(len(X)) % 5 == 0
    )
    settings = {
        "rank": 2,
        "grid": 3,
        "burn_in": 20,
        "iterations": 60,
        "save_draws": 20,
        "until": "none",
    }
    chosen = {"scale": scale, "likelihood": likelihood, "noise": noise}
    assert sample(MPI.COMM_SELF, data, tmp_path / "run", **settings, **chosen) == 0
    model = open_run(tmp_path / "run")
    pairs = [(0, 0), (5, 3), (11, 16)]
    (tmp_path / "pairs.csv").write_text("user,item\n" + "".join(f"{i},{j}\n" for i, j in pairs))
    header, *lines = typed(
        "predict", model.run_.path, tmp_path / "pairs.csv", "--no-clip", "--at-least", "7"
    ).out.splitlines()
    point = "mean,sd" if likelihood == "gaussian" else "median"
    assert header == f"user,item,{point},q05,q95,at_least_7"
    if likelihood == "student-t":
        with pytest.raises(InputError, match="no standard deviation: use predict_interval"):
            model.predict(pairs, return_std=True)
    below = 7 if scale == "log" else 6
    for (user, item), line in zip(pairs, lines, strict=True):
        hand = ByHand.predict(model, user, item)
        expected = [*hand.moments(), *map(hand.quantile, (0.05, 0.95)), 1 - hand.up_to(below)]
        found = [float(number) for number in line.split(",")[2:]]
        np.testing.assert_allclose(found, [x for x in expected if np.isfinite(x)], rtol=2e-4)
    for bound in (None, 7.0):
        ranked = model.recommend([3], n=17, by="mean", at_least=bound, include_rated=True)
        hands = [ByHand.predict(model, 3, item) for item in ranked["item_id"]]
        scores = [
            hand.moments(noise=False)[0] if bound is None else 1 - hand.up_to(below)
            for hand in hands
        ]
        np.testing.assert_allclose(ranked["score"], scores, rtol=2e-4)
    if (scale, likelihood, noise) == ("log", "gaussian", "shared"):
        new = {1: 2.0, 4: 20.0, 9: 300.0}
        folded = model.fold_in([[999, item] for item in new], list(new.values()))
        folded.clip = False
        hand = ByHand.predict(model, 0, 3, new)
        np.testing.assert_allclose(
            np.ravel(folded.predict([[999, 3]], return_std=True)), hand.moments(), rtol=2e-4
        )
        ends = np.ravel(folded.predict_interval([[999, 3]], 0.9))
        np.testing.assert_allclose(ends, [hand.quantile(0.05), hand.quantile(0.95)], rtol=1e-3)


def test_counts_are_rounded() -> None:
    """With log1p: quantiles, probabilities and log scores are those of whole numbers, whose masses
    are differences.
    """
    draws = PredictorDraws(
        eta=np.full((1, 1), 1.0, np.float32),
        noise=np.full((1, 1), 0.6, np.float32),
        spread=np.zeros((1, 1), np.float32),
        weights=np.ones(1),
    )
    law = on_scale(LIKELIHOODS["gaussian"], "log1p")
    values = np.arange(30.0)
    mass = np.diff(stats.norm.cdf(np.log(values + 1.5), 1.0, np.sqrt(0.6)), prepend=0.0)
    made = law.predictive(draws)
    listed = law.predictive(draws, 0.0, values)
    for k in range(29):
        assert np.exp(made.log_density(k)[0]) == pytest.approx(mass[k])
        assert np.exp(listed.log_probability(np.array([k]))[0]) == pytest.approx(mass[k])
    for p in (0.01, 0.2, 0.5, 0.95):
        assert made.quantile(p)[0] == np.searchsorted(np.cumsum(mass), p)
    for bound in (3.2, 4.0):
        assert made.at_least(bound)[0] == pytest.approx(1 - mass[:4].sum())
        assert np.exp(made.log_at_least(bound)[0]) == pytest.approx(1 - mass[:4].sum())
    assert made.at_least(0.0)[0] == 1.0
    assert made.cdf(-1.0)[0] == 0.0
    assert made.below(0.0)[0] == 0.0
    assert made.between(1.0, 3.0)[0] == pytest.approx(mass[1:3].sum())


@pytest.mark.parametrize("name", LAWS)
def test_a_distribution_is_that_of_scipy(name: str) -> None:
    """Density, distribution function and quantiles of a mixture of two draws, and masses between
    half-way points.
    """
    eta = np.array([[0.5, 1.5]], np.float32)
    noise = np.array([[0.4, 0.9]], np.float32)
    weights = np.array([0.3, 0.7])
    if name == "gaussian":
        parameters = None
        law = stats.norm(1 + eta[0], np.sqrt(noise[0]))
    else:
        parameters = np.array([[[2.0]], [[1.5]]])
        law = stats.t([4, 6], 1 + eta[0], np.sqrt(noise[0]))
    draws = PredictorDraws(eta, noise, np.zeros_like(eta), weights, parameters=parameters)
    values = np.arange(1.0, 30.0)
    made = on_scale(LIKELIHOODS[name], "log").predictive(draws, 1.0, values)
    for x in (0.2, 3.0, 40.0):
        assert made.cdf(x)[0] == pytest.approx(weights @ law.cdf(np.log(x)), rel=1e-6)
        assert made.log_density(x)[0] == pytest.approx(
            np.log(weights @ law.pdf(np.log(x)) / x), rel=1e-6
        )
        assert made.quantile(made.cdf(x))[0] == pytest.approx(x, rel=1e-6)
    assert integrate.quad(lambda x: np.exp(made.log_density(x)[0]), 2, 5)[0] == pytest.approx(
        made.between(2, 5)[0]
    )
    mass = weights @ (law.cdf(np.log(4.5)) - law.cdf(np.log(3.5)))
    assert made.log_probability(np.array([4.0]))[0] == pytest.approx(np.log(mass))
    assert made.cdf(0.0)[0] == made.cdf(-1.0)[0] == 0.0
    assert made.log_at_least(25.0)[0] == pytest.approx(
        np.log(weights @ law.sf(np.log(24.5))), rel=1e-6
    )
    assert made.at_least(3.0)[0] == pytest.approx(1 - weights @ law.cdf(np.log(2.5)))


def test_ratings_without_logarithm_are_refused(runs: Runs, tmp_path: Path) -> None:
    """With their number; so are new ones, and likelihoods with a link of their own."""
    values = np.where(np.arange(len(X)) % 7 == 0, 0, AMOUNTS)
    data = write_cells(
        tmp_path / "zeros.h5", (29, 17), ROWS, COLUMNS, values, np.arange(len(X)) % 5 == 0
    )
    refused = (
        f"{(values == 0).sum()} of {len(X)} ratings are not above 0: leave out --scale, .* suit"
        " --scale log1p"
    )
    with pytest.raises(InputError, match=refused):
        sample(MPI.COMM_SELF, data, tmp_path / "run", scale="log")
    with pytest.raises(
        InputError, match=r"ratings are not whole numbers from 0 on: leave out --scale"
    ):
        sample(MPI.COMM_SELF, data, tmp_path / "run", scale="log1p")
    with pytest.raises(InputError, match="negative-binomial likelihood has no use for --scale"):
        sample(MPI.COMM_SELF, data, tmp_path / "run", scale="log", likelihood="negative-binomial")
    with pytest.raises(InputError, match=r"rating of 0: .* must be above 0"):
        runs[0].fold_in([[999, 1]], [0.0])
