"""The Python API as notebooks, scripts and scikit-learn use it."""

import doctest
import gc
import os
import pickle
import shutil
import sys
import tempfile
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from mpi4py import MPI
from runs import Made, make_run
from support import planted, run

from dsgmcmc import BPMF, bpmf, open_run
from dsgmcmc.errors import InputError
from dsgmcmc.features.arrays import read_features
from dsgmcmc.posterior.cells.predict import Predictor
from dsgmcmc.posterior.draws import ENTITIES
from dsgmcmc.posterior.settings import PredictOptions
from dsgmcmc.prepare.prepare import prepare_ratings
from dsgmcmc.tables.result import Table

SHORT = {
    "rank": 2,
    "sampler": "baoab",
    "iterations": 80,
    "burn_in": 30,
    "options": {"grid": 2, "evaluate_every": 20},
}


@pytest.fixture(scope="module")
def ratings() -> tuple[np.ndarray, np.ndarray]:
    """Pairs of users and items, and their ratings, of planted factors."""
    i, j, x = planted(30, 20, 0.6)
    return np.column_stack([i, j]), x


@pytest.fixture(scope="module")
def model(ratings) -> BPMF:
    """Model of these ratings, a tenth of which is held out."""
    return BPMF(**SHORT, test_fraction=0.1).fit(*ratings)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Made:
    """Run of the command line, which no test changes."""
    return make_run(tmp_path_factory.mktemp("made"))


def here(out: Path, **more) -> BPMF:
    """Estimator that samples in this process, for tests that are not about starting others."""
    return BPMF(**SHORT, comm=MPI.COMM_SELF, out=out, **more)


def test_every_form_of_ratings_gives_the_same_model(ratings, model, tmp_path):
    """Pairs with y, triples, a data frame in any order of columns, a sparse matrix, a file: the
    same draws.
    """
    (pairs, x) = ratings
    expected = model.predict(ratings[0])
    i, j = pairs.T
    frame = pd.DataFrame({"rating": x.astype(float), "movieId": j, "userId": i})
    text = tmp_path / "ratings.csv"
    prepared = tmp_path / "ratings.h5"
    frame.to_csv(text, index=False)
    prepare_ratings([str(text)], prepared, test_fraction=0.1, seed=0)
    triples = np.column_stack([i, j, x])
    matrix = scipy.sparse.csr_matrix((x, (i, j)))
    for number, form in enumerate([triples, frame, matrix, text, str(prepared)]):
        again = here(tmp_path / str(number), test_fraction=0.1).fit(form)
        np.testing.assert_array_equal(again.predict(pairs), expected)
        assert again.rmse_ == model.rmse_


def test_predictions_and_their_uncertainty(model, ratings):
    """Means fit, sds are of new ratings, intervals hold what they say; attributes are by
    scikit-learn's conventions.
    """
    pairs, x = ratings
    for names, column in zip((model.users_, model.items_), pairs.T, strict=True):
        assert sorted(names.tolist()) == sorted(set(column.tolist()))
    assert model.n_features_in_ == 2
    assert model.mean_ == pytest.approx(x.mean(), abs=0.1)
    assert 0.4 < model.rmse_ < x.std()
    mean, sd = model.predict(pairs, return_std=True)
    np.testing.assert_array_equal(model.predict(pairs), mean)
    assert model.score(pairs, x) > 0.5
    assert model.score(pairs, x) == pytest.approx(
        1 - ((x - mean) ** 2).sum() / ((x - x.mean()) ** 2).sum()
    )
    assert (sd > 0.2).all()
    low, high = model.predict_interval(pairs, 0.8)
    # of ratings that were trained on 93 % after 2,000 sweeps of any of five seeds, 90 to 95 % after
    # these few
    assert 0.87 < np.mean((x >= low) & (x <= high)) < 0.98
    with pytest.warns(UserWarning, match="one user is unknown to the run: 999"):
        unknown = model.predict([[999, 3]], return_std=True)
    assert unknown[1][0] > sd.mean()
    with pytest.raises(InputError, match="999"):
        model.set_params(unknown="refuse").predict([[999, 3]])
    model.set_params(unknown="prior")


