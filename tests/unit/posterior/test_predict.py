"""Predictive distributions and probabilities of levels, against the mixture over draws written out
in NumPy.
"""

import sys

import numpy as np
import pytest
from runs import Made, law_of_counts, make_run
from scipy.special import expit
from scipy.stats import norm
from scipy.stats import t as student
from support import run as run_program

from dsgmcmc import open_run
from dsgmcmc.errors import InputError
from dsgmcmc.posterior.cells.predict import Predictor
from dsgmcmc.posterior.draws import Draw
from dsgmcmc.posterior.lists.ranking import Ranking, recommend
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.settings import PredictOptions

CASES = {
    "plain": {},
    "transposed, own noise": {
        "users": 18,
        "items": 40,
        "strings": True,
        "noise": "both",
        "chains": 2,
    },
    "no biases, dense prior": {
        "biases": False,
        "prior": "normal-wishart",
        "sampler": {"name": "psgld"},
    }
    | {"iterations": 400, "burn_in": 160, "thin": 6},
    "biases only": {"rank": 0, "noise": "both", "sampler": {"name": "gibbs"}},
}


@pytest.fixture(scope="module", params=CASES)
def finished(request, tmp_path_factory) -> Made:
    return make_run(tmp_path_factory.mktemp("run"), **CASES[request.param])


def predictors(run: Run, draw: Draw, users: np.ndarray, items: np.ndarray) -> np.ndarray:
    """W_i . H_j + a_i + b_j of pairs at a draw."""
    w = draw.theta["user"][users].astype(float)
    h = draw.theta["item"][items].astype(float)
    k = run.config.rank
    return (w[:, :k] * h[:, :k]).sum(axis=1) + w[:, k:].sum(axis=1) + h[:, k:].sum(axis=1)


def components(run: Run, u: int, i: int) -> tuple[np.ndarray, np.ndarray]:
    """Return means and variances of the mixture for one pair by the model's definition."""
    centres = []
    variances = []
    for number in range(len(run.draws)):
        draw = run.draw(number)
        centres.append(run.mean + predictors(run, draw, [u], [i])[0])
        variances.append(1 / (draw.tau * draw.noise_scale["user"][u] * draw.noise_scale["item"][i]))
    return np.array(centres), np.array(variances)


def test_a_new_rating_is_the_mixture_over_draws(finished):
    """Mean, sd and quantiles are those of the mixture sum_d w_d N(c_d, v_d)."""
    run = finished.run
    rng = np.random.default_rng(0)
    users, items = (
        rng.integers(0, n, 30).astype(np.int32) for n in (len(run.users), len(run.items))
    )
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
    run = finished.run
    predicted = Predictor(run, PredictOptions(of_mean=True, interval=0.5))(
        np.int32([4]), np.int32([2])
    )
    c, _ = components(run, 4, 2)
    assert predicted.sd[0] == pytest.approx(c.std(), rel=1e-3)
    assert np.mean(c <= predicted.low[0]) == pytest.approx(0.25, abs=1 / len(c))
    assert np.mean(c <= predicted.high[0]) == pytest.approx(0.75, abs=1 / len(c))


@pytest.mark.parametrize(("user", "item"), [(-1, 3), (2, -1), (-1, -1)])
def test_the_unknown_have_their_prior(finished, user, item):
    """Unknown users and items are predicted as rows drawn from the prior of every saved draw
    are.
    """
    run = finished.run
    rng = np.random.default_rng(1)
    k = run.config.rank
    samples = 4000
    values = []

    def rows(draw, entity, row):
        """The row of a known user or item, (1, D), or samples of the prior."""
        if row >= 0:
            return draw.theta[entity][[row]]
        prior = draw.prior[entity]
        # the mean over scales of the row: nu / (nu - 2), where its prior has a scale
        covariance = prior.covariance * draw.new_inverse_scale[entity]
        return rng.multivariate_normal(prior.mean, covariance, samples)

    for number in range(len(run.draws)):
        draw = run.draw(number)
        w = rows(draw, "user", user)
        h = rows(draw, "item", item)
        values.append(
            (w[:, :k] * h[:, :k]).sum(axis=1) + w[:, k:].sum(axis=1) + h[:, k:].sum(axis=1)
        )
    values = run.mean + np.concatenate(values)
    predicted = Predictor(run, PredictOptions(of_mean=True))(np.int32([user]), np.int32([item]))
    assert predicted.mean[0] == pytest.approx(
        values.mean(), abs=5 * values.std() / np.sqrt(len(values))
    )
    assert predicted.sd[0] == pytest.approx(values.std(), rel=0.02)


def test_options_name_their_quantiles():
    """Column names are part of the files that are written."""
    assert PredictOptions().predicted_columns == ("mean", "sd", "q05", "q95")
    assert PredictOptions(interval=0.95).predicted_columns == ("mean", "sd", "q025", "q975")
    assert PredictOptions(interval=0.5).predicted_columns == ("mean", "sd", "q25", "q75")
    for wrong in (0.0, 1.0, -1.0, float("nan")):
        with pytest.raises(InputError, match="interval"):
            PredictOptions(interval=wrong)


