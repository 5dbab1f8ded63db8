"""Item parameters: against the probabilities of the model, and against made-up pupils."""

import numpy as np
import pandas as pd
import pytest
from runs import make_run
from scipy.special import expit
from support import typed

from dsgmcmc import BPMF, open_run
from dsgmcmc.errors import InputError
from dsgmcmc.posterior.cells.predict import Predictor
from dsgmcmc.posterior.item_parameters import parameters_at
from dsgmcmc.posterior.settings import PredictOptions

PUPILS = 400
ITEMS = 20
CUTS = np.array([-1.0, 0.2, 0.8])
LEVELS = {"rank": 0, "options": {"grid": 1, "likelihood": "ordinal-logit"}}


def draw(ability: np.ndarray, thresholds: np.ndarray, slopes: np.ndarray) -> np.ndarray:
    """Answers by the graded response model; thresholds are (items, R - 1)."""
    u = np.random.default_rng(7).random((len(ability), len(thresholds)))
    reached = expit(slopes[:, None] * (ability[:, None, None] - thresholds))
    return (u[..., None] < reached).sum(axis=2).astype(float)


@pytest.fixture(scope="module")
def ability() -> np.ndarray:
    ability = np.random.default_rng(0).normal(0, 1.2, PUPILS)
    return ability - ability.mean()


@pytest.fixture(scope="module")
def difficulty() -> np.ndarray:
    return np.random.default_rng(1).uniform(-2, 2, ITEMS)


@pytest.fixture(scope="module")
def slopes() -> np.ndarray:
    logarithms = np.random.default_rng(2).normal(0, 0.35, ITEMS)
    return np.exp(logarithms - logarithms.mean())


@pytest.fixture(scope="module")
def rasch(ability, difficulty) -> BPMF:
    """The last item is answered at random; a fifth of the answers is missing."""
    answers = draw(ability, difficulty[:, None], np.ones(ITEMS))
    rng = np.random.default_rng(3)
    answers[:, -1] = rng.integers(0, 2, PUPILS)
    answers[rng.random(answers.shape) < 0.2] = np.nan
    return BPMF(**LEVELS, sampler="gibbs", iterations=500, burn_in=100).fit(answers)


def assert_close(found: np.ndarray, sd: np.ndarray, truth: np.ndarray) -> None:
    """Errors are those that the posterior sds say: their mean square is below 1.6.

    With 19 independent errors or more, it is above 1.6 once in 20 times; the seed is fixed.
    """
    assert np.mean(np.square((found - truth) / sd)) < 1.6


def test_rasch_parameters_are_recovered(rasch, ability, difficulty):
    """Difficulties relative to the mean ability; discriminations are 1, and not in the table."""
    items = rasch.item_parameters()
    assert items["item_id"].tolist() == list(range(ITEMS))
    assert "discrimination" not in items
    assert "threshold_1" not in items
    good = slice(0, ITEMS - 1)
    assert_close(items["difficulty"][good], items["difficulty_sd"][good], difficulty[good])
    users = rasch.user_parameters()
    assert users["ability"].mean() == pytest.approx(0.0, abs=1e-6)
    assert_close(users["ability"], users["ability_sd"], ability)


def test_an_item_without_discrimination_does_not_fit(rasch):
    """Its outfit is the largest, and replicated answers never have it; others are near 1."""
    items = rasch.item_parameters()
    assert items["outfit"].argmax() == ITEMS - 1
    assert items["infit"][-1] > 1.2
    assert items["p"][-1] < 0.01
    np.testing.assert_allclose(items["infit"][:-1], 1.0, atol=0.15)
    assert (items["p"][:-1] > 0.01).all()


def test_items_that_fit_have_a_uniform_p_on_answers_held_out(ability, difficulty):
    """The mean of 20 uniform p has the sd 0.065; residuals by single draws gave 0.2. Infit and
    outfit of 120 answers have an sd of 0.1 or less.
    """
    answers = draw(ability, difficulty[:, None], np.ones(ITEMS))
    settings = LEVELS | {"sampler": "gibbs", "iterations": 300, "burn_in": 100}
    model = BPMF(**settings, test_fraction=0.3, random_state=0).fit(answers)
    items = model.item_parameters()
    assert 0.37 < items["p"].mean() < 0.63
    assert items["infit"].mean() == pytest.approx(1, abs=0.05)
    assert items["outfit"].mean() == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize(("pupils", "items"), [(400, 20), (80, 100)])
