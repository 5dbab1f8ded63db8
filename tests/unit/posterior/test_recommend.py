"""Recommendations, against scores of all pairs that were predicted one by one; similar items;
titles of items.
"""

import numpy as np
import pytest
from runs import Made, make_run

from dsgmcmc import open_run
from dsgmcmc.errors import InputError
from dsgmcmc.posterior.cells.fitted_rows import FittedRows, UsersByRow
from dsgmcmc.posterior.cells.pair_draws import observed_training
from dsgmcmc.posterior.cells.predict import Predictor
from dsgmcmc.posterior.cells.predictors import Predictors
from dsgmcmc.posterior.draws import OTHER
from dsgmcmc.posterior.index import Vocabulary, item_titles
from dsgmcmc.posterior.lists.exposure_of_run import exposure_of
from dsgmcmc.posterior.lists.ranking import (
    Ranking,
    _best,
    allowed_items,
    recommend,
    recommendations,
)
from dsgmcmc.posterior.lists.similar import Metric, similar, similarities
from dsgmcmc.posterior.rated import Rated, read_rated
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.settings import PredictOptions

COLUMNS = ["user_id", "item_id", "score", "rank", "sd", "q05", "q95", "ratings"]


def rated_by(finished: Made, run: Run) -> list[set[int]]:
    """Rows of the training items of every user, from the ratings under their names."""
    test = set(zip(*(side.tolist() for side in run.test_pairs()), strict=True))
    users, items = (
        run.vocabulary(entity).index_of(finished.ratings[:, k])
        for k, entity in enumerate(("user", "item"))
    )
    train = set(zip(users.tolist(), items.tolist(), strict=True)) - test
    return [{item for user, item in train if user == row} for row in range(len(run.users))]


def table(
    run: Run, users: np.ndarray, ranking: Ranking, rated: Rated | None = None
) -> list[np.ndarray]:
    """Users, items and scores of all recommendations."""
    return [
        np.concatenate(parts) for parts in zip(*recommend(run, users, ranking, rated), strict=True)
    ]


@pytest.mark.parametrize(("by", "sign"), [("mean", 0), ("lcb", -2)])
def test_the_best_of_all_that_was_not_rated(finished, by, sign):
    """The best items are those by predicting and sorting all items that were not rated."""
    run = finished.run
    users = np.arange(len(run.users), dtype=np.int32)
    rated = read_rated(run)
    predictor = Predictor(run, PredictOptions(of_mean=True))
    theirs = rated_by(finished, run)
    best = table(run, users, Ranking(top=4, by=by, z=2.0), rated)
    for user in users.tolist():
        values = predictor(
            np.full(len(run.items), user, np.int32), np.arange(len(run.items), dtype=np.int32)
        )
        score = values.mean + sign * values.sd
        score[sorted(theirs[user])] = -np.inf
        expected = np.argsort(-score, kind="stable")[:4]
        chosen = best[0] == user
        assert set(best[1][chosen].tolist()) == set(expected.tolist())
        np.testing.assert_allclose(best[2][chosen], score[expected], atol=2e-3)


def test_items_with_equal_scores_are_in_order_of_their_rows():
    """The first of them are recommended, whatever the number of items."""
    positions, items, _ = _best(np.zeros((2, 100)), 3)
    assert positions.tolist() == [0, 0, 0, 1, 1, 1]
    assert items.tolist() == [0, 1, 2] * 2


def test_blocks_of_users_do_not_show(finished, monkeypatch):
    """Recommendations for a user do not depend on the other users that are asked for, also by
    Thompson sampling.
    """
    run = finished.run
    users = np.arange(len(run.users), dtype=np.int32)
    for by in ("mean", "thompson"):
        uncut = table(run, users, Ranking(by=by, seed=0))
        monkeypatch.setattr("dsgmcmc.posterior.lists.ranking._BLOCK_SCORES", 3 * len(run.items))
        cut = table(run, users, Ranking(by=by, seed=0))
        monkeypatch.undo()
        for a, b in zip(uncut, cut, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5)


