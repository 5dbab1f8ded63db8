"""``docs/coming-from.md``: every line of its table does what the other package does."""

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from dsgmcmc import BPMF, RunWarning

PAGE = Path(__file__).resolve().parents[3] / "docs" / "coming-from.md"


def rows() -> list[tuple[str, str, str]]:
    """Return package, what is typed there, and what is typed here."""
    found = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)]
        if len(cells) == 6 and "BPMF(" in cells[3]:
            found.append((cells[1], cells[2].strip("`"), cells[3].strip("`")))
    return found


@pytest.fixture(scope="module")
def whole() -> np.ndarray:
    """A matrix of rank 3 with noise."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(60, 3)) @ rng.normal(size=(3, 10)) + rng.normal(0, 0.2, (60, 10))


@pytest.fixture(scope="module")
def names(whole) -> dict[str, Any]:
    """The names of the page."""
    rng = np.random.default_rng(1)
    X = np.where(rng.random(whole.shape) < 0.2, np.nan, whole)
    users, items = np.nonzero(rng.random((60, 20)) < 0.5)
    ratings = pd.DataFrame(
        {
            "user": [f"u{user}" for user in users],
            "item": [f"i{item}" for item in items],
            "rating": 3 + 0.02 * users - 0.05 * items + rng.normal(0, 0.3, len(users)),
        }
    )
    ability = np.linspace(-2, 2, 60)[:, None]
    clicks = scipy.sparse.csr_array((rng.random((60, 20)) < 0.3).astype(float))
    features = pd.DataFrame({"user": [f"u{k}" for k in range(60)], "age": np.arange(60)})
    marks = np.clip(np.rint(1.5 + ability + rng.normal(0, 1, (60, 8))), 0, 3)
    return {
        "BPMF": BPMF,
        "X": X,
        "marks": marks,
        "clicks": clicks,
        "ratings": ratings,
        "F": features,
    }


def assert_people_and_items(result: Any, here: str) -> None:
    """Parameters of answers to items that people of higher numbers know better."""
    if "item_parameters" in here:
        assert (result["discrimination"] > 0).all()
        assert {"difficulty", "threshold_3", "infit", "outfit"} <= result.keys()
    elif "item_dimensions" in here:
        assert {"a_1", "a_2_sd", "d_1", "d_3_sd"} <= result.items.keys()
        assert (result.items["a_1"] > 0).all()
    elif "draws=" in here:
        assert result.array.shape == (20, 60)
        assert np.corrcoef(result.array.mean(axis=0), np.arange(60))[0, 1] > 0.8
    else:
        assert np.corrcoef(result["ability"], np.arange(60))[0, 1] > 0.8


@pytest.mark.parametrize(("package", "there", "here"), rows(), ids=lambda text: text[:30])
def test_a_line_of_the_table(package, there, here, whole, names):
    """It runs, and its result is near what is known of the made-up data."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RunWarning)  # the data are few
        result = eval(here, dict(names))
    X = names["X"]
    holes = np.isnan(X)
    if "complete(draws=" in here:
        assert len(result) == 20
        for matrix in result:
            assert (matrix[~holes] == X[~holes]).all()
        result = np.mean(result, axis=0)
    if "marks" in here:
        assert_people_and_items(result, here)
    elif "ranking(" in here:
        assert result["user_id"][0] in np.argsort(whole.mean(axis=1))[-5:]
        assert result["p_best"].sum() == pytest.approx(1)
    elif "recommend(" in here:
        seen = names["clicks"].toarray()[3]
        assert len(result["item_id"]) == 5
        assert not seen[result["item_id"]].any()
    elif "predict(" in here:
        assert abs(result[0] - (3 + 0.06 - 0.25)) < 0.5
    elif "user_features" in here:
        assert result.run_.feature_names("user") == ["age"]
    else:
        np.testing.assert_allclose(result[~holes], X[~holes], rtol=1e-12)
        errors = (result - whole)[holes]
        assert np.sqrt(np.mean(errors**2)) < 0.5 * whole[holes].std()


def test_the_table_has_all_packages():
    """Those whose users were asked."""
    packages = {package for package, _, _ in rows()}
    assert packages == {
        "softImpute",
        "missMDA",
        "mice",
        "IterativeImputer",
        "mirt",
        "TAM",
        "metan",
        "SMURFF, Macau",
        "transdim, BTMF",
        "implicit",
        "Surprise",
    }
