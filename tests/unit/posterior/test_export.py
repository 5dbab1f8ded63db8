"""Exports, read back by the tools that they are for."""

import arviz_stats
import duckdb
import numpy as np
import pandas as pd
import pytest
import xarray
from runs import make_run
from support import typed

from dsgmcmc import BPMF, open_run
from dsgmcmc.errors import InputError
from dsgmcmc.model.likelihoods.limits import resolution_from
from dsgmcmc.posterior.cells.predict import Predictor
from dsgmcmc.posterior.export import export, to_datatree
from dsgmcmc.posterior.heldout import predict_test
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.settings import PredictOptions


def test_parquet_has_moments_or_draws_by_name(finished, tmp_path):
    """A table has a row for every user and item of a chain, or of a draw."""
    run = finished.open()
    name = f"side = 'item' AND id::VARCHAR = '{finished.items[5]}'"
    row = int(run.items.index_of([finished.items[5]])[0])
    (chain, iteration) = run.draws[-1]
    for draws in (False, True):
        export(run, tmp_path / f"{draws}.parquet", draws=draws)
    rows = duckdb.read_parquet(str(tmp_path / "False.parquet"))
    assert rows.columns[:6] == ["side", "id", "chain", "ratings", "bias", "bias_sd"]
    assert len(rows) == 2 * (len(run.users) + len(run.items))
    columns = rows.filter(f"{name} AND chain = 1").fetchnumpy()
    assert columns["bias"] == pytest.approx(run.moments[1].mean["item"][row, 3])
    assert columns["factor_2_sd"] ** 2 == pytest.approx(
        run.moments[1].variance["item"][row, 1], rel=1e-5
    )
    rows = duckdb.read_parquet(str(tmp_path / "True.parquet"))
    assert len(rows) == len(run.draws) * (len(run.users) + len(run.items))
    columns = rows.filter(f"{name} AND chain = {chain} AND iteration = {iteration}").fetchnumpy()
    assert columns["factor_3"] == pytest.approx(run.draw(len(run.draws) - 1).theta["item"][row, 2])


def test_netcdf_is_arviz_schema(finished, tmp_path):
    """Groups, dimensions and coordinates are those of ArviZ, and the predictions are those of the
    run.
    """
    run = finished.open()
    out = tmp_path / "run.nc"
    export(run, out)
    with xarray.open_datatree(out, engine="h5netcdf") as tree:
        assert {"/posterior", "/sample_stats", "/observed_data", "/constant_data"} <= set(
            tree.groups
        )
        posterior = tree["posterior"]
        assert posterior["tau"].dims == tree["sample_stats"]["weight"].dims == ("chain", "draw")
        assert posterior["prediction"].dims == ("chain", "draw", "pair")
        pairs = posterior["pair"].values
        np.testing.assert_allclose(
            tree["observed_data"]["rating"].values, predict_test(run).rating[pairs]
        )
        mean = posterior["prediction"].mean(("chain", "draw")).values
        np.testing.assert_allclose(mean, predict_test(run).mean[pairs], atol=1e-4)
        assert {"user_mean", "item_precision"} <= set(tree["columns"]), (
            "columns rotate: no diagnostics are for them"
        )
        assert all(
            float(values.std()) > 0 and "column" not in values.dims for values in posterior.values()
        )
        users = run.users.ids[run.test_pairs()[0][pairs]]
        assert tree["constant_data"]["user"].values.tolist() == users.tolist()
        assert list(arviz_stats.summary(tree, var_names=["tau"]).index) == ["tau"]


LAWS = {
    "gaussian": {"chains": 2, "noise": "both"},
    "levels": {"stars": True, "likelihood": "ordinal-logit"},
    "student-t": {"likelihood": "student-t", "chains": 2},
    "logarithms": {"stars": True, "scale": "log"},
}


@pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto")  # draws are few
@pytest.mark.parametrize("law", LAWS)
def test_arviz_scores_the_test_ratings(law, tmp_path):
    """Its groups have the run's own scores and distributions, and its functions take them."""
    run = make_run(tmp_path, **LAWS[law]).open()
    tree = to_datatree(run)
    index = tree["posterior"]["pair"].values
    users, items = (rows[index] for rows in run.test_pairs())
    observed = tree["observed_data"]["rating"].values
    logs = tree["log_likelihood"]["rating"]
    assert logs.dims == tree["posterior_predictive"]["rating"].dims == ("chain", "draw", "pair")
    predictor = Predictor(run, PredictOptions(clip=True))
    mean, sd, *_ = predictor(users, items)
    pointwise = np.empty(len(index))
    for rows, predictive in predictor.distributions(users, items):
        predictive.resolution = resolution_from(run.facts)
        density, probability = predictive.log_scores(observed[rows])
        pointwise[rows] = density if probability is None else probability
    # chains have equal weights, and these runs keep as many draws of each
    mixed = np.log(np.exp(logs).mean(("chain", "draw"))).values
    np.testing.assert_allclose(mixed, pointwise, rtol=1e-3, atol=2e-3)
    drawn = tree["posterior_predictive"]["rating"]
    n_draws = drawn.sizes["chain"] * drawn.sizes["draw"]
    errors = (drawn.mean(("chain", "draw")).values - mean) / (sd / np.sqrt(n_draws))
    assert abs(errors.mean()) < 4 / np.sqrt(len(index))  # clipping moves means of levels a little
    assert 0.7 < errors.std() < 1.4
    assert "mean_product" in arviz_stats.summary(tree).index
    found = arviz_stats.loo(tree, pointwise=True)
    assert found.n_data_points == len(index)
    assert found.elpd <= mixed.sum() + 1e-6
    positions = arviz_stats.loo_pit(tree)["rating"].values
    assert ((positions >= 0) & (positions <= 1)).all()


