"""Predictive distributions, against the mixture written out in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from runs import Made, make_run
from scipy.stats import norm

from dsgmcmc.errors import InputError
from dsgmcmc.posterior.predict import PredictOptions, Predictor
from dsgmcmc.posterior.run import Run

CASES = {
    "plain": {},
    "transposed, own noise": {"users": 18, "items": 40, "strings": True, "noise": "both", "chains": 2},
    "no biases, dense prior": {"biases": False, "prior": "normal-wishart", "sampler": {"name": "psgld"}}
    | {"iterations": 400, "burn_in": 160, "thin": 6},
    "biases only": {"rank": 0, "noise": "both", "sampler": {"name": "gibbs"}},
}


@pytest.fixture(scope="module", params=CASES)
def finished(request, tmp_path_factory) -> Made:
    return make_run(tmp_path_factory.mktemp("run"), **CASES[request.param])


def components(run: Run, u: int, i: int) -> tuple[np.ndarray, np.ndarray]:
    """Return means and variances of the mixture for one pair by the model's definition."""
    centres, variances = [], []
    for number in range(len(run.draws)):
        draw = run.draw(number)
        w, h = draw.theta["user"][u].astype(float), draw.theta["item"][i].astype(float)
        k = run.config.rank
        centres.append(run.mean + w[:k] @ h[:k] + w[k:].sum() + h[k:].sum())
        variances.append(1 / (draw.tau * draw.noise_scale["user"][u] * draw.noise_scale["item"][i]))
    return np.array(centres), np.array(variances)


def test_a_new_rating_is_the_mixture_over_draws(finished):
    """Mean, sd and quantiles are those of the mixture sum_d w_d N(c_d, v_d)."""
    run = finished.open()
    rng = np.random.default_rng(0)
    users, items = (rng.integers(0, n, 30).astype(np.int32) for n in (len(run.users), len(run.items)))
    predicted = Predictor(run, PredictOptions(interval=0.98))(users, items)
    weights = run.draw_weights
    assert weights.sum() == pytest.approx(1)
    for u, i, mean, sd, low, high in zip(users, items, *predicted, strict=True):
        c, v = components(run, u, i)
        assert mean == pytest.approx(weights @ c, abs=2e-5)
        assert sd == pytest.approx(np.sqrt(weights @ (v + (c - weights @ c) ** 2)), rel=1e-4)
        for level, quantile in ((0.01, low), (0.99, high)):
            assert weights @ norm.cdf((quantile - c) / np.sqrt(v)) == pytest.approx(level, abs=1e-5)


def test_of_the_mean_leaves_out_the_noise(finished):
    """The predictor alone has the sd and the quantiles of the draws."""
    run = finished.open()
    predicted = Predictor(run, PredictOptions(of_mean=True, interval=0.5))(np.int32([4]), np.int32([2]))
    c, _ = components(run, 4, 2)
    assert predicted.sd[0] == pytest.approx(c.std(), rel=1e-3)
    assert np.mean(c <= predicted.low[0]) == pytest.approx(0.25, abs=1 / len(c))
    assert np.mean(c <= predicted.high[0]) == pytest.approx(0.75, abs=1 / len(c))


@pytest.mark.parametrize(("user", "item"), [(-1, 3), (2, -1), (-1, -1)])
def test_the_unknown_have_their_prior(finished, user, item):
    """Unknown users and items are predicted as rows drawn from the prior of every saved draw are."""
    run = finished.open()
    rng = np.random.default_rng(1)
    k, samples = run.config.rank, 4000
    values = []
    for number in range(len(run.draws)):
        draw = run.draw(number)
        w, h = (
            rng.multivariate_normal(draw.prior[kind].mean, draw.prior[kind].covariance, samples)
            if row < 0
            else draw.theta[kind][[row]]
            for kind, row in (("user", user), ("item", item))
        )
        values.append((w[:, :k] * h[:, :k]).sum(axis=1) + w[:, k:].sum(axis=1) + h[:, k:].sum(axis=1))
    values = run.mean + np.concatenate(values)
    predicted = Predictor(run, PredictOptions(of_mean=True))(np.int32([user]), np.int32([item]))
    assert predicted.mean[0] == pytest.approx(values.mean(), abs=5 * values.std() / np.sqrt(len(values)))
    assert predicted.sd[0] == pytest.approx(values.std(), rel=0.02)


def test_options_name_their_quantiles():
    """Column names are part of the files that are written."""
    assert PredictOptions().columns == ("mean", "sd", "q05", "q95")
    assert PredictOptions(interval=0.95).columns == ("mean", "sd", "q025", "q975")
    assert PredictOptions(interval=0.5).columns == ("mean", "sd", "q25", "q75")
    for wrong in (0.0, 1.0, -1.0, float("nan")):
        with pytest.raises(InputError, match="interval"):
            PredictOptions(interval=wrong)


def test_draws_that_are_not_there_are_not_made_up(tmp_path):
    """Without saved draws nothing is predicted, and the message says what to do."""
    run = make_run(tmp_path, save_draws=0, iterations=60).open()
    with pytest.raises(InputError, match="no saved draws to predict from: sample it again without --save-draws 0"):
        Predictor(run, PredictOptions())


def test_draws_beyond_the_limit_of_memory_are_read_again(finished, monkeypatch):
    """Draws that are read again predict as those in memory do, and only the last one stays in memory."""
    kept, users, items = finished.open(), np.int32([4, 3]), np.int32([2, 7])
    expected = Predictor(kept, PredictOptions())(users, items)
    monkeypatch.setattr("dsgmcmc.posterior.run.KEPT_BYTES", 0)
    run = finished.open()
    np.testing.assert_array_equal(Predictor(run, PredictOptions())(users, items), expected)
    assert kept.draw(0) is kept.draw(0)
    assert run.draw(0) is run.draw(0)
    first = run.draw(0)
    run.draw(1)
    assert run.draw(0) is not first
