"""Every entry of the registry keeps what a sampler promises; bits are compared by ``tests/mpi/test_invariance.py``."""

from __future__ import annotations

import importlib
import inspect
import itertools
import pkgutil
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from mpi4py import MPI
from pydantic import Field, ValidationError
from support import digest, factor_target, metrics, sample, write_planted

from dsgmcmc import densities, samplers
from dsgmcmc.config.layers import build
from dsgmcmc.errors import InputError
from dsgmcmc.kernels.formula import Formula
from dsgmcmc.model.target import FactorTarget
from dsgmcmc.samplers import DENSITY_SAMPLERS, SAMPLERS
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.samplers.gradients import GRADIENTS
from dsgmcmc.samplers.step_size import SamplerConfig, StepSize
from dsgmcmc.storage.manifest import Key
from dsgmcmc.storage.series import step_name
from dsgmcmc.storage.snapshot import Snapshot
from dsgmcmc.targets.base import Target
from dsgmcmc.targets.state import Replicated, StateField

GRID = 4
STEPS = {"baoab": 0.02}  # the default is for real data, not for 250 ratings


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_planted(tmp_path_factory.mktemp("data") / "r.h5")


@pytest.mark.parametrize("name", SAMPLERS)
class TestConformance:
    """Run for every sampler."""

    def make(self, name: str, gradient: str | None = None, burn_in: int = 0) -> Sampler[Any, Any]:
        section = {"step_size": STEPS[name]} if name in STEPS else {}
        return SAMPLERS[name](SAMPLERS[name].Config(gradient=gradient, **section), burn_in)

    def target(self, data: Path, sampler: Sampler[Any, Any], seed: int = 0) -> FactorTarget:
        """Target at its start, as a chain makes it."""
        target = factor_target(MPI.COMM_SELF, data, GRID, sampler=sampler, seed=seed)
        sampler.start(target, 0.1)
        return target

    def run(self, target: FactorTarget, sampler: Sampler[Any, Any], iterations: int) -> bytes:
        for iteration in range(iterations):
            target.begin(iteration)
            sampler.step(target, iteration)
        return b"".join(block.buffer.tobytes() for block in target.blocks())

    def test_its_configuration_extends_that_of_all(self, name: str) -> None:
        """Every setting has a default, and unknown or later changed ones are refused."""
        config = SAMPLERS[name].Config
        assert issubclass(config, SamplerConfig)
        assert config not in (SamplerConfig, StepSize)
        made = config()
        assert made.step(0, GRID, 0) > 0
        with pytest.raises(ValidationError):
            config(no_such_setting=1)
        with pytest.raises(ValidationError):
            made.gradient = "full"
        for field, info in config.model_fields.items():
            assert info.description or field in StepSize.model_fields, f"describe {field}"

    def test_it_counts_iterations_as_its_gradient_does(self, name: str, data: Path) -> None:
        """The configuration knows the length of a sweep before there is a target."""
        for gradient in SAMPLERS[name].gradients:
            sampler = self.make(name, gradient)
            target = self.target(data, sampler)
            assert type(sampler).sweep_length(sampler.config, GRID) == target.sweep_length
            assert target.sweep_length == (GRID if GRADIENTS[gradient].by_parts else 1)

    def test_it_moves_every_row_of_every_position(self, name: str, data: Path) -> None:
        """Also rows without a rating, which the prior and the noise move; and all numbers stay sane."""
        for gradient in SAMPLERS[name].gradients:
            sampler = self.make(name, gradient)
            target = self.target(data, sampler)
            before = {
                (block.factor, block.index, position): block[position].copy()
                for block in target.blocks()
                for position in sampler.positions
            }
            self.run(target, sampler, 2 * GRID * len(sampler.positions))
            assert any((block.counts == 0).any() for block in target.blocks())
            for block in target.blocks():
                for position in sampler.positions:
                    theta = block[position]
                    assert np.isfinite(theta).all()
                    assert (theta != before[block.factor, block.index, position]).any(axis=1).all()
                    assert np.abs(theta).max() < 100
                for field in target.layout.names:
                    assert np.isfinite(block[field]).all()

    def test_a_gradient_that_it_cannot_use_is_refused(self, name: str) -> None:
        """With those that it can; a sampler that only looks as if it sampled the target would be worse."""
        sampler = SAMPLERS[name]
        for other in {"part", "full", "no such"} - {*sampler.gradients}:
            with pytest.raises(InputError, match=rf"'{other}'; it takes {' or '.join(sampler.gradients)}"):
                build({"sampler": {"name": name, "gradient": other}}).resolved()