def test_thompson_sampling_is_by_one_draw(finished):
    """The seed chooses one draw, by which all items of a user are scored."""
    run = finished.run
    n = len(finished.run.items)
    drawn = set()
    for seed in (0, 1, 2, 3, 0):
        ((_, items, score),) = recommend(
            run, np.zeros(1, np.int32), Ranking(top=n, by="thompson", seed=seed)
        )
        drawn.add(tuple(score[np.argsort(items)].tolist()))
    assert 2 <= len(drawn) <= 4
    pairs = np.zeros(n, np.int32), np.arange(n, dtype=np.int32)
    of_draws = Predictors(run).at(*pairs).eta.T + run.mean
    assert all(np.abs(of_draws - np.array(scores)).max(axis=1).min() < 1e-4 for scores in drawn)


def test_likely_is_exposure_times_the_probability_to_like(finished):
    """The default rule is this product; the exposure of known users needs the ratings file."""
    run = finished.run
    rated = read_rated(run)
    theirs = rated_by(finished, run)
    n = len(run.items)
    for user in (0, 5):
        of_run = exposure_of(run)
        exposure = of_run.scores([rated.items_of(user, of_run.liked)])[0]
        ((_, items, score),) = recommend(run, np.int32([user]), Ranking(top=n, at_least=4.0), rated)
        ((_, again, liked),) = recommend(
            run, np.int32([user]), Ranking(top=n, by="mean", at_least=4.0), rated
        )
        expected = np.zeros(n)
        expected[again] = liked * exposure[again]
        np.testing.assert_allclose(score, expected[items], rtol=1e-4, atol=1e-7)
        assert set(items.tolist()) == set(range(n)) - theirs[user]
        ((_, items, score),) = recommend(
            run, np.int32([user]), Ranking(top=n, by="exposure"), rated
        )
        np.testing.assert_allclose(score, exposure[items], rtol=1e-6)
        assert (np.diff(score) <= 0).all()
    with pytest.raises(InputError, match="give the ratings file"):
        next(recommend(run, np.int32([0]), Ranking()))


def test_the_reason_is_the_largest_term_of_the_exposure(finished):
    """Of known users and of users that were folded in; none for somebody without ratings."""
    run = finished.run
    model = open_run(run.path)
    exposure = exposure_of(run)
    rated = read_rated(run)
    table = model.recommend([run.users.ids[5]], 6, reasons=True)
    theirs = rated.items_of(5, exposure.liked)
    for item, reason in zip(table["item_id"], table["because"], strict=True):
        row = int(run.items.index_of([item])[0])
        terms = [float(exposure.weights[k, row]) for k in theirs]
        expected = str(run.items.ids[theirs[int(np.argmax(terms))]])
        assert reason == (expected if max(terms) > 0 else "")
    assert any(table["because"])
    most = int(np.argmax(run.counts("item")))
    newcomer = "somebody new" if run.users.ids.dtype == object else -7
    folded = model.fold_in([[newcomer, run.items.ids[most], run.facts["maximum"]]])
    found = folded.recommend([newcomer], 9, reasons=True)
    for item, reason in zip(found["item_id"], found["because"], strict=True):
        weight = exposure.weights[most, int(run.items.index_of([item])[0])]
        assert reason == (str(run.items.ids[most]) if weight > 0 else "")
    cold = model.recommend(["-8"], 5, reasons=True, unknown="prior")["because"]
    assert cold.tolist() == [""] * 5


def test_reasons_are_refused_where_there_are_none(finished):
    """Rules that do not ask what users rated, and the list of all pairs."""
    model = open_run(finished.run.path)
    with pytest.raises(InputError, match="does not ask what users rated"):
        model.recommend(n=3, by="mean", reasons=True)
    assert "because" not in model.recommend(n=3)


