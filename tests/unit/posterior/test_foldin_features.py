"""New rows with features: against the conditional law in plain NumPy, and what is refused."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from support import sample

from dsgmcmc import open_run as open_model
from dsgmcmc.data.features import Description
from dsgmcmc.data.prepare import prepare_ratings
from dsgmcmc.data.ratings import open_ratings
from dsgmcmc.errors import InputError
from dsgmcmc.posterior.newcomers import describe_new, fold_in
from dsgmcmc.posterior.predict import PredictOptions, Predictor
from dsgmcmc.posterior.run import Run

SETTINGS = {"rank": 2, "grid": 2, "iterations": 150, "burn_in": 60, "sampler": {"name": "baoab", "step_size": 0.2}}
USERS, ITEMS, K = 44, 14, 2
NOTHING = (np.zeros(0, object), np.zeros(0, object), np.zeros(0))


def make(folder: Path, **settings: object) -> Path:
    """Ratings that `job` moves, of users with a job, an age, and what they like, and of items with genres."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    job, age = rng.integers(0, 2, USERS), rng.normal(40, 9, USERS).round(1)
    likes = [("jazz|rock", "rock", "jazz|folk", "")[k % 4] for k in range(USERS)]
    lines = [f"{u},{'ab'[job[u]]},{age[u]},{likes[u]},same" for u in range(USERS)]
    (folder / "users.csv").write_text("\n".join(["user,job,age,likes,note", *lines]) + "\n")
    genres = [("x", "y|z", "x|z")[i % 3] for i in range(ITEMS)]
    (folder / "items.csv").write_text("item,genres\n" + "".join(f"{i},{genres[i]}\n" for i in range(ITEMS)))
    rows = [(u, i, 3 + 0.8 * (2 * job[u] - 1) + rng.normal(0, 0.3)) for u in range(40) for i in range(12)]
    (folder / "r.csv").write_text("user,item,rating\n" + "".join(f"{u},{i},{x:.3f}\n" for u, i, x in rows))
    return prepared(folder, folder / "r.h5", **settings)


def prepared(folder: Path, data: Path, **settings: object) -> Path:
    """Prepare and sample, if there are settings."""
    described = {"user": Description(folder / "users.csv"), "item": Description(folder / "items.csv")}
    prepare_ratings([str(folder / "r.csv")], data, described=described, test_fraction=0.0)
    if settings:
        assert sample(MPI.COMM_SELF, data, folder / "run", **{**SETTINGS, **settings}) == 0
    return folder / "run"


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    return make(tmp_path_factory.mktemp("described"), rank=K)


@pytest.fixture(scope="module")
def run(path) -> Run:
    return Run(path)


def described_by(run: Run, kind: str, folder: Path, text: str, **more: object):
    """What a file says, encoded."""
    (folder / "new.csv").write_text(text)
    return describe_new(run, kind, Description(folder / "new.csv", **more))


def centred_by_hand(run: Run, kind: str) -> tuple[np.ndarray, dict[str, float]]:
    """Means of the features over all rows, from the text of the file; and mean and sd of numbers."""
    lines = [line.split(",") for line in (run.path.parent / f"{kind}s.csv").read_text().splitlines()[1:]]
    if kind == "item":
        sets = [set(line[1].split("|")) for line in lines]
        return np.array([np.mean([atom in found for found in sets]) for atom in "xyz"]), {}
    likes = [set(line[3].split("|")) for line in lines]
    job, ages = [line[1] for line in lines], np.array([float(line[2]) for line in lines])
    means = [np.mean(np.array(job) == "a"), np.mean(np.array(job) == "b"), 0.0]
    means += [np.mean([atom in found for found in likes]) for atom in ("folk", "jazz", "rock")]
    return np.array(means), {"mean": ages.mean(), "sd": ages.std()}


def law_by_hand(run: Run, kind: str, number: int, x: np.ndarray, others: list[int], values: list[float]):
    """Mean and covariance of a row given its centred features and ratings, by the joint normal of both."""
    draw, other = run.draw(number), {"user": "item", "item": "user"}[kind]
    m = draw.prior[kind].mean + x @ draw.shared[f"{kind}.features.effects"]
    c = draw.prior[kind].covariance
    if not others:
        return m, c
    theta = draw.theta[other][others].astype(float)
    phi = np.column_stack([theta[:, :K], np.ones(len(others))])
    gain = c @ phi.T @ np.linalg.inv(phi @ c @ phi.T + np.eye(len(others)) / draw.tau)
    return m + gain @ (np.array(values) - run.mean - theta[:, K] - phi @ m), c - gain @ phi @ c


