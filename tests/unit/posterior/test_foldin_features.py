"""Rows with features: new ones against their conditional distribution in NumPy, and the importance
of features.
"""

import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from mpi4py import MPI
from runs import given_ratings
from support import sample, typed

from dsgmcmc import open_run as open_model
from dsgmcmc.errors import InputError
from dsgmcmc.features.described import Description
from dsgmcmc.model.parts.features import explained
from dsgmcmc.posterior.draws import OTHER
from dsgmcmc.posterior.rows.added import fold_in
from dsgmcmc.posterior.rows.new_ratings import NewRatings, describe_new
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.traces import importance
from dsgmcmc.prepare.prepare import prepare_ratings

USERS = 44
ITEMS = 14


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    """A run on ratings that `job` moves, of users with a job, an age, and what they like, and of
    items with genres.
    """
    folder = tmp_path_factory.mktemp("described")
    rng = np.random.default_rng(0)
    job = rng.integers(0, 2, USERS)
    age = rng.normal(40, 9, USERS).round(1)
    likes = [("jazz|rock", "rock", "jazz|folk", "")[k % 4] for k in range(USERS)]
    lines = [f"{u},{'ab'[job[u]]},{age[u]},{likes[u]},same" for u in range(USERS)]
    (folder / "users.csv").write_text("\n".join(["user,job,age,likes,note", *lines]) + "\n")
    genres = [("x", "y|z", "x|z")[i % 3] for i in range(ITEMS)]
    (folder / "items.csv").write_text(
        "item,genres\n" + "".join(f"{i},{genres[i]}\n" for i in range(ITEMS))
    )
    rows = [
        (u, i, 3 + 0.8 * (2 * job[u] - 1) + rng.normal(0, 0.3))
        for u in range(40)
        for i in range(12)
    ]
    (folder / "r.csv").write_text(
        "user,item,rating\n" + "".join(f"{u},{i},{x:.3f}\n" for u, i, x in rows)
    )
    prepare_ratings(
        [str(folder / "r.csv")],
        folder / "r.h5",
        user_features=folder / "users.csv",
        item_features=folder / "items.csv",
        test_fraction=0.0,
    )
    settings = {
        "rank": 2,
        "grid": 2,
        "iterations": 150,
        "burn_in": 60,
        "sampler": {"name": "baoab", "step_size": 0.2},
    }
    assert sample(MPI.COMM_SELF, folder / "r.h5", folder / "run", **settings) == 0
    return Run(folder / "run")


def described_by(run: Run, entity: str, folder: Path, text: str, **more: object):
    """Encode the features in a text."""
    (folder / "new.csv").write_text(text)
    return describe_new(run, entity, Description(folder / "new.csv", **more))


def centred_by_hand(run: Run, entity: str) -> tuple[np.ndarray, dict[str, float]]:
    """Return the means of the features over all rows of the file, and the mean and sd of ages."""
    lines = [
        line.split(",")
        for line in (run.path.parent / f"{entity}s.csv").read_text().splitlines()[1:]
    ]
    if entity == "item":
        sets = [set(line[1].split("|")) for line in lines]
        return np.array([np.mean([atom in genres for genres in sets]) for atom in "xyz"]), {}
    likes = [set(line[3].split("|")) for line in lines]
    job = [line[1] for line in lines]
    ages = np.array([float(line[2]) for line in lines])
    means = [np.mean(np.array(job) == "a"), np.mean(np.array(job) == "b"), 0.0]
    means += [np.mean([atom in liked for liked in likes]) for atom in ("folk", "jazz", "rock")]
    return np.array(means), {"mean": ages.mean(), "sd": ages.std()}


def expected(
    run: Run, entity: str, number: int, x: np.ndarray, others: list[int], values: list[float]
):
    """Return mean and covariance of a row with centred features x, given its ratings."""
    draw = run.draw(number)
    mean = draw.prior[entity].mean + x @ draw.shared[f"{entity}.features.effects"]
    return given_ratings(run, entity, number, mean, others, values)


def folded_by(run: Run, entity: str, ratings: list[tuple[int, int, float]], described: dict):
    """Fold in rows with features and ratings (name, name of the other side, value)."""
    names, others, values = (np.array([rating[k] for rating in ratings]) for k in range(3))
    return fold_in(run, NewRatings(entity, names, others, values, np.ones(len(values)), described))


