"""Completed matrices: predictions, draws, known cells, and which row is which."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from runs import Made, make_run

from dsgmcmc import BPMF, open_run
from dsgmcmc.errors import InputError
from dsgmcmc.posterior.cells.predict import Predictor
from dsgmcmc.posterior.matrix import complete
from dsgmcmc.posterior.matrix.complete import Completion
from dsgmcmc.posterior.matrix.known import as_written
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.settings import PredictOptions

SHORT = {
    "rank": 2,
    "sampler": "gibbs",
    "iterations": 150,
    "burn_in": 50,
    "options": {"grid": 1, "thin": 1, "save_draws": 100},
}
LAWS = {
    "gaussian": {"noise": "both"},
    "items are rows": {"users": 18, "items": 40, "strings": True, "chains": 2},
    "student-t": {"likelihood": "student-t", "noise": "by-item"},
    "logarithms": {"stars": True, "scale": "log"},
    "levels": {"stars": True, "likelihood": "ordinal-logit", "noise": "by-item"},
    "thresholds of users": {"stars": True, "likelihood": "ordinal-logit", "thresholds": "user"},
    "counts": {"stars": True, "likelihood": "negative-binomial"},
    "time": {"time_levels": "user:page"},
    "biases only": {"rank": 0, "sampler": {"name": "gibbs"}},
}


@pytest.fixture(scope="module", params=LAWS)
def made(request, tmp_path_factory) -> Made:
    return make_run(tmp_path_factory.mktemp("run"), **LAWS[request.param])


def completion_of(run: Run, items: np.ndarray, *, clip: bool = True) -> Completion:
    """Return what completes a matrix of these items."""
    return Completion(Predictor(run, PredictOptions(clip=clip)), items)


def joined(cells: Completion, users: np.ndarray, *others: str) -> dict[str, np.ndarray]:
    """Return the predicted cells of users, all blocks as one."""
    blocks = [block.values for block in cells.filled(users, None, others=others)]
    return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}


def pairs_of(users: np.ndarray, items: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return all pairs of users and items, row by row."""
    rows = np.repeat(users, len(items)).astype(np.int32)
    return rows, np.tile(items, len(users)).astype(np.int32)


@pytest.mark.parametrize("unknown", [False, True], ids=["known", "with unknown rows"])
def test_cells_are_the_predictions_of_pairs(made, unknown, monkeypatch):
    """Under every likelihood, for known rows and for rows that have only their prior; whatever the
    size of blocks.
    """
    monkeypatch.setattr(complete, "CELLS_OF_DRAWS", 50)
    run = made.run
    users = np.arange(len(run.users), dtype=np.int32)[:7]
    items = np.arange(len(run.items), dtype=np.int32)[::-1][:9]
    if unknown:
        users[3] = -1
        items[2] = -1
    cells = completion_of(run, items, clip=True)
    predictor = Predictor(run, PredictOptions(clip=True))
    expected = predictor(*pairs_of(users, items))
    shape = (len(users), len(items))
    tolerance = {"rtol": 1e-5, "atol": 1e-5}
    means = joined(cells, users)
    np.testing.assert_allclose(means["rating"], expected.mean.reshape(shape), **tolerance)
    moments = joined(cells, users, "sd")
    np.testing.assert_allclose(moments["rating"], expected.mean.reshape(shape), **tolerance)
    if run.config.law.transform.point_name == "mean":
        np.testing.assert_allclose(moments["sd"], expected.sd.reshape(shape), **tolerance)


