"""Where chains start: biases at their conditional means, and all else where the sampler put it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from support import Model, factor_target, write_planted

from dsgmcmc.samplers import SAMPLERS
from dsgmcmc.types import Factor


@pytest.mark.parametrize(("sampler", "fits"), [("baoab", True), ("gibbs", False), ("psgld", False)])
def test_biases_start_at_their_conditional_means(tmp_path: Path, sampler: str, fits: bool) -> None:
    """Where gradients are of all ratings: of H given the rest, as the energy's gradient is 0; factors stay."""
    kind = SAMPLERS[sampler]
    target = factor_target(
        MPI.COMM_SELF, write_planted(tmp_path / "r.h5"), model=Model(2), sampler=kind(kind.Config(), 0)
    )
    target.reset()
    for number, block in enumerate(target.blocks()):
        block["theta"][:] = np.random.default_rng(number).normal(0, 0.5, block["theta"].shape)
    before = {block: block["theta"].copy() for block in target.blocks()}
    target.fit_biases()
    for block, theta in before.items():
        np.testing.assert_array_equal(block["theta"][:, :-1], theta[:, :-1])
        assert (block["theta"][:, -1] != theta[:, -1]).any() == fits
    if not fits:
        return
    target.full_gradient("theta", "g")
    for block in (each for each in target.blocks() if each.factor == Factor.H):
        strength = block.prior(block).precision[-1]
        slope = target.noise_precision * block["g"][:, -1] + strength * block["theta"][:, -1]
        np.testing.assert_allclose(slope, 0, atol=1e-4 * target.noise_precision * block.counts.max())
