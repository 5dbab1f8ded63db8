"""Probabilities of levels, against the mixture over draws written out in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from runs import law_of_counts, make_run
from scipy.special import expit
from scipy.stats import norm
from scipy.stats import t as student

from dsgmcmc.posterior.draws import Draw
from dsgmcmc.posterior.predict import PredictOptions, Predictor
from dsgmcmc.posterior.rank import Ranking, recommend
from dsgmcmc.posterior.run import Run

LEVELS = np.arange(1, 6)
USERS, ITEMS = np.int32([0, 4, 7]), np.int32([2, 5, 1])


@pytest.fixture(
    scope="module", params=["ordinal-logit", "own thresholds", "gaussian", "student-t", "negative-binomial"]
)
def run(request, tmp_path_factory) -> Run:
    """A run of every likelihood, with noise of users and items where it has one."""
    settings = {"likelihood": request.param, "noise": "both"}
    if request.param == "negative-binomial":
        settings["noise"] = "shared"
    if request.param == "own thresholds":
        settings |= {"likelihood": "ordinal-logit", "thresholds": "user"}
    return make_run(tmp_path_factory.mktemp("run"), stars=True, **settings).open()


def expected(run: Run, users: np.ndarray, items: np.ndarray) -> np.ndarray:
    """Probabilities of the levels, (q, 5), from the draws."""
    p = np.zeros((len(users), 5))
    for number, weight in enumerate(run.draw_weights):
        draw = run.draw(number)
        w, h = (draw.theta[kind][rows].astype(float) for kind, rows in (("user", users), ("item", items)))
        k = run.config.rank
        eta = (w[:, :k] * h[:, :k]).sum(axis=1) + w[:, k] + h[:, k]
        scale = (draw.noise_scale["user"][users] * draw.noise_scale["item"][items])[:, None]
        away = np.arange(1.5, 5) - run.mean - eta[:, None]
        if run.config.likelihood == "negative-binomial":
            up_to = count_probabilities(draw, eta, 4)[:, 1:].cumsum(axis=1)
        elif run.config.likelihood == "student-t":
            up_to = student.cdf(away * np.sqrt(draw.tau * scale), draw.shared["nu"][0])
        elif draw.thresholds is None:
            up_to = norm.cdf(away * np.sqrt(draw.tau * scale))
        else:
            thresholds = draw.thresholds if draw.user_thresholds is None else draw.user_thresholds[users]
            up_to = expit(scale * (thresholds - eta[:, None]))
        p += weight * np.diff(np.column_stack([np.zeros(len(users)), up_to, np.ones(len(users))]), axis=1)
    return p


def count_probabilities(draw: Draw, eta: np.ndarray, most: int) -> np.ndarray:
    """Probabilities of the counts 0 .. `most` of predictors at a draw; stars have no 0."""
    assert (draw.shared["counts.ceiling"][0], draw.shared["counts.least"][0]) == (50.0, 1.0)
    law = law_of_counts(draw, eta[:, None])
    return law.pmf(np.arange(most + 1)) * np.arange(most + 1).clip(0, 1) / law.sf(0)


def test_predictions_have_the_probabilities_of_the_mixture(run: Run) -> None:
    """Levels have the probabilities of the mixture, and ordinal predictions the mean, sd and quantiles of these."""
    p = expected(run, USERS, ITEMS)
    columns = Predictor(run, PredictOptions(at_least=4.0, probabilities=True)).columns(USERS, ITEMS)
    np.testing.assert_allclose(np.stack([columns[f"p_{level}"] for level in LEVELS], axis=1), p, atol=2e-5)
    np.testing.assert_allclose(columns["at_least_4"], p[:, 3:].sum(axis=1), atol=2e-5)
    if run.config.likelihood == "ordinal-logit":
        np.testing.assert_allclose(columns["mean"], p @ LEVELS, rtol=1e-5)
        np.testing.assert_allclose(columns["sd"] ** 2, p @ LEVELS**2 - (p @ LEVELS) ** 2, rtol=1e-3)
        np.testing.assert_array_equal(columns["q95"], LEVELS[(np.cumsum(p, axis=1) < 0.95).sum(axis=1)])


@pytest.mark.parametrize("run", ["negative-binomial"], indirect=True)
def test_counts_are_predicted_by_the_mixture_of_their_laws(run: Run) -> None:
    """Counts have the mean, sd and quantiles of the mixture, for an unknown user by a quadrature over its prior."""
    counts = np.arange(200)
    users, items = np.append(USERS, -1).astype(np.int32), np.append(ITEMS, 3).astype(np.int32)
    nodes, shares = np.polynomial.hermite_e.hermegauss(61)
    p = np.zeros((len(users), len(counts)))
    for number, weight in enumerate(run.draw_weights):
        draw, k = run.draw(number), run.config.rank
        w, h = draw.theta["user"][USERS].astype(float), draw.theta["item"][items].astype(float)
        prior, phi = draw.unseen["user"], np.append(h[3, :k], 1.0)
        unknown = phi @ prior.mean + h[3, k] + nodes * np.sqrt(phi @ prior.covariance @ phi)
        eta = np.append((w[:, :k] * h[:3, :k]).sum(axis=1) + w[:, k] + h[:3, k], unknown)
        of_eta = count_probabilities(draw, eta, 199)
        p += weight * np.vstack([of_eta[:3], shares @ of_eta[3:] / shares.sum()])
    predicted, mean = Predictor(run, PredictOptions())(users, items), p @ counts
    np.testing.assert_allclose(predicted.mean, mean, rtol=1e-5)
    np.testing.assert_allclose(predicted.sd, np.sqrt(p @ counts**2 - mean**2), rtol=1e-4)
    for values, level in ((predicted.low, 0.05), (predicted.high, 0.95)):
        np.testing.assert_array_equal(values, (np.cumsum(p, axis=1) < level).sum(axis=1))


def test_items_are_ranked_by_what_is_asked_for(run: Run) -> None:
    """Items are ranked by the probability of at least 4, or by the expected level where ratings are levels."""
    n = len(run.items)
    p = expected(run, np.full(n, 3), np.arange(n))
    ((_, items, score),) = recommend(run, np.int32([3]), Ranking(n, "mean", at_least=4.0))
    np.testing.assert_allclose(score, p[items, 3:].sum(axis=1), atol=2e-5)
    assert (np.diff(score) <= 0).all()
    if run.config.likelihood == "ordinal-logit":
        ((_, items, score),) = recommend(run, np.int32([3]), Ranking(n, "mean"))
        np.testing.assert_allclose(score, p[items] @ LEVELS, rtol=1e-4)
