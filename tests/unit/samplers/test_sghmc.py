"""What SGHMC and SGNHT refuse: settings under which they would sample another law."""

from __future__ import annotations

from typing import Any

import pytest

from dsgmcmc.config.run import build
from dsgmcmc.errors import InputError


@pytest.mark.parametrize(
    ("section", "schedule", "message"),
    [
        ({"noise_correction": True}, "shuffled", r"^sampler\.noise_correction needs .* schedule=random"),
        ({"noise_correction": True}, "cyclic", r"^sampler\.noise_correction needs .* schedule=random"),
        ({"noise_correction": True, "metric": "identity"}, "random", r"noise_correction .* sampler\.metric=fisher"),
    ],
)
def test_what_would_sample_another_law(section: dict[str, Any], schedule: str, message: str) -> None:
    """In one line that says what to do instead."""
    with pytest.raises(InputError, match=message) as caught:
        build({"sampler": {"name": "sghmc", **section}, "schedule": schedule}).resolved()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "section"), [({"schedule": "random"}, {}), ({"grid": 1}, {}), ({}, {"gradient": "full"})]
)
def test_the_noise_can_be_corrected_for(settings: dict[str, Any], section: dict[str, Any]) -> None:
    """Where parts are independent, and where there is no noise."""
    build({"sampler": {"name": "sghmc", "noise_correction": True, **section}, **settings}).resolved()


@pytest.mark.parametrize("schedule", ["shuffled", "cyclic"])
def test_a_thermostat_refuses_parts_that_depend_on_each_other(schedule: str) -> None:
    """It would take their noise for heat that there is not; with one part there is none, and random is its default."""
    with pytest.raises(InputError, match=r"^the thermostat .* schedule=random, or take another sampler$"):
        build({"sampler": "sgnht", "schedule": schedule}).resolved()
    build({"sampler": "sgnht", "schedule": schedule, "grid": 1}).resolved()
    assert build({"sampler": "sgnht"}).resolved().schedule == "random"
