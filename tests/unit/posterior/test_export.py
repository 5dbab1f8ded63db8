"""Exports, read back by the tools that they are for."""

from __future__ import annotations

import subprocess
import sys

import duckdb
import numpy as np
import pytest
import xarray
from runs import Made, make_run

from dsgmcmc.errors import InputError
from dsgmcmc.posterior.export import export
from dsgmcmc.posterior.heldout import predict_test
from dsgmcmc.posterior.predict import PredictOptions, Predictor


@pytest.fixture(scope="module", params=["integers", "text"])
def made(request, tmp_path_factory) -> Made:
    text = request.param == "text"
    noise = "by-user" if text else "shared"
    users, items = (18, 40) if text else (40, 18)
    folder = tmp_path_factory.mktemp("run")
    return make_run(folder, users=users, items=items, strings=text, noise=noise, chains=2)


def test_parquet_has_moments_or_draws_by_name(made, tmp_path):
    """One row for each user and item and chain, or draw."""
    run = made.open()
    export(run, tmp_path / "moments.parquet")
    rows = duckdb.read_parquet(str(tmp_path / "moments.parquet"))
    assert rows.columns[:6] == ["side", "id", "chain", "ratings", "bias", "bias_sd"]
    assert len(rows) == 2 * (len(run.users) + len(run.items))
    name = run.items.ids[5]
    found = rows.filter(f"side = 'item' AND chain = 1 AND id = {duckdb_literal(name)}").fetchnumpy()
    assert found["bias"] == pytest.approx(run.moments[1].mean["item"][5, 3])
    assert found["factor_2_sd"] ** 2 == pytest.approx(run.moments[1].variance["item"][5, 1], rel=1e-5)
    export(run, tmp_path / "draws.parquet", draws=True)
    rows = duckdb.read_parquet(str(tmp_path / "draws.parquet"))
    assert len(rows) == len(run.draws) * (len(run.users) + len(run.items))
    chain, iteration = run.draws[-1]
    found = rows.filter(
        f"side = 'item' AND id = {duckdb_literal(name)} AND chain = {chain} AND iteration = {iteration}"
    )
    assert found.fetchnumpy()["factor_3"] == pytest.approx(run.draw(len(run.draws) - 1).theta["item"][5, 2])


def duckdb_literal(name: object) -> str:
    return str(name) if isinstance(name, int | np.integer) else "'" + str(name) + "'"


def test_netcdf_is_arviz_schema(made, tmp_path):
    """Groups, dims and coordinates as ArviZ and xarray expect them; predictions agree with the run's own."""
    run, out = made.open(), tmp_path / "run.nc"
    export(run, out)
    with xarray.open_datatree(out, engine="h5netcdf") as tree:
        assert {"/posterior", "/sample_stats", "/observed_data", "/constant_data"} <= set(tree.groups)
        posterior = tree["posterior"]
        assert posterior["tau"].dims == ("chain", "draw")
        assert posterior["prediction"].dims == ("chain", "draw", "pair")
        assert tree["sample_stats"]["weight"].dims == ("chain", "draw")
        pairs = posterior["pair"].values
        np.testing.assert_allclose(tree["observed_data"]["rating"].values, predict_test(run).rating[pairs])
        mean = posterior["prediction"].mean(("chain", "draw")).values
        np.testing.assert_allclose(mean, predict_test(run).mean[pairs], atol=1e-4)
        rows = [side[pairs] for side in run.test_pairs()]
        found, x = Predictor(run, PredictOptions()), predict_test(run).rating[pairs]
        centre, variance, *_ = found.draws(*rows)
        first = -0.5 * ((x - run.mean - centre[:, 0]) ** 2 / variance[:, 0] + np.log(2 * np.pi * variance[:, 0]))
        np.testing.assert_allclose(tree["log_likelihood"]["rating"].values[0, 0], first, rtol=1e-4)
        replicas = tree["posterior_predictive"]["rating"].values
        assert replicas.shape == (2, len(run.draws) // 2, len(pairs))
        error = (replicas.mean(axis=(0, 1)) - found(*rows).mean) / (found(*rows).sd / np.sqrt(len(run.draws)))
        assert np.abs(error).max() < 5
        users = run.users.ids[rows[0]]
        assert tree["constant_data"]["user"].values.tolist() == users.tolist()


def test_arviz_reads_the_netcdf(made, tmp_path):
    """ArviZ 0.23, in a process of its own: it warns of its successor. Its `loo` is too low, as `to_datatree` says."""
    export(made.open(), tmp_path / "run.nc")
    code = (
        "import sys, arviz, numpy\n"
        "data = arviz.from_netcdf(sys.argv[1])\n"
        "table = arviz.summary(data, var_names=['tau', 'mean_product'])\n"
        "every = data.log_likelihood.rating\n"
        "plain = float(numpy.log(numpy.exp(every).mean(('chain', 'draw'))).sum())\n"
        "print(list(table.index), data.posterior.sizes['chain'], arviz.loo(data).elpd_loo < plain)\n"
        "import matplotlib\nmatplotlib.use('agg')\narviz.plot_ppc(data, num_pp_samples=5)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(tmp_path / "run.nc")],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.stdout.strip() == "['tau', 'mean_product'] 2 True", done.stderr


WRONG = [
    ("run.xlsx", {}, "suffix"),
    ("run.h5", {}, "suffix"),
    ("run.nc", {"draws": True}, "--draws"),
    ("taken.nc", {}, "exists"),
    ("no/folder/run.nc", {}, "does not exist"),
]


@pytest.mark.parametrize(("name", "options", "message"), WRONG)
def test_what_cannot_be_is_refused_and_nothing_is_left(made, tmp_path, name, options, message):
    """No partial output, and what was there stays."""
    (tmp_path / "taken.nc").write_text("mine")
    with pytest.raises(InputError, match=message):
        export(made.open(), tmp_path / name, **options)
    assert [path.name for path in tmp_path.iterdir()] == ["taken.nc"]
    assert (tmp_path / "taken.nc").read_text() == "mine"