def test_whom_to_recommend_to(model, ratings):
    """One user by name, several, or all; a table shows itself, and becomes a data frame of either
    library.
    """
    user, other = model.users_[:2].tolist()
    one = model.recommend(user, n=3)
    assert list(one) == ["user_id", "item_id", "score", "rank", "sd", "q05", "q95", "ratings"]
    assert one["rank"].tolist() == [1, 2, 3]
    assert not set(model.recommend([user], n=3, include_rated=True)["item_id"]) <= set(
        one["item_id"]
    )
    assert one["item_id"].tolist() == model.recommend([user], n=3)["item_id"].tolist()
    everybody = model.recommend(n=2, include_rated=True)
    assert everybody["user_id"].tolist() == np.repeat(np.sort(model.users_), 2).tolist()
    only = int(one["item_id"][1])
    assert model.recommend(user, candidates=only)["item_id"].tolist() == [only]
    assert only not in model.recommend(user, exclude=only)["item_id"]
    shown = repr(everybody).splitlines()
    assert shown[0].split() == list(everybody)
    assert shown[-2:] == ["...", f"[{2 * len(model.users_)} rows x 8 columns]"]
    pd.testing.assert_frame_equal(one.to_pandas(), model.recommend(pd.Series([user]), n=3))
    frame = model.recommend(pd.DataFrame({"userId": [user, other], "age": [30, 40]}), n=1)
    assert frame["user_id"].tolist() == [user, other]
    assert isinstance(model.similar(only, n=2).to_pandas(), pd.DataFrame)


def test_polars_in_polars_out(model):
    """Names that are text have the type of text, too, not that of Python's objects."""
    pl = pytest.importorskip("polars", reason="polars is not installed: pip install polars")
    users = model.users_[:2].tolist()
    table = model.recommend(pl.DataFrame({"user": users}), n=2)
    assert isinstance(table, pl.DataFrame)
    assert table["user_id"].to_list() == [users[0], users[0], users[1], users[1]]
    assert Table(name=np.array(["a", "b"], object)).to_polars().schema == {"name": pl.String}


def test_names_that_are_text(ratings, tmp_path):
    """Rows of text and numbers together keep their text."""
    pairs = [[f"user {user}", int(item)] for user, item in ratings[0]]
    model = here(tmp_path / "run").fit(np.array(pairs, dtype=object), ratings[1])
    assert model.users_.tolist()[0].startswith("user ")
    assert model.items_.dtype == np.int64
    np.testing.assert_allclose(
        model.predict(pairs[:3]), model.predict(np.array(pairs[:3], dtype=object))
    )
    assert model.rmse_ is None


def test_warm_start_goes_on_and_is_the_same_as_one_run(ratings, model):
    """Bit for bit: resumed chains are those that were never interrupted."""
    part = BPMF(**{**SHORT, "iterations": 50}, test_fraction=0.1, warm_start=True).fit(*ratings)
    whole = part.set_params(iterations=80).fit(*ratings)
    np.testing.assert_array_equal(whole.predict(ratings[0]), model.predict(ratings[0]))


def test_the_run_directory_and_the_seed(ratings, tmp_path):
    """out= keeps the run for the command line; random_state is the seed; a second fit does not
    overwrite it.
    """
    one = here(tmp_path / "run", random_state=5).fit(*ratings)
    two = here(tmp_path / "two", random_state=np.random.RandomState(1)).fit(*ratings)
    assert open_run(tmp_path / "run").run_.config.seed == 5
    assert not np.array_equal(one.predict(ratings[0]), two.predict(ratings[0]))
    with pytest.raises(InputError, match="not empty"):
        one.fit(*ratings)
    with pytest.raises(InputError, match="was sampled on other data"):
        one.set_params(warm_start=True).fit(ratings[0], -ratings[1])
    # from the ratings beside the run
    assert len(BPMF.load(tmp_path / "run").recommend([3, 3], n=2)["rank"]) == 2


