"""Lists: the lowest first, for users of whom nothing is known, and at one draw."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support import typed

from dsgmcmc import BPMF
from dsgmcmc.errors import InputError

COLD = [100, 101, 102]
#: Of 20 items; most are dramas.
GENRES = ["Drama", "Drama|War", "War", "Drama|Crime"] * 5


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> BPMF:
    """Stars of 30 users and 20 items; three more users have test ratings alone."""
    rng = np.random.default_rng(0)
    cells = rng.choice(30 * 20, 300, replace=False)
    train = pd.DataFrame({"user": cells // 20, "item": cells % 20})
    score = 3 + 0.1 * (train.item - 10) + rng.normal(0, 0.7, 300)
    train["rating"] = np.clip(np.round(score), 1, 5)
    test = pd.DataFrame({"user": [*COLD, 3], "item": [3, 4, 5, 6], "rating": 5.0})
    train = train[(train.user != 3) | (train.item != 6)]
    out = tmp_path_factory.mktemp("lists") / "run"
    options = {"grid": 2, "thresholds": "user", "likelihood": "ordinal-logit"}
    features = pd.DataFrame({"item": np.arange(20), "genres": GENRES, "price": np.arange(20.0)})
    model = BPMF(2, iterations=300, burn_in=100, options=options, out=out, item_features=features)
    return model.fit(train, test=test)


@pytest.mark.parametrize("by", ["likely", "mean", "lcb", "sd", "exposure"])
def test_users_without_training_ratings_have_one_list(model: BPMF, by: str) -> None:
    """Users of the file, and unknown ones, have the same items, scores and intervals."""
    users = [*COLD, 999, -5]
    table = model.recommend(pd.DataFrame({"user": users}), 4, by=by, unknown="prior")
    lists = [part.drop(columns="user_id").to_numpy() for _, part in table.groupby("user_id")]
    assert sorted(table.user_id.unique()) == sorted(users)
    assert len(lists[0]) == 4
    for other in lists[1:]:
        np.testing.assert_array_equal(other, lists[0])


def test_unknown_users_are_refused_by_default(model: BPMF) -> None:
    """They may be misspelt."""
    with pytest.raises(InputError, match="one user is unknown to the run: 999"):
        model.recommend([999])
    shown = typed("recommend", model.run_.path, "--user", "999", "--unknown", "prior", "--json")
    ours = model.recommend([999], unknown="prior")
    lines = json.loads(shown.expect().out)
    assert [line["item_id"] for line in lines] == ours["item_id"].tolist()


def test_folded_in_users_stand_beside_unknown_ones(model: BPMF) -> None:
    """The list of neither depends on the other."""
    folded = model.fold_in([[500, 1, 5.0], [500, 2, 1.0]])
    both = folded.recommend([998, 500], 3, unknown="prior")
    alone = folded.recommend([500], 3)
    np.testing.assert_array_equal(both[both.user_id == 500].item_id, alone.item_id)
    cold = model.recommend([998], 3, unknown="prior")
    np.testing.assert_array_equal(both[both.user_id == 998].item_id, cold["item_id"])


@pytest.mark.parametrize("by", ["mean", "ucb", "lcb", "sd", "thompson"])
@pytest.mark.parametrize("at_least", [None, 4.0])
def test_the_lowest_are_first(model: BPMF, by: str, at_least: float | None) -> None:
    """The short list of the lowest ends the long list of the highest, with the same scores."""
    if at_least is not None and by not in ("mean", "thompson"):
        pytest.skip("no bound")
    options = {"by": by, "at_least": at_least, "seed": 1}
    for users in ([3], [999]):
        whole = model.recommend(users, 20, **options, unknown="prior")
        lowest = model.recommend(users, 4, **options, lowest=True, unknown="prior")
        assert lowest["item_id"].tolist() == whole["item_id"].tolist()[:-5:-1]
        np.testing.assert_allclose(lowest["score"], whole["score"][:-5:-1], rtol=1e-5)
    if by != "thompson":
        pairs = model.recommend_pairs(5, by=by, at_least=at_least, lowest=True)
        assert (np.diff(pairs["score"]) >= 0).all()


def test_no_rule_that_expects_choice_lists_the_lowest(model: BPMF) -> None:
    """What a user will not choose nobody asks for."""
    with pytest.raises(InputError, match="by likely has no lowest"):
        model.recommend([3], lowest=True)


def test_exploring_scores_are_likely_on_average(model: BPMF) -> None:
    """Over 400 seeds the mean of a drawn score is that of `likely`, to five standard errors; the
    same seed has the same list.
    """
    likely = model.recommend([3], 20).set_index("item_id").score
    drawn = []
    for seed in range(400):
        table = model.recommend([3], 20, by="explore", seed=seed)
        drawn.append(table.set_index("item_id").score[likely.index])
    errors = np.std(drawn, axis=0) / np.sqrt(len(drawn))
    assert (np.abs(np.mean(drawn, axis=0) - likely) < 5 * errors).all()
    assert (errors > 0).all()
    again = model.recommend([3], 20, by="explore", seed=7).set_index("item_id").score
    np.testing.assert_array_equal(again[likely.index], drawn[7])


def test_pairs_are_excluded_for_their_users_alone(model: BPMF, tmp_path: Path) -> None:
    """Also for folded-in users, and by a file whose first line names users and items."""
    folded = model.fold_in([[500, 1, 5.0], [500, 2, 1.0]])
    before = folded.recommend(pd.DataFrame({"user": [3, 4, 500]}), 20)
    bought = before[(before["rank"] <= 2) & (before.user_id != 4)]
    with pytest.warns(UserWarning, match="1 pair.* left out: the run does not know their user"):
        after = folded.recommend(
            pd.DataFrame({"user": [3, 4, 500]}),
            20,
            exclude=pd.concat([bought, bought[:1].assign(user_id=-7)]),
        )
    kept = before.merge(bought[["user_id", "item_id"]], "left", indicator=True)
    kept = kept[kept["_merge"] == "left_only"]
    assert after[["user_id", "item_id"]].values.tolist() == (
        kept[["user_id", "item_id"]].values.tolist()
    )
    of_three = bought[bought.user_id == 3].rename(columns={"user_id": "user", "item_id": "item"})
    of_three[["item", "user"]].to_csv(tmp_path / "bought.csv", index=False)
    options = ("--exclude", tmp_path / "bought.csv", "--user", "3", "--json", "--top", "20")
    lines = json.loads(typed("recommend", model.run_.path, *options).expect().out)
    assert [line["item_id"] for line in lines] == after[after.user_id == 3].item_id.tolist()


def test_items_are_excluded_for_all(model: BPMF, tmp_path: Path) -> None:
    """A list of names, or a file with one a line, of whatever first line."""
    users = [3, 4]
    after = model.recommend(users, 20, exclude=[5, 6])
    assert not {5, 6} & set(after["item_id"].tolist())
    (tmp_path / "names").write_text("5\n6\n")
    options = ("--exclude", tmp_path / "names", "--user", "3", "--json", "--top", "20")
    lines = json.loads(typed("recommend", model.run_.path, *options).expect().out)
    assert {line["item_id"] for line in lines} == set(after[after.user_id == 3].item_id)


@pytest.mark.parametrize("by", ["likely", "mean", "exposure", "explore"])
@pytest.mark.parametrize("at_most", [1, 2, 4])
def test_lists_have_at_most_some_items_of_a_category(model: BPMF, by: str, at_most: int) -> None:
    """They are what is left of the whole list if items of full categories are passed over."""
    users = [3, 5, 7, *COLD[:1]]
    whole = model.recommend(pd.DataFrame({"user": users}), 20, by=by, seed=4)
    capped = model.recommend(
        pd.DataFrame({"user": users}), 4, by=by, seed=4, at_most=f"genres={at_most}"
    )
    for user in users:
        expected: list[int] = []
        taken: list[str] = []
        for item in whole[whole.user_id == user].item_id:
            genres = GENRES[item].split("|")
            if len(expected) < 4 and all(taken.count(genre) < at_most for genre in genres):
                expected.append(item)
                taken += genres
        assert capped[capped.user_id == user].item_id.tolist() == expected


@pytest.mark.parametrize("by", ["likely", "mean", "exposure"])
@pytest.mark.parametrize("at_most", [None, "genres=1"])
def test_no_users_have_no_lists(model: BPMF, by: str, at_most: str | None) -> None:
    """A request for nobody is an empty table with the columns of others."""
    empty = model.recommend([], 4, by=by, at_most=at_most)
    assert list(empty) == list(model.recommend([3], 4, by=by))
    assert len(empty["item_id"]) == 0


@pytest.mark.parametrize(
    ("at_most", "message"),
    [
        ("genres", "expected COLUMN=N"),
        ("genres=0", "expected COLUMN=N"),
        ("price=2", "no categories in a column price; their columns are genres, price"),
        ("year=2", "no categories in a column year"),
    ],
)
def test_caps_of_what_is_no_category_are_refused(model: BPMF, at_most: str, message: str) -> None:
    """A message names the columns that there are."""
    with pytest.raises(InputError, match=message):
        model.recommend([3], at_most=at_most)
