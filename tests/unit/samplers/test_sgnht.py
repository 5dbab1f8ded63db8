"""What SGNHT refuses, and what it takes by itself."""

from __future__ import annotations

import pytest

from dsgmcmc.config.layers import build
from dsgmcmc.errors import InputError


@pytest.mark.parametrize("schedule", ["shuffled", "cyclic"])
def test_parts_that_depend_on_each_other_are_refused(schedule: str) -> None:
    """A thermostat would take their noise for heat that there is not; with one part there is none."""
    with pytest.raises(InputError, match=r"^the thermostat .* schedule=random, or take another sampler$"):
        build({"sampler": "sgnht", "schedule": schedule}).resolved()
    build({"sampler": "sgnht", "schedule": schedule, "grid": 1}).resolved()


def test_parts_are_drawn_independently_by_default() -> None:
    """What it cannot do without need not be asked for."""
    assert build({"sampler": "sgnht"}).resolved().schedule == "random"
