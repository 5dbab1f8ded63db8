"""Gradient estimators: what a step goes along, and when hyperparameters are drawn, given which state."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chain_states import iterate
from mpi4py import MPI
from support import MODEL, STEPPING, cells_of, factor_target, rows_of

from dsgmcmc.data.ratings import Ratings
from dsgmcmc.kernels.philox import NoiseKey, normals
from dsgmcmc.model.parts.base import DrawContext
from dsgmcmc.model.target import FactorTarget
from dsgmcmc.samplers import SAMPLERS
from dsgmcmc.samplers.sgld import SGLD, SGLDConfig
from dsgmcmc.types import Factor, Purpose

ROWS, COLUMNS, GRID, SEED = 29, 17, 4, 5
Whole = dict[Factor, np.ndarray]


def whole(target: FactorTarget, field: str = "theta") -> Whole:
    """A field of all rows of both factors, in float64."""
    return {factor: rows_of(target, factor, field) for factor in Factor}


def noise(target: FactorTarget) -> Whole:
    """The normals of an iteration's step."""
    normal = {}
    for factor, n in zip(Factor, (ROWS, COLUMNS), strict=True):
        z = np.empty(n * target.dimension, np.float32)
        normals(z, NoiseKey(0, SEED, 0, Purpose.STEP, target.stream.iteration, factor))
        normal[factor] = z.reshape(n, -1).astype(np.float64)
    return normal


def likelihood_gradient(path: Path, theta: Whole) -> Whole:
    """Of the energy at noise precision 1, from the ratings file."""
    i, j, x = cells_of(path)
    with Ratings(path) as ratings:
        x = x.astype(np.float64) - ratings.mean
    w, h = theta[Factor.W][i].copy(), theta[Factor.H][j].copy()
    e = x - (w[:, :-1] * h[:, :-1]).sum(axis=1) - w[:, -1] - h[:, -1]
    w[:, -1] = h[:, -1] = 1.0
    found = {factor: np.zeros_like(value) for factor, value in theta.items()}
    np.add.at(found[Factor.W], i, -e[:, None] * h)
    np.add.at(found[Factor.H], j, -e[:, None] * w)
    return found


def prior_gradient(target: FactorTarget, theta: Whole) -> Whole:
    """At the hyperparameters of this moment."""
    gradient = {}
    for factor, value in theta.items():
        mean = target.row_priors.parameters.mean[factor][0]
        precision = target.row_priors.parameters.precision[factor][0]
        gradient[factor] = (value - mean) @ precision if precision.ndim == 2 else (value - mean) * precision
    return gradient


def check(found: Whole, expected: Whole) -> None:
    for factor in Factor:
        np.testing.assert_allclose(found[factor], expected[factor], rtol=2e-5, atol=2e-5)


# ---------------------------------------------------------------------- a step along the full gradient


@pytest.mark.parametrize("prior", ["normal-gamma", "normal-wishart"])
def test_a_step_of_sgld_along_the_full_gradient(data: Path, prior: Any) -> None:
    """Theta - eps (tau g + Lambda (theta - m)) + noise, with tau, Lambda and m as they are drawn in this very step."""
    sampler = SGLD(SGLDConfig(gradient="full", step_size=0.8), 0)
    model = replace(MODEL, prior=prior)
    target = factor_target(MPI.COMM_SELF, data, GRID, model=model, sampler=sampler, seed=SEED)
    sampler.start(target, 0.5)
    for iteration in range(3):
        target.begin(iteration)
        theta, before = whole(target), target.noise_precision
        sampler.step(target, iteration)
        assert target.noise_precision != before
        eps = 0.8 / max(block.counts.max() for block in target.blocks())
        g = likelihood_gradient(data, theta)
        pull, z = prior_gradient(target, theta), noise(target)
        tau = target.noise_precision
        check(
            whole(target),
            {f: theta[f] - eps * (tau * g[f] + pull[f]) + np.sqrt(2 * eps) * z[f] for f in Factor},
        )


# ---------------------------------------------------------------------- when hyperparameters are drawn


class Drawn:
    """Stands for `FactorTarget.draw_shared`: notes at which state it is asked, and sets tau to a number of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at: list[int] = []
        self.states: list[Whole] = []
        monkeypatch.setattr(FactorTarget, "draw_shared", lambda model, context: self.note(model, context))

    def note(self, model: FactorTarget, context: DrawContext) -> None:
        self.at.append(context.stream.iteration)
        self.states.append(whole(context.circulation, context.positions[-1]))
        model.noise.parameters.tau[:] = 1.0 + 0.1 * len(self.at)


@pytest.mark.parametrize(("first", "sweeps"), [(0, "123456"), (2, "23456")])
@pytest.mark.parametrize(("gradient", "length"), [("part", GRID), ("full", 1)])
def test_hyperparameters_are_drawn_once_a_sweep(
    data: Path, monkeypatch: pytest.MonkeyPatch, gradient: str, length: int, first: int, sweeps: str
) -> None:
    """By parts when all were seen, given the state that they led to; else given the one that the gradient is of."""
    drawn = Drawn(monkeypatch)
    sampler = SGLD(SGLDConfig(gradient=gradient, step_size=0.05), 0)
    model = replace(MODEL, first=first)
    target = factor_target(MPI.COMM_SELF, data, GRID, model=model, sampler=sampler, seed=SEED)
    sampler.start(target, 0.3)
    states = [whole(target), *(whole(target) for _ in iterate(target, sampler, 6 * length))]
    assert drawn.at == [int(n) * length - 1 for n in sweeps]
    moved = 0 if gradient == "full" else 1
    for at, found in zip(drawn.at, drawn.states, strict=True):
        assert all((found[factor] == states[at + moved][factor]).all() for factor in Factor)


@pytest.mark.parametrize("name", SAMPLERS)
def test_every_sampler_has_them_drawn_once_a_sweep(data: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """It is the estimator's duty; a sampler that visits the parts by itself must not forget it, nor do it twice."""
    for gradient in SAMPLERS[name].gradients:
        drawn = Drawn(monkeypatch)
        step = {"step_size": 0.02} if name in STEPPING else {}
        sampler = SAMPLERS[name](SAMPLERS[name].Config(gradient=gradient, **step), 0)
        target = factor_target(MPI.COMM_SELF, data, GRID, sampler=sampler, seed=SEED)
        sampler.start(target, 0.1)
        sampler.advance(target, 0, 3 * target.sweep_length)
        assert drawn.at == [n * target.sweep_length - 1 for n in (1, 2, 3)]
