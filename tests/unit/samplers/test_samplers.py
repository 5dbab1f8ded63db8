"""Every entry of the registry keeps what a sampler promises; the bits across resuming are ``tests/mpi``'s."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from pydantic import Field, ValidationError
from support import digest, factor_world, sample, write_planted

import dsgmcmc
from dsgmcmc import samplers
from dsgmcmc.config.layers import build
from dsgmcmc.kernels.formula import Formula
from dsgmcmc.samplers import SAMPLERS
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.samplers.step_size import StepSize
from dsgmcmc.storage.manifest import Key, _check_key
from dsgmcmc.targets.base import World
from dsgmcmc.targets.factorisation.hyperparameters import Model
from dsgmcmc.targets.factorisation.noise import start_weights
from dsgmcmc.targets.factorisation.target import FactorWorld

GRID = 4
STEPS = {"baoab": 0.02}  # the default is for real data, not for 250 ratings


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_planted(tmp_path_factory.mktemp("data") / "r.h5")


@pytest.mark.parametrize("name", SAMPLERS)
class TestConformance:
    """Run for every sampler."""

    def make(self, name: str, burn_in: int = 0) -> Sampler[Any]:
        section = {"step_size": STEPS[name]} if name in STEPS else {}
        return SAMPLERS[name](SAMPLERS[name].Config(**section), burn_in)

    def world(self, data: Path, sampler: Sampler[Any], seed: int = 0) -> FactorWorld:
        """World at its start, as a chain makes it."""
        world = factor_world(
            MPI.COMM_SELF,
            data,
            GRID,
            "home" if sampler.sweeps else "shuffled",
            fields=sampler.fields,
            scratch=sampler.scratch,
            seed=seed,
        )
        world.state = Model(2, True, "normal-gamma", 1.0, None).start(len(sampler.positions))
        start_weights(world)
        sampler.start(world, 0.1)
        return world

    def run(self, world: FactorWorld, sampler: Sampler[Any], iterations: int) -> bytes:
        for iteration in range(iterations):
            world.iteration = iteration
            sampler.step(world, iteration)
        return b"".join(side.buffer.tobytes() for side in world.sides())

    def test_it_is_one_file_named_after_it_that_cites_its_paper(self, name: str) -> None:
        """A reader has the paper in hand."""
        module = inspect.getmodule(SAMPLERS[name])
        assert module.__name__.rpartition(".")[2] == name
        assert module.__name__.startswith("dsgmcmc.samplers.")
        assert re.search(r"\[[A-Z][A-Za-z&. -]+ (19|20)\d\d, ", module.__doc__), "cite [Name Year, equation]"
        assert re.search(r"(?i)\b(target|exact)\b", module.__doc__), "say what it samples"
        assert re.search(r"(?i)left out|what is exact", module.__doc__), "say what is left out"
        assert SAMPLERS[name].__doc__

    def test_its_configuration_extends_the_step_size(self, name: str) -> None:
        """Every setting has a default, and unknown or later changed ones are refused."""
        config = SAMPLERS[name].Config
        assert issubclass(config, StepSize)
        assert config is not StepSize
        made = config()
        assert made.step_size > 0
        with pytest.raises(ValidationError):
            config(no_such_setting=1)
        with pytest.raises(ValidationError):
            made.step_size = 1.0
        for field, info in config.model_fields.items():
            assert info.description or field in StepSize.model_fields, f"describe {field}"

    def test_its_fields_have_names_that_can_be_saved(self, name: str) -> None:
        """Unique, apart from scratch, and with the positions among them."""
        sampler = self.make(name)
        names = [field.name for field in sampler.fields]
        assert len(set(names)) == len(names)
        assert not set(names) & set(sampler.scratch)
        assert not {"weight", "row_error", "squared_error"} & {*names, *sampler.scratch}, "these are the world's"
        assert set(sampler.positions) <= set(names)
        assert all(_check_key(Key("state", "W", 0, field)) for field in names)
        m = len(sampler.positions)
        assert [sampler.position(i) for i in range(2 * m)] == [*sampler.positions] * 2

    def test_it_weighs_draws_by_their_step(self, name: str, data: Path) -> None:
        """[Simsekli 2016, eq. 12]; constant where the step is."""
        sampler = self.make(name, burn_in=1000)
        world = self.world(data, sampler)
        weights = [sampler.weight(world, 100_000 + i) for i in range(10)]
        assert weights == [sampler.config.step_size] * 10

    def test_it_moves_every_row_of_every_position(self, name: str, data: Path) -> None:
        """Also rows without a rating, which the prior and the noise move; and all numbers stay sane."""
        sampler = self.make(name)
        world = self.world(data, sampler)
        before = {
            (side.factor, side.index, position): side[position].copy()
            for side in world.sides()
            for position in sampler.positions
        }
        self.run(world, sampler, 2 * GRID * len(sampler.positions))
        assert any((side.counts == 0).any() for side in world.sides())
        for side in world.sides():
            for position in sampler.positions:
                theta = side[position]
                assert np.isfinite(theta).all()
                assert (theta != before[side.factor, side.index, position]).any(axis=1).all()
                assert np.abs(theta).max() < 100
            for field in world.layout.names:
                assert np.isfinite(side[field]).all()

    def test_it_is_a_function_of_the_seed(self, name: str, data: Path) -> None:
        """Nothing is drawn but from counters: two objects in one process do not disturb each other."""
        first, second = self.make(name), self.make(name)
        worlds = [self.world(data, first), self.world(data, second)]
        alone = self.run(self.world(data, self.make(name)), self.make(name), 9)
        for iteration in range(9):  # in turns
            for world, sampler in zip(worlds, (first, second), strict=True):
                world.iteration = iteration
                sampler.step(world, iteration)
        assert {b"".join(side.buffer.tobytes() for side in world.sides()) for world in worlds} == {alone}
        other = self.make(name)
        assert self.run(self.world(data, other, seed=1), other, 9) != alone

    def test_everything_that_it_remembers_is_saved(self, name: str, data: Path) -> None:
        """A new object with the fields and the replicated state of the old one goes on with the same bits."""
        old = self.make(name, burn_in=20)
        world = self.world(data, old)
        self.run(world, old, 11)
        new = self.make(name, burn_in=20)
        copy = self.world(data, new, seed=0)
        copy.place(11)
        copy.state = {key: value.copy() for key, value in world.state.items()}
        buffers = {(side.factor, side.index): side.buffer for side in world.sides()}
        for side in copy.sides():
            side.buffer[:] = buffers[side.factor, side.index]
        for iteration in range(11, 18):
            for each, sampler in ((world, old), (copy, new)):
                each.iteration = iteration
                sampler.step(each, iteration)
        for side in copy.sides():
            other = next(s for s in world.sides() if (s.factor, s.index) == (side.factor, side.index))
            assert side.buffer.tobytes() == other.buffer.tobytes()
        assert copy.state.keys() == world.state.keys()
        for key, value in copy.state.items():
            assert value.dtype == np.float64, key
            assert value.tobytes() == world.state[key].tobytes(), key

    def test_its_columns_rest_where_the_next_iteration_needs_them(self, name: str, data: Path) -> None:
        """Sending is the sampler's duty: it visits the last time with `send`, or stays at home."""
        sampler = self.make(name)
        world = self.world(data, sampler)
        for iteration in range(7):
            world.iteration = iteration
            assert world.part == world.schedule.part(iteration)
            sampler.step(world, iteration)
        assert world.part == world.schedule.part(7)


