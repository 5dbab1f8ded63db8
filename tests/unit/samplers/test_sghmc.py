"""What SGHMC refuses: settings under which it would sample another law."""

from __future__ import annotations

from typing import Any

import pytest

from dsgmcmc.config.layers import build
from dsgmcmc.errors import InputError


@pytest.mark.parametrize(
    ("section", "schedule", "message"),
    [
        ({"noise_correction": True}, "shuffled", r"^sampler\.noise_correction needs .* schedule=random"),
        ({"noise_correction": True}, "cyclic", r"^sampler\.noise_correction needs .* schedule=random"),
        ({"noise_correction": True, "metric": "identity"}, "random", r"noise_correction .* sampler\.metric=fisher"),
        ({"noise_correction": True, "step_size": 0.5}, "random", r"more than the .* smaller --step-size"),
        ({"splitting": "published", "gamma": 5, "step_size": 0.5}, "shuffled", r"sampler\.gamma = 5 .* at most 1$"),
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