def test_reversed_items_are_named(pupils, items):
    """A model with one dimension cannot say that its high answers go with low ones; an item
    that is answered at random is not reversed. The ratings file has more rows than
    columns, so that both pupils and items are rows once.
    """
    rng = np.random.default_rng(4)
    answers = draw(rng.normal(0, 3, pupils), rng.uniform(-2, 2, (items, 1)), np.ones(items))
    answers[:, [2, 11, 13]] = 1 - answers[:, [2, 11, 13]]
    answers[:, 4] = rng.integers(0, 2, pupils)
    with pytest.warns(UserWarning, match="3 items seem to be reversed: 11, 13, 2; "):
        model = BPMF(**LEVELS, iterations=4, burn_in=2).fit(answers)
    assert model.run_.facts["transposed"] == (items > pupils)


def test_2pl_parameters_are_recovered(ability, difficulty, slopes):
    """Discriminations whose geometric mean is 1."""
    answers = draw(ability, difficulty[:, None], slopes)
    model = BPMF(**LEVELS, noise="by-item", iterations=1500, burn_in=500).fit(answers)
    items = model.item_parameters(fit=False)
    assert "infit" not in items
    assert_close(items["difficulty"], items["difficulty_sd"], difficulty)
    assert_close(items["discrimination"], items["discrimination_sd"], slopes)
    assert np.corrcoef(items["discrimination"], slopes)[0, 1] > 0.9


def test_items_have_thresholds_of_their_own(ability, difficulty):
    """Gaps that differ between items, of which a third has only two levels: thresholds that the
    model does not have are none, and the errors of the others are those that their sds say.
    """
    gaps = np.random.default_rng(5).normal(0, 0.4, (ITEMS, 1))
    thresholds = difficulty[:, None] + CUTS * np.exp(gaps)
    thresholds[::3, 1:] = np.inf
    answers = draw(ability, thresholds, np.ones(ITEMS))
    with pytest.warns(UserWarning, match="7 of 20 items have other levels than the rest"):
        model = BPMF(rank=0, iterations=1500, burn_in=500).fit(answers)
    assert model.run_.config.thresholds == "item"
    items = model.item_parameters(fit=False)
    has = np.isfinite(thresholds)
    for k in range(3):
        name = f"threshold_{k + 1}"
        np.testing.assert_array_equal(np.isfinite(items[name]), has[:, k])
        known = has[:, k]
        assert_close(items[name][known], items[f"{name}_sd"][known], thresholds[known, k])
    difficulties = [row[row < np.inf].mean() for row in thresholds]
    assert_close(items["difficulty"], items["difficulty_sd"], np.array(difficulties))


def test_an_item_of_few_levels_beside_longer_scales(ability):
    """Its last threshold is far out, so that its highest level is rare: it gets none above it, and
    its difficulty is the mean of its own three, within 3 sds.
    """
    thresholds = np.full((16, 5), np.inf)
    thresholds[:8] = np.linspace(-2.0, 2.0, 5)
    thresholds[8:, :3] = CUTS
    thresholds[-1, :3] = [0.4, 0.8, 4.0]
    answers = draw(ability, thresholds, np.ones(16))
    answers[:, :8] += 1
    assert 3 < (answers[:, -1] == 3).sum() < 20
    with pytest.warns(UserWarning, match="items have other levels than the rest"):
        model = BPMF(rank=0, iterations=1500, burn_in=500).fit(answers)
    items = model.item_parameters(fit=False)
    assert np.isnan([items[f"threshold_{k}"][-1] for k in (4, 5, 6)]).all()
    truth = thresholds[-1, :3]
    found = np.array([items[f"threshold_{k}"][-1] for k in (1, 2, 3)])
    assert items["difficulty"][-1] == pytest.approx(found.mean(), rel=1e-6)
    assert abs(items["difficulty"][-1] - truth.mean()) < 3 * items["difficulty_sd"][-1]


