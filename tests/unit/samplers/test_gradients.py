"""When hyperparameters are drawn by a gradient estimator, given which state, and that a step has them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from chain_states import iterate
from mpi4py import MPI
from support import MODEL, factor_target, rows_of

from dsgmcmc.model.parts.base import DrawContext
from dsgmcmc.model.target import FactorTarget
from dsgmcmc.samplers.sgld import SGLD, SGLDConfig
from dsgmcmc.types import Factor

GRID, SEED = 4, 5
Whole = dict[Factor, np.ndarray]


def whole(target: FactorTarget, field: str = "theta") -> Whole:
    """A field of all rows of both factors, in float64."""
    return {factor: rows_of(target, factor, field) for factor in Factor}


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


def test_a_step_along_the_full_gradient_has_what_is_drawn_in_it(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If tau and the prior's precision are drawn twice as large, this very step pulls a row twice as far."""
    moved: list[Whole] = []
    for precision in (1.0, 2.0):

        def draw(model: FactorTarget, context: DrawContext, precision: float = precision) -> None:
            prior = model.row_priors.parameters
            model.noise.parameters.tau[:] = precision
            for factor in Factor:
                prior.mean[factor][:], prior.precision[factor][:] = 0.0, precision

        monkeypatch.setattr(FactorTarget, "draw_shared", draw)
        sampler = SGLD(SGLDConfig(gradient="full", step_size=0.8), 0)
        target = factor_target(MPI.COMM_SELF, data, GRID, sampler=sampler, seed=SEED)
        sampler.start(target, 0.5)
        target.full_gradient("theta", "g")
        theta, g = whole(target), whole(target, "g")
        target.begin(0)
        sampler.step(target, 0)
        moved.append(whole(target))
    eps = 0.8 / target.curvature_bound
    for factor in Factor:
        pull = moved[1][factor] - moved[0][factor]
        np.testing.assert_allclose(pull, -eps * (g[factor] + theta[factor]), rtol=2e-5, atol=2e-5)