# ---------------------------------------------------------------------- the registry


def test_every_sampler_of_the_package_is_registered() -> None:
    """A file that nobody can select is dead."""
    found = set()
    rooms = (pkgutil.walk_packages(room.__path__, f"{room.__name__}.") for room in (samplers, densities))
    for module in itertools.chain.from_iterable(rooms):
        content = vars(importlib.import_module(module.name)).values()
        found |= {c for c in content if inspect.isclass(c) and issubclass(c, Sampler) and not inspect.isabstract(c)}
    every = {**SAMPLERS, **DENSITY_SAMPLERS}
    assert found == set(every.values())
    assert all(name.replace("_", "") == sampler.__name__.lower() for name, sampler in every.items())


@dataclass
class Visits(Replicated):
    """Iterations made, (1,)."""

    saved_as: ClassVar[dict[str, str]] = {"number": "visits"}

    number: np.ndarray


class Halves(Sampler[StepSize, Target]):
    """SGLD that also counts its iterations in a field of its own and in the replicated state."""

    class Config(StepSize):
        """Configuration."""

        step_size: float = Field(0.3, gt=0)

    gradients = ("part", "full")
    UPDATE = Formula("age = age + 1\ntheta = theta - eps * grad + noise * z")

    def __init__(self, config: StepSize, burn_in: int) -> None:
        super().__init__(config, burn_in)
        self.visits = Visits(np.zeros(1))
        self.replicated = (self.visits,)

    @property
    def fields(self) -> tuple[StateField, ...]:
        return (StateField("theta"), StateField("age"))

    def metrics(self) -> dict[str, float]:
        return {"visits": float(self.visits.number[0])}

    def step(self, target: Target, iteration: int) -> None:
        self.visits.number = self.visits.number + 1
        eps = self.step_size(target, iteration) / target.curvature_bound
        for block in self.gradient(target, "theta"):
            block.update(self.UPDATE, eps=eps, noise=sqrt(2 * eps))


@pytest.mark.parametrize("gradient", Halves.gradients)
def test_a_new_sampler_needs_a_class_and_a_line(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gradient: str
) -> None:
    """Configured, run, measured, stopped, resumed and verified, with nothing changed but the registry."""
    monkeypatch.setitem(SAMPLERS, "halves", Halves)
    section = {"name": "halves", "step_size": 0.2, "gradient": gradient}
    settings = {"sampler": section, "rank": 2, "iterations": 21, "burn_in": 4, "thin": 2, "evaluate_every": 7}
    assert build(settings).resolved().sampler.config.step_size == 0.2
    assert sample(MPI.COMM_SELF, data, tmp_path / "one", **settings) == 0
    assert sample(MPI.COMM_SELF, data, tmp_path / "two", **{**settings, "iterations": 10}) == 0
    assert sample(MPI.COMM_SELF, data, tmp_path / "two", resume=True, iterations=21) == 0
    assert digest(tmp_path / "one") == digest(tmp_path / "two")
    assert [line["visits"] for line in metrics(tmp_path / "two")] == [1, 7, 14, 21]
    last = Snapshot(tmp_path / "two" / "checkpoints" / "chain-0" / step_name(21))
    assert (last.read(Key("state", "H", 3, "age")) == 21).all()
