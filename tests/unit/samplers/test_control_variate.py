"""Control variates: unbiased, less noisy close to the anchor, and the anchor where it should be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from chain_states import iterate
from mpi4py import MPI
from support import factor_target

from dsgmcmc.kernels.formula import Formula
from dsgmcmc.model.target import FactorTarget
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.samplers.sgld import SGLD, SGLDConfig
from dsgmcmc.targets.base import Target

GRID = 4
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
        found.append(np.concatenate([taken[place] for place in sorted(taken)]))
    return found


def flat(target: Target, field: str = "theta") -> np.ndarray:
    """A field of all blocks in one vector."""
    return np.concatenate([block[field].ravel() for block in whole(target)])


def whole(target: Target) -> list[Any]:
    return sorted(target.blocks(), key=lambda block: (block.factor, block.index))


# ---------------------------------------------------------------------- laws


def test_it_is_unbiased_on_the_ring(data: Path) -> None:
    """Also where tau was drawn since the anchor was placed; float32."""
    sampler = SGLD(SGLDConfig(gradient="control-variate"), 0)
    target = factor_target(MPI.COMM_SELF, data, GRID, schedule="cyclic", sampler=sampler)
    sampler.start(target, 1.0)
    gradients(target, sampler)
    sampler.gradient.burn_in = -1
    for block in target.blocks():
        block["theta"][:] += 0.2 * np.sin(np.arange(block["theta"].size)).reshape(block["theta"].shape)
    target.noise.parameters.tau[:] = 2.5
    target.draw_shared = lambda context: None
    p = target.circulation.schedule.probability
    mean = np.average(gradients(target, sampler), 0, p)
    full = SGLD(SGLDConfig(gradient="full"), 0)
    exact = gradients(like(data, target, full), full)[0]
    np.testing.assert_allclose(mean, exact, rtol=1e-4, atol=1e-4 * np.abs(exact).max())


def like(data: Path, other: FactorTarget, sampler: Sampler[Any, Any]) -> FactorTarget:
    """A target for another sampler at the same state."""
    target = factor_target(MPI.COMM_SELF, data, GRID, sampler=sampler)
    for block, same in zip(whole(target), whole(other), strict=True):
        block["theta"][:] = same["theta"]
    for part, same in zip(target.replicated, other.replicated, strict=True):
        part.take(same.arrays())
    target.draw_shared = lambda context: None
    return target


# ---------------------------------------------------------------------- the anchor


def test_the_anchor_is_the_state_at_the_end_of_burn_in(data: Path) -> None:
    """Until then the chain is that of plain parts, bit for bit; and no longer."""
    chains, burn_in = [], 6
    for gradient in ("part", "control-variate"):
        sampler = SGLD(SGLDConfig(gradient=gradient, step_size=0.05), burn_in)
        target = factor_target(MPI.COMM_SELF, data, GRID, sampler=sampler)
        sampler.start(target, 0.3)
        chains.append([flat(target), *(flat(target) for _ in iterate(target, sampler, burn_in + 2))])
    plain, varied = chains
    assert all((a == b).all() for a, b in zip(plain[: burn_in + 1], varied[: burn_in + 1], strict=True))
    assert (plain[burn_in + 1] != varied[burn_in + 1]).any()
    assert (flat(target, "anchor") == varied[burn_in]).all()