def test_n_jobs_starts_mpirun_and_changes_nothing(ratings, model):
    """Two processes, the same bits."""
    both = BPMF(**SHORT, test_fraction=0.1, n_jobs=2).fit(*ratings)
    np.testing.assert_array_equal(both.predict(ratings[0]), model.predict(ratings[0]))


def test_scikit_learn_takes_it(ratings):
    """clone, get_params, set_params, cross_val_score; scikit-learn is not needed to import."""
    from sklearn.base import clone, is_regressor
    from sklearn.model_selection import KFold, cross_val_score

    model = clone(BPMF(**SHORT))
    assert model.get_params() == BPMF(**SHORT).get_params()
    assert is_regressor(model)
    folds = KFold(2, shuffle=True, random_state=0)
    score = "neg_root_mean_squared_error"
    longer = clone(model).set_params(iterations=400)  # factors grow from small ones
    assert (-cross_val_score(longer, *ratings, cv=folds, scoring=score) < ratings[1].std()).all()
    with pytest.raises(ValueError, match="no parameter 'depth'"):
        model.set_params(depth=3)
    assert repr(BPMF(rank=4, chains=2)) == "BPMF(rank=4, chains=2)"


def test_the_examples_in_the_docstrings():
    """They are what people copy."""
    examples = doctest.testmod(bpmf)
    assert examples.attempted > 5
    assert examples.failed == 0


def test_a_pickled_model_needs_no_files(ratings, tmp_path):
    """It predicts and recommends where its run and its ratings are gone, as on another machine."""
    model = BPMF(**SHORT, random_state=3).fit(*ratings)
    predicted = model.predict([[3, 5]])
    recommended = model.recommend([3, 4], n=3).to_pandas()
    content = pickle.dumps(model)
    shutil.rmtree(model.run_.path.parent)
    again = pickle.loads(content)
    np.testing.assert_array_equal(again.predict([[3, 5]]), predicted)
    pd.testing.assert_frame_equal(again.recommend([3, 4], n=3).to_pandas(), recommended)
    assert len(again.run_.draws) == len(model.run_.draws)


def test_a_run_of_the_command_line_is_a_model(tmp_path):
    """Predictions are those of the run; its ratings are found where they were moved; it can be
    sampled on.
    """
    made = make_run(tmp_path)
    moved = made.data.rename(tmp_path / "moved.h5")
    model = BPMF.load(made.path)
    pairs = np.array([[made.users[0], made.items[0]], [made.users[1], made.items[2]]])
    opened = made.open()
    rows = [
        opened.vocabulary(entity).index_of(column)
        for entity, column in zip(ENTITIES, pairs.T, strict=True)
    ]
    expected = Predictor(opened, PredictOptions(clip=True))(*rows).mean
    np.testing.assert_array_equal(model.predict(pairs), expected.astype(np.float64))
    for needs_ratings in (
        lambda: model.recommend([made.users[0]]),
        lambda: open_run(made.path).update([[*pairs[0], 1.0]]),
    ):
        with pytest.raises(InputError, match="is not there: give its path"):
            needs_ratings()
    assert len(BPMF.load(made.path, data=moved).recommend([made.users[0]], n=2)["rank"]) == 2
    assert "saved draws" in repr(model.run_)
    longer = model.set_params(iterations=140).fit(moved)
    assert longer.run_.config.iterations == 140


def test_columns_of_a_data_frame(ratings, tmp_path):
    """Those that `columns` names, in fits, predictions and new ratings; usual names are known in
    predictions, too.
    """
    (i, j) = ratings[0].T
    x = ratings[1]
    usual = pd.DataFrame({"rating": x, "item": j, "user": i})
    named = usual.set_axis(["liked", "sku", "userId"], axis="columns")
    expected = here(tmp_path / "usual").fit(usual).predict(usual[["user", "item"]])
    model = here(tmp_path / "named", columns="item=sku,rating=liked").fit(named)
    for pairs in (named[["sku", "userId"]], usual[["user", "item"]]):
        np.testing.assert_array_equal(model.predict(pairs), expected)
    told = model.fold_in(pd.DataFrame({"liked": [1.0, 5.0], "sku": j[:2], "userId": [901, 901]}))
    with pytest.warns(UserWarning, match="one user is unknown to the run: 901"):
        assert told.predict([[901, j[0]]]) != model.predict([[901, j[0]]])


