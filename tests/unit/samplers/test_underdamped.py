"""Kicks of samplers with a momentum, whose halves are taken apart where the data change between them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from support import Model, factor_target, write_planted

from dsgmcmc.model.target import FactorTarget
from dsgmcmc.samplers.baoab import BAOAB, BAOABConfig
from dsgmcmc.samplers.sghmc import SGHMC, SGHMCConfig
from dsgmcmc.samplers.underdamped import Underdamped


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        (BAOAB, BAOABConfig()),
        (BAOAB, BAOABConfig(metric="kronecker")),
        (SGHMC, SGHMCConfig(gradient="full", metric="fisher")),
    ],
    ids=["baoab", "kronecker", "sghmc"],
)
def test_halves_of_a_kick_make_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Underdamped[Any]], config: Any
) -> None:
    """Taken apart on either side of draws that change nothing, they move as when joined: none is lost, none twice."""
    path = write_planted(tmp_path / "r.h5", 12, 9)
    model = Model(2, True, "fixed", 1.0, 2.0, first=100)
    states = []
    for renewed in ("", "renews_data", "renews_prior"):
        for name in ("renews_data", "renews_prior"):
            monkeypatch.setattr(FactorTarget, name, name == renewed)
        sampler = kind(config, 0)
        target = factor_target(MPI.COMM_SELF, path, model=model, sampler=sampler)
        sampler.start(target, 0.3)
        assert sampler.halves(target) == bool(renewed)
        sampler.advance(target, 0, 4)
        states.append(np.concatenate([block[name].ravel() for block in target.blocks() for name in ("theta", "r")]))
    # in float32, and the halves are rounded apart
    for apart in states[1:]:
        np.testing.assert_allclose(apart, states[0], rtol=1e-3, atol=1e-4)
