"""Several runs as the chains of one posterior, and leave-one-out of training ratings."""

import pickle

import arviz_stats
import numpy as np
import pandas as pd
import pytest
import xarray
from support import typed

from dsgmcmc import open_run
from dsgmcmc.errors import InputError

#: Chains of the runs, by name.
CHAINS = {"a": 1, "b": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two runs of one ratings file, with one and with two chains, and one of another file."""
    folder = tmp_path_factory.mktemp("joined")
    rng = np.random.default_rng(0)
    values = rng.normal(size=(80, 2)) @ rng.normal(size=(2, 14)) + 0.5 * rng.normal(size=(80, 14))
    row, column = np.nonzero(rng.random(values.shape) < 0.8)
    frame = pd.DataFrame({"protein": row, "sample": column, "rating": values[row, column]})
    frame["protein"] = "p" + frame["protein"].astype(str)
    frame.to_csv(folder / "ratings.csv", index=False)
    options = ["--columns", "user=protein,item=sample", "--test-fraction", "0.25"]
    for name in ("ratings", "others"):
        made = folder / f"{name}.h5"
        assert typed("prepare", folder / "ratings.csv", made, *options).code == 0
        options += ["--seed", "1"]
    settings = ["--rank", "3", "--iterations", "300"]
    for seed, (name, chains) in enumerate(CHAINS.items()):
        chain = ["--seed", seed, "--chains", chains]
        done = typed("sample", folder / "ratings.h5", "--out", folder / name, *settings, *chain)
        assert done.code == 0, done.err
    done = typed("sample", folder / "others.h5", "--out", folder / "c", *settings, "--seed", "5")
    assert done.code == 0, done.err
    return folder


def test_predictions_average_over_the_draws_of_all(folder):
    """Each chain has one weight, so that two chains count twice one; pickles have all of them."""
    joined = open_run([folder / name for name in CHAINS])
    alone = {name: open_run(folder / name) for name in CHAINS}
    assert joined.run_.chains == [0, 1, 2]
    assert len(joined.run_.draws) == sum(len(model.run_.draws) for model in alone.values())
    pairs = [["p3", 4], ["p70", 0], ["p5", 13]]
    weighted = sum(CHAINS[name] * model.predict(pairs) for name, model in alone.items()) / 3
    np.testing.assert_allclose(joined.predict(pairs), weighted, rtol=1e-5)
    assert np.abs(alone["a"].predict(pairs) - alone["b"].predict(pairs)).max() > 1e-3
    filled = joined.complete(known="fitted")
    row = list(filled["protein"]).index("p70")
    np.testing.assert_allclose(np.asarray(filled["0"])[row], joined.predict(pairs)[1], rtol=1e-4)
    copy = pickle.loads(pickle.dumps(joined))
    np.testing.assert_array_equal(copy.predict(pairs), joined.predict(pairs))
    updated = joined.fold_in([["new", 1, 0.5]])
    assert np.isfinite(updated.predict([["new", 2]])).all()


def test_runs_that_do_not_belong_together_are_refused(folder, tmp_path):
    """Runs of other ratings, or the same run twice, are not chains of one posterior."""
    with pytest.raises(InputError, match="has other ratings than"):
        open_run([folder / "a", folder / "c"])
    with pytest.raises(InputError, match="the same seed"):
        open_run([folder / "a", folder / "a"])
    with pytest.raises(InputError, match="no run to open"):
        open_run([])
    with pytest.raises(InputError, match="save each"):
        open_run([folder / "a", folder / "b"]).save(tmp_path / "saved")


def test_loo_of_training_ratings_estimates_the_score_of_new_ones(folder, tmp_path):
    """It is far below the score of ratings that were in, and near that of those held out."""
    out = tmp_path / "loo.nc"
    assert typed("export", folder / "a", folder / "b", "-o", out, "--training").code == 0
    joined = open_run([folder / "a", folder / "b"])
    with xarray.open_datatree(out, engine="h5netcdf") as tree:
        logs = tree["log_likelihood"]["rating"]
        assert logs.sizes["observation"] == joined.run_.counts("user").sum()
        fitted = float(np.log(np.exp(logs).mean(("chain", "draw"))).mean())
        with pytest.warns(UserWarning, match="Pareto"):  # some ratings tell much of their row
            found = arviz_stats.loo(tree, pointwise=True)
        by_user = logs.groupby("user").sum()
        assert by_user.sizes["user"] == 80
        place = int(np.flatnonzero(logs["user"].values == "p7")[0])
        pair = [["p7", int(logs["item"].values[place])]]
        mean, sd = joined.predict(pair, return_std=True)
        drawn = tree["posterior_predictive"]["rating"].values[..., place]
        assert abs(drawn.mean() - mean[0]) < 5 * sd[0] / np.sqrt(drawn.size)
    held_out = joined.to_arviz()["log_likelihood"]["rating"]
    held_out = float(np.log(np.exp(held_out).mean(("chain", "draw"))).mean())
    of_loo = found.elpd / found.n_data_points
    assert fitted - held_out > 0.2
    assert abs(of_loo - held_out) < 0.12
    done = typed("export", folder / "a", "-o", tmp_path / "x.parquet", "--training")
    assert "needs a netCDF file" in done.err


def test_loo_says_how_much_memory_it_lacks(folder, monkeypatch):
    """All draws of all training ratings are in memory, which a limit may forbid."""
    monkeypatch.setattr("dsgmcmc.posterior.cells.pair_draws.memory_for_data", lambda: 1_000)
    with pytest.raises(InputError, match="GB may be used"):
        open_run(folder / "a").to_arviz(training=True)