@pytest.mark.parametrize("kind", ["user", "item"])
@pytest.mark.parametrize("n", [0, 1, 3])
def test_the_law_of_a_new_row_with_features(run, tmp_path, kind, n):
    """Means and sds of predictions are those of N(m + B^T x, Lambda^-1), conditioned on the ratings, if any."""
    means, number = centred_by_hand(run, kind)
    if kind == "user":
        text, x = "likes,age,user,job\nrock|jazz,52.5,900,b\n", [0, 1, 0, 0, 1, 1]
        x = np.array([*x[:2], (52.5 - number["mean"]) / number["sd"], *x[3:]])
    else:
        text, x = "item,genres\n900,z|y\n", np.array([0, 1, 1])
    described, notes = described_by(run, kind, tmp_path, text)
    other = run.vocabulary({"user": "item", "item": "user"}[kind])
    others, values = [2, 5, 7][:n], [4.5, 2.0, 4.0][:n]
    folded, more = fold_in(run, kind, np.full(n, 900), other.ids[others], np.array(values), described=described)
    assert notes == more == []
    laws = [law_by_hand(run, kind, s, x - means, others, values) for s in range(len(run.draws))]
    for s, (mean, covariance) in enumerate(laws):
        found = folded.rows(s, np.array([0]))
        np.testing.assert_allclose(found.mean[0], mean, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(found.covariance[0], covariance, rtol=1e-5, atol=1e-7)
    predictor = Predictor(run, PredictOptions(of_mean=True), folded)
    index = predictor.index_of(kind, [900])
    pair = (index, np.int32([4])) if kind == "user" else (np.int32([4]), index)
    h = [run.draw(s).theta[other.kind][4].astype(float) for s in range(len(run.draws))]
    phi = [np.append(each[:K], 1.0) for each in h]
    centre = np.array([run.mean + p @ mean + each[K] for p, each, (mean, _) in zip(phi, h, laws, strict=True)])
    spread = np.array([p @ covariance @ p for p, (_, covariance) in zip(phi, laws, strict=True)])
    w = run.draw_weights
    found = predictor(*pair)
    assert found.mean[0] == pytest.approx(w @ centre, abs=1e-4)
    assert found.sd[0] == pytest.approx(np.sqrt(w @ spread + w @ (centre - w @ centre) ** 2), rel=1e-4)


def test_features_say_what_ratings_would(run, tmp_path):
    """Of two users without ratings the one with the job that likes everything is predicted higher."""
    described, _ = described_by(run, "user", tmp_path, "user,job,age,likes\n901,a,40,rock\n902,b,40,rock\n")
    folded, _ = fold_in(run, "user", *NOTHING, described=described)
    predictor = Predictor(run, PredictOptions(), folded)
    found = predictor(predictor.index_of("user", [901, 902]), np.int32([4, 4]))
    assert found.mean[1] > found.mean[0] + 1
    assert folded.rated(0).size == 0


def test_new_rows_are_encoded_as_those_of_the_run(run, path):
    """The file that the run was prepared with gives the same numbers, to the bit."""
    for kind in ("user", "item"):
        described, notes = describe_new(run, kind, Description(path.parent / f"{kind}s.csv"))
        assert notes == []
        with open_ratings(path.parent / "r.h5") as ratings:
            side = "rows" if (kind == "item") == ratings.transposed else "cols"
            stored = ratings.feature_slab(side, 0, len(run.vocabulary(kind)))
        for name, (features, values) in described.items():
            row = int(run.vocabulary(kind).index_of([name])[0])
            cells = slice(stored.indptr[row], stored.indptr[row + 1])
            assert features.tolist() == stored.indices[cells].tolist()
            assert values.tolist() == stored.values[cells].astype(float).tolist()


def test_what_is_unknown_says_nothing(run, tmp_path):
    """Strange categories and empty cells: no category holds, which is said; who has nothing at all is average."""
    text = "user,job,age,likes\n901,astronaut,,NaN\n902,b,,rock|polka\n903,b,,rock\n"
    described, notes = described_by(run, "user", tmp_path, text)
    assert notes == [
        "new.csv: job has values that the run does not know, which are ignored: 'astronaut'",
        "new.csv: likes has values that the run does not know, which are ignored: 'polka'",
    ]
    folded, _ = fold_in(run, "user", *NOTHING, described=described)
    law, prior = folded.rows(0, np.arange(3)), run.draw(0).prior["user"]
    np.testing.assert_allclose(law.mean[0], prior.mean)
    np.testing.assert_array_equal(law.mean[1], law.mean[2])
    assert np.abs(law.mean[1] - prior.mean).max() > 0.05


@pytest.mark.parametrize("anew", [False, True], ids=["its features", "new features"])
def test_a_known_row_has_its_features(run, tmp_path, anew):
    """New ratings of a known user are added to the old ones, with the features of the ratings file or new ones."""
    row = int(run.users.index_of([7])[0])
    means, _ = centred_by_hand(run, "user")
    line = (run.path.parent / "users.csv").read_text().splitlines()[8].split(",")
    described, notes = described_by(run, "user", tmp_path, f"user,job,age,likes\n7,{line[1]},,rock\n3,a,20,rock\n")
    with run.open_ratings() as ratings:
        side = "rows" if not ratings.transposed else "cols"
        own = ratings.feature_slab(side, row, row + 1)
    x = np.zeros(6)
    x[own.indices] = own.values
    if anew:
        x = np.array([line[1] == "a", line[1] == "b", 0, 0, 0, 1.0])
    new = {"described": described} if anew else {}
    folded, notes = fold_in(run, "user", np.array([7]), np.array([13]), np.array([5.0]), **new)
    assert any("features of 1 known user(s) left out" in note for note in notes) == anew
    rated = [line.split(",") for line in (run.path.parent / "r.csv").read_text().splitlines()[1:]]
    mine = [(int(i), float(value)) for user, i, value in rated if user == "7"] + [(13, 5.0)]
    others = run.items.index_of([i for i, _ in mine]).tolist()
    mean, covariance = law_by_hand(run, "user", 0, x - means, others, [value for _, value in mine])
    found = folded.rows(0, np.array([0]))
    np.testing.assert_allclose(found.mean[0], mean, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found.covariance[0], covariance, rtol=1e-4, atol=1e-6)


def test_rows_without_features_are_average_and_that_is_said(run, tmp_path):
    """One of two new users is described: the other has the prior's mean, and a note names it."""
    described, _ = described_by(run, "user", tmp_path, "user,job,age,likes\n901,b,40,rock\n")
    folded, notes = fold_in(run, "user", np.array([905]), np.array([3]), np.array([4.0]), described=described)
    assert notes == ["1 new user(s) without features are taken to have average features: 905"]
    alone, _ = fold_in(run, "user", np.array([905]), np.array([3]), np.array([4.0]))
    both, one = (each.rows(0, each.vocabulary.index_of([905])) for each in (folded, alone))
    np.testing.assert_array_equal(both.mean, one.mean)


@pytest.mark.parametrize("settings", [{"implicit_features": "both"}, {"noise": "both"}])
def test_without_ratings_other_parts_are_those_of_an_unknown_row(tmp_path, settings):
    """What else a row without ratings has of its own is not known: taken as of `--unknown prior`."""
    run = Run(make(tmp_path, **settings))
    described, _ = described_by(run, "user", tmp_path, "user,job,age,likes\n901,b,,rock\n902,,,\n")
    folded, _ = fold_in(run, "user", *NOTHING, described=described)
    predictor = Predictor(run, PredictOptions(), folded)
    index, items = predictor.index_of("user", [901, 902]), np.int32([4, 4])
    found, prior = predictor(index, items), predictor(np.int32([-1, -1]), items)
    assert (found.mean[1], found.sd[1]) == (prior.mean[1], prior.sd[1])
    assert found.mean[0] > prior.mean[0] + 0.3


@pytest.mark.parametrize(
    ("text", "more", "what"),
    [
        ("user,job,age\n9,a,3\n", {}, "new.csv has the columns job, age, and .* made from the columns job, age, likes"),
        ("name,job,age,likes\n9,a,3,rock\n", {"id_column": "user"}, "and no 'user' that --user-id names"),
        ("job,user_no,age,likes\na,9,3,rock\n", {}, "has the columns user_no, age, likes, and .* --user-id"),
        ("user,job,age,likes\n9,a,old,rock\n", {}, "line 2: the number age is 'old'; correct it, or leave the cell"),
        ("user,job,age,likes\n9,a,inf,rock\n", {}, "line 2: the number age is 'inf'"),
        ("user,job,age,likes\n9,a,1e300,rock\n", {}, "the numbers in age are too large"),
        ("user,job,age,likes\n9,a,3,rock\n9,b,3,rock\n", {}, "describes 1 user.s. more than once: 9"),
        ("user,job,age,likes\nx9,a,3,rock\n", {}, "the users of the run are integers, and 'x9' is not"),
        ("user,job,age,likes\n,a,3,rock\n", {}, "the user is missing in line 2"),
        ("user,job,age,likes\n3,a,3,rock\n", {}, "features of 1 known .* nothing is left to fold in"),
    ],
)
def test_bad_features_are_refused(run, tmp_path, text, more, what):
    """Each in a line that says what was found, where, and what to do."""
    (tmp_path / "new.csv").write_text(text)
    with pytest.raises(InputError, match=what):
        fold_in(
            run,
            "user",
            *NOTHING,
            described=describe_new(run, "user", Description(tmp_path / "new.csv", **more))[0],
        )


def test_a_run_without_features_takes_none(path, tmp_path):
    """It cannot know what they do, and says how it could."""
    assert sample(MPI.COMM_SELF, path.parent / "r.h5", tmp_path / "run", **SETTINGS, features="item") == 0
    with pytest.raises(
        InputError, match="was sampled without them: leave them out, or prepare the ratings with --user"
    ):
        describe_new(Run(tmp_path / "run"), "user", Description(path.parent / "users.csv"))


def test_matrices_must_be_as_wide(tmp_path):
    """Features of a sparse matrix are its columns; what has others is refused, and so is a table."""
    import scipy.sparse

    make(tmp_path)
    scipy.sparse.save_npz(tmp_path / "u.npz", scipy.sparse.csr_matrix(np.eye(USERS)[:, :3] + 0.5))
    prepare_ratings([str(tmp_path / "r.csv")], tmp_path / "m.h5", described={"user": Description(tmp_path / "u.npz")})
    assert sample(MPI.COMM_SELF, tmp_path / "m.h5", tmp_path / "run", **SETTINGS) == 0
    run = Run(tmp_path / "run")
    x = np.zeros((61, 3))
    x[60] = 0.5, 0.0, 2.5
    scipy.sparse.save_npz(tmp_path / "new.npz", scipy.sparse.csr_matrix(x))
    described, _ = describe_new(run, "user", Description(tmp_path / "new.npz"))
    assert {name: values.tolist() for name, (_, values) in described.items()} == {60: [0.5, 2.5]}
    scipy.sparse.save_npz(tmp_path / "wide.npz", scipy.sparse.csr_matrix(np.ones((61, 4))))
    for name, what in (
        ("wide.npz", "is a matrix of 4 columns, and .* from a matrix of 3"),
        ("users.csv", "has the columns"),
    ):
        with pytest.raises(InputError, match=what):
            describe_new(run, "user", Description(tmp_path / name))


class Frame:
    """What a data frame has of itself for us: labels, columns, an index."""

    def __init__(self, index: list, **columns: list) -> None:
        self.index, self.columns, self._columns = np.array(index), list(columns), columns

    def __getitem__(self, label: str) -> np.ndarray:
        return np.array(self._columns[label], dtype=object if isinstance(self._columns[label][0], str | list) else None)


def test_features_from_python(path):
    """Alone, with ratings at once or later, by `fold_in` and `update`, in a pickled model: the same predictions."""
    model = open_model(path)
    frame = Frame([901, 902], job=["b", "a"], age=[52.5, np.nan], likes=[["rock", "jazz"], []])
    cold = model.fold_in(features=frame)
    assert cold.predict([[901, 4]])[0] > cold.predict([[902, 4]])[0] + 1
    later = cold.fold_in([[901, 2, 1.1], [901, 5, 1.5]])
    assert later.predict([[901, 4]])[0] < cold.predict([[901, 4]])[0] - 0.2
    at_once = model.fold_in([[901, 2, 1.1], [901, 5, 1.5]], features=frame)
    copies = [later, at_once, pickle.loads(pickle.dumps(later))]
    assert len({tuple(copy.predict([[901, 4], [902, 4]])) for copy in copies}) == 1
    changed = later.fold_in(features=Frame([901], job=["a"], age=[52.5], likes=[["rock", "jazz"]]))
    assert changed.predict([[901, 4]])[0] < later.predict([[901, 4]])[0]
    assert set(cold.recommend([901], n=3)["user_id"]) == {901}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.update(features=frame)
    assert model.predict([[901, 4]])[0] == cold.predict([[901, 4]])[0]
    with pytest.raises(InputError, match="give ratings, features, or both"):
        model.fold_in()
    with pytest.raises(InputError, match="has the columns job, likes, and"):
        model.fold_in(features=Frame([901], job=["b"], likes=[["rock"]]))
    assert model.predict([[901, 4]])[0] == cold.predict([[901, 4]])[0]
