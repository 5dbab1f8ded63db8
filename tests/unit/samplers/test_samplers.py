"""Every entry of the registry keeps what a sampler promises; bits are compared by
``tests/mpi/test_invariance.py``.
"""

import importlib
import inspect
import itertools
import pkgutil
from pathlib import Path
from typing import Any

import pytest

from dsgmcmc import densities, samplers
from dsgmcmc.config.run import build
from dsgmcmc.errors import InputError
from dsgmcmc.samplers import SAMPLERS
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.testing import check_distribution, check_iterations, check_sampler

STEPS = {"baoab": {"step_size": 0.02}}  # the default is for real data, not for 250 ratings


@pytest.mark.parametrize("name", SAMPLERS)
def test_it_keeps_what_a_sampler_promises(name: str) -> None:
    """With its default gradient: the distribution, what an iteration does, and the same bits after
    a stop.

    200 chains of 1,500 draws know a standard deviation to 1 or 2 %; what the step leaves is 3 % at
    most.
    """
    check_sampler(SAMPLERS[name], **STEPS.get(name, {}))


@pytest.mark.parametrize(
    ("name", "gradient"),
    [(name, each) for name, sampler in SAMPLERS.items() for each in sampler.gradients[1:]],
)
def test_it_moves_every_row_with_every_gradient(name: str, gradient: str, data: Path) -> None:
    """A sampler that visits the parts by itself must neither forget to have hyperparameters drawn,
    nor do it twice.
    """
    check_iterations(SAMPLERS[name], data, gradient=gradient, **STEPS.get(name, {}))


def test_the_default_step_of_baoab_leaves_the_right_spread() -> None:
    """The test above has another step."""
    check_distribution(SAMPLERS["baoab"])


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_gradient_that_it_cannot_use_is_refused(name: str) -> None:
    """The message names those that it can use."""
    sampler = SAMPLERS[name]
    for other in {"part", "full", "control-variate", "no such"} - {*sampler.gradients}:
        with pytest.raises(
            InputError, match=rf"'{other}'; it takes {' or '.join(sampler.gradients)}"
        ):
            build({"sampler": {"name": name, "gradient": other}}).resolved()


CORRECTED = {"noise_correction": True}
VARIATED = {"gradient": "control-variate"}
CORRECTION = r"^sampler\.noise_correction needs .* schedule=random"
THERMOSTAT = r"^the thermostat .* schedule=random, or take another sampler$"


@pytest.mark.parametrize(
    ("name", "section", "settings", "message"),
    [
        ("sghmc", CORRECTED, {"schedule": "shuffled"}, CORRECTION),
        ("sgrld", CORRECTED, {"schedule": "cyclic"}, CORRECTION),
        (
            "sghmc",
            CORRECTED | {"metric": "identity"},
            {},
            r"noise_correction .* sampler\.metric=fisher",
        ),
        ("sghmc", CORRECTED | VARIATED, {}, "noise_correction is for the noise of plain parts"),
        ("sgnht", {}, {"schedule": "shuffled"}, THERMOSTAT),
        ("sgld", VARIATED, {"noise": "both"}, "noise scales"),
        ("sgld", VARIATED, {"likelihood": "ordinal-logit"}, "thresholds would change"),
        (
            "hamcmc",
            {"memory": 2},
            {"grid": 4, "schedule": "cyclic", "thin": 3},
            "only 2 of the parts",
        ),
        (
            "hamcmc",
            {"memory": 3},
            {"grid": 9, "schedule": "cyclic", "thin": 2},
            "only 3 of the parts",
        ),
        (
            "hamcmc",
            {"memory": 2},
            {"grid": 4, "schedule": "shuffled", "thin": 8},
            "only 1 of the 2 sub-chains",
        ),
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
    ],
)
def test_noise_of_independent_parts_may_be_corrected(
    name: str, section: dict[str, Any], settings: dict[str, Any]
) -> None:
    """Where parts are independent, and where there is no noise."""
    build({**settings, "sampler": {"name": name, **section}}).resolved()


# ---------------------------------------------------------------------- the registry


def test_every_sampler_of_the_package_is_registered() -> None:
    """A file that nobody can select is dead."""
    found = set()
    rooms = (
        pkgutil.walk_packages(room.__path__, f"{room.__name__}.") for room in (samplers, densities)
    )
    for module in itertools.chain.from_iterable(rooms):
        content = vars(importlib.import_module(module.name)).values()
        found |= {
            c
            for c in content
            if inspect.isclass(c) and issubclass(c, Sampler) and not inspect.isabstract(c)
        }
    assert found == set(densities.SAMPLERS.values())
    assert all(
        name.replace("_", "") == sampler.__name__.lower()
        for name, sampler in densities.SAMPLERS.items()
    )
    assert set(SAMPLERS.values()) == {
        sampler for sampler in found if sampler.__module__.startswith("dsgmcmc.samplers.")
    }
