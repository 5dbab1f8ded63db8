"""Samplers with a momentum: the halves of their kicks, and the temperatures of their momenta."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from support import MODEL, Model, factor_target, write_planted

from dsgmcmc.diagnostics.summary import temperature_warnings
from dsgmcmc.model.target import FactorTarget
from dsgmcmc.samplers.baoab import BAOAB, BAOABConfig
from dsgmcmc.samplers.sghmc import SGHMC, SGHMCConfig
from dsgmcmc.samplers.underdamped import MIN_MEASUREMENTS, Temperatures, Underdamped
from dsgmcmc.types import Factor


@pytest.mark.parametrize(
    ("sampler_type", "config"),
    [
        (BAOAB, BAOABConfig()),
        (BAOAB, BAOABConfig(metric="kronecker")),
        (SGHMC, SGHMCConfig(gradient="full", metric="fisher")),
    ],
    ids=["baoab", "kronecker", "sghmc"],
)
def test_halves_of_a_kick_make_a_whole(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sampler_type: type[Underdamped[Any]],
    config: Any,
) -> None:
    """Taken apart on either side of draws that change nothing, they move as when joined: none is
    lost, none twice.
    """
    path = write_planted(tmp_path / "r.h5", 12, 9)
    model = Model(2, True, "fixed", 1.0, 2.0, first=100)
    states = []
    for renewed in ("", "renews_data", "renews_prior"):
        for name in ("renews_data", "renews_prior"):
            monkeypatch.setattr(FactorTarget, name, name == renewed)
        sampler = sampler_type(config, 0)
        target = factor_target(MPI.COMM_SELF, path, model=model, sampler=sampler)
        sampler.start(target, 0.3)
        assert bool(sampler.end_step(target, 1.0)) == bool(renewed)
        sampler.advance(target, 0, 4)
        states.append(
            np.concatenate(
                [block[name].ravel() for block in target.blocks() for name in ("theta", "r")]
            )
        )
    # in float32, and the halves are rounded apart
    for apart in states[1:]:
        np.testing.assert_allclose(apart, states[0], rtol=1e-3, atol=1e-4)


# ---------------------------------------------------------------------- temperatures


@pytest.fixture
def target(tmp_path: Path) -> FactorTarget:
    sampler = BAOAB(BAOABConfig(), 0)
    return factor_target(
        MPI.COMM_SELF, write_planted(tmp_path / "r.h5", 60, 40), model=MODEL, sampler=sampler
    )


def measure(
    temperatures: Temperatures, target: FactorTarget, sd: dict[Factor, float], seed: int
) -> None:
    """Measure normal momenta of these standard deviations; those of biases are 1."""
    rng = np.random.default_rng(seed)
    for block in target.blocks():
        block["r"][:] = rng.normal(size=block["r"].shape)
        block["r"][:, :-1] *= sd[block.factor]
    temperatures.measure(target)


def test_a_temperature_is_the_mean_square_of_the_momenta_of_a_field(target: FactorTarget) -> None:
    """By factor, and of biases apart, within four standard errors; the field that is hot is named,
    and none else is.
    """
    temperatures = Temperatures()
    for seed in range(MIN_MEASUREMENTS):
        measure(temperatures, target, {Factor.W: 1.0, Factor.H: 1.3}, seed)
    found = temperatures.by_field()
    expected = {"W.factors": 1.0, "W.biases": 1.0, "H.factors": 1.69, "H.biases": 1.0}
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name][0] == pytest.approx(value, abs=4 * value * found[name][1])
    assert "factors of H have the temperature 1." in temperatures.find_divergence()
    read = {name: {"value": value, "error": error} for name, (value, error) in found.items()}
    (said,) = temperature_warnings(read)
    assert "H.factors" in said
    assert "W.factors" not in said


def test_what_was_hot_at_first_is_left_out_in_time(target: FactorTarget) -> None:
    """A chain that moved towards its posterior after burn-in is no diverged one; and few
    measurements say nothing.
    """
    temperatures = Temperatures()
    hot = dict.fromkeys(Factor, 1.4)
    for seed in range(3):
        measure(temperatures, target, hot, seed)
    assert temperatures.find_divergence() == ""
    for seed in range(3, 16):
        measure(temperatures, target, dict.fromkeys(Factor, 1.0), seed)
    assert temperatures.find_divergence() == ""
    assert all(abs(value - 1) < 4 * error for value, error in temperatures.by_field().values())
