"""What `fit` and `prepare` decided about the columns is said, by lines."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from support import typed

from dsgmcmc import BPMF

SETTINGS = {"rank": 1, "iterations": 40, "burn_in": 10, "options": {"grid": 2}}


def made() -> pd.DataFrame:
    """Ratings with European dates, a code for *not rated* and a pair that is repeated."""
    cells = np.random.default_rng(0).choice(20 * 10, 120, replace=False)
    frame = pd.DataFrame({"buyer": cells // 10, "film": cells % 10, "rating": cells % 5 + 1.0})
    frame["date"] = [f"{1 + k % 28}/03/2021" for k in range(120)]
    frame.loc[3, "rating"] = 99
    return pd.concat([frame, frame[10:11].assign(date="29/03/2021")], ignore_index=True)


def test_data_has_a_line_for_each_decision() -> None:
    """Roles, order of dates, missing values, repeated pairs and kinds of features."""
    frame = made()
    films = pd.DataFrame({"film": range(10), "genre": list("abcab") * 2, "length": range(90, 100)})
    model = BPMF(
        columns="user=buyer,item=film",
        missing=99,
        duplicates="last",
        item_features=films,
        **SETTINGS,
    ).fit(frame)
    lines = repr(model.data_).split("\n")
    assert lines[0] == "119 ratings of 20 users and 10 items"
    assert lines[1].startswith("columns: user buyer, item film, rating rating")
    assert "dates in date: day first, as in 1/03/2021" in lines
    assert "left out, as missing: 1" in lines
    assert "repeated pairs: 1, ordered by column date" in lines
    assert "item features: genre category, length number" in lines
    assert model.data_.summary.ratings == 119


def test_a_ratings_file_has_been_read_before(tmp_path: Path) -> None:
    """There is nothing to decide; and the command prints the order of dates."""
    made().drop(index=3).to_csv(tmp_path / "r.csv", index=False)
    options = ("--columns", "user=buyer,item=film")
    shown = typed("prepare", tmp_path / "r.csv", tmp_path / "r.h5", *options).expect().out
    assert "date: day first, as in 1/03/2021" in shown
    assert BPMF(**SETTINGS).fit(tmp_path / "r.h5").data_ is None