def test_names_that_say_nothing_are_refused(model):
    """Taken by position they would be sampled in a wrong order without a word."""
    frame = pd.DataFrame([[1, 3, 5.0], [2, 4, 4.0]], columns=["a", "b", "c"])
    words = (
        r"cannot tell which column is user, item, rating \(columns a, b, c\); use columns user=NAME"
    )
    for call, said in (
        (BPMF().fit, words),
        (model.predict, "cannot tell which"),
        (model.fold_in, "cannot tell which"),
    ):
        with pytest.raises(InputError, match=said):
            call(frame)


def test_new_ratings_of_known_and_new_users_are_taken_in(made):
    """`fold_in` takes them into another model, `update` into this one, as often as they come; a
    pickle has them.
    """
    model = open_run(made.path)
    known = made.users[0]
    pairs = [[known, made.items[5]], [-9, made.items[5]], [made.users[1], made.items[5]]]
    before = model.predict(pairs)
    low = [[user, item, 1.0] for user in (known, -9) for item in made.items[:10]]
    with pytest.warns(UserWarning, match="one item is unknown to the run: -5"):
        folded = model.fold_in([*low, [-9, -5, 2.0]])
    np.testing.assert_array_equal(model.predict(pairs), before)
    after = folded.predict(pairs)
    assert (np.abs(after - 1) < np.abs(before - 1) - 0.5)[:2].all()
    assert after[2] == before[2]
    assert folded.recommend([-9, known], n=2, by="likely")["rank"].tolist() == [1, 2, 1, 2]
    for start in (0, 10):
        model.update(np.array(low[start : start + 10], float))
    np.testing.assert_allclose(model.predict(pairs), after)
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(model)).predict(pairs), model.predict(pairs)
    )
    with pytest.raises(InputError, match="has folded-in users"):
        model.update([[known, made.items[0], 3.0]], kind="item")


@pytest.mark.long
def test_a_server_may_take_in_ratings_for_ever(made):
    """Hundreds of updates of the same users leave as many files, threads, folders and bytes as some
    tens did.
    """
    model = open_run(made.path)
    rng = np.random.default_rng(0)

    def used(updates: int) -> tuple[list[int], int]:
        for _ in range(updates):
            user = rng.integers(-5, 0)
            item = made.items[rng.integers(10)]
            model.update([[user, item, float(rng.integers(1, 6))]])
            model.predict([[user, made.items[0]]])
        gc.collect()  # closes files that errors of other tests have kept open
        places = Path("/proc/self/fd"), Path(tempfile.gettempdir())
        counts = [threading.active_count(), *(len(list(place.iterdir())) for place in places)]
        return counts, int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf(
            "SC_PAGE_SIZE"
        )

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", folder)
        before, bytes_before = used(100)
        after, bytes_after = used(300)
    assert after == before
    assert bytes_after - bytes_before < 3e6


def test_before_fit_every_method_raises_what_scikit_learn_raises(model):
    """Programs that handle any estimator catch that error, and `check_is_fitted` agrees with it."""
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    new = BPMF()
    pairs = [[1, 2]]
    calls = [
        partial(method, pairs) for method in (new.predict, new.predict_interval, new.predict_proba)
    ]
    calls += [partial(method, pairs, [3.0]) for method in (new.score, new.fold_in, new.update)]
    for call in (*calls, partial(new.recommend, [1]), partial(new.similar, 1), new.to_arviz):
        with pytest.raises(NotFittedError, match="not fitted: call fit first"):
            call()
    with pytest.raises(NotFittedError):
        check_is_fitted(BPMF())
    check_is_fitted(model)
    assert not hasattr(BPMF(), "users_")


