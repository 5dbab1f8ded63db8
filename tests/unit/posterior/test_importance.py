"""A run with features, opened for use: who is cold is predicted, and what matters is said."""

from __future__ import annotations

import numpy as np
import pytest
from mpi4py import MPI
from support import sample, typed

from dsgmcmc.data.features import Description
from dsgmcmc.data.prepare import prepare_ratings
from dsgmcmc.posterior.predict import PredictOptions, Predictor
from dsgmcmc.posterior.rank import Ranking, recommendations
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.traces import importance

SETTINGS = {"rank": 2, "grid": 2, "iterations": 300, "burn_in": 100, "sampler": {"name": "baoab", "step_size": 0.2}}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Ratings that `kind` moves by 1.5 up or down and `shoe` not at all; users 40 to 43 have not rated."""
    folder = tmp_path_factory.mktemp("described")
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 2, 44)
    kind[40:] = [0, 1, 0, 1]
    users = "".join(f"{u},{'ab'[kind[u]]},{rng.normal():.3f}\n" for u in range(44))
    (folder / "users.csv").write_text("user,kind,shoe\n" + users)
    rows = [(u, i, 3 + 1.5 * (2 * kind[u] - 1) + rng.normal(0, 0.3)) for u in range(40) for i in range(12)]
    (folder / "r.csv").write_text("user,item,rating\n" + "".join(f"{u},{i},{x:.3f}\n" for u, i, x in rows))
    described = {"user": Description(folder / "users.csv")}
    prepare_ratings([str(folder / "r.csv")], folder / "r.h5", described=described)
    return folder / "r.h5"


@pytest.fixture(scope="module")
def run(data):
    assert sample(MPI.COMM_SELF, data, data.parent / "run", **SETTINGS) == 0
    return Run(data.parent / "run")


def test_users_without_ratings_are_predicted_from_their_features(run):
    """Near 1.5 and 4.5, where one of whom nothing is known is near the mean; and items are recommended to them."""
    users = np.append(run.users.index_of([40, 41, 42, 43]), -1).astype(np.int32)
    found = Predictor(run, PredictOptions("draws"))(users, np.zeros(5, np.int32))
    assert found.mean[[0, 2]] == pytest.approx(1.5, abs=0.4)
    assert found.mean[[1, 3]] == pytest.approx(4.5, abs=0.4)
    assert found.mean[4] == pytest.approx(3.0, abs=0.6)
    table = next(iter(recommendations(run, users[:2], Ranking(3, "mean"))))
    assert table["user_id"].tolist() == [40] * 3 + [41] * 3


def test_what_matters_is_said(run):
    """The column that moves ratings comes first; effects have intervals, and are found in what info prints.

    How much of an effect is in the bias is not identified here: the factors of items that are alike serve as well.
    """
    groups, effects = importance(run).values()
    assert [each.name for each in groups] == ["kind", "shoe"]
    assert groups[0].low > groups[1].mean
    assert sorted(each.name for each in effects) == ["kind=a", "kind=b", "shoe"]
    assert all(each.low < each.mean < each.high for each in effects)
    strength = [abs(each.mean) for each in effects]
    assert strength == sorted(strength, reverse=True)
    assert "kind=b" in typed("info", run.path).expect().out
