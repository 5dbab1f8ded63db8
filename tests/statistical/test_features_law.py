"""Features of rows and columns: the chain has the law that a plain Gibbs sampler of the model
has.
"""

from pathlib import Path

import numpy as np
import pytest
from chain_states import iterate, start_chain
from features_gibbs import Side, gibbs
from support import features_of, rows_of, write_cells

from dsgmcmc.config.run import RunConfig
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.ratings.format import SIDES
from dsgmcmc.types import Factor

pytestmark = pytest.mark.statistical
ROWS = 40
COLUMNS = 30
RANK = 2
TAU = 4.0
SWEEPS = 3000
GIBBS_SWEEPS = 1500
GROUPS = np.array([0, 0, 0, 1])


def features(rng: np.random.Generator, n: int) -> np.ndarray:
    """A category of three, a number, and the last two rows without any."""
    x = np.zeros((n, 4), np.float32)
    x[np.arange(n), rng.integers(0, 3, n)] = 1.0
    x[:, 3] = rng.normal(size=n)
    x[-2:] = 0.0
    return x


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Ratings that follow from features in part; five rows and three columns have none, and two
    rows no features.
    """
    rng = np.random.default_rng(5)
    dense = [features(rng, n) for n in (ROWS, COLUMNS)]
    theta = [
        x @ rng.normal(0, 0.7, (4, RANK + 1)) + rng.normal(0, 0.4, (len(x), RANK + 1))
        for x in dense
    ]
    eta = theta[0][:, :RANK] @ theta[1][:, :RANK].T + theta[0][:, RANK:] + theta[1][:, RANK]
    observed = rng.random(eta.shape) < 0.5
    observed[:5] = False
    observed[:, :3] = False
    x = eta + rng.normal(0, TAU**-0.5, eta.shape)
    i, j = np.nonzero(observed)
    names = ("a=1", "a=2", "a=3", "b"), ("a", "a", "a", "b")
    sides = {side: features_of(part, *names) for side, part in zip(SIDES, dense, strict=True)}
    path = tmp_path_factory.mktemp("features") / "data.h5"
    return write_cells(path, (ROWS, COLUMNS), i, j, x[i, j], features=sides), dense, observed, x


def scales_of(scaled: bool) -> list[np.ndarray]:
    """Scales of the rows and of the columns, which stay; 1 if they are not `scaled`."""
    rng = np.random.default_rng(9)
    return [rng.gamma(3, 1 / 3, n) if scaled else np.ones(n) for n in (ROWS, COLUMNS)]


def gibbs_draws(
    path: Path, dense: list[np.ndarray], observed: np.ndarray, x: np.ndarray, scaled: bool
):
    """Draws of what does not depend on the rotation of the factors."""
    with Ratings(path) as ratings:
        mean = ratings.mean
    sides = []
    zeros = np.zeros(RANK + 1)
    for features_of_side, scale in zip(dense, scales_of(scaled), strict=True):
        known = np.abs(features_of_side).sum(axis=1, keepdims=True) > 0
        centred = known * (features_of_side - features_of_side[known[:, 0]].mean(axis=0))
        start = np.random.default_rng(1).normal(0, 0.1, (len(features_of_side), RANK + 1))
        prior = (zeros, zeros + 1, np.zeros((4, RANK + 1)), np.ones(2))
        sides.append(Side(centred, GROUPS, start, *prior, scale))
    summaries = []
    for _ in gibbs((sides[0], sides[1]), observed, observed * (x - mean), TAU, GIBBS_SWEEPS):
        summaries.append([summary(side.theta, side.effects, side.strength) for side in sides])
    return draws_by_quantity(summaries)


def summary(theta, effects, strength) -> dict[str, np.ndarray]:
    """A side: effects on the bias, log beta, biases of three rows without ratings and of one
    without features.
    """
    return {
        "effects": effects[:, -1].copy(),
        "strength": np.log(strength),
        "cold": theta[[0, 1, 2, -1], -1].copy(),
    }


def draws_by_quantity(summaries: list[list[dict[str, np.ndarray]]]) -> dict[str, np.ndarray]:
    """Draws after a tenth for burn-in, by side and quantity."""
    summaries = summaries[len(summaries) // 10 :]
    return {
        f"{side} {name}": np.array([draw[side][name] for draw in summaries])
        for side in (0, 1)
        for name in summaries[0][0]
    }


def chain_draws(path: Path, scaled: bool) -> dict[str, np.ndarray]:
    """The same draws of the sampler, every other sweep."""
    settings = {"rank": RANK, "prior": "normal-gamma", "standardise": False, "grid": 2}
    settings["noise_precision"] = TAU
    if scaled:
        settings |= {"noise": "both", "coupled_noise": True}
    config = RunConfig.from_settings(settings | {"sampler": {"name": "baoab", "step_size": 0.2}})
    target, sampler = start_chain(path, 0.1, config)
    target.noise.factors = ()  # scales are not drawn
    if scaled:
        for block in target.blocks():
            scale = scales_of(scaled)[block.factor][block.start :]
            block.row("weight")[:] = scale[: len(block.counts)]
    summaries = []
    for iteration in iterate(target, sampler, SWEEPS):
        if iteration % 2:
            continue
        drawn = target.parameters()
        of_factor = (
            [drawn[f"{f.name}.features.{name}"] for name in ("effects", "strength")] for f in Factor
        )
        summaries.append(
            [summary(rows_of(target, f), *of) for f, of in zip(Factor, of_factor, strict=True)]
        )
    return draws_by_quantity(summaries)


@pytest.mark.parametrize("scaled", [False, True], ids=["", "scaled"])
def test_features_have_the_law_of_gibbs(data, scaled):
    """Means and sds of B's biases, of log beta, and of the biases of rows without ratings, agree.

    Means within 0.35 sds and sds within 25 %: the slowest of these have some 100 independent draws
    in each chain, which know a mean to 0.1 sds and an sd to 7 %; with 20 numbers 2.5 times the
    error of a difference.
    """
    path, dense, observed, x = data
    exact = gibbs_draws(path, dense, observed, x, scaled)
    sampled = chain_draws(path, scaled)
    for name, draws in sampled.items():
        expected = exact[name]
        shift = (draws.mean(axis=0) - expected.mean(axis=0)) / expected.std(axis=0)
        assert np.abs(shift).max() < 0.35, name
        assert draws.std(axis=0) == pytest.approx(expected.std(axis=0), rel=0.25), name
