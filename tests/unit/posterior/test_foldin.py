"""New rows: against the conditional law written out by quadrature-free algebra, and against
training with them.
"""

import numpy as np
import pytest
from runs import given_ratings, make_run
from scipy import stats

from dsgmcmc.posterior.cells.predict import Predictor
from dsgmcmc.posterior.draws import ENTITIES, OTHER
from dsgmcmc.posterior.index import Vocabulary
from dsgmcmc.posterior.lists.exposure_of_run import exposure_of, exposures
from dsgmcmc.posterior.lists.ranking import Ranking, Scorer, _can_be_screened, recommend
from dsgmcmc.posterior.rows.added import FoldIn, RatingsOfRows, fold_in, training_ratings
from dsgmcmc.posterior.rows.new_ratings import NewRatings
from dsgmcmc.posterior.settings import PredictOptions


@pytest.fixture
def run(finished):
    """The first draws of the run."""
    run = finished.open()
    run.draws = run.draws[:15]
    return run


def fold(run, entity: str = "user") -> FoldIn:
    """Two new rows, the first with three ratings and the second with one."""
    vocabulary = Vocabulary(entity, np.array([-1, -2], np.int64))
    ratings = RatingsOfRows(
        rows=np.array([1, 0, 0, 0]),
        others=np.int32([2, 0, 5, 7]),
        values=np.array([3.0, 4.5, 2.0, 5.0]),
        weights=np.ones(4),
    )
    return FoldIn(run, vocabulary, ratings)


def check_distribution(run, entity, number, prior_mean):
    """Compare new rows at a draw with the normal distribution given their ratings.

    `prior_mean` is a function of a draw and of the rows that are rated.
    """
    folded = fold(run, entity)
    rows = folded.rows(number, np.array([0, 1]))
    for which, (others, values) in enumerate((([0, 5, 7], [4.5, 2.0, 5.0]), ([2], [3.0]))):
        prior = prior_mean(run.draw(number), others)
        mean, covariance = given_ratings(run, entity, number, prior, others, values)
        np.testing.assert_allclose(rows.mean[which], mean, atol=1e-6)
        np.testing.assert_allclose(rows.covariance[which], covariance, atol=1e-8)


@pytest.mark.parametrize("likelihood", ["gaussian", "student-t"])
def test_the_noise_of_a_new_row_is_at_least_that_of_rounding(tmp_path, likelihood):
    """A step of 2 has rounding errors of more variance than the noise of these ratings."""
    run = make_run(tmp_path, iterations=50, noise="both", likelihood=likelihood).open()
    least = 2.0**2 / 12

    def smallest_variances():
        folded = fold(run)
        for number in range(len(run.draws)):
            draw = run.draw(number)
            rows = folded.rows(number, np.array([0, 1]))
            yield rows.noise.min() / (draw.tau * draw.noise_scale["item"].max())

    assert min(smallest_variances()) < least
    run.facts["resolution"] = 2.0
    run.kept.clear()  # rows that were computed before
    assert min(smallest_variances()) >= least * (1 - 1e-6)


@pytest.mark.parametrize("entity", ["user", "item"])
def test_the_law_of_a_new_row_is_the_conditional_given_a_draw(run, entity):
    """A new row has the joint normal distribution with its ratings, conditioned on these."""
    for number in (0, len(run.draws) - 1):
        check_distribution(run, entity, number, lambda draw, others: draw.prior[entity].mean)


def test_a_new_row_has_the_implicit_features_of_what_it_rated(tmp_path):
    """The implicit features of rated items shift the prior mean; without ratings the prior is
    wider.
    """
    run = make_run(tmp_path, iterations=50, implicit_features="both").open()
    for entity in ENTITIES:

        def shifted(draw, others, entity=entity):
            implicit = draw.rows[OTHER[entity]]["implicit"][others]
            return draw.prior[entity].mean + implicit.sum(axis=0) / np.sqrt(len(others))

        check_distribution(run, entity, len(run.draws) - 1, shifted)
        draw = run.draw(len(run.draws) - 1)
        assert np.abs(shifted(draw, [0, 5, 7]) - draw.prior[entity].mean).max() > 1e-3
        assert (
            np.diag(draw.unseen[entity].covariance) > np.diag(draw.prior[entity].covariance)
        ).all()


