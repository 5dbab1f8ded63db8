"""`BPMF` where scikit-learn's own imputers and regressors stand: names, outputs, weights, seeds."""

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_checks

from dsgmcmc import BPMF
from dsgmcmc.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore")
SHORT = {"rank": 1, "iterations": 80, "burn_in": 30, "options": {"grid": 1, "save_draws": 20}}
RNG = np.random.default_rng(14)
WHOLE = pd.DataFrame(RNG.normal(size=(90, 1)) + RNG.normal(0, 0.4, (90, 6)), columns=list("abcdef"))
X = WHOLE.mask(RNG.random(WHOLE.shape) < 0.2)
#: scikit-learn's checks that ask nothing of `predict`, whose X are pairs of a user and an item,
#: and match columns by their labels, and not by position where the training had none.
CHECKS = [
    "do_not_raise_errors_in_init_or_set_params",
    "dont_overwrite_parameters",
    "estimator_cloneable",
    "estimator_repr",
    "estimator_sparse_array",
    "estimator_sparse_matrix",
    "estimators_fit_returns_self",
    "estimators_overwrite_params",
    "estimators_unfitted",
    "fit1d",
    "fit_check_is_fitted",
    "fit_idempotent",
    "get_params_invariance",
    "n_features_in",
    "no_attributes_set_in_init",
    "parameters_default_constructible",
    "readonly_memmap_input",
    "set_output_transform",
    "set_params",
    "transformer_get_feature_names_out",
    "transformer_get_feature_names_out_pandas",
    "valid_tag_types",
]


@pytest.mark.parametrize("name", CHECKS)
def test_its_own_checks_hold(name):
    """Those of transformers stand in `test_completion`."""
    model = BPMF(matrix=True, rank=1, iterations=30, burn_in=10, options={"grid": 1})
    getattr(estimator_checks, f"check_{name}")("BPMF", model)


def test_names_come_out_of_a_column_transformer():
    """With the prefix of the step; columns are filled as by the model alone."""
    parts = [("fill", BPMF(matrix=True, **SHORT), ["a", "b", "c"]), ("keep", "passthrough", ["d"])]
    columns = ColumnTransformer(parts).fit(X)
    names = ["fill__a", "fill__b", "fill__c", "keep__d"]
    assert columns.get_feature_names_out().tolist() == names
    alone = BPMF(matrix=True, **SHORT).fit(X[["a", "b", "c"]])
    np.testing.assert_allclose(columns.transform(X)[:, :3], alone.transform(X[["a", "b", "c"]]))
    assert alone.feature_names_in_.tolist() == ["a", "b", "c"]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_outputs_are_data_frames(library):
    """Of a step, of a pipeline and by the setting for all; a clone keeps the choice."""
    module = pytest.importorskip(library)
    steps = make_pipeline(StandardScaler(), BPMF(**SHORT)).set_output(transform=library)
    filled = clone(steps).fit_transform(X)
    assert isinstance(filled, module.DataFrame)
    assert list(filled.columns) == list(X)
    if library == "pandas":
        assert filled.index.equals(X.index)
        assert not filled.isna().any(axis=None)
    model = BPMF(**SHORT).fit(X.to_numpy())
    assert isinstance(model.transform(X.to_numpy()), np.ndarray)
    with sklearn.config_context(transform_output=library):
        filled = model.transform(X.to_numpy())
    assert list(filled.columns) == [f"x{k}" for k in range(6)]
    with pytest.raises(InputError, match="expected 'default', 'pandas' or 'polars'"):
        model.set_output(transform="arrow")


def test_groups_are_held_out_before_a_regressor():
    """Rows of a test fold are new, and are filled from what they have."""
    target = WHOLE @ np.arange(6.0)
    steps = make_pipeline(StandardScaler(), BPMF(**SHORT), LinearRegression())
    groups = np.arange(90) % 9
    folds = GroupKFold(3)
    scores = cross_val_score(steps, X, target, groups=groups, cv=folds, error_score="raise")
    assert scores.min() > 0.75