def test_only_candidates_are_recommended(finished):
    """Candidates are the items asked for without those ruled out; if all are unknown, they are
    refused.
    """
    run = finished.run
    some = run.items.ids[:6].tolist()
    unknown = -99 if run.items.integers else "none"
    notes: list[str] = []
    among = allowed_items(run, [*some, unknown], some[:2], notes.append)
    assert notes == [f"candidates: one item is unknown to the run: {unknown}"]
    ((_, items, _),) = recommend(run, np.int32([0]), Ranking(top=9, by="mean", among=among))
    assert set(items.tolist()) == {2, 3, 4, 5}
    with pytest.raises(InputError, match="unknown"):
        allowed_items(run, [unknown], None)
    with pytest.raises(InputError, match="candidates has no items"):
        allowed_items(run, [], None)
    model = open_run(finished.path)
    for names in (set(some), iter(some)):
        listed = model.recommend(run.users.ids[0], by="mean", candidates=names, include_rated=True)
        assert set(listed["item_id"].tolist()) == set(some)


def test_a_bound_that_no_rating_can_reach_is_refused(tmp_path):
    """Beyond the highest level all probabilities are 0, and no list would mean anything; nor is
    text a bound.
    """
    run = make_run(tmp_path, stars=True).open()
    ((_, items, _),) = recommend(run, np.int32([0]), Ranking(top=3, by="mean", at_least=4.5))
    assert (
        items.tolist()
        == next(recommend(run, np.int32([0]), Ranking(top=3, by="mean", at_least=5.0)))[1].tolist()
    )
    with pytest.raises(InputError, match=r"at_least 5\.5: the highest rating is 5"):
        next(recommend(run, np.int32([0]), Ranking(top=3, by="mean", at_least=5.5)))
    for bound in ("four", np.inf):
        with pytest.raises(InputError, match=r"--at-least: must be a (valid|finite) number"):
            Ranking(at_least=bound)


def test_the_columns_of_recommendations(finished):
    """A table has names, ranks and titles, and the sd and interval of a prediction."""
    run = finished.run
    users = np.int32([3, 0])
    model = FittedRows(run)
    chosen = UsersByRow(users, None)
    (bold,) = recommendations(model, chosen, Ranking(top=5, by="ucb", z=9.0), {0: "zero"})
    (free,) = recommendations(model, chosen, Ranking(top=5, by="ucb", z=9.0, clip=False))
    assert list(bold) == [*COLUMNS, "item_name"]
    assert bold["rank"].tolist() == [1, 2, 3, 4, 5] * 2
    assert bold["user_id"].tolist() == np.repeat(run.users.ids[users], 5).tolist()
    assert (bold["item_name"] == np.where(bold["item_id"] == run.items.ids[0], "zero", "")).all()
    np.testing.assert_array_equal(bold["score"], free["score"])
    assert (
        np.diff(bold["score"].reshape(-1, 5), axis=1) < 0
    ).all()  # clipping would hide the order
    rows = run.users.index_of(free["user_id"]), run.items.index_of(free["item_id"])
    expected = Predictor(run, PredictOptions(of_mean=True))(*rows)
    for name, values in (("sd", expected.sd), ("q05", expected.low), ("q95", expected.high)):
        np.testing.assert_array_equal(free[name], values)
    assert free["ratings"].tolist() == run.counts("item")[rows[1]].tolist()
    np.testing.assert_array_equal(bold["q95"], free["q95"])  # measurements are not clipped


def test_other_ratings_than_the_runs_are_refused(finished, tmp_path):
    """A file of other ratings is refused, and the run's own is taken."""
    run = Run(finished.run.path)
    other = make_run(tmp_path, users=30, items=20, iterations=60)
    for data in (None, finished.data):
        run.data = other.data
        with pytest.raises(InputError, match="hash differs"):
            run.open_ratings()
        run.data = data
        run.open_ratings().close()