def test_imputations_have_the_predictive_distribution(made):
    """The randomised probability integral transform of the drawn cells is uniform.

    600 matrices of 63 cells are drawn from 40 draws of the posterior, 15 from each, so that shares
    err by 0.5 / sqrt(600) at most if all cells of a matrix agree.
    """
    run = made.run
    users = np.arange(7, dtype=np.int32)
    items = np.arange(9, dtype=np.int32)
    cells = completion_of(run, items, clip=False)
    number = 600
    drawn = [
        cells.imputed(users, first=0, number=k, position=position)
        for k, position in enumerate(cells.positions(number))
    ]
    positions = np.empty((number, 63))
    rng = np.random.default_rng(0)
    for rows, predictive in Predictor(run, PredictOptions()).distributions(*pairs_of(users, items)):
        for k, matrix in enumerate(drawn):
            low, high = predictive.pit(matrix.reshape(-1)[rows])
            positions[k, rows] = low + (high - low) * rng.random(len(low))
    for share in (0.1, 0.5, 0.9):
        assert abs((positions < share).mean() - share) < 0.02


def test_imputations_of_some_cells_are_those_of_all(made):
    """A number belongs to a user, an item and a matrix: not to a block, a selection or an order."""
    run = made.run
    users = np.arange(7, dtype=np.int32)
    items = np.arange(9, dtype=np.int32)
    whole = completion_of(run, items).imputed(users, first=0, number=3, position=2)
    some = completion_of(run, items[[4, 1]]).imputed(users[[5, 2]], first=1, number=3, position=2)
    np.testing.assert_allclose(some, whole[np.ix_([5, 2], [4, 1])], rtol=1e-5)
    other = completion_of(run, items).imputed(users, first=0, number=4, position=2)
    assert (other != whole).mean() > 0.3


def test_draws_are_spread_over_chains_in_proportion_to_their_weights(made):
    """Every draw once, if there are as many matrices as draws of equal weight."""
    cells = completion_of(made.run, np.zeros(1, np.int32))
    n = len(made.run.draws)
    if np.ptp(made.run.draw_weights) < 1e-12:
        assert cells.positions(n) == list(range(n))
    shares = np.bincount(cells.positions(100 * n), minlength=n) / (100 * n)
    np.testing.assert_allclose(shares, made.run.draw_weights, atol=0.02 / n)


# -------------------------------------------------------------------------------- matrices