@pytest.fixture(scope="module")
def pairs() -> tuple[np.ndarray, np.ndarray]:
    """Pairs and ratings of two ranks."""
    rng = np.random.default_rng(1)
    pairs = np.argwhere(rng.random((60, 20)) < 0.6)
    cells = 3 * rng.normal(size=(60, 2)) @ rng.normal(size=(2, 20))
    return pairs, cells[tuple(pairs.T)] + rng.normal(0, 0.2, len(pairs))


def test_a_rank_is_searched(pairs):
    """By the ratings that a fold holds out."""
    model = BPMF(iterations=300, burn_in=100, sampler="gibbs", options={"grid": 1})
    search = GridSearchCV(model, {"rank": [0, 2]}, cv=2, error_score="raise")
    search.fit(*pairs)
    assert search.best_params_ == {"rank": 2}


def test_weights_are_those_of_a_column(pairs):
    """Beside pairs, and beside a frame; also by the routing of metadata."""
    users_items, ratings = pairs
    weights = RNG.choice([0.5, 2.0], len(ratings))
    table = pd.DataFrame(users_items, columns=["user", "item"]).assign(rating=ratings)
    expected = BPMF(**SHORT, columns="weight=w").fit(table.assign(w=weights)).predict(users_items)
    for given in ((users_items, ratings), (table,), (table[["user", "item"]], ratings)):
        model = BPMF(**SHORT).fit(*given, sample_weight=weights)
        np.testing.assert_array_equal(model.predict(users_items), expected)
    assert (BPMF(**SHORT).fit(*pairs).predict(users_items) != expected).any()
    with sklearn.config_context(enable_metadata_routing=True):
        model = BPMF(**SHORT).set_fit_request(sample_weight=True)
        arguments = {"cv": 2, "error_score": "raise"}
        weighted = cross_val_score(model, *pairs, params={"sample_weight": weights}, **arguments)
        plain = cross_val_score(clone(model), *pairs, **arguments)
    assert (weighted != plain).all()
    with pytest.raises(InputError, match="the weights have the shape"):
        BPMF(**SHORT).fit(*pairs, sample_weight=weights[1:])
    with pytest.raises(InputError, match="one a row"):
        BPMF(**SHORT).fit(X, sample_weight=np.ones(90))
    with pytest.raises(InputError, match="leave out sample_weight"):
        BPMF(**SHORT, columns="weight=w").fit(table.assign(w=1), sample_weight=weights)


def test_generators_give_seeds():
    """The same state gives the same model, and the next fit another one."""

    def fitted(rng):
        return BPMF(**SHORT, rng=rng).fit(X)

    rng = np.random.default_rng(3)
    first = fitted(rng).complete()
    second = fitted(rng).complete()
    pd.testing.assert_frame_equal(fitted(np.random.default_rng(3)).complete(), first)
    by_state = BPMF(**SHORT, random_state=np.random.default_rng(3)).fit(X).complete()
    pd.testing.assert_frame_equal(by_state, first)
    assert (second != first).any(axis=None)
    pd.testing.assert_frame_equal(
        fitted(5).complete(), BPMF(**SHORT, random_state=5).fit(X).complete()
    )
    seeds = np.random.SeedSequence(3)  # default_rng(3) begins with it
    for start in (seeds, np.random.PCG64(seeds)):
        pd.testing.assert_frame_equal(fitted(start).complete(), first)
    with pytest.raises(ValueError, match="expected an int, a Generator"):
        fitted("five")


def test_no_test_fraction_holds_out_nothing():
    """`prepare` would hold out a tenth."""
    model = BPMF(**SHORT, test_fraction=None).fit(X)
    assert model.rmse_ is None
    assert model.run_.facts["ratings"] == int(X.count().sum())