def test_predictions_of_new_rows_carry_their_uncertainty(run):
    """Predictions of new rows have the mean, sd and quantile of sampled rows."""
    folded = fold(run)
    n = len(run.users)
    users = np.int32([n, n + 1, 3])
    items = np.int32([4, 4, 4])
    predicted = Predictor(run, PredictOptions(of_mean=True), folded)(users, items)
    rng = np.random.default_rng(0)
    for which in (0, 1):
        values = []
        for number in range(len(run.draws)):
            law = folded.rows(number, np.array([which]))
            w = rng.multivariate_normal(law.mean[0], law.covariance[0], 4000)
            h = run.draw(number).theta["item"][4]
            values.append(run.mean + w[:, :3] @ h[:3] + w[:, 3] + h[3])
        values = np.concatenate(values)
        assert predicted.mean[which] == pytest.approx(
            values.mean(), abs=5 * values.std() / np.sqrt(len(values))
        )
        assert predicted.sd[which] == pytest.approx(values.std(), rel=0.03)
        assert predicted.low[which] == pytest.approx(np.quantile(values, 0.05), abs=0.06)
    known = Predictor(run, PredictOptions(of_mean=True))(users[2:], items[2:])
    np.testing.assert_allclose([values[2] for values in predicted], [values[0] for values in known])


def test_new_users_get_the_best_of_all_items(tmp_path):
    """Their lists are those of all scores, though few items are scored: exposure bounds scores."""
    run = make_run(tmp_path, users=30, items=60, stars=True).open()
    folded = fold(run)
    users = np.arange(2, dtype=np.int32) + np.int32(len(run.users))
    ranking = Ranking(top=4)
    scorer = Scorer(run, ranking, folded)
    assert _can_be_screened(scorer, users, 4)
    rated = [folded.rated(row) for row in range(2)]
    history = [folded.rated(row, exposure_of(run).liked) for row in range(2)]
    scores = scorer.scores(users, 0) + np.log(exposures(run, "auto", history))
    for row, items in zip(scores, rated, strict=True):
        row[items] = -np.inf
    best = np.argsort(-scores, axis=1, kind="stable")[:, :4]
    (ranked,) = recommend(run, users, ranking, newcomers=folded)
    np.testing.assert_array_equal(ranked.items.reshape(2, 4), best)
    expected = np.exp(np.take_along_axis(scores, best, axis=1))
    np.testing.assert_allclose(ranked.scores.reshape(2, 4), expected, rtol=1e-6)


def test_thompson_sampling_draws_the_rows_of_new_users(run):
    """The scores of an item vary over seeds as its predictor does, with the uncertainty of the
    user's row.
    """
    folded = fold(run)
    n = len(run.users)
    user = np.int32([n + 1])
    items = np.arange(len(run.items), dtype=np.int32)
    scores = np.full((200, len(items)), np.nan)
    for seed in range(200):
        ranking = Ranking(top=len(items), by="thompson", seed=seed, include_rated=True)
        _, of_seed, score = next(iter(recommend(run, user, ranking, newcomers=folded)))
        scores[seed, of_seed] = score
    values = Predictor(run, PredictOptions(of_mean=True), folded)(
        np.repeat(user, len(items)), items
    )
    assert np.abs((scores.mean(axis=0) - values.mean) / (values.sd / np.sqrt(200))).max() < 5
    assert np.abs(scores.std(axis=0) / values.sd - 1).max() < 0.35


def test_own_noise_of_new_users_is_inferred(tmp_path):
    """A user whose ratings scatter has a wider predictive interval than one whose ratings fit."""
    run = make_run(tmp_path, noise="by-user", iterations=100, users=60, items=40).open()
    items = np.arange(30, dtype=np.int32)
    steady = Predictor(run, PredictOptions())(np.full(30, 1, np.int32), items).mean.astype(float)
    wild = steady + np.where(np.arange(30) % 2, 3.0, -3.0)
    rows = np.repeat([0, 1], 30)
    others = np.tile(items, 2)
    vocabulary = Vocabulary("user", np.array([-1, -2], np.int64))
    values = np.concatenate([steady, wild])
    ratings = RatingsOfRows(rows, others, values, np.ones(len(values)))
    folded = FoldIn(run, vocabulary, ratings)
    noise = np.mean(
        [folded.rows(number, np.array([0, 1])).noise for number in range(len(run.draws))], axis=0
    )
    assert noise[1] > 3 * noise[0]


