"""Probabilities of levels, against the mixture over draws written out in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from runs import Made, make_run
from scipy.special import expit
from scipy.stats import norm

from dsgmcmc.errors import InputError
from dsgmcmc.posterior.foldin import FoldIn
from dsgmcmc.posterior.names import Vocabulary
from dsgmcmc.posterior.predict import Options, Predictor
from dsgmcmc.posterior.probabilities import predict_columns
from dsgmcmc.posterior.recommend import recommend
from dsgmcmc.posterior.rules import Ranking

LEVELS = np.arange(1, 6)
USERS, ITEMS = np.int32([0, 4, 7]), np.int32([2, 5, 1])


@pytest.fixture(scope="module", params=["ordinal-logit", "gaussian"])
def made(request, tmp_path_factory) -> Made:
    return make_run(tmp_path_factory.mktemp("run"), stars=True, likelihood=request.param, noise="both")


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
        if draw.thresholds is None:
            up_to = norm.cdf((np.arange(1.5, 5) - run.mean - eta[:, None]) * np.sqrt(draw.tau * scale))
        else:
            up_to = expit(scale * (draw.thresholds - eta[:, None]))
        found += weight * np.diff(np.column_stack([np.zeros(len(users)), up_to, np.ones(len(users))]), axis=1)
    return found


def test_predictions_have_the_probabilities_of_the_mixture(made: Made) -> None:
    """Of every level and of at least 4; of an ordinal likelihood mean, sd and quantiles are of them."""
    run, p = made.open(), expected(made, USERS, ITEMS)
    found = predict_columns(Predictor(run, Options(at_least=4.0, probabilities=True)), USERS, ITEMS)
    np.testing.assert_allclose(np.stack([found[f"p_{level}"] for level in LEVELS], axis=1), p, atol=2e-5)
    np.testing.assert_allclose(found["at_least_4"], p[:, 3:].sum(axis=1), atol=2e-5)
    if run.config.law.has_levels:
        np.testing.assert_allclose(found["mean"], p @ LEVELS, rtol=1e-5)
        np.testing.assert_allclose(found["sd"] ** 2, p @ LEVELS**2 - (p @ LEVELS) ** 2, rtol=1e-3)
        np.testing.assert_array_equal(found["q95"], LEVELS[(np.cumsum(p, axis=1) < 0.95).sum(axis=1)])


def test_items_are_ranked_by_what_is_asked_for(made: Made) -> None:
    """By the probability of at least 4; by the expected level where ratings are of levels."""
    run = made.open()
    n = len(run.items)
    p = expected(made, np.full(n, 3), np.arange(n))
    ((_, items, score),) = recommend(run, np.int32([3]), Ranking(top=n, at_least=4.0))
    np.testing.assert_allclose(score, p[items, 3:].sum(axis=1), atol=2e-5)
    assert (np.diff(score) <= 0).all()
    if run.config.law.has_levels:
        ((_, items, score),) = recommend(run, np.int32([3]), Ranking(top=n))
        np.testing.assert_allclose(score, p[items] @ LEVELS, rtol=1e-4)


def test_what_levels_cannot_do_is_said(made: Made) -> None:
    """A fold-in is exact or refused; an expectation has no probability."""
    with pytest.raises(InputError, match="leave one out"):
        Options(of_mean=True, at_least=4.0)
    run = made.open()
    if run.config.law.has_levels:
        with pytest.raises(InputError, match="sample again with the new ratings"):
            FoldIn(run, "user", Vocabulary("user", np.array([-5])), np.zeros(1, int), np.zeros(1, np.int32), np.ones(1))
