"""Factors in one orientation: against made-up factors, between chains, and in every output."""

import numpy as np
import pandas as pd
import pytest
from runs import make_run
from support import typed

from dsgmcmc import BPMF, open_run
from dsgmcmc.diagnostics.mixing import rhat
from dsgmcmc.errors import InputError
from dsgmcmc.posterior.loadings import loadings_at, oblique, procrustes, turned_loadings, varimax

USERS = 300
FACTORS = 3
ITEMS = 8 * FACTORS


@pytest.fixture(scope="module")
def true_loadings() -> np.ndarray:
    """Eight items load on each of three factors, of different strength."""
    rng = np.random.default_rng(0)
    loadings = np.zeros((ITEMS, FACTORS))
    for k in range(FACTORS):
        loadings[8 * k : 8 * k + 8, k] = rng.uniform(0.6, 1.4, 8) * (1.3 - 0.2 * k)
    return loadings


@pytest.fixture(scope="module")
def scores() -> np.ndarray:
    """Users whose scores have the mean 0 and the covariance I in the sample, too."""
    scores = np.random.default_rng(1).normal(size=(USERS, FACTORS))
    scores -= scores.mean(axis=0)
    covariance = scores.T @ scores / USERS
    return np.linalg.solve(np.linalg.cholesky(covariance), scores.T).T


@pytest.fixture(scope="module")
def model(true_loadings, scores) -> BPMF:
    """Four chains of rank 5, two more than there are factors."""
    rng = np.random.default_rng(2)
    matrix = scores @ true_loadings.T + rng.normal(0, 0.7, (USERS, ITEMS))
    matrix[rng.random(matrix.shape) < 0.4] = np.nan
    model = BPMF(
        rank=5,
        sampler="gibbs",
        iterations=900,
        burn_in=300,
        chains=4,
        options={"grid": 1, "thin": 6, "save_draws": 100},
    )
    return model.fit(matrix)


def of_factors(table: dict[str, np.ndarray], name: str) -> np.ndarray:
    """Return the means of the first three factors in the order of names."""
    order = np.argsort(table[name])
    return np.column_stack([table[f"factor_{k + 1}"] for k in range(FACTORS)])[order]


def error(found: np.ndarray, truth: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(found - truth))))


def test_loadings_are_recovered_as_by_a_rotation_to_the_truth(model, true_loadings, scores):
    """The RMSE is at most 1.1 times that of draws that are rotated to the true loadings.

    Factors are strong enough for their order, and large loadings are positive, so that neither
    columns nor signs have to be matched.
    """
    found = model.loadings()
    target = np.column_stack([true_loadings, np.zeros((ITEMS, 2))])
    order = np.argsort(model.run_.items.ids)
    oracle = np.zeros_like(target)
    for position, weight in enumerate(model.run_.draw_weights.tolist()):
        loadings = loadings_at(model.run_, position)[order]
        oracle += weight * (loadings @ procrustes(loadings, target))
    of_oracle = error(oracle[:, :FACTORS], true_loadings)
    assert error(of_factors(found.items, "item_id"), true_loadings) <= 1.1 * of_oracle
    correlations = np.corrcoef(of_factors(found.users, "user_id").T, scores.T)
    assert np.diag(correlations[:FACTORS, FACTORS:]).min() > 0.9


def test_shares_tell_how_many_factors_there_are(model, true_loadings):
    """Three of five columns hold 99 %, in proportion to the true sums of squares."""
    found = model.loadings()
    assert found.n_factors == FACTORS
    assert found.share.sum() == pytest.approx(1.0)
    squares = np.square(true_loadings).sum(axis=0)
    np.testing.assert_allclose(found.share[:FACTORS], squares / squares.sum(), atol=0.04)
    assert repr(found).startswith("<Loadings: 3 of 5 factors hold 99 %: 4")


def test_chains_agree_on_turned_loadings(model):
    """R-hat of every loading is below 1.05."""
    draws = turned_loadings(model.run_)
    assert draws.shape == (4, 100, ITEMS, FACTORS)
    values = draws.reshape(4, 100, -1)
    assert rhat(values).max() < 1.05
    raw = np.array([loadings_at(model.run_, k) for k in range(len(model.run_.draws))])
    assert rhat(raw[..., :FACTORS].reshape(4, 100, -1)).max() > 1.5


def test_sds_cover_the_truth(model, true_loadings):
    """Within three sds for nearly all loadings."""
    table = model.loadings().items
    order = np.argsort(table["item_id"])
    sds = np.column_stack([table[f"factor_{k + 1}_sd"] for k in range(FACTORS)])[order]
    away = np.abs(of_factors(table, "item_id") - true_loadings) / sds
    assert (away < 3).mean() > 0.95


def test_tables_have_the_order_of_the_matrix():
    """Of its rows and columns; the factor's own order is another one."""
    cells = np.random.default_rng(0).normal(size=(30, 8))
    rows = [f"v{k}" for k in range(30)]
    columns = ["z", "a", "e10", "e9", "b", "y", "c", "d"]
    frame = pd.DataFrame(cells, index=rows, columns=columns)
    found = BPMF(rank=1, iterations=4, burn_in=2, matrix=True).fit(frame).loadings()
    assert found.users["user_id"].tolist() == rows
    assert found.items["item_id"].tolist() == columns


def test_varimax_finds_simple_structure():
    """From any rotation of loadings of which each item has one."""
    simple = np.kron(np.eye(3), np.linspace(1, 2, 5)[:, None])
    rotation, _ = np.linalg.qr(np.random.default_rng(3).normal(size=(3, 3)))
    found = simple @ rotation
    turned = found @ varimax(found)
    assert (np.sort(np.abs(turned), axis=1)[:, :2] < 1e-4).all()