#: A fit whose ratings file cannot be written, as on a disk that is full.
FULL = """
import resource
import numpy as np
from dsgmcmc import BPMF
from dsgmcmc.errors import WriteError

pairs = np.array([(user, item) for user in range(60) for item in range(30)])
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
try:
    BPMF(rank=2).fit(pairs, pairs.sum(axis=1) % 5 + 1.0)
except WriteError as error:
    print(error)
"""


def test_a_disk_that_is_full_is_told_from_wrong_input(tmp_path):
    """The error has a class of its own, and names the folder, although users did not choose it."""
    done = run(sys.executable, "-c", FULL, env={"TMPDIR": str(tmp_path)}).expect(0)
    assert str(tmp_path) in done.out
    assert "cannot be written" in done.out


def test_importing_the_package_is_light():
    """Numerical libraries are loaded when something is used, scikit-learn never."""
    code = (
        "import sys, dsgmcmc\nprint([m for m in ('numpy', 'numba', 'mpi4py') if m in"
        " sys.modules])\n"
    )
    code += (
        "from dsgmcmc import BPMF\ntry:\n  BPMF().predict([[1, 2]])\nexcept AttributeError as"
        " error:\n"
    )
    code += (
        "  print(type(error).__name__, [m for m in ('sklearn', 'mpi4py.MPI', 'arviz_base') if m in"
        " sys.modules])"
    )
    assert run(sys.executable, "-c", code).expect().out.splitlines() == ["[]", "NotFittedError []"]


SOME = [[u, i, u + i] for u in range(9) for i in range(9)]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: m.recommend([1], by="foo"), "by: must be 'likely', 'explore', 'exposure'"),
        (lambda m: m.recommend("u42"), "the run's users have integer names; found u42"),
        (
            lambda m: m.recommend([[1, 2]]),
            r"expected names of users; found an array of shape \(1, 2\)",
        ),
        (lambda m: m.recommend([1], n=2.5), "n: must be a valid integer.*found 2.5"),
        (
            lambda m: m.recommend([1], by="exposure", at_least=4.0),
            "does not use at_least: leave it out, or rank by",
        ),
        (
            lambda m: m.recommend([1], by="thompson", seed="a"),
            "seed: must be a valid integer.*found 'a'",
        ),
        (lambda m: m.predict([1, 2]), r"shape \(n, 2\)"),
        (lambda m: m.similar([1]), "the name of one item"),
        (lambda _: BPMF().fit(None), "expected an array or a data frame .*; found None"),
        (lambda _: BPMF(unknown="x").fit("r.csv"), "unknown='x'"),
        (lambda _: BPMF(options={"rank": 3}).fit("r.csv"), "which is a parameter"),
        (lambda _: BPMF().fit("nowhere.h5"), "does not exist"),
        (
            lambda _: BPMF().fit([[1, 1], [2, 2]], ["1_0", "2"]),
            r"row 0 .*not a number \(.*rating 1_0\)",
        ),
        (lambda _: BPMF().fit([[1, 1], [2, 2]], [20000001, 20000003]), "subtract 20000002"),
        (
            lambda _: BPMF().fit([[1, 1], [2, 2]], [1j, 2]),
            r"row 0 .*not a number \(.*rating 1j\)",
        ),
        (
            lambda _: read_features(pd.DataFrame([[1, 2, 3]], columns=["user", "a", "a"]), "user"),
            "the same name",
        ),
        (lambda _: BPMF(comm=MPI.COMM_SELF).fit([[1, 2], [3, 4]], [1, 2]), "out="),
        (lambda _: BPMF(n_jobs=10_000).fit(SOME), "n_jobs 10000: there"),
        (
            lambda _: BPMF(until="ess=10").fit(SOME),
            "give until none, or prepare it with test_fraction 0.1",
        ),
        (
            lambda _: BPMF(rank=2, iterations=10, options={"grid": 2}).fit(SOME),
            "the first draw is made at iteration",
        ),
    ],
)
def test_what_python_is_told_wrong(model, call, words):
    """In words of Python; none is taken in silence."""
    with pytest.raises((InputError, ValueError), match=words):
        call(model)