@pytest.mark.parametrize("entity", ["user", "item"])
@pytest.mark.parametrize("n", [0, 3])
def test_the_law_of_a_new_row_with_features(run, tmp_path, entity, n):
    """A new row has the distribution N(m + B^T x, Lambda^-1), conditioned on its ratings."""
    means, number = centred_by_hand(run, entity)
    if entity == "user":
        text = "likes,age,user,job\nrock|jazz,52.5,900,b\n"
        x = [0, 1, 0, 0, 1, 1]
        x = np.array([*x[:2], (52.5 - number["mean"]) / number["sd"], *x[3:]])
    else:
        text = "item,genres\n900,z|y\n"
        x = np.array([0, 1, 1])
    described = described_by(run, entity, tmp_path, text)
    other = run.vocabulary(OTHER[entity])
    others = [2, 5, 7][:n]
    values = [4.5, 2.0, 4.0][:n]
    rated = [(900, name, value) for name, value in zip(other.ids[others], values, strict=True)]
    folded, more = folded_by(run, entity, rated, described)
    assert more == []
    for s in range(len(run.draws)):
        mean, covariance = expected(run, entity, s, x - means, others, values)
        law = folded.rows(s, np.array([0]))
        np.testing.assert_allclose(law.mean[0], mean, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(law.covariance[0], covariance, rtol=1e-5, atol=1e-7)


def test_unknown_features_have_no_effect(run, tmp_path):
    """Unknown categories and empty cells have no effect, and a row of these alone has the prior
    mean.
    """
    text = "user,job,age,likes\n901,astronaut,,NaN\n902,b,,rock|polka\n903,b,,rock\n"
    described = described_by(run, "user", tmp_path, text)
    folded, _ = folded_by(run, "user", [], described)
    law = folded.rows(0, np.arange(3))
    prior = run.draw(0).prior["user"]
    np.testing.assert_allclose(law.mean[0], prior.mean)
    np.testing.assert_array_equal(law.mean[1], law.mean[2])
    assert np.abs(law.mean[1] - prior.mean).max() > 0.05


@pytest.mark.parametrize("new", ["ratings", "features", "ratings and features"])
def test_a_known_row_keeps_old_ratings_and_features(run, tmp_path, new):
    """New ratings are added to old ones, and new features replace those of the ratings file."""
    row = int(run.users.index_of([7])[0])
    means, _ = centred_by_hand(run, "user")
    line = (run.path.parent / "users.csv").read_text().splitlines()[8].split(",")
    described = described_by(run, "user", tmp_path, f"user,job,age,likes\n7,{line[1]},,rock\n")
    with run.open_ratings() as ratings:
        stored = ratings.feature_slab(
            "rows" if not ratings.orientation.transposed else "cols", row, row + 1
        )
    x = np.array([line[1] == "a", line[1] == "b", 0, 0, 0, 1.0])
    if "features" not in new:
        described = {}
        x = np.zeros(6)
        x[stored.indices] = stored.values
    later = [(13, 5.0)] if "ratings" in new else []
    folded, notes = folded_by(run, "user", [(7, *rating) for rating in later], described)
    assert not notes
    rated = [line.split(",") for line in (run.path.parent / "r.csv").read_text().splitlines()[1:]]
    of_user = [(int(i), float(value)) for user, i, value in rated if user == "7"] + later
    others = run.items.index_of([i for i, _ in of_user]).tolist()
    mean, covariance = expected(run, "user", 0, x - means, others, [value for _, value in of_user])
    law = folded.rows(0, np.array([0]))
    np.testing.assert_allclose(law.mean[0], mean, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(law.covariance[0], covariance, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "user,job,age\n9,a,3\n",
            "new.csv has the columns job, age, but .* made from the columns job, age, likes",
        ),
        (
            "user,job,age,likes\n9,a,old,rock\n",
            "line 2: the number age is 'old'; correct it, leave the cell",
        ),
        ("user,job,age,likes\nx9,a,3,rock\n", "the users of the run are integers, unlike 'x9'"),
    ],
)
def test_bad_features_are_refused(run, tmp_path, text, message):
    """A refusal says what is wrong, where, and what to do."""
    with pytest.raises(InputError, match=message):
        described_by(run, "user", tmp_path, text)


def test_features_from_python(run):
    """Features with ratings at once or later, by `fold_in` or `update`, and in a pickle give the
    same predictions.
    """
    model = open_model(run.path)
    tastes = {"job": ["b", "a"], "age": [52.5, np.nan], "likes": [["rock", "jazz"], []]}
    frame = pd.DataFrame(tastes, index=pd.Index([901, 902], name="user"))
    cold = model.fold_in(features=frame)
    assert cold.predict([[901, 4]])[0] > cold.predict([[902, 4]])[0] + 1
    later = cold.fold_in([[901, 2, 1.1], [901, 5, 1.5]])
    assert later.predict([[901, 4]])[0] < cold.predict([[901, 4]])[0] - 0.2
    at_once = model.fold_in([[901, 2, 1.1], [901, 5, 1.5]], features=frame)
    copies = [later, at_once, pickle.loads(pickle.dumps(later))]
    assert len({tuple(copy.predict([[901, 4], [902, 4]])) for copy in copies}) == 1
    assert set(cold.recommend([901], n=3)["user_id"]) == {901}
    model.update(features=frame)
    assert model.predict([[901, 4]])[0] == cold.predict([[901, 4]])[0]
    with pytest.raises(InputError, match="give ratings, features, or both"):
        model.fold_in()


def test_importance_of_features(run: Run) -> None:
    """The column that moves ratings comes first, and effects have intervals and decreasing sizes.

    The share of an effect in the bias is not identified here: the factors of items that are alike
    serve as well.
    """
    groups, effects, *_ = importance(run).values()
    assert groups[0].name == "job"
    assert groups[0].low > max(group.mean for group in groups[1:])
    assert {"job=a", "job=b", "age", "likes=rock"} < {effect.name for effect in effects}
    assert all(effect.low < effect.mean < effect.high for effect in effects)
    sizes = [abs(effect.mean) for effect in effects]
    assert sizes == sorted(sizes, reverse=True)
    assert "job=b" in typed("info", run.path).expect().out


def test_a_group_explains_the_mean_square_of_its_part() -> None:
    """The mean is over rows and columns, each column in units of its own precision; so in a dense
    metric.
    """
    rng = np.random.default_rng(5)
    groups = np.array([0, 0, 1, 1, 1])
    precision = np.diag([1.0, 2.0, 4.0])
    x = rng.normal(size=(23, 5))
    effects = rng.normal(size=(5, 3))
    squares = explained(effects, x.T @ x / 23, groups, precision)
    for g in (0, 1):
        part = x[:, g == groups] @ effects[g == groups]
        assert squares[g] == pytest.approx((part**2 @ np.diag(precision)).mean() / 3)