def test_every_output_has_them(tmp_path):
    """``info``, its JSON, the report and the export for ArviZ."""
    made = make_run(tmp_path, chains=2)
    told = typed("info", made.path)
    assert "of 3 factors hold 99% of it" in " ".join(told.out.split())
    shares = open_run(made.path).loadings().share
    assert sum(shares) == pytest.approx(1.0)
    tree = open_run(made.path).to_arviz()
    loading = tree["loadings"]["loading"]
    assert loading.dims == ("chain", "draw", "item_id", "factor")
    assert set(loading["item_id"].values.tolist()) <= set(made.items)
    assert typed("report", made.path, "--out", tmp_path / "page.html").code == 0
    assert "factors hold 99%" in (tmp_path / "page.html").read_text()


def test_a_model_of_biases_has_none(tmp_path):
    """Its other outputs leave them out."""
    made = make_run(tmp_path, rank=0, sampler={"name": "gibbs"})
    with pytest.raises(InputError, match="biases only"):
        open_run(made.path).loadings()
    assert "loadings" not in open_run(made.path).to_arviz().children
    assert "factors hold" not in typed("info", made.path).out


@pytest.fixture(scope="module")
def two_dimensions() -> tuple[np.ndarray, np.ndarray, np.ndarray, BPMF]:
    """Abilities, slopes, intercepts of a two-dimensional 2PL, and a model of its answers."""
    rng = np.random.default_rng(1)
    abilities = rng.normal(size=(900, 2))
    abilities[:, 1] = 0.5 * abilities[:, 0] + np.sqrt(0.75) * abilities[:, 1]
    abilities = (abilities - abilities.mean(axis=0)) / abilities.std(axis=0)
    slopes = np.kron(np.eye(2), rng.uniform(0.8, 1.8, (12, 1)))
    intercepts = rng.normal(size=24)
    chance = 1 / (1 + np.exp(-(abilities @ slopes.T + intercepts)))
    answers = (rng.random(chance.shape) < chance).astype(float)
    answers[rng.random(answers.shape) < 0.2] = np.nan
    model = BPMF(rank=1, noise="by-item", iterations=2500, burn_in=500, random_state=0)
    return abilities, slopes, intercepts, model.fit(answers)


def test_slopes_and_intercepts_in_two_dimensions(two_dimensions):
    """With the target of who belongs where, errors are those that the sds say: the mean square of
    24 independent ones is above 1.7 once in 60 times; the seed is fixed. The correlation of the
    dimensions is within three sds.
    """
    abilities, slopes, intercepts, model = two_dimensions
    found = model.item_dimensions(target=slopes > 0)
    for k in range(2):
        away = (found.items[f"a_{k + 1}"] - slopes[:, k]) / found.items[f"a_{k + 1}_sd"]
        assert np.mean(np.square(away)) < 1.7
        scores = found.users[f"factor_{k + 1}"]
        assert np.corrcoef(scores, abilities[:, k])[0, 1] > 0.8
    away = (found.items["d_1"] - intercepts) / found.items["d_1_sd"]
    assert np.mean(np.square(away)) < 1.7
    truth = np.corrcoef(abilities.T)[0, 1]
    assert 0 < found.correlation_sd[0, 1] < 0.08
    assert abs(found.correlation[0, 1] - truth) < 3 * found.correlation_sd[0, 1]
    np.testing.assert_allclose(np.diag(found.correlation), 1)


def test_without_a_target_dimensions_are_uncorrelated(two_dimensions):
    """They say the same predictors: slopes times scores, up to what averages over draws lose."""
    _, slopes, _, model = two_dimensions
    oblique = model.item_dimensions(target=slopes > 0)
    varimax_found = model.item_dimensions()
    np.testing.assert_array_equal(varimax_found.correlation, np.eye(2))
    np.testing.assert_array_equal(oblique.items["d_1"], varimax_found.items["d_1"])
    predictors = []
    for found in (oblique, varimax_found):
        a = np.column_stack([found.items["a_1"], found.items["a_2"]])
        f = np.column_stack([found.users["factor_1"], found.users["factor_2"]])
        predictors.append(f @ a.T)
    assert np.corrcoef(predictors[0].ravel(), predictors[1].ravel())[0, 1] > 0.99


def test_a_target_must_fit(two_dimensions):
    """The message says which shape is expected, and what a dimension lacks."""
    _, slopes, _, model = two_dimensions
    with pytest.raises(InputError, match="a column for each of 2 dimensions"):
        model.item_dimensions(target=slopes[:, :1])
    with pytest.raises(InputError, match="dimension 1 of the target needs an item"):
        model.item_dimensions(target=np.ones((24, 2)))
    with pytest.raises(InputError, match="a column for each of 1 dimensions"):
        model.loadings(target=slopes > 0)
    assert model.loadings(target=np.ones((24, 1))).correlation.shape == (1, 1)


def test_a_map_to_a_target_undoes_any_other():
    """Of loadings with exact zeros: the loadings, and correlations, come back."""
    rng = np.random.default_rng(5)
    belongs = np.kron(np.eye(3), np.ones((4, 1))) > 0
    loadings = belongs * rng.uniform(0.5, 1.5, belongs.shape)
    correlation = np.array([[1, 0.5, -0.2], [0.5, 1, 0.3], [-0.2, 0.3, 1]])
    orthogonal, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    mixed = loadings @ np.linalg.cholesky(correlation) @ orthogonal
    turn = oblique(mixed, belongs)
    inverse = np.linalg.inv(turn)
    np.testing.assert_allclose(mixed @ turn, loadings, atol=1e-10)
    np.testing.assert_allclose(inverse @ inverse.T, correlation, atol=1e-10)
