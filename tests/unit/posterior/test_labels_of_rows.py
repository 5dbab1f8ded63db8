"""Labels of rows decide; positions are names only of rows that have no labels."""

import numpy as np
import pandas as pd
import pytest

from dsgmcmc.bpmf import BPMF
from dsgmcmc.errors import InputError
from dsgmcmc.posterior.fitted import open_run

pytestmark = pytest.mark.filterwarnings("ignore::dsgmcmc.errors.RunWarning")
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


def test_new_ratings_of_rows_without_labels_are_asked():
    """They may be new users, or those at these positions; both answers are followed."""
    train, _ = people(20, 0)
    new, _ = people(5, 10)
    model = BPMF(**SHORT).fit(train)
    for method in (model.fold_in, model.update):
        with pytest.raises(InputError, match="5 of them are users that the model knows"):
            method(new)
    for_known = model.fold_in(new.rename_axis("user"))
    assert len(for_known.predict([[0, "a"]])) == 1
    as_new = model.fold_in(new.set_axis([100, 101, 102, 103, 104]))
    assert as_new.predict([[101, "a"]])[0] > 5
    assert model.complete(new).shape == new.shape
