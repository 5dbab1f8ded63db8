"""Which draws a chain keeps, and its weighted moments and predictions of held-out ratings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from support import MODEL, factor_target, write_planted

from dsgmcmc.data.ratings import Ratings
from dsgmcmc.model.target import FactorTarget
from dsgmcmc.runs.recorder import DrawNumbers, DrawRecorder
from dsgmcmc.storage.store import Key
from dsgmcmc.targets.base import Recorder
from dsgmcmc.types import Factor

ROWS, COLUMNS, GRID = 29, 17, 4
WEIGHTS = (1.0, 1.0, 0.5, 2.0, 0.25)


# ---------------------------------------------------------------------- thinning of saved draws


@pytest.mark.parametrize("keep", [1, 2, 5])
def test_between_keep_and_twice_keep_draws_stand_for_the_chain(keep: int) -> None:
    """The kept draws are evenly spaced from the first on, and all of them up to `keep` draws."""
    numbers = DrawNumbers(keep)
    for number in range(1, 400):
        saved = numbers.offer(number)
        assert saved == (numbers.kept[-1:] == [number])
        if number <= keep:
            assert numbers.kept == list(range(1, number + 1))
        assert min(number, keep) <= len(numbers.kept) <= 2 * keep - 1
        assert numbers.kept == list(range(1, number + 1, numbers.spacing))[: len(numbers.kept)]
        assert number - numbers.kept[-1] < 2 * numbers.spacing, "the end of the chain is covered too"


# ---------------------------------------------------------------------- moments


def record(target: FactorTarget, draws: DrawRecorder, others: list[Recorder]) -> list[dict[str, Any]]:
    """Record five random states at different parts, and two that are no draws; return all states."""
    rng = np.random.default_rng(0)
    states = []
    for iteration, weight in enumerate([WEIGHTS[0], None, *WEIGHTS[1:], None]):
        target.begin(iteration)
        for _ in target.visit(send=True):
            pass
        state: dict[str, Any] = {"tau": 1.0 + iteration, "weight": weight}
        for factor, n in zip(Factor, (ROWS, COLUMNS), strict=True):
            state[factor.name] = rng.normal(size=(n, target.dimension)).astype(np.float32)
            state[f"{factor.name}.g"] = rng.gamma(2.0, 0.5, n).astype(np.float32)
        for block in target.blocks():
            rows = slice(block.start, block.start + len(block.counts))
            block["theta"][:] = state[block.factor.name][rows]
            if target.likelihood.heteroscedastic:
                block["weight"][:, 0] = state[f"{block.factor.name}.g"][rows]
        target.noise.parameters.tau[:] = state["tau"]
        draw = None if weight is None else draws.next(iteration + 1, weight)
        for recorder in (draws, *others):
            recorder.record("theta", draw)
        states.append(state)
    return states


def posterior(weight: float, *recorders: Recorder) -> dict[Key, np.ndarray]:
    """Blocks that recorders give at the end of a run."""
    blocks = [item for recorder in recorders for item in recorder.posterior(weight)]
    return {key: block() if callable(block) else block for key, block in blocks}


def whole(blocks: dict[Key, np.ndarray], thing: str, factor: str, field: str) -> np.ndarray:
    """A field of all rows of a factor."""
    return np.concatenate([blocks[Key(thing, factor, b, field)] for b in range(GRID)])


@pytest.mark.parametrize(("heteroscedastic", "biases"), [(True, True), (False, False)])
def test_moments_and_predictions_are_those_of_the_draws(tmp_path: Path, heteroscedastic: bool, biases: bool) -> None:
    """Factors, noise scales and predictions have the weighted mean and variance of all draws."""
    path = write_planted(tmp_path / "r.h5", ROWS, COLUMNS)
    model = replace(MODEL, biases=biases, heteroscedastic=tuple(Factor) if heteroscedastic else ())
    target = factor_target(MPI.COMM_SELF, path, GRID, "random", model)
    recorder, (held_out,) = DrawRecorder(target, True, 3), target.recorders()
    assert held_out.metrics()["rmse_mean"] is None, "there is no mean of no draws"
    states = record(target, recorder, [held_out])
    draws = [state for state in states if state["weight"] is not None]
    assert recorder.weight == sum(WEIGHTS)
    blocks = posterior(recorder.weight, recorder, held_out)

    def check(name: str, thing: str, factor: str, values: list[np.ndarray]) -> None:
        mean = np.average(values, axis=0, weights=WEIGHTS)
        variance = np.average((np.array(values) - mean) ** 2, axis=0, weights=WEIGHTS)
        np.testing.assert_allclose(whole(blocks, thing, factor, f"{name}mean"), mean, atol=2e-6)
        np.testing.assert_allclose(whole(blocks, thing, factor, f"{name}variance"), variance, atol=5e-6)

    for factor in "WH":
        check("", "moments", factor, [draw[factor] for draw in draws])
        if heteroscedastic:
            check("weight_", "moments", factor, [draw[f"{factor}.g"][:, None] for draw in draws])
    with Ratings(path) as ratings:
        indptr, j, x = ratings.slab("test", 0, ROWS)
        centre = ratings.mean
    i = np.repeat(np.arange(ROWS), np.diff(indptr))
    predictions = [predict(state, i, j, biases) + centre for state in states]
    counted = [p for p, state in zip(predictions, states, strict=True) if state["weight"] is not None]
    check("", "test", "W", counted)
    np.testing.assert_allclose(whole(blocks, "test", "W", "rating"), x, atol=1e-6)
    scales = [draw["W.g"][i] * draw["H.g"][j] if heteroscedastic else np.ones(len(i)) for draw in draws]
    noise = [1 / (draw["tau"] * scale) for draw, scale in zip(draws, scales, strict=True)]
    expected = np.average(noise, axis=0, weights=WEIGHTS)
    np.testing.assert_allclose(whole(blocks, "test", "W", "noise_variance"), expected, rtol=1e-5)
    errors = held_out.metrics()
    mean = np.average(counted, axis=0, weights=WEIGHTS)
    assert errors["rmse"] == pytest.approx(np.sqrt(np.mean((predictions[-1] - x) ** 2)), rel=1e-5)
    assert errors["rmse_mean"] == pytest.approx(np.sqrt(np.mean((mean - x) ** 2)), rel=1e-5)
    assert errors["tau"] == 7.0


def predict(state: dict[str, Any], i: np.ndarray, j: np.ndarray, biases: bool) -> np.ndarray:
    """Predictions without the centre, in float64."""
    w, h = state["W"].astype(np.float64)[i], state["H"].astype(np.float64)[j]
    return (w[:, :2] * h[:, :2]).sum(axis=1) + (w[:, 2] + h[:, 2] if biases else 0.0)


def test_traces_and_saved_draws_are_those_of_the_draws(tmp_path: Path) -> None:
    """Traces have the number, weight and parameters of every draw, and saved draws the whole state."""
    path = write_planted(tmp_path / "r.h5", ROWS, COLUMNS)
    target = factor_target(MPI.COMM_SELF, path, GRID, "random", replace(MODEL, prior="normal-wishart"))
    recorder = DrawRecorder(target, True, 2)
    states = record(target, recorder, [])
    blocks = posterior(recorder.weight, recorder)
    assert blocks[Key("trace", "run", 0, "iteration")][:, 0].tolist() == [1, 3, 4, 5, 6]
    assert blocks[Key("trace", "run", 0, "weight")][:, 0].tolist() == list(WEIGHTS)
    assert blocks[Key("trace", "run", 0, "tau")][:, 0].tolist() == [1, 3, 4, 5, 6]
    assert blocks[Key("trace", "run", 0, "W.precision")].shape == (5, 3), "of a dense prior its diagonal"
    assert recorder.numbers.kept == [1, 4, 6]
    numbers, arrays = recorder.take_pending()
    assert numbers == [1, 4, 6]
    assert recorder.pending == {}
    stacked = {key: make() for key, make in arrays.items()}
    for number, iteration in enumerate(numbers):
        draw = {key: array[number] for key, array in stacked.items()}
        for factor in "WH":
            assert (whole(draw, "draw", factor, "theta") == states[iteration - 1][factor]).all()
        assert draw[Key("draw", "run", 0, "tau")] == float(iteration)
        assert draw[Key("draw", "run", 0, "H.precision")].shape == (3, 3)