def test_graded_response_parameters_are_recovered(ability, difficulty, slopes):
    """Four levels, whose thresholds have the same gaps for all items."""
    thresholds = difficulty[:, None] + CUTS
    answers = draw(ability, thresholds, slopes)
    model = BPMF(**LEVELS, noise="by-item", iterations=1500, burn_in=500).fit(answers)
    items = model.item_parameters(fit=False)
    assert_close(items["difficulty"], items["difficulty_sd"], difficulty)
    assert_close(items["discrimination"], items["discrimination_sd"], slopes)
    for k in range(3):
        name = f"threshold_{k + 1}"
        assert_close(items[name], items[f"{name}_sd"], thresholds[:, k])


@pytest.mark.parametrize("noise", ["shared", "by-item", "both"])
def test_parameters_give_the_probabilities_of_the_model(noise, tmp_path):
    """The formula of the page, at one draw, is what `predict_proba` computes."""
    made = make_run(tmp_path, stars=True, likelihood="ordinal-logit", rank=0, noise=noise)
    run = made.run
    at_draw = parameters_at(run, run.draw(3))
    users = np.arange(10, dtype=np.int32)
    items = np.arange(10, dtype=np.int32)[::-1].copy()
    slope = at_draw.discrimination["item"][items] * at_draw.discrimination["user"][users]
    logits = slope[:, None] * (at_draw.ability[users, None] - at_draw.thresholds[items])
    predictor = Predictor(run, PredictOptions(probabilities=True))
    for rows, predictive in predictor.distributions(users, items, [3]):
        upper = np.cumsum(predictive.probabilities()[:, ::-1], axis=1)[:, -2::-1]
        found = expit(logits)[rows]
        np.testing.assert_allclose(found, upper, atol=1e-5)


def test_new_pupils_and_those_without_answers_have_abilities(ability, difficulty):
    """In the order of the matrix, then those that were folded in: their errors are those that their
    sds say. Without answers an ability has the sd of all, and a pupil with new answers has them.
    """
    answers = draw(ability, difficulty[:, None], np.ones(ITEMS))
    names = [f"p{k}" for k in range(PUPILS)][::-1]
    frame = pd.DataFrame(answers, index=names, columns=[f"q{j}" for j in range(ITEMS)])
    first = frame[:300].copy()
    first.iloc[7] = np.nan
    short = LEVELS | {"sampler": "gibbs", "iterations": 400, "burn_in": 100}
    model = BPMF(**short, matrix=True).fit(first)
    assert model.item_parameters(fit=False)["item_id"].tolist() == list(frame.columns)
    users = model.user_parameters()
    assert users["user_id"].tolist() == names[:300]
    assert users["ratings"][7] == 0
    assert users["ability_sd"][7] == pytest.approx(users["ability"].std(), rel=0.3)
    folded = model.fold_in(frame[300:]).user_parameters()
    assert folded["user_id"][:300].tolist() == names[:300]
    assert sorted(folded["user_id"][300:]) == sorted(names[300:])
    truth = pd.Series(ability - ability[:300].mean(), index=names)[folded["user_id"][300:]]
    assert_close(folded["ability"][300:], folded["ability_sd"][300:], truth.to_numpy())
    assert (folded["ratings"][300:] == ITEMS).all()
    np.testing.assert_array_equal(folded["ability"][:300], users["ability"])
    answered = model.fold_in(frame[7:8]).user_parameters()
    assert answered["ratings"][7] == ITEMS
    assert answered["ability_sd"][7] < 0.7 * users["ability_sd"][7]


def test_plausible_values_have_one_unit(ability, difficulty, slopes):
    """The sd of a group difference over them is that which the sds of single abilities say; in the
    unit "sd" slopes and thresholds have the unit of a standard normal ability, too.
    """
    answers = draw(ability, difficulty[:, None], slopes)
    model = BPMF(**LEVELS, noise="by-item", iterations=3000, burn_in=500).fit(answers)
    users = model.user_parameters(unit="sd")
    values = model.user_parameters(draws=60, unit="sd")
    table = np.array([values[f"ability_{k}"] for k in range(1, 61)])
    np.testing.assert_allclose(table.mean(axis=1), 0, atol=1e-6)
    np.testing.assert_allclose(table.std(axis=1), 1, rtol=1e-6)
    array = values.to_xarray()
    assert (array.dims, array.attrs) == (("draw", "user_id"), {"unit": "sd"})
    np.testing.assert_array_equal(array.sel(user_id=7), table[:, 7])
    difference = table[:, ::2].mean(axis=1) - table[:, 1::2].mean(axis=1)
    expected = np.sqrt(np.square(users["ability_sd"]).sum()) / (PUPILS / 2)
    assert difference.std() == pytest.approx(expected, rel=0.25)  # 60 draws: 0.09
    items = model.item_parameters(fit=False, unit="sd")
    sd = ability.std()
    assert_close(items["difficulty"], items["difficulty_sd"], difficulty / sd)
    assert_close(items["discrimination"], items["discrimination_sd"], slopes * sd)
    with pytest.raises(InputError, match="saved draws"):
        model.user_parameters(draws=100_000)


