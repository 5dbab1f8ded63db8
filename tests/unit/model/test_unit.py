"""Centre and unit of ratings of which one is in another unit."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dsgmcmc import BPMF
from dsgmcmc.model.centring import MOST, robust_unit
from dsgmcmc.ratings.file import Ratings

RNG = np.random.default_rng(3)
USERS, ITEMS = np.divmod(np.arange(1440), 24)
EFFECTS = RNG.normal(0, 3, 60)[USERS] + RNG.normal(0, 2, 24)[ITEMS]
HEAT = np.round(20 + EFFECTS + RNG.normal(0, 0.3, 1440), 2)
HIDDEN = RNG.random(1440) < 0.1


def error_with(factor: float) -> float:
    """RMSE of hidden ratings if one of the others is multiplied by `factor`."""
    ratings = HEAT.copy()
    ratings[np.flatnonzero(~HIDDEN)[300]] *= factor
    frame = pd.DataFrame({"user": USERS, "item": ITEMS, "rating": ratings})
    options = {"likelihood": "student-t", "grid": 1}
    model = BPMF(2, iterations=300, burn_in=100, options=options).fit(frame[~HIDDEN])
    predicted = model.predict(frame[HIDDEN][["user", "item"]])
    return float(np.sqrt(np.mean((predicted - HEAT[HIDDEN]) ** 2)))


@pytest.mark.filterwarnings("ignore::UserWarning")  # the value is named; chains are short
@pytest.mark.parametrize("factor", [1e3, 1e6])
def test_heavy_tails_stand_a_value_in_another_unit(factor: float) -> None:
    """The error is that without it, which is near the noise, 0.3, within a fifth: one rating of
    1,440 is lost, and its user and item have 23 and 59 others.
    """
    clean = error_with(1.0)
    assert clean < 0.4
    assert error_with(factor) < 1.2 * clean


@pytest.mark.filterwarnings("ignore::UserWarning")  # the far value is named
def test_only_a_far_value_changes_the_unit(tmp_path: Path) -> None:
    """Normal ratings keep mean and root mean square; a far one leaves the median and its spread."""
    frame = pd.DataFrame({"user": USERS, "item": ITEMS, "rating": HEAT})
    units = []
    for name, value in (("plain", HEAT[7]), ("far", 1e7)):
        frame.loc[7, "rating"] = value
        model = BPMF(1, iterations=4, burn_in=2, options={"grid": 1}, out=str(tmp_path / name))
        model.fit(frame)
        with Ratings(tmp_path / f"{name}.ratings.h5") as opened:
            units.append(robust_unit(opened))
    assert units[0] is None
    assert units[1] is not None
    assert units[1].centre == pytest.approx(np.median(HEAT), abs=0.1)
    assert units[1].scale == pytest.approx(HEAT.std(), rel=0.3)
    assert len(HEAT) < MOST
