"""Gradient estimators: when hyperparameters are drawn, given which state, and control variates with
their anchor.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chain_states import iterate
from mpi4py import MPI
from support import MODEL, factor_target, rows_of

from dsgmcmc.kernels.formulas.formula import Formula
from dsgmcmc.model.parts.base import DrawContext
from dsgmcmc.model.target import FactorTarget
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.samplers.sgld import SGLD, SGLDConfig
from dsgmcmc.targets.base import Target
from dsgmcmc.types import Factor

GRID = 4
SEED = 5
AllRows = dict[Factor, np.ndarray]


def all_rows(target: FactorTarget, field: str = "theta") -> AllRows:
    """A field of all rows of both factors, in float64."""
    return {factor: rows_of(target, factor, field) for factor in Factor}


class Drawn:
    """Stands for `FactorTarget.draw_shared`: notes at which state it is asked, and sets tau to a
    number of its own.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at: list[int] = []
        self.states: list[AllRows] = []
        monkeypatch.setattr(
            FactorTarget, "draw_shared", lambda model, context: self.note(model, context)
        )

    def note(self, model: FactorTarget, context: DrawContext) -> None:
        self.at.append(context.stream.iteration)
        self.states.append(all_rows(context.circulation, context.position))
        model.noise.parameters.tau[...] = 1.0 + 0.1 * len(self.at)


@pytest.mark.parametrize(("first", "sweeps"), [(0, "123456"), (2, "23456")])
@pytest.mark.parametrize(("gradient", "length"), [("part", GRID), ("full", 1)])
def test_hyperparameters_are_drawn_once_a_sweep(
    data: Path, monkeypatch: pytest.MonkeyPatch, gradient: str, length: int, first: int, sweeps: str
) -> None:
    """By parts when all were seen, given the state that they led to; else given the one that the
    gradient is of.
    """
    drawn = Drawn(monkeypatch)
    sampler = SGLD(SGLDConfig(gradient=gradient, step_size=0.05), 0)
    model = replace(MODEL, first=first)
    target = factor_target(MPI.COMM_SELF, data, GRID, model=model, sampler=sampler, seed=SEED)
    sampler.start(target, 0.3)
    states = [all_rows(target), *(all_rows(target) for _ in iterate(target, sampler, 6 * length))]
    assert drawn.at == [int(n) * length - 1 for n in sweeps]
    moved = 0 if gradient == "full" else 1
    for at, found in zip(drawn.at, drawn.states, strict=True):
        assert all((found[factor] == states[at + moved][factor]).all() for factor in Factor)


def test_a_step_along_the_full_gradient_has_what_is_drawn_in_it(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If tau and the prior's precision are drawn twice as large, this very step pulls a row twice
    as far.
    """
    moved: list[AllRows] = []
    for precision in (1.0, 2.0):

        def draw(model: FactorTarget, context: DrawContext, precision: float = precision) -> None:
            prior = model.row_priors.parameters
            model.noise.parameters.tau[...] = precision
            for factor in Factor:
                prior.mean[factor][:] = 0.0
                prior.precision[factor][:] = precision

        monkeypatch.setattr(FactorTarget, "draw_shared", draw)
        sampler = SGLD(SGLDConfig(gradient="full", step_size=0.8), 0)
        target = factor_target(MPI.COMM_SELF, data, GRID, sampler=sampler, seed=SEED)
        sampler.start(target, 0.5)
        target.full_gradient("theta", "g")
        theta = all_rows(target)
        g = all_rows(target, "g")
        target.begin(0)
        sampler.step(target, 0)
        moved.append(all_rows(target))
    eps = 0.8 / target.curvature_bound
    for factor in Factor:
        pull = moved[1][factor] - moved[0][factor]
        np.testing.assert_allclose(pull, -eps * (g[factor] + theta[factor]), rtol=2e-5, atol=2e-5)


# ---------------------------------------------------------------------- control variates

TAKEN = Formula("out = grad")


def gradients(target: Target, sampler: Sampler[Any, Any]) -> list[np.ndarray]:
    """Gradient of every iteration of the next sweep, each part's once, at the state as it is."""
    found = []
    for iteration in range(target.sweep_length):
        target.begin(iteration)
        taken = {}
        for block in sampler.gradient.by_block(target, "theta"):
            block.update(TAKEN, out="g")
            taken[block.factor, block.index] = block["g"].ravel().copy()
        found.append(np.concatenate([taken[cell] for cell in sorted(taken)]))
    return found


def flat(target: Target, field: str = "theta") -> np.ndarray:
    """A field of all blocks in one vector."""
    return np.concatenate([block[field].ravel() for block in in_order(target)])


def in_order(target: Target) -> list[Any]:
    return sorted(target.blocks(), key=lambda block: (block.factor, block.index))


def test_it_is_unbiased_on_the_ring(data: Path) -> None:
    """Also where tau was drawn since the anchor was placed; float32."""
    sampler = SGLD(SGLDConfig(gradient="control-variate"), 0)
    target = factor_target(MPI.COMM_SELF, data, GRID, schedule="cyclic", sampler=sampler)
    sampler.start(target, 1.0)
    gradients(target, sampler)
    sampler.gradient.burn_in = -1
    for block in target.blocks():
        block["theta"][:] += 0.2 * np.sin(np.arange(block["theta"].size)).reshape(
            block["theta"].shape
        )
    target.noise.parameters.tau[...] = 2.5
    target.draw_shared = lambda context: None
    p = target.circulation.schedule.probability
    mean = np.average(gradients(target, sampler), 0, p)
    full = SGLD(SGLDConfig(gradient="full"), 0)
    exact = gradients(like(data, target, full), full)[0]
    np.testing.assert_allclose(mean, exact, rtol=1e-4, atol=1e-4 * np.abs(exact).max())


def like(data: Path, other: FactorTarget, sampler: Sampler[Any, Any]) -> FactorTarget:
    """A target for another sampler at the same state."""
    target = factor_target(MPI.COMM_SELF, data, GRID, sampler=sampler)
    for block, same in zip(in_order(target), in_order(other), strict=True):
        block["theta"][:] = same["theta"]
    for part, same in zip(target.replicated, other.replicated, strict=True):
        part.take(same.arrays())
    target.draw_shared = lambda context: None
    return target


def test_the_anchor_is_the_state_at_the_end_of_burn_in(data: Path) -> None:
    """Until then the chain is that of plain parts, bit for bit; and no longer."""
    chains = []
    burn_in = 6
    for gradient in ("part", "control-variate"):
        sampler = SGLD(SGLDConfig(gradient=gradient, step_size=0.05), burn_in)
        target = factor_target(MPI.COMM_SELF, data, GRID, sampler=sampler)
        sampler.start(target, 0.3)
        chains.append(
            [flat(target), *(flat(target) for _ in iterate(target, sampler, burn_in + 2))]
        )
    plain, varied = chains
    assert all(
        (a == b).all() for a, b in zip(plain[: burn_in + 1], varied[: burn_in + 1], strict=True)
    )
    assert (plain[burn_in + 1] != varied[burn_in + 1]).any()
    assert (flat(target, "anchor") == varied[burn_in]).all()
