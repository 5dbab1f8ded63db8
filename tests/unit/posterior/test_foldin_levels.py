"""New rows where ratings are of levels, or counts: drawn rows against the prior's own draws,
weighed by the likelihood.

The reference knows neither modes nor slices: 200,000 rows are drawn from the prior of a saved draw
and weighed by the probability of the new ratings, written down with SciPy.
"""

from typing import Any

import numpy as np
import pytest
from runs import law_of_counts, make_run
from scipy import stats
from scipy.special import expit

from dsgmcmc.errors import InputError
from dsgmcmc.model.likelihoods.ordinal.row_thresholds import MAX_DEVIATION
from dsgmcmc.posterior.cells.predict import Predictor
from dsgmcmc.posterior.cells.predictors import Predictors
from dsgmcmc.posterior.draws import OTHER
from dsgmcmc.posterior.index import Vocabulary
from dsgmcmc.posterior.lists.ranking import Ranking, recommend
from dsgmcmc.posterior.rows.added import FoldIn, RatingsOfRows, fold_in
from dsgmcmc.posterior.rows.new_ratings import NewRatings
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.settings import PredictOptions

OTHERS = np.int32([0, 2, 3, 5, 7, 9])
VALUES = np.array([5.0, 4.0, 5.0, 1.0, 4.0, 5.0])
SEEDS = 300
REFERENCE = 200_000
CASES: dict[str, dict[str, Any]] = {
    "logit with thresholds of users": {"likelihood": "ordinal-logit", "thresholds": "user"},
    "counts": {"likelihood": "negative-binomial"},
    "tails with scales": {"likelihood": "student-t", "noise": "both"},
    "logit with levels of time": {"likelihood": "ordinal-logit", "time_levels": "user:page,item:3"},
}


@pytest.fixture(scope="module", params=CASES, ids=str)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run on stars from 1 to 5; after the usual 120 sweeps rows and scales have not converged."""
    return make_run(
        tmp_path_factory.mktemp("run"), stars=True, iterations=400, **CASES[request.param]
    ).open()


def reference(run: Run, number: int, entity: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the prior with their log scales and log gaps (n, D + m), and their weights, which sum
    to 1.
    """
    rng = np.random.default_rng(0)
    draw = run.draw(number)
    prior = draw.prior[entity]
    other = OTHER[entity]
    theta = rng.multivariate_normal(np.zeros(len(prior.mean)), prior.covariance, REFERENCE)
    theta += prior.mean
    s = np.ones(REFERENCE)
    d = np.zeros((REFERENCE, 0))
    if entity == "user" and run.config.thresholds == "user":
        precision = draw.shared["thresholds.precision"]
        unbounded = rng.normal(0, precision**-0.5, (REFERENCE, len(precision)))
        d = MAX_DEVIATION * np.tanh(unbounded / MAX_DEVIATION)
    if run.config.noise == "both":
        bound = run.config.law.scale_bound
        unbounded = rng.normal(0, draw.shared[f"{entity}.scales"] ** -0.5, REFERENCE)
        s = np.exp(bound * np.tanh(unbounded / bound))
    k = run.config.rank
    log_weight = np.zeros(REFERENCE)
    for j, x in zip(OTHERS, VALUES, strict=True):
        h = draw.theta[other][j].astype(float)
        effects = rng.normal(0, draw.of_ratings(*np.zeros((2, 0), np.int32))[1] ** 0.5, REFERENCE)
        eta = theta[:, :k] @ h[:k] + theta[:, k] + h[k] + effects
        if run.config.likelihood == "negative-binomial":
            law = law_of_counts(draw, eta)
            log_weight += law.logpmf(x) - law.logsf(0)  # stars have no 0
            continue
        if run.config.likelihood == "student-t":
            scale = (draw.tau * s * draw.noise_scale[other][j]) ** -0.5
            log_weight += stats.t.logpdf(x - run.mean, draw.shared["nu"][0], eta, scale)
            continue
        inner = draw.shared["thresholds"]
        if "cuts" in draw.rows["user"] and entity == "item":
            inner = draw.rows["user"]["cuts"][j]
        cuts = of_gaps(inner, d if d.shape[1] else np.zeros((1, 3)))
        scale = s * draw.noise_scale[other][j]
        p = expit(scale * (cuts[:, int(x)] - eta)) - expit(scale * (cuts[:, int(x) - 1] - eta))
        log_weight += np.log(np.maximum(p, 1e-300))
    weight = np.exp(log_weight - log_weight.max())
    return np.column_stack([theta, np.log(s), d]), weight / weight.sum()