def test_factors_do_not_move_abilities_between_chains(tmp_path):
    """Biases and factors share what a user's mean predictor is; the ability is identified."""
    made = make_run(tmp_path, stars=True, likelihood="ordinal-logit", rank=2)
    run = made.run
    theta = run.draw(0).theta
    eta = theta["user"][:, :2] @ theta["item"][:, :2].T
    eta = eta + theta["user"][:, 2:] + theta["item"][:, 2]
    at_draw = parameters_at(run, run.draw(0))
    np.testing.assert_allclose(at_draw.ability, eta.mean(axis=1) - eta.mean(), atol=1e-5)
    expected = run.draw(0).shared["thresholds"] - eta.mean(axis=0)[:, None]
    np.testing.assert_allclose(at_draw.thresholds, expected, atol=1e-5)


def test_the_command_writes_both_sides(tmp_path):
    """One table with the columns of both; names of items and users beside their side."""
    made = make_run(tmp_path, stars=True, likelihood="ordinal-logit", noise="by-item", strings=True)
    out = tmp_path / "items.csv"
    assert typed("export", made.path, "--items", "--out", out).code == 0
    table = pd.read_csv(out)
    items = open_run(made.path, data=made.data).item_parameters()
    of_items = table[table["side"] == "item"].sort_values("id")
    assert of_items["id"].tolist() == items["item_id"].tolist()
    np.testing.assert_allclose(of_items["difficulty"], items["difficulty"], rtol=1e-6)
    assert of_items["ability"].isna().all()
    users = table[table["side"] == "user"]
    assert len(users) == len(made.run.users)
    assert users["ability"].notna().all()
    values = tmp_path / "values.csv"
    typed("export", made.path, "--items", "--draws", "--out", values).expect(0)
    number = len(made.run.draws)
    drawn = open_run(made.path).user_parameters(draws=number)
    written = pd.read_csv(values)
    np.testing.assert_allclose(written[f"ability_{number}"], drawn[f"ability_{number}"])
    again = typed("export", made.path, "--items", "--out", out)
    assert again.code == 2
    assert "exists" in again.err


def test_the_command_keeps_the_order_of_the_file(tmp_path, monkeypatch):
    """Of the rows and columns of a matrix, also among plausible values."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    cells = (rng.random((30, 6)) < 0.5).astype(int)
    answers = pd.DataFrame(cells, columns=["zeta", "alpha", "mid", "beta", "q5", "q4"])
    answers.insert(0, "pupil", [f"p{k}" for k in rng.permutation(30)])
    answers.to_csv("answers.csv", index=False)
    typed("prepare", "answers.csv", "r.h5", "--matrix", "--test-fraction", "0").expect(0)
    short = ["--rank", "0", "--iterations", "100", "--burn-in", "50"]
    typed("sample", "r.h5", "--out", "run", *short).expect(0)
    typed("export", "run", "--items", "--out", "items.csv").expect(0)
    typed("export", "run", "--items", "--draws", "--out", "values.csv").expect(0)
    table = pd.read_csv("items.csv")
    pupils = answers["pupil"].tolist()
    assert table["id"].tolist() == [*answers.columns[1:], *pupils]
    assert pd.read_csv("values.csv")["user_id"].tolist() == pupils


def test_measurements_have_no_item_parameters(tmp_path):
    """It says which likelihood has."""
    made = make_run(tmp_path)
    with pytest.raises(InputError, match=r"sample with .*likelihood ordinal-logit"):
        open_run(made.path).item_parameters()
