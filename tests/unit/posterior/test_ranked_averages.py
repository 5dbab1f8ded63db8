"""Rankings of all items over all users, and of users over items."""

import numpy as np
import pandas as pd
import pytest
from runs import make_run
from support import typed

from dsgmcmc import BPMF, open_run
from dsgmcmc.errors import InputError

SHORT = {
    "rank": 1,
    "iterations": 400,
    "burn_in": 100,
    "noise": "shared",
    "options": {"save_draws": 200},
}


@pytest.fixture(scope="module")
def yields() -> pd.DataFrame:
    """60 varieties in 12 environments; v7 is best, and v8 close to it."""
    rng = np.random.default_rng(0)
    variety = rng.normal(0, 1, (60, 1))
    variety[7] = variety.max() + 1.0
    variety[8] = variety[7] - 0.1
    cells = 5 + variety + rng.normal(0, 1, 12) + rng.normal(0, 0.5, (60, 12))
    cells[rng.random(cells.shape) < 0.4] = np.nan
    names = [f"v{k}" for k in range(60)]
    return pd.DataFrame(cells, index=names, columns=[f"e{k}" for k in range(12)])


@pytest.fixture(scope="module")
def model(yields) -> BPMF:
    return BPMF(**SHORT, matrix=True).fit(yields)


def test_averages_ranks_and_probabilities(model, yields):
    """Averages are those of expected cells; ranks lie within their intervals, and the probability
    of being best is that of the draws.
    """
    table = model.ranking("user")
    assert sorted(table["user_id"]) == sorted(yields.index)
    assert set(table["user_id"][:2]) == {"v7", "v8"}
    assert (np.diff(table["mean"]) <= 0).all()
    assert table["p_best"].sum() == pytest.approx(1)
    assert 0.02 < table["p_best"][1] < 0.5
    assert (table["rank_q05"] <= table["rank_q95"]).all()
    assert (table["q05"] < table["mean"]).all()
    number = len(model.run_.draws)
    draws = np.array(model.complete(known="fitted", draws=number, noise=False))
    by_name = dict(zip(yields.index, draws.mean(axis=2).T, strict=True))
    expected = [by_name[name].mean() for name in table["user_id"].tolist()]
    np.testing.assert_allclose(table["mean"], expected, atol=3 / number)
    lowest = model.ranking("user", lowest=True)
    assert lowest["user_id"].tolist() == table["user_id"][::-1].tolist()


def test_draws_of_expected_values_have_no_noise(model, yields):
    """Their sd is that of expected ratings, less than that of new ones; their mean is `predict`'s.
    Known cells are as they were given.
    """
    pairs = pd.DataFrame({"user": ["v3", "v9"], "item": ["e2", "e5"]})
    mean, sd = model.predict(pairs, return_std=True, of_mean=True)
    draws = model.complete(known="fitted", draws=150, noise=False)
    cells = np.array([[draw.loc["v3", "e2"], draw.loc["v9", "e5"]] for draw in draws])
    np.testing.assert_allclose(cells.mean(axis=0), mean, atol=0.1)
    np.testing.assert_allclose(cells.std(axis=0), sd, rtol=0.35)
    given = model.complete(draws=1, noise=False)[0]
    is_known = yields.notna().to_numpy()
    np.testing.assert_array_equal(given.to_numpy()[is_known], yields.to_numpy()[is_known])
    with pytest.raises(InputError, match="noise=False is for draws"):
        model.complete(noise=False)


def test_draws_of_pairs_are_those_of_the_matrix(model, tmp_path):
    """With noise and without. They have labels in every form; an unknown variety is one row in all
    its pairs, and unknown varieties are independent.
    """
    pairs = pd.DataFrame(
        {
            "user": ["v9", "v3", "new", "new", "other", "v3"],
            "item": ["e2", "e5", "e1", "e2", "e2", "e2"],
        }
    )
    draws = model.predict(pairs, draws=80, of_mean=True)
    for found, noise in ((draws, False), (model.predict(pairs, draws=80), True)):
        matrices = model.complete(known="fitted", draws=80, noise=noise)
        cells = [[matrix.loc["v3", "e5"], matrix.loc["v9", "e2"]] for matrix in matrices]
        np.testing.assert_array_equal(found.array[:, [1, 0]], cells)
    mean, sd = model.predict(pairs, return_std=True, of_mean=True)
    np.testing.assert_allclose(draws.array.mean(axis=0), mean, atol=0.5)  # sd 1, 80 draws: 0.11
    np.testing.assert_allclose(draws.array.std(axis=0), sd, rtol=0.4)
    of_new = np.corrcoef(draws.array[:, 2:5].T)
    assert of_new[0, 1] > 0.7
    assert abs(of_new[1, 2]) < 0.5
    assert draws["user_id"].tolist() == pairs["user"].tolist()
    array = draws.to_xarray()
    assert (array.dims, array.name, array.attrs) == (("draw", "pair"), "rating", {"unit": "rating"})
    assert array["item_id"].values.tolist() == pairs["item"].tolist()
    draws.write(tmp_path / "draws.parquet")
    written = pd.read_parquet(tmp_path / "draws.parquet")
    pd.testing.assert_frame_equal(written, draws.to_pandas(), check_dtype=False)
    with pytest.raises(InputError, match="exists"):
        draws.write(tmp_path / "draws.parquet")
    with pytest.raises(InputError, match="give either draws"):
        model.predict(pairs, True, draws=3)
    with pytest.raises(InputError, match="draws=-1"):
        model.predict(pairs, draws=-1)


def test_expected_ratings_are_of_different_draws(model, tmp_path):
    """More than there are saved draws would repeat them, so that they are refused by every way."""
    many = len(model.run_.draws) + 1
    pairs = [["v3", "e2"]]
    for ask in (
        lambda: model.complete(draws=many, noise=False),
        lambda: model.predict(pairs, draws=many, of_mean=True),
    ):
        with pytest.raises(
            InputError, match=f"each of which is used once: ask for 1 to {many - 1}"
        ):
            ask()
    assert np.unique(model.predict(pairs, draws=many).array).size == many
    (tmp_path / "pairs.csv").write_text("user,item\nv3,e2\n")
    options = ["--draws", str(many), "--of-mean"]
    for asked in (["--matrix", "--out", tmp_path / "o.csv"], [tmp_path / "pairs.csv"]):
        done = typed("predict", model.run_.path, *asked, *options)
        assert done.code == 2
        assert f"ask for 1 to {many - 1}, or sample with a larger --save-draws" in done.err
    assert not (tmp_path / "o.csv").exists()


def test_over_some_rows_alone(model):
    """In one environment the ranking is that of its cells."""
    table = model.ranking("user", over=["e3"])
    pairs = pd.DataFrame({"user": table["user_id"], "item": "e3"})
    np.testing.assert_allclose(table["mean"], model.predict(pairs), atol=0.1)
    with pytest.raises(InputError, match="unknown"):
        model.ranking("user", over=["nowhere"])


def test_the_command_writes_the_table(tmp_path):
    """As Python returns it."""
    made = make_run(tmp_path, strings=True)
    out = tmp_path / "ranking.csv"
    typed("export", made.path, "--ranking", "item", "--out", out).expect(0)
    written = pd.read_csv(out)
    table = open_run(made.path, data=made.data).ranking()
    assert written["item_id"].tolist() == table["item_id"].tolist()
    np.testing.assert_allclose(written["p_best"], table["p_best"])
    done = typed("export", made.path, "--ranking", "item", "--items", "--out", out)
    assert done.code == 2
    assert "a file has one table" in done.err