def of_gaps(thresholds: np.ndarray, d: np.ndarray) -> np.ndarray:
    """The four thresholds, of which the third stays, between the ends, (n, 6); d changes the
    logarithms of the gaps.
    """
    up = np.pad(np.cumsum(np.diff(thresholds) * np.exp(d), axis=1), ((0, 0), (1, 0)))
    inner = thresholds[2] + up - up[:, 2:3]
    return np.pad(inner, ((0, 0), (1, 1)), constant_values=((0, 0), (-np.inf, np.inf)))


@pytest.mark.parametrize("entity", ["user", "item"])
def test_a_drawn_row_has_the_conditional_law(run: Run, entity: str) -> None:
    """Drawn rows, log scales and log gaps have the means and sds of the reference, to four standard
    errors.
    """
    if entity == "item" and run.config.thresholds == "shared":
        pytest.skip("the same as for users")
    expected, weight = reference(run, len(run.draws) - 1, entity)
    run = Run(run.path)
    run.draws = run.draws[-1:]
    number = 0
    names = Vocabulary(entity, np.arange(-SEEDS, 0))
    repeated = RatingsOfRows(
        np.repeat(np.arange(SEEDS), len(OTHERS)),
        np.tile(OTHERS, SEEDS),
        np.tile(VALUES, SEEDS),
        np.ones(SEEDS * len(OTHERS)),
    )
    law = FoldIn(run, names, repeated).rows(number, np.arange(SEEDS))
    assert not len(law.uncertain)
    drawn = np.column_stack([law.mean, -np.log(law.noise)])
    if law.parameters is not None:
        shared = run.draw(number).shared["thresholds"]
        drawn = np.column_stack([drawn, np.log(np.diff(law.parameters) / np.diff(shared))])
    error = np.sqrt(1 / SEEDS + (weight**2).sum())
    mean = weight @ expected
    sd = np.sqrt(weight @ (expected - mean) ** 2)
    assert (np.abs(np.mean(drawn, axis=0) - mean) <= 4 * sd * error).all()
    assert (
        np.abs(np.std(drawn, axis=0) - sd) <= 4 * sd * error
    ).all()  # tails: 1 / sqrt(2) of this for a normal law


def test_new_rows_are_predicted_and_ranked(run: Run) -> None:
    """A new user who gave four items 5 is predicted to rate them higher than one who gave them
    1.
    """
    run = Run(run.path)
    run.draws = run.draws[:8]
    names = np.repeat([-1, -2], 4)
    items = np.tile(run.items.ids[[0, 2, 3, 5]], 2)
    folded, notes = fold_in(
        run, NewRatings("user", names, items, np.repeat([1.0, 5.0], 4), np.ones(8), {})
    )
    assert not notes
    n = len(run.users)
    users = np.repeat(np.int32([n, n + 1]), len(run.items))
    predicted = Predictor(run, PredictOptions(), folded)(
        users, np.tile(np.arange(len(run.items), dtype=np.int32), 2)
    )
    high, low = predicted.mean.reshape(2, -1)  # -2 comes first
    assert (high > low + 0.5)[[0, 2, 3, 5]].all()
    ((_, items, _),) = recommend(run, np.int32([n]), Ranking(top=3, by="mean"), newcomers=folded)
    assert len(items) == 3
    if run.config.thresholds == "user":
        cuts = folded.rows(0, np.array([0, 1])).parameters
        mixture = Predictors(run, folded).at(np.int32([n + 1, 3, -1]), np.int32([4, 4, 4]))
        draw = run.draw(0)
        used = mixture.parameters[0][mixture.owner]
        expected = [cuts[1], draw.rows["user"]["cuts"][3], draw.shared["thresholds"]]
        np.testing.assert_allclose(used, expected)


def test_a_rating_that_is_no_count_is_refused(run: Run) -> None:
    """Ratings of a new row must be counts under a law of counts; a law of levels takes the next
    level.
    """
    n = run.users.ids[:1]
    for wrong in (-1.0, 2.5):
        new = NewRatings("item", np.array([-1]), n, np.array([wrong]), np.ones(1), {})
        if run.config.likelihood == "negative-binomial":
            with pytest.raises(InputError, match=f"not counts.*: {wrong:g}"):
                fold_in(run, new)
        else:
            fold_in(run, new)