# ---------------------------------------------------------------------- the registry


def test_every_sampler_of_the_package_is_registered() -> None:
    """A file that nobody can select is dead."""
    found = set()
    for module in pkgutil.walk_packages(samplers.__path__, "dsgmcmc.samplers."):
        content = vars(importlib.import_module(module.name)).values()
        found |= {c for c in content if inspect.isclass(c) and issubclass(c, Sampler) and not inspect.isabstract(c)}
    assert found == set(SAMPLERS.values())
    assert all(name == sampler.__name__.lower() for name, sampler in SAMPLERS.items())


def mentions(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Names of samplers in code: as a whole string, or as an identifier."""
    classes = {sampler.__name__ for sampler in SAMPLERS.values()}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value in SAMPLERS:
            yield node.lineno, str(node.value)
        if isinstance(node, ast.Name) and node.id in classes:
            yield node.lineno, node.id
        if isinstance(node, ast.Attribute) and node.attr in classes:
            yield node.lineno, node.attr


def test_no_other_code_knows_a_sampler_by_name() -> None:
    """But for the defaults: whoever asks which sampler it is would have to know the next one too."""
    package = Path(dsgmcmc.__file__).parent
    found: dict[str, list[str]] = {}
    for path in package.rglob("*.py"):
        if "samplers" not in path.relative_to(package).parts:
            for line, name in mentions(ast.parse(path.read_text(encoding="utf-8"))):
                found.setdefault(str(path.relative_to(package)), []).append(f"{line}: {name}")
    assert set(found) <= {"config/run.py", "cli/cluster/bench.py"}, found
    assert len(found["config/run.py"]) == 2


class Halves(Sampler[StepSize]):
    """SGLD that also counts its iterations in a field of its own and in the replicated state."""

    class Config(StepSize):
        """Configuration."""

        step_size: float = Field(0.3, gt=0)

    UPDATE = Formula(
        "age = age + 1\ntheta = theta - eps * g + noise * z", fields=("theta", "g", "age"), scalars=("eps", "noise")
    )

    @property
    def fields(self) -> tuple[samplers.base.Field, ...]:
        return (samplers.base.Field("theta"), samplers.base.Field("age"))

    def start(self, world: World, sd: float) -> None:
        super().start(world, sd)
        world.state["visits"] = np.zeros(1)

    def metrics(self, world: World) -> dict[str, float]:
        return {"visits": float(world.state["visits"][0])}

    def step(self, world: World, iteration: int) -> None:
        world.state["visits"] = world.state["visits"] + 1
        eps = self.config.step(iteration, world.grid, self.burn_in) / world.peak_count
        for block in world.visit(send=True):
            block.gradient("theta", "g")
            for side in block.sides:
                side.update(self.UPDATE, eps=eps, noise=sqrt(2 * eps))


def test_a_new_sampler_needs_a_class_and_a_line(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Configured, run, measured, stopped, resumed and verified, with nothing changed but the registry."""
    monkeypatch.setitem(SAMPLERS, "halves", Halves)
    settings = {"sampler": {"name": "halves", "step_size": 0.2}, "rank": 2, "iterations": 21, "burn_in": 4, "thin": 2}
    assert build(settings).resolved().sampler.config.step_size == 0.2
    assert sample(MPI.COMM_SELF, data, tmp_path / "one", **settings) == 0
    assert sample(MPI.COMM_SELF, data, tmp_path / "two", **{**settings, "iterations": 10}) == 0
    assert sample(MPI.COMM_SELF, data, tmp_path / "two", resume=True, iterations=21) == 0
    assert digest(tmp_path / "one") == digest(tmp_path / "two")