def test_a_ratings_file_that_was_moved_is_used_by_all_that_read_it(tmp_path):
    """It is named where the run is opened, and nowhere else."""
    made = make_run(tmp_path, users=30, items=20, iterations=60)
    moved = made.data.rename(tmp_path / "elsewhere.h5")
    with pytest.raises(InputError, match="is not there"):
        open_run(made.run.path).run_.open_ratings()
    model = open_run(made.run.path, data=moved)
    assert len(observed_training(model.run_).values) == model.run_.counts("user").sum()
    assert len(model.recommend(n=2)) > 0


# ---------------------------------------------------------------------- similar items


@pytest.mark.parametrize("entity", ["item", "user"])
def test_similarity_is_the_correlation_of_predictions(finished, entity):
    """Similarity is the correlation of W_i . H_j and W_i .

    H_k over users i, averaged over draws, best first.
    """
    run = finished.run
    row = 4
    by_draw = similarities(run, entity, row)
    for number in (0, len(run.draws) - 1):
        theta = run.draw(number).theta
        predicted = theta[OTHER[entity]][:, :3].astype(float) @ theta[entity][:, :3].T.astype(float)
        np.testing.assert_allclose(
            by_draw[number], np.corrcoef(predicted, rowvar=False)[row], atol=1e-4
        )
    best = similar(run, entity, run.vocabulary(entity).ids[row], n=5)
    assert {(Metric, entity, number) for number in range(len(run.draws))} <= set(run.kept)  # kept
    mean = run.draw_weights @ by_draw
    mean[row] = -np.inf
    order = np.argsort(-mean)[:5]
    assert best[f"{entity}_id"].tolist() == run.vocabulary(entity).ids[order].tolist()
    np.testing.assert_allclose(best["sd"], by_draw[:, order].std(axis=0), atol=1e-5)
    assert best["ratings"].tolist() == run.counts(entity)[order].tolist()


def test_biases_only_have_no_similarity(tmp_path):
    """A run of biases only has no factors to compare."""
    run = make_run(tmp_path, rank=0, iterations=50).open()
    with pytest.raises(
        InputError, match=r"biases only \(--rank 0\).* sample with --rank 1 or more"
    ):
        similar(run, "item", run.items.ids[0])


# ---------------------------------------------------------------------- titles


TITLES = {
    "movies.dat": b"10::Caf\xe9 Noir (1995)::Drama\n11::B (1996)::War\n99::not there::X\n",
    "u.item": b"10|Caf\xe9 Noir (1995)|01-Jan-1995||url|0\n11|B (1996)|x||url|1\n",
    "movies.csv": 'movieId,title,genres\n10,"Café Noir (1995)",Drama\n11,B (1996),War\n'.encode(),
    "floats.csv": "item,title\n10.0,Café Noir (1995)\n11.0,B (1996)\n".encode(),
    "mine.tsv": "name\tid\nCafé Noir (1995)\t10\nB (1996)\t11\n".encode(),
}


@pytest.mark.parametrize("name", TITLES)
def test_titles_of_movielens_and_csv(name, tmp_path):
    """Titles are read from all formats of MovieLens, in their encodings."""
    path = tmp_path / name
    path.write_bytes(TITLES[name])
    items = Vocabulary("item", np.array([11, 10, 12], np.int64))
    assert item_titles(items, path) == {1: "Café Noir (1995)", 0: "B (1996)"}
    assert item_titles(items, path, "b .1996") == {0: "B (1996)"}


@pytest.mark.parametrize("content", [b"movieId,genres\n10,x\n", b"77::nothing of ours::x\n"])
def test_titles_that_do_not_fit_are_refused(content, tmp_path):
    """A file without titles of any item is refused."""
    path = tmp_path / "titles"
    path.write_bytes(content)
    with pytest.raises(InputError, match="titles"):
        item_titles(Vocabulary("item", np.array([10, 11], np.int64)), path)
