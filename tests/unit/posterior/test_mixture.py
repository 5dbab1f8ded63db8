"""Probabilities of levels, against the mixture over draws written out in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from runs import Made, make_run
from scipy.special import expit
from scipy.stats import nbinom, norm
from scipy.stats import t as student

from dsgmcmc.posterior.predict import PredictOptions, Predictor
from dsgmcmc.posterior.rank import Ranking, recommend

LEVELS = np.arange(1, 6)
USERS, ITEMS = np.int32([0, 4, 7]), np.int32([2, 5, 1])


@pytest.fixture(scope="module", params=["ordinal-logit", "own", "gaussian", "student-t", "negative-binomial"])
def made(request, tmp_path_factory) -> Made:
    noise = "shared" if request.param == "negative-binomial" else "both"
    settings = {"likelihood": request.param, "noise": noise}
    if request.param == "own":
        settings |= {"likelihood": "ordinal-logit", "thresholds": "user"}
    return make_run(tmp_path_factory.mktemp("run"), stars=True, **settings)


def expected(made: Made, users: np.ndarray, items: np.ndarray) -> np.ndarray:
    """Probabilities of the levels, (q, 5), from the draws."""
    run = made.open()
    found = np.zeros((len(users), 5))
    for number, weight in enumerate(run.draw_weights):
        draw = run.draw(number)
        w, h = (draw.theta[kind][rows].astype(float) for kind, rows in (("user", users), ("item", items)))
        k = run.config.rank
        eta = (w[:, :k] * h[:, :k]).sum(axis=1) + w[:, k] + h[:, k]
        scale = (draw.noise_scale["user"][users] * draw.noise_scale["item"][items])[:, None]
        if run.config.likelihood == "negative-binomial":
            up_to = of_counts(draw, eta).cdf(np.arange(1.5, 5))
        elif run.config.likelihood == "student-t":
            away = (np.arange(1.5, 5) - run.mean - eta[:, None]) * np.sqrt(draw.tau * scale)
            up_to = student.cdf(away, draw.shared["nu"][0])
        elif draw.thresholds is None:
            up_to = norm.cdf((np.arange(1.5, 5) - run.mean - eta[:, None]) * np.sqrt(draw.tau * scale))
        else:
            own = draw.thresholds if draw.own_thresholds is None else draw.own_thresholds[users]
            up_to = expit(scale * (own - eta[:, None]))
        found += weight * np.diff(np.column_stack([np.zeros(len(users)), up_to, np.ones(len(users))]), axis=1)
    return found


class Above:
    """Counts above 0."""

    def __init__(self, law):
        self.law = law

    def cdf(self, k):
        return np.maximum(self.law.cdf(k) - self.law.pmf(0), 0) / self.law.sf(0)

    def pmf(self, k):
        return np.where(k > 0, self.law.pmf(k) / self.law.sf(0), 0.0)


def of_counts(draw, eta: np.ndarray) -> Above:
    """Law of the counts of these predictors at a draw; stars have no 0."""
    r, top = draw.shared["dispersion"][0], draw.shared["counts.ceiling"][0]
    assert (top, draw.shared["counts.least"][0]) == (50.0, 1.0)
    rate = 1 / (np.exp(-eta.astype(float)) + 1 / top)
    return Above(nbinom(r, r / (r + rate[:, None])))


def test_predictions_have_the_probabilities_of_the_mixture(made: Made) -> None:
    """Of every level and of at least 4; of an ordinal likelihood mean, sd and quantiles are of them."""
    run, p = made.open(), expected(made, USERS, ITEMS)
    found = Predictor(run, PredictOptions(at_least=4.0, probabilities=True)).columns(USERS, ITEMS)
    np.testing.assert_allclose(np.stack([found[f"p_{level}"] for level in LEVELS], axis=1), p, atol=2e-5)
    np.testing.assert_allclose(found["at_least_4"], p[:, 3:].sum(axis=1), atol=2e-5)
    if run.config.likelihood == "ordinal-logit":
        np.testing.assert_allclose(found["mean"], p @ LEVELS, rtol=1e-5)
        np.testing.assert_allclose(found["sd"] ** 2, p @ LEVELS**2 - (p @ LEVELS) ** 2, rtol=1e-3)
        np.testing.assert_array_equal(found["q95"], LEVELS[(np.cumsum(p, axis=1) < 0.95).sum(axis=1)])


@pytest.mark.parametrize("made", ["negative-binomial"], indirect=True)
def test_counts_are_predicted_by_the_mixture_of_their_laws(made: Made) -> None:
    """Mean, sd and quantiles of pairs that are known, and of a user who is not, by a quadrature over its prior."""
    run, counts = made.open(), np.arange(200)
    users, items = np.append(USERS, -1).astype(np.int32), np.append(ITEMS, 3).astype(np.int32)
    nodes, shares = np.polynomial.hermite_e.hermegauss(61)
    p = np.zeros((len(users), len(counts)))
    for number, weight in enumerate(run.draw_weights):
        draw, k = run.draw(number), run.config.rank
        w, h = draw.theta["user"][USERS].astype(float), draw.theta["item"][items].astype(float)
        prior, phi = draw.unseen["user"], np.append(h[3, :k], 1.0)
        unknown = phi @ prior.mean + h[3, k] + nodes * np.sqrt(phi @ prior.covariance @ phi)
        eta = np.append((w[:, :k] * h[:3, :k]).sum(axis=1) + w[:, k] + h[:3, k], unknown)
        of_eta = of_counts(draw, eta).pmf(counts)
        p += weight * np.vstack([of_eta[:3], shares @ of_eta[3:] / shares.sum()])
    found, mean = Predictor(run, PredictOptions())(users, items), p @ counts
    np.testing.assert_allclose(found.mean, mean, rtol=1e-5)
    np.testing.assert_allclose(found.sd, np.sqrt(p @ counts**2 - mean**2), rtol=1e-4)
    for values, level in ((found.low, 0.05), (found.high, 0.95)):
        np.testing.assert_array_equal(values, (np.cumsum(p, axis=1) < level).sum(axis=1))


def test_items_are_ranked_by_what_is_asked_for(made: Made) -> None:
    """By the probability of at least 4; by the expected level where ratings are of levels."""
    run = made.open()
    n = len(run.items)
    p = expected(made, np.full(n, 3), np.arange(n))
    ((_, items, score),) = recommend(run, np.int32([3]), Ranking(n, "mean", at_least=4.0))
    np.testing.assert_allclose(score, p[items, 3:].sum(axis=1), atol=2e-5)
    assert (np.diff(score) <= 0).all()
    if run.config.likelihood == "ordinal-logit":
        ((_, items, score),) = recommend(run, np.int32([3]), Ranking(n, "mean"))
        np.testing.assert_allclose(score, p[items] @ LEVELS, rtol=1e-4)