@pytest.fixture(scope="module")
def whole() -> np.ndarray:
    """A matrix of rank 2 with noise."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(50, 2)) @ rng.normal(size=(2, 8)) + rng.normal(0, 0.1, (50, 8)) + 0.1


@pytest.fixture(scope="module")
def holes(whole) -> np.ndarray:
    """The matrix, a third of it missing."""
    missing = np.random.default_rng(1).random(whole.shape) < 0.3
    return np.where(missing, np.nan, whole)


@pytest.fixture(scope="module")
def frame(holes) -> pd.DataFrame:
    index = pd.Index([f"site {k}" for k in range(len(holes))], name="site")
    return pd.DataFrame(holes, index, list("abcdefgh"))


@pytest.fixture(scope="module")
def model(holes) -> BPMF:
    return BPMF(**SHORT).fit(holes)


@pytest.fixture(scope="module")
def framed(frame) -> BPMF:
    return BPMF(**SHORT, test_fraction=0.1).fit(frame)


def test_known_cells_stay_and_holes_are_filled(model, holes):
    """To the last bit, also where ratings are stored as float32; the default and all options."""
    known = ~np.isnan(holes)
    filled = model.complete()
    np.testing.assert_array_equal(filled[known], holes[known])
    np.testing.assert_allclose(filled[~known], model.predict(np.argwhere(~known)), atol=1e-5)
    mean, sd = model.complete(return_std=True)
    np.testing.assert_allclose(mean, filled, atol=1e-5)
    assert (sd[known] == 0).all()
    assert (sd[~known] > 0).all()
    for matrix in model.complete(draws=2):
        np.testing.assert_array_equal(matrix[known], holes[known])
    smoothed = model.complete(known="fitted")
    np.testing.assert_allclose(smoothed[known], model.predict(np.argwhere(known)), atol=1e-5)


def test_a_frame_keeps_index_labels_and_types(frame):
    """Columns without holes keep integers, others their float type."""
    given = frame.assign(a=np.arange(len(frame)) % 5, b=frame["b"].astype(np.float32))
    filled = BPMF(**SHORT).fit(given).complete()
    pd.testing.assert_index_equal(filled.index, given.index)
    pd.testing.assert_index_equal(filled.columns, given.columns)
    pd.testing.assert_series_equal(filled["a"], given["a"])
    assert filled["b"].dtype == np.float32
    assert not filled.isna().any(axis=None)


def test_an_index_of_several_levels_names_rows(frame):
    """It comes back, and rows are matched by it."""
    index = pd.MultiIndex.from_product([range(len(frame) // 2), ["a", "b"]], names=["site", "plot"])
    levels = frame.set_axis(index)
    model = BPMF(**SHORT).fit(levels)
    filled = model.complete()
    assert filled.index.equals(index)
    pd.testing.assert_frame_equal(model.complete(levels.iloc[[5, 2]]), filled.iloc[[5, 2]])


def test_a_column_of_names_stays_where_it_is(frame):
    """It is no column of values."""
    given = frame.reset_index()
    filled = BPMF(**SHORT, matrix=True).fit(given).complete()
    pd.testing.assert_series_equal(filled["site"], given["site"])
    assert list(filled) == list(given)
    assert not filled.isna().any(axis=None)


def test_a_data_array_comes_back(holes, frame):
    """With its dimensions and coordinates."""
    xarray = pytest.importorskip("xarray")
    coords = {"site": frame.index.to_numpy(), "hour": np.arange(8)}
    given = xarray.DataArray(holes, coords, ["site", "hour"], name="ozone")
    filled = BPMF(**SHORT).fit(given).complete()
    assert filled.dims == given.dims
    assert filled.name == "ozone"
    xarray.testing.assert_equal(filled.where(given.notnull()), given)
    assert int(filled.isnull().sum()) == 0


def test_polars_comes_back(frame):
    """With its columns in order."""
    polars = pytest.importorskip("polars")
    given = polars.DataFrame(frame.reset_index().to_dict("list")).fill_nan(None)
    filled = BPMF(**SHORT, matrix=True).fit(given).complete()
    assert isinstance(filled, polars.DataFrame)
    assert filled.columns == given.columns
    assert filled.null_count().sum_horizontal().item() == 0


def test_a_sparse_matrix_becomes_dense(holes):
    """What it does not store is a hole; a zero that it stores is known."""
    rows, columns = np.nonzero(~np.isnan(holes))
    stored = scipy.sparse.coo_array((holes[rows, columns], (rows, columns)), holes.shape)
    stored.data[0] = 0.0
    filled = BPMF(**SHORT).fit(stored).complete()
    assert filled.shape == holes.shape
    assert filled[rows[0], columns[0]] == 0.0
    assert np.isfinite(filled).all()


def test_ratings_that_were_no_matrix_become_a_table(holes, framed):
    """With rows and columns in the order of names; known cells are as they were written."""
    rows, columns = np.nonzero(~np.isnan(holes))
    values = np.round(holes[rows, columns], 2)
    long = pd.DataFrame({"user": 2 * rows, "item": columns, "rating": values})
    table = BPMF(**SHORT).fit(long).complete()
    assert list(table) == ["user", *"01234567"]
    assert table["user"].tolist() == sorted(set(2 * rows))
    cells = table.drop(columns="user").to_numpy()
    assert (cells[rows, columns] == values).all()
    opened = open_run(framed.run_.path).complete()
    assert list(opened) == ["user", *"abcdefgh"]


def test_test_ratings_are_known_cells(framed, frame):
    """They were given, too."""
    known = frame.notna()
    assert len(framed.run_.test_pairs()[0]) > 10
    pd.testing.assert_frame_equal(framed.complete().where(known), frame, check_dtype=False)


def test_a_matrix_that_changed_after_the_fit_is_that_of_the_fit(holes):
    """Programs fill their matrix in place."""
    given = holes.copy()
    model = BPMF(**SHORT).fit(given)
    expected = model.complete()
    given[np.isnan(given)] = 7.0
    given[0] = 7.0
    np.testing.assert_allclose(model.complete(), expected, rtol=1e-6)


def test_a_pickled_model_completes_its_matrix(model):
    """The matrix is in the pickle."""
    import pickle

    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).complete(), model.complete())


# -------------------------------------------------------------------------------- other matrices


def test_rows_of_an_array_are_new(model, holes):
    """They are folded in by their own cells, whatever their number; the training matrix itself is
    known.
    """
    np.testing.assert_array_equal(model.transform(holes.copy()), model.complete())
    chosen = holes[[9, 4, 2]]
    filled = model.transform(chosen)
    known = ~np.isnan(chosen)
    named = [[-k - 1, j, chosen[k, j]] for k, j in np.argwhere(known)]
    expected = model.fold_in(named).predict([[-k - 1, j] for k, j in np.argwhere(~known)])
    np.testing.assert_allclose(filled[~known], expected, atol=1e-5)
    # the first row of the training is another one
    assert abs(filled - model.complete()[:3])[~known].max() > 0.1


def test_draws_of_new_rows_vary_with_their_uncertainty(model, holes):
    """The sd of many imputations is that of a new rating; a row with one known cell is drawn whole:
    its holes are correlated.
    """
    chosen = holes[:2].copy()
    chosen[1] = np.nan
    chosen[1, 0] = 1.0
    _, sd = model.complete(chosen, return_std=True)
    drawn = np.array(model.complete(chosen, draws=400))
    np.testing.assert_allclose(drawn.std(axis=0), sd, rtol=0.2, atol=1e-9)
    correlations = np.corrcoef(drawn[:, 1, 1:].T)
    assert abs(correlations[np.triu_indices(7, 1)]).max() > 0.5


def test_rows_and_columns_of_a_frame_are_matched_by_name(framed, frame):
    """In any order and selection; known cells may be left out."""
    filled = framed.complete()
    part = frame.loc[["site 7", "site 3"], ["h", "b"]]
    pd.testing.assert_frame_equal(framed.complete(part), filled.loc[part.index, part.columns])
    expected = framed.complete(known="fitted").loc[part.index, part.columns]
    pd.testing.assert_frame_equal(framed.complete(part * np.nan), expected)


@pytest.mark.parametrize("columns", ["user=site,item=species,rating=count", "weight=precision"])
def test_columns_of_a_table_of_ratings_do_not_name_those_of_a_matrix(frame, columns):
    """The model completes matrices whose rows are named by the index, or by a column."""
    names = dict(zip(("user", "item", "rating"), ("site", "species", "count"), strict=True))
    table = frame.melt(ignore_index=False, var_name="species", value_name="count").dropna()
    table = table.reset_index().assign(precision=1.0)
    if "user" not in columns:
        table = table.rename(columns={name: role for role, name in names.items()})
    model = BPMF(**SHORT, columns=columns).fit(table)
    filled = model.complete(frame)
    pd.testing.assert_frame_equal(model.complete(frame.reset_index()).set_index("site"), filled)
    own = model.complete().set_index(model.run_.users.heading)
    np.testing.assert_allclose(filled, own.loc[filled.index, filled.columns], rtol=1e-5)


def test_new_cells_of_known_rows_are_folded_in(framed, frame):
    """Together with the cells of the training."""
    site = frame.index[frame["a"].isna()][0]
    changed = frame.loc[[site]].assign(a=3.0)
    filled = framed.fold_in([[site, "a", 3.0]])
    others = [[site, item] for item in changed.columns[changed.loc[site].isna()]]
    completed = framed.complete(changed)
    expected = filled.predict(others)
    np.testing.assert_allclose(completed.loc[site, [j for _, j in others]], expected, rtol=1e-4)
    assert filled.complete().loc[site, "a"] == 3.0


def test_unknown_rows_and_columns_have_their_prior(framed, frame):
    """With a warning, or not at all."""
    part = frame.iloc[:2].assign(new=np.nan)
    with pytest.warns(UserWarning, match="one item is unknown to the run: new"):
        filled = framed.complete(part)
    assert np.isfinite(filled["new"]).all()
    empty = pd.DataFrame(np.nan, ["nobody"], frame.columns)
    with pytest.warns(UserWarning, match="one user is unknown to the run: nobody"):
        assert np.isfinite(framed.complete(empty)).all(axis=None)
    refusing = framed.fold_in([["site 0", "a", 0.1]])
    refusing.unknown = "refuse"
    with pytest.raises(InputError, match="one item is unknown"):
        refusing.complete(part)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda frame: frame.to_numpy()[:, :7], "X has 7 features, but BPMF is expecting 8"),
        (lambda frame: frame.set_axis(list("ABCDEFGH"), axis=1), "knows none of the columns: A"),
        (lambda frame: frame.set_axis(["a", *"abcdefg"], axis=1), "two columns of the matrix"),
        (lambda frame: frame.set_axis(["x"] * len(frame)), "two rows of the matrix"),
        (lambda frame: frame.fillna(np.inf), "row 0 .*, item .: 'inf'"),
        (lambda frame: frame.to_numpy().tolist()[0], "expected a matrix"),
    ],
)
def test_what_is_no_such_matrix_is_refused(framed, frame, given, words):
    """It says what was found."""
    with pytest.raises(InputError, match=words):
        framed.complete(given(frame))


def test_options_that_contradict_are_refused(model, tmp_path):
    """And draws of what has no distribution."""
    for options, words in (
        ({"known": "all"}, "known='all': expected 'given' or 'fitted'"),
        ({"draws": -1}, "expected a whole number"),
        ({"draws": 2, "return_std": True}, "either draws or return_std"),
    ):
        with pytest.raises(InputError, match=words):
            model.complete(**options)
    clicks = make_run(tmp_path, likelihood="all-cells", rank=2)
    with pytest.raises(InputError, match="predicts scores, not ratings"):
        open_run(clicks.path, data=clicks.data).complete(draws=1)


# -------------------------------------------------------------------------------- scikit-learn


def test_scikit_learn_accepts_the_transformer():
    """Its own checks of transformers."""
    from sklearn.utils import estimator_checks

    model = BPMF(matrix=True, rank=1, iterations=30, burn_in=10, options={"grid": 1})
    for check in estimator_checks._yield_transformer_checks(model):
        check("BPMF", model)


def test_it_stands_in_a_pipeline(whole, holes):
    """Where an imputer stands, with cross-validation; rows of a test fold are new."""
    from sklearn.linear_model import LinearRegression
    from sklearn.model_selection import cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    target = whole @ np.arange(8.0)
    steps = make_pipeline(StandardScaler(), BPMF(**SHORT), LinearRegression())
    scores = cross_val_score(steps, holes, target, cv=3, error_score="raise")
    assert scores.min() > 0.8


def test_fit_transform_refuses_what_may_be_a_table():
    """Three columns may be user, item and rating."""
    with pytest.raises(InputError, match=r"give BPMF\(matrix=True\)"):
        BPMF(**SHORT).fit_transform(np.arange(30.0).reshape(10, 3))


def test_numbers_are_as_they_were_written():
    """Of few digits, of any size; others are those of float32."""
    values = np.array([0.1, 4.35, -1e-7, 1234.5, 0.0, 16777216.0, np.pi, 3e38, np.nan])
    found = as_written(values.astype(np.float32))
    np.testing.assert_array_equal(found[:6], values[:6])
    np.testing.assert_array_equal(found.astype(np.float32), values.astype(np.float32))
