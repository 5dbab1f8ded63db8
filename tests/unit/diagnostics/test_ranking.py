"""Measures of rankings by hand, and those of a run against lists of one user at a time; what counts
as liked.
"""

from contextlib import nullcontext

import numpy as np
import pytest
from mpi4py import MPI
from runs import SETTINGS, make_run
from support import sample, write_cells

from dsgmcmc import BPMF
from dsgmcmc.diagnostics.ranking import (
    RULES,
    average,
    compare_runs,
    evaluate,
    liked_tests,
    recommended,
)
from dsgmcmc.errors import InputError
from dsgmcmc.posterior.cells.predict import Predictor
from dsgmcmc.posterior.heldout import predict_test
from dsgmcmc.posterior.lists.liked import liked_from
from dsgmcmc.posterior.lists.measures import MEASURES, measures
from dsgmcmc.posterior.lists.ranking import Ranking, recommend
from dsgmcmc.posterior.rated import read_rated
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.settings import PredictOptions


def test_measures_by_hand():
    """One user has a hit at rank 2 of one liked item, one hits at 1 and 3 of three, and one none in
    a short list.
    """
    lists = np.int32([[5, 3, 8], [1, 2, 4], [7, -1, -1]])
    values = measures(
        np.int32([10, 20, 30]), lists, np.int32([10, 20, 20, 20, 30]), np.int32([3, 1, 4, 9, 6])
    )
    ideal = 1 + 1 / np.log2(3) + 1 / 2
    assert values["ndcg"] == pytest.approx([1 / np.log2(3), (1 + 1 / 2) / ideal, 0])
    assert values["precision"] == pytest.approx([1 / 3, 2 / 3, 0])
    assert values["recall"] == pytest.approx([1, 2 / 3, 0])
    assert values["reciprocal_rank"] == pytest.approx([1 / 2, 1, 0])
    assert set(values) == set(MEASURES)


@pytest.mark.parametrize(("users", "items"), [(40, 18), (18, 40)])
def test_rules_of_a_run(tmp_path, users, items):
    """The rules by mean and by popularity rank, user by user, the items that were not rated in
    training.
    """
    sampled = make_run(tmp_path, users=users, items=items)
    run = sampled.open()
    rated = read_rated(run)
    result = evaluate(run, rated, at=4, liked=4.0)
    test_users, test_items = run.test_pairs()
    predict = Predictor(run, PredictOptions(of_mean=True))
    counts = run.counts("item")
    expected = {"mean": [], "most popular": []}
    likes = predict_test(run).rating >= 4.0
    for user in np.unique(test_users[likes]).tolist():
        liked = set(test_items[(test_users == user) & likes].tolist())
        free = np.setdiff1d(np.arange(len(run.items), dtype=np.int32), rated.items_of(user))
        score = {"mean": predict(np.full(len(free), user), free).mean, "most popular": counts[free]}
        for rule, values in expected.items():
            best = free[np.argsort(-score[rule], kind="stable")][:4]
            values.append(
                np.mean([*(int(item) in liked for item in best), *[False] * (4 - len(best))])
            )
    rules = {rule["rule"]: rule for rule in result["rules"]}
    for rule, values in expected.items():
        assert rules[rule]["precision"]["mean"] == pytest.approx(np.mean(values))
        half = 1.96 * np.std(values, ddof=1) / np.sqrt(len(values))
        assert rules[rule]["precision"]["high"] == pytest.approx(np.mean(values) + half)
    assert list(rules) == [*RULES, "most popular"]
    assert result["users"] == result["of_users"] == len(expected["mean"])
    assert evaluate(run, at=4, liked=4.0) == result, "the ratings file is found by itself"
    with pytest.raises(InputError, match="give another --liked"):
        evaluate(run, rated, liked=99.0)


def test_differences_are_by_user(tmp_path):
    """Rules are compared by the mean difference from the default rule over users, with its standard
    error.
    """
    run = make_run(tmp_path, users=40, items=30).open()
    rated = read_rated(run)
    result = evaluate(run, rated, at=5, liked=3.5, users=9)
    assert (result["users"], result["at"]) == (9, 5)
    test_users, test_items = run.test_pairs()
    chosen = predict_test(run).rating >= 3.5
    everyone = np.unique(test_users[chosen])
    users = everyone[np.linspace(0, len(everyone) - 1, 9).astype(int)]
    asked = chosen & np.isin(test_users, users)
    likely, cautious = (
        measures(
            users, recommended(run, users, ranking, rated), test_users[asked], test_items[asked]
        )["ndcg"]
        for ranking in (Ranking(top=5, at_least=3.5), Ranking(top=5, by="lcb", z=3.0))
    )
    rules = {row["rule"]: row for row in result["rules"]}
    assert rules["likely"]["ndcg"] == pytest.approx(average(likely))
    assert rules["lcb, z = 3"]["ndcg"] == pytest.approx(average(cautious))
    assert rules["lcb, z = 3"]["difference"]["mean"] == pytest.approx((cautious - likely).mean())
    assert rules["lcb, z = 3"]["difference"]["se"] == pytest.approx(
        (cautious - likely).std(ddof=1) / 3
    )


