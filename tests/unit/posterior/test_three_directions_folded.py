"""Completed tables of three directions after new ratings: what is known stands as it was given."""

import numpy as np
import pandas as pd
import pytest

from dsgmcmc import BPMF

COLUMNS = ["place", "day", "hour"]


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """Numbers by place, day and hour; whole days are missing at some places."""
    rng = np.random.default_rng(0)
    place, day, hour = np.indices((5, 6, 4)).reshape(3, -1)
    number = place / 2 + np.sin(day) + np.cos(hour + place) + rng.normal(0, 0.3, len(place))
    cells = pd.DataFrame({"place": place, "day": day, "hour": hour, "number": number.round(3)})
    cells["place"] = cells.place.map("p{}".format)
    return cells[(cells.day + place) % 4 > 0]


@pytest.fixture(scope="module")
def settings() -> dict:
    """Few draws of a small model of three directions."""
    columns = "user=place,item=hour,context=day,rating=number"
    return {
        "columns": columns,
        "rank": 2,
        "iterations": 30,
        "burn_in": 10,
        "test_fraction": 0.0,
        "options": {"grid": 1},
    }


@pytest.fixture(scope="module")
def model(table, settings) -> BPMF:
    """A model of the table."""
    return BPMF(**settings).fit(table)


@pytest.fixture(scope="module")
def new(model, table) -> pd.DataFrame:
    """New numbers of the user of the first row: one where there was one, one in a hole."""
    whole = by_cell(model.complete())
    known = table.set_index(COLUMNS).number
    holes = whole.index.difference(known.index)
    chosen = [known.index[0], holes[0]]
    return pd.DataFrame([*chosen], columns=COLUMNS).assign(number=[7.25, -7.25])


def by_cell(table) -> pd.Series:
    """Return what a completed table has, by place, day and hour."""
    return pd.DataFrame(dict(table)).set_index(COLUMNS).rating.sort_index()


def test_folded_in_numbers_and_all_others_stand_as_given(model, table, new):
    """Also those of a user whose row was computed anew; holes alone are predicted."""
    values, sds = model.fold_in(new).complete(return_std=True)
    known = pd.concat([table, new]).drop_duplicates(COLUMNS, keep="last")
    known = known.set_index(COLUMNS).number.sort_index()
    np.testing.assert_array_equal(by_cell(values)[known.index], known)
    assert (by_cell(sds)[known.index] == 0).all()
    holes = by_cell(sds).index.difference(known.index)
    assert len(holes)
    assert (by_cell(sds)[holes] > 0).all()


def test_a_cube_has_the_same_cells(table, settings, new):
    """Numbers that were folded in stand in the array that the model was fitted to, too."""
    cube = table.set_index(COLUMNS).number.to_xarray()
    model = BPMF(**settings).fit(cube)
    assert np.isnan(cube.sel(new.iloc[1][COLUMNS].to_dict()))
    filled, sds = model.fold_in(new).complete(return_std=True)
    for *cell, number in new.itertuples(index=False):
        at = dict(zip(COLUMNS, cell, strict=True))
        assert filled.sel(at) == number
        assert sds.sel(at) == 0
    assert np.isnan(cube.sel(new.iloc[1][COLUMNS].to_dict()))
    is_old = ~np.isnan(cube.values) & (filled.values != 7.25)
    np.testing.assert_array_equal(filled.values[is_old], cube.values[is_old])


def test_fitted_cells_are_predicted(model, new):
    """Those that were folded in, too."""
    values, sds = model.fold_in(new).complete(known="fitted", return_std=True)
    cells = pd.MultiIndex.from_frame(new[COLUMNS])
    assert (np.abs(by_cell(values)[cells]) < 7).all()
    assert (by_cell(sds)[cells] > 0).all()
