"""Labels of rows decide; positions are names only of rows that have no labels."""

import numpy as np
import pandas as pd
import pytest

from dsgmcmc.bpmf import BPMF
from dsgmcmc.errors import InputError
from dsgmcmc.posterior.fitted import open_run

pytestmark = pytest.mark.filterwarnings("ignore")
SHORT = {"rank": 0, "iterations": 120, "burn_in": 40, "options": {"save_draws": 20}}
RNG = np.random.default_rng(5)
X = pd.DataFrame(10.0 * np.arange(20)[:, None] + np.arange(6.0) + RNG.normal(0, 0.1, (20, 6)))
X = X.add_prefix("i")
X[["i1", "i3", "i4"]] = X[["i1", "i3", "i4"]].mask(RNG.random((20, 3)) < 0.2)
FRAMES = {
    "from 1": X.set_axis(X.index + 1),
    "every second row": X.iloc[::2],
    "a slice": X.iloc[8:],
    "newest first": X.iloc[::-1],
    "a list": X.set_axis([k + 1 for k in range(20)]),
    "a name": X.rename_axis("u").iloc[5:],
    "dates": X.set_axis(pd.date_range("2024-01-01", periods=20)),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_rows_are_found_by_their_labels(kind):
    """And not by their positions, whatever the labels are."""
    frame = FRAMES[kind]
    model = BPMF(**SHORT).fit(frame)
    found = model.predict([[label, "i2"] for label in frame.index])
    np.testing.assert_allclose(found, frame["i0"] + 2, atol=4)


def test_rows_without_labels_are_numbered():
    """From 0, in frames and in arrays."""
    for frame in (X, X.to_numpy(), X.set_axis(list(range(20)))):
        model = BPMF(**SHORT, matrix=True).fit(frame)
        item = 2 if isinstance(frame, np.ndarray) else "i2"
        assert model.predict([[7, item]])[0] == pytest.approx(72, abs=4)


def people(n, shift):
    """People with holes in their answers, and the answers."""
    full = RNG.normal(shift, 5, (n, 1)) + np.arange(8.0) + RNG.normal(0, 0.3, (n, 8))
    frame = pd.DataFrame(full, columns=[*"abcdefgh"])
    return frame.mask(RNG.random(full.shape) < 0.3), frame


@pytest.mark.parametrize("labelled", [False, True])
def test_other_people_are_new(tmp_path, labelled):
    """A second frame is matched by label, and never to rows without labels or by position."""
    train, _ = people(60, 0)
    new, full = people(40, 30)
    pick = [0, 2, 3, 7, 11, 20, 31]
    new = new.iloc[pick]
    full = full.iloc[pick].to_numpy()
    others = {"default": new.reset_index(drop=True), "text": new.set_axis([*"stuvwxy"])}
    if labelled:
        train.index = [f"t{k}" for k in train.index]
    else:
        others["filtered"] = new
    BPMF(**SHORT, out=tmp_path / "run").fit(train)
    fitted = BPMF(**SHORT).fit(train)
    for model in (fitted, open_run(tmp_path / "run")):
        for frame in others.values():
            filled = model.complete(frame)
            assert list(filled.index) == list(frame.index)
            holes = frame.isna().to_numpy()
            assert np.sqrt(np.mean((filled.to_numpy() - full)[holes] ** 2)) < 1
    if labelled:
        again = fitted.complete(train.iloc[3:9])
        np.testing.assert_allclose(again, fitted.complete().iloc[3:9], atol=1e-4)


def scored(model, frame, **rows):
    """RMSE of the ratings in a frame."""
    return model.evaluate(frame, **rows)["rmse"]


def test_rows_without_labels_are_new_in_every_method(tmp_path):
    """Also where the training rows had none, of a fitted and of an opened model."""
    train, _ = people(20, 0)
    new, full = people(5, 30)
    texts = new.set_axis([*"stuvw"])
    fitted = BPMF(**SHORT, out=tmp_path / "run").fit(train)
    for model in (fitted, open_run(tmp_path / "run")):
        expected = model.complete(texts).to_numpy()
        assert np.abs(expected - full.to_numpy()).max() < 3
        for frame in (new, texts, new.set_axis([0, 2, 3, 7, 11])):
            np.testing.assert_allclose(model.complete(frame), expected, rtol=1e-6)
            np.testing.assert_allclose(model.transform(frame), expected, rtol=1e-6)
            assert scored(model, frame) == pytest.approx(scored(model, texts))
            assert model.score(frame) == pytest.approx(model.score(texts))
        for frame in (new, texts):  # two calls are ten new rows
            folded = model.fold_in(frame).fold_in(frame)
            for first in (20, 25):
                pairs = [[first + row, item] for row in range(5) for item in new]
                predicted = folded.predict(pairs).reshape(5, 8)
                holes = new.isna().to_numpy()
                np.testing.assert_allclose(predicted[holes], expected[holes], rtol=1e-5)
            known = [[row, "a"] for row in range(20)]
            np.testing.assert_array_equal(folded.predict(known), model.predict(known))


def test_names_of_new_rows_are_told():
    """Where nobody gave them, and what takes the rows for those of the training."""
    train, _ = people(20, 0)
    new, _ = people(5, 30)
    model = BPMF(**SHORT).fit(train)
    with pytest.warns(UserWarning, match=r"new, and have the names 20 to 24: rows='training'"):
        model.fold_in(new)
    with pytest.warns(UserWarning, match=r"new, and predicted from the prior: rows='training'"):
        model.evaluate(new)
    named = BPMF(**SHORT).fit(train.add_prefix("t", axis=0))
    with pytest.warns(UserWarning, match="have the names 0 to 4"):
        folded = named.fold_in(new)
    assert folded.predict([[4, "a"]])[0] > 10


def test_rows_of_the_training_are_said():
    """By `rows`, in its order, or by the labels that they have there."""
    train, _ = people(20, 0)
    shuffled = train.add_prefix("t", axis=0).iloc[::-1]
    for frame in (train, shuffled):
        model = BPMF(**SHORT).fit(frame)
        other = frame.fillna(3.0).reset_index(drop=True)
        long = other.set_axis(frame.index).rename_axis("user").reset_index()
        long = long.melt("user", var_name="item", value_name="rating")
        assert scored(model, other, rows="training") == pytest.approx(scored(model, long))
        assert model.score(other, rows="training") > 0.3
        labels = frame.index.tolist()
        folded = model.fold_in(other, rows="training")
        filled = model.complete(other * np.nan, rows="training").to_numpy()
        expected = model.predict([[label, item] for label in labels for item in train])
        np.testing.assert_allclose(filled.ravel(), expected, atol=1e-4)
        assert folded.predict([[labels[3], "a"]])[0] != model.predict([[labels[3], "a"]])[0]
        with pytest.raises(InputError, match="X has 5 rows without labels, and the training has"):
            model.complete(other.iloc[:5], rows="training")
        with pytest.raises(InputError, match=r"unknown to the run: z|integer names; found z"):
            model.evaluate(other.rename(index={0: "z"}).astype(float), rows="training")
    with pytest.raises(InputError, match="expected 'training'"):
        model.complete(other, rows="new")
    with pytest.raises(InputError, match="rows is for a matrix"):
        model.evaluate([["t3", "a", 2.0]], rows="training")


def test_labels_that_are_positions_of_the_training_are_asked():
    """A new row cannot have the number of another row; both answers are followed."""
    train, _ = people(20, 0)
    new, _ = people(3, 30)
    some = new.set_axis([3, 7, 40])
    model = BPMF(**SHORT).fit(train)
    with pytest.raises(InputError, match=r"2 rows of X may be users that the model knows: 3, 7"):
        model.update(some)
    known = new.set_axis([3, 7, 9])
    assert model.fold_in(known, rows="training").predict([[7, "a"]])[0] > 5
    with pytest.warns(UserWarning, match="20 to 22"):
        model.fold_in(some.reset_index(drop=True))
    assert model.fold_in(new.set_axis([40, 41, 42])).predict([[41, "a"]])[0] > 10


def test_items_are_folded_in_by_rows_of_the_training():
    """New users say nothing of new items."""
    train, _ = people(20, 0)
    new = (train[["a"]] + 5).rename(columns={"a": "new"}).dropna(how="all")
    model = BPMF(**SHORT, matrix=True).fit(train)
    with pytest.raises(InputError, match="give rows='training', or their labels"):
        model.fold_in(new.reset_index(drop=True), kind="item")
    folded = model.fold_in(new, kind="item", rows="training")
    expected = model.predict([[row, "a"] for row in range(20)]) + 5
    found = folded.predict([[row, "new"] for row in range(20)])
    assert abs(found - expected).mean() < 1


def test_columns_of_an_array_are_those_of_the_training():
    """By position in every method, as scikit-learn has them."""
    train, _ = people(20, 0)
    new, _ = people(5, 30)
    model = BPMF(**SHORT).fit(train)
    with pytest.warns(UserWarning, match="20 to 24"):
        folded = model.fold_in(new.to_numpy())
    with pytest.warns(UserWarning, match="20 to 24"):
        expected = model.fold_in(new).predict([[22, "h"]])
    np.testing.assert_array_equal(folded.predict([[22, "h"]]), expected)
    with pytest.raises(InputError, match="X has 7 features, but BPMF is expecting 8 features"):
        model.fold_in(new.to_numpy()[:, :7])


def test_a_row_that_is_known_by_the_parts_of_its_name_is_completed():
    """Its prediction is that of `predict`, and it is no unknown row."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        [(f"s{s}", f"d{d}", item, 10 * s + d + item + rng.normal(0, 0.1))
         for s in range(5) for d in range(6) for item in range(5) if (s, d) != (2, 3)],
        columns=["station", "day", "item", "rating"],
    )  # fmt: skip
    model = BPMF(**SHORT, user=["station", "day"]).fit(table)
    labels = ["station=s2,day=d3", "station=s1,day=d1"]
    holes = pd.DataFrame(np.nan, labels, [str(item) for item in range(5)])
    filled = model.complete(holes)
    pairs = [[*parts, item] for parts in (("s2", "d3"), ("s1", "d1")) for item in range(5)]
    expected = model.predict(np.array(pairs, object))
    np.testing.assert_allclose(filled.to_numpy().ravel(), expected, rtol=1e-5)
    assert abs(filled.iloc[0, 0] - 23) < 4
    drawn = model.complete(holes, draws=2)
    assert (drawn[0] != drawn[1]).all(axis=None)


@pytest.mark.parametrize("method", ["evaluate", "fold_in", "update"])
def test_labels_that_are_no_names_are_refused(method):
    """Decimals are none, as in the training."""
    model = BPMF(**SHORT).fit(X.set_axis([f"u{k}" for k in range(20)]))
    with pytest.raises(InputError, match="names of users must be integers or text"):
        getattr(model, method)(X.set_axis(np.arange(20) + 0.5))
    with pytest.raises(InputError, match="there are no ratings"):
        getattr(model, method)(X.set_axis([f"v{k}" for k in range(20)]) * np.nan)
