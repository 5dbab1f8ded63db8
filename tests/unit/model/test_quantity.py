"""What a model says that it keeps, against what a chain of it has, writes and shows."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chain_states import start_chain
from mpi4py import MPI
from support import Model, sample, write_planted

from dsgmcmc.config.run import build
from dsgmcmc.model.quantity import THETA
from dsgmcmc.posterior.heldout import predict_test
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.traces import labels, scalar_traces
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.samplers.hamcmc import PairProducts
from dsgmcmc.samplers.metrics import Fisher
from dsgmcmc.targets.state import Replicated
from dsgmcmc.types import Factor

BIASES: dict[str, Any] = {"rank": 0, "sampler": {"name": "baoab", "step_size": 0.02}}
MODELS: dict[str, dict[str, Any]] = {
    "shared": {"sampler": "gibbs"},
    "dense": {"prior": "normal-wishart", "noise": "by-user"},
    "groups": {"implicit_features": "user", "time_levels": "user:page,item:2", "noise": "both"},
    "levels": {
        "likelihood": "ordinal-logit",
        "thresholds": "user",
        "noise": "by-item",
        "implicit_features": "both",
        "time_levels": "item:3",
    },
    "several states": {"sampler": "hamcmc", "features": "no", "iterations": 26, "thin": 5},
    # rank 0: every part acts on the biases alone
    "biases, parts": (
        BIASES | {"noise": "both", "implicit_features": "both", "time_levels": "user,item"}
    ),
    "biases, levels": (
        BIASES | {"likelihood": "ordinal-logit", "thresholds": "user", "noise": "both"}
    ),
    "biases, counts": BIASES | {"likelihood": "negative-binomial", "implicit_features": "both"},
    "biases, dense": BIASES | {"prior": "normal-wishart", "standardise": False},
}
#: The rank of most other tests of whole runs, whose kernels are compiled.
SETTINGS = {
    "rank": 3,
    "grid": 2,
    "iterations": 12,
    "burn_in": 2,
    "thin": 2,
    "evaluate_every": 4,
    "save_draws": 2,
}


@pytest.fixture(scope="module", params=MODELS)
def name(request: pytest.FixtureRequest) -> str:
    """Name of a model."""
    return str(request.param)


@pytest.fixture(scope="module")
def data(name: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ratings of five levels, with features of both sides and times; items are the rows with some
    models.
    """
    path = tmp_path_factory.mktemp("data") / "r.h5"
    transposed = name in ("dense", "levels")
    return write_planted(path, stars=True, features=(4, 3), timed=True, transposed=transposed)


def test_a_chain_keeps_what_its_model_says(data: Path, name: str) -> None:
    """Every array of a checkpoint and of a draw, by its name and shape, and no other; no two parts
    keep the same.
    """
    requested = build(SETTINGS | MODELS[name])
    config = requested.resolved()
    target, sampler = start_chain(data, 0.1, requested)
    with Ratings(data) as ratings:
        said = config.quantities_for(ratings)
    assert target.layout.names == (
        *(field.name for field in sampler.kept),
        *(q.name for q in said.of_rows),
    )
    assert len(set(target.layout.names)) == len(target.layout.names)
    assert (
        target.layout.width - sum(f.width or config.dimension for f in sampler.kept)
        == said.width_of_rows()
    )
    shapes = {
        q.name: q.shape(said.sizes)
        for q in said.all
        if q.kept and not q.of_rows and q.name != "noise.turn"
    }
    states = len(sampler.positions)
    several = {quantity.name for quantity in said.all if quantity.per_state}
    kept = {name: array.shape for name, array in target.small().items()}
    assert kept == {
        name: (states, *shape) if name in several else shape for name, shape in shapes.items()
    }
    drawn = {name: array.shape for name, array in target.parameters().items()}
    assert drawn == {quantity.name: quantity.shape(said.sizes) for quantity in said.shared}


def test_all_of_it_can_be_read_and_shown(data: Path, tmp_path: Path, name: str) -> None:
    """A run opens, which compares its arrays with those of its model; users see all of them, and
    finite predictions.
    """
    assert sample(MPI.COMM_SELF, data, tmp_path / "run", **SETTINGS | MODELS[name]) == 0
    run = Run(tmp_path / "run")
    stored = {key.field for key in run.open_draw(0).snapshot.block_keys()}
    assert stored == {
        quantity.name for quantity in (*run.quantities.drawn_of_rows, *run.quantities.shared)
    }
    traces = scalar_traces(run)
    assert set(traces) <= set(labels(run, traces))
    assert not [label for label in labels(run, traces).values() if "{" in label]
    assert all(
        np.isfinite(moments).all()
        for moments in (predict_test(run).mean, predict_test(run).variance)
    )


def test_a_warm_start_takes_what_is_marked(tmp_path: Path) -> None:
    """Users may be the rows in one run, and the columns in the other."""
    before, now = (
        write_planted(tmp_path / f"{t}.h5", stars=True, transposed=t) for t in (False, True)
    )
    settings = SETTINGS | {"likelihood": "ordinal-logit", "thresholds": "user", "noise": "both"}
    assert sample(MPI.COMM_SELF, before, tmp_path / "before", **settings) == 0
    assert sample(MPI.COMM_SELF, now, tmp_path / "now", start=tmp_path / "before", **SETTINGS) == 0
    run = Run(tmp_path / "now")
    start = run.directory.open_start(0, run.facts)
    marked = {quantity.name for quantity in (THETA, *run.quantities.all) if quantity.started}
    assert {key.field for key in start.block_keys()} | set(start.manifest.state) == marked | {
        "known"
    }


DRAWN = Model(heteroscedastic=(Factor.H,))
METRIC = Fisher({f: np.ones(3) for f in Factor}, {f: np.ones(3) for f in Factor}, np.ones(1))
ONE = np.zeros((1, 1))


@pytest.mark.parametrize(
    ("replicated", "names"),
    [
        (DRAWN.rows().parameters, {"W.mean", "H.mean", "W.precision", "H.precision"}),
        (DRAWN.noise().parameters, {"tau", "H.nu"}),
        (METRIC, {"metric.W.c", "metric.H.c", "metric.W.lambda", "metric.H.lambda", "metric.tau"}),
        (
            PairProducts(ONE, ONE, ONE, np.zeros(1)),
            {"pairs.sy", "pairs.yhy", "pairs.sbs", "skipped_pairs"},
        ),
    ],
)
def test_names_on_disk_stay(replicated: Replicated, names: set[str]) -> None:
    """Runs that an earlier version has begun can go on: the arrays of parts and samplers have the
    names on disk.
    """
    assert set(replicated.arrays()) == names
    assert all(array.dtype == np.float64 for array in replicated.arrays().values())