def test_a_new_row_has_the_scale_of_its_noise(tmp_path):
    """The mean does not depend on g, the covariance is 1 / g times that at g = 1, and g has its law
    given the ratings: 300 rows with the same ratings, by Kolmogorov-Smirnov. A row without ratings
    has the moments of its t distribution.
    """
    run = make_run(tmp_path, noise="by-user", iterations=60).open()
    others = [0, 5, 7, 9]
    values = [4.5, 2.0, 5.0, 1.0]
    names = 300
    rows = np.repeat(np.arange(names), len(others))
    ratings = RatingsOfRows(
        rows, np.tile(np.int32(others), names), np.tile(values, names), np.ones(len(rows))
    )
    folded = FoldIn(run, Vocabulary("user", -1 - np.arange(names)[::-1]), ratings)
    draw = run.draw(2)
    found = folded.rows(2, np.arange(names))
    prior = draw.prior["user"]
    mean, covariance = given_ratings(run, "user", 2, prior.mean, others, values)
    np.testing.assert_allclose(found.mean, np.tile(mean, (names, 1)), atol=1e-6)
    expected = found.noise[:, None, None] * covariance
    np.testing.assert_allclose(found.covariance, expected, rtol=1e-6)
    theta = draw.theta["item"][others].astype(float)
    k = run.config.rank
    phi = np.column_stack([theta[:, :k], np.ones(len(others))])
    noise = 1 / (draw.tau * draw.noise_scale["item"][others])
    error = np.array(values) - run.mean - theta[:, k] - phi @ prior.mean
    squares = error @ np.linalg.solve(phi @ prior.covariance @ phi.T + np.diag(noise), error)
    nu = float(draw.shared["user.nu"])
    of_g = stats.gamma((nu + len(others)) / 2, scale=2 / (nu + squares))
    assert stats.kstest(1 / found.noise, of_g.cdf).pvalue > 1e-3
    unseen = draw.unseen["user"]
    np.testing.assert_allclose(unseen.covariance, prior.covariance * nu / (nu - 2))
    assert draw.new_inverse_scale["user"] == pytest.approx(nu / (nu - 2))


@pytest.mark.parametrize("noise", ["shared", "by-user"])
@pytest.mark.parametrize("likelihood", ["gaussian", "student-t"])
def test_covariances_that_are_not_kept_are_the_same(tmp_path, monkeypatch, likelihood, noise):
    """Without memory for covariances, rows are computed as before, in any order; some have no
    ratings.
    """
    run = make_run(tmp_path, likelihood=likelihood, noise=noise).open()
    vocabulary = Vocabulary("user", np.array([-1, -2, -3, -4], np.int64))
    rows = np.array([0, 0, 1, 3, 3, 3])
    ratings = RatingsOfRows(
        rows, np.int32([4, 5, 6, 1, 2, 3]), np.array([3.0, 4, 2, 5, 1, 3]), np.ones(6)
    )
    kept = FoldIn(run, vocabulary, ratings)
    solved = [kept.rows(position, np.arange(4)) for position in range(4)]
    assert kept._kept
    run.kept.clear()
    monkeypatch.setattr("dsgmcmc.posterior.rows.added.KEPT_BYTES", 0)
    computed = FoldIn(run, vocabulary, ratings)
    for position in (3, 0, 3):
        for chosen in (np.array([3, 1, 2]), np.array([0]), np.array([], np.int64)):
            expected = solved[position]
            found = computed.rows(position, chosen)
            np.testing.assert_array_equal(found.mean, expected.mean[chosen])
            np.testing.assert_array_equal(found.noise, expected.noise[chosen])
            np.testing.assert_allclose(found.covariance, expected.covariance[chosen], rtol=1e-12)
        drawn = [folded.drawn([0, position]) for folded in (kept, computed)]
        means = [folded.rows(position, np.arange(4)).mean for folded in drawn]
        np.testing.assert_allclose(means[0], means[1], rtol=1e-9)
    if likelihood == "gaussian":
        assert not computed._kept


@pytest.mark.parametrize("entity", ["user", "item"])
def test_a_known_row_is_worked_out_from_its_old_and_its_new_ratings(run, entity):
    """A known row has its old ratings, of which one is replaced, and a new one; an unknown name is
    left out.
    """
    other = OTHER[entity]
    row = 3
    with run.open_ratings() as ratings:
        old = training_ratings(ratings, entity, np.int32([row]))
    rated = old.others
    known = old.values
    other_one = int(np.setdiff1d(np.arange(len(run.vocabulary(other))), rated)[0])
    names = np.full(3, run.vocabulary(entity).ids[row])
    rated_names = run.vocabulary(other).ids[[rated[0], other_one]]
    new = NewRatings(
        entity, names, np.append(rated_names, -77), np.array([1.0, 5.0, 3.0]), np.ones(3), {}
    )
    folded, notes = fold_in(run, new)
    assert notes == [f"1 rating(s) left out: one {other} is unknown to the run: -77"]
    others = np.append(rated, other_one).astype(np.int32)
    values = np.append(known, 5.0)
    values[0] = 1.0
    ratings = RatingsOfRows(np.zeros(len(others), int), others, values, np.ones(len(others)))
    expected = FoldIn(run, Vocabulary(entity, names[:1]), ratings)
    for number in (0, len(run.draws) - 1):
        law = folded.rows(number, np.array([0]))
        wanted = expected.rows(number, np.array([0]))
        np.testing.assert_allclose(law.mean, wanted.mean, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(law.covariance, wanted.covariance, rtol=1e-9, atol=1e-12)
    assert set(folded.rated(0).tolist()) == set(others.tolist())
