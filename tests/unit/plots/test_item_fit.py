"""Curves of items, and residuals that go together."""

import numpy as np
import pandas as pd
import pytest

from dsgmcmc import BPMF
from dsgmcmc.errors import InputError
from dsgmcmc.plots import item_fit
from dsgmcmc.plots.items import Curve
from dsgmcmc.posterior.item_parameters import training_pairs

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def answered(tmp_path_factory) -> BPMF:
    """300 people and 16 items of two levels; `twin` repeats half of the answers to `item 0`."""
    rng = np.random.default_rng(2)
    ability = rng.normal(size=(300, 1))
    answers = (ability + rng.logistic(size=(300, 16)) > rng.normal(size=16)).astype(float)
    answers[:, 15] = np.where(rng.random(300) < 0.5, answers[:, 0], answers[:, 15])
    answers[rng.random(answers.shape) < 0.1] = np.nan
    names = [f"item {number}" for number in range(15)]
    people = [f"p{number}" for number in range(300)]
    table = pd.DataFrame(answers, people, [*names, "twin"])
    options = {"likelihood": "ordinal-logit"}
    settings = {"matrix": True, "iterations": 200, "burn_in": 80, "options": options}
    out = tmp_path_factory.mktemp("answers") / "run"
    return BPMF(0, noise="by-item", out=str(out), **settings).fit(table)


def test_two_items_with_one_wording_are_named_first(answered):
    """Their residuals correlate; those of other pairs are near -1 / (items - 1)."""
    table = item_fit.residual_table(answered.run_)
    assert set(table.rows[0][:2]) == {"item 0", "twin"}
    found = item_fit.ResidualCorrelations.of(answered.run_)
    first, second = found.pairs()
    values = found.correlation[first, second]
    assert len(values) == 120
    assert values[0] > 0.3
    # an sd of a correlation of 240 pairs is .065; the mean of 119 varies less
    assert np.mean(values[1:]) == pytest.approx(-1 / 15, abs=0.03)


def test_residuals_are_correlated_over_those_who_answered_both(answered):
    """As NumPy does it for the people of one pair."""
    run = answered.run_
    answers = training_pairs(run)
    named = list(zip(run.users.ids[answers.users], run.items.ids[answers.items], strict=True))
    expected = answered.predict(named)
    residuals = np.full((len(run.users), len(run.items)), np.nan)
    residuals[answers.users, answers.items] = answers.values - expected
    both = ~np.isnan(residuals[:, [2, 5]]).any(axis=1)
    found = item_fit.ResidualCorrelations.of(run)
    assert found.shared[2, 5] == both.sum()
    by_numpy = np.corrcoef(residuals[both, 2], residuals[both, 5])[0, 1]
    assert found.correlation[2, 5] == pytest.approx(by_numpy, abs=1e-6)
    assert found.correlation[5, 2] == found.correlation[2, 5]


def test_every_item_has_a_curve(answered):
    """The three that fit worst have their names; a curve is at one half at its threshold."""
    axes = item_fit.characteristic_curves(answered.run_)
    assert len(axes.lines) == 16
    named = [text.get_text() for text in axes.get_legend().get_texts()]
    rows = item_fit.item_table(answered.run_).rows
    lowest = sorted(rows, key=lambda row: float(row[-1]))[:3]
    assert max(float(row[-1]) for row in rows if row[0] in named) == float(lowest[-1][-1])
    curve = Curve(1.7, np.array([0.4]))
    assert curve.reached(np.array([0.4]))[0, 0] == pytest.approx(0.5)


def test_items_stand_in_the_order_of_their_difficulties(answered):
    """The table has a line an item."""
    rows = item_fit.item_table(answered.run_).rows
    difficulties = [float(row[1].split()[0]) for row in rows]
    assert len(rows) == 16
    assert difficulties == sorted(difficulties)


def test_too_many_answers_are_refused(answered, monkeypatch):
    """A dense table of residuals is made for few items alone."""
    monkeypatch.setattr(item_fit, "ITEMS", 15)
    with pytest.raises(InputError, match="at most 5,000,000 answers to 15 items"):
        item_fit._correlate(answered.run_, training_pairs(answered.run_))