def test_draws_that_are_not_there_are_not_made_up(tmp_path):
    """Without saved draws nothing is predicted, and the message says what to do."""
    run = make_run(tmp_path, save_draws=0, iterations=60).open()
    with pytest.raises(
        InputError, match="no saved draws to predict from: sample it again without --save-draws 0"
    ):
        Predictor(run, PredictOptions())


def test_draws_beyond_the_limit_of_memory_are_read_again(finished, monkeypatch):
    """Draws that are read again predict as those in memory do, and only the last one stays in
    memory.
    """
    kept = finished.open()
    users = np.int32([4, 3])
    items = np.int32([2, 7])
    expected = Predictor(kept, PredictOptions())(users, items)
    monkeypatch.setattr("dsgmcmc.posterior.run.KEPT_BYTES", 0)
    run = finished.open()
    np.testing.assert_array_equal(Predictor(run, PredictOptions())(users, items), expected)
    assert kept.draw(0) is kept.draw(0)
    assert run.draw(0) is run.draw(0)
    first = run.draw(0)
    run.draw(1)
    assert run.draw(0) is not first


def test_some_draws_stay_in_memory_and_the_others_are_read_one_by_one(finished, monkeypatch):
    """The first draws come side by side, the others alone; all are those of a run in memory."""
    run = finished.open()
    everything = range(len(run.draws))
    (together,) = run.batches(everything)
    n_bytes = sum(array.nbytes for rows in together.rows.values() for array in rows.values())
    n_bytes += sum(array.nbytes for array in together.inverse_scale.values())
    monkeypatch.setattr("dsgmcmc.posterior.run.KEPT_BYTES", 3 * n_bytes // len(run.draws))
    partly = finished.open()
    batches = list(partly.batches(everything))
    assert [len(batch.tau) for batch in batches] == [3] + [1] * (len(run.draws) - 3)
    for entity in ("user", "item"):
        np.testing.assert_array_equal(
            np.concatenate([batch.theta[entity] for batch in batches]), together.theta[entity]
        )
    np.testing.assert_array_equal(np.concatenate([batch.tau for batch in batches]), together.tau)
    for position, batch in zip([4, 1, 0], partly.batches([4, 1, 0]), strict=True):
        np.testing.assert_array_equal(batch.theta["user"][0], run.draw(position).theta["user"])


# ---------------------------------------------------------------------- every likelihood

LEVELS = np.arange(1, 6)
USERS = np.int32([0, 4, 7])
ITEMS = np.int32([2, 5, 1])


@pytest.fixture(
    scope="module",
    params=["ordinal-logit", "own thresholds", "gaussian", "student-t", "negative-binomial"],
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
        eta = predictors(run, draw, users, items)
        scale = (draw.noise_scale["user"][users] * draw.noise_scale["item"][items])[:, None]
        away = np.arange(1.5, 5) - run.mean - eta[:, None]
        if run.config.likelihood == "negative-binomial":
            up_to = count_probabilities(draw, eta, 4)[:, 1:].cumsum(axis=1)
        elif run.config.likelihood == "student-t":
            up_to = student.cdf(away * np.sqrt(draw.tau * scale), draw.shared["nu"][0])
        elif "thresholds" not in draw.shared:
            up_to = norm.cdf(away * np.sqrt(draw.tau * scale))
        else:
            thresholds = draw.shared["thresholds"]
            if "cuts" in draw.rows["user"]:
                thresholds = draw.rows["user"]["cuts"][users]
            up_to = expit(scale * (thresholds - eta[:, None]))
        p += weight * np.diff(
            np.column_stack([np.zeros(len(users)), up_to, np.ones(len(users))]), axis=1
        )
    return p


def count_probabilities(draw: Draw, eta: np.ndarray, most: int) -> np.ndarray:
    """Probabilities of the counts 0 .. `most` of predictors at a draw; stars have no 0."""
    assert (draw.shared["counts.ceiling"][0], draw.shared["counts.least"][0]) == (50.0, 1.0)
    law = law_of_counts(draw, eta[:, None])
    return law.pmf(np.arange(most + 1)) * np.arange(most + 1).clip(0, 1) / law.sf(0)


def test_predictions_have_the_probabilities_of_the_mixture(run: Run) -> None:
    """Levels have the probabilities of the mixture, and ordinal predictions the mean, sd and
    quantiles of these.
    """
    p = expected(run, USERS, ITEMS)
    columns = Predictor(run, PredictOptions(at_least=4.0, probabilities=True)).columns(USERS, ITEMS)
    np.testing.assert_allclose(
        np.stack([columns[f"p_{level}"] for level in LEVELS], axis=1), p, atol=2e-5
    )
    np.testing.assert_allclose(columns["at_least_4"], p[:, 3:].sum(axis=1), atol=2e-5)
    if run.config.likelihood == "ordinal-logit":
        np.testing.assert_allclose(columns["mean"], p @ LEVELS, rtol=1e-5)
        np.testing.assert_allclose(columns["sd"] ** 2, p @ LEVELS**2 - (p @ LEVELS) ** 2, rtol=1e-3)
        np.testing.assert_array_equal(
            columns["q95"], LEVELS[(np.cumsum(p, axis=1) < 0.95).sum(axis=1)]
        )


@pytest.mark.parametrize("run", ["negative-binomial"], indirect=True)
def test_counts_are_predicted_by_the_mixture_of_their_laws(run: Run) -> None:
    """Counts have the mean, sd and quantiles of the mixture, for an unknown user by a quadrature
    over its prior.
    """
    counts = np.arange(200)
    users = np.append(USERS, -1).astype(np.int32)
    items = np.append(ITEMS, 3).astype(np.int32)
    nodes, shares = np.polynomial.hermite_e.hermegauss(61)
    p = np.zeros((len(users), len(counts)))
    for number, weight in enumerate(run.draw_weights):
        draw = run.draw(number)
        k = run.config.rank
        prior = draw.unseen["user"]
        h = draw.theta["item"][3].astype(float)
        phi = np.append(h[:k], 1.0)
        unknown = phi @ prior.mean + h[k] + nodes * np.sqrt(phi @ prior.covariance @ phi)
        eta = np.append(predictors(run, draw, USERS, ITEMS), unknown)
        of_eta = count_probabilities(draw, eta, 199)
        p += weight * np.vstack([of_eta[:3], shares @ of_eta[3:] / shares.sum()])
    predicted = Predictor(run, PredictOptions())(users, items)
    mean = p @ counts
    np.testing.assert_allclose(predicted.mean, mean, rtol=1e-5)
    np.testing.assert_allclose(predicted.sd, np.sqrt(p @ counts**2 - mean**2), rtol=1e-4)
    for values, level in ((predicted.low, 0.05), (predicted.high, 0.95)):
        np.testing.assert_array_equal(values, (np.cumsum(p, axis=1) < level).sum(axis=1))


def test_items_are_ranked_by_what_is_asked_for(run: Run) -> None:
    """Items are ranked by the probability of at least 4, or by the expected level where ratings are
    levels.
    """
    n = len(run.items)
    p = expected(run, np.full(n, 3), np.arange(n))
    ((_, items, score),) = recommend(run, np.int32([3]), Ranking(top=n, by="mean", at_least=4.0))
    np.testing.assert_allclose(score, p[items, 3:].sum(axis=1), atol=2e-5)
    assert (np.diff(score) <= 0).all()
    if run.config.likelihood == "ordinal-logit":
        ((_, items, score),) = recommend(run, np.int32([3]), Ranking(top=n, by="mean"))
        np.testing.assert_allclose(score, p[items] @ LEVELS, rtol=1e-4)


@pytest.mark.parametrize("likelihood", ["gaussian", "ordinal-logit"])
def test_a_process_predicts_without_numba(tmp_path, likelihood):
    """Importing Numba takes longer than all else that a prediction needs."""
    made = make_run(tmp_path, stars=True, likelihood=likelihood)
    pair = [[made.users[0], made.items[0]]]
    expected = open_run(made.path).predict_interval(pair)  # compiles what is missing
    done = run_program(
        sys.executable,
        "-c",
        f"import sys\nfrom dsgmcmc import open_run\nmodel = open_run({str(made.path)!r})\n"
        f"low, high = model.predict_interval({pair})\n"
        "print(low[0], high[0], 'numba' in sys.modules)",
    )
    low, high, imported = done.expect().out.split()
    assert ([float(low)], [float(high)], imported) == (*map(list, expected), "False")


@pytest.mark.parametrize("likelihood", ["gaussian", "ordinal-logit"])
@pytest.mark.parametrize("rule", ["likely", "mean", "lcb"])
def test_a_process_recommends_without_numba(tmp_path, likelihood, rule):
    """Importing Numba takes longer than all else that a recommendation needs."""
    made = make_run(tmp_path, users=30, items=24, stars=True, likelihood=likelihood)
    users = [made.users[0]]
    expected = open_run(made.path).recommend(users, n=5, by=rule)  # compiles what is missing
    done = run_program(
        sys.executable,
        "-c",
        f"import sys\nfrom dsgmcmc import open_run\nmodel = open_run({str(made.path)!r})\n"
        f"best = model.recommend({users}, n=5, by={rule!r})\n"
        "print(*best['score'].tolist(), 'numba' in sys.modules)",
    )
    *scores, imported = done.expect().out.split()
    assert [float(score) for score in scores] == expected["score"].tolist()
    assert imported == "False"