def test_netcdf_has_parts_of_items_by_pair_and_by_item(tmp_path):
    """Names of items of two parts stand beside monitored pairs, and beside loadings."""
    station, day, hour = (axis.ravel() for axis in np.indices((12, 4, 3)))
    frame = pd.DataFrame(
        {
            "station": [f"s{s}" for s in station],
            "day": [f"d{d}" for d in day],
            "hour": [f"h{h}" for h in hour],
            "passengers": np.random.default_rng(0).normal(size=len(hour)),
        }
    )
    model = BPMF(
        rank=2,
        iterations=60,
        test_fraction=0.3,
        user="station",
        item=["day", "hour"],
        columns="rating=passengers",
    )
    run = model.fit(frame).run_
    export(run, tmp_path / "run.nc")
    with xarray.open_datatree(tmp_path / "run.nc", engine="h5netcdf") as tree:
        pairs = tree["posterior"]["pair"].values
        items = run.items.ids[run.test_pairs()[1][pairs]]
        for group, dimension, names in (
            ("constant_data", "pair", items),
            ("loadings", "item_id", run.items.ids),
        ):
            for position, part in enumerate(("day", "hour")):
                found = tree[group][part]
                assert found.dims == (dimension,)
                assert found.values.tolist() == [name[position] for name in names]


def test_runs_of_other_seeds_become_one(tmp_path):
    """With the chains of all, in the order of the runs, and their R-hat; others are refused."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"user": np.repeat(np.arange(30), 8), "item": np.tile(np.arange(8), 30)})
    frame["rating"] = frame.item + rng.normal(size=len(frame)).round(3)
    frame.to_csv(tmp_path / "ratings.csv", index=False)
    assert typed("prepare", tmp_path / "ratings.csv", tmp_path / "ratings.h5").code == 0
    runs = {}
    for name, seed, rank in (("a", 0, 1), ("b", 1, 1), ("same", 0, 1), ("other", 2, 2)):
        runs[name] = tmp_path / name
        options = ["--iterations", "60", "--burn-in", "20", "--rank", rank, "--seed", seed]
        done = typed("sample", tmp_path / "ratings.h5", "--out", runs[name], *options)
        assert done.code == 0, done.err
    out = tmp_path / "joined.nc"
    assert typed("export", runs["a"], runs["b"], "-o", out).code == 0
    alone = [to_datatree(Run(runs[name])) for name in "ab"]
    with xarray.open_datatree(out, engine="h5netcdf") as tree:
        assert tree["posterior"]["chain"].values.tolist() == [0, 1]
        for chain, single in enumerate(alone):
            found = tree["posterior"]["tau"].values[chain]
            np.testing.assert_array_equal(
                found, single["posterior"]["tau"].values[0][-len(found) :]
            )
            logs = tree["log_likelihood"]["rating"].values[chain]
            expected = single["log_likelihood"]["rating"].values[0][-len(logs) :]
            np.testing.assert_array_equal(logs, expected)
        assert tree["loadings"].sizes["chain"] == 2  # in one orientation
        joined = open_run(runs["a"]).to_arviz(open_run(runs["b"]))
        xarray.testing.assert_equal(joined["posterior"]["tau"], tree["posterior"]["tau"])
        table = arviz_stats.summary(tree, var_names=["tau"])
        assert np.isfinite(float(table["r_hat"].iloc[0]))
    for others, words in (
        (["same"], "the same seed"),
        (["other"], "other settings than"),
    ):
        done = typed("export", runs["a"], *(runs[name] for name in others), "-o", out, "--force")
        assert done.code == 2
        assert words in done.err
    done = typed("export", runs["a"], runs["b"], "-o", tmp_path / "joined.parquet")
    assert "several runs become one netCDF file" in done.err


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("run.h5", {}, "suffix"),
        ("run.nc", {"draws": True}, "--draws"),
        ("taken.nc", {}, "exists"),
        ("no/folder/run.nc", {}, "does not exist"),
    ],
)
def test_an_export_that_cannot_be_is_refused_and_leaves_nothing(
    finished, tmp_path, name, options, message
):
    """No partial file is left, and a file of the user stays as it is."""
    (tmp_path / "taken.nc").write_text("mine")
    with pytest.raises(InputError, match=message):
        export(finished.open(), tmp_path / name, **options)
    assert [path.name for path in tmp_path.iterdir()] == ["taken.nc"]
    assert (tmp_path / "taken.nc").read_text() == "mine"
