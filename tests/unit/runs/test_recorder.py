"""What a chain accumulates: which draws are kept, weighted moments, predictions of held-out ratings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from support import factor_world, write_planted

from dsgmcmc.data.ratings import open_ratings
from dsgmcmc.runs.recorder import Draws, Observer
from dsgmcmc.storage.manifest import Key
from dsgmcmc.targets.factorisation.hyperparameters import Model
from dsgmcmc.targets.factorisation.target import FactorWorld

ROWS, COLUMNS, GRID = 29, 17, 4
WEIGHTS = (1.0, 1.0, 0.5, 2.0, 0.25)


# ---------------------------------------------------------------------- thinning of saved draws


@pytest.mark.parametrize("keep", range(1, 8))
def test_between_keep_and_twice_keep_draws_stand_for_the_chain(keep: int) -> None:
    """At any time, evenly spaced from the first on; before `keep` were made, all of them."""
    draws = Draws(keep)
    for made in range(1, 400):
        saved = draws.offer(made)
        assert saved == (draws.kept[-1:] == [made])
        if made <= keep:
            assert draws.kept == list(range(1, made + 1))
        assert min(made, keep) <= len(draws.kept) <= 2 * keep - 1
        assert draws.kept == list(range(1, made + 1, draws.spacing))[: len(draws.kept)]
        assert made - draws.kept[-1] < 2 * draws.spacing, "the end of the chain is covered too"


def test_no_draws_are_kept_if_none_are_asked_for() -> None:
    """--save-draws 0."""
    draws = Draws(0)
    assert not any(draws.offer(made) for made in range(50))
    assert (draws.kept, draws.made) == ([], 50)


def test_what_is_kept_follows_from_the_number_of_draws_alone() -> None:
    """Not from how the run was cut: counts and spacing are all that a checkpoint needs."""
    whole = Draws(3)
    for made in range(1, 60):
        whole.offer(made)
        resumed = Draws(3)
        resumed.made, resumed.spacing, resumed.kept = whole.made, whole.spacing, list(whole.kept)
        longer = Draws(3)
        for number in range(1, made + 8):
            longer.offer(number)
        for number in range(made + 1, made + 8):
            resumed.offer(number)
        assert resumed.kept == longer.kept


# ---------------------------------------------------------------------- moments


def observe(world: FactorWorld, observer: Observer) -> list[dict[str, np.ndarray]]:
    """Look at five random states at different parts, and at two more that are no draws; the states, whole."""
    rng = np.random.default_rng(0)
    states = []
    for iteration, weight in enumerate([WEIGHTS[0], None, *WEIGHTS[1:], None]):
        world.iteration = iteration
        for _ in world.visit(send=True):
            pass
        state: dict[str, Any] = {"tau": 1.0 + iteration, "weight": weight}
        for factor, n in (("W", ROWS), ("H", COLUMNS)):
            state[factor] = rng.normal(size=(n, world.dimension)).astype(np.float32)
            state[f"{factor}.g"] = rng.gamma(2.0, 0.5, n).astype(np.float32)
        for side in world.sides():
            rows = slice(side.start, side.start + len(side.counts))
            side["theta"][:] = state[side.factor][rows]
            if world.likelihood.weighted:
                side["weight"][:, 0] = state[f"{side.factor}.g"][rows]
        world.state["tau"][:] = state["tau"]
        observer.look("theta", iteration + 1, weight)
        states.append(state)
    return states


def whole(found: dict[Key, np.ndarray], thing: str, factor: str, field: str) -> np.ndarray:
    return np.concatenate([found[Key(thing, factor, b, field)] for b in range(GRID)])


@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.parametrize("weighted", [False, True])
def test_moments_and_predictions_are_those_of_the_draws(tmp_path: Path, weighted: bool, biases: bool) -> None:
    """Weighted mean and variance of factors, noise weights and predictions, as NumPy has them from all draws."""
    path = write_planted(tmp_path / "r.h5", ROWS, COLUMNS)
    world = factor_world(MPI.COMM_SELF, path, GRID, schedule="random", biases=biases, weighted=weighted)
    world.state = Model(2, biases, "normal-gamma", 1.0, None).start(1)
    observer = Observer(world, 2, biases, 3)
    states = observe(world, observer)
    draws = [state for state in states if state["weight"] is not None]
    found = {key: block() if callable(block) else block for key, block in observer.posterior()}

    def check(name: str, thing: str, factor: str, values: list[np.ndarray]) -> None:
        mean = np.average(values, axis=0, weights=WEIGHTS)
        variance = np.average((np.array(values) - mean) ** 2, axis=0, weights=WEIGHTS)
        np.testing.assert_allclose(whole(found, thing, factor, f"{name}mean"), mean, atol=2e-6)
        np.testing.assert_allclose(whole(found, thing, factor, f"{name}variance"), variance, atol=5e-6)

    for factor in "WH":
        check("", "moments", factor, [draw[factor] for draw in draws])
        if weighted:
            check("weight_", "moments", factor, [draw[f"{factor}.g"][:, None] for draw in draws])
    with open_ratings(path) as ratings:
        indptr, j, x = ratings.slab("test", 0, ROWS)
        centre = ratings.mean
    i = np.repeat(np.arange(ROWS), np.diff(indptr))
    predictions = [predict(state, i, j, biases) + centre for state in states]
    counted = [p for p, state in zip(predictions, states, strict=True) if state["weight"] is not None]
    check("", "test", "W", counted)
    np.testing.assert_allclose(whole(found, "test", "W", "rating"), x, atol=1e-6)
    noise = [1 / (draw["tau"] * (draw["W.g"][i] * draw["H.g"][j] if weighted else np.ones(len(i)))) for draw in draws]
    np.testing.assert_allclose(
        whole(found, "test", "W", "noise_variance"), np.average(noise, axis=0, weights=WEIGHTS), rtol=1e-5
    )
    errors = observer.errors()
    mean = np.average(counted, axis=0, weights=WEIGHTS)
    assert errors["rmse"] == pytest.approx(np.sqrt(np.mean((predictions[-1] - x) ** 2)), rel=1e-5)
    assert errors["rmse_mean"] == pytest.approx(np.sqrt(np.mean((mean - x) ** 2)), rel=1e-5)


def predict(state: dict[str, Any], i: np.ndarray, j: np.ndarray, biases: bool) -> np.ndarray:
    """Less the centre, in float64."""
    w, h = state["W"].astype(np.float64)[i], state["H"].astype(np.float64)[j]
    return (w[:, :2] * h[:, :2]).sum(axis=1) + (w[:, 2] + h[:, 2] if biases else 0.0)


def test_traces_and_saved_draws_are_those_of_the_draws(tmp_path: Path) -> None:
    """Every draw leaves its number, weight and parameters; saved ones the whole state, whatever part it was at."""
    path = write_planted(tmp_path / "r.h5", ROWS, COLUMNS)
    world = factor_world(MPI.COMM_SELF, path, GRID, schedule="random")
    world.state = Model(2, True, "normal-wishart", 1.0, None).start(1)
    observer = Observer(world, 2, True, 2)
    states = observe(world, observer)
    found = {key: block() if callable(block) else block for key, block in observer.posterior()}
    assert found[Key("trace", "run", 0, "iteration")][:, 0].tolist() == [1, 3, 4, 5, 6]
    assert found[Key("trace", "run", 0, "weight")][:, 0].tolist() == list(WEIGHTS)
    assert found[Key("trace", "run", 0, "tau")][:, 0].tolist() == [1, 3, 4, 5, 6]
    assert found[Key("trace", "run", 0, "W.precision")].shape == (5, 3), "of a dense prior its diagonal"
    assert observer.draws.kept == [1, 4, 6]
    assert sorted(observer.pending) == [1, 4, 6]
    for iteration, (blocks, small) in observer.pending.items():
        for factor in "WH":
            assert (whole(blocks, "draw", factor, "theta") == states[iteration - 1][factor]).all()
        assert small["tau"].array() == float(iteration)
        assert small["H.precision"].array().shape == (3, 3)


def test_looking_changes_nothing(tmp_path: Path) -> None:
    """Evaluation is no part of the chain: not of its state, nor of where its blocks are."""
    world = factor_world(MPI.COMM_SELF, write_planted(tmp_path / "r.h5", ROWS, COLUMNS), GRID)
    world.state = Model(2, True, "normal-gamma", 1.0, None).start(1)
    before = [(side.factor, side.index, side.buffer.tobytes()) for side in world.sides()]
    Observer(world, 2, True, 2).look("theta", 1, 1.0)
    assert [(side.factor, side.index, side.buffer.tobytes()) for side in world.sides()] == before
