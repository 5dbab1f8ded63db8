"""The draws of noise scales and of their law against the conditionals that they are to have."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from mpi4py import MPI
from support import Model, factor_target, write_planted

from dsgmcmc.samplers.baoab import BAOAB, BAOABConfig
from dsgmcmc.samplers.gradients import FullGradient
from dsgmcmc.types import Factor

ROWS, COLUMNS, TAU, DRAWS = 12, 9, 2.0, 1500
P_VALUE = 1e-5  # of a few tests of exact laws at fixed seeds


def test_an_update_has_the_gradient_at_the_scales_that_were_drawn(tmp_path: Path) -> None:
    """One that followed scales drawn a state before made predictive sds and tau too small by 7 %, at any step."""
    model = Model(2, True, "fixed", 1.0, TAU, heteroscedastic=tuple(Factor), noise_every=5)
    sampler = BAOAB(BAOABConfig(), 0)
    target = factor_target(MPI.COMM_SELF, write_planted(tmp_path / "r.h5", ROWS, COLUMNS), model=model, sampler=sampler)
    target.reset()
    for iteration in range(12):
        target.begin(iteration)
        before = [block.row("weight").copy() for block in target.blocks()]
        gradient = [block["g"].copy() for block in FullGradient().by_block(target, "theta")]
        changed = [not np.array_equal(block.row("weight"), g) for block, g in zip(target.blocks(), before, strict=True)]
        assert any(changed) == (iteration in (0, 5, 10))
        target.full_gradient("theta", "g", errors=False)
        for block, used in zip(target.blocks(), gradient, strict=True):
            np.testing.assert_array_equal(block["g"], used)