def test_runs_are_compared_by_user(tmp_path):
    """Lists of two runs on the same ratings, by their differences from the first; other ratings are
    refused.
    """
    made = make_run(tmp_path, users=40, items=30)
    other = tmp_path / "other"
    assert sample(MPI.COMM_SELF, made.data, other, **{**SETTINGS, "rank": 1, "seed": 5}) == 0
    runs = [made.open(), Run(other)]
    result = compare_runs(runs, at=5, liked=3.5)
    found = liked_tests(runs[0], 3.5)
    ndcg = []
    for run in runs:
        lists = recommended(run, found.trained, Ranking(top=5, at_least=3.5), read_rated(run))
        ndcg.append(measures(found.trained, lists, found.users, found.items)["ndcg"])
    first, second = result["runs"]
    assert first["ndcg"] == pytest.approx(average(ndcg[0]))
    assert first["difference"]["ndcg"]["mean"] == 0
    change = second["difference"]["ndcg"]
    by_user = ndcg[1] - ndcg[0]
    assert change["mean"] == pytest.approx(by_user.mean())
    assert change["high"] == pytest.approx(average(by_user)["high"])
    third = make_run(tmp_path / "third", users=40, items=29)
    with pytest.raises(InputError, match="other ratings or another split"):
        compare_runs([runs[0], third.open()])


def test_users_without_training_ratings_are_apart(tmp_path):
    """Their lists are those of everybody, and say nothing of the rules."""
    user, item = (index.ravel() for index in np.indices((12, 10)))
    held = (user == 0) | ((user + item) % 4 == 0)  # all ratings of user 0
    stars = (1 + (user * 3 + item) % 5).astype(np.float32)
    data = write_cells(tmp_path / "r.h5", (12, 10), user, item, stars, held)
    assert sample(MPI.COMM_SELF, data, tmp_path / "run", **SETTINGS) == 0
    run = Run(tmp_path / "run")
    result = evaluate(run, at=3, liked=4.0)
    assert result["untrained"] == 1
    liked = np.unique(user[held & (stars >= 4)])
    assert result["users"] == result["of_users"] == len(liked) - 1


SCALE = np.tile([1.0, 2, 3, 3, 4, 4, 4, 5], 60)[:460]
PLAYS = np.floor(np.random.default_rng(0).pareto(1.0, 460)) + 1

#: Training ratings of 23 users of 20 items, and the lowest that counts as liked.
BOUNDS = {
    "stars": (SCALE, 4.0),
    "half stars": (SCALE - 0.5, 3.5),
    "rare ones": (np.append(np.zeros(458), [1.0, 1.0]), 1.0),
    "stars and a stray value": (np.append(SCALE[1:], 99.0), 4.0),
    "plays": (PLAYS, np.sort(PLAYS)[-115]),
    "plays and a stray one": (np.append(PLAYS[1:], 20_000.0), np.sort(PLAYS)[-115]),
    "hours": (PLAYS + np.arange(460) / 512, np.sort(PLAYS + np.arange(460) / 512)[-115]),
}


@pytest.mark.filterwarnings("ignore:.*(not rated|interquartile range|other levels)")  # as it is
@pytest.mark.parametrize("name", BOUNDS)
def test_what_counts_as_liked(name, tmp_path):
    """Three quarters up a scale, otherwise the upper quarter; a stray value changes neither, and
    few likes are said.
    """
    ratings, expected = BOUNDS[name]
    i, j = (side.ravel() for side in np.indices((23, 20)))
    model = BPMF(rank=1, iterations=8, burn_in=4, random_state=0).fit(
        np.column_stack([i, j]), ratings
    )
    liked = liked_from(model.run_)
    assert set(ratings[ratings >= liked]) == set(ratings[ratings >= expected])
    with pytest.warns(match="fewer than 1 % of") if name == "rare ones" else nullcontext():
        model.recommend(0, include_rated=True)


def test_probabilities_that_underflow_are_no_ties(tmp_path):
    """Rules for counts are compared by default, and a bound beyond all counts orders by the
    logarithm of tails.
    """
    i, j = (side.ravel() for side in np.indices((23, 20)))
    x = np.random.default_rng(0).poisson(np.exp(0.1 * ((7 * j) % 20)))
    data = write_cells(
        tmp_path / "x.h5", (23, 20), i, j, x.astype(np.float32), held=(i + j) % 5 == 0
    )
    settings = {**SETTINGS, "grid": 2, "likelihood": "negative-binomial"}
    assert sample(MPI.COMM_SELF, data, tmp_path / "run", **settings) == 0
    run = Run(tmp_path / "run")
    assert evaluate(run, at=5)["liked"] == np.sort(x[(i + j) % 5 > 0])[-92]
    ((_, items, score),) = recommend(
        run, np.int32([3]), Ranking(top=20, by="mean", at_least=1e6, include_rated=True)
    )
    assert (score == 0).all()
    ((_, predictive),) = Predictor(run, PredictOptions()).distributions(
        np.full(20, 3, np.int32), items
    )
    assert (np.diff(predictive.log_density(1e6)) < 0).all()
