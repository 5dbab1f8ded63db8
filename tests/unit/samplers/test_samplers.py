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
from pydantic import Field
from support import digest, factor_target, metrics, sample, write_planted

from dsgmcmc import densities, samplers
from dsgmcmc.config.run import build
from dsgmcmc.errors import InputError
from dsgmcmc.kernels.formula import Formula
from dsgmcmc.samplers import DENSITY_SAMPLERS, SAMPLERS
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.samplers.gradients import GRADIENTS
from dsgmcmc.samplers.step_size import StepSize
from dsgmcmc.storage.store import Key, Snapshot, step_name
from dsgmcmc.targets.base import Target
from dsgmcmc.targets.state import Replicated, StateField

GRID = 4
STEPS = {"baoab": 0.02}  # the default is for real data, not for 250 ratings


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_planted(tmp_path_factory.mktemp("data") / "r.h5")


@pytest.mark.parametrize(("name", "gradient"), [(name, each) for name in SAMPLERS for each in SAMPLERS[name].gradients])
def test_it_moves_every_row_of_every_position(name: str, gradient: str, data: Path) -> None:
    """Also rows without a rating, which the prior and the noise move; all numbers stay sane, and sweeps are counted."""
    kind, section = SAMPLERS[name], {"step_size": STEPS[name]} if name in STEPS else {}
    sampler = kind(kind.Config(gradient=gradient, **section), 0)
    target = factor_target(MPI.COMM_SELF, data, GRID, sampler=sampler)
    sampler.start(target, 0.1)
    by_parts = GRADIENTS[gradient].by_parts
    assert kind.sweep_length(sampler.config, GRID) == target.sweep_length == (GRID if by_parts else 1)
    blocks = {(block.factor, block.index): block for block in target.blocks()}
    before = {
        key: {position: block[position].copy() for position in sampler.positions} for key, block in blocks.items()
    }
    sampler.advance(target, 0, 2 * GRID * len(sampler.positions))
    assert any((block.counts == 0).any() for block in target.blocks())
    for block in target.blocks():
        for position, old in before[block.factor, block.index].items():
            assert (block[position] != old).any(axis=1).all()
            assert np.abs(block[position]).max() < 100
        assert all(np.isfinite(block[field]).all() for field in target.layout.names)


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_gradient_that_it_cannot_use_is_refused(name: str) -> None:
    """With those that it can; a sampler that only looks as if it sampled the target would be worse."""
    sampler = SAMPLERS[name]
    for other in {"part", "full", "no such"} - {*sampler.gradients}:
        with pytest.raises(InputError, match=rf"'{other}'; it takes {' or '.join(sampler.gradients)}"):
            build({"sampler": {"name": name, "gradient": other}}).resolved()


CORRECTED, VARIATED = {"noise_correction": True}, {"gradient": "control-variate"}
CORRECTION = r"^sampler\.noise_correction needs .* schedule=random"
THERMOSTAT = r"^the thermostat .* schedule=random, or take another sampler$"


@pytest.mark.parametrize(
    ("name", "section", "settings", "message"),
    [
        ("sghmc", CORRECTED, {"schedule": "shuffled"}, CORRECTION),
        ("sgrld", CORRECTED, {"schedule": "cyclic"}, CORRECTION),
        ("sghmc", CORRECTED | {"metric": "identity"}, {}, r"noise_correction .* sampler\.metric=fisher"),
        ("sghmc", CORRECTED | VARIATED, {}, "noise_correction is for the noise of plain parts"),
        ("sgnht", {}, {"schedule": "shuffled"}, THERMOSTAT),
        ("sgnht", {}, {"schedule": "cyclic"}, THERMOSTAT),
        ("baoab", VARIATED, {}, "BAOAB cannot use 'control-variate'"),
        ("sgld", VARIATED, {"noise": "both"}, "noise scales"),
        ("sgld", VARIATED, {"likelihood": "ordinal-logit"}, "thresholds change it"),
        ("hamcmc", {"memory": 2}, {"grid": 4, "schedule": "cyclic", "thin": 3}, "only 2 of the parts"),
        ("hamcmc", {"memory": 3}, {"grid": 9, "schedule": "cyclic", "thin": 2}, "only 3 of the parts"),
        ("hamcmc", {"memory": 2}, {"grid": 4, "schedule": "shuffled", "thin": 8}, "only 1 of the 2 sub-chains"),
        ("hamcmc", {"memory": 6}, {"grid": 4, "thin": 4}, "only 3 of the 6 sub-chains"),
    ],
)
def test_settings_that_would_sample_another_distribution_are_refused(
    name: str, section: dict[str, Any], settings: dict[str, Any], message: str
) -> None:
    """In one line that says what to do instead."""
    with pytest.raises(InputError, match=message) as caught:
        build({"schedule": "random", **settings, "sampler": {"name": name, **section}}).resolved()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "section", "settings"),
    [
        ("sghmc", CORRECTED, {"schedule": "random"}),
        ("sghmc", CORRECTED, {"grid": 1}),
        ("sghmc", CORRECTED | {"gradient": "full"}, {}),
        ("sgnht", {}, {"schedule": "cyclic", "grid": 1}),
        ("sgnht", {}, {}),
    ],
)
def test_noise_of_independent_parts_may_be_corrected(
    name: str, section: dict[str, Any], settings: dict[str, Any]
) -> None:
    """Where parts are independent, as by default with a thermostat, and where there is no noise."""
    resolved = build({**settings, "sampler": {"name": name, **section}}).resolved()
    assert settings or section or resolved.schedule == "random"


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
